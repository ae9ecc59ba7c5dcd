"""Layout `routerbench`: the wide tables of RouterBench, as CSV or Parquet.

One row a query: sample_id, prompt, eval_name, and for every model MODEL (its score in [0, 1]) and
MODEL|total_cost (USD); other columns are passed over. The pickled tables are refused, as opening
a pickle runs whatever it holds.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers.reading import csv_chunks, parquet_table
from v0_bench.pool.importers.tables import Options, Tables, counted, policies_of
from v0_bench.pool.schema import COLUMNS

TEXTS = ("sample_id", "prompt", "eval_name")
COST = "|total_cost"
RESPONSE = "|model_response"


def read_routerbench(path: Path, options: Options) -> Tables:
    """The tables of one file, or of all CSV and Parquet files below a folder.

    RouterBench spreads the scores of some queries over several rows: the first score of a query
    and model counts, further ones and absent ones are left out.
    """
    queries: list[pd.DataFrame] = []
    outcomes: list[pd.DataFrame] = []
    for wide in _wide_tables(path):
        queries.append(_queries(wide))
        outcomes.append(_outcomes(wide))
    if not sum(map(len, queries)):
        raise V0BenchError(f"the pool is empty: {path} has no rows")
    cells = pd.concat(outcomes)
    scored = cells[cells["mean_reward"].notna()]
    kept = scored.drop_duplicates(["query_id", "policy"])
    notes = [
        f"left out {counted(count, what, plural)}"
        for count, what, plural in (
            (len(cells) - len(scored), "cell without a score", "cells without a score"),
            (len(scored) - len(kept), "repeated score", "repeated scores"),
        )
        if count
    ]
    places = dict.fromkeys(COLUMNS, f"{path}, file and row")
    texts = pd.concat(queries).drop_duplicates("query_id")
    return Tables(texts, policies_of(kept), kept, places, notes)


def _wide_tables(path: Path) -> Iterator[pd.DataFrame]:
    files = [path]
    if path.is_dir():
        files = sorted([*path.rglob("*.csv"), *path.rglob("*.parquet")])
    if not files or files[0].suffix in (".pkl", ".pickle"):
        raise V0BenchError(
            f"{path} holds no CSV or Parquet table; a pickle is not opened, as that could run any "
            "code: write it as Parquet first, with pandas, on a machine where that may happen"
        )
    for file in files:
        for chunk in _chunks(file):
            missing = set(TEXTS) - set(chunk.columns)
            if missing:
                raise V0BenchError(f"{file} lacks the column {', '.join(sorted(missing))}")
            if not _models(chunk):
                raise V0BenchError(f"{file}: no model has both a column NAME and NAME{COST}")
            yield chunk.set_index(f"{file.name}:" + chunk.index.astype("str"))


def _chunks(file: Path) -> Iterable[pd.DataFrame]:
    if file.suffix == ".parquet":
        return [parquet_table(file)]
    return csv_chunks(file, lambda column: not column.endswith(RESPONSE), TEXTS)


def _queries(wide: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "query_id": wide["sample_id"],
            "dataset": wide["eval_name"],
            "text": wide["prompt"].map(_prompt_text, na_action="ignore"),
        }
    )


def _prompt_text(prompt: object) -> object:
    """The text of a prompt that is written as a list of turns, "['first', 'second']"."""
    if not isinstance(prompt, str) or not prompt.startswith("["):
        return prompt
    try:
        turns = ast.literal_eval(prompt)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return prompt
    if isinstance(turns, list) and all(isinstance(turn, str) for turn in turns):
        return "\n".join(turns)
    return prompt


def _models(wide: pd.DataFrame) -> list[str]:
    return [column for column in wide.columns if f"{column}{COST}" in wide.columns]


def _outcomes(wide: pd.DataFrame) -> pd.DataFrame:
    return pd.concat(
        [
            pd.DataFrame(
                {
                    "query_id": wide["sample_id"],
                    "policy": model,
                    "mean_reward": _scores(wide[model]),
                    "n_rollouts": 1,
                    "cost": wide[f"{model}{COST}"],
                    "cost_kind": "measured",
                }
            )
            for model in _models(wide)
        ]
    )


def _scores(values: pd.Series) -> pd.Series:
    """Scores as numbers; RouterBench writes some as True and False."""
    return values.astype("float64") if pd.api.types.is_bool_dtype(values) else values
