"""What V0 trains on: an inner split of training outcomes, and batches of episodes drawn from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from v0_bench.episode import Context, Queries, TrainingOutcomes
from v0_bench.errors import V0BenchError
from v0_bench.pool.groups import query_groups

VALIDATION_SHARE = 0.3
LEAST_FAMILIES = 3
LEAST_ROWS = 2
"""Outcomes of a checkpoint that make an episode: one to show, one to ask."""


@dataclass(frozen=True)
class ValidationEpisode:
    """An episode whose answers are known."""

    context: Context
    queries: Queries
    rates: np.ndarray


@dataclass(frozen=True)
class InnerSplit:
    """Training outcomes of some checkpoints and queries, and episodes of others to validate on."""

    train: TrainingOutcomes
    validation: tuple[ValidationEpisode, ...]


@dataclass(frozen=True)
class Batch:
    """Episodes of one training step: places of queries in the training outcomes.

    context, query: (E, N) and (E, M); *_rates, *_counts: success rates and rollouts there;
    *_mask: True where there is an item.
    """

    context: np.ndarray
    context_rates: np.ndarray
    context_counts: np.ndarray
    context_mask: np.ndarray
    query: np.ndarray
    query_rates: np.ndarray
    query_mask: np.ndarray


def inner_split(
    train: TrainingOutcomes, seed: int, context_size: int, episodes: int, queries: int
) -> InnerSplit | None:
    """Splits training outcomes as the protocols split a pool: checkpoints and queries both.

    Validation checkpoints are about 30 % of the families where there are 3 or more, else those of
    the latest 30 % of the steps; validation queries are 30 % of the query groups. At most
    `episodes` checkpoints are asked at most `queries` each, against contexts of other queries.
    None where there are neither families nor steps to split, or nothing is left on one side.
    """
    held_out = _held_out_checkpoints(train, seed)
    if held_out is None:
        return None
    asked = _held_out_queries(train.queries, seed)
    row_held, row_asked = held_out[train.checkpoint_index], asked[train.query_index]
    rng = np.random.default_rng([seed, 12])
    found: list[ValidationEpisode] = []
    for checkpoint in rng.permutation(np.flatnonzero(held_out)):
        mine = train.checkpoint_index == checkpoint
        shown, tested = np.flatnonzero(mine & ~row_asked), np.flatnonzero(mine & row_asked)
        if len(found) == episodes:
            break
        if len(tested):
            tested = np.sort(rng.permutation(tested)[:queries])
            context = _context(train, rng.permutation(shown)[:context_size])
            asked_here = _queries(train.queries, train.query_index[tested])
            found.append(ValidationEpisode(context, asked_here, train.success_rates[tested]))
    kept = ~row_held & ~row_asked
    if not found or not kept.any():
        return None
    return InnerSplit(subset(train, np.flatnonzero(kept)), tuple(found))


def subset(train: TrainingOutcomes, rows: np.ndarray) -> TrainingOutcomes:
    """Some of the outcomes, with the queries and checkpoints they have."""
    query, query_index = np.unique(train.query_index[rows], return_inverse=True)
    checkpoint, checkpoint_index = np.unique(train.checkpoint_index[rows], return_inverse=True)
    return TrainingOutcomes(
        _queries(train.queries, query),
        tuple(train.checkpoints[i] for i in checkpoint),
        query_index,
        checkpoint_index,
        train.success_rates[rows],
        train.n_rollouts[rows],
        train.costs[rows],
    )


class EpisodeSampler:
    """Draws batches of episodes from training outcomes; batch t is the same for the same seed.

    A checkpoint's outcomes are put in random order: the first ones are the context, at their
    natural rate of success, the next are asked. So no query is both shown and asked.
    """

    def __init__(self, train: TrainingOutcomes, context_size: int, queries: int) -> None:
        order = np.argsort(train.checkpoint_index, kind="stable")
        starts = np.searchsorted(
            train.checkpoint_index[order], np.arange(1, len(train.checkpoints))
        )
        self.rows = [rows for rows in np.split(order, starts) if len(rows) >= LEAST_ROWS]
        self.train, self.context_size, self.queries = train, context_size, queries

    def __len__(self) -> int:
        """Checkpoints that make an episode."""
        return len(self.rows)

    def batch(self, seed: int, step: int, episodes: int, rank: int = 0, ranks: int = 1) -> Batch:
        """Batch number `step`; process `rank` of `ranks` gets its share of the episodes."""
        rng = np.random.default_rng([seed, 13, step])
        chosen = np.resize(rng.permutation(len(self.rows)), episodes)
        orders = [rng.permutation(self.rows[i]) for i in chosen]
        parts = [self._cut(order) for order in orders[rank::ranks]]
        shown, shown_mask = _padded([part[0] for part in parts])
        asked, asked_mask = _padded([part[1] for part in parts])
        train = self.train
        return Batch(
            train.query_index[shown],
            train.success_rates[shown],
            train.n_rollouts[shown],
            shown_mask,
            train.query_index[asked],
            train.success_rates[asked],
            asked_mask,
        )

    def _cut(self, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows to show and rows to ask; a checkpoint with few outcomes gives half to each."""
        n_asked = min(self.queries, len(order) // 2)
        asked, rest = order[:n_asked], order[n_asked:]
        return rest[: self.context_size], asked


def _held_out_checkpoints(train: TrainingOutcomes, seed: int) -> np.ndarray | None:
    families = np.unique([checkpoint.family for checkpoint in train.checkpoints])
    if len(families) >= LEAST_FAMILIES:
        n = _share(len(families))
        chosen = np.random.default_rng([seed, 10]).permutation(families)[:n]
        return np.isin([checkpoint.family for checkpoint in train.checkpoints], chosen)
    steps = [checkpoint.step for checkpoint in train.checkpoints]
    known = np.unique([step for step in steps if step is not None])
    if len(known) < 2:
        return None
    cut = known[-_share(len(known))]
    return np.array([step is not None and step >= cut for step in steps])


def _held_out_queries(queries: Queries, seed: int) -> np.ndarray:
    table = pd.DataFrame(
        {
            "query_id": queries.query_ids,
            "dataset": queries.datasets,
            "text": queries.texts,
            "group": None,
        }
    )
    try:
        groups = query_groups(table)
    except V0BenchError:  # of the whole pool it was not too large
        groups = np.array(queries.texts, dtype=object)
    group = pd.factorize(groups)[0]
    n = int(group.max(initial=-1)) + 1
    chosen = np.zeros(n, dtype=bool)
    chosen[np.random.default_rng([seed, 11]).permutation(n)[: _share(n)]] = True
    return chosen[group]


def _share(n: int) -> int:
    return min(max(1, round(VALIDATION_SHARE * n)), max(n - 1, 0))


def _context(train: TrainingOutcomes, rows: np.ndarray) -> Context:
    shown = _queries(train.queries, train.query_index[rows])
    return Context(
        shown.texts,
        train.success_rates[rows],
        train.n_rollouts[rows],
        shown.query_ids,
        shown.datasets,
        train.costs[rows],
    )


def _queries(queries: Queries, places: np.ndarray) -> Queries:
    texts, ids, datasets = (
        tuple(part[i] for i in places)
        for part in (queries.texts, queries.query_ids, queries.datasets)
    )
    return Queries(texts, ids, datasets)


def _padded(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(E, longest) rows, 0 where there is none, and the mask."""
    longest = max(map(len, rows), default=0)
    table = np.zeros((len(rows), longest), dtype=int)
    mask = np.zeros((len(rows), longest), dtype=bool)
    for i, row in enumerate(rows):
        table[i, : len(row)], mask[i, : len(row)] = row, True
    return table, mask
