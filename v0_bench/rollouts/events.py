"""What a worker tells the run, whether it is a local process or an actor of Ray."""

from __future__ import annotations

from dataclasses import dataclass

from v0_bench.rollouts.checkpoints import Checkpoint


@dataclass(frozen=True)
class Ready:
    """A worker has loaded its tasks, which hold so many queries for each checkpoint."""

    queries: int


@dataclass(frozen=True)
class Progress:
    """Queries answered, how many of them from the journal, and tokens sampled for the others."""

    checkpoint: Checkpoint
    queries: int
    reused: int
    tokens: int


@dataclass(frozen=True)
class Done:
    """A checkpoint is finished: the metrics of each task, and the seconds it took."""

    checkpoint: Checkpoint
    scores: dict[str, dict[str, float]]
    seconds: float


@dataclass(frozen=True)
class Failed:
    """A checkpoint that cannot be used, and why; the run goes on."""

    checkpoint: Checkpoint
    reason: str
    traceback: str = ""


@dataclass(frozen=True)
class Fatal:
    """A mistake that would stop every checkpoint, such as an unknown task."""

    reason: str
    traceback: str = ""


@dataclass(frozen=True)
class Note:
    """Something a user should read, once."""

    text: str


Event = Ready | Progress | Done | Failed | Fatal | Note
