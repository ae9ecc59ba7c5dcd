"""Layout `llmrouterbench`: the results of LLMRouterBench, `bench/DATASET/SPLIT/MODEL/*.json`.

Each file is one model on one data set: {model_name, dataset_name, split, demo, records}, a record
being {index, origin_query, prompt, ground_truth, score, completion_tokens, cost}. Names that a
file lacks are those of its folders.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers.reading import read_json
from v0_bench.pool.importers.tables import Options, Tables, counted, policies_of
from v0_bench.pool.schema import COLUMNS

QUERY = ["query_id", "dataset", "text", "answer"]

_DATE = re.compile(r"(\d{8}_\d{6})\.json")


def read_llmrouterbench(path: Path, options: Options) -> Tables:
    """The tables of one file, or of all result files below a folder.

    Of several files of one model, data set and split the newest counts (by the date in its name);
    demo runs are left out. A record without a score counts as wrong, as its authors count it.
    """
    runs, notes = _runs(path)
    rows = pd.DataFrame([row for run in runs for row in run])
    if rows.empty:
        raise V0BenchError(f"the pool is empty: {path} holds no result file with records")
    rows = rows.set_index(rows.pop("place"))
    unscored = rows["mean_reward"].isna()
    if unscored.any():
        rows["mean_reward"] = rows["mean_reward"].where(~unscored, 0.0)
        notes.append(f"{counted(int(unscored.sum()), 'record')} without a score counted as wrong")
    # A failed request may have logged no text where those of other models did.
    queries = rows.loc[rows["text"].notna(), QUERY].drop_duplicates("query_id")
    known = rows["query_id"].isin(queries["query_id"])
    if not known.all():
        notes.append(f"left out {counted(int((~known).sum()), 'record')} of queries without a text")
    outcomes = rows[known].drop(columns=["dataset", "text", "answer"])
    places = dict.fromkeys(COLUMNS, f"{path}, file and record")
    return Tables(queries, policies_of(outcomes), outcomes, places, notes)


def _runs(path: Path) -> tuple[list[list[dict[str, Any]]], list[str]]:
    """The records of the newest file of every (data set, split, model), as rows."""
    files = sorted(path.rglob("*.json"), key=_date) if path.is_dir() else [path]
    newest: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    demos = results = 0
    for file in files:
        content = read_json(file)
        if "records" not in content:
            continue
        if content.get("demo"):
            demos += 1
            continue
        results += 1
        key = _names(file, content)
        newest[key] = _rows(file, content["records"], *key)
    older = results - len(newest)
    notes = [
        f"left out {counted(count, 'file')} of {what}"
        for count, what in ((demos, "demo runs"), (older, "older runs"))
        if count
    ]
    return list(newest.values()), notes


def _date(file: Path) -> tuple[str, str]:
    match = _DATE.search(file.name)
    return (match[1] if match else ""), str(file)


def _names(file: Path, content: Mapping[str, Any]) -> tuple[str, str, str]:
    """Data set, split and model of a result file."""
    folders = ["", "", "", *file.parts[:-1]][-3:]
    names = [
        content.get(key) or folder
        for key, folder in zip(("dataset_name", "split", "model_name"), folders, strict=True)
    ]
    if not all(isinstance(name, str) and name for name in names):
        raise V0BenchError(f"{file}: dataset_name, split and model_name are not all known")
    return names[0], names[1], names[2]


def _rows(
    file: Path, records: object, dataset: str, split: str, model: str
) -> list[dict[str, Any]]:
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise V0BenchError(f"{file}: records is not a list of objects")
    costs_known = any(record.get("cost") for record in records)  # all 0: run at home, not free
    return [
        {
            "place": f"{file.name}:{number}",
            "query_id": f"{dataset}/{split}/{record.get('index')}",
            "dataset": dataset,
            "text": _as_text(record.get("origin_query")) or _as_text(record.get("prompt")),
            "answer": _as_text(record.get("ground_truth")),
            "policy": model,
            "mean_reward": record.get("score"),
            "n_rollouts": 1,
            "cost": record.get("cost") if costs_known else None,
            "cost_kind": "measured" if costs_known else None,
            "tokens_out": record.get("completion_tokens"),
        }
        for number, record in enumerate(records, 1)
    ]


def _as_text(value: object) -> str | None:
    """A string as it is, other JSON written out, and None for nothing."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
