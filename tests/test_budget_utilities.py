"""Utilities against sums over every group, and their curvature."""

from itertools import product
from math import comb, exp, gamma, sqrt

import numpy as np
import pytest

from v0_bench.budget import UTILITIES, utility
from v0_bench.errors import V0BenchError

RATES = (0.0, 1e-6, 0.03, 0.3, 0.5, 0.77, 0.999, 1.0)


def mean_over_groups(worth, size, p):
    """E worth(rewards), over all 2^size groups of rewards."""
    total = 0.0
    for rewards in product((0, 1), repeat=size):
        k = sum(rewards)
        total += p**k * (1 - p) ** (size - k) * worth(np.array(rewards))
    return total


def advantages(rewards):
    spread = rewards.std()
    return (rewards - rewards.mean()) / spread if spread else np.zeros(len(rewards))


def mixed(rewards):
    return float(0 < rewards.sum() < len(rewards))


WORTH = {
    "abs_advantage": lambda rewards: np.abs(advantages(rewards)).sum(),
    "v0": lambda rewards: mixed(rewards) * (len(rewards) - rewards.sum()),
    "nonuniform": mixed,
}


@pytest.mark.parametrize("size", [1, 2, 3, 6, 9])
@pytest.mark.parametrize("p", RATES)
def test_sums_over_every_group(size, p):
    for name, worth in WORTH.items():
        expected = mean_over_groups(worth, size, p)
        assert float(utility(name)(size, p)) == pytest.approx(expected, abs=1e-9), name
    knapsack = mean_over_groups(mixed, size, p) * p * (1 - p) ** 2
    assert float(utility("knapsack")(size, p)) == pytest.approx(knapsack, abs=1e-9)


@pytest.mark.parametrize("p", RATES)
def test_abs_advantage_of_a_large_group(p):
    expected = sum(
        comb(128, k) * p**k * (1 - p) ** (128 - k) * 2 * sqrt(k * (128 - k)) for k in range(129)
    )
    assert float(utility("abs_advantage")(128, p)) == pytest.approx(expected, rel=1e-9)


def test_v0_by_hand():
    # B = 4, p = 1/2: 4 * 1/2 * (1 - 1/8)
    assert float(utility("v0")(4, 0.5)) == 1.75
    for size, best in ((2, 0.5), (4, 0.37), (8, 0.257), (16, 0.169), (32, 0.106), (128, 0.037)):
        p = np.linspace(0, 1, 100_001)
        assert p[utility("v0")(size, p).argmax()] == pytest.approx(best, abs=1e-3)


def test_coba_by_hand():
    p = np.array([0.1, 0.3])
    failure = 0.8  # above one half, so taken as it is
    a = 1 + 5 * failure
    b = 7 - a
    tau = 3 + 9 * 0.01 / (1 / 6)
    expected = [
        (1 - exp(-8 * x * (1 - x) / tau))
        * (x ** (a - 1) * (1 - x) ** (b - 1) * gamma(7) / (gamma(a) * gamma(b)))
        for x in p
    ]
    assert utility("coba")(8, p) == pytest.approx(expected)


def test_coba_of_an_able_policy_and_at_the_edges():
    p = np.array([0.9, 0.9])
    a = 1 + 5 / (1 + exp(-10 * (0.1 - 0.5)))
    b = 7 - a
    density = 0.9 ** (a - 1) * 0.1 ** (b - 1) * gamma(7) / (gamma(a) * gamma(b))
    assert utility("coba")(8, p) == pytest.approx([(1 - exp(-8 * 0.09 / 3)) * density] * 2)
    assert np.isfinite(utility("coba")(8, [0.0, 1.0])).all()


def test_vip_is_the_variance_that_more_than_two_rollouts_remove():
    p, size = 0.2, 5
    variance = p * (1 - p) / (np.array([2, size]) - 1)
    assert float(utility("vip")(size, p)) == pytest.approx(variance[0] - variance[1])


@pytest.mark.parametrize("name", UTILITIES)
def test_never_falls_and_broadcasts(name):
    counts = np.arange(2, 129)
    table = utility(name)(counts, np.array(RATES)[:, None])
    assert table.shape == (len(RATES), 127)
    assert (table >= 0).all()
    assert (np.diff(table, axis=1) >= -1e-12 * table.max()).all()


@pytest.mark.parametrize("name", ["knapsack", "coba", "nonuniform", "vip", "uniform"])
def test_concave_everywhere(name):
    table = utility(name)(np.arange(2, 200), np.linspace(0, 1, 201)[:, None])
    assert (np.diff(table, n=2, axis=1) <= 1e-12).all()


def test_v0_gains_rise_until_twice_the_odds_against():
    for p in (0.02, 0.1, 0.3):
        size = np.arange(2, 129)
        rise = np.diff(utility("v0")(np.arange(1, 130), p), n=2)  # of the gain, around each size
        by_hand = (1 - p) ** (size - 1) * p * (2 - p - size * p)  # > 0 while size < 1 + 2(1-p)/p
        assert rise == pytest.approx(by_hand, abs=1e-12)


def test_bad_input():
    with pytest.raises(V0BenchError, match="did you mean 'knapsack'"):
        utility("napsack")
    for wrong in (0, [2, -1], 2.0, [2.5], "3"):
        with pytest.raises(V0BenchError, match="whole numbers of at least 1"):
            utility("v0")(wrong, 0.5)
    with pytest.raises(V0BenchError, match=r"p\[0\] is nan"):
        utility("v0")(2, float("nan"))
    with pytest.raises(V0BenchError, match="at least 2"):
        utility("vip")(1, 0.5)
