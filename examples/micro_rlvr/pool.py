"""The pool of the run: held-out outcomes with roles, and the rollouts of training beside them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd

from v0_bench.micro import held_out, training_set
from v0_bench.pool import Pool

SEED = 0
SHARES = (0.4, 0.7)  # context up to the first, training up to the second, then test
ROLES = np.array(["context", "train", "test"])


def make_pool(measured: Pool, policies: Path) -> Pool:
    """Outcomes of the checkpoints on the held-out queries, and on those they were trained with.

    `measured` holds the ground truth; `policies` holds a folder a policy with its `rollouts`. The
    rollouts since the checkpoint before are outcomes of a checkpoint with the role `train`; the
    held-out ones get their roles by query group, drawn anew for every step and the same for all
    policies.
    """
    ours = measured.outcomes.assign(role=drawn_roles(measured))
    names = sorted(measured.policies["policy"])
    steps = {name: set(ours.loc[ours["policy"] == name, "step"]) for name in names}
    trained = pd.concat(
        [
            on_policy(name, step, policies / name / "rollouts" / f"step_{step}.jsonl")
            for name in names
            for step in sorted(steps[name] - {0})
        ]
    )
    columns = ["query_id", "policy", "step", "mean_reward", "n_rollouts", "tokens_out", "role"]
    outcomes = pd.concat([ours.reindex(columns=columns), trained.reindex(columns=columns)])
    queries = pd.DataFrame(
        {
            "query_id": problem.query_id,
            "dataset": problem.family,
            "text": problem.text,
            "answer": problem.answer,
        }
        for problem in (*held_out(), *training_set())
    )
    queries = queries[queries["query_id"].isin(outcomes["query_id"])]
    return Pool(
        "micro",
        queries,
        measured.policies[["policy", "params_b"]].assign(family=measured.policies["policy"]),
        outcomes.sort_values(["policy", "step", "query_id"]),
        licence="Apache-2.0",
        source="V0-Bench, examples/micro_rlvr",
        citation="V0-Bench (see CITATION.cff), micro-RLVR",
    )


def drawn_roles(pool: Pool) -> np.ndarray:
    """The role of each outcome: of a step's query groups 40 % context, 30 % train, 30 % test."""
    group = pool.outcomes["query_id"].map(pool.query_group)
    roles = pd.Series("", index=pool.outcomes.index)
    for step in sorted(pool.outcomes["step"].unique()):
        now = pool.outcomes["step"] == step
        groups, index = np.unique(group[now], return_inverse=True)
        rank = np.random.default_rng([SEED, int(step)]).permutation(len(groups))
        cuts = [round(share * len(groups)) for share in SHARES]
        roles[now] = ROLES[np.searchsorted(cuts, rank, side="right")[index]]
    return roles.to_numpy()


def on_policy(policy: str, step: int, file: Path) -> pd.DataFrame:
    """The outcomes of the rollouts in a file, one row a query."""
    rows = pd.DataFrame(map(json.loads, file.read_text(encoding="utf-8").splitlines()))
    outcomes = rows.groupby("query_id")["reward"].agg(mean_reward="mean", n_rollouts="size")
    return outcomes.reset_index().assign(policy=policy, step=step, role="train")
