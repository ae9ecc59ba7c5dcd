"""Ends vLLM's engine when the process that started it is gone.

After `kill -9` vLLM's engine process lives on, with the GPU's memory and, if it was forked, the
journal's lock: a restart would find neither free. vLLM calls `watch_parent`, an entry point of the
group `vllm.general_plugins`, in every process of its own; processes of other users of vLLM see
nothing of it.
"""

from __future__ import annotations

import os
import signal
import threading
import time

PARENT = "V0_BENCH_ENGINE_PARENT"  # environment variable: the process whose engines are watched


def end_engines_with_this_process() -> None:
    """Call before the engine is started."""
    os.environ[PARENT] = str(os.getpid())
    os.register_at_fork(after_in_child=watch_parent)  # a forked engine loads no plugins again


def watch_parent() -> None:
    """In a child of the marked process: end with it, within a second."""
    if os.environ.get(PARENT) == str(os.getppid()):
        threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
