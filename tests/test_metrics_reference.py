"""The oracle rows: the ceiling of noisy outcomes, and query difficulty as a prediction."""

from __future__ import annotations

import numpy as np
import pytest

from metric_frames import made_up_frame
from v0_bench.metrics import METRICS, ceiling_metrics, cross_policy_oracle, score
from v0_bench.metrics.reference import CEILING_METRICS, fit_beta_binomial


@pytest.mark.parametrize(("a", "b"), [(0.4, 0.7), (2.0, 5.0)])
def test_fit_finds_the_distribution_of_rates(a: float, b: float) -> None:
    rng = np.random.default_rng(0)
    rollouts = rng.choice([4, 10, 16], size=20_000).astype(float)
    successes = rng.binomial(rollouts.astype(int), rng.beta(a, b, size=20_000)).astype(float)
    assert fit_beta_binomial(successes, rollouts) == pytest.approx((a, b), rel=0.06)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_fit_of_one_class_stays_finite(share: float) -> None:
    rollouts = np.full(50, 10.0)
    a, b = fit_beta_binomial(share * rollouts, rollouts)
    assert np.isfinite([a, b]).all()
    assert a / (a + b) == pytest.approx(share, abs=0.01)


def test_ceiling_is_what_the_true_rates_score() -> None:
    rng = np.random.default_rng(1)
    frame = made_up_frame(1, policies=3, queries=800, rollouts=(10,))
    rate = rng.beta(0.8, 0.6, size=len(frame))
    frame["prediction"], frame["mean_reward"] = rate, rng.binomial(10, rate) / 10
    truth, ceiling = score(frame), ceiling_metrics(frame, draws=20)
    assert set(ceiling) == set(METRICS)
    for name in ("auc", "auc_weighted", "auc_soft", "mse"):
        assert ceiling[name] == pytest.approx(truth[name], abs=0.01), name
    assert ceiling["mse_excess"] == pytest.approx(0, abs=0.001)
    assert {name for name, value in ceiling.items() if value is not None} == set(CEILING_METRICS)


def test_ceiling_is_repeatable_and_uses_every_seed() -> None:
    frame = made_up_frame(2, queries=60, rollouts=(1, 8), seeds=2)
    assert ceiling_metrics(frame, draws=5) == ceiling_metrics(frame, draws=5)
    assert ceiling_metrics(frame, draws=5) != ceiling_metrics(frame, draws=5, seed=1)


def test_no_ceiling_where_every_outcome_is_one_rollout() -> None:
    assert set(ceiling_metrics(made_up_frame(2)).values()) == {None}


def test_cross_policy_oracle_predicts_the_difficulty() -> None:
    frame = made_up_frame(3, queries=60)
    oracle = cross_policy_oracle(frame)
    assert len(oracle) == frame["query_difficulty"].notna().sum() < len(frame)
    assert (oracle["prediction"] == oracle["query_difficulty"]).all()
    assert set(oracle["predictor"]) == {"cross-policy-oracle"}
    assert score(oracle)["auc"] > 0.6
    assert cross_policy_oracle(frame.assign(query_difficulty=None)).empty
