"""A pool as integer arrays, and the builders of what predictors see from rows of it."""

from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd

from v0_bench.episode import Checkpoint, Context, Episode, Queries, TrainingOutcomes
from v0_bench.pool import Pool


class Tables:
    """Parallel arrays of a pool's outcomes, sorted by checkpoint (policy, step) and query id.

    The order is the tables' own, so that nothing depends on the order of the pool's rows: row i is
    row `place[i]` of the pool's outcomes. `checkpoint`, `query` and `group` are codes in sorted
    order: `checkpoints[checkpoint[i]]` tried `query_ids[query[i]]`, a query of group `group[i]`.
    `step` is float, NaN for a finished model; `role` holds null where the source gave none.
    """

    def __init__(self, pool: Pool) -> None:
        queries = pool.queries.sort_values("query_id")
        self.texts = queries["text"].to_numpy(dtype=object)
        self.query_ids = queries["query_id"].to_numpy(dtype=object)
        self.datasets = queries["dataset"].to_numpy(dtype=object)
        groups = pool.query_group.loc[self.query_ids].to_numpy(dtype=object)
        group, self.group_names = pd.factorize(groups, sort=True)

        query = pd.Index(self.query_ids).get_indexer(pool.outcomes["query_id"].astype(object))
        checkpoint, self.checkpoints = _checkpoints(pool)
        self.family = np.array([c.family for c in self.checkpoints], dtype=object)
        self.place = np.lexsort((query, checkpoint))
        self.query, self.checkpoint = query[self.place], checkpoint[self.place]
        self.group = group[self.query]

        columns = ["mean_reward", "n_rollouts", "cost", "step", "role"]
        outcomes = pool.outcomes[columns].take(self.place)
        self.success_rates = outcomes["mean_reward"].to_numpy(dtype=float)
        self.n_rollouts = outcomes["n_rollouts"].to_numpy(dtype=np.int64)
        self.costs = outcomes["cost"].to_numpy(dtype=float)
        self.step = outcomes["step"].to_numpy(dtype=float, na_value=np.nan)
        self.role = outcomes["role"].to_numpy(dtype=object)

    def queries(self, codes: np.ndarray) -> Queries:
        """The queries with the given codes."""
        return Queries(
            tuple(self.texts[codes]), tuple(self.query_ids[codes]), tuple(self.datasets[codes])
        )

    def training(self, rows: np.ndarray) -> TrainingOutcomes:
        """Training outcomes made of the given rows, which are ascending."""
        queries, query_index = np.unique(self.query[rows], return_inverse=True)
        checkpoints, checkpoint_index = np.unique(self.checkpoint[rows], return_inverse=True)
        return TrainingOutcomes(
            queries=self.queries(queries),
            checkpoints=tuple(self.checkpoints[i] for i in checkpoints),
            query_index=_frozen(query_index),
            checkpoint_index=_frozen(checkpoint_index),
            success_rates=_frozen(self.success_rates[rows]),
            n_rollouts=_frozen(self.n_rollouts[rows]),
            costs=_frozen(self.costs[rows]),
        )

    def episodes(
        self, context_rows: np.ndarray, test_rows: np.ndarray, seed: int, context_size: int
    ) -> tuple[Episode, ...]:
        """One episode per checkpoint that has test rows; contexts are drawn from `context_rows`.

        Both lists of rows are ascending.
        """
        contexts = self._by_checkpoint(context_rows)
        none = np.array([], dtype=np.int64)
        return tuple(
            self._episode(i, contexts.get(i, none), rows, seed, context_size)
            for i, rows in self._by_checkpoint(test_rows).items()
        )

    def _by_checkpoint(self, rows: np.ndarray) -> dict[int, np.ndarray]:
        codes, starts = np.unique(self.checkpoint[rows], return_index=True)
        parts = np.split(rows, starts[1:]) if len(codes) else []
        return dict(zip(codes.tolist(), parts, strict=True))

    def _episode(
        self, index: int, candidates: np.ndarray, rows: np.ndarray, seed: int, context_size: int
    ) -> Episode:
        checkpoint = self.checkpoints[index]
        drawn = checkpoint_rng(checkpoint, seed).permutation(candidates)[:context_size]
        asked = self.queries(self.query[drawn])
        context = Context(
            texts=asked.texts,
            success_rates=_frozen(self.success_rates[drawn]),
            n_rollouts=_frozen(self.n_rollouts[drawn]),
            query_ids=asked.query_ids,
            datasets=asked.datasets,
            costs=_frozen(self.costs[drawn]),
            policy=checkpoint.policy,
            step=checkpoint.step,
        )
        place = _frozen(self.place[rows])
        return Episode(checkpoint, context, self.queries(self.query[rows]), place)


def _checkpoints(pool: Pool) -> tuple[np.ndarray, tuple[Checkpoint, ...]]:
    """Code of the checkpoint of each outcome, and the checkpoints sorted by policy and step."""
    policy, policies = pd.factorize(pool.outcomes["policy"].astype(object), sort=True)
    step, steps = pd.factorize(pool.outcomes["step"], sort=True)
    # a finished model's step has the code -1
    n = len(steps) + 1
    pairs, code = np.unique(policy * n + step + 1, return_inverse=True)
    checkpoints = tuple(
        Checkpoint(policies[p], int(steps[s - 1]) if s else None, pool.family[policies[p]])
        for p, s in (divmod(pair, n) for pair in pairs.tolist())
    )
    return code, checkpoints


def checkpoint_rng(checkpoint: Checkpoint, seed: int) -> np.random.Generator:
    """A generator of its own for each checkpoint: a draw does not depend on who else is there."""
    name = f"{checkpoint.policy}\0{checkpoint.step}".encode()
    return np.random.default_rng([seed, int.from_bytes(hashlib.sha256(name).digest()[:8], "big")])


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.array(array)
    array.setflags(write=False)
    return array
