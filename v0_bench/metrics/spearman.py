"""Rank correlations of p - r in bootstrap replicates, from a table of cells."""

from __future__ import annotations

import numpy as np

from v0_bench.metrics.calibration import equal_mass_bins
from v0_bench.metrics.ranks import mid_ranks, run_starts
from v0_bench.metrics.residuals import correlation
from v0_bench.metrics.rows import Floats, Ints, Rows
from v0_bench.metrics.weights import Weights

RANK_BINS = 16


class BinnedSpearman:
    """Spearman correlation of p - r and another variable for many weight vectors.

    Both variables are cut into RANK_BINS equal-mass bins of the unweighted rows, and each replicate
    ranks the bins anew by their weights. `shift` is the exact value less the binned one on the rows
    themselves; it is added to every replicate, so that the cutting moves no interval.
    `family` (n,) says whose weights each row's cell is kept for.
    """

    def __init__(self, rows: Rows, other: Floats, family: Ints) -> None:
        known = np.flatnonzero(~np.isnan(other))
        error, other = (rows.prediction - rows.reward)[known], other[known]
        error_bin, other_bin = (equal_mass_bins(v, RANK_BINS) for v in (error, other))
        cell = (family[known] * RANK_BINS + error_bin) * RANK_BINS + other_bin
        order = np.argsort(cell, kind="stable")
        self.order = known[order]
        self.starts = run_starts(cell[order])
        self.cells = cell[order][self.starts]
        self.families = int(family.max()) + 1
        self.shift = 0.0
        if len(known):
            binned = table_correlation(self.tables(Weights.once(rows)).sum(axis=1))[0]
            self.shift = correlation(mid_ranks(error), mid_ranks(other)) - float(binned)

    def tables(self, weights: Weights) -> Floats:
        """Weight in each cell, (R, families, RANK_BINS of p - r, RANK_BINS of the other)."""
        table = np.zeros((weights.number, self.families * RANK_BINS * RANK_BINS))
        if len(self.order):
            table[:, self.cells] = np.add.reduceat(weights.take(self.order), self.starts, axis=1)
        return table.reshape(weights.number, self.families, RANK_BINS, RANK_BINS)


def table_correlation(table: Floats) -> Floats:
    """Correlation of the mid-ranks of rows and columns of each table (R, B, B); NaN if none."""
    x, y = _bin_ranks(table.sum(axis=2)), _bin_ranks(table.sum(axis=1))
    covariance = np.einsum("rab,ra,rb->r", table, x, y)
    variance = np.einsum("rab,ra->r", table, x**2) * np.einsum("rab,rb->r", table, y**2)
    defined = variance > 0
    return np.where(defined, covariance / np.sqrt(np.where(defined, variance, 1)), np.nan)


def _bin_ranks(mass: Floats) -> Floats:
    """Mid-ranks of bins by their mass (R, B), centred so that their weighted mean is 0."""
    return np.cumsum(mass, axis=1) - mass / 2 - mass.sum(axis=1, keepdims=True) / 2
