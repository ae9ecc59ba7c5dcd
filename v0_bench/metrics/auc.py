"""Areas under the ROC curve, for any row weights.

The AUC is the chance that p ranks a success above a failure, ties counted one half.

A weight vector is all ones for the sample itself, multiplicities of query groups for a bootstrap
replicate. The result equals the plain AUC of the rows repeated so
often. Sorting happens once (`AucPlan`); each weight vector then costs one cumulative sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v0_bench.metrics.ranks import order_within, run_starts
from v0_bench.metrics.rows import Floats, Ints, Rows
from v0_bench.metrics.weights import Weights

MIN_CLASS_ROWS = 5


@dataclass(frozen=True)
class AucPlan:
    """Rows of all two-class segments, split into a positive and a negative part, sorted by p.

    `below` and `upto` count the negatives, in all segments so far, with a smaller prediction and
    with a prediction no larger than that of each positive. `positive_part` and `negative_part` are
    None where every part is 1 (hard labels). `segment` names the S segments.
    """

    segment: Ints
    positive: Ints
    negative: Ints
    positive_part: Floats | None
    negative_part: Floats | None
    below: Ints
    upto: Ints
    positive_starts: Ints
    negative_starts: Ints


@dataclass(frozen=True)
class SegmentAuc:
    """For R weight vectors and S segments, (R, S) each: pairs won (ties half) and class weights."""

    wins: Floats
    positives: Floats
    negatives: Floats

    @property
    def values(self) -> Floats:
        """AUC of each segment; NaN where a class has no weight."""
        pairs = self.positives * self.negatives
        return np.divide(self.wins, pairs, out=np.full_like(pairs, np.nan), where=pairs > 0)


def plan_auc(segment: Ints, prediction: Floats, target: Floats, order: Ints) -> AucPlan:
    """Prepare the AUCs of `prediction` for `target` in [0, 1] inside each segment.

    `order` sorts the rows by (segment, prediction). One-class segments are dropped.
    """
    positive_weight = np.bincount(segment, target)
    kept = (positive_weight > 0) & (np.bincount(segment, 1 - target) > 0)
    order = order[kept[segment[order]]]
    seg, p, target = segment[order], prediction[order], target[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = (seg[1:] != seg[:-1]) | (p[1:] != p[:-1])
    run = np.cumsum(first) - 1
    starts = np.append(np.flatnonzero(first), len(order))
    pos, neg = np.flatnonzero(target > 0), np.flatnonzero(target < 1)
    negatives_before = np.concatenate([[0], np.cumsum(target < 1)])
    hard = bool(np.isin(target, (0.0, 1.0)).all())
    return AucPlan(
        segment=np.flatnonzero(kept),
        positive=order[pos],
        negative=order[neg],
        positive_part=None if hard else target[pos],
        negative_part=None if hard else 1 - target[neg],
        below=negatives_before[starts[run[pos]]],
        upto=negatives_before[starts[run[pos] + 1]],
        positive_starts=run_starts(seg[pos]),
        negative_starts=run_starts(seg[neg]),
    )


def segment_auc(plan: AucPlan, weights: Weights) -> SegmentAuc:
    """Evaluate a plan under R weight vectors."""
    positive = weights.take(plan.positive)
    negative = weights.take(plan.negative)
    if plan.positive_part is not None and plan.negative_part is not None:
        positive *= plan.positive_part
        negative *= plan.negative_part
    below = np.zeros((weights.number, negative.shape[1] + 1))
    np.cumsum(negative, axis=1, out=below[:, 1:])
    beaten = below.take(plan.below, axis=1)
    if not np.array_equal(plan.below, plan.upto):
        beaten += below.take(plan.upto, axis=1)
        beaten /= 2
    base = below.take(plan.negative_starts, axis=1)
    positives = np.add.reduceat(positive, plan.positive_starts, axis=1)
    beaten *= positive
    wins = np.add.reduceat(beaten, plan.positive_starts, axis=1) - positives * base
    negatives = np.add.reduceat(negative, plan.negative_starts, axis=1)
    return SegmentAuc(wins, positives, negatives)


class AucMetrics:
    """auc, auc_weighted, auc_soft and auc_within of one seed's rows, under any weights.

    A checkpoint counts for `auc` if the rows themselves hold at least 5 of each class, and for
    `auc_soft` if its success rates add up to at least 5 and its failure rates too (the same rule
    for labels that are not 0 or 1). Under weights that leave it one class its weight is 0.
    """

    def __init__(self, rows: Rows) -> None:
        label = rows.label.astype(np.float64)
        order = order_within(rows.checkpoint, rows.prediction)
        self.hard = plan_auc(rows.checkpoint, rows.prediction, label, order)
        self.enough = _enough(rows.checkpoint, label)[self.hard.segment]
        self.is_binary = bool((rows.reward == label).all())
        if not self.is_binary:
            self.soft = plan_auc(rows.checkpoint, rows.prediction, rows.reward, order)
            self.enough_soft = _enough(rows.checkpoint, rows.reward)[self.soft.segment]
        datasets = int(rows.dataset.max()) + 1
        cell = rows.checkpoint * datasets + rows.dataset
        within_order = order[np.argsort(cell[order], kind="stable")]
        self.within = plan_auc(cell, rows.prediction, label, within_order)
        self.within_checkpoint = self.within.segment // datasets
        self.left_out = len(np.unique(rows.checkpoint)) - int(self.enough.sum())

    def segments(self, weights: Weights) -> tuple[SegmentAuc, SegmentAuc, SegmentAuc]:
        """AUCs by checkpoint (hard, soft) and by checkpoint and data set."""
        hard = segment_auc(self.hard, weights)
        soft = hard if self.is_binary else segment_auc(self.soft, weights)
        return hard, soft, segment_auc(self.within, weights)

    def combine(
        self, segments: tuple[SegmentAuc, SegmentAuc, SegmentAuc], checkpoint_weights: Floats
    ) -> dict[str, Floats]:
        """Average over checkpoints; `checkpoint_weights` (R, C) repeat whole checkpoints."""
        hard, soft, within = segments
        by_hard = checkpoint_weights[:, self.hard.segment]
        if self.is_binary:
            by_soft, enough_soft = by_hard, self.enough
        else:
            by_soft, enough_soft = checkpoint_weights[:, self.soft.segment], self.enough_soft
        by_within = checkpoint_weights[:, self.within_checkpoint]
        mass = within.positives + within.negatives
        harmonic = within.positives * within.negatives / np.where(mass > 0, mass, 1)
        return {
            "auc": _average(hard.values, by_hard * self.enough),
            "auc_weighted": _average(hard.values, by_hard * (hard.positives + hard.negatives)),
            "auc_soft": _average(soft.values, by_soft * enough_soft),
            "auc_within": _average(within.values, by_within * harmonic),
        }


def _enough(checkpoint: Ints, target: Floats) -> np.ndarray:
    least = MIN_CLASS_ROWS - 1e-9  # sums of tenths are not exact
    return (np.bincount(checkpoint, target) >= least) & (
        np.bincount(checkpoint, 1 - target) >= least
    )


def _average(values: Floats, weights: Floats) -> Floats:
    """Weighted mean over segments, (R, S) -> (R,); undefined values have weight 0."""
    defined = ~np.isnan(values)
    total = (weights * defined).sum(axis=1)
    summed = np.where(defined, values, 0) * weights
    return np.divide(summed.sum(axis=1), total, out=np.full(len(total), np.nan), where=total > 0)
