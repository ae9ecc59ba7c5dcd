"""The pool of a run: the lm-eval importer, and beside it parameters, prices and costs.

cost of a query = (prompt tokens x price_in + mean tokens of a rollout x price_out) / 1e6 USD, that
of one rollout. Without prices it stays null; parameters x tokens is then `policies.params_b` times
`outcomes.tokens_out`, both of which are filled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from v0_bench.files import atomic_file
from v0_bench.pool.importers import import_pool
from v0_bench.pool.importers.reading import read_json
from v0_bench.pool.pool import Pool
from v0_bench.rollouts.settings import Output


@dataclass(frozen=True)
class Facts:
    """What a user knows of a policy: billions of parameters, USD per million tokens."""

    params_b: float | None = None
    price_in: float | None = None
    price_out: float | None = None


def known_facts(output: Output, facts: Mapping[str, Facts]) -> dict[str, Facts]:
    """The given facts over those of earlier runs into the same output; notes them there."""
    file = output.folder / "policies.json"
    known = read_json(file) if file.exists() else {}
    for policy, fact in facts.items():
        told = {name: value for name, value in asdict(fact).items() if value is not None}
        known[policy] = known.get(policy, {}) | told
    with atomic_file(file) as new:
        new.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return {policy: Facts(**told) for policy, told in known.items()}


def make_pool(output: Output, name: str, facts: Mapping[str, Facts]) -> Pool:
    """The pool of all finished checkpoints in the output."""
    pool = import_pool(output.samples, "lm-eval", name).pool
    runs = list(_runs(output))
    policies = _with_facts(pool.policies, facts, runs)
    return Pool(pool.name, pool.queries, policies, _with_costs(pool, policies, runs))


def _runs(output: Output) -> Iterator[dict[str, Any]]:
    """What each results file tells of its checkpoint, with the task."""
    for file in sorted(output.samples.rglob("results_*.json")):
        results = read_json(file)
        if isinstance(results.get("v0_bench"), dict):
            yield results["v0_bench"] | {"dataset": file.parent.name}


def _with_facts(
    policies: pd.DataFrame, facts: Mapping[str, Facts], runs: list[dict[str, Any]]
) -> pd.DataFrame:
    """Counted parameters where the user gives none, and the user's prices."""
    counted = {run["policy"]: run.get("params_b") for run in runs}
    told = [facts.get(policy, Facts()) for policy in policies["policy"]]
    given = pd.DataFrame(list(map(asdict, told)), dtype="float64", index=policies.index)
    return policies.assign(
        params_b=given["params_b"].fillna(policies["policy"].map(counted).astype("float64")),
        price_in=given["price_in"],
        price_out=given["price_out"],
    )


def _with_costs(pool: Pool, policies: pd.DataFrame, runs: list[dict[str, Any]]) -> pd.DataFrame:
    outcomes = pool.outcomes
    prices = policies.set_index("policy")[["price_in", "price_out"]]
    price = prices.loc[outcomes["policy"]].to_numpy()
    tokens_in = outcomes.get("tokens_in", pd.Series(np.nan, index=outcomes.index))
    cost = (tokens_in * price[:, 0] + outcomes["tokens_out"] * price[:, 1]) / 1e6
    kinds = {(run["policy"], run["step"], run["dataset"]): run.get("tokens") for run in runs}
    dataset = outcomes["query_id"].map(pool.queries.set_index("query_id")["dataset"])
    step = outcomes["step"].astype(object).where(outcomes["step"].notna(), None)
    keys = zip(outcomes["policy"], step, dataset, strict=True)
    kind = pd.Series([kinds.get(key) for key in keys], index=outcomes.index, dtype="object")
    return outcomes.assign(cost=cost, cost_kind=kind.where(cost.notna(), None).astype("str"))
