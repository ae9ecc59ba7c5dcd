"""Descriptions of pools, against counts by hand and a slow leave-one-out AUC."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pools import small_pool, tables
from v0_bench import Pool
from v0_bench.pool.describe import describe, leave_one_out_auc


def slow_auc(outcomes: pd.DataFrame) -> float | None:
    """The definition, pair by pair."""
    rows = list(outcomes[["query_id", "policy", "step", "mean_reward"]].itertuples(index=False))
    areas = []
    for checkpoint in {(row.policy, row.step) for row in rows}:
        positive, negative = [], []
        for row in rows:
            others = [
                other.mean_reward
                for other in rows
                if other.query_id == row.query_id and (other.policy, other.step) != checkpoint
            ]
            if (row.policy, row.step) == checkpoint and others:
                side = positive if row.mean_reward >= 0.5 else negative
                side.append(round(sum(others) / len(others), 9))
        if positive and negative:
            wins = [(p > n) + 0.5 * (p == n) for p in positive for n in negative]
            areas.append(sum(wins) / len(wins))
    return float(np.mean(areas)) if areas else None


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_leave_one_out_auc_follows_its_definition(data: st.DataObject) -> None:
    cells = data.draw(
        st.dictionaries(
            st.tuples(st.integers(0, 7), st.sampled_from("abc"), st.sampled_from([0, 8])),
            st.integers(0, 4),
            min_size=1,
            max_size=40,
        )
    )
    outcomes = pd.DataFrame(
        [
            {"query_id": f"q{query}", "policy": policy, "step": step, "mean_reward": hits / 4}
            for (query, policy, step), hits in cells.items()
        ]
    )
    expected = slow_auc(outcomes)
    assert leave_one_out_auc(outcomes) == (None if expected is None else pytest.approx(expected))


def test_leave_one_out_auc_by_hand() -> None:
    # For "a" the others' means are 1, 0, .5 with labels 1, 0, 0; for "b" 1, 0, 0 with 1, 0, 1.
    outcomes = pd.DataFrame(
        {
            "query_id": ["x", "y", "z"] * 2,
            "policy": ["a"] * 3 + ["b"] * 3,
            "step": pd.array([pd.NA] * 6, dtype="Int64"),
            "mean_reward": [1.0, 0.0, 0.0, 1.0, 0.0, 0.5],
        }
    )
    assert leave_one_out_auc(outcomes) == pytest.approx((1.0 + 0.75) / 2)


def test_a_pool_of_one_checkpoint_has_no_leave_one_out_auc() -> None:
    facts = describe(Pool("one", **tables(policies=("red",))))
    assert facts["leave_one_out_auc"] is None
    assert facts["policies"] == facts["families"] == facts["checkpoints"] == 1


def test_counts_by_hand() -> None:
    made = tables()
    made["queries"].loc[1, "text"] = made["queries"].loc[0, "text"].upper() + "!"
    made["policies"]["family"] = ["colour", "colour"]
    made["outcomes"] = made["outcomes"].assign(
        n_rollouts=[1, 2] * 7 + [3, 10],
        cost=[0.5] * 4 + [None] * 12,
        cost_kind=["measured", "estimated", "measured", "measured"] + [None] * 12,
        tokens_out=[7.0] * 8 + [None] * 8,
        role=["context"] * 10 + ["test"] * 4 + [None] * 2,
    )
    made["outcomes"].loc[made["outcomes"]["policy"] == "red", "mean_reward"] = 0.25
    facts = describe(Pool("small", **made, licence="MIT"))
    json.dumps(facts, allow_nan=False)
    assert facts["families"] == 1
    assert facts["families_with_several_policies"] == {"colour": ["blue", "red"]}
    assert facts["datasets"] == {"sums": 4, "words": 4}
    assert (facts["queries"], facts["groups"]) == (8, 7)
    assert (facts["largest_group"], facts["duplicates"]) == (2, 2)
    assert facts["rollouts"] == {"total": 34, "min": 1, "median": 2, "max": 10}
    assert facts["accuracy"]["min"] == 0.25
    assert facts["one_class_checkpoints"] == 1
    assert facts["cost"] == {"coverage": 0.25, "measured": 3, "estimated": 1}
    assert facts["tokens_coverage"] == 0.5
    assert facts["roles"] == {"context": 10, "train": 0, "test": 4, "none": 2}
    assert facts["steps"] == []
    assert facts["licence"] == "MIT"


def test_steps_are_listed_in_order() -> None:
    made = tables()
    made["outcomes"]["step"] = [64, 8] * 8
    assert describe(Pool("steps", **made))["steps"] == [8, 64]
    assert describe(small_pool())["fingerprint"] == small_pool().fingerprint
