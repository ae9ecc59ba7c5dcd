"""Bring the rows of several predictors into one order, and refuse those that are not the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from v0_bench.metrics.rows import (
    KEY_COLUMNS,
    PREDICTION_COLUMNS,
    Floats,
    MetricInputError,
    Rows,
    check_frame,
    numbers,
    rows_by_seed,
)

if TYPE_CHECKING:
    import pandas as pd

SHARED_COLUMNS = tuple(c for c in PREDICTION_COLUMNS if c not in ("predictor", "prediction"))


def matched_rows(frames: Mapping[str, pd.DataFrame]) -> list[dict[str, Rows]]:
    """Per seed, ascending: predictor -> its Rows, all in the order of the first frame.

    Raises MetricInputError if a frame's rows differ from the first one's in a shared column.
    """
    first, *others = frames
    reference = frames[first]
    by_seed = rows_by_seed(reference)
    seed = numbers(reference, "seed")
    matched = [{first: rows} for rows in by_seed.values()]
    ordered = _Ordered(reference)
    for name in others:
        check_frame(frames[name])
        prediction = ordered.predictions(frames[name], name, first)
        for value, rows in zip(by_seed, matched, strict=True):
            rows[name] = rows[first].with_prediction(prediction[seed == value])
    return matched


class _Ordered:
    """The reference frame, and its order by key."""

    def __init__(self, reference: pd.DataFrame) -> None:
        self.reference = reference.reset_index(drop=True)
        self.order = _key_order(self.reference)

    def predictions(self, frame: pd.DataFrame, name: str, first: str) -> Floats:
        """The frame's predictions in the reference's row order."""
        frame = frame.reset_index(drop=True)
        if len(frame) != len(self.reference):
            raise MetricInputError(
                f"predictor {name} has {len(frame)} rows and {first} {len(self.reference)}: "
                "intervals are paired and need the same rows"
            )
        if not _different(self.reference, frame):
            return numbers(frame, "prediction")
        order = _key_order(frame)
        column = _different(self.reference.loc[self.order], frame.loc[order])
        if column:
            raise MetricInputError(
                f"predictors {name} and {first} differ in column {column}: "
                "intervals are paired and need the same rows"
            )
        prediction = np.empty(len(frame))
        prediction[self.order] = numbers(frame, "prediction")[order]
        return prediction


def _key_order(frame: pd.DataFrame) -> np.ndarray:
    return frame.sort_values(list(KEY_COLUMNS), kind="stable").index.to_numpy()


def _different(a: pd.DataFrame, b: pd.DataFrame) -> str | None:
    """The first shared column in which two frames of equal length differ, row by row."""
    return next((name for name in SHARED_COLUMNS if not _same(a[name], b[name])), None)


def _same(a: pd.Series, b: pd.Series) -> bool:
    if a.dtype == b.dtype:
        return a.reset_index(drop=True).equals(b.reset_index(drop=True))
    both_null = a.isna().to_numpy() & b.isna().to_numpy()
    equal = np.asarray(a, dtype=object) == np.asarray(b, dtype=object)
    return bool((both_null | equal).all())
