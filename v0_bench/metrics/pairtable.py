"""Pairwise accuracy in bootstrap replicates, as matrix products.

A replicate that repeats query group g m_g times and family a f_a times has
sum_g m_g sum_ab f_a f_b count[g, a, b] pairs, and as many wins with the counts of wins. The counts
come from a dense grid of queries by checkpoints, one family of winners and one block of queries at
a time, for all predictions at once. (`pairwise.py` counts the sample itself without the grid.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from v0_bench.metrics.pairwise import PAPER_GAP
from v0_bench.metrics.ranks import run_starts
from v0_bench.metrics.resample import Resample
from v0_bench.metrics.rows import Floats, Ints, Rows, compact

BLOCK_CELLS = 2_000_000

Pairing = Callable[["Block", int], npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class Counts:
    """Pairs (R,) and wins (predictions, R) of each replicate; a tie is half a win."""

    pairs: Floats
    wins: Floats


@dataclass(frozen=True)
class Tally:
    """Counts with query groups resampled, and with families resampled as well where they are."""

    plain: Counts
    policies: Counts | None


@dataclass(frozen=True)
class Block:
    """Some queries in group order, by all checkpoints in family order; NaN where there is no row.

    `group` names the query groups, `group_starts` their first query.
    """

    reward: Floats
    rollouts: Floats
    predictions: list[Floats]
    policy: Ints
    group: Ints
    group_starts: Ints


class PairGrid:
    """One seed's rows and several columns of predictions as a grid."""

    def __init__(self, rows: Rows, predictions: list[Floats]) -> None:
        checkpoint, query = compact(rows.checkpoint), compact(rows.query)
        first_row = np.unique(checkpoint, return_index=True)[1]
        columns = np.argsort(rows.family[first_row], kind="stable")
        self.family = rows.family[first_row][columns]
        self.policy = rows.policy[first_row][columns]
        self.family_starts = run_starts(self.family)
        group = np.empty(int(query.max()) + 1, dtype=np.int64)
        group[query] = rows.group
        lines = np.argsort(group, kind="stable")
        self.group = group[lines]
        self._cell = (np.argsort(lines)[query], np.argsort(columns)[checkpoint])
        self.reward, self.rollouts, *self.predictions = (
            self._fill(values) for values in (rows.reward, rows.rollouts, *predictions)
        )

    def blocks(self) -> Iterator[Block]:
        """Cut the grid between query groups."""
        starts = run_starts(self.group)
        cells_per_group = len(self.policy) * len(self.group) // len(starts)
        per_block = max(1, BLOCK_CELLS // cells_per_group)
        for begin in range(0, len(starts), per_block):
            end = begin + per_block
            first = starts[begin]
            last = starts[end] if end < len(starts) else len(self.group)
            lines = slice(first, last)
            yield Block(
                self.reward[lines],
                self.rollouts[lines],
                [grid[lines] for grid in self.predictions],
                self.policy,
                self.group[starts[begin:end]],
                starts[begin:end] - first,
            )

    def winners(self) -> list[range]:
        """The checkpoints (columns) of each family."""
        ends = np.append(self.family_starts[1:], len(self.family))
        return [range(a, b) for a, b in zip(self.family_starts, ends, strict=True)]

    def _fill(self, values: Floats) -> Floats:
        grid = np.full((len(self.group), len(self.policy)), np.nan)
        grid[self._cell] = values
        return grid


def all_pairs(block: Block, winner: int) -> npt.NDArray[np.bool_]:
    """Opponents (queries, checkpoints) with a smaller r and k within a factor of 2."""
    k, own = block.rollouts, block.rollouts[:, winner, None]
    return (block.reward[:, winner, None] > block.reward) & (k <= 2 * own) & (own <= 2 * k)


def paper_pairs(block: Block, winner: int) -> npt.NDArray[np.bool_]:
    """Opponents of the same policy whose r is smaller by >= .5 and on the other side of .5."""
    own = block.reward[:, winner, None]
    apart = (own >= 0.5) & (block.reward < 0.5) & (own - block.reward >= PAPER_GAP)
    return apart & (block.policy == block.policy[winner])


def tally(grid: PairGrid, resample: Resample, pairing: Pairing) -> Tally:
    """Wins and pairs of every replicate.

    Pairs across families weigh f_a f_b. The paper's pairs lie inside one policy, whose copies are
    different policies, so they weigh f_a; where no policy has two checkpoints there are none.
    """
    shape = (1 + len(grid.predictions), len(resample.groups))
    plain, policies = np.zeros(shape), np.zeros(shape)
    if pairing is paper_pairs and len(np.unique(grid.policy)) == len(grid.policy):
        return Tally(Counts(plain[0], plain[1:]), Counts(policies[0], policies[1:]))
    families = resample.families
    copies = None
    if families is not None:
        copies = families[:, grid.family[grid.family_starts]].astype(np.float64)
    for block in grid.blocks():
        weights = resample.groups[:, block.group].astype(np.float64)
        for family, winners in enumerate(grid.winners()):
            counts = _family_counts(block, winners, grid.family_starts, pairing)
            by_opponent = [weights @ count for count in counts]
            plain += [won.sum(axis=1) for won in by_opponent]
            if copies is not None:
                repeated = copies[:, family, None]
                repeated = repeated * copies if pairing is all_pairs else repeated
                policies += [(won * repeated).sum(axis=1) for won in by_opponent]
    return Tally(
        Counts(plain[0], plain[1:]),
        Counts(policies[0], policies[1:]) if copies is not None else None,
    )


def _family_counts(
    block: Block, winners: range, family_starts: Ints, pairing: Pairing
) -> list[Floats]:
    """Pairs, then wins of each prediction, of one family's checkpoints: (groups, families) each."""
    totals = [np.zeros(block.reward.shape) for _ in range(1 + len(block.predictions))]
    for winner in winners:
        valid = pairing(block, winner)
        totals[0] += valid
        for total, p in zip(totals[1:], block.predictions, strict=True):
            own = p[:, winner, None]
            total += 0.5 * (valid & (own > p))
            total += 0.5 * (valid & (own >= p))
    return [
        np.add.reduceat(np.add.reduceat(total, family_starts, axis=1), block.group_starts, axis=0)
        for total in totals
    ]
