"""`random`: a uniform number per query, the floor of every table."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from v0_bench.episode import Context, Queries
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor


@register_predictor
class Random(Predictor):
    """A uniform number set by seed, policy, step and query id alone, whatever the order."""

    name = "random"
    info = PredictorInfo(summary="A uniform random number per query.")

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1)."""
        prefix = f"{self.seed}\0{context.policy}\0{context.step}\0"
        values = [_uniform(prefix + query_id) for query_id in queries.query_ids]
        return np.array(values, dtype=float)


def _uniform(key: str) -> float:
    digest = blake2b(key.encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48
