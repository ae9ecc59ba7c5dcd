"""Holds a predictor to its contract: the right number of finite probabilities."""

from __future__ import annotations

import numpy as np


class PredictorError(Exception):
    """A predictor broke its contract: its output is unusable."""


def check_values(values: object, n_queries: int, name: str) -> np.ndarray:
    """The values as float64 (n_queries,); raises PredictorError for a wrong shape, NaN or range."""
    array = np.asarray(values, dtype=np.float64)
    if array.shape != (n_queries,):
        raise PredictorError(
            f"{name}: predict returned shape {array.shape}, expected ({n_queries},): one per query"
        )
    if not np.isfinite(array).all():
        raise PredictorError(f"{name}: predict returned {(~np.isfinite(array)).sum()} NaN or inf")
    if array.size and (array.min() < 0 or array.max() > 1):
        raise PredictorError(
            f"{name}: values lie in [{array.min():.4g}, {array.max():.4g}], must be within [0, 1]"
        )
    return array
