"""Pairwise accuracy: of two checkpoints on one query, does p name the one that does better?

Exact and without a list of pairs. Inside each query the rows are put in the order of r; a pair is
won if the later row has the larger p, so wins are counted like inversions, by a wavelet tree on the
ranks of p: one stable partition per bit of the rank, over all queries at once. O(n log n).

Pairs whose rollout counts differ by more than a factor of 2 do not count. Windows [k, 2k] cover
every pair that does, some of them several times in a row, and the overlaps of neighbouring windows
take the surplus away again; pools with one number of rollouts have a single window.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from v0_bench.metrics.ranks import order_within, run_starts
from v0_bench.metrics.rows import Floats, Ints, Rows, compact

MIN_PAIRS = 200
PAPER_GAP = 0.5 - 1e-9  # .7 - .2 is a hair below .5 in floating point

Flags = npt.NDArray[np.bool_]


def pair_counts(
    query: Ints, reward: Floats, predictions: list[Floats], rollouts: Floats
) -> tuple[list[float], int]:
    """Pairs with r_i > r_j and k within a factor of 2: wins of each prediction, number of pairs.

    A tie in p is half a win.
    """
    level = np.unique(reward, return_inverse=True)[1].astype(np.int64)
    windows = list(rollout_windows(rollouts))
    pairs, wins = 0, [0.0] * len(predictions)
    for column, prediction in enumerate(predictions):
        rank = dense_ranks(query, prediction)
        order = _sequence(query, level, rank)
        pairs = 0
        for low, high, sign in windows:
            inside = order
            if len(windows) > 1:
                inside = order[((rollouts >= low) & (rollouts <= high))[order]]
            won, number = _window_counts(query[inside], level[inside], rank[inside])
            wins[column] += sign * won
            pairs += sign * number
    return wins, pairs


def paper_pair_counts(rows: Rows) -> tuple[float, int]:
    """The same over two steps of one policy with r differing by >= .5 and crossing .5."""
    code = compact(rows.policy * (rows.query.max() + 1) + rows.query)
    several = np.bincount(code)[code] > 1
    if not several.any():
        return 0.0, 0
    code, prediction = code[several], rows.prediction[several]
    label, reward = rows.label[several], rows.reward[several]
    key = np.where(label, reward, reward + PAPER_GAP)  # a failure comes before what beats it
    rank = dense_ranks(code, prediction)
    order = np.lexsort((label, key, code))
    code, rank, label = code[order], rank[order], label[order]
    less, equal = dominance(code, rank, ~label, label)
    return less + equal / 2, _ordered_pairs(run_starts(code), ~label, label)


def dense_ranks(query: Ints, prediction: Floats) -> Ints:
    """Rank of p inside its query, from 0; equal predictions have equal ranks."""
    order = order_within(query, prediction)
    q, p = query[order], prediction[order]
    starts = run_starts(q)
    position = np.zeros(len(q), dtype=np.int64)
    position[run_starts(q, p)] = 1
    position = np.cumsum(position)
    base = np.repeat(position[starts], np.diff(np.append(starts, len(q))))
    ranks = np.empty(len(q), dtype=np.int64)
    ranks[order] = position - base
    return ranks


def rollout_windows(rollouts: Floats) -> Iterator[tuple[float, float, int]]:
    """(low, high, sign): every pair within a factor of 2 gets a total sign of exactly 1."""
    values = np.unique(rollouts)
    ends = np.searchsorted(values, 2 * values, side="right")
    maximal = np.flatnonzero(np.diff(np.concatenate([[0], ends])) > 0)
    previous_end = 0
    for start in maximal:
        if start < previous_end:
            yield float(values[start]), float(values[previous_end - 1]), -1
        previous_end = int(ends[start])
        yield float(values[start]), float(values[previous_end - 1]), 1


def dominance(segment: Ints, rank: Ints, earlier: Flags, later: Flags) -> tuple[int, int]:
    """Count pairs i before j in one segment, i in `earlier` and j in `later`, by their ranks.

    Rows come sorted by segment, in sequence inside it. Returns the pairs with rank_i < rank_j and
    those with rank_i == rank_j. Each bit of the rank splits a node of the tree in two: a pair is
    counted at the bit where its ranks part.
    """
    less = 0
    starts = run_starts(segment)
    packed = (rank << 2 | earlier << 1 | later).astype(np.int32)  # travels as one number
    for bit in range(int(rank.max(initial=0)).bit_length() - 1, -1, -1):
        high = (packed & (4 << bit)).astype(bool)
        less += _ordered_pairs(starts, (packed & 2 > 0) & ~high, (packed & 1 > 0) & high)
        packed, starts = _split(starts, packed, high)
    return less, _ordered_pairs(starts, packed & 2 > 0, packed & 1 > 0)


def _window_counts(query: Ints, level: Ints, rank: Ints) -> tuple[float, int]:
    everyone = np.ones(len(query), dtype=bool)
    less, equal = dominance(query, rank, everyone, everyone)
    same_query, same_level, same_both = (
        _same_pairs(query),
        _same_pairs(query, level),
        _same_pairs(query, level, rank),
    )
    return less + (equal - same_both) / 2, same_query - same_level


def _sequence(query: Ints, level: Ints, rank: Ints) -> Ints:
    """Order by query, r, and falling p, so that rows of equal r never win against each other."""
    width = int(rank.max()) + 1
    return np.argsort((query * (int(level.max()) + 1) + level) * width + (width - 1 - rank))


def _same_pairs(*columns: npt.NDArray[np.generic]) -> int:
    """Pairs equal in all columns, which must be sorted so that equal rows are neighbours."""
    sizes = np.diff(np.append(run_starts(*columns), len(columns[0])))
    return int((sizes * (sizes - 1) // 2).sum())


def _ordered_pairs(starts: Ints, earlier: Flags, later: Flags) -> int:
    """Pairs (i in earlier, j in later) with i before j inside one node."""
    if not len(starts):
        return 0
    before = np.cumsum(earlier, dtype=np.int32)
    base = before[starts] - earlier[starts]
    number_later = np.add.reduceat(later, starts, dtype=np.int64)
    itself = np.count_nonzero(earlier & later)  # `before` counts a row in both sets, too
    return int(before[later].sum(dtype=np.int64) - (base * number_later).sum() - itself)


def _split(starts: Ints, packed: npt.NDArray[np.int32], high: Flags) -> tuple[np.ndarray, Ints]:
    """Put the low half of every node before its high half, stably; return rows and node starts."""
    low = ~high
    sizes = np.diff(np.append(starts, len(packed)))
    before = np.cumsum(low, dtype=np.int32)
    base = before[starts] - low[starts]
    number_low = np.add.reduceat(low, starts, dtype=np.int64)
    place_low = np.repeat((starts - base - 1).astype(np.int32), sizes) + before
    place_high = np.repeat((number_low + base).astype(np.int32), sizes) - before
    place_high += np.arange(len(packed), dtype=np.int32)
    split = np.empty_like(packed)
    split[np.where(high, place_high, place_low)] = packed
    both = np.column_stack([starts, starts + number_low]).ravel()
    occupied = np.column_stack([number_low, sizes - number_low]).ravel() > 0
    return split, both[occupied]
