"""`query-difficulty`: how often training checkpoints solved the query, whatever the policy."""

from __future__ import annotations

from typing import Self

import numpy as np

from v0_bench.episode import Context, Queries, TrainingOutcomes
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor
from v0_bench.predictors.difficulty import Difficulty, fit_difficulty, fitted_difficulty


@register_predictor
class QueryDifficulty(Predictor):
    """Mean training success of the query, Beta-shrunk to what a ridge on the text expects.

    An unseen text gets the ridge's answer. `strength` counts the outcomes that the answer of the
    ridge is worth. Without training outcomes every value is one half.
    """

    name = "query-difficulty"
    info = PredictorInfo(summary="Mean training success, regressed on text if unseen.")

    def __init__(self, strength: float = 2.0, backbone: str = "minilm") -> None:
        self.strength = strength
        self.backbone = backbone

    def fit(self, train: TrainingOutcomes) -> Self:
        """Learn the mean success of each query and its regression on the text."""
        self.train_ = train
        self.difficulty_: Difficulty | None = None
        if len(train):
            self.difficulty_ = fit_difficulty(
                train, train.success_rates, self.strength, self.backbone
            )
        return self

    def update(self, outcomes: TrainingOutcomes) -> Self:
        """Fit anew on all outcomes so far."""
        return self.fit(self.train_.join(outcomes))

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]; the context is not read."""
        difficulty = fitted_difficulty(self)
        if difficulty is None:
            return np.full(len(queries), 0.5)
        return difficulty.of(queries)[0]
