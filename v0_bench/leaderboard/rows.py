"""From predictions to the rows of a leaderboard: metrics, intervals, ranks and reference rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from v0_bench.leaderboard.work import Result
from v0_bench.metrics import (
    METRICS,
    PREDICTION_COLUMNS,
    ceiling_metrics,
    cross_policy_oracle,
    intervals,
    query_difficulty,
)
from v0_bench.pool import Pool
from v0_bench.protocols import Fold

NO_CEILING = "n/a (k=1)"  # one rollout each: the true rates cannot be told from the counts
Row = dict[str, Any]


def test_rows(pool: Pool, protocol: str, seed: int, folds: Sequence[Fold]) -> pd.DataFrame:
    """The tests in the folds' order: all columns of predictions.parquet but the prediction."""
    episodes = [e for fold in folds for stage in fold.stages for e in stage.episodes]
    rows = np.concatenate([episode.rows for episode in episodes])
    sizes = [len(episode.rows) for episode in episodes]
    outcomes = pool.outcomes.iloc[rows]
    dataset = pool.queries.set_index("query_id")["dataset"]
    return pd.DataFrame(
        {
            "pool": pool.name,
            "protocol": protocol,
            "seed": seed,
            "policy": outcomes["policy"].to_numpy(),
            "step": outcomes["step"].array,
            "query_id": outcomes["query_id"].to_numpy(),
            "query_group": pool.query_group.loc[outcomes["query_id"]].to_numpy(),
            "dataset": dataset.loc[outcomes["query_id"]].to_numpy(),
            "family": pool.family.loc[outcomes["policy"]].to_numpy(),
            "mean_reward": outcomes["mean_reward"].to_numpy(),
            "n_rollouts": outcomes["n_rollouts"].to_numpy(),
            "context_size": np.repeat([len(e.context) for e in episodes], sizes),
            "context_mean": np.repeat([e.context.mean for e in episodes], sizes),
            "query_difficulty": _difficulty(pool)[rows],
        }
    )


def _difficulty(pool: Pool) -> np.ndarray:
    outcomes = pool.outcomes[["query_id", "policy", "step", "mean_reward"]]
    family = pool.family.loc[outcomes["policy"]].to_numpy()
    return query_difficulty(outcomes.assign(family=family))


def with_predictions(tests: pd.DataFrame, predictor: str, values: np.ndarray) -> pd.DataFrame:
    """The test rows with one predictor's values, columns in the order of the contract."""
    frame = tests.assign(predictor=predictor, prediction=values)
    return frame[list(PREDICTION_COLUMNS)]


def leaderboard_rows(
    pool: str,
    protocol: str,
    tests: Sequence[pd.DataFrame],
    results: Mapping[str, Sequence[Result]],
    replicates: int = 1000,
) -> tuple[list[Row], pd.DataFrame]:
    """Rows of one table, best first, and the predictions they are made of.

    `tests` has one frame a seed; `results` one result a seed for every predictor.
    """
    done = {name: r for name, r in results.items() if all(one.status == "ok" for one in r)}
    frames = {name: _joined(name, tests, seeds) for name, seeds in done.items()}
    empty = dict.fromkeys(METRICS)
    rows: list[Row] = []
    if frames:
        label = f"{pool} {protocol}: intervals"
        with tqdm(desc=label, total=len(frames) * len(tests), delay=3, leave=False) as bar:
            table = intervals(frames, replicates, advance=bar.update)
        ranks = table.ranks()
        for name, seeds in done.items():
            metrics = table.row(name)
            rows.append(
                _row(pool, protocol, name, "ok", None, ranks[name]) | _times(seeds) | metrics
            )
        rows.sort(key=lambda row: -(row["auc"]["value"] or 0.0))
        rows += _reference_rows(pool, protocol, next(iter(frames.values())), replicates)
    for name, seeds in results.items():
        if name not in done:
            worst = min(seeds, key=lambda one: ("error", "not_applicable", "ok").index(one.status))
            rows.append(_row(pool, protocol, name, worst.status, worst.reason, None) | empty)
    frame = pd.concat(list(frames.values()), ignore_index=True) if frames else pd.DataFrame()
    return rows, frame


def _joined(name: str, tests: Sequence[pd.DataFrame], seeds: Sequence[Result]) -> pd.DataFrame:
    parts = []
    for frame, result in zip(tests, seeds, strict=True):
        assert result.predictions is not None
        parts.append(with_predictions(frame, name, result.predictions))
    return pd.concat(parts, ignore_index=True)


def _times(seeds: Sequence[Result]) -> Row:
    queries = sum(len(one.predictions) for one in seeds if one.predictions is not None)
    return {
        "fit_seconds": float(np.mean([one.fit_seconds for one in seeds])),
        "ms_per_query": 1000 * sum(one.predict_seconds for one in seeds) / queries,
    }


def _row(
    pool: str, protocol: str, predictor: str, status: str, reason: str | None, rank: int | None
) -> Row:
    return {
        "pool": pool,
        "protocol": protocol,
        "predictor": predictor,
        "status": status,
        "reason": reason,
        "rank": rank,
        "fit_seconds": None,
        "ms_per_query": None,
    }


def _reference_rows(pool: str, protocol: str, frame: pd.DataFrame, replicates: int) -> list[Row]:
    """`ceiling` (an oracle that knows the true rates) and `cross-policy-oracle`: not ranked."""
    ceiling = ceiling_metrics(frame)
    known = any(value is not None for value in ceiling.values())
    reason = None if known else NO_CEILING
    status = "ok" if known else "not_applicable"
    rows = [
        _row(pool, protocol, "ceiling", status, reason, None)
        | {name: _bare(value) for name, value in ceiling.items()}
    ]
    oracle = cross_policy_oracle(frame)
    name = "cross-policy-oracle"
    if oracle.empty:
        reason = "no test query was tried by 3 checkpoints of other families"
        return [
            *rows,
            _row(pool, protocol, name, "not_applicable", reason, None) | dict.fromkeys(METRICS),
        ]
    metrics = intervals({name: oracle}, replicates=replicates).row(name)
    return [*rows, _row(pool, protocol, name, "ok", None, None) | metrics]


def _bare(value: float | None) -> dict[str, Any] | None:
    if value is None:
        return None
    ends = dict.fromkeys(("low", "high", "low_policies", "high_policies"))
    return {"value": value, **ends, "per_seed": []}


def mean_ranks(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Mean rank over several tables of each predictor ranked in every one, best first.

    A table in which nothing could be ranked does not count.
    """
    tables = {(row["pool"], row["protocol"]) for row in rows if row["rank"] is not None}
    if len(tables) < 2:
        return []
    ranks: dict[str, list[int]] = {}
    for row in rows:
        if row["rank"] is not None:
            ranks.setdefault(row["predictor"], []).append(row["rank"])
    everywhere = {name: r for name, r in ranks.items() if len(r) == len(tables)}
    means = [
        {"predictor": name, "mean_rank": float(np.mean(r)), "tables": len(r)}
        for name, r in everywhere.items()
    ]
    return sorted(means, key=lambda entry: entry["mean_rank"])
