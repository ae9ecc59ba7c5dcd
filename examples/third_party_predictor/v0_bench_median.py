"""`context-median`: the median success rate of the context, shrunk to one half."""

import numpy as np

from v0_bench import Context, Predictor, PredictorInfo, Queries, register_predictor


@register_predictor
class ContextMedian(Predictor):
    """Median of the context's success rates and of `prior_items` further items at one half."""

    name = "context-median"
    info = PredictorInfo(summary="The median success rate of the context.", licence="MIT")

    def __init__(self, prior_items: int = 1) -> None:
        self.prior_items = prior_items

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]."""
        rates = np.append(context.success_rates, np.full(self.prior_items, 0.5))
        return np.full(len(queries), np.median(rates))
