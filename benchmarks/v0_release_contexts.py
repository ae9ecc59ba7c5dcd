"""Context-only predictors on the contexts of the official V0 sample.

Each of the 6 checkpoints has 512 context outcomes over 10 rollouts: 256 are drawn as the context
and the other 256 are predicted, 20 times. Printed are AUC (label: success rate >= 0.5) and mean
squared error, averaged over draws and checkpoints.

    python benchmarks/v0_release_contexts.py --pool FOLDER [--draws 20] [--json]

FOLDER is the sample in its own layout, or a pool made of it by `v0-bench pool import`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from v0_bench import Context, Pool, Predictor, Queries, create_predictor
from v0_bench.baselines.knn import NearestNeighbours
from v0_bench.pool.importers import import_pool

NAMES = (
    "random",
    "context-mean",
    "length",
    "knn",
    "knn-smoothed",
    "ridge",
    "logistic",
    "gaussian-process",
)


def load(path: Path) -> pd.DataFrame:
    """Context outcomes with the text and data set of their queries."""
    pool = Pool.load(path) if (path / "pool.json").exists() else import_pool(path).pool
    rows = pool.outcomes[pool.outcomes["role"] == "context"]
    return rows.merge(pool.queries[["query_id", "text", "dataset"]], on="query_id")


def episodes(
    outcomes: pd.DataFrame, draws: int, size: int
) -> Iterator[tuple[Context, Queries, np.ndarray]]:
    """Context, queries and true success rates of every draw and checkpoint."""
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        for (policy, step), rows in outcomes.groupby(["policy", "step"], sort=True):
            shuffled = rows.iloc[rng.permutation(len(rows))]
            shown, asked = shuffled[:size], shuffled[size:]
            context = Context(
                texts=tuple(shown["text"]),
                success_rates=shown["mean_reward"].to_numpy(dtype=float),
                n_rollouts=shown["n_rollouts"].to_numpy(dtype=int),
                query_ids=tuple(shown["query_id"]),
                datasets=tuple(shown["dataset"]),
                costs=np.full(len(shown), np.nan),
                policy=policy,
                step=int(step),
            )
            queries = Queries(
                tuple(asked["text"]), tuple(asked["query_id"]), tuple(asked["dataset"])
            )
            yield context, queries, asked["mean_reward"].to_numpy(dtype=float)


def measure(
    predictor: Predictor, cases: list[tuple[Context, Queries, np.ndarray]]
) -> dict[str, float]:
    """Mean AUC, mean squared error and milliseconds per episode."""
    started = time.perf_counter()
    values = [predictor.predict(context, queries) for context, queries, _ in cases]
    seconds = time.perf_counter() - started
    rates = [case[2] for case in cases]
    return {
        "auc": float(
            np.mean([roc_auc_score(r >= 0.5, p) for r, p in zip(rates, values, strict=True)])
        ),
        "mse": float(np.mean([np.mean((p - r) ** 2) for r, p in zip(rates, values, strict=True)])),
        "ms_per_episode": 1000 * seconds / len(cases),
    }


def main() -> None:
    """Measures every predictor and prints one line each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pool", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--size", type=int, default=256, help="context size")
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    outcomes = load(args.pool)
    cases = list(episodes(outcomes, args.draws, args.size))
    Queries.from_texts(sorted(set(outcomes["text"]))).embed(args.backbone)  # outside the timing
    predictors = {name: create_predictor(name, backbone=args.backbone) for name in NAMES}
    predictors["knn (k = 32)"] = NearestNeighbours(k=32, backbone=args.backbone)
    results = {name: measure(predictor, cases) for name, predictor in predictors.items()}
    if args.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'predictor':18}{'auc':>8}{'mse':>9}{'ms':>8}")
    for name, row in sorted(results.items(), key=lambda item: -item[1]["auc"]):
        print(f"{name:18}{row['auc']:8.4f}{row['mse']:9.4f}{row['ms_per_episode']:8.1f}")


if __name__ == "__main__":
    main()
