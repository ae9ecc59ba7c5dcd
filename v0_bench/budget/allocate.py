"""The public entry: how many rollouts each query gets."""

from __future__ import annotations

from operator import index

import numpy as np
from numpy.typing import ArrayLike, NDArray

from v0_bench.budget import solvers
from v0_bench.budget.utilities import check_rates
from v0_bench.budget.utilities import utility as find_utility
from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name

METHODS = ("exact", "greedy", "heap", "lagrangian")


def allocate(
    p: ArrayLike,
    total: int,
    low: int = 2,
    high: int = 128,
    utility: str = "v0",
    method: str = "exact",
) -> NDArray[np.int64]:
    """Rollouts for each query that make the sum of utility(B_i, p_i) large, low <= B_i <= high.

    p: success rates in [0, 1], shape (n,), n >= 1. total: rollouts to spend; at least n * low.
    Returns int64, shape (n,), which sums to min(total, n * high): no utility falls with B, so a
    rollout that gains nothing is still spent, on a query with few.

    method: `exact`, an optimum for any utility; `greedy`, one rollout at a time where the next
    gains most, as in the V0 paper, which can end far below the optimum where a utility is convex;
    `heap`, the same steps, refused unless the utility is concave on the box, where they are
    optimal; `lagrangian`, one price per rollout, within one query's gain of the optimum.
    Raises V0BenchError on input outside these ranges and on unknown names.
    """
    if method not in METHODS:
        raise V0BenchError(unknown_name("method", method, METHODS))
    value = find_utility(utility)
    rates = check_rates(p)
    if rates.ndim != 1 or not rates.size:
        raise V0BenchError(f"p must be one success rate per query, not of shape {rates.shape}")
    total, low, high = (
        _whole(name, number) for name, number in (("total", total), ("low", low), ("high", high))
    )
    _check_box(len(rates), total, low, high)
    budget = min(total, len(rates) * high) - len(rates) * low
    counts = np.arange(low, min(high, low + budget) + 1)  # no query can get more than the budget
    table = value(counts, rates[:, None])
    if method == "exact":
        return low + solvers.exact(table, budget)
    if method == "lagrangian":
        return low + solvers.relax(table, budget)[1]
    if method == "heap":
        _refuse_convex(table, rates, utility, counts)
    return low + solvers.climb(table, np.zeros(len(rates), dtype=np.int64), budget)


def _whole(name: str, number: object) -> int:
    try:
        return index(number)  # type: ignore[arg-type]
    except TypeError:
        raise V0BenchError(f"{name} must be a whole number, not {number!r}") from None


def _check_box(n: int, total: int, low: int, high: int) -> None:
    if not 1 <= low <= high:
        raise V0BenchError(f"low and high must satisfy 1 <= low <= high, not {low} and {high}")
    if total < n * low:
        raise V0BenchError(
            f"a total of {total} is too small: {n} queries with at least {low} rollouts each "
            f"need {n * low}; raise total, lower low, or leave queries out"
        )


def _refuse_convex(
    table: NDArray[np.float64],
    rates: NDArray[np.float64],
    utility: str,
    counts: NDArray[np.int64],
) -> None:
    row = solvers.first_convex(table)
    if row is not None:
        raise V0BenchError(
            f"method 'heap' is right only for a utility that is concave in the rollouts, and "
            f"{utility!r} is not between {counts[0]} and {counts[-1]} for p[{row}] = {rates[row]}: "
            "its gains rise there before they fall; use method 'exact'"
        )
