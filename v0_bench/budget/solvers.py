"""Maximise the sum of table[i, picks[i]] over queries i, subject to picks.sum() <= budget.

table[i, j] is what j rollouts more than the least are worth for query i; no row ever falls. Every
solver takes the table (n, w + 1) and a budget of at most n * w, and spends all of it.
"""

from __future__ import annotations

from heapq import heapify, heappop, heapreplace
from math import isqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Picks = NDArray[np.int64]


def climb(table: Floats, picks: Picks, budget: int) -> Picks:
    """Spend what `picks` leaves of the budget, each rollout where it gains most at that moment.

    Ties go to the query with fewer rollouts, then to the earlier one. Optimal from zero if every
    row is concave. O(n w + budget log n).
    """
    picks, top = picks.copy(), table.shape[1] - 1
    gains = np.diff(table, axis=1).tolist()
    heap = [(-gains[i][j], j, i) for i, j in enumerate(picks.tolist()) if j < top]
    heapify(heap)
    for _ in range(budget - int(picks.sum())):
        _, j, i = heap[0]
        picks[i] = j + 1
        if j + 1 < top:
            heapreplace(heap, (-gains[i][j + 1], j + 1, i))
        else:
            heappop(heap)
    return picks


def first_convex(table: Floats) -> int | None:
    """The first row whose gains rise somewhere by more than rounding; None if all are concave."""
    tolerance = 1e-12 * max(1.0, float(np.abs(table).max()))
    rises = (np.diff(table, n=2, axis=1) > tolerance).any(axis=1)
    return int(rises.argmax()) if rises.any() else None


def relax(table: Floats, budget: int) -> tuple[float, Picks]:
    """Price a rollout so that queries that each maximise value - price * rollouts fit the budget.

    Returns that price, found by bisection, and the picks: those at the price, raised to those at a
    hair below it for as many queries as can be paid, then `climb`. Their value falls short of the
    optimum by at most what one query can gain; by nothing if every row is concave. O(n w).
    """
    rollouts = np.arange(table.shape[1])

    def choose(price: float) -> Picks:
        return (table - price * rollouts).argmax(axis=1)

    cheap, dear = 0.0, float(np.diff(table, axis=1).max(initial=0.0))
    for _ in range(60):
        middle = (cheap + dear) / 2
        if choose(middle).sum() > budget:
            cheap = middle
        else:
            dear = middle
    picks = choose(dear)
    raises = choose(cheap) - picks
    picks += np.where(raises.cumsum() <= budget - picks.sum(), raises, 0)
    return dear, climb(table, picks, budget)


def exact(table: Floats, budget: int) -> Picks:
    """An optimum, for any rows.

    With a price per rollout, sum_i max_j (table[i, j] - price * j) + price * budget bounds every
    allocation from above, and a pick short of its row's maximum lowers the bound by as much. Picks
    that lower it below the value of `relax` cannot be in a better allocation; dynamic programming
    settles the rest. O(n w budget) if nothing can be ruled out, usually far less.
    """
    price, known = relax(table, budget)
    reduced = table - price * np.arange(table.shape[1])
    best = reduced.max(axis=1)
    bound = best.sum() + price * budget
    gap = bound - np.take_along_axis(table, known[:, None], axis=1).sum()
    rounding = 1e-12 * abs(bound)
    if gap <= rounding:
        return known
    open_picks = best[:, None] - reduced <= gap + rounding
    picks = open_picks.argmax(axis=1)
    left = budget - int(picks.sum())
    undecided = np.flatnonzero(open_picks.sum(axis=1) > 1)
    extras = [np.flatnonzero(open_picks[i, picks[i] : picks[i] + left + 1]) for i in undecided]
    values = [table[i, picks[i] + extra] for i, extra in zip(undecided, extras, strict=True)]
    picks[undecided] += _knapsack(extras, values, left)
    return climb(table, picks, budget)


def _knapsack(extras: list[Picks], values: list[Floats], budget: int) -> Picks:
    """One of extras[i] for every i, the most value within the budget; extras[i][0] is 0.

    Keeps the table of best values before every isqrt(n)-th query only and computes those between
    again on the way back: twice the time, O(sqrt(n) budget) memory.
    """
    n = len(extras)
    block = isqrt(n) + 1
    best = np.zeros(budget + 1)  # best[r]: the most value of the queries so far within r rollouts
    kept = []
    for i in range(n):
        if i % block == 0:
            kept.append(best)
        best = _with_query(best, extras[i], values[i])
    picks, left = np.zeros(n, dtype=np.int64), budget
    for start in reversed(range(0, n, block)):
        tables = [kept.pop()]
        for i in range(start, min(start + block, n) - 1):
            tables.append(_with_query(tables[-1], extras[i], values[i]))
        for i in reversed(range(start, start + len(tables))):
            fits = extras[i][extras[i] <= left]
            picks[i] = fits[(tables[i - start][left - fits] + values[i][: len(fits)]).argmax()]
            left -= picks[i]
    return picks


def _with_query(best: Floats, extra: Picks, value: Floats) -> Floats:
    """The (max, +) convolution of the best values so far with one query's picks."""
    result = best + value[0]
    for rollouts, worth in zip(extra[1:].tolist(), value[1:].tolist(), strict=True):
        tail = result[rollouts:]
        np.maximum(tail, best[: len(tail)] + worth, out=tail)
    return result
