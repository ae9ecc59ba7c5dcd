"""The formulas that predictors share, against slow independent computations."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from v0_bench.predictors.numerics import (
    PENALTIES,
    PrincipalAxes,
    beta_shrunk,
    fit_logistic,
    fit_ridge,
    logit,
    rollout_weights,
    soft_cross_entropy,
    squared_distances,
)


def sample(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, d))
    rates = 1 / (1 + np.exp(-features[:, 0] - rng.normal(size=n)))
    return features, rates, rng.uniform(0.3, 2.0, size=n)


def slow_ridge(
    x: np.ndarray, y: np.ndarray, w: np.ndarray, penalty: float
) -> tuple[float, np.ndarray]:
    """Intercept and slopes from the normal equations with an unpenalised column of ones."""
    columns = np.column_stack([np.ones(len(x)), x])
    ridge = penalty * np.diag([0.0] + [1.0] * x.shape[1])
    solution = np.linalg.solve(columns.T @ (w[:, None] * columns) + ridge, columns.T @ (w * y))
    return solution[0], solution[1:]


@pytest.mark.parametrize(("n", "d"), [(30, 4), (12, 25), (20, 20)])
def test_ridge_and_its_left_out_predictions(n: int, d: int) -> None:
    x, y, w = sample(n, d, seed=n)
    centred = x - np.average(x, axis=0, weights=w)
    unit = w @ (centred**2).sum(axis=1) / w.sum()
    fit = fit_ridge(x, y, w, penalties=[0.7])
    intercept, slopes = slow_ridge(x, y, w, 0.7 * unit)
    new = np.random.default_rng(1).normal(size=(5, d))
    np.testing.assert_allclose(fit.predict(new), intercept + new @ slopes)
    for i in range(n):
        rest = np.arange(n) != i
        intercept, slopes = slow_ridge(x[rest], y[rest], w[rest], 0.7 * unit)
        assert fit.left_out[i] == pytest.approx(intercept + x[i] @ slopes)


def test_ridge_takes_the_penalty_of_the_least_left_out_error() -> None:
    x, y, w = sample(40, 10, seed=3)
    chosen = fit_ridge(x, y, w)
    errors = [w @ (fit_ridge(x, y, w, [p]).left_out - y) ** 2 for p in PENALTIES]
    assert w @ (chosen.left_out - y) ** 2 == pytest.approx(min(errors))


def test_ridge_ignores_rows_of_weight_zero() -> None:
    x, y, w = sample(30, 4, seed=5)
    w[20:] = 0
    fit, without = fit_ridge(x, y, w), fit_ridge(x[:20], y[:20], w[:20])
    np.testing.assert_allclose(fit.predict(x), without.predict(x))
    np.testing.assert_allclose(fit.left_out[20:], without.predict(x[20:]))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_ridge_on_equal_rows_is_the_mean(n: int) -> None:
    y = np.linspace(0, 1, n)
    fit = fit_ridge(np.ones((n, 3)), y, np.ones(n))
    np.testing.assert_allclose(fit.predict(np.eye(3)), y.mean())
    assert np.isfinite(fit.left_out).all()


def test_axes_are_orthogonal_and_keep_distances() -> None:
    for n, d in ((50, 6), (8, 30)):
        x, _, w = sample(n, d, seed=d)
        features = PrincipalAxes.of(x, w).project(x)
        gram = features.T @ (w[:, None] * features)
        np.testing.assert_allclose(gram, np.diag(np.diag(gram)), atol=1e-9)
        apart = ((x[:, None] - x) ** 2).sum(axis=2)
        np.testing.assert_allclose(squared_distances(features, features), apart, atol=1e-9)


def test_logistic_minimises_the_penalised_loss() -> None:
    x, y, w = sample(60, 3, seed=8)
    columns = np.column_stack([np.ones(60), x])
    penalty, centre = np.array([0.1, 2.0, 2.0, 2.0]), np.array([0.0, 1.0, 0.0, -1.0])

    def loss(b: np.ndarray) -> float:
        scores = columns @ b
        total = np.sum(w * (np.log1p(np.exp(scores)) - y * scores))
        return float(total + 0.5 * np.sum(penalty * (b - centre) ** 2))

    slow = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).x
    fit = fit_logistic(columns, y, w, penalty, centre=centre)
    np.testing.assert_allclose(fit.coefficients, slow, atol=1e-5)
    assert soft_cross_entropy(columns @ slow, y, w) == pytest.approx(
        (loss(slow) - 0.5 * np.sum(penalty * (slow - centre) ** 2)) / w.sum()
    )


def test_logistic_left_out_scores_are_near_those_of_refits() -> None:
    x, y, w = sample(60, 3, seed=9)
    penalty = np.full(3, 1.5)
    fit = fit_logistic(x, y, w, penalty)
    exact = []
    for i in range(60):
        rest = np.arange(60) != i
        exact.append(x[i] @ fit_logistic(x[rest], y[rest], w[rest], penalty).coefficients)
    np.testing.assert_allclose(fit.left_out, exact, atol=0.01)
    assert np.abs(x @ fit.coefficients - exact).max() > 0.02  # leaving out does matter here


def test_logistic_stays_finite_on_separable_outcomes_with_long_rows() -> None:
    x = np.array([[1.0, -1e3], [1.0, 1e3]])
    fit = fit_logistic(x, np.array([0.0, 1.0]), np.ones(2), np.array([0.1, 1e-3]))
    assert np.isfinite(fit.coefficients).all()
    assert fit.coefficients[1] > 0


def test_rollout_weights_by_hand() -> None:
    np.testing.assert_allclose(rollout_weights(np.array([1, 3, 9])), [1 / 2, 3 / 4, 9 / 10])


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1), max_size=20),
    st.floats(0, 1),
    st.floats(0.01, 100),
)
def test_a_shrunk_mean_lies_between_mean_and_prior(
    rates: list[float], prior: float, strength: float
) -> None:
    mean = np.mean(rates) if rates else prior
    value = beta_shrunk(float(np.sum(rates)), len(rates), prior, strength)
    assert min(mean, prior) - 1e-12 <= value <= max(mean, prior) + 1e-12


@given(st.floats(0, 1))
def test_logit_is_finite_and_odd(rate: float) -> None:
    assert np.isfinite(logit(rate))
    assert logit(rate) == pytest.approx(-logit(1 - rate), abs=1e-9)
