"""lm-eval's tasks by name, loaded once for all checkpoints of a worker."""

from __future__ import annotations

from typing import Any

from lm_eval.api.task import Task
from lm_eval.tasks import TaskManager

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name
from v0_bench.rollouts.settings import Settings
from v0_bench.tasks import FOLDER


def load_tasks(settings: Settings) -> dict[str, Task]:
    """The tasks that `settings` names, groups resolved, with its generation options set.

    Raises V0BenchError for an unknown name, a task that does not generate text, and data that
    cannot be had. lm-eval's own tasks, whose index takes 25 s, are looked at only if asked for.
    """
    ours = all(name.startswith("v0_") for name in settings.tasks)
    manager = TaskManager(
        include_path=str(FOLDER),
        include_defaults=not ours,
        metadata=settings.model_args | settings.metadata,
    )
    for name in settings.tasks:
        if name not in manager.all_tasks:
            raise V0BenchError(unknown_name("task", name, manager.all_tasks))
    try:
        tasks: dict[str, Task] = manager.load(list(settings.tasks))["tasks"]
    except V0BenchError:
        raise
    except Exception as error:  # each library that reads data has its own types
        raise V0BenchError(
            f"cannot load {', '.join(settings.tasks)}: {type(error).__name__}: {error}"
        ) from error
    for name, task in tasks.items():
        _prepare(name, task, settings)
    return tasks


def documents(task: Task, limit: int | None) -> list[dict[str, Any]]:
    """The documents of a task that a run with `limit` samples."""
    docs = task.eval_docs
    return [dict(docs[at]) for at in range(min(len(docs), limit or len(docs)))]


def _prepare(name: str, task: Task, settings: Settings) -> None:
    if task.OUTPUT_TYPE != "generate_until":
        raise V0BenchError(
            f"{name} has output_type {task.OUTPUT_TYPE}: rollouts need generate_until"
        )
    if settings.gen_kwargs:
        task.set_config("generation_kwargs", settings.gen_kwargs, update=True)
    task.set_fewshot_seed(seed=settings.seed)
