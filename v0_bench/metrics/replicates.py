"""The metrics of one seed in every bootstrap replicate, without repeating a row.

A replicate repeats query groups m_g times and, for the intervals about new policies, families f_a
times, so a row counts m_g f_a times. Everything is first worked out per family (or checkpoint)
under m alone; the two kinds of interval then differ only in how families are added up. A
checkpoint's AUC does not change when all its rows are repeated, only its weight among checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from v0_bench.metrics.auc import AucMetrics
from v0_bench.metrics.calibration import (
    calibration_columns,
    calibration_metrics,
    error_columns,
    error_metrics,
    ratio,
)
from v0_bench.metrics.pairtable import Counts, PairGrid, all_pairs, paper_pairs, tally
from v0_bench.metrics.resample import Resample
from v0_bench.metrics.residuals import residual_columns, residual_metrics
from v0_bench.metrics.rows import Floats, Ints, Rows
from v0_bench.metrics.scoring import skill
from v0_bench.metrics.spearman import BinnedSpearman, table_correlation
from v0_bench.metrics.weights import Weights

CHUNK_CELLS = 500_000
BLOCK_CELLS = 8_000_000

Replicated = dict[str, Floats]
Both = tuple[Replicated, Replicated | None]  # groups resampled; families as well, if enough


def replicate_rows(rows: Rows, resample: Resample) -> Both:
    """metric -> (R,), all but the pairwise metrics."""
    parts = [_auc(rows, resample), _sums(rows, resample), _spearman(rows, resample)]
    plain = {name: values for part, _ in parts for name, values in part.items()}
    if resample.families is None:
        return plain, None
    return plain, {name: values for _, part in parts for name, values in (part or {}).items()}


def replicate_pairs(rows: Rows, predictions: list[Floats], resample: Resample) -> list[Both]:
    """The pairwise metrics of each column of predictions: metric -> (R,)."""
    grid = PairGrid(rows, [*predictions, rows.context_mean])
    every, paper = tally(grid, resample, all_pairs), tally(grid, resample, paper_pairs)
    plain = _pair_metrics(every.plain, paper.plain)
    if every.policies is None or paper.policies is None:
        return [(values, None) for values in plain]
    return list(zip(plain, _pair_metrics(every.policies, paper.policies), strict=True))


def _auc(rows: Rows, resample: Resample) -> Both:
    metrics = AucMetrics(rows)
    family = np.zeros(int(rows.checkpoint.max()) + 1, dtype=np.int64)
    family[rows.checkpoint] = rows.family
    plain, policies = [], []
    for weights, repeated in _chunks(rows, resample):
        segments = metrics.segments(weights)
        plain.append(metrics.combine(segments, np.ones((weights.number, len(family)))))
        if repeated is not None:
            policies.append(metrics.combine(segments, repeated[:, family]))
    return _joined(plain), _joined(policies) if policies else None


def _sums(rows: Rows, resample: Resample) -> Both:
    """The metrics that are functions of sums over rows."""
    sums = _family_sums(rows, resample)
    plain = _metrics_of_sums(sums.sum(axis=2))
    if resample.families is None:
        return plain, None
    return plain, _metrics_of_sums(np.einsum("srf,rf->sr", sums, resample.families))


def _spearman(rows: Rows, resample: Resample) -> Both:
    family = _families(rows, resample)
    binned = {
        "residual_context_spearman": BinnedSpearman(rows, rows.context_mean, family),
        "residual_query_spearman": BinnedSpearman(rows, rows.difficulty, family),
    }
    plain, policies = [], []
    for weights, repeated in _chunks(rows, resample):
        tables = {name: spearman.tables(weights) for name, spearman in binned.items()}
        plain.append(
            {n: table_correlation(t.sum(axis=1)) + binned[n].shift for n, t in tables.items()}
        )
        if repeated is not None:
            added = {n: np.einsum("rfab,rf->rab", t, repeated) for n, t in tables.items()}
            policies.append({n: table_correlation(t) + binned[n].shift for n, t in added.items()})
    return _joined(plain), _joined(policies) if policies else None


def _families(rows: Rows, resample: Resample) -> Ints:
    """The rows' families, or a single one where families are not resampled."""
    return np.zeros_like(rows.family) if resample.families is None else rows.family


def _columns(rows: Rows) -> Iterator[Floats]:
    yield from error_columns(rows)
    yield from residual_columns(rows)
    yield from calibration_columns(rows)


def _metrics_of_sums(sums: Floats) -> Replicated:
    """Metrics (R,) from sums (columns, R) of `_columns`."""
    errors, residuals, calibration = np.split(sums.T, [5, 17], axis=1)
    return {
        **error_metrics(errors),
        **residual_metrics(residuals),
        **calibration_metrics(calibration),
    }


def _family_sums(rows: Rows, resample: Resample) -> Floats:
    """Weighted sum of every column inside every family, (columns, R, F), as matrix products."""
    groups = resample.groups.shape[1]
    family = _families(rows, resample)
    families = 1 if resample.families is None else resample.families.shape[1]
    cell = rows.group * families + family
    blocks = []
    step = max(1, BLOCK_CELLS // groups)
    for start in range(0, len(resample.groups), step):
        weights = resample.groups[start : start + step].astype(np.float64)
        tables = (np.bincount(cell, column, groups * families) for column in _columns(rows))
        blocks.append(np.stack([weights @ table.reshape(groups, families) for table in tables]))
    return np.concatenate(blocks, axis=1)


def _chunks(rows: Rows, resample: Resample) -> Iterator[tuple[Weights, Floats | None]]:
    """Some replicates at a time: weights from query groups, and multiplicities of families."""
    step = max(1, CHUNK_CELLS // len(rows))
    for start in range(0, len(resample.groups), step):
        part = slice(start, start + step)
        families = resample.families
        repeated = None if families is None else families[part].astype(np.float64)
        yield Weights(rows.group, resample.groups[part].astype(np.float64)), repeated


def _pair_metrics(every: Counts, paper: Counts) -> list[Replicated]:
    """Metrics of each prediction but the last, which is the context mean."""
    *accuracies, context = ratio(every.wins, np.broadcast_to(every.pairs, every.wins.shape))
    paper_accuracies = ratio(paper.wins, np.broadcast_to(paper.pairs, paper.wins.shape))
    return [
        {
            "pairwise_accuracy": accuracy,
            "pairwise_skill": skill(accuracy, context),
            "pairwise_accuracy_paper": paper_accuracy,
        }
        for accuracy, paper_accuracy in zip(accuracies, paper_accuracies[:-1], strict=True)
    ]


def _joined(chunks: list[Replicated]) -> Replicated:
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
