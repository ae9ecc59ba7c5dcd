"""What a predictor sees: contexts, queries and training outcomes, as frozen dataclasses.

All arrays are parallel to `texts` (or to the outcomes); success rates lie in [0, 1], costs are USD,
NaN where unknown. Nothing here holds a test outcome.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from v0_bench.errors import V0BenchError

if TYPE_CHECKING:
    from v0_bench.embeddings import TokenStates


def _embed(texts: Sequence[str], backbone: str) -> np.ndarray:
    from v0_bench.embeddings import embed  # late: a backbone may need torch

    return embed(texts, backbone)


def _token_states(
    texts: Sequence[str], backbone: str, layer: int, max_tokens: int | None
) -> TokenStates:
    from v0_bench.embeddings import token_states

    return token_states(texts, backbone, layer=layer, max_tokens=max_tokens)


@dataclass(frozen=True)
class Queries:
    """Prompts whose success is asked for: n texts with their ids and data sets."""

    texts: tuple[str, ...]
    query_ids: tuple[str, ...]
    datasets: tuple[str, ...]

    def __post_init__(self) -> None:
        _same_length(self, ("texts", "query_ids", "datasets"))

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def from_texts(cls, texts: Sequence[str]) -> Queries:
        """Queries known by their texts alone; ids are their positions."""
        ids = tuple(str(i) for i in range(len(texts)))
        return cls(tuple(texts), ids, ("",) * len(texts))

    def embed(self, backbone: str) -> np.ndarray:
        """Embeddings of the texts, float32 (n, d), from the shared cache."""
        return _embed(self.texts, backbone)

    def token_states(
        self, backbone: str, *, layer: int = -1, max_tokens: int | None = None
    ) -> TokenStates:
        """States of the tokens of the texts, from the shared store; see `v0_bench.embeddings`."""
        return _token_states(self.texts, backbone, layer, max_tokens)


@dataclass(frozen=True)
class Context:
    """Outcomes of one checkpoint shown to a predictor; where time matters, the newest come last."""

    texts: tuple[str, ...]
    success_rates: np.ndarray
    n_rollouts: np.ndarray
    query_ids: tuple[str, ...]
    datasets: tuple[str, ...]
    costs: np.ndarray
    policy: str | None = None
    step: int | None = None

    def __post_init__(self) -> None:
        _same_length(
            self, ("texts", "success_rates", "n_rollouts", "query_ids", "datasets", "costs")
        )
        rates, counts = np.asarray(self.success_rates), np.asarray(self.n_rollouts)
        if not np.all((rates >= 0) & (rates <= 1)):
            raise V0BenchError("a context's success rates must lie in [0, 1] and not be NaN")
        if not np.all(counts >= 1):
            raise V0BenchError("a context's rollout counts must be at least 1")

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def from_pairs(cls, pairs: Sequence[tuple[str, float] | tuple[str, float, int]]) -> Context:
        """A context from (text, success rate) or (text, success rate, rollouts)."""
        n = len(pairs)
        return cls(
            texts=tuple(pair[0] for pair in pairs),
            success_rates=np.array([pair[1] for pair in pairs], dtype=float),
            n_rollouts=np.array([pair[2] if len(pair) > 2 else 1 for pair in pairs], dtype=int),
            query_ids=tuple(str(i) for i in range(n)),
            datasets=("",) * n,
            costs=np.full(n, np.nan),
        )

    @property
    def mean(self) -> float:
        """mu(C), the mean success rate; one half for an empty context."""
        return float(np.mean(self.success_rates)) if len(self) else 0.5

    def newest(self, size: int) -> Context:
        """The last `size` items."""
        return self._slice(slice(max(0, len(self) - size), None))

    def first(self, size: int) -> Context:
        """The first `size` items: contexts of growing size drawn from one order are nested."""
        return self._slice(slice(0, size))

    def _slice(self, part: slice) -> Context:
        return Context(
            self.texts[part],
            self.success_rates[part],
            self.n_rollouts[part],
            self.query_ids[part],
            self.datasets[part],
            self.costs[part],
            self.policy,
            self.step,
        )

    def embed(self, backbone: str) -> np.ndarray:
        """Embeddings of the texts, float32 (n, d), from the shared cache."""
        return _embed(self.texts, backbone)

    def token_states(
        self, backbone: str, *, layer: int = -1, max_tokens: int | None = None
    ) -> TokenStates:
        """States of the tokens of the texts, from the shared store; see `v0_bench.embeddings`."""
        return _token_states(self.texts, backbone, layer, max_tokens)


@dataclass(frozen=True)
class Checkpoint:
    """A policy at a step (None for a finished model), with its family."""

    policy: str
    step: int | None
    family: str


@dataclass(frozen=True)
class TrainingOutcomes:
    """Outcomes a predictor may learn from: m rows over distinct queries and checkpoints.

    Row i says that `checkpoints[checkpoint_index[i]]` solved query `query_index[i]` with
    `success_rates[i]` over `n_rollouts[i]` rollouts, at `costs[i]` USD (NaN if unknown).
    """

    queries: Queries
    checkpoints: tuple[Checkpoint, ...]
    query_index: np.ndarray
    checkpoint_index: np.ndarray
    success_rates: np.ndarray
    n_rollouts: np.ndarray
    costs: np.ndarray

    def __post_init__(self) -> None:
        _same_length(
            self, ("query_index", "checkpoint_index", "success_rates", "n_rollouts", "costs")
        )

    def __len__(self) -> int:
        return len(self.query_index)

    def join(self, later: TrainingOutcomes) -> TrainingOutcomes:
        """These outcomes and later ones; a query or checkpoint in both keeps one place."""
        queries = self.queries.query_ids
        query_place = {query_id: i for i, query_id in enumerate(queries)}
        new = [i for i, q in enumerate(later.queries.query_ids) if q not in query_place]
        for i in new:
            query_place[later.queries.query_ids[i]] = len(query_place)
        checkpoint_place = {c: i for i, c in enumerate(self.checkpoints)}
        for checkpoint in later.checkpoints:
            checkpoint_place.setdefault(checkpoint, len(checkpoint_place))
        query_map = np.array([query_place[q] for q in later.queries.query_ids], dtype=int)
        checkpoint_map = np.array([checkpoint_place[c] for c in later.checkpoints], dtype=int)
        return TrainingOutcomes(
            queries=Queries(
                self.queries.texts + tuple(later.queries.texts[i] for i in new),
                queries + tuple(later.queries.query_ids[i] for i in new),
                self.queries.datasets + tuple(later.queries.datasets[i] for i in new),
            ),
            checkpoints=tuple(checkpoint_place),
            query_index=np.concatenate([self.query_index, query_map[later.query_index]]),
            checkpoint_index=np.concatenate(
                [self.checkpoint_index, checkpoint_map[later.checkpoint_index]]
            ),
            success_rates=np.concatenate([self.success_rates, later.success_rates]),
            n_rollouts=np.concatenate([self.n_rollouts, later.n_rollouts]),
            costs=np.concatenate([self.costs, later.costs]),
        )

    @cached_property
    def query_success(self) -> np.ndarray:
        """Mean success rate of each distinct query, (n_queries,); NaN for one without rows."""
        n = len(self.queries)
        counts = np.bincount(self.query_index, minlength=n)
        sums = np.bincount(self.query_index, weights=self.success_rates, minlength=n)
        return np.divide(sums, counts, out=np.full(n, np.nan), where=counts > 0)


@dataclass(frozen=True)
class Episode:
    """One checkpoint under one protocol and seed: its context and its test queries."""

    checkpoint: Checkpoint
    context: Context
    queries: Queries
    rows: np.ndarray = field(repr=False)
    """Positions of the test outcomes in the pool's `outcomes`, parallel to `queries`."""


def _same_length(record: object, names: tuple[str, ...]) -> None:
    lengths = {name: len(getattr(record, name)) for name in names}
    if len(set(lengths.values())) > 1:
        raise V0BenchError(f"{type(record).__name__}: fields differ in length: {lengths}")
