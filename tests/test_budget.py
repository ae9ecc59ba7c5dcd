"""Allocation against brute force, a slow independent optimum, hand-worked cases and bad input."""

import time
import tracemalloc
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v0_bench.budget import METHODS, UTILITIES, allocate, utility
from v0_bench.errors import V0BenchError

WORKED = np.array([0.02, 0.1, 0.3, 0.5, 0.5, 0.7, 0.9, 0.95])
CONCAVE = ("knapsack", "coba", "nonuniform", "vip", "uniform")
RATES = st.floats(0, 1) | st.sampled_from([0.0, 0.1, 0.5, 0.5, 0.9, 1.0])


def value(name, counts, rates):
    return float(utility(name)(counts, np.asarray(rates)).sum())


def brute_force(name, rates, total, low, high):
    """The most that any allocation is worth, by trying each."""
    rates = np.array(rates)
    boxes = product(range(low, high + 1), repeat=len(rates))
    return max(value(name, np.array(b), rates) for b in boxes if sum(b) <= total)


def slow_optimum(name, rates, total, low, high):
    """The same by recursion on (query, rollouts left), one number at a time."""
    worth = utility(name)(np.arange(low, high + 1), np.array(rates)[:, None]).tolist()

    @cache
    def most(query, left):
        if query == len(rates):
            return 0.0
        spare = left - low * (len(rates) - query - 1)
        return max(
            worth[query][b - low] + most(query + 1, left - b)
            for b in range(low, min(high, spare) + 1)
        )

    return most(0, total)


def test_worked_example():
    greedy = allocate(WORKED, 128, method="greedy")
    assert greedy.tolist() == [2, 2, 114, 2, 2, 2, 2, 2]
    assert value("v0", greedy, WORKED) == pytest.approx(81.71, abs=0.005)
    best = allocate(WORKED, 128)
    assert best.tolist() == [2, 114, 2, 2, 2, 2, 2, 2]
    assert value("v0", best, WORKED) == pytest.approx(104.75, abs=0.005)
    assert best.dtype == np.int64


@settings(max_examples=60, deadline=None)
@given(st.lists(RATES, min_size=1, max_size=4), st.data(), st.sampled_from(list(UTILITIES)))
def test_exact_equals_brute_force(rates, data, name):
    low = data.draw(st.integers(2 if name == "vip" else 1, 3))
    high = data.draw(st.integers(low, low + 5))
    total = data.draw(st.integers(len(rates) * low, len(rates) * high + 2))
    counts = allocate(rates, total, low, high, utility=name)
    expected = brute_force(name, rates, total, low, high)
    assert value(name, counts, rates) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(RATES | st.sampled_from([0.01, 0.05, 0.1]), min_size=2, max_size=12),
    st.data(),
    st.sampled_from(["v0", "abs_advantage"]),
)
def test_exact_equals_slow_optimum_where_gains_rise(rates, data, name):
    high = data.draw(st.integers(10, 30))
    total = data.draw(st.integers(2 * len(rates), len(rates) * high))
    counts = allocate(rates, total, high=high, utility=name)
    expected = slow_optimum(name, rates, total, 2, high)
    assert value(name, counts, rates) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(RATES, min_size=1, max_size=40), st.data(), st.sampled_from(list(UTILITIES)))
def test_methods_agree_as_promised(rates, data, name):
    low = data.draw(st.integers(2, 4))
    high = data.draw(st.integers(low, 64))
    n = len(rates)
    total = data.draw(st.integers(n * low, n * high + 10))
    worth = {}
    for method in ("exact", "greedy", "lagrangian", *(["heap"] if name in CONCAVE else [])):
        counts = allocate(rates, total, low, high, utility=name, method=method)
        assert counts.shape == (n,)
        assert low <= counts.min() <= counts.max() <= high
        assert counts.sum() == min(total, n * high)
        worth[method] = value(name, counts, rates)
    slack = 1e-9 * (1 + abs(worth["exact"]))
    assert worth["greedy"] <= worth["exact"] + slack
    assert worth["lagrangian"] <= worth["exact"] + slack
    widest = (utility(name)(high, rates) - utility(name)(low, rates)).max()
    assert worth["lagrangian"] >= worth["exact"] - widest - slack
    if name in CONCAVE:
        assert min(worth.values()) == pytest.approx(worth["exact"], abs=slack)


def test_heap_refuses_gains_that_rise():
    for name in ("v0", "abs_advantage"):
        with pytest.raises(V0BenchError, match=r"concave.*p\[0\] = 0\.02.*'exact'"):
            allocate(WORKED, 128, utility=name, method="heap")
    easy = [0.5, 0.7, 0.9]  # v0 is concave from B = 2(1-p)/p on, so all over this box
    heap, best = allocate(easy, 60, method="heap"), allocate(easy, 60)
    assert value("v0", heap, easy) == pytest.approx(value("v0", best, easy))


@pytest.mark.parametrize("method", METHODS)
def test_uniform_splits_evenly(method):
    counts = allocate(WORKED, 8 * 16 + 3, utility="uniform", method=method)
    assert sorted(counts.tolist()) == [16] * 5 + [17] * 3


@pytest.mark.parametrize("method", METHODS)
def test_vip_follows_the_square_root_rule(method):
    rates = np.array([0.01, 0.1, 0.3, 0.5, 0.8])
    total = 3000
    share = np.sqrt(rates * (1 - rates))
    rule = 1 + (total - len(rates)) * share / share.sum()
    counts = allocate(rates, total, high=2000, utility="vip", method=method)
    assert np.abs(counts - rule).max() < 1


def test_rollouts_without_gain_are_spread():
    for method in ("exact", "greedy", "lagrangian"):
        assert allocate([0.0, 1.0, 0.0, 1.0], 40, method=method).tolist() == [10] * 4


@pytest.mark.parametrize("method", ["exact", "greedy", "lagrangian"])
def test_edges_of_the_box(method):
    assert allocate([0.3], 2, method=method).tolist() == [2]
    assert allocate([0.3, 0.4], 10**9, method=method).tolist() == [128, 128]
    assert allocate([0.3, 0.4], 100, low=5, high=5, method=method).tolist() == [5, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"p": []}, "one success rate per query"),
        ({"p": 0.5}, "one success rate per query"),
        ({"p": [[0.5]]}, "one success rate per query"),
        ({"p": [0.5, float("nan")]}, r"p\[1\] is nan"),
        ({"p": [0.5, 1.01]}, r"p\[1\] is 1.01"),
        ({"p": [-0.1]}, r"p\[0\] is -0.1"),
        ({"p": ["half"]}, "must be numbers"),
        ({"total": 3}, "2 queries with at least 2 rollouts each need 4"),
        ({"total": -5}, "too small"),
        ({"total": 12.5}, "total must be a whole number, not 12.5"),
        ({"low": 0}, "1 <= low <= high"),
        ({"low": 9, "high": 8}, "not 9 and 8"),
        ({"high": "128"}, "high must be a whole number"),
        ({"utility": "unifrom"}, "unknown utility 'unifrom': did you mean 'uniform'"),
        ({"method": "exakt"}, "did you mean 'exact'"),
        ({"utility": "vip", "low": 1}, "at least 2 rollouts"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(V0BenchError, match=message):
        allocate(**{"p": [0.2, 0.6], "total": 20, **arguments})


def test_size():
    rates = np.random.default_rng(0).beta(0.7, 0.7, 1024)

    def seconds(**arguments):
        start = time.process_time()
        assert allocate(rates, 16384, **arguments).sum() == 16384
        return time.process_time() - start

    assert min(seconds(utility="nonuniform", method="heap") for _ in range(5)) <= 0.05
    assert seconds() <= 5


def test_memory_is_bounded_where_little_can_be_ruled_out():
    tracemalloc.start()
    allocate(np.full(1024, 0.02), 16384 - 17)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
