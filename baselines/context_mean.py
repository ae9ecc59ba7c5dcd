"""`context-mean`: mu(C) for every query, all that a context says without its texts."""

from __future__ import annotations

import numpy as np

from v0_bench.episode import Context, Queries
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor


@register_predictor
class ContextMean(Predictor):
    """The context's mean success rate mu(C); one half for an empty context."""

    name = "context-mean"
    info = PredictorInfo(summary="The mean success rate of the context, mu(C).")

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1], all equal."""
        return np.full(len(queries), context.mean)
