"""Make this package's tasks and models known to lm-evaluation-harness in the running process.

lm-eval 0.4.13 reads no entry points: `install` adds the folder of tasks to every `TaskManager`
made from then on, and the models to lm-eval's registry. The start-up hook (v0_bench_hook.py) and
`v0-lm-eval` both call it.
"""

from __future__ import annotations

import functools
import inspect
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from v0_bench.errors import V0BenchError

MODELS = {  # imported when first asked for
    "v0-hf": "v0_bench.rollouts.hf:RolloutHFLM",
    "v0-vllm": "v0_bench.rollouts.vllm:RolloutVLLM",
}


def install(task_manager: type, only_ours: bool = False) -> None:
    """Let `task_manager`, lm-eval's class, find the tasks of this package; twice does no harm.

    Registers the models too.

    `only_ours` leaves out lm-eval's own 14,000 tasks, whose index takes 25 s on a small machine.
    Raises V0BenchError where the class is not as lm-eval 0.4 has it.
    """
    original: Any = task_manager.__init__  # type: ignore[misc]
    signature = inspect.signature(original)
    if not {"include_path", "include_defaults"} <= signature.parameters.keys():
        raise V0BenchError("this release of lm-eval finds tasks in another way; use 0.4.13")

    @functools.wraps(original)
    def with_our_tasks(*args: Any, **kwargs: Any) -> None:  # whatever lm-eval is called with
        call = signature.bind(*args, **kwargs)
        call.arguments["include_path"] = _with_our_folder(call.arguments.get("include_path"))
        if only_ours:
            call.arguments.setdefault("include_defaults", False)
        original(*call.args, **call.kwargs)

    task_manager.__init__ = with_our_tasks  # type: ignore[misc]
    register_models()
    _print_own_errors_plainly()


def register_models() -> None:
    """Let `--model` find the models of this package; twice does no harm."""
    import lm_eval.models  # noqa: F401  first: lm-eval fills its registry only while it is empty
    from lm_eval.api.registry import model_registry

    for name, target in MODELS.items():
        if name not in model_registry:
            model_registry.register(name, target=target)


def _with_our_folder(include_path: Any) -> list[Any]:
    """Our folder first, so that a task in the user's own folder replaces one of the same name."""
    from v0_bench.tasks import FOLDER

    given = include_path if isinstance(include_path, list | tuple) else [include_path]
    others = [path for path in given if path and Path(path).resolve() != FOLDER]
    return [FOLDER, *others]


def _print_own_errors_plainly() -> None:
    """An uncaught V0BenchError ends lm-eval with its message alone, any other as before."""
    previous = sys.excepthook
    if getattr(previous, "handles_v0_bench", False):
        return

    def print_plainly(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if isinstance(error, V0BenchError):
            print(f"error: {error}", file=sys.stderr)
        else:
            previous(kind, error, trace)

    print_plainly.handles_v0_bench = True  # type: ignore[attr-defined]
    sys.excepthook = print_plainly
