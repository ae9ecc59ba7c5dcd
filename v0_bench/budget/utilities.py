"""What B rollouts of a query with success rate p are worth to a policy-gradient step.

A group is the B rollouts of one query, k of them right, k ~ Binomial(B, p). No utility here ever
falls as B grows. docs/budget.md has the formulas, their sources and where each is concave.
"""

from __future__ import annotations

from collections.abc import Callable
from math import lgamma

import numpy as np
from numpy.typing import ArrayLike, NDArray

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name

Floats = NDArray[np.float64]
Integers = NDArray[np.integer]

COBA_CONCENTRATION = 7.0  # a + b of the Beta density
COBA_TAU = (3.0, 12.0)  # at no variance of p over the queries, and at the largest
COBA_LARGEST_VARIANCE = 1 / 6
COBA_MARGIN = 0.01  # p is kept this far from 0 and 1


def utility(name: str) -> Callable[[ArrayLike, ArrayLike], Floats]:
    """The utility `name` as a function of (B, p), which broadcast against each other.

    B: rollouts, whole numbers >= 1 (`vip`: >= 2). p: success rates in [0, 1]. The value is >= 0, in
    the unit docs/budget.md states. `coba` also reads the mean and variance of all of p, so give it
    every query of the step at once. Raises V0BenchError on an unknown name, or B or p out of range.
    """
    if name not in UTILITIES:
        raise V0BenchError(unknown_name("utility", name, UTILITIES))
    formula = UTILITIES[name]

    def value(rollouts: ArrayLike, rates: ArrayLike) -> Floats:
        return formula(_rollouts(rollouts), check_rates(rates))

    return value


def check_rates(rates: ArrayLike) -> Floats:
    """`rates` as float64, or V0BenchError naming the first that is not a number in [0, 1]."""
    try:
        p = np.asarray(rates, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise V0BenchError(f"p must be numbers in [0, 1]: {error}") from None
    wrong = np.flatnonzero(~((p >= 0) & (p <= 1)))
    if wrong.size:
        value = p.ravel()[wrong[0]]
        raise V0BenchError(f"p must lie in [0, 1], but p[{wrong[0]}] is {value}")
    return p


def _rollouts(rollouts: ArrayLike) -> Integers:
    count = np.asarray(rollouts)
    if count.dtype.kind not in "iu" or (count < 1).any():
        raise V0BenchError("B, the rollouts of a query, must be whole numbers of at least 1")
    return count


def _v0(b: Integers, p: Floats) -> Floats:
    return b * (1 - p) * (1 - (1 - p) ** (b - 1))


def _nonuniform(b: Integers, p: Floats) -> Floats:
    return 1 - p**b - (1 - p) ** b


def _knapsack(b: Integers, p: Floats) -> Floats:
    return _nonuniform(b, p) * p * (1 - p) ** 2


def _coba(b: Integers, p: Floats) -> Floats:
    failure = 1 - p.mean()
    if failure <= 0.5:
        failure = 1 / (1 + np.exp(-10 * (failure - 0.5)))
    alpha = 1 + (COBA_CONCENTRATION - 2) * failure
    beta = COBA_CONCENTRATION - alpha
    inside = np.clip(p, COBA_MARGIN, 1 - COBA_MARGIN)
    spread = min(inside.var() / COBA_LARGEST_VARIANCE, 1)
    tau = COBA_TAU[0] + (COBA_TAU[1] - COBA_TAU[0]) * spread
    log_scale = lgamma(COBA_CONCENTRATION) - lgamma(alpha) - lgamma(beta)
    log_density = log_scale + (alpha - 1) * np.log(inside) + (beta - 1) * np.log1p(-inside)
    return -np.expm1(-b * inside * (1 - inside) / tau) * np.exp(log_density)


def _abs_advantage(b: Integers, p: Floats) -> Floats:
    mixed = (p > 0) & (p < 1)
    log_p, log_q = np.log(np.where(mixed, p, 0.5)), np.log1p(-np.where(mixed, p, 0.5))
    log_factorial = np.concatenate([[0.0], np.log(np.arange(1, b.max() + 1)).cumsum()])
    total = np.zeros(np.broadcast_shapes(b.shape, p.shape))
    for k in range(1, int(b.max())):
        wrong = np.maximum(b - k, 0)  # a group with k >= B has no wrong rollout, and adds 0
        log_ways = log_factorial[b] - log_factorial[k] - log_factorial[wrong]
        total += 2 * np.sqrt(k * wrong) * np.exp(log_ways + k * log_p + wrong * log_q)
    return np.where(mixed, total, 0.0)


def _vip(b: Integers, p: Floats) -> Floats:
    if (b < 2).any():
        raise V0BenchError("vip needs at least 2 rollouts of every query")
    return p * (1 - p) * (b - 2) / (b - 1)


def _uniform(b: Integers, p: Floats) -> Floats:
    return np.log(b) + np.zeros_like(p)


UTILITIES: dict[str, Callable[[Integers, Floats], Floats]] = {
    "v0": _v0,
    "knapsack": _knapsack,
    "coba": _coba,
    "nonuniform": _nonuniform,
    "abs_advantage": _abs_advantage,
    "vip": _vip,
    "uniform": _uniform,
}
