"""Do the 95 % intervals hold the truth 90-98 % of the time, over made-up crossed designs?

The policies stay the same from one simulation to the next and the queries are new: what `low` and
`high` claim. The truth is the score on very many queries.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from v0_bench.metrics import intervals, score

COVERED = ("auc", "auc_within", "mse", "brier_skill", "pairwise_accuracy", "residual_query")
QUERIES = 100


def crossed_design(
    rng: np.random.Generator, strength: np.ndarray, bias: np.ndarray, queries: int
) -> pd.DataFrame:
    """Every policy on every query: easy and hard queries shared, plus what is the pair's own."""
    policies = len(strength)
    ease = rng.normal(size=queries)
    logit = strength[:, None] + ease + 0.7 * rng.normal(size=(policies, queries))
    guess = strength[:, None] + bias[:, None] + 0.8 * ease + 0.5 * rng.normal(size=logit.shape)
    policy = np.repeat(np.arange(policies), queries).astype(str)
    query = np.tile(np.arange(queries), policies).astype(str)
    return pd.DataFrame(
        {
            "pool": "made-up",
            "protocol": "unseen-policy",
            "seed": 0,
            "predictor": "some",
            "policy": policy,
            "step": None,
            "query_id": query,
            "query_group": query,
            "dataset": "d",
            "family": policy,
            "prediction": _sigmoid(guess).ravel(),
            "mean_reward": rng.binomial(1, _sigmoid(logit)).ravel().astype(float),
            "n_rollouts": 1,
            "context_size": 256,
            "context_mean": np.repeat(_sigmoid(strength), queries),
            "query_difficulty": np.tile(_sigmoid(ease), policies),
        }
    )


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def coverage(policies: int, simulations: int, replicates: int) -> dict[str, float]:
    rng = np.random.default_rng(policies)
    strength, bias = rng.normal(size=policies), 0.4 * rng.normal(size=policies)
    truth = score(crossed_design(rng, strength, bias, 40_000))
    held = dict.fromkeys(COVERED, 0)
    for seed in range(simulations):
        frame = crossed_design(rng, strength, bias, QUERIES).assign(family="one")
        row = intervals({"some": frame}, replicates, seed).row("some")
        for name in COVERED:
            held[name] += row[name]["low"] <= truth[name] <= row[name]["high"]
    return {name: count / simulations for name, count in held.items()}


@pytest.mark.slow
@pytest.mark.parametrize("policies", [6, 20])
def test_coverage(policies: int) -> None:
    # 500 simulations: a true 95 % shows as .93-.97
    for name, share in coverage(policies, 500, 400).items():
        assert 0.90 <= share <= 0.98, (name, share)


def test_coverage_roughly() -> None:
    shares = coverage(6, 60, 200)
    assert 0.88 <= shares["auc"] <= 1
    assert np.mean(list(shares.values())) == pytest.approx(0.95, abs=0.05)


def test_new_policies_widen_the_interval() -> None:
    rng = np.random.default_rng(0)
    frame = crossed_design(rng, 2 * rng.normal(size=20), rng.normal(size=20), 300)
    entry = intervals({"some": frame}, 300).row("some")["mse"]
    assert entry["low_policies"] < entry["low"] < entry["high"] < entry["high_policies"]
