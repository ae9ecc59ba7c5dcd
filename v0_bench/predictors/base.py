"""The contract of a predictor: (training outcomes; context, queries) -> probabilities."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator

from v0_bench.episode import Context, Queries, TrainingOutcomes

Need = Literal["weights", "policy ids", "timeline", "costs"]


@dataclass(frozen=True)
class PredictorInfo:
    """What a table or a reader must know about a predictor.

    `protocols` lists those it can do (`shift` stands for all shifts); None means every one.
    `default` puts it into the leaderboard's default set.
    """

    summary: str
    paper: str | None = None
    licence: str = "Apache-2.0"
    needs: tuple[Need, ...] = ()
    protocols: tuple[str, ...] | None = None
    default: bool = True


class Predictor(BaseEstimator):
    """Base class: parameters in `__init__` stored as given, so that scikit-learn's clone works.

    `backbone`, `seed` and `device` are reserved parameter names that the caller fills. An object is
    made and fitted anew for every fold.
    """

    name: ClassVar[str]
    info: ClassVar[PredictorInfo]

    def fit(self, train: TrainingOutcomes) -> Self:
        """Learn from the visible training outcomes. A context-only predictor does nothing."""
        return self

    def update(self, outcomes: TrainingOutcomes) -> Self:
        """Take a later step's training outcomes (protocol `sequential`). Does nothing here."""
        return self

    @abstractmethod
    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries for the context's policy: float64 (n_queries,) in [0, 1]."""

    def predict_many(self, pairs: Sequence[tuple[Context, Queries]]) -> list[np.ndarray]:
        """`predict` for many episodes; override it where a batch is faster."""
        return [self.predict(context, queries) for context, queries in pairs]

    def why_unavailable(self) -> str | None:
        """Why this object cannot run here (weights absent, say), before any fitting; else None."""
        return None

    @classmethod
    def why_not_applicable(cls, protocol: str) -> str | None:
        """Why the predictor cannot do a protocol; None where it can."""
        kind = protocol.split(":")[0]
        if cls.info.protocols is None or kind in cls.info.protocols:
            return None
        return f"can do {', '.join(cls.info.protocols)} only"
