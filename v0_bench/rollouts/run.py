"""A whole run: checkpoints in, journals, lm-eval's files and a pool out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.checkpoints import Checkpoint, check_distinct
from v0_bench.rollouts.events import Done, Event, Failed, Fatal, Note, Progress, Ready
from v0_bench.rollouts.progress import ProgressLine
from v0_bench.rollouts.settings import Output


class Workers(Protocol):
    """Processes or actors that sample checkpoints."""

    def events(self, checkpoints: Sequence[Checkpoint]) -> Iterator[Event]:
        """What happens; every checkpoint ends with Done or Failed, or all with Fatal."""


@dataclass
class Report:
    """How a run went. `queries`, `reused` (from the journal) and `tokens` are totals."""

    done: list[Done] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    queries: int = 0
    reused: int = 0
    tokens: int = 0
    tokens_per_second: float = 0.0


@contextmanager
def locked_output(folder: Path) -> Iterator[Output]:
    """The output folder, for this run alone; V0BenchError where another run has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", timeout=0)
        with lock:
            yield Output(folder)
    except Timeout:
        raise V0BenchError(
            f"another run is writing to {folder}: wait for it, or choose another --output"
        ) from None
    except OSError as error:
        raise V0BenchError(f"cannot write {folder}: {error.strerror or error}") from error


def run(checkpoints: Sequence[Checkpoint], workers: Workers, output: Output) -> Report:
    """Samples the checkpoints and tells how it went; a failing one is noted and skipped.

    Raises V0BenchError for what would stop every checkpoint.
    """
    check_distinct(checkpoints)
    report, progress = Report(), ProgressLine(len(checkpoints))
    notes: set[str] = set()
    try:
        with closing(workers.events(checkpoints)) as events:  # type: ignore[type-var]
            for event in events:
                match event:
                    case Ready(queries):
                        progress.queries = queries
                    case Progress():
                        progress.update(event)
                        report.queries += event.queries
                        report.reused += event.reused
                        report.tokens += event.tokens
                    case Done():
                        report.done.append(event)
                        progress.close_checkpoint(event.checkpoint)
                    case Failed():
                        report.failed.append(event)
                        progress.close_checkpoint(event.checkpoint)
                        progress.write(f"skipped {event.checkpoint.name}: {event.reason}")
                        _log(output, event.traceback)
                    case Fatal(reason, traceback):
                        _log(output, traceback)
                        raise V0BenchError(reason)
                    case Note(text) if text not in notes:
                        notes.add(text)
                        progress.write(text)
    finally:
        report.tokens_per_second = progress.tokens_per_second
        progress.close()
    return report


def _log(output: Output, text: str) -> None:
    if text:
        with output.log.open("a", encoding="utf-8") as log:
            log.write(text + "\n")
