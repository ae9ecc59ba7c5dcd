"""`length`: text length as difficulty; its slope is learned from training outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy.special import expit

from v0_bench.episode import Context, Queries, TrainingOutcomes
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor
from v0_bench.predictors.numerics import fit_logistic, logit, rollout_weights


@register_predictor
class Length(Predictor):
    """sigmoid(logit mu(C) + slope * (log length - mean log length of the context)).

    Without training outcomes the slope is learned from the context.
    """

    name = "length"
    info = PredictorInfo(summary="Log text length as difficulty, around mu(C).")

    def fit(self, train: TrainingOutcomes) -> Self:
        """Learn the slope from the mean success of each training query."""
        self.train_ = train
        seen = np.flatnonzero(np.isfinite(train.query_success))
        weights = np.bincount(train.query_index, minlength=len(train.queries))[seen]
        lengths = _log_lengths([train.queries.texts[i] for i in seen])
        self.slope_ = _slope(lengths, train.query_success[seen], weights) if len(seen) else None
        return self

    def update(self, outcomes: TrainingOutcomes) -> Self:
        """Fit anew on all outcomes so far."""
        return self.fit(self.train_.join(outcomes))

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]."""
        if not len(context):
            return np.full(len(queries), context.mean)
        lengths = _log_lengths(context.texts)
        slope = getattr(self, "slope_", None)
        if slope is None:
            slope = _slope(lengths, context.success_rates, rollout_weights(context.n_rollouts))
        distance = _log_lengths(queries.texts) - lengths.mean()
        return expit(logit(context.mean) + slope * distance)


def _log_lengths(texts: Sequence[str]) -> np.ndarray:
    return np.log1p(np.array([len(text) for text in texts], dtype=float))


def _slope(lengths: np.ndarray, rates: np.ndarray, weights: np.ndarray) -> float:
    """Slope of the log odds of success on log length; both coefficients have prior variance 10."""
    columns = np.column_stack([np.ones(len(lengths)), lengths - lengths.mean()])
    return float(fit_logistic(columns, rates, weights, np.full(2, 0.1)).coefficients[1])
