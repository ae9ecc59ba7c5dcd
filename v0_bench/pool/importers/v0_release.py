"""Layout `v0-release`: the sample that the authors of V0 published (the folder `data/`).

`prompt_dict.json` maps "dataset_id" to a text. `context.jsonl`, `train.jsonl` and `test.jsonl`
hold {id, dataset, model, step, score}, where score = 2 * avg@10 - 1 lies in [-1, 1] and the file
fixes the role. `validity.jsonl` repeats some test rows and adds rows that have no role.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers.reading import jsonl_rows, read_json
from v0_bench.pool.importers.tables import Options, Tables, policies_of

ROLES = ("context", "train", "test")
ROLLOUTS = 10


def read_v0_release(path: Path, options: Options) -> Tables:
    """The tables in the folder `path`."""
    texts = read_json(path / "prompt_dict.json")
    rows: list[dict[str, Any]] = []
    for role in ROLES:
        rows += _outcomes(path / f"{role}.jsonl", role, texts)
    seen = {(row["query_id"], row["policy"], row["step"]) for row in rows}
    if (path / "validity.jsonl").exists():
        rows += [
            row
            for row in _outcomes(path / "validity.jsonl", None, texts)
            if (row["query_id"], row["policy"], row["step"]) not in seen
        ]
    outcomes = pd.DataFrame(rows)
    if outcomes.empty:
        raise V0BenchError(f"the pool is empty: {path} holds no rows")
    queries = outcomes[["query_id", "dataset"]].drop_duplicates("query_id")
    queries = queries.assign(text=queries["query_id"].map(texts), answer=None)
    outcomes.index = pd.Index(outcomes.pop("place"))
    queries.index = pd.Index(queries["query_id"])
    places = {
        "queries": f"{path / 'prompt_dict.json'}, key",
        "policies": f"{path}, policy",
        "outcomes": f"{path}, file and line",
    }
    return Tables(queries, policies_of(outcomes), outcomes, places)


def _outcomes(file: Path, role: str | None, texts: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        _outcome(row, role, texts, f"{file}, line {line}") | {"place": f"{file.name}:{line}"}
        for line, row in jsonl_rows(file)
    ]


def _outcome(
    row: dict[str, Any], role: str | None, texts: dict[str, Any], place: str
) -> dict[str, Any]:
    policy, step = row.get("model"), row.get("step")
    if not isinstance(policy, str) or not isinstance(step, int):
        raise V0BenchError(f"{place}: model = {policy!r}, step = {step!r} is not a checkpoint")
    return {
        "query_id": _query_id(row, texts, place),
        "dataset": row["dataset"],
        "policy": policy,
        "step": step,
        "mean_reward": _success_rate(row.get("score"), place),
        "n_rollouts": ROLLOUTS,
        "role": role,
    }


def _query_id(row: dict[str, Any], texts: dict[str, Any], place: str) -> str:
    query_id = f"{row.get('dataset')}_{row.get('id')}"
    if not isinstance(row.get("dataset"), str) or query_id not in texts:
        raise V0BenchError(f"{place}: prompt_dict.json has no text for {query_id!r}")
    return query_id


def _success_rate(score: object, place: str) -> float:
    if isinstance(score, bool) or not isinstance(score, int | float) or not -1 <= score <= 1:
        raise V0BenchError(f"{place}: score = {str(score)[:80]!r} is not a number in [-1, 1]")
    successes = (score + 1) / 2 * ROLLOUTS
    if abs(successes - round(successes)) > 1e-3:
        raise V0BenchError(
            f"{place}: score = {score} does not stand for a whole number of {ROLLOUTS} rollouts"
        )
    return round(successes) / ROLLOUTS
