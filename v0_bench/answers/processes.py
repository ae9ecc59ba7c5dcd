"""A few persistent worker processes that compare answers and can be killed at any moment.

Plain subprocesses with pipes: they work from threads, from daemonic multiprocessing children and
after a fork (the child forgets its parent's workers and starts its own when it needs them).
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from multiprocessing import util
from pathlib import Path

from v0_bench.errors import V0BenchError

MATH_VERIFY_VERSION = "0.9.0"
COMPARE_SECONDS = 3.0  # after which the kernel kills the worker
WORKERS = max(1, min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2))
_ROOT = str(Path(__file__).resolve().parents[2])
_START_SECONDS = 60.0
_GRACE_SECONDS = 0.7  # beyond the worker's own alarm


class WorkerLost(Exception):
    """The worker died or was killed during a comparison; `timed_out` says which."""

    def __init__(self, timed_out: bool) -> None:
        super().__init__("timed out" if timed_out else "worker died")
        self.timed_out = timed_out


class Worker:
    """One child process; used by one thread at a time."""

    def __init__(self) -> None:
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([_ROOT, *filter(None, sys.path)]),
            "PYTHONHASHSEED": "0",  # the same verdicts in every run
            "OMP_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "v0_bench.answers.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,  # a fork must not inherit half-written requests
            env=environment,
        )
        self.ready = False
        self._received = b""

    def compare(self, gold: str, given: str) -> dict[str, object]:
        """The worker's reply; raises WorkerLost, after which this worker is gone."""
        self._wait_until_ready()
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps([gold, given]).encode("ascii") + b"\n")
            self.process.stdin.flush()
            return self._reply(COMPARE_SECONDS + _GRACE_SECONDS)
        except (OSError, ValueError) as error:
            self.stop()
            raise WorkerLost(timed_out=False) from error

    def stop(self) -> None:
        """Kill the process, reap it and close the pipes."""
        self.process.kill()
        self.process.wait()
        self.forget()

    def forget(self) -> None:
        """Close this process's ends of the pipes."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _wait_until_ready(self) -> None:
        if self.ready:
            return
        try:
            found = self._reply(_START_SECONDS).get("version")
        except WorkerLost as error:
            raise V0BenchError(
                "the answer checker's worker process does not start; check with "
                f"`{sys.executable} -c 'import math_verify'` and, if that fails, "
                f"`pip install math-verify=={MATH_VERIFY_VERSION}`"
            ) from error
        if found != MATH_VERIFY_VERSION:
            self.stop()
            raise V0BenchError(
                f"math-verify {found} is installed, but verdicts are defined with "
                f"{MATH_VERIFY_VERSION}: pip install math-verify=={MATH_VERIFY_VERSION}"
            )
        self.ready = True

    def _reply(self, seconds: float) -> dict[str, object]:
        """One line of JSON within `seconds`, else the worker is killed."""
        assert self.process.stdout is not None
        descriptor, end = self.process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._received:
            left = end - time.monotonic()
            if left <= 0 or not _readable(descriptor, left):
                self.stop()
                raise WorkerLost(timed_out=True)
            chunk = os.read(descriptor, 65536)
            if not chunk:
                self.stop()
                raise WorkerLost(timed_out=self.process.returncode == -14)  # its own alarm
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        reply: dict[str, object] = json.loads(line)
        return reply


class WorkerPool:
    """Up to `WORKERS` workers, each started when first needed and replaced when lost."""

    def __init__(self) -> None:
        self._places = threading.BoundedSemaphore(WORKERS)
        self._lock = threading.Lock()
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()

    def compare(self, gold: str, given: str) -> dict[str, object]:
        """The reply of some worker. A worker found dead (not timed out) is retried once."""
        with self._places:
            try:
                return self._once(gold, given)
            except WorkerLost as lost:
                if lost.timed_out:
                    raise
                return self._once(gold, given)

    def close(self) -> None:
        """Kill and reap every worker."""
        with self._lock:
            workers, self._all, self._idle = self._all, set(), []
        for worker in workers:
            worker.stop()

    def forget(self) -> None:
        """Let go of workers that belong to the parent of this forked process."""
        for worker in self._all:
            worker.forget()
            worker.process.returncode = 0  # not a child of this process: nothing to reap

    def _once(self, gold: str, given: str) -> dict[str, object]:
        worker = self._take()
        try:
            reply = worker.compare(gold, given)
        except BaseException:  # also an interrupt: its reply would be read as the next one's
            worker.stop()
            with self._lock:
                self._all.discard(worker)
            self._give(self._start())
            raise
        self._give(worker)
        return reply

    def _take(self) -> Worker:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._start()

    def _start(self) -> Worker:
        worker = Worker()
        with self._lock:
            self._all.add(worker)
        return worker

    def _give(self, worker: Worker) -> None:
        with self._lock:
            self._idle.append(worker)


_pool: WorkerPool | None = None
_pool_lock = threading.Lock()


def compare(gold: str, given: str) -> dict[str, object]:
    """Compare two canonical answers in this process's pool of workers."""
    return _the_pool().compare(gold, given)


def _the_pool() -> WorkerPool:
    global _pool
    with _pool_lock:
        if _pool is None:
            _pool = WorkerPool()
            # runs at the end of the main process and of multiprocessing children alike
            util.Finalize(None, _pool.close, exitpriority=10)
        return _pool


def _after_fork_in_child() -> None:
    global _pool, _pool_lock
    if _pool is not None:
        _pool.forget()
    _pool, _pool_lock = None, threading.Lock()


def _readable(descriptor: int, seconds: float) -> bool:
    poller = select.poll()
    poller.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(poller.poll(seconds * 1000))


os.register_at_fork(after_in_child=_after_fork_in_child)
