"""Layout `long`: `queries.jsonl` and `outcomes.jsonl[.gz]` in one folder.

A query is {query_id, dataset, text, answer?, group?}; an outcome is {query_id, policy, step?,
mean_reward, n_rollouts, cost?, tokens_out?, role?, ...}, where further numeric fields are kept. A
file `prices_usd_per_Mtok.json` beside them gives prices per model.
"""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers.reading import read_json, read_jsonl
from v0_bench.pool.importers.tables import Options, Tables, counted, policies_of

PRICES = "prices_usd_per_Mtok.json"


def read_long(path: Path, options: Options) -> Tables:
    """The tables in the folder `path`; queries without a text are left out and counted."""
    outcomes_file = path / "outcomes.jsonl.gz"
    if not outcomes_file.exists():
        outcomes_file = path / "outcomes.jsonl"
    queries_file = path / "queries.jsonl"
    queries, outcomes = read_jsonl(queries_file), read_jsonl(outcomes_file)
    queries, outcomes, notes = _without_text_less(queries, outcomes)
    if "cost_kind" not in outcomes and "cost" in outcomes:
        outcomes["cost_kind"] = outcomes["cost"].map(lambda cost: "measured", na_action="ignore")
    policies = policies_of(outcomes)
    if (path / PRICES).exists():
        policies = _with_prices(policies, path / PRICES)
    places = {
        "queries": f"{queries_file}, line",
        "policies": f"{path / PRICES}, model",
        "outcomes": f"{outcomes_file}, line",
    }
    return Tables(queries, policies, outcomes, places, notes)


def _without_text_less(
    queries: pd.DataFrame, outcomes: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    if "text" not in queries or "query_id" not in queries or "query_id" not in outcomes:
        return queries, outcomes, []
    missing = queries["text"].isna()
    ids = {query for query in queries["query_id"][missing] if isinstance(query, str)}
    lost = outcomes["query_id"].map(lambda query: isinstance(query, str) and query in ids)
    if not missing.any():
        return queries, outcomes, []
    lost = lost.astype(bool)
    note = (
        f"left out {counted(int(missing.sum()), 'query', 'queries')} without a text, "
        f"and with them {counted(int(lost.sum()), 'outcome')}"
    )
    return queries[~missing], outcomes[~lost], [note]


def _with_prices(policies: pd.DataFrame, file: Path) -> pd.DataFrame:
    """The policies with prices in USD per million tokens, and sizes such as "7B", where given."""
    prices = read_json(file)
    for model, entry in prices.items():
        if not isinstance(entry, dict):
            raise V0BenchError(f"{file}: {model} should map to {{input_price, output_price}}")
    known = [prices.get(policy, {}) for policy in policies["policy"]]
    return pd.DataFrame(
        {
            "policy": policies["policy"],
            "params_b": [_billions(entry.get("size")) for entry in known],
            "price_in": [entry.get("input_price") for entry in known],
            "price_out": [entry.get("output_price") for entry in known],
        }
    ).set_index(pd.Index(policies["policy"], name=None))


def _billions(size: object) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*[bB]", str(size).strip())
    return float(match[1]) if match else None
