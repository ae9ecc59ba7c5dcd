"""What a pool holds, in numbers: sizes, coverage, spread, and how much a query's past tells.

The leave-one-out AUC bounds what knowledge of the query alone can give: it ranks the queries of
each checkpoint by how all other checkpoints did on them.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from v0_bench.pool.pool import Pool
from v0_bench.pool.schema import ROLES

CHECKPOINT = ["policy", "step"]


def describe(pool: Pool) -> dict[str, Any]:
    """Counts, spreads and coverages of a pool; every value can be written as JSON."""
    outcomes, queries = pool.outcomes, pool.queries
    checkpoint = outcomes.groupby(CHECKPOINT, dropna=False, sort=False)["mean_reward"]
    return {
        "name": pool.name,
        "fingerprint": pool.fingerprint,
        "licence": pool.licence,
        "source": pool.source,
        "policies": len(pool.policies),
        **_families(pool),
        "checkpoints": checkpoint.ngroups,
        "steps": sorted(int(step) for step in outcomes["step"].dropna().unique()),
        "queries": len(queries),
        "datasets": queries["dataset"].value_counts().sort_index().to_dict(),
        **_groups(pool),
        "outcomes": len(outcomes),
        "rollouts": _rollouts(outcomes),
        "accuracy": _spread(checkpoint.mean()),
        "one_class_checkpoints": int(_classes(outcomes).eq(1).sum()),
        "cost": _cost(outcomes),
        "tokens_coverage": _share(outcomes["tokens_out"].notna()),
        "roles": {role: int((outcomes["role"] == role).sum()) for role in ROLES}
        | {"none": int(outcomes["role"].isna().sum())},
        "leave_one_out_auc": leave_one_out_auc(outcomes),
    }


def leave_one_out_auc(outcomes: pd.DataFrame) -> float | None:
    """Mean over two-class checkpoints of the AUC of the other checkpoints' mean reward.

    `outcomes` has the columns query_id, policy, step and mean_reward. For each checkpoint its
    queries are scored by the mean reward of all other checkpoints on the query (queries that no
    other checkpoint tried are dropped), and the AUC is that of the score for the label
    [mean_reward >= 0.5], ties counting one half. None if no checkpoint has both labels.
    """
    reward = outcomes["mean_reward"]
    of_query = reward.groupby(outcomes["query_id"])
    others = of_query.transform("size") - 1
    # Rounded, so that equal means that were summed in another order tie.
    score = ((of_query.transform("sum") - reward) / others.where(others > 0)).round(9)
    rows = outcomes[CHECKPOINT].assign(score=score, positive=reward >= 0.5)[others > 0]
    by = rows.groupby(CHECKPOINT, dropna=False)
    rows["rank"] = by["score"].rank(method="average")
    total = by.size()
    positive = by["positive"].sum()
    rank_sum = rows[rows["positive"]].groupby(CHECKPOINT, dropna=False)["rank"].sum()
    negative = total - positive
    area = (rank_sum - positive * (positive + 1) / 2) / (positive * negative)
    two_class = area[(positive > 0) & (negative > 0)]
    return float(two_class.mean()) if len(two_class) else None


def _families(pool: Pool) -> dict[str, Any]:
    members = pool.family.groupby(pool.family).groups
    several = {name: sorted(map(str, policies)) for name, policies in members.items()}
    return {
        "families": len(members),
        "families_with_several_policies": {
            name: policies for name, policies in several.items() if len(policies) > 1
        },
    }


def _groups(pool: Pool) -> dict[str, int]:
    sizes = pool.query_group.value_counts()
    return {
        "groups": len(sizes),
        "largest_group": int(sizes.max()),
        "duplicates": int(sizes[sizes > 1].sum()),
    }


def _classes(outcomes: pd.DataFrame) -> pd.Series:
    """How many of the two labels [mean_reward >= 0.5] each checkpoint shows."""
    label = (outcomes["mean_reward"] >= 0.5).rename("label")
    keys = [outcomes[column] for column in CHECKPOINT]
    return label.groupby(keys, dropna=False).nunique()


def _rollouts(outcomes: pd.DataFrame) -> dict[str, float]:
    return {"total": int(outcomes["n_rollouts"].sum()), **_spread(outcomes["n_rollouts"])}


def _spread(values: pd.Series) -> dict[str, float]:
    return {
        "min": float(values.min()),
        "median": float(values.median()),
        "max": float(values.max()),
    }


def _cost(outcomes: pd.DataFrame) -> dict[str, float]:
    kind = outcomes["cost_kind"][outcomes["cost"].notna()]
    return {
        "coverage": _share(outcomes["cost"].notna()),
        "measured": int((kind == "measured").sum()),
        "estimated": int((kind == "estimated").sum()),
    }


def _share(flags: pd.Series) -> float:
    return float(flags.mean())
