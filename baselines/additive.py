"""`additive`: log odds of the policy plus log odds of the query, no interaction between the two."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.special import expit

from v0_bench.episode import Context, Queries, TrainingOutcomes
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor
from v0_bench.predictors.difficulty import Difficulty, fit_difficulty, fitted_difficulty
from v0_bench.predictors.numerics import beta_shrunk, fit_logistic, logit, rollout_weights

NO_TRAINING = np.array([0.0, 1.0, 1.0])
"""Intercept, slope of the policy, slope of the query: the plain sum of log odds."""
PULL = np.array([0.1, 10.0, 1.0])
"""Weight of the plain sum in the calibration, in the units of a logistic loss summed over rows."""


@register_predictor
class Additive(Predictor):
    """sigmoid(a + b logit mu(C) + c logit D_x), with a, b, c fitted on the training checkpoints.

    D_x is the training success of the query after taking out each checkpoint's own mean; it comes
    from the text if the query is unseen, with coefficients of its own. mu(C) is shrunk to the mean
    training success as if `ability_strength` more items had equalled it; `strength` does the same
    for D_x and the regression on the text.
    """

    name = "additive"
    info = PredictorInfo(summary="Log odds of the context mean plus those of the query.")

    def __init__(
        self, strength: float = 2.0, ability_strength: float = 10.0, backbone: str = "minilm"
    ) -> None:
        self.strength = strength
        self.ability_strength = ability_strength
        self.backbone = backbone

    def fit(self, train: TrainingOutcomes) -> Self:
        """Learn difficulties, then how the two log odds add up, for seen and for unseen queries."""
        self.train_ = train
        self.difficulty_: Difficulty | None = None
        if not len(train):
            return self
        place, query, rates = train.checkpoint_index, train.query_index, train.success_rates
        self.mean_ = float(rates.mean())
        counts = np.bincount(place)
        means = self._shrunk(np.bincount(place, weights=rates), counts)
        levelled = rates - means[place] + self.mean_
        difficulty = fit_difficulty(train, levelled, self.strength, self.backbone)
        weights = rollout_weights(train.n_rollouts)
        ability = logit(means)[place]
        left_out = difficulty.means_without(query, levelled)
        self.seen_ = self._calibrate(ability, left_out, rates, weights)
        self.unseen_ = self._calibrate(ability, difficulty.regressed[query], rates, weights)
        self.difficulty_ = difficulty
        return self

    def update(self, outcomes: TrainingOutcomes) -> Self:
        """Fit anew on all outcomes so far."""
        return self.fit(self.train_.join(outcomes))

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]; mu(C) without training outcomes."""
        difficulty = fitted_difficulty(self)
        if difficulty is None:
            return np.full(len(queries), context.mean)
        n = len(context)
        ability = logit(self._shrunk(context.mean * n, n))
        values, seen = difficulty.of(queries)
        columns = self._columns(np.full(len(queries), ability), values)
        return expit(np.where(seen, columns @ self.seen_, columns @ self.unseen_))

    def _shrunk(self, sums: np.ndarray | float, counts: np.ndarray | int) -> np.ndarray:
        return beta_shrunk(sums, counts, self.mean_, self.ability_strength)

    def _columns(self, ability: np.ndarray, difficulty: np.ndarray) -> np.ndarray:
        relative = logit(difficulty) - logit(self.mean_)
        return np.column_stack([np.ones(len(ability)), ability, relative])

    def _calibrate(
        self, ability: np.ndarray, difficulty: np.ndarray, rates: np.ndarray, weights: np.ndarray
    ) -> np.ndarray:
        columns = self._columns(ability, difficulty)
        return fit_logistic(columns, rates, weights, PULL, centre=NO_TRAINING).coefficients
