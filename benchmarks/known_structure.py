"""What is known of the real pools, found again with full information (no protocol, no split).

For each pool: the leave-one-out AUC, the AUC of a checkpoint's mean success in the query's data
set, and the pairwise accuracy of a checkpoint's mean success. A protocol, which hides test
outcomes, gives less.

Example: python benchmarks/known_structure.py POOL [POOL ...] --json
"""

import argparse
import json
from pathlib import Path

import pandas as pd

from v0_bench import Pool
from v0_bench.metrics import score
from v0_bench.pool.describe import leave_one_out_auc


def full_information(pool: Pool) -> pd.DataFrame:
    """All outcomes as rows to score, without a prediction yet."""
    outcomes = pool.outcomes
    dataset = outcomes["query_id"].map(pool.queries.set_index("query_id")["dataset"])
    checkpoint = [outcomes["policy"], outcomes["step"].astype("float64").fillna(-1)]
    return outcomes[["query_id", "policy", "step", "mean_reward", "n_rollouts"]].assign(
        pool=pool.name,
        protocol="none",
        seed=0,
        query_group=outcomes["query_id"],
        dataset=dataset,
        family=outcomes["policy"],
        context_size=1,
        context_mean=outcomes.groupby(checkpoint)["mean_reward"].transform("mean"),
        dataset_mean=outcomes.groupby([*checkpoint, dataset])["mean_reward"].transform("mean"),
        query_difficulty=float("nan"),
    )


def measure(pool: Pool) -> dict[str, float | str | None]:
    """The numbers of one pool."""
    rows = full_information(pool)
    by_dataset = score(rows.assign(predictor="dataset-mean", prediction=rows["dataset_mean"]))
    by_context = score(rows.assign(predictor="context-mean", prediction=rows["context_mean"]))
    # one rollout count for all: every pair counts, also those whose k differ by more than 2
    any_k = score(
        rows.assign(predictor="context-mean", prediction=rows["context_mean"], n_rollouts=1)
    )
    return {
        "pool": pool.name,
        "leave_one_out_auc": leave_one_out_auc(pool.outcomes),
        "dataset_mean_auc": by_dataset["auc"],
        "context_mean_pairwise": by_context["pairwise_accuracy"],
        "context_mean_pairwise_any_k": any_k["pairwise_accuracy"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pools", nargs="+", type=Path, help="pool folders")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = pd.DataFrame([measure(Pool.load(path)) for path in args.pools])
    if args.json:
        print(json.dumps(found.to_dict("records"), indent=1))
    else:
        print(found.round(3).to_string(index=False))


if __name__ == "__main__":
    main()
