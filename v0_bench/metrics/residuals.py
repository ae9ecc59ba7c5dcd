"""Does the error p - r still depend on the context's mean, or on the query's difficulty?

The Pearson form against the context's mean is 0 in expectation for a calibrated predictor. The
difficulty is hidden from predictors, so against it 0 is a mark to come near to, not a property of
calibration. The paper's forms use ranks; rank correlations of p - r differ from 0 by noise alone (a
failed easy query has a large p - r), so each comes with the value it would have if p were the true
success rate.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from v0_bench.metrics.ranks import mid_ranks
from v0_bench.metrics.rows import Floats, Rows

NULL_SEED = 0
NULL_ROWS = 100_000  # redraw until about so many rows, so that small frames get a steady null
NULL_DRAWS = (2, 50)
MIN_VARIANCE = 1e-18


def residual_columns(rows: Rows) -> Iterator[Floats]:
    """Twelve columns (n,) whose weighted sums give both Pearson forms: two sets of six.

    Each set is 1, e, e^2, x, x^2, e x with e = p - r and x the other variable, both centred first
    to keep the digits; rows without x are 0 throughout.
    """
    error = rows.prediction - rows.reward
    for other in (rows.context_mean, rows.difficulty):
        yield from _moments(error, other)


def residual_metrics(sums: Floats) -> dict[str, Floats]:
    """residual_context and residual_query from sums (R, 12) of `residual_columns`."""
    return {
        "residual_context": _correlation(sums[:, :6]),
        "residual_query": _correlation(sums[:, 6:]),
    }


def spearman_metrics(rows: Rows) -> dict[str, float]:
    """The paper's rank forms on the rows themselves, and their nulls (NaN where undefined)."""
    known = ~np.isnan(rows.difficulty)
    if known.all():  # rank the errors once for both
        return _rank_correlations(rows, {"context": rows.context_mean, "query": rows.difficulty})
    context = _rank_correlations(rows, {"context": rows.context_mean})
    if not known.any():
        name = "residual_query_spearman"
        return {**context, name: np.nan, f"{name}_null": np.nan}
    part = rows.take(known)
    return {**context, **_rank_correlations(part, {"query": part.difficulty})}


def correlation(x: Floats, y: Floats) -> float:
    """Pearson correlation, NaN where one side does not vary."""
    x, y = x - x.mean(), y - y.mean()
    variance = (x @ x) * (y @ y) / len(x) ** 2
    return float((x @ y) / len(x) / np.sqrt(variance)) if variance > MIN_VARIANCE else np.nan


def _rank_correlations(rows: Rows, others: dict[str, Floats]) -> dict[str, float]:
    """Spearman of p - r with each of `others`, and the mean of the same over redrawn r."""
    p, k = rows.prediction, np.rint(rows.rollouts).astype(np.int64)
    ranks = {name: mid_ranks(values) for name, values in others.items()}
    value = _correlations(p - rows.reward, ranks)
    rng = np.random.default_rng(NULL_SEED)
    draws = int(np.clip(NULL_ROWS // len(p), *NULL_DRAWS))
    null = [_correlations(p - rng.binomial(k, p) / k, ranks) for _ in range(draws)]
    return {
        **{f"residual_{name}_spearman": value[name] for name in others},
        **{
            f"residual_{name}_spearman_null": float(np.mean([draw[name] for draw in null]))
            for name in others
        },
    }


def _correlations(error: Floats, ranks: dict[str, Floats]) -> dict[str, float]:
    error_ranks = mid_ranks(error)
    return {name: correlation(error_ranks, other) for name, other in ranks.items()}


def _moments(error: Floats, other: Floats) -> Iterator[Floats]:
    known = ~np.isnan(other)
    number = max(int(known.sum()), 1)
    e = np.where(known, error - error.sum(where=known) / number, 0)
    x = np.where(known, other - other.sum(where=known) / number, 0)
    yield known.astype(np.float64)
    yield e
    yield e * e
    yield x
    yield x * x
    yield e * x


def _correlation(sums: Floats) -> Floats:
    count, e, ee, x, xx, ex = sums.T
    count = np.where(count > 0, count, 1)
    error_variance, other_variance = ee / count - (e / count) ** 2, xx / count - (x / count) ** 2
    defined = (error_variance > MIN_VARIANCE) & (other_variance > MIN_VARIANCE)
    scale = np.sqrt(np.where(defined, error_variance * other_variance, 1))
    return np.where(defined, (ex / count - e * x / count**2) / scale, np.nan)
