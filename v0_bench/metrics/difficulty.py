"""D_x, the difficulty of a query as the metrics know it: how often others solve it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from v0_bench.metrics.rows import Floats, Ints, MetricInputError, codes, compact, numbers

if TYPE_CHECKING:
    import pandas as pd

MIN_OUTCOMES = 3
DIFFICULTY_COLUMNS = ("query_id", "family", "policy", "step", "mean_reward")


def query_difficulty(outcomes: pd.DataFrame) -> Floats:
    """Mean success of each row's query over the outcomes of all families but the row's own.

    In a pool of one family: over all other checkpoints. Rows without a family count as a family of
    their own policy. Give it every outcome of the pool; pick the rows you need afterwards.

    Returns float64 (n,) in [0, 1], NaN where fewer than 3 outcomes remain.
    Raises MetricInputError if one of DIFFICULTY_COLUMNS is missing.
    """
    missing = [name for name in DIFFICULTY_COLUMNS if name not in outcomes.columns]
    if missing:
        raise MetricInputError(f"outcomes lack the columns {', '.join(missing)}")
    if not len(outcomes):
        return np.empty(0)
    query, family = codes(outcomes["query_id"]), codes(outcomes["family"])
    family = np.where(family < 0, family.max() + 1 + codes(outcomes["policy"]), family)
    reward = numbers(outcomes, "mean_reward")
    total, count = _sums(query, reward)
    if (family == family[0]).all():
        own_total, own_count = reward, np.ones(len(reward))
    else:
        own_total, own_count = _sums(compact(query * (family.max() + 1) + family), reward)
    rest = count - own_count
    mean = (total - own_total) / np.maximum(rest, 1)
    return np.where(rest >= MIN_OUTCOMES, np.clip(mean, 0, 1), np.nan)


def _sums(code: Ints, values: Floats) -> tuple[Floats, Floats]:
    """Sum and number of the values that share each row's code, one entry per row."""
    total, count = np.bincount(code, values), np.bincount(code)
    return total[code].astype(np.float64), count[code].astype(np.float64)
