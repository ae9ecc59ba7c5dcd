"""Looks at finished folds and fails loudly if a test outcome could be seen.

It reads only what predictors would be shown, not how the folds were made, and finds every outcome
again in the pool.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from v0_bench.episode import Checkpoint, Episode, TrainingOutcomes
from v0_bench.pool import Pool
from v0_bench.protocols.folds import Fold
from v0_bench.protocols.tables import Tables


class LeakError(Exception):
    """A fold shows a predictor what it is tested on. Always a fault of the protocol's code."""


def check_leaks(pool: Pool, protocol: str, folds: Sequence[Fold]) -> None:
    """Raises LeakError unless every fold keeps the promises of its protocol.

    Always: what is shown or tested are outcomes of the pool, those of a context and of its test
    queries of one checkpoint; no tested outcome is in a context or was shown for training.
    `unseen-policy`, `shift:weak-strong`: no family of a tested policy in training.
    `shift:early-late`: nothing from the tested steps in training. `sequential`: nothing shown is
    later than what is tested, and the groups drawn at a step are apart (where the source fixed
    roles, they need not be). All others: no query group is both shown and tested.
    """
    book = _OutcomeBook(pool)
    apart = protocol != "sequential" or not pool.outcomes["role"].notna().any()
    for fold in folds:
        shown = np.zeros(len(pool.outcomes), dtype=bool)
        teachers: set[Checkpoint] = set()
        for stage in fold.stages:
            train = book.training_rows(stage.train)
            shown[train] = True
            teachers.update(stage.train.checkpoints)
            train_groups = book.groups_of(train)
            for episode in stage.episodes:
                context, test = book.context_rows(episode), book.test_rows(episode)
                _check_checkpoint(protocol, teachers, episode.checkpoint)
                _check_outcomes(episode, shown, context, test)
                if apart:
                    shown_groups = train_groups | book.groups_of(context)
                    _check_groups(episode, shown_groups & book.groups_of(test), book)


class _OutcomeBook:
    """Finds outcomes of a pool by checkpoint and query id; rows are those of `Tables`."""

    def __init__(self, pool: Pool) -> None:
        self.tables = tables = Tables(pool)
        self.query = {query_id: i for i, query_id in enumerate(tables.query_ids)}
        self.checkpoint = {checkpoint: i for i, checkpoint in enumerate(tables.checkpoints)}
        self.key = tables.checkpoint * len(self.query) + tables.query  # ascending
        self.row_of_place = np.argsort(tables.place)

    def groups_of(self, rows: np.ndarray) -> np.ndarray:
        """Mask of the query groups that the rows touch, (n_groups,)."""
        touched = np.zeros(len(self.tables.group_names), dtype=bool)
        touched[self.tables.group[rows]] = True
        return touched

    def training_rows(self, train: TrainingOutcomes) -> np.ndarray:
        """Rows of training outcomes; LeakError for one that the pool does not hold."""
        checkpoint = np.array([self._checkpoint(c) for c in train.checkpoints], dtype=np.int64)
        query = self._queries(train.queries.query_ids)
        return self._rows(
            checkpoint[train.checkpoint_index],
            query[train.query_index],
            train.success_rates,
            "training",
        )

    def context_rows(self, episode: Episode) -> np.ndarray:
        """Rows of a context; LeakError for one that is not of the episode's checkpoint."""
        who, context = episode.checkpoint, episode.context
        if (context.policy, context.step) != (who.policy, who.step):
            raise LeakError(f"{who}: the context belongs to another checkpoint")
        return self._rows(
            np.full(len(context), self._checkpoint(who)),
            self._queries(context.query_ids),
            context.success_rates,
            f"the context of {who}",
        )

    def test_rows(self, episode: Episode) -> np.ndarray:
        """Rows of the test outcomes; LeakError unless the queries and `rows` agree on them."""
        rows = self.row_of_place[episode.rows]
        same = np.array_equal(
            self.tables.query[rows], self._queries(episode.queries.query_ids)
        ) and np.all(self.tables.checkpoint[rows] == self._checkpoint(episode.checkpoint))
        if not same:
            raise LeakError(f"{episode.checkpoint}: its test queries and its rows differ")
        return rows

    def _checkpoint(self, checkpoint: Checkpoint) -> int:
        if checkpoint not in self.checkpoint:
            raise LeakError(f"{checkpoint} is not in the pool")
        return self.checkpoint[checkpoint]

    def _queries(self, query_ids: Sequence[str]) -> np.ndarray:
        codes = (self.query.get(query_id, -1) for query_id in query_ids)
        return np.fromiter(codes, dtype=np.int64, count=len(query_ids))

    def _rows(
        self, checkpoint: np.ndarray, query: np.ndarray, rates: np.ndarray, where: str
    ) -> np.ndarray:
        key = checkpoint * len(self.query) + query
        rows = np.minimum(np.searchsorted(self.key, key), len(self.key) - 1)
        known = (self.key[rows] == key) & (query >= 0) & (self.tables.success_rates[rows] == rates)
        if not np.all(known):
            raise LeakError(f"{where} holds {np.sum(~known)} outcomes that are not in the pool")
        return rows


def _check_checkpoint(protocol: str, teachers: set[Checkpoint], who: Checkpoint) -> None:
    if protocol in ("unseen-policy", "shift:weak-strong"):
        if who.family in {c.family for c in teachers}:
            raise LeakError(f"{who}: its family {who.family} is in training")
    elif protocol in ("sequential", "shift:early-late"):
        latest = max((c.step for c in teachers if c.step is not None), default=None)
        late = latest is not None and who.step is not None and latest > who.step
        if late or (protocol == "shift:early-late" and latest == who.step):
            raise LeakError(f"{who}: step {latest} was shown for training")


def _check_outcomes(
    episode: Episode, shown: np.ndarray, context: np.ndarray, test: np.ndarray
) -> None:
    who, query_ids = episode.checkpoint, episode.queries.query_ids
    for fault, wrong in (
        ("is in its context", np.isin(test, context)),
        ("was shown for training", shown[test]),
    ):
        if wrong.any():
            query_id = query_ids[int(np.argmax(wrong))]
            raise LeakError(f"{who}: the outcome on test query {query_id} {fault}")


def _check_groups(episode: Episode, both: np.ndarray, book: _OutcomeBook) -> None:
    if both.any():
        name = book.tables.group_names[int(np.argmax(both))]
        raise LeakError(f"{episode.checkpoint}: query group {name} is shown and tested")
