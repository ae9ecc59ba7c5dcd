"""Layout `mmlu-pro`: zip archives `model_outputs_MODEL_*shots.zip`, one JSON list each.

An item holds question, options, category, the right letter `answer` and the letter `pred` read off
the response. No letter counts as wrong. Items that are not objects (remarks of the program that
wrote the file) are left out and counted.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from pathlib import Path
from string import ascii_uppercase
from typing import Any

import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers.tables import Options, Tables, counted, policies_of

_NAME = re.compile(r"model_outputs_(.+)_\d+shots\.zip")


def read_mmlu_pro(path: Path, options: Options) -> Tables:
    """The tables of all archives in the folder `path`."""
    queries: dict[str, dict[str, Any]] = {}
    outcomes: list[dict[str, Any]] = []
    notes = []
    for archive in sorted(path.glob("*.zip")):
        name = _NAME.fullmatch(archive.name)
        policy = name[1] if name else archive.stem
        items = _items(archive)
        rows = [item for item in items if isinstance(item, dict)]
        if len(rows) < len(items):
            notes.append(f"{policy}: left out {counted(len(items) - len(rows), 'item')}, no object")
        for row in rows:
            query = _query(row, archive)
            queries.setdefault(query["query_id"], query)
            rate = float(row.get("pred") == row["answer"])
            outcomes.append({"query_id": query["query_id"], "policy": policy, "mean_reward": rate})
    table = pd.DataFrame(outcomes, columns=["query_id", "policy", "mean_reward"])
    table["n_rollouts"] = 1
    columns = ["query_id", "dataset", "text", "answer"]
    tables = pd.DataFrame(list(queries.values()), columns=columns)
    return Tables(tables, policies_of(table), table, notes=notes)


def _items(archive: Path) -> list[Any]:
    try:
        with zipfile.ZipFile(archive) as members:
            items = json.loads(members.read(members.namelist()[0]))
    except (OSError, zipfile.BadZipFile, zlib.error, ValueError, IndexError) as error:
        raise V0BenchError(f"{archive} is not a zip archive of one JSON file: {error}") from error
    if not isinstance(items, list):
        raise V0BenchError(f"{archive}: its JSON file should hold a list")
    return items


def _query(row: dict[str, Any], archive: Path) -> dict[str, Any]:
    """The query of an item; its text is the question, then one line per lettered option."""
    try:
        lettered = zip(ascii_uppercase, row["options"], strict=False)
        options = [f"({letter}) {option}" for letter, option in lettered]
        return {
            "query_id": f"mmlupro-{row['question_id']}",
            "dataset": f"mmlu-pro/{row['category']}",
            "text": "\n".join([row["question"], *options]),
            "answer": row["answer"],
        }
    except (KeyError, TypeError) as error:
        raise V0BenchError(f"{archive}: an item lacks {error}") from error
