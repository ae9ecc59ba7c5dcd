"""The protocols: how a pool is split into training outcomes and episodes.

A protocol yields folds. A fold is a sequence of stages; each shows training outcomes (to `fit` at
the first stage, to `update` at later ones) and then tests episodes. Query groups never straddle the
line between what is shown and what is tested, except under `sequential`, where queries recur across
steps and only outcomes of the same step are kept apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name
from v0_bench.pool import Pool
from v0_bench.protocols.folds import Fold, Stage
from v0_bench.protocols.leaks import check_leaks
from v0_bench.protocols.tables import Tables

TEST_SHARE = 0.3
MAX_FOLDS = 5
EARLY_SHARE = 0.6
SEQUENTIAL_SHARES = (0.4, 0.7)  # context up to the first, training up to the second, then test
SHIFT_DATASET = "shift:DATASET>DATASET"


class NotApplicable(V0BenchError):
    """A protocol makes no sense on a pool; the message is the reason."""


def default_protocol(pool: Pool) -> str:
    """`sequential` for pools with steps, else `unseen-policy`."""
    return "sequential" if pool.has_steps else "unseen-policy"


def make_folds(pool: Pool, protocol: str, seed: int = 0, context_size: int = 256) -> list[Fold]:
    """The folds of a protocol, the same for the same pool, seed and size, checked for leaks.

    Raises NotApplicable where the pool does not allow the protocol, V0BenchError for an unknown
    protocol, and LeakError if what is tested could be seen.
    """
    for name, number in (("context size", context_size), ("seed", seed)):
        if number < 0:
            raise V0BenchError(f"{name} {number} is negative")
    split = _split_function(protocol)
    tables = Tables(pool)
    folds = [fold for fold in split(tables, seed, context_size) if _tested(fold)]
    if not folds:
        raise NotApplicable("no checkpoint has an outcome on the test queries")
    check_leaks(pool, protocol, folds)
    return folds


def check_protocol_name(protocol: str) -> None:
    """Raises V0BenchError, with the nearest name, for a protocol that does not exist."""
    _split_function(protocol)


def _tested(fold: Fold) -> bool:
    return any(stage.episodes for stage in fold.stages)


Split = Callable[[Tables, int, int], list[Fold]]


def _split_function(protocol: str) -> Split:
    if protocol in PROTOCOLS:
        return PROTOCOLS[protocol]
    source, arrow, target = protocol.removeprefix("shift:").partition(">")
    if protocol.startswith("shift:") and arrow and source and target:
        return lambda tables, seed, size: _shift_dataset(tables, seed, size, source, target)
    raise V0BenchError(unknown_name("protocol", protocol, [*PROTOCOLS, SHIFT_DATASET]))


def _test_rows(tables: Tables, seed: int) -> np.ndarray:
    """Mask of the outcomes whose query group is among the 30 % drawn for testing."""
    n = len(tables.group_names)
    if n < 2:
        raise NotApplicable("all queries are near-duplicates of one another: nothing to split")
    n_test = min(max(1, round(TEST_SHARE * n)), n - 1)
    is_test = np.zeros(n, dtype=bool)
    is_test[np.random.default_rng([seed, 1]).permutation(n)[:n_test]] = True
    return is_test[tables.group]


def _single_stage(
    tables: Tables, seed: int, size: int, train: np.ndarray, context: np.ndarray, test: np.ndarray
) -> Fold:
    rows = np.flatnonzero
    episodes = tables.episodes(rows(context), rows(test), seed, size)
    return Fold((Stage(tables.training(rows(train)), episodes),))


def _unseen_policy(tables: Tables, seed: int, size: int) -> list[Fold]:
    families = np.unique(tables.family.astype(str))
    if len(families) < 2:
        raise NotApplicable(f"needs 2 families of policies, this pool has {len(families)}")
    test = _test_rows(tables, seed)
    order = np.random.default_rng([seed, 2]).permutation(families)
    folds = []
    for held_out in np.array_split(order, min(MAX_FOLDS, len(families))):
        mine = np.isin(tables.family.astype(str), held_out)[tables.checkpoint]
        folds.append(_single_stage(tables, seed, size, ~mine & ~test, mine & ~test, mine & test))
    return folds


def _strict(tables: Tables, seed: int, size: int) -> list[Fold]:
    test = _test_rows(tables, seed)
    return [_single_stage(tables, seed, size, ~test, ~test, test)]


def _sequential(tables: Tables, seed: int, size: int) -> list[Fold]:
    steps = np.unique(tables.step[~np.isnan(tables.step)])
    if not len(steps):
        raise NotApplicable("needs training steps, this pool's policies are finished models")
    fixed = bool(pd.notna(tables.role).any())
    stages = []
    for step in steps:
        roles = _fixed_roles(tables, step) if fixed else _drawn_roles(tables, step, seed)
        context, train, test = roles
        stages.append(Stage(tables.training(train), tables.episodes(context, test, seed, size)))
    return [Fold(tuple(stages))]


def _fixed_roles(tables: Tables, step: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    now = tables.step == step
    context, train, test = (
        np.flatnonzero(now & (tables.role == name)) for name in ("context", "train", "test")
    )
    return context, train, test


def _drawn_roles(
    tables: Tables, step: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = np.flatnonzero(tables.step == step)
    groups, index = np.unique(tables.group[rows], return_inverse=True)
    rank = np.random.default_rng([seed, 3, int(step) % 2**63]).permutation(len(groups))
    cuts = [round(share * len(groups)) for share in SEQUENTIAL_SHARES]
    part = np.searchsorted(cuts, rank, side="right")[index]
    return rows[part == 0], rows[part == 1], rows[part == 2]


def _shift_early_late(tables: Tables, seed: int, size: int) -> list[Fold]:
    steps = np.unique(tables.step[~np.isnan(tables.step)])
    if len(steps) < 2:
        raise NotApplicable(f"needs 2 training steps, this pool has {len(steps)}")
    early = tables.step <= steps[_early(len(steps)) - 1]
    late = tables.step > steps[_early(len(steps)) - 1]
    test = _test_rows(tables, seed)
    return [_single_stage(tables, seed, size, early & ~test, late & ~test, late & test)]


def _shift_weak_strong(tables: Tables, seed: int, size: int) -> list[Fold]:
    families, family = np.unique(tables.family.astype(str), return_inverse=True)
    if len(families) < 2:
        raise NotApplicable(f"needs 2 families of policies, this pool has {len(families)}")
    mean = np.bincount(tables.query, tables.success_rates) / np.maximum(
        np.bincount(tables.query), 1
    )
    # against the query's mean: policies may have tried different queries
    residual = tables.success_rates - mean[tables.query]
    row_family = family[tables.checkpoint]
    skill = np.bincount(row_family, residual) / np.bincount(row_family)
    weak = np.isin(row_family, np.argsort(skill, kind="stable")[: _early(len(families))])
    test = _test_rows(tables, seed)
    return [_single_stage(tables, seed, size, weak & ~test, ~weak & ~test, ~weak & test)]


def _early(n: int) -> int:
    """How many of n ordered things are trained on: 60 %, at least one left for testing."""
    return min(max(1, round(EARLY_SHARE * n)), n - 1)


def _shift_dataset(tables: Tables, seed: int, size: int, source: str, target: str) -> list[Fold]:
    known = set(tables.datasets)
    for name in (source, target):
        if name not in known:
            raise V0BenchError(unknown_name("data set", name, known))
    if source == target:
        raise V0BenchError(f"protocol shift:{source}>{target}: the two data sets are the same")
    dataset = tables.datasets[tables.query]
    test = dataset == target
    shared = np.isin(tables.group, np.unique(tables.group[test]))
    shown = (dataset == source) & ~shared
    return [_single_stage(tables, seed, size, shown, shown, test)]


PROTOCOLS: dict[str, Split] = {
    "unseen-policy": _unseen_policy,
    "strict": _strict,
    "sequential": _sequential,
    "shift:early-late": _shift_early_late,
    "shift:weak-strong": _shift_weak_strong,
}
