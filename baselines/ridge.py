"""`ridge`: linear regression of success rates on text embeddings, within the context."""

from __future__ import annotations

import numpy as np

from v0_bench.episode import Context, Queries
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor
from v0_bench.predictors.numerics import fit_ridge, rollout_weights


@register_predictor
class Ridge(Predictor):
    """Ridge regression fitted on the context; leave-one-out error chooses the penalty."""

    name = "ridge"
    info = PredictorInfo(summary="Ridge regression on embeddings, fitted on the context.")

    def __init__(self, backbone: str = "minilm") -> None:
        self.backbone = backbone

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]."""
        if len(context) < 2:
            return np.full(len(queries), context.mean)
        weights = rollout_weights(context.n_rollouts)
        fitted = fit_ridge(context.embed(self.backbone), context.success_rates, weights)
        return np.clip(fitted.predict(queries.embed(self.backbone)), 0.0, 1.0)
