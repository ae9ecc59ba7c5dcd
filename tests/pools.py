"""Small invented pools that several test modules share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from v0_bench import Pool

TOPICS = ("apples", "bridges", "clocks", "deserts", "engines", "forests", "glaciers", "harbours")


def tables(n_queries: int = 8, policies: tuple[str, ...] = ("red", "blue")) -> dict[str, Any]:
    """Valid tables of a pool: every policy has tried every query once."""
    ids = [f"q{number}" for number in range(n_queries)]
    queries = pd.DataFrame(
        {
            "query_id": ids,
            "dataset": ["sums" if number % 2 else "words" for number in range(n_queries)],
            "text": [f"How many {TOPICS[n % 8]} are in box {n}?" for n in range(n_queries)],
        }
    )
    outcomes = pd.DataFrame(
        [
            {"query_id": query, "policy": policy, "mean_reward": (i + j) % 3 / 2, "n_rollouts": 2}
            for i, query in enumerate(ids)
            for j, policy in enumerate(policies)
        ]
    )
    return {
        "queries": queries,
        "policies": pd.DataFrame({"policy": list(policies)}),
        "outcomes": outcomes,
    }


def small_pool(name: str = "small", n_queries: int = 8) -> Pool:
    """A valid pool of two policies."""
    return Pool(name, **tables(n_queries))


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Writes rows as JSONL and returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_long(folder: Path, n_queries: int = 8) -> Path:
    """Writes the small pool in the layout `long` and returns the folder."""
    made = tables(n_queries)
    for name in ("queries", "outcomes"):
        write_jsonl(folder / f"{name}.jsonl", made[name].to_dict("records"))
    return folder
