"""The counting kernels and query difficulty against brute force, at sizes plain loops can do."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metric_frames import made_up_frame
from v0_bench.metrics import MetricInputError, query_difficulty
from v0_bench.metrics.auc import plan_auc, segment_auc
from v0_bench.metrics.calibration import equal_mass_bins
from v0_bench.metrics.pairwise import dense_ranks, dominance, pair_counts, rollout_windows
from v0_bench.metrics.ranks import mid_ranks
from v0_bench.metrics.weights import Weights

ROW = st.tuples(
    st.integers(0, 3), st.integers(0, 4), st.integers(0, 5), st.sampled_from([1, 2, 3, 4, 6, 9])
)


@settings(max_examples=200, deadline=None)
@given(st.lists(ROW, min_size=1, max_size=30))
def test_pair_counts(rows: list[tuple[int, int, int, int]]) -> None:
    query, reward, prediction, rollouts = (np.array(column) for column in zip(*rows, strict=True))
    wins, pairs = 0.0, 0
    for (q, r, p, k), (w, s, o, m) in itertools.permutations(rows, 2):
        if q == w and r > s and max(k, m) <= 2 * min(k, m):
            pairs += 1
            wins += 1.0 if p > o else 0.5 if p == o else 0.0
    counted = pair_counts(query, reward / 4, [prediction / 5], rollouts.astype(float))
    assert counted == ([wins], pairs)


@settings(max_examples=100, deadline=None)
@given(st.sets(st.integers(1, 60), min_size=1, max_size=15))
def test_windows_hold_every_close_pair_once(values: set[int]) -> None:
    windows = list(rollout_windows(np.array(sorted(values), dtype=float)))
    for a, b in itertools.product(values, repeat=2):
        times = sum(sign for low, high, sign in windows if low <= min(a, b) and max(a, b) <= high)
        assert times == (max(a, b) <= 2 * min(a, b))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 9), st.booleans(), st.booleans()), max_size=25
    )
)
def test_dominance(rows: list[tuple[int, int, bool, bool]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    less = equal = 0
    for (s, a, earlier, _), (t, b, _, later) in itertools.combinations(rows, 2):
        if s == t and earlier and later:
            less, equal = less + (a < b), equal + (a == b)
    columns = [np.array([row[i] for row in rows]) for i in range(4)]
    segment, rank = columns[0].astype(np.int64), columns[1].astype(np.int64)
    flags = [column.astype(bool) for column in columns[2:]]
    assert dominance(segment, rank, *flags) == (less, equal)


def test_dense_ranks_and_mid_ranks() -> None:
    query = np.array([1, 0, 1, 1, 0])
    assert dense_ranks(query, np.array([0.2, 0.9, 0.1, 0.2, 0.9])).tolist() == [1, 0, 0, 1, 0]
    assert mid_ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1, 3.5, 2]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=80))
def test_equal_mass_bins(values: list[int]) -> None:
    bins = equal_mass_bins(np.array(values, dtype=float), 4)
    assert 0 <= bins.min() <= bins.max() <= 3
    for a, b in itertools.combinations(range(len(values)), 2):
        assert (values[a] <= values[b]) == (bins[a] <= bins[b]) or bins[a] == bins[b]


def test_distinct_values_fill_bins_evenly() -> None:
    bins = equal_mass_bins(np.random.default_rng(0).random(152))
    assert set(np.bincount(bins)) == {10, 11}


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 4), st.integers(0, 3)),
        min_size=1,
        max_size=25,
    )
)
def test_weighted_auc_is_the_auc_of_repeated_rows(rows: list[tuple[int, int, int, int]]) -> None:
    columns = np.array(rows).T
    segment, prediction, target, times = columns[0], columns[1] / 4, columns[2] / 4, columns[3]

    def aucs(index: np.ndarray, weights: Weights) -> dict[int, float]:
        order = np.lexsort((prediction[index], segment[index]))
        plan = plan_auc(segment[index], prediction[index], target[index], order)
        if not len(plan.segment):
            return {}
        values = segment_auc(plan, weights).values[0]
        return {s: v for s, v in zip(plan.segment.tolist(), values, strict=True) if v == v}

    everyone = np.arange(len(rows))
    weighted = aucs(everyone, Weights(everyone, times[None].astype(float)))
    repeated = np.repeat(everyone, times)
    expected = aucs(repeated, Weights(np.zeros_like(repeated), np.ones((1, 1))))
    assert weighted == pytest.approx(expected)


def slow_difficulty(frame: pd.DataFrame) -> list[float]:
    rows = frame.to_dict("records")
    one_family = frame["family"].nunique() == 1
    result = []
    for i, row in enumerate(rows):
        others = [
            other["mean_reward"]
            for j, other in enumerate(rows)
            if other["query_id"] == row["query_id"]
            and (i != j if one_family else other["family"] != row["family"])
        ]
        result.append(sum(others) / len(others) if len(others) >= 3 else np.nan)
    return result


@pytest.mark.parametrize("families", [1, 2, 5])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_query_difficulty(families: int, missing: float) -> None:
    frame = made_up_frame(5, policies=5, steps=2, queries=12, families=families, missing=missing)
    difficulty = query_difficulty(frame)
    assert difficulty == pytest.approx(slow_difficulty(frame), nan_ok=True)
    if missing:
        assert np.isnan(difficulty).any()


def test_policies_without_family_are_families_of_their_own() -> None:
    frame = made_up_frame(5, policies=5, queries=12)
    assert query_difficulty(frame.assign(family=None)) == pytest.approx(query_difficulty(frame))


def test_query_difficulty_of_a_large_pool_is_quick() -> None:
    rows = 347_000
    frame = pd.DataFrame(
        {
            "query_id": np.char.add("q", (np.arange(rows) // 29).astype(str)),
            "family": np.char.add("f", (np.arange(rows) % 12).astype(str)),
            "policy": np.char.add("p", (np.arange(rows) % 29).astype(str)),
            "step": None,
            "mean_reward": np.random.default_rng(0).integers(0, 2, rows),
        }
    )
    start = time.process_time()
    query_difficulty(frame)
    assert time.process_time() - start < 1


def test_query_difficulty_needs_its_columns() -> None:
    with pytest.raises(MetricInputError, match="family, policy"):
        query_difficulty(made_up_frame(0)[["query_id", "step", "mean_reward"]])
    assert len(query_difficulty(made_up_frame(0).iloc[:0])) == 0
