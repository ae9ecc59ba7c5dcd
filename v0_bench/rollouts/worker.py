"""One long-lived worker: libraries, tasks and data are loaded once, then model after model."""

from __future__ import annotations

import contextlib
import gc
import logging
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from lm_eval import evaluate
from lm_eval.api.model import LM
from lm_eval.api.task import Task

from v0_bench.errors import V0BenchError
from v0_bench.rollouts import samples
from v0_bench.rollouts.checkpoints import Checkpoint, fingerprint, params_b
from v0_bench.rollouts.events import Done, Event, Failed, Note, Progress, Ready
from v0_bench.rollouts.journaled import JournaledLM, ObservedJournal
from v0_bench.rollouts.lengths import prompt_tokens
from v0_bench.rollouts.models import check_backend, load_model, tells_tokens
from v0_bench.rollouts.settings import Output, Settings, unit_key
from v0_bench.rollouts.tasks import documents, load_tasks

Tell = Callable[[Event], None]


class Worker:
    """Samples checkpoints, one at a time, and tells what happens.

    Making one raises V0BenchError where the settings are wrong for every checkpoint.
    """

    def __init__(self, settings: Settings, output: Output, threads: int, tell: Tell) -> None:
        torch.set_num_threads(threads)
        _forward_notes(tell)
        self._settings, self._output, self._tell = settings, output, tell
        check_backend(settings.backend)
        self._tasks = load_tasks(settings)
        self._docs = {name: documents(task, settings.limit) for name, task in self._tasks.items()}
        tell(Ready(sum(map(len, self._docs.values()))))

    def run(self, checkpoint: Checkpoint) -> Done | Failed:
        """Every task on one checkpoint; what is finished already is not done again."""
        start = time.monotonic()
        try:
            scores = self._run(checkpoint)
        except V0BenchError as error:
            return Failed(checkpoint, str(error))
        except Exception as error:  # whatever a broken model makes a library raise
            reason = f"{type(error).__name__}: {str(error).strip() or 'no message'}"
            return Failed(checkpoint, reason.splitlines()[0], traceback.format_exc())
        finally:
            gc.collect()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return Done(checkpoint, scores, time.monotonic() - start)

    def _run(self, checkpoint: Checkpoint) -> dict[str, dict[str, float]]:
        model_key = self._settings.model_key(fingerprint(checkpoint.path))
        scores: dict[str, dict[str, float]] = {}
        waiting: dict[str, str] = {}

        def report(queries: int, reused: int, tokens: int) -> None:
            self._tell(Progress(checkpoint, queries, reused, tokens))

        for name, task in self._tasks.items():
            config = task.dump_config()
            key = unit_key(model_key, self._settings, config, self._docs[name])
            results = samples.finished(self._output.results(checkpoint.name, name), key)
            if results is None:
                waiting[name] = key
            else:
                scores[name] = samples.scores(results, name)
                size = len(self._docs[name])
                report(size, size, 0)
        if waiting:
            with ObservedJournal(self._output.journal(checkpoint.name), report) as journal:
                model = load_model(checkpoint, self._settings, journal, model_key)
                for name, key in waiting.items():
                    scores[name] = self._evaluate(checkpoint, model, name, key)
        return {name: scores[name] for name in self._tasks}

    def _evaluate(self, checkpoint: Checkpoint, model: LM, name: str, key: str) -> dict[str, float]:
        task, start = self._tasks[name], time.time()
        results: dict[str, Any] = dict(
            evaluate(
                model,
                {"tasks": {name: task}, "groups": {}, "group_map": {}},
                limit=self._settings.limit,
                apply_chat_template=self._settings.chat_template,
            )
        )
        backend = model.inner if isinstance(model, JournaledLM) else model
        for sample in results["samples"][name]:
            sample["tokens_in"] = prompt_tokens(backend, sample["arguments"][0][0])
        results |= self._provenance(checkpoint, task, key, start)
        samples.write_results(self._output.results(checkpoint.name, name), name, results)
        return samples.scores(results, name)

    def _provenance(
        self, checkpoint: Checkpoint, task: Task, key: str, start: float
    ) -> dict[str, Any]:
        """What lm-eval notes of a run, and what the pool needs to know of the checkpoint."""
        settings = self._settings
        return {
            "config": {
                "model": settings.backend,
                "model_args": {"pretrained": checkpoint.path} | settings.model_args,
                "batch_size": settings.rollouts_a_batch,
                "limit": settings.limit,
                "gen_kwargs": task.config.generation_kwargs,
                "torch_seed": settings.seed,
            },
            "date": start,
            "model_name": checkpoint.path,
            "total_evaluation_time_seconds": str(time.time() - start),
            "v0_bench": {
                "key": key,
                "policy": checkpoint.policy,
                "step": checkpoint.step,
                "params_b": params_b(checkpoint.path),
                "tokens": "measured" if tells_tokens(settings.backend) else "estimated",
            },
        }


class _Notes(logging.Handler):
    """Hands the tasks' own warnings on; everything else stays in the worker's log."""

    def __init__(self, tell: Tell) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(Exception):
            self._tell(Note(record.getMessage()))


def _forward_notes(tell: Tell) -> None:
    logging.getLogger("lm_eval.v0_bench").addHandler(_Notes(tell))
