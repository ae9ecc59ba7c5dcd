"""Layout `routerdc`: JSON lists of {question, scores: {model: success rate}}, one per data set.

The file's name is the data set. Rates of `MATH_prealgebra` come from one answer each, all others
from ten rollouts. A question that stands twice in a file is kept once, with its first scores.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers.tables import Options, Tables, counted, policies_of

ROLLOUTS = 10
ONE_ROLLOUT = ("MATH_prealgebra",)


def read_routerdc(path: Path, options: Options) -> Tables:
    """The tables of all JSON files in the folder `path`."""
    queries: dict[str, tuple[str, str, str]] = {}
    outcomes: list[tuple[str, str, Any, int]] = []
    repeated = 0
    for file in sorted(path.glob("*.json")):
        rollouts = 1 if file.stem in ONE_ROLLOUT else ROLLOUTS
        for text, scores in _items(file):
            digest = hashlib.sha256(f"{file.stem}\n{text}".encode()).hexdigest()
            query_id = f"rdc-{digest[:12]}"
            if query_id in queries:
                repeated += 1
                continue
            queries[query_id] = (query_id, file.stem, text)
            outcomes += [(query_id, policy, rate, rollouts) for policy, rate in scores.items()]
    table = pd.DataFrame(outcomes, columns=["query_id", "policy", "mean_reward", "n_rollouts"])
    texts = pd.DataFrame(list(queries.values()), columns=["query_id", "dataset", "text"])
    notes = [f"left out {counted(repeated, 'repeated question')}"] if repeated else []
    return Tables(texts, policies_of(table), table, notes=notes)


def _items(file: Path) -> list[tuple[str, dict[str, Any]]]:
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        items = [(row["question"], row["scores"]) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise V0BenchError(f"{file} is not a list of {{question, scores}}: {error}") from error
    for number, (text, scores) in enumerate(items, 1):
        if not isinstance(text, str) or not isinstance(scores, dict):
            raise V0BenchError(f"{file}, item {number}: question or scores has the wrong type")
    return items
