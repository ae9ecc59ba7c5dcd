"""How far predictions lie from success rates: squared errors and calibration errors.

Everything here is a function of weighted sums over rows, so a replicate costs a matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from v0_bench.metrics.ranks import mid_ranks
from v0_bench.metrics.rows import Floats, Ints, Rows

BINS = 15


def error_columns(rows: Rows) -> Iterator[Floats]:
    """Five columns (n,) whose weighted sums give the squared-error metrics."""
    error = (rows.prediction - rows.reward) ** 2
    several = (rows.rollouts >= 2).astype(np.float64)
    noise = rows.reward * (1 - rows.reward) / np.maximum(rows.rollouts - 1, 1)
    yield np.ones(len(rows))
    yield error
    yield (rows.context_mean - rows.reward) ** 2
    yield several
    yield several * (error - noise)


def error_metrics(sums: Floats) -> dict[str, Floats]:
    """mse, brier_skill, mse_excess and its share from sums (R, 5) of `error_columns`.

    r(1-r)/(k-1) is the unbiased estimate of the variance of a mean of k rollouts around the true
    rate, so mse_excess estimates the squared error against that rate; it may be negative.
    """
    total, error, context_error, several, excess = sums.T
    return {
        "mse": ratio(error, total),
        "brier_skill": 1 - ratio(error, context_error),
        "mse_excess": ratio(excess, several),
        "mse_excess_share": ratio(several, total),
    }


def ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Elementwise division, NaN where the denominator is not positive."""
    return np.divide(
        numerator,
        denominator,
        out=np.full(np.shape(denominator), np.nan),
        where=np.asarray(denominator) > 0,
    )


def equal_mass_bins(values: Floats, bins: int = BINS) -> Ints:
    """Bin 0..bins-1 of each value by its mid-rank, so equal values always share a bin."""
    twice_middle = 2 * mid_ranks(values) - 1  # a whole number, exact
    return (twice_middle.astype(np.int64) * bins) // (2 * len(values))


def calibration_columns(rows: Rows) -> Iterator[Floats]:
    """Columns (n,) whose weighted sums give ece and ece_debiased: 1, e and e^2 inside each bin.

    e = p - r. The bins are those of the unweighted rows: a replicate changes what lies in a bin,
    not the bin. Weights must count rows, for the variance needs their number.
    """
    error = rows.prediction - rows.reward
    bins = equal_mass_bins(rows.prediction)
    for number in range(BINS):
        inside = (bins == number).astype(np.float64)
        yield inside
        yield inside * error
        yield inside * error**2


def calibration_metrics(sums: Floats) -> dict[str, Floats]:
    """ece and ece_debiased from sums (R, 3 BINS) of `calibration_columns`, all checkpoints pooled.

    Resampling adds noise to the gaps, so the interval of `ece` lies high; `ece_debiased` takes the
    noise of the sample away, in a replicate too, and is cut at 0. A bin of a single row has no
    variance and adds nothing to `ece_debiased`.
    """
    number, total, square = sums[:, 0::3], sums[:, 1::3], sums[:, 2::3]
    everything = number.sum(axis=1)
    mean = total / np.where(number > 0, number, 1)
    several = number > 1
    spare = np.where(several, number - 1, 1)
    variance = np.maximum(square - number * mean**2, 0) / spare
    excess = np.where(several, number * mean**2 - variance, 0)
    return {
        "ece": ratio(np.abs(total).sum(axis=1), everything),
        "ece_debiased": np.sqrt(np.maximum(ratio(excess.sum(axis=1), everything), 0)),
    }
