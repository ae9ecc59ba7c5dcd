"""How hard each query is, from training outcomes: mean success, and its regression on the text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v0_bench.episode import Queries, TrainingOutcomes
from v0_bench.errors import V0BenchError
from v0_bench.predictors.base import Predictor
from v0_bench.predictors.numerics import RidgeFit, beta_shrunk, fit_ridge, rollout_weights


@dataclass(frozen=True)
class Difficulty:
    """Expected success rate of queries: of a seen text its shrunk mean, else a ridge on the text.

    Arrays hold one value per distinct training query; those without outcomes keep `regressed`.
    """

    texts: tuple[str, ...]
    sums: np.ndarray
    counts: np.ndarray
    regressed: np.ndarray
    """Success rate predicted from the text by a fit without that query."""
    strength: float
    ridge: RidgeFit
    backbone: str

    def means(self) -> np.ndarray:
        """Mean success rates, Beta-shrunk to the regressed ones with `strength`."""
        return beta_shrunk(self.sums, self.counts, self.regressed, self.strength)

    def means_without(self, rows: np.ndarray, rates: np.ndarray) -> np.ndarray:
        """Shrunk mean of query `rows[i]` with one outcome, `rates[i]`, taken out of it."""
        sums, counts = self.sums[rows] - rates, self.counts[rows] - 1
        return beta_shrunk(sums, counts, self.regressed[rows], self.strength)

    def of(self, queries: Queries) -> tuple[np.ndarray, np.ndarray]:
        """Expected success rates, (n,), and which of the texts were seen in training, (n,) bool."""
        places = {text: i for i, text in enumerate(self.texts)}
        found = np.array([places.get(text, -1) for text in queries.texts], dtype=int)
        known = found >= 0
        values = self.means()[found]
        if not known.all():
            values[~known] = self.ridge.predict(queries.embed(self.backbone)[~known])
        return np.clip(values, 0.0, 1.0), known & (self.counts[found] > 0)


def fit_difficulty(
    train: TrainingOutcomes, rates: np.ndarray, strength: float, backbone: str
) -> Difficulty:
    """Learn difficulty from one or more outcomes, with `rates` in place of their success rates."""
    n = len(train.queries)
    counts = np.bincount(train.query_index, minlength=n).astype(float)
    sums = np.bincount(train.query_index, weights=rates, minlength=n)
    embeddings = train.queries.embed(backbone)
    ridge = fit_ridge(embeddings, sums / np.maximum(counts, 1), rollout_weights(counts))
    regressed = np.clip(ridge.left_out, 0.0, 1.0)
    return Difficulty(train.queries.texts, sums, counts, regressed, strength, ridge, backbone)


def fitted_difficulty(predictor: Predictor) -> Difficulty | None:
    """The `difficulty_` of a predictor, None if fitted on nothing; V0BenchError before `fit`."""
    if not hasattr(predictor, "difficulty_"):
        raise V0BenchError(f"{predictor.name} learns from training outcomes: call fit first")
    return predictor.difficulty_
