"""Ranks with ties, the common ground of bins and rank correlations."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from v0_bench.metrics.rows import Floats, Ints


def mid_ranks(values: Floats) -> Floats:
    """Ranks from 1, ties at their mean."""
    order = np.argsort(values)
    ordered = values[order]
    starts = run_starts(ordered)
    sizes = np.diff(np.append(starts, len(values)))
    ranks = np.empty(len(values))
    ranks[order] = np.repeat(starts + (sizes + 1) / 2, sizes)
    return ranks


def run_starts(*columns: npt.NDArray[np.generic]) -> Ints:
    """Where each run of equal rows begins, for columns of one length."""
    first = np.zeros(len(columns[0]), dtype=bool)
    first[:1] = True
    for column in columns:
        first[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(first)


def order_within(code: Ints, values: Floats) -> Ints:
    """Order by (code, value): two sorts, the second by radix where the codes fit 16 bits."""
    order = np.argsort(values)
    narrow = code.astype(np.uint16) if code.max(initial=0) < 2**16 else code
    return order[np.argsort(narrow[order], kind="stable")]
