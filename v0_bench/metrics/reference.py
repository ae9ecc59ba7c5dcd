"""Reference rows: what an oracle would score, so that a table shows how much is left to gain."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from v0_bench.metrics.catalogue import METRICS
from v0_bench.metrics.rows import Floats, Rows, check_frame, rows_by_seed
from v0_bench.metrics.scoring import (
    auc_scores,
    calibration_scores,
    error_scores,
    nullable,
    seed_mean,
)

if TYPE_CHECKING:
    import pandas as pd

LOG_BOUNDS = (-7.0, 9.0)  # a beta distribution from two spikes to a single point, nearly
CEILING_METRICS = (
    "auc",
    "auc_left_out",
    "auc_weighted",
    "auc_soft",
    "mse",
    "brier_skill",
    "mse_excess",
    "mse_excess_share",
    "ece",
    "ece_debiased",
)


def ceiling_metrics(
    frame: pd.DataFrame, draws: int = 200, seed: int = 0
) -> dict[str, float | None]:
    """Metrics of an oracle that knows the true success rates, means over `draws` simulations.

    Per checkpoint a beta-binomial is fitted to the counts of successes; each draw takes p from it
    for every row and r ~ Binomial(k, p) / k. Rows with k = 1 say nothing about the spread of the
    rates and are left out; where no row has k >= 2 every metric is None. Metrics that compare
    checkpoints on a query or use its data set or difficulty are None: the simulation draws queries
    independently.
    """
    by_seed = rows_by_seed(frame)
    rng = np.random.default_rng(seed)
    values: dict[str, float | None] = dict.fromkeys(METRICS)
    oracles = [_oracle(rows, draws, rng) for rows in by_seed.values() if (rows.rollouts > 1).any()]
    for name in CEILING_METRICS if oracles else ():
        values[name] = seed_mean([oracle[name] for oracle in oracles])
    return values


def cross_policy_oracle(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with `query_difficulty` itself as the prediction, predictor `cross-policy-oracle`.

    Rows whose difficulty is null are dropped, so the frame may be shorter, or empty.
    """
    check_frame(frame)
    known = frame[frame["query_difficulty"].notna()]
    return known.assign(predictor="cross-policy-oracle", prediction=known["query_difficulty"])


def fit_beta_binomial(successes: Floats, rollouts: Floats) -> tuple[float, float]:
    """Maximum-likelihood (a, b) of a beta-binomial for counts (n,) out of rollouts (n,)."""
    from scipy.optimize import minimize
    from scipy.special import betaln

    pairs, times = np.unique(np.column_stack([successes, rollouts]), axis=0, return_counts=True)
    x, k = pairs.T

    def loss(log_ab: Floats) -> float:
        a, b = np.exp(log_ab)
        return -float(times @ (betaln(x + a, k - x + b) - betaln(a, b))) / len(successes)

    mean = np.clip(successes.sum() / rollouts.sum(), 0.01, 0.99)
    start = np.log([mean, 1 - mean])
    fitted = minimize(loss, start, method="L-BFGS-B", bounds=[LOG_BOUNDS, LOG_BOUNDS])
    a, b = np.exp(fitted.x)
    return float(a), float(b)


def _oracle(rows: Rows, draws: int, rng: np.random.Generator) -> dict[str, float | None]:
    rows = rows.take(rows.rollouts >= 2)
    rollouts = np.rint(rows.rollouts).astype(np.int64)
    a, b = np.empty(len(rows)), np.empty(len(rows))
    for checkpoint in np.unique(rows.checkpoint):
        own = rows.checkpoint == checkpoint
        k = rollouts[own].astype(np.float64)
        a[own], b[own] = fit_beta_binomial(np.rint(rows.reward[own] * k), k)
    results = [_simulated(rows, rollouts, a, b, rng) for _ in range(draws)]
    return {
        name: seed_mean([nullable(result[name]) for result in results]) for name in CEILING_METRICS
    }


def _simulated(
    rows: Rows, rollouts: np.ndarray, a: Floats, b: Floats, rng: np.random.Generator
) -> dict[str, float]:
    rate = rng.beta(a, b)
    drawn = rows.with_outcomes(rate, rng.binomial(rollouts, rate) / rollouts)
    return {**auc_scores(drawn), **error_scores(drawn), **calibration_scores(drawn)}
