"""Workers as processes of this machine.

A worker that dies takes nothing with it but the chunk it was sampling: its checkpoint goes to a
new worker, once. A worker whose parent dies ends at once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.checkpoints import Checkpoint
from v0_bench.rollouts.events import Done, Event, Failed, Fatal
from v0_bench.rollouts.settings import ENGINES, Output, Settings

ATTEMPTS = 2  # at a checkpoint whose worker dies
_SPAWN = get_context("spawn")


@dataclass(eq=False)
class _Place:
    """One of the `jobs` places for a worker, with the worker that has it now."""

    number: int
    process: BaseProcess | None = None
    connection: Connection | None = None
    checkpoint: Checkpoint | None = None


class LocalWorkers:
    """Up to `jobs` processes that share out the machine's cores and GPUs; by default one a GPU."""

    def __init__(self, settings: Settings, output: Output, jobs: int | None) -> None:
        self._settings, self._output = settings, output
        self._gpus = _gpus()
        jobs = jobs or len(self._gpus) or 1
        told = os.environ.get("OMP_NUM_THREADS", "")
        self._threads = int(told) if told.isdigit() else max(1, _cores() // jobs)
        self._places = [_Place(number) for number in range(jobs)]

    def events(self, checkpoints: Sequence[Checkpoint]) -> Iterator[Event]:
        """What happens while the checkpoints are sampled; each ends with Done or Failed."""
        waiting, deaths = deque(checkpoints), Counter[Checkpoint]()
        try:
            while self._hand_out(waiting):
                busy = {
                    place.connection: place
                    for place in self._places
                    if place.connection and place.checkpoint
                }
                for connection in wait(list(busy)):
                    place = busy[connection]  # type: ignore[index]
                    event = self._receive(place)
                    if event is not None:
                        yield event
                        continue
                    checkpoint, code = place.checkpoint, self._end(place)
                    assert checkpoint is not None
                    deaths[checkpoint] += 1
                    if deaths[checkpoint] < ATTEMPTS:
                        waiting.appendleft(checkpoint)
                    else:
                        yield Failed(checkpoint, f"its worker died {ATTEMPTS} times ({code})")
        finally:
            for place in self._places:
                self._end(place)

    def _hand_out(self, waiting: deque[Checkpoint]) -> bool:
        """Gives every free place a checkpoint; False once there is nothing left to wait for."""
        for place in self._places:
            if waiting and place.checkpoint is None:
                if place.process is None:
                    self._start(place)
                assert place.connection is not None
                place.checkpoint = waiting.popleft()
                with contextlib.suppress(OSError):  # dead already: found out by the next read
                    place.connection.send(place.checkpoint)
        return any(place.checkpoint for place in self._places)

    def _receive(self, place: _Place) -> Event | None:
        """The next event of a worker; None where it died."""
        assert place.connection is not None
        try:
            event: Event = place.connection.recv()
        except (EOFError, OSError):
            return None
        if isinstance(event, Done | Failed):
            place.checkpoint = None
            if self._settings.backend in ENGINES:
                self._end(place)
        return event

    def _start(self, place: _Place) -> None:
        place.connection, theirs = _SPAWN.Pipe()
        gpu = self._gpus[place.number % len(self._gpus)] if self._gpus else None
        place.process = _SPAWN.Process(
            target=serve, args=(theirs, self._settings, self._output, self._threads, gpu)
        )
        place.process.start()
        theirs.close()

    def _end(self, place: _Place) -> str:
        """Ends a worker, if one is there, and says how it ended."""
        if place.process is None or place.connection is None:
            return ""
        place.connection.close()
        place.process.join(5 if place.checkpoint is None else 0.5)
        if place.process.is_alive():
            place.process.kill()
            place.process.join()
        code = place.process.exitcode or 0
        place.process = place.connection = place.checkpoint = None
        if code == -signal.SIGKILL:
            return "killed; short of memory?"
        return f"exit status {code}; see {self._output.log}"


def serve(
    connection: Connection, settings: Settings, output: Output, threads: int, gpu: str | None
) -> None:
    """The main function of a worker process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    _redirect(output)
    try:
        from v0_bench.rollouts.worker import Worker  # heavy: after the variables are set

        worker = Worker(settings, output, threads, connection.send)
        while True:
            connection.send(worker.run(connection.recv()))
    except V0BenchError as error:
        connection.send(Fatal(str(error)))
    except (EOFError, ConnectionError):
        pass  # the run is over


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _redirect(output: Output) -> None:
    """Send what libraries print to the log: the run's own progress bar has the terminal."""
    log = os.open(output.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _gpus() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [device for device in named.split(",") if device not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    gpus = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    return [str(number) for number in range(len(gpus))]
