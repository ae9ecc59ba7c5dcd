"""Workers as actors of an existing Ray cluster: one a GPU, or some part of a CPU each.

Every node must see the checkpoints, the output folder and local problem files under the same paths.
"""

from __future__ import annotations

import os
import socket
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.checkpoints import Checkpoint
from v0_bench.rollouts.events import Event, Failed, Fatal
from v0_bench.rollouts.settings import ENGINES, Output, Settings

ATTEMPTS = 2  # at a checkpoint whose worker dies
POLL_SECONDS = 0.5


class RayWorkers:
    """As many actors as the cluster has GPUs, or CPUs at `cpus` each; one worker in each.

    Raises V0BenchError where Ray is not installed or no cluster answers at `address`.
    """

    def __init__(self, settings: Settings, output: Output, address: str, cpus: float) -> None:
        self._ray = _connected(address)
        self._settings, self._output = settings, output
        resources = self._ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        self._options = {"num_gpus": 1, "num_cpus": 0} if gpus else {"num_cpus": cpus}
        self._size = gpus or max(1, int(resources.get("CPU", 1) / cpus))
        self._threads = max(1, int(cpus))

    def events(self, checkpoints: Sequence[Checkpoint]) -> Iterator[Event]:
        """What happens while the checkpoints are sampled; each ends with Done or Failed."""
        from ray.util.queue import Queue

        queue = Queue(actor_options={"num_cpus": 0})
        waiting, deaths = deque(checkpoints), Counter[Checkpoint]()
        idle: list[Any] = []  # actors
        running: dict[Any, tuple[Any, Checkpoint]] = {}  # reference to a result -> its actor
        started = 0
        try:
            while waiting or running:
                while waiting and (idle or started < self._size):
                    if not idle:
                        idle.append(self._actor(queue))
                        started += 1
                    actor, checkpoint = idle.pop(), waiting.popleft()
                    running[actor.run.remote(checkpoint)] = actor, checkpoint
                finished, _ = self._ray.wait(list(running), timeout=POLL_SECONDS)
                yield from _drained(queue)
                for reference in finished:
                    actor, checkpoint = running.pop(reference)
                    event = self._result(reference, checkpoint)
                    if event is None:
                        started -= 1
                        deaths[checkpoint] += 1
                        if deaths[checkpoint] < ATTEMPTS:
                            waiting.appendleft(checkpoint)
                            continue
                        reason = f"its worker died {ATTEMPTS} times; see `ray logs`"
                        event = Failed(checkpoint, reason)
                    elif self._settings.backend in ENGINES:
                        self._ray.kill(actor)
                        started -= 1
                    else:
                        idle.append(actor)
                    yield event
        finally:
            for actor in (*idle, *(actor for actor, _ in running.values())):
                self._ray.kill(actor)
            queue.shutdown(force=True)

    def _actor(self, queue: Any) -> Any:
        remote = self._ray.remote(**self._options)(RayWorker)
        return remote.remote(self._settings, self._output, self._threads, queue)

    def _result(self, reference: Any, checkpoint: Checkpoint) -> Event | None:
        """Done, Failed or Fatal; None where the actor died."""
        try:
            event: Event = self._ray.get(reference)
        except self._ray.exceptions.RayActorError:
            return None
        except self._ray.exceptions.RayError as error:
            return Failed(checkpoint, str(error).strip().splitlines()[0], str(error))
        return event


class RayWorker:
    """The class of the actors: makes its worker at the first checkpoint."""

    def __init__(self, settings: Settings, output: Output, threads: int, queue: Any) -> None:
        os.environ["OMP_NUM_THREADS"] = str(threads)
        self._arguments = settings, output, threads, queue.put
        self._worker: Any = None

    def run(self, checkpoint: Checkpoint) -> Event:
        """Done or Failed; Fatal where the settings are wrong for every checkpoint."""
        try:
            if self._worker is None:
                from v0_bench.rollouts.worker import Worker

                self._worker = Worker(*self._arguments)
            event: Event = self._worker.run(checkpoint)
        except V0BenchError as error:
            return Fatal(str(error))
        return event


def _drained(queue: Any) -> Iterator[Event]:
    while count := queue.qsize():
        yield from queue.get_nowait_batch(count)


def _connected(address: str) -> Any:  # the module ray
    try:
        import ray
    except ImportError as error:
        raise V0BenchError("--ray needs Ray: pip install 'v0-bench[ray]'") from error
    try:
        _knock(address)
        ray.init(address, log_to_driver=False, configure_logging=False, ignore_reinit_error=True)
    except (OSError, ValueError, RuntimeError) as error:
        raise V0BenchError(
            f"no Ray cluster answers at {address!r} ({error}): start one with `ray start --head`, "
            "or use --jobs on this machine alone"
        ) from error
    return ray


def _knock(address: str) -> None:
    """OSError where nothing listens at host:port; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
