"""Invented leaderboards for the tests of the plots."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from v0_bench.metrics import METRICS


def predictions(
    names: Sequence[str],
    pool: str = "invented",
    protocol: str = "unseen-policy",
    steps: Sequence[int | None] = (None,),
    n_policies: int = 6,
    n_queries: int = 60,
    seeds: int = 1,
) -> pd.DataFrame:
    """Predictions of every predictor, better for the ones named first."""
    rng = np.random.default_rng(0)
    key = pd.MultiIndex.from_product(
        [range(seeds), [f"p{i}" for i in range(n_policies)], steps, range(n_queries)],
        names=["seed", "policy", "step", "query"],
    ).to_frame(index=False)
    truth = rng.beta(1.2, 1.2, len(key))
    tests = key.assign(
        pool=pool,
        protocol=protocol,
        step=key["step"].astype("Int64"),
        query_id="q" + key["query"].astype(str),
        query_group="q" + key["query"].astype(str),
        dataset="d",
        family=key["policy"],
        mean_reward=rng.binomial(10, truth) / 10,
        n_rollouts=10,
        context_size=256,
        context_mean=0.5,
        query_difficulty=0.5,
    ).drop(columns="query")
    frames = []
    for place, name in enumerate(names):
        share = 1 / (1.5 + 0.4 * place)
        noise = rng.beta(2, 2, len(key))
        frames.append(tests.assign(predictor=name, prediction=share * truth + (1 - share) * noise))
    return pd.concat(frames, ignore_index=True)


def row(
    name: str,
    auc: float | None,
    rank: int | None,
    width: float | None = 0.01,
    policies: bool = False,
    pool: str = "invented",
    protocol: str = "unseen-policy",
    status: str = "ok",
) -> dict[str, Any]:
    """A row of the leaderboard; `width` is half the interval, None for no interval."""

    def metric(value: float) -> dict[str, Any]:
        wide = width if policies else None
        return {
            "value": value,
            "low": None if width is None else value - width,
            "high": None if width is None else value + width,
            "low_policies": None if wide is None else value - 2 * wide,
            "high_policies": None if wide is None else value + 2.5 * wide,
            "per_seed": [value],
        }

    about = {"pool": pool, "protocol": protocol, "predictor": name, "status": status}
    metrics = dict.fromkeys(METRICS)
    if auc is not None:
        metrics |= {"auc": metric(auc), "ece": metric(0.05)}
    return about | {"reason": None, "rank": rank} | metrics


def references(ceiling: float = 0.97, oracle: float = 0.82, **place: str) -> list[dict[str, Any]]:
    """The two rows that are not ranked; the ceiling has no interval."""
    return [
        row("ceiling", ceiling, None, width=None, **place),
        row("cross-policy-oracle", oracle, None, **place),
    ]
