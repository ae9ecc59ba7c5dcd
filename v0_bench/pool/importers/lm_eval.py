"""Layout `lm-eval`: the samples that lm-evaluation-harness logs (`--log_samples`).

Each line of a samples file is a document with its responses and one value per metric. The metric
gives the success rate, the responses the number of rollouts, the task the data set. A document
that has a `query_id` keeps it, and names its data set in `dataset` where it has that too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name
from v0_bench.pool.importers.lm_eval_files import Source, find_sources
from v0_bench.pool.importers.reading import jsonl_rows
from v0_bench.pool.importers.tables import Options, Tables, counted, policies_of
from v0_bench.pool.schema import COLUMNS

TEXT_KEYS = ("question", "problem", "prompt", "query", "text", "input", "instruction")

_AVERAGE = re.compile(r"avg(@|_at_)(k|\d+)")


def read_lm_eval(path: Path, options: Options) -> Tables:
    """The tables of a samples file, or of all samples files below a folder.

    `options.metric` names a metric, or "metric,filter" as lm-eval prints it; by default avg@k,
    else exact_match, else acc, and the first filter in the file.
    """
    sources, notes = find_sources(path, options)
    queries: dict[str, dict[str, Any]] = {}
    outcomes: list[dict[str, Any]] = []
    for source in sources:
        notes += _read_samples(source, options.metric, queries, outcomes)
    if not outcomes:
        raise V0BenchError(f"the pool is empty: {path} holds no sample")
    tables = [pd.DataFrame(list(rows)) for rows in (queries.values(), outcomes)]
    for table in tables:
        table.index = pd.Index(table.pop("place"))
    places = dict.fromkeys(COLUMNS, f"{path}, file and line")
    return Tables(tables[0], policies_of(tables[1]), tables[1], places, notes)


def _read_samples(
    source: Source,
    metric: str | None,
    queries: dict[str, dict[str, Any]],
    outcomes: list[dict[str, Any]],
) -> list[str]:
    """Adds the queries and outcomes of one file; returns notes on what was left out."""
    name, _, wanted_filter = (metric or "").partition(",")
    seen: set[str] = set()
    other_filters: dict[str, int] = {}
    for line, sample in jsonl_rows(source.file):
        place = f"{source.file}, line {line}"
        name = name or _default_metric(sample, place)
        sample_filter = str(sample.get("filter", ""))
        wanted_filter = wanted_filter or sample_filter
        if sample_filter != wanted_filter:
            other_filters[sample_filter] = other_filters.get(sample_filter, 0) + 1
            continue
        query_id = _query_id(source.task, sample, seen, place)
        seen.add(query_id)
        row = {"query_id": query_id, "place": f"{source.file.name}:{line}"}
        outcomes.append(row | _outcome(source, sample, name, place))
        queries.setdefault(query_id, row | _query(source.task, sample, place))
    if wanted_filter and not seen:
        raise V0BenchError(f"{source.file}: {unknown_name('filter', wanted_filter, other_filters)}")
    return [
        f"left out {counted(count, 'row')} of {source.file.name} with the filter {other!r}; "
        f"--metric {name},{other} takes those"
        for other, count in other_filters.items()
    ]


def _default_metric(sample: Mapping[str, Any], place: str) -> str:
    for pattern in (_AVERAGE, re.compile("exact_match"), re.compile("acc")):
        for key in sample:
            if pattern.fullmatch(key):
                return key
    raise V0BenchError(
        f"{place}: neither avg@k nor exact_match nor acc is there; pass --metric with one of the "
        f"file's metrics: {', '.join(_metrics(sample)) or 'it has none'}"
    )


def _metrics(sample: Mapping[str, Any]) -> list[str]:
    named = sample.get("metrics")
    return [str(name) for name in named] if isinstance(named, list) else []


def _query_id(task: str, sample: Mapping[str, Any], seen: set[str], place: str) -> str:
    """What the document is called, the same in every run; copies also bear their number.

    Task and the document's own id, which stands alone where the document names its data set; else
    task and hash of the document.
    """
    digest, number, own = sample.get("doc_hash"), sample.get("doc_id"), _own(sample, "query_id")
    if own:
        query_id = own if _own(sample, "dataset") else f"{task}/{own}"
    elif isinstance(digest, str) and digest:
        query_id = f"{task}/{digest[:16]}"
    elif number is not None:
        return f"{task}/{number}"
    else:
        raise V0BenchError(f"{place}: neither doc_hash nor doc_id tells which document this is")
    return f"{query_id}-{number}" if query_id in seen else query_id


def _own(sample: Mapping[str, Any], field: str) -> str | None:
    """A text that the document itself holds, of those that this package's tasks write."""
    doc = sample.get("doc")
    value = doc.get(field) if isinstance(doc, dict) and "query_id" in doc else None
    return value if isinstance(value, str) and value else None


def _outcome(source: Source, sample: Mapping[str, Any], metric: str, place: str) -> dict[str, Any]:
    if metric not in sample:
        raise V0BenchError(f"{place}: {unknown_name('metric', metric, _metrics(sample))}")
    value = sample[metric]
    return {
        "policy": source.policy,
        "step": source.step,
        "mean_reward": float(value) if isinstance(value, bool) else value,
        "n_rollouts": _rollouts(sample, metric, place),
        "tokens_out": sample.get("mean_tokens"),
    } | ({"tokens_in": sample["tokens_in"]} if sample.get("tokens_in") is not None else {})


def _rollouts(sample: Mapping[str, Any], metric: str, place: str) -> int:
    """How many responses the metric saw.

    A filter such as lm-eval's default `take_first` hands one of several responses to the metric;
    only an average is known to be over all.
    """
    responses = sample.get("resps")
    if not isinstance(responses, list) or not responses or not isinstance(responses[0], list):
        raise V0BenchError(f"{place}: resps is not a list of lists of responses")
    filtered = sample.get("filtered_resps")
    one_kept = isinstance(filtered, list) and len(filtered) == 1 and isinstance(filtered[0], str)
    return 1 if one_kept and not _AVERAGE.fullmatch(metric) else len(responses[0])


def _query(task: str, sample: Mapping[str, Any], place: str) -> dict[str, Any]:
    target = sample.get("target")
    answer = target if isinstance(target, str | None) else json.dumps(target, ensure_ascii=False)
    dataset = _own(sample, "dataset") or task
    return {"dataset": dataset, "text": _text(sample, place), "answer": answer}


def _text(sample: Mapping[str, Any], place: str) -> str:
    """The document's question, else the prompt as the model saw it."""
    doc = sample.get("doc")
    fields = (
        {str(key).lower(): value for key, value in doc.items()} if isinstance(doc, dict) else {}
    )
    for text in (*(fields.get(key) for key in TEXT_KEYS), _rendered_prompt(sample)):
        if isinstance(text, str) and text.strip():
            return text
    raise V0BenchError(
        f"{place}: no text found; the document has none of {', '.join(TEXT_KEYS)}, "
        "and the sample no prompt"
    )


def _rendered_prompt(sample: Mapping[str, Any]) -> object:
    """The first argument of the first request: a mapping in today's lm-eval, a list before."""
    arguments = sample.get("arguments")
    if isinstance(arguments, dict):
        first = next(iter(arguments.values()), None)
        return first.get("arg_0") if isinstance(first, dict) else None
    if isinstance(arguments, list) and arguments and isinstance(arguments[0], list):
        return next(iter(arguments[0]), None)
    return None
