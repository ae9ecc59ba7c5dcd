"""Which samples files of lm-evaluation-harness to read, and which checkpoint each is of.

An output folder holds, for every run, `results_DATE.json` and one `samples_TASK_DATE.jsonl` a
task. The results file names the model; its path tells policy and step. Files that `v0-bench
rollouts` wrote name policy and step outright, under `v0_bench`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers.reading import read_json
from v0_bench.pool.importers.tables import Options, counted

# The order in which lm-eval itself looks for the name of a model.
MODEL_KEYS = ("peft", "delta", "pretrained", "model", "path", "engine")

_SAMPLES = re.compile(
    r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d\d-\d\dT[\d.-]+?))?\.jsonl(?:\.gz)?"
)
_STEP = re.compile(r"(?:global_)?step[_-]?(\d+)|checkpoint-(\d+)")


@dataclass(frozen=True)
class Source:
    """One samples file: its task, the date of the run ("" if unknown), model and checkpoint."""

    file: Path
    task: str
    date: str
    model: str | None
    policy: str
    step: int | None


def find_sources(path: Path, options: Options) -> tuple[list[Source], list[str]]:
    """The samples files to read, and a note on older runs that newer ones replace.

    `path` is a samples file or a folder that is searched to any depth. Raises V0BenchError where
    there is none, or a file's model is not known.
    """
    if not path.is_dir():
        return [_source(path, options)], []
    files = sorted(file for file in path.rglob("samples_*") if _SAMPLES.fullmatch(file.name))
    if not files:
        raise V0BenchError(
            f"{path} holds no samples_*.jsonl; run lm_eval with --log_samples and --output_path"
        )
    newest: dict[tuple[str, int | None, str], Source] = {}
    for source in sorted((_source(file, options) for file in files), key=lambda item: item.date):
        older = newest.get((source.policy, source.step, source.task))
        if older is not None and older.model != source.model:
            raise V0BenchError(
                f"{older.model} and {source.model} would both be policy {source.policy!r}, step "
                f"{source.step}, on {source.task}: import them apart, each with --policy and --step"
            )
        newest[source.policy, source.step, source.task] = source
    older_runs = len(files) - len(newest)
    notes = [f"left out {counted(older_runs, 'samples file')} of older runs"] if older_runs else []
    return list(newest.values()), notes


def checkpoint_of(model: str) -> tuple[str, int | None]:
    """Policy and step in a model's path: ".../NAME/step_N" gives (NAME, N).

    A path without a step is named by its last folder; a hub name "organisation/model" stays whole.
    """
    parts = [part for part in model.split("/") if part not in ("", ".", "..", "~")]
    if not parts:
        return model, None
    step = _STEP.fullmatch(parts[-1])
    if step and len(parts) > 1:
        return parts[-2], int(step[1] or step[2])
    is_hub_name = len(parts) == 2 and model == "/".join(parts)
    return (model if is_hub_name else parts[-1]), None


def _source(file: Path, options: Options) -> Source:
    name = _SAMPLES.fullmatch(file.name)
    task = name["task"] if name else re.sub(r"\.jsonl(\.gz)?$", "", file.name)
    date = (name and name["date"]) or ""
    results = _results(file, date)
    model = _model(results)
    if model is None and options.policy is None:
        raise V0BenchError(
            f"{file}: no results_*.json beside it names the model; pass --policy NAME "
            "(and --step N if it is a checkpoint of a training run)"
        )
    policy, step = checkpoint_of(model) if model is not None else ("", None)
    named = results.get("v0_bench")
    if isinstance(named, dict):
        policy, step = named.get("policy", policy), named.get("step", step)
    if options.policy is not None:
        policy = options.policy
    if options.step is not None:
        step = options.step
    return Source(file, task, date, model, policy, step)


def _results(file: Path, date: str) -> dict[str, Any]:
    """The results file of the same run that names a model; empty if there is none."""
    for candidate in sorted(file.parent.glob(f"*_{date}.json" if date else "results*.json")):
        results = read_json(candidate)
        if _model(results) is not None:
            return results
    return {}


def _model(results: Mapping[str, Any]) -> str | None:
    """The model's path in a results file, or None if it does not tell."""
    config = results.get("config")
    arguments = config.get("model_args") if isinstance(config, dict) else None
    if isinstance(arguments, str):
        arguments = dict(part.split("=", 1) for part in arguments.split(",") if "=" in part)
    named = arguments if isinstance(arguments, dict) else {}
    for value in (*(named.get(key) for key in MODEL_KEYS), results.get("model_name")):
        if value:
            return str(value)
    return None
