"""`dataset-mean`: the context's mean success rate on the query's own data set."""

from __future__ import annotations

import numpy as np

from v0_bench.episode import Context, Queries
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor
from v0_bench.predictors.numerics import beta_shrunk


@register_predictor
class DatasetMean(Predictor):
    """Context mean per data set, Beta-shrunk to mu(C); mu(C) for a data set not in the context.

    `strength` counts the context items, all equal to mu(C), that each data set's mean starts from.
    """

    name = "dataset-mean"
    info = PredictorInfo(summary="The context's mean on the data set, shrunk to mu(C).")

    def __init__(self, strength: float = 4.0) -> None:
        self.strength = strength

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]."""
        names = sorted(set(context.datasets) | set(queries.datasets))
        place = {name: i for i, name in enumerate(names)}
        members = np.array([place[name] for name in context.datasets], dtype=int)
        sums = np.bincount(members, weights=context.success_rates, minlength=len(names))
        counts = np.bincount(members, minlength=len(names))
        means = beta_shrunk(sums, counts, context.mean, self.strength)
        return means[[place[name] for name in queries.datasets]]
