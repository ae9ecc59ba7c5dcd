"""What a protocol yields: folds, each a sequence of stages in time order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from v0_bench.episode import Episode, TrainingOutcomes


@dataclass(frozen=True)
class Stage:
    """Training outcomes that become visible, then the episodes that are tested."""

    train: TrainingOutcomes
    episodes: tuple[Episode, ...]


@dataclass(frozen=True)
class Fold:
    """Stages in time order; a predictor is made anew for every fold."""

    stages: tuple[Stage, ...]

    def texts(self) -> Iterator[str]:
        """Every text that is shown or tested, with repeats."""
        for stage in self.stages:
            yield from stage.train.queries.texts
            for episode in stage.episodes:
                yield from episode.context.texts
                yield from episode.queries.texts
