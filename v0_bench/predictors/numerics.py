"""The few formulas that predictors share: Beta shrinkage, rollout weights, ridge and logistic fits.

Rows of `features` are items, `targets` are success rates. Everything is float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.special import expit
from scipy.special import logit as exact_logit

PENALTIES = tuple(np.logspace(-1, 4, 21))
"""Ridge penalties to choose from, in units of the mean squared norm of a centred row."""


def logit(rates: np.ndarray | float, edge: float = 1e-3) -> np.ndarray:
    """Log odds of rates clipped to [edge, 1 - edge], so that 0 and 1 stay finite."""
    return np.asarray(exact_logit(np.clip(rates, edge, 1 - edge)))


def beta_shrunk(
    sums: np.ndarray | float,
    counts: np.ndarray | int,
    prior: np.ndarray | float,
    strength: float,
) -> np.ndarray:
    """Means of `counts` values, pulled to `prior` as if `strength` more values had equalled it."""
    return np.asarray((sums + strength * prior) / (counts + strength))


def rollout_weights(n_rollouts: np.ndarray) -> np.ndarray:
    """Weight k / (k + 1) of a success rate over k rollouts, (n,).

    The inverse variance, up to a factor, if true rates follow a Beta law with a + b = 1 (most
    queries nearly always solved or nearly never): they then vary among queries as much as a single
    rollout varies around its rate.
    """
    k = np.asarray(n_rollouts, dtype=float)
    return k / (k + 1)


@dataclass(frozen=True)
class PrincipalAxes:
    """Centre and principal axes of weighted rows: `project` turns rows into orthogonal features."""

    centre: np.ndarray
    axes: np.ndarray

    @classmethod
    def of(cls, features: np.ndarray, weights: np.ndarray) -> PrincipalAxes:
        """Axes with non-zero variance; the smaller Gram matrix is diagonalised."""
        centre = np.average(features, axis=0, weights=weights)
        rows = np.sqrt(weights)[:, None] * (features - centre)
        n, d = rows.shape
        squares, vectors = eigh(rows.T @ rows if d <= n else rows @ rows.T)
        kept = squares > 1e-10 * max(squares[-1], 1e-10)
        vectors = vectors[:, kept]
        if n < d:
            vectors = rows.T @ vectors / np.sqrt(squares[kept])
        return cls(centre, vectors)

    def project(self, features: np.ndarray) -> np.ndarray:
        """Coordinates of rows on the axes, (n, number of axes)."""
        return np.asarray((features - self.centre) @ self.axes)


@dataclass(frozen=True)
class RidgeFit:
    """A ridge regression with a free intercept, its penalty chosen by leave-one-out error."""

    axes: PrincipalAxes
    intercept: float
    slopes: np.ndarray
    left_out: np.ndarray
    """Prediction of each row by the fit on all others, (n,)."""

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Unclipped predictions for rows, (n,)."""
        return self.intercept + self.axes.project(features) @ self.slopes


def fit_ridge(
    features: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    penalties: Sequence[float] = PENALTIES,
) -> RidgeFit:
    """Weighted ridge regression; closed-form leave-one-out residuals choose the penalty."""
    features = np.asarray(features, dtype=float)
    axes = PrincipalAxes.of(features, weights)
    rows = axes.project(features)
    intercept = float(np.average(targets, weights=weights))
    squares = weights @ rows**2
    unit = max(squares.sum() / weights.sum(), 1e-12)
    correlations = rows.T @ (weights * (targets - intercept))
    fits = []
    for penalty in penalties:
        slopes = correlations / (squares + penalty * unit)
        leverage = weights * (rows**2 @ (1 / (squares + penalty * unit)) + 1 / weights.sum())
        residuals = (targets - intercept - rows @ slopes) / np.maximum(1 - leverage, 1e-6)
        fits.append((float(weights @ residuals**2), slopes, residuals))
    _, slopes, residuals = min(fits, key=lambda fit: fit[0])
    return RidgeFit(axes, intercept, slopes, targets - residuals)


@dataclass(frozen=True)
class LogisticFit:
    """Coefficients of a logistic regression and the linear scores of rows left out."""

    coefficients: np.ndarray
    left_out: np.ndarray


def fit_logistic(
    features: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    penalty: np.ndarray,
    centre: np.ndarray | float = 0.0,
    start: np.ndarray | None = None,
) -> LogisticFit:
    """Weighted logistic regression on soft targets, by Newton steps.

    A squared `penalty` per column pulls the coefficients to `centre`. No intercept is added: give a
    column of ones. `left_out` holds approximate leave-one-out scores, one Newton step away from the
    fit (Rad and Maleki, arXiv 1801.10243).
    """
    coefficients = np.zeros(features.shape[1]) + centre if start is None else start
    for _ in range(50):
        p = expit(features @ coefficients)
        curvature = weights * p * (1 - p)
        hessian = cho_factor((features * curvature[:, None]).T @ features + np.diag(penalty))
        gradient = features.T @ (weights * (targets - p)) - penalty * (coefficients - centre)
        step = cho_solve(hessian, gradient)
        largest = np.max(np.abs(features @ step), initial=0.0)
        coefficients = coefficients + step * min(1.0, 4.0 / max(largest, 1e-12))
        if largest < 1e-5:
            break
    spread = np.einsum("ij,ji->i", features, cho_solve(hessian, features.T))
    pull = weights * (targets - p) * spread / np.maximum(1 - curvature * spread, 1e-6)
    return LogisticFit(coefficients, features @ coefficients - pull)


def soft_cross_entropy(scores: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
    """Weighted mean cross entropy, in nats, of log odds `scores` for success rates `targets`."""
    losses = np.logaddexp(0.0, scores) - targets * scores
    return float(np.average(losses, weights=weights))


def squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared Euclidean distances between rows, (len(a), len(b)), never negative."""
    a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    squares = np.sum(a**2, axis=1)[:, None] + np.sum(b**2, axis=1) - 2 * a @ b.T
    return np.maximum(squares, 0.0)
