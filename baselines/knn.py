"""`knn`: mean success rate of the nearest context items (kNN-Contextual of arXiv 2602.03584)."""

from __future__ import annotations

import numpy as np

from v0_bench.episode import Context, Queries
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor
from v0_bench.predictors.numerics import squared_distances


@register_predictor
class NearestNeighbours(Predictor):
    """Mean success rate of the k nearest context items by Euclidean distance of text embeddings.

    k is capped by the context; of a longer context the newest `memory` items are kept.
    """

    name = "knn"
    info = PredictorInfo(
        summary="Mean of the k = 64 nearest context items.",
        paper="2602.03584",
    )

    def __init__(self, k: int = 64, memory: int = 2048, backbone: str = "minilm") -> None:
        self.k = k
        self.memory = memory
        self.backbone = backbone

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]."""
        items = context.newest(self.memory)
        if len(items) <= self.k:
            return np.full(len(queries), items.mean)
        distances = squared_distances(queries.embed(self.backbone), items.embed(self.backbone))
        nearest = np.argpartition(distances, self.k - 1, axis=1)[:, : self.k]
        return items.success_rates[nearest].mean(axis=1)
