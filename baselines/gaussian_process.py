"""`gaussian-process`: a Gaussian process on text embeddings, tuned by marginal likelihood."""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh, solve

from v0_bench.episode import Context, Queries
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor
from v0_bench.predictors.numerics import rollout_weights, squared_distances

WIDTHS = (0.25, 0.5, 1.0, 2.0, 8.0)
"""Kernel widths to try, in units of the median distance between context items."""
RATIOS = np.logspace(-3, 1.5, 46)
"""Ratios of signal variance to noise variance to try."""


@register_predictor
class GaussianProcess(Predictor):
    """Squared-exponential kernel on embeddings, with a noise variance that knows the rollouts.

    A success rate over k rollouts has noise variance proportional to 1 + 1/k: what the text leaves
    open about the true rate, and the binomial noise around it. Kernel width, signal variance and
    noise variance maximise the marginal likelihood of the newest `tuning_size` items; the newest
    `memory` items are then conditioned on.
    """

    name = "gaussian-process"
    info = PredictorInfo(summary="Gaussian process on embeddings, fitted on the context.")

    def __init__(
        self, memory: int = 2048, tuning_size: int = 512, backbone: str = "minilm"
    ) -> None:
        self.memory = memory
        self.tuning_size = tuning_size
        self.backbone = backbone

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]."""
        items = context.newest(self.memory)
        if len(items) < 2:
            return np.full(len(queries), items.mean)
        rows = items.embed(self.backbone)
        weights = rollout_weights(items.n_rollouts)
        mean = np.average(items.success_rates, weights=weights)
        residuals = items.success_rates - mean
        squares = squared_distances(rows, rows)
        recent = slice(-self.tuning_size, None)
        width, ratio = _tune(squares[recent, recent], residuals[recent], weights[recent])
        kernel = ratio * np.exp(-squares / width)
        pull = solve(kernel + np.diag(1 / weights), residuals, assume_a="pos")
        cross = np.exp(-squared_distances(queries.embed(self.backbone), rows) / width)
        return np.clip(mean + ratio * cross @ pull, 0.0, 1.0)


def _tune(squares: np.ndarray, residuals: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Width (of squared distance) and signal-to-noise ratio of the greatest marginal likelihood.

    One eigendecomposition per width gives the likelihood at every ratio; the noise variance has a
    closed form.
    """
    scale = np.sqrt(weights)
    apart = squares[squares > 1e-9]
    typical = float(np.median(apart)) if apart.size else 1.0
    best = (-np.inf, typical, float(RATIOS[0]))
    for width in WIDTHS:
        kernel = np.exp(-squares / (2 * width**2 * typical))
        values, vectors = eigh(scale[:, None] * kernel * scale)
        loadings = (vectors.T @ (scale * residuals)) ** 2
        variances = RATIOS[:, None] * np.maximum(values, 0) + 1
        noise = np.maximum((loadings / variances).mean(axis=1), 1e-12)
        likelihood = -len(residuals) * np.log(noise) - np.log(variances).sum(axis=1)
        top = int(np.argmax(likelihood))
        if likelihood[top] > best[0]:
            best = (float(likelihood[top]), 2 * width**2 * typical, float(RATIOS[top]))
    return best[1], best[2]
