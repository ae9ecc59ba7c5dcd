"""Layout `embedllm`: the correctness tables of EmbedLLM (`train.csv`, `val.csv`, `test.csv`).

One row a prompt and model: prompt_id, model_name, label (0 or 1), prompt, category. The files are
read in pieces, so that a text, repeated for every model, is held once.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers.reading import csv_chunks
from v0_bench.pool.importers.tables import Options, Tables, counted, policies_of
from v0_bench.pool.schema import COLUMNS

SPLITS = ("train.csv", "val.csv", "test.csv")
TEXTS = ("prompt_id", "model_name", "prompt", "category")
NEEDED = {"prompt_id", "model_name", "label", "prompt"}


def read_embedllm(path: Path, options: Options) -> Tables:
    """The tables of one CSV file, or of the splits in a folder taken together."""
    files = [path / name for name in SPLITS if (path / name).exists()] if path.is_dir() else [path]
    if not files:
        raise V0BenchError(f"{path} holds none of {', '.join(SPLITS)}")
    queries: list[pd.DataFrame] = []
    outcomes: list[pd.DataFrame] = []
    known: set[str] = set()
    for file in files:
        for chunk in csv_chunks(file, (NEEDED | {"category"}).__contains__, TEXTS):
            _add_chunk(_numbered(chunk, file), queries, outcomes, known)
    rows = pd.concat(outcomes) if outcomes else pd.DataFrame()
    if rows.empty:
        raise V0BenchError(f"the pool is empty: {path} has no rows")
    kept = rows.drop_duplicates()
    copies = len(rows) - len(kept)
    notes = [f"left out {counted(copies, 'row')} equal to an earlier one"] if copies else []
    places = dict.fromkeys(COLUMNS, f"{path}, file and row")
    return Tables(pd.concat(queries), policies_of(kept), kept, places, notes)


def _numbered(chunk: pd.DataFrame, file: Path) -> pd.DataFrame:
    missing = NEEDED - set(chunk.columns)
    if missing:
        raise V0BenchError(f"{file} lacks the column {', '.join(sorted(missing))}")
    return chunk.set_index(f"{file.name}:" + chunk.index.astype("str"))


def _add_chunk(
    chunk: pd.DataFrame,
    queries: list[pd.DataFrame],
    outcomes: list[pd.DataFrame],
    known: set[str],
) -> None:
    query_id = "embedllm/" + chunk["prompt_id"]
    outcomes.append(
        pd.DataFrame(
            {
                "query_id": query_id,
                "policy": chunk["model_name"],
                "mean_reward": chunk["label"],
                "n_rollouts": 1,
            }
        )
    )
    dataset = "embedllm/" + chunk["category"] if "category" in chunk else "embedllm"
    texts = pd.DataFrame({"query_id": query_id, "dataset": dataset, "text": chunk["prompt"]})
    texts = texts[~query_id.isin(known)].drop_duplicates("query_id")
    queries.append(texts)
    known.update(texts["query_id"].dropna())
