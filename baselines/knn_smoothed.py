"""`knn-smoothed`: success rates of near context items, weighted by cosine, shrunk to mu(C)."""

from __future__ import annotations

import numpy as np

from v0_bench.episode import Context, Queries
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor
from v0_bench.predictors.numerics import beta_shrunk, rollout_weights, squared_distances


@register_predictor
class SmoothedNeighbours(Predictor):
    """All context items, weighted by exp((cosine - 1) / temperature), shrunk to the context mean.

    `strength` is the weight of mu(C), in items that have the query's own text.
    """

    name = "knn-smoothed"
    info = PredictorInfo(summary="Context items weighted by cosine, shrunk to mu(C).")

    def __init__(
        self, temperature: float = 0.15, strength: float = 0.1, backbone: str = "minilm"
    ) -> None:
        self.temperature = temperature
        self.strength = strength
        self.backbone = backbone

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]."""
        if not len(context):
            return np.full(len(queries), context.mean)
        items = _unit_rows(context.embed(self.backbone))
        targets = _unit_rows(queries.embed(self.backbone))
        nearness = np.exp(-squared_distances(targets, items) / (2 * self.temperature))
        weights = nearness * (2 * rollout_weights(context.n_rollouts))
        sums = weights @ context.success_rates
        values = beta_shrunk(sums, weights.sum(axis=1), context.mean, self.strength)
        return np.clip(values, 0.0, 1.0)  # rounding may overstep


def _unit_rows(rows: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12))
