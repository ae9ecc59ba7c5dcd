"""`GroundTruthTask`: an lm-eval task that samples each query k times and keeps every rollout.

It adds four things to lm-eval's own YAML task: where its problems come from, exactly `repeats`
responses a query whatever the backend adds, refusal of options that would make rollouts wrong
without a word, and the verdicts of this package's checker.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
from lm_eval.api.task import ConfigurableTask

from v0_bench.answers import MATH_VERIFY_VERSION, check_many
from v0_bench.errors import V0BenchError
from v0_bench.rollouts.rollout import finish_reasons
from v0_bench.tasks.choices import with_options
from v0_bench.tasks.problems import (
    Cleaned,
    HubSource,
    Problem,
    clean,
    micro_problems,
    read_file,
    read_hub,
)
from v0_bench.tasks.summary import summarise

# think_end_token that no response holds: for backends that insist on one
KEEP_THOUGHT = "<keep-thought>"

_log = logging.getLogger("lm_eval.v0_bench")  # below lm-eval's logger, so that it is shown


class GroundTruthTask(ConfigurableTask):
    """A task of the YAML files in this folder.

    Beyond lm-eval's own keys the YAML has `answer_kind` (math, integer or choice) and `columns`
    (see `HubSource`); without `columns` the problems are those of the micro task, which this
    package makes itself. `--metadata TASK=FILE` replaces either by a local file.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        settings = {name: value for name, value in config.items() if name != "class"}
        self._kind: str = settings.pop("answer_kind")
        self._columns: dict[str, str | list[str]] | None = settings.pop("columns", None)
        _check_model_args(settings["metadata"])
        super().__init__(config=settings)

    def download(self, dataset_kwargs: dict[str, Any] | None = None) -> None:
        """Load the problems, and record in the task's metadata what was left out."""
        task = self.config.task
        file = self.config.metadata.get(task)
        if file is not None:
            problems = read_file(Path(str(file)), self._kind)
        elif self._columns is None:
            problems = micro_problems()
        else:
            source = HubSource(
                self.config.dataset_path,
                self.config.dataset_name,
                self.config.test_split,
                self._columns,
            )
            problems = read_hub(source, self._kind, task)
        cleaned = clean(problems)
        if not cleaned.problems:
            raise V0BenchError(f"{task}: no problem is left of {len(problems)} rows")
        self._report(cleaned)
        rows = [_document(problem, self._kind) for problem in cleaned.problems]
        self.dataset = {self.config.test_split: datasets.Dataset.from_list(rows)}

    def _report(self, cleaned: Cleaned) -> None:
        self.config.metadata |= {
            "math_verify": MATH_VERIFY_VERSION,
            "problems": len(cleaned.problems),
            "duplicates_dropped": cleaned.duplicates,
            "quarantined": cleaned.quarantined,
        }
        _log.info(
            "%s: %d problems; left out %d exact duplicates, and %d texts with conflicting answers "
            "(%d rows)",
            self.config.task,
            len(cleaned.problems),
            cleaned.duplicates,
            len(cleaned.quarantined),
            sum(len(ids) for ids in cleaned.quarantined),
        )
        if self._kind == "choice":
            _log.warning(
                "%s: do not publish the samples in plain text: the authors of the questions ask "
                "that they stay out of training data",
                self.config.task,
            )

    def build_all_requests(self, **options: Any) -> None:  # lm-eval's options, handed on
        """Check the options of the run, then build the prompts."""
        _check_sampling(self.config.generation_kwargs)
        if options.get("cache_requests"):
            raise V0BenchError(
                "--cache_requests would reuse prompts and sampling options of earlier runs: "
                "leave it out"
            )
        if not options.get("apply_chat_template"):
            _log.warning("%s: no chat template; chat models need --apply_chat_template", self)
        try:
            super().build_all_requests(**options)
        except ValueError as error:
            if "chat_template" not in str(error):
                raise
            raise V0BenchError(
                "the model's tokenizer has no chat template: leave out --apply_chat_template, or "
                "save a template with the tokenizer"
            ) from error

    def apply_filters(self) -> None:
        """Drop what a run on several processes adds to the last query to even out its batches."""
        for instance in self._instances:
            del instance.resps[self.config.repeats :]
        super().apply_filters()

    def __str__(self) -> str:
        return str(self.config.task)


def process_results(doc: Mapping[str, str], results: list[list[str]]) -> dict[str, object]:
    """The metrics of one query; `results` holds the list of its rollouts."""
    responses = list(results[0])
    verdicts = check_many(
        responses, [doc["answer"]] * len(responses), doc["kind"], finish_reasons(responses)
    )
    return summarise(responses, verdicts)


def _document(problem: Problem, kind: str) -> dict[str, str]:
    text, answer = problem.text, problem.answer
    if kind == "choice":
        text, answer = with_options(problem.query_id, text, answer, problem.wrong_answers)
    document = {"query_id": problem.query_id, "text": text, "answer": answer, "kind": kind}
    return document | ({"dataset": problem.dataset} if problem.dataset else {})


def _check_model_args(metadata: Mapping[str, Any]) -> None:
    """lm-eval hands the model's arguments to tasks as metadata."""
    if metadata.get("think_end_token", KEEP_THOUGHT) != KEEP_THOUGHT:
        raise V0BenchError(
            "think_end_token cuts the thought off before the checker can see whether it was "
            "finished: leave it out, or write think_end_token="
            f"{KEEP_THOUGHT} where enable_thinking=True asks for one"
        )
    if int(metadata.get("data_parallel_size") or 1) > 1:
        _log.warning(
            "data_parallel_size > 1: replicas with one seed sample the same rollouts twice; "
            "run one process a GPU, each with its own seed, and look at distinct_rate"
        )


def _check_sampling(generation: Mapping[str, Any]) -> None:
    """Refuse what makes k rollouts k copies of one."""
    if generation.get("seed") is not None:
        raise V0BenchError(
            "a seed in --gen_kwargs gives every rollout of a query the same seed: leave it out, "
            "and set --seed or the model's seed instead"
        )
    if not generation.get("do_sample") or float(generation.get("temperature", 1.0)) <= 0:
        raise V0BenchError(
            "without sampling (do_sample=false or temperature=0) all rollouts of a query are "
            "copies of one: these tasks measure a success rate, which needs a temperature above 0"
        )
