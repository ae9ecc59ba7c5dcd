"""`score`: every metric of one predictor's rows, per seed and averaged over seeds."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from v0_bench.metrics.auc import AucMetrics
from v0_bench.metrics.calibration import (
    calibration_columns,
    calibration_metrics,
    error_columns,
    error_metrics,
)
from v0_bench.metrics.catalogue import METRICS
from v0_bench.metrics.pairwise import MIN_PAIRS, pair_counts, paper_pair_counts
from v0_bench.metrics.residuals import residual_columns, residual_metrics, spearman_metrics
from v0_bench.metrics.rows import Floats, Rows, rows_by_seed
from v0_bench.metrics.weights import Weights

if TYPE_CHECKING:
    import pandas as pd

THREADS = 2


def score(frame: pd.DataFrame) -> dict[str, float | None]:
    """Every metric of METRICS, computed per seed and averaged over the seeds that have a value.

    `frame` holds the rows of one pool, one protocol and one predictor with PREDICTION_COLUMNS.
    A metric that is undefined in every seed is None. An empty context has no mean: a null
    `context_mean` counts as .5. A null `family` stands for the policy alone; `step` may be null.

    Raises MetricInputError (a ValueError) for rows of several pools, protocols or predictors,
    missing columns, no rows, repeated keys, values that are not finite or out of range.
    """
    return {name: seed_mean(values) for name, values in score_per_seed(frame).items()}


def score_per_seed(frame: pd.DataFrame) -> dict[str, list[float | None]]:
    """metric -> its value in each seed, seeds ascending; see `score`."""
    per_seed = [score_rows(rows) for rows in rows_by_seed(frame).values()]
    return {name: [nullable(values[name]) for values in per_seed] for name in METRICS}


def score_rows(rows: Rows) -> dict[str, float]:
    """Every metric of one seed's rows; NaN where undefined.

    The groups of metrics share nothing and sort most of the time, for which NumPy lets go of the
    interpreter: two threads halve the time of large frames.
    """
    groups = (
        pairwise_scores,
        auc_scores,
        spearman_metrics,
        calibration_scores,
        residual_scores,
        error_scores,
    )
    with ThreadPoolExecutor(THREADS) as pool:
        parts = list(pool.map(lambda scores: scores(rows), groups))
    return {name: value for part in parts for name, value in part.items()}


def auc_scores(rows: Rows) -> dict[str, float]:
    """The AUC family and the number of checkpoints `auc` leaves out."""
    metrics = AucMetrics(rows)
    checkpoints = np.ones((1, int(rows.checkpoint.max()) + 1))
    values = metrics.combine(metrics.segments(Weights.once(rows)), checkpoints)
    return {**_single(values), "auc_left_out": float(metrics.left_out)}


def pairwise_scores(rows: Rows) -> dict[str, float]:
    """pairwise_accuracy, pairwise_skill and pairwise_accuracy_paper."""
    (wins, context_wins), pairs = pair_counts(
        rows.query, rows.reward, [rows.prediction, rows.context_mean], rows.rollouts
    )
    accuracy = wins / pairs if pairs >= MIN_PAIRS else np.nan
    context = context_wins / pairs if pairs >= MIN_PAIRS else np.nan
    paper_wins, paper_pairs = paper_pair_counts(rows)
    return {
        "pairwise_accuracy": accuracy,
        "pairwise_skill": float(skill(np.array(accuracy), np.array(context))),
        "pairwise_accuracy_paper": paper_wins / paper_pairs if paper_pairs else np.nan,
    }


def skill(accuracy: Floats, context: Floats) -> Floats:
    """Accuracy gained over the context mean's, as a share of what that leaves to gain."""
    room = 1 - context
    return np.where(room > 0, (accuracy - context) / np.where(room > 0, room, 1), np.nan)


def error_scores(rows: Rows) -> dict[str, float]:
    """The squared-error metrics."""
    return _single(error_metrics(_totals(error_columns(rows))))


def calibration_scores(rows: Rows) -> dict[str, float]:
    """ece and ece_debiased."""
    return _single(calibration_metrics(_totals(calibration_columns(rows))))


def residual_scores(rows: Rows) -> dict[str, float]:
    """The Pearson residuals."""
    return _single(residual_metrics(_totals(residual_columns(rows))))


def seed_mean(values: list[float | None]) -> float | None:
    """Mean over the seeds that have a value; None if none has."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def nullable(value: float) -> float | None:
    """NaN, the kernels' null, as None."""
    return None if np.isnan(value) else float(value)


def _totals(columns: Iterator[Floats]) -> Floats:
    """Plain sums of columns, (1, number of columns)."""
    return np.array([[column.sum() for column in columns]])


def _single(values: dict[str, Floats]) -> dict[str, float]:
    return {name: float(value[0]) for name, value in values.items()}
