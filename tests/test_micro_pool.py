"""The pool that ships with the package: what makes it a real, useful RL run in miniature."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from v0_bench.micro import FAMILIES, POLICIES, held_out, training_set
from v0_bench.pool import Pool
from v0_bench.pool.default import PACKAGED_POOL, default_pool
from v0_bench.protocols import make_folds

HELD_IDS = [problem.query_id for problem in held_out()]


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool.load(PACKAGED_POOL)


@pytest.fixture(scope="module")
def held(pool: Pool) -> pd.DataFrame:
    return pool.outcomes[pool.outcomes["query_id"].isin(HELD_IDS)]


def test_it_is_the_default_and_small(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("V0_BENCH_POOL", raising=False)
    assert default_pool().fingerprint == pool.fingerprint
    assert sum(file.stat().st_size for file in PACKAGED_POOL.iterdir()) <= 3_000_000
    assert (pool.name, pool.licence) == ("micro", "Apache-2.0")
    assert pool.source
    assert pool.citation


def test_three_policies_forty_checkpoints_and_all_held_out_queries(
    pool: Pool, held: pd.DataFrame
) -> None:
    assert sorted(pool.policies["policy"]) == sorted(POLICIES)
    assert pool.family.nunique() == 3
    assert pool.policies["params_b"].between(0.0003 * 0.9, 0.0014).all()
    cells = held.groupby(["policy", "step"])["query_id"].nunique()
    assert (cells == 800).all()
    assert (cells.groupby("policy").size() >= 41).all()
    assert cells.index.get_level_values("step").min() == 0
    assert (held["n_rollouts"] == 10).all()
    assert set(pool.queries["dataset"]) == set(FAMILIES)


def test_texts_and_answers_are_those_of_the_generator(pool: Pool) -> None:
    made = {p.query_id: (p.family, p.text, p.answer) for p in (*held_out(), *training_set())}
    columns = pool.queries[["dataset", "text", "answer"]].itertuples(index=False, name=None)
    assert dict(zip(pool.queries["query_id"], columns, strict=True)).items() <= made.items()


def test_every_policy_gets_better_and_by_a_good_deal(held: pd.DataFrame) -> None:
    mean = held.groupby(["policy", "step"])["mean_reward"].mean().unstack()
    rise = mean.iloc[:, -3:].mean(axis=1) - mean[0]
    assert (rise >= 0.15).all(), rise


def test_many_outcomes_lie_between_all_and_none(held: pd.DataFrame) -> None:
    rate = held["mean_reward"]
    assert ((rate > 0) & (rate < 1)).mean() >= 0.25
    assert np.allclose(rate * 10, (rate * 10).round())


def test_families_are_learnt_at_different_times(pool: Pool, held: pd.DataFrame) -> None:
    """The last of a policy's families has made half its way at twice the step of the first."""
    dataset = held["query_id"].map(pool.queries.set_index("query_id")["dataset"])
    mean = held.groupby([held["policy"], dataset, held["step"]])["mean_reward"].mean().unstack()
    smooth = mean.T.rolling(3, min_periods=1, center=True).mean().T
    gain = smooth.iloc[:, -1] - smooth.iloc[:, 0]
    learnt = smooth[gain >= 0.15]
    way = learnt.sub(learnt.iloc[:, 0], axis=0).div(gain[gain >= 0.15], axis=0)
    half = (way >= 0.5).idxmax(axis=1)
    for policy, times in half.groupby("policy"):
        assert len(times) >= 4, policy
        assert times.max() >= 2 * times.min(), (policy, times)


def test_policies_differ(held: pd.DataFrame) -> None:
    last = held[held["step"] == held["step"].max()]
    table = last.pivot(index="query_id", columns="policy", values="mean_reward")
    assert (table.corr().to_numpy()[np.triu_indices(3, 1)] < 0.9).all()


def test_roles_are_dealt_by_group_anew_each_step_and_alike_for_all_policies(
    pool: Pool, held: pd.DataFrame
) -> None:
    share = held["role"].value_counts(normalize=True)
    assert share["context"] == pytest.approx(0.4, abs=0.01)
    assert share["train"] == pytest.approx(0.3, abs=0.01)
    assert share["test"] == pytest.approx(0.3, abs=0.01)
    assert (held.groupby(["query_id", "step"])["role"].nunique() == 1).all()
    group = held["query_id"].map(pool.query_group)
    assert (held.groupby([group, "step"])["role"].nunique() == 1).all()
    assert (held.groupby("query_id")["role"].nunique() == 3).all()


def test_on_policy_rollouts_train_and_never_test(pool: Pool) -> None:
    own = pool.outcomes[~pool.outcomes["query_id"].isin(HELD_IDS)]
    assert set(own["role"]) == {"train"}
    assert own["query_id"].str.contains("-train-").all()
    rollouts = own.groupby(["policy", "step"])["n_rollouts"].sum()
    assert set(rollouts) == {1920}
    assert rollouts.index.get_level_values("step").min() > 0
    assert rollouts.groupby("policy").size().min() >= 40


def test_the_protocols_apply(pool: Pool) -> None:
    (fold,) = make_folds(pool, "sequential")
    assert len(fold.stages) >= 41
    assert all(len(stage.episodes) == 3 for stage in fold.stages)
    assert make_folds(pool, "unseen-policy")
