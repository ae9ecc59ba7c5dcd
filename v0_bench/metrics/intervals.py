"""Bootstrap intervals, paired differences and ranks of predictors that share their rows.

`low` and `high` resample query groups: a claim about these policies on new queries. `low_policies`
and `high_policies` resample families as well: a claim about new policies. One resample serves all
predictors and seeds, so differences taken inside a replicate are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from v0_bench.metrics.calibration import ratio
from v0_bench.metrics.catalogue import METRICS
from v0_bench.metrics.matching import matched_rows
from v0_bench.metrics.replicates import Replicated, replicate_pairs, replicate_rows
from v0_bench.metrics.resample import Resample, draw_resample
from v0_bench.metrics.rows import Floats, MetricInputError, Rows
from v0_bench.metrics.scoring import nullable, score_rows, seed_mean

if TYPE_CHECKING:
    import pandas as pd

PERCENTILES = (2.5, 97.5)
INTERVAL_METRICS = tuple(name for name, info in METRICS.items() if info.has_interval)

Replicates = dict[tuple[str, str], Floats]


class Difference(TypedDict):
    """A value with its two intervals; None = null."""

    value: float | None
    low: float | None
    high: float | None
    low_policies: float | None
    high_policies: float | None


class MetricEntry(Difference):
    """A metric of one predictor as `leaderboard.json` holds it."""

    per_seed: list[float | None]


@dataclass(frozen=True)
class IntervalTable:
    """Values and replicates of several predictors on the same rows.

    `per_seed`: (predictor, metric) -> one value per seed. `replicates`: (predictor, metric) -> (R,)
    means over seeds, NaN where undefined. `replicates_policies` is the same with families resampled
    as well; it is empty under 6 families.
    """

    predictors: tuple[str, ...]
    per_seed: dict[tuple[str, str], list[float | None]]
    replicates: Replicates
    replicates_policies: Replicates

    def row(self, predictor: str) -> dict[str, MetricEntry]:
        """metric -> {value, low, high, low_policies, high_policies, per_seed} of one predictor."""
        return {metric: self._entry(predictor, metric) for metric in METRICS}

    def difference(self, a: str, b: str, metric: str = "auc") -> Difference:
        """metric(a) - metric(b), its intervals from differences inside the replicates."""
        values = [seed_mean(self.per_seed[name, metric]) for name in (a, b)]
        low, high = _interval(_less(self.replicates, a, b, metric))
        low_policies, high_policies = _interval(_less(self.replicates_policies, a, b, metric))
        return {
            "value": None if values[0] is None or values[1] is None else values[0] - values[1],
            "low": low,
            "high": high,
            "low_policies": low_policies,
            "high_policies": high_policies,
        }

    def ranks(self, leave_out: Collection[str] = ()) -> dict[str, int | None]:
        """1 + the number of predictors better by `auc` with a paired interval above 0.

        Equal ranks are possible. None for predictors in `leave_out` (reference rows, which do not
        count either) and for those without an auc.
        """
        ranked = [
            name
            for name in self.predictors
            if name not in leave_out and seed_mean(self.per_seed[name, "auc"]) is not None
        ]
        ranks: dict[str, int | None] = dict.fromkeys(self.predictors)
        for name in ranked:
            lows = [self.difference(other, name)["low"] for other in ranked if other != name]
            ranks[name] = 1 + sum(low is not None and low > 0 for low in lows)
        return ranks

    def _entry(self, predictor: str, metric: str) -> MetricEntry:
        key = (predictor, metric)
        low, high = _interval(self.replicates.get(key))
        low_policies, high_policies = _interval(self.replicates_policies.get(key))
        return {
            "value": seed_mean(self.per_seed[key]),
            "low": low,
            "high": high,
            "low_policies": low_policies,
            "high_policies": high_policies,
            "per_seed": self.per_seed[key],
        }


def intervals(
    frames: Mapping[str, pd.DataFrame],
    replicates: int = 1000,
    seed: int = 0,
    *,
    advance: Callable[[], object] = lambda: None,
) -> IntervalTable:
    """Score several predictors on the same rows, with `replicates` bootstrap replicates.

    `frames` maps each predictor to its rows, as for `score`; all must hold the same rows apart from
    `prediction` and `predictor`, in any order. A seed in which a metric is null stays null in every
    replicate; so do the choices made on the rows themselves (the checkpoints of `auc`, the bins of
    `ece`, `ece_debiased` and the Spearman forms). `advance` is called once for every predictor and
    seed done, for a progress bar. Raises MetricInputError if the rows differ, or for anything
    `score` rejects.
    """
    if not frames:
        raise MetricInputError("no predictors to compare")
    names = tuple(frames)
    seeds = matched_rows(frames)
    rows = [by_predictor[names[0]] for by_predictor in seeds]
    resample = draw_resample(
        groups=1 + max(int(r.group.max()) for r in rows),
        families=1 + max(int(r.family.max()) for r in rows),
        replicates=replicates,
        seed=seed,
    )
    scores = [{name: score_rows(r) for name, r in by_seed.items()} for by_seed in seeds]
    parts = (_replicate_seed(by_seed, resample, advance) for by_seed in seeds)
    plain, policies = zip(*parts, strict=True)
    return IntervalTable(
        predictors=names,
        per_seed={
            (name, metric): [nullable(values[name][metric]) for values in scores]
            for name in names
            for metric in METRICS
        },
        replicates=_mean_over_seeds(plain, scores),
        replicates_policies={} if resample.families is None else _mean_over_seeds(policies, scores),
    )


def _replicate_seed(
    by_predictor: Mapping[str, Rows], resample: Resample, advance: Callable[[], object]
) -> tuple[dict[str, Replicated], dict[str, Replicated]]:
    """Replicates of one seed, predictor -> metric -> (R,): plain, and with families resampled."""
    rows = list(by_predictor.values())
    pairs = replicate_pairs(rows[0], [r.prediction for r in rows], resample)
    plain, policies = {}, {}
    for (name, own), (pairs_plain, pairs_policies) in zip(by_predictor.items(), pairs, strict=True):
        rows_plain, rows_policies = replicate_rows(own, resample)
        plain[name] = {**rows_plain, **pairs_plain}
        policies[name] = {**(rows_policies or {}), **(pairs_policies or {})}
        advance()
    return plain, policies


def _mean_over_seeds(
    seeds: Sequence[dict[str, Replicated]], scores: list[dict[str, dict[str, float]]]
) -> Replicates:
    """Mean of each replicate over the seeds in which the metric itself is defined."""
    means: Replicates = {}
    for name in seeds[0]:
        for metric in INTERVAL_METRICS:
            defined = [
                values[name][metric]
                for values, score in zip(seeds, scores, strict=True)
                if not np.isnan(score[name][metric])
            ]
            if defined:
                means[name, metric] = _nan_mean(np.array(defined))
    return means


def _nan_mean(values: Floats) -> Floats:
    known = ~np.isnan(values)
    return ratio(np.where(known, values, 0).sum(axis=0), known.sum(axis=0).astype(np.float64))


def _less(replicates: Replicates, a: str, b: str, metric: str) -> Floats | None:
    if (a, metric) not in replicates or (b, metric) not in replicates:
        return None
    return replicates[a, metric] - replicates[b, metric]


def _interval(values: Floats | None) -> tuple[float | None, float | None]:
    """The percentiles of the defined replicates; null if fewer than half are defined."""
    if values is None:
        return None, None
    known = values[~np.isnan(values)]
    if 2 * len(known) < len(values) or not len(known):
        return None, None
    low, high = np.percentile(known, PERCENTILES)
    return float(low), float(high)
