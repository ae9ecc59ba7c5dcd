"""`logistic`: logistic regression of soft success rates on text embeddings, within the context."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from v0_bench.episode import Context, Queries
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor
from v0_bench.predictors.numerics import (
    PrincipalAxes,
    fit_logistic,
    rollout_weights,
    soft_cross_entropy,
)

PENALTIES = tuple(np.logspace(2, -1, 10))


@register_predictor
class Logistic(Predictor):
    """Penalised logistic regression on success rates, without a threshold.

    The penalty, in units of the mean squared norm of a centred embedding, is the one with the least
    approximate leave-one-out cross entropy. A weak penalty keeps the intercept finite where all
    outcomes are equal.
    """

    name = "logistic"
    info = PredictorInfo(summary="Logistic regression on soft rates, within the context.")

    def __init__(self, backbone: str = "minilm") -> None:
        self.backbone = backbone

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]."""
        if len(context) < 2:
            return np.full(len(queries), context.mean)
        weights = 2 * rollout_weights(context.n_rollouts)
        rows = np.asarray(context.embed(self.backbone), dtype=float)
        axes = PrincipalAxes.of(rows, weights)
        coefficients = _fit_path(axes.project(rows), context.success_rates, weights)
        scores = axes.project(queries.embed(self.backbone)) @ coefficients[1:] + coefficients[0]
        return expit(scores)


def _fit_path(features: np.ndarray, rates: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Intercept and slopes of the best penalty, tried from strong to weak with warm starts."""
    columns = np.column_stack([np.ones(len(features)), features])
    unit = np.average(np.sum(features**2, axis=1), weights=weights)
    start: np.ndarray | None = None
    best, best_loss = np.zeros(columns.shape[1]), np.inf
    for penalty in PENALTIES:
        ridge = np.full(columns.shape[1], penalty * unit)
        ridge[0] = 0.1
        fit = fit_logistic(columns, rates, weights, ridge, start=start)
        start = fit.coefficients
        loss = soft_cross_entropy(fit.left_out, rates, weights)
        if loss < best_loss:
            best, best_loss = fit.coefficients, loss
    return best
