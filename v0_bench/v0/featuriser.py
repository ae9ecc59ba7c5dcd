"""The residual path of V0: what training outcomes tell about a text, as features for the head.

The head of V0 sees one policy's context; how hard a text is for policies in general, and along
which lines policies differ, it cannot see there. Both are learned from the training outcomes by
ridge regression on the kernel of `text_kernel.py`, and enter the head as fixed features beside
those of the adapter:

* feature 0, the hint: how much easier than average the text is, in log odds;
* features 1 to R: loadings of the text on the R strongest components of what success rates are
  beyond policy and query (the residuals' singular vectors), scaled to mean square 1;
* S features that tell its data set, so that the context can say how good the policy is at each.

Values for training texts come from fits without that text, so that a head sees the same noise in
context and test. Axes: Q queries, J checkpoints, R components, S features of the data set, Z kernel
features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eigh

from v0_bench.embeddings.shards import text_key
from v0_bench.episode import TrainingOutcomes
from v0_bench.predictors.numerics import beta_shrunk, fit_logistic, logit, rollout_weights
from v0_bench.v0.text_kernel import TextKernel, fit_text_kernel, text_blocks

PENALTIES = np.logspace(-2.5, 2, 22)
KNOWN_STRENGTH = 2.0
"""Of the regression on the text, in outcomes, against a query's own training outcomes."""
ABILITY_STRENGTH = 10.0
PULL = np.array([0.1, 10.0, 1.0])
"""Weight of the plain sum of log odds in the hint's calibration, as in `additive`."""
LARGEST_SLOPE = 2.0
LEAST_QUERIES = 16
"""With fewer there is nothing to regress on."""


@dataclass(frozen=True)
class Featuriser:
    """Features of texts for the head, learned from training outcomes by `fit_featuriser`."""

    backbone: str
    kernel: TextKernel
    hints: _Ridge
    components: _Ridge
    slope: float
    """Of the hint from the text on its plain log odds."""
    mean: float
    places: dict[bytes, int]
    """Place of each training text among the Q, by `text_key`."""
    seen_hints: np.ndarray
    """(Q,) hints of training texts from their outcomes and the text together."""
    dataset_rows: dict[str, int]
    """Row of each training data set in `dataset_features`."""
    dataset_features: np.ndarray
    """Its S features; those of an unknown data set are 0."""

    @property
    def n_features(self) -> int:
        """1 + R + S."""
        return 1 + self.components.slopes.shape[1] + self.dataset_features.shape[1]

    @cached_property
    def left_out(self) -> np.ndarray:
        """Features (Q, 1 + R) of the training texts, from fits without them."""
        easiness = relative_log_odds(self.hints.left_out[:, 0], self.mean)
        return np.column_stack([self.slope * easiness, self.components.left_out])

    def knows(self, texts: Sequence[str]) -> np.ndarray:
        """Which texts have training outcomes, bool (n,)."""
        return self._places(texts) >= 0

    def features(
        self, texts: Sequence[str], datasets: Sequence[str], seen: bool = True
    ) -> np.ndarray:
        """Features, float32 (n, 1 + R + S).

        Those of training texts are from fits without them, but for the hint if `seen`: it then
        uses what is known of the text itself.
        """
        places = self._places(texts)
        found = np.empty((len(texts), self.left_out.shape[1]))
        new = np.flatnonzero(places < 0).tolist()
        found[new] = self._predict([texts[i] for i in new], [datasets[i] for i in new])
        known = places >= 0
        found[known] = self.left_out[places[known]]
        if seen:
            found[known, 0] = self.seen_hints[places[known]]
        told = np.zeros((len(texts), self.dataset_features.shape[1]))
        rows = np.array([self.dataset_rows.get(name, -1) for name in datasets], dtype=int)
        told[rows >= 0] = self.dataset_features[rows[rows >= 0]]
        return np.column_stack([found, told]).astype(np.float32)

    def _predict(self, texts: Sequence[str], datasets: Sequence[str]) -> np.ndarray:
        rows = self.kernel.features(text_blocks(texts, self.backbone), datasets)
        hints = self.slope * relative_log_odds(self.hints.predict(rows)[:, 0], self.mean)
        return np.column_stack([hints, self.components.predict(rows)])

    def _places(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([self.places.get(text_key(text), -1) for text in texts], dtype=int)


def fit_featuriser(
    train: TrainingOutcomes,
    backbone: str,
    components: int,
    dataset_features: int,
    landmarks: int,
    seed: int,
) -> Featuriser | None:
    """The featuriser of training outcomes; None where there is too little to learn from."""
    if len(train.queries) < LEAST_QUERIES or len(np.unique(train.success_rates)) < 2:
        return None
    queries = train.queries
    blocks = text_blocks(queries.texts, backbone)
    kernel = fit_text_kernel(blocks, queries.datasets, landmarks, seed)
    rows = kernel.features(blocks, queries.datasets)
    weights = rollout_weights(train.n_rollouts)
    mean = float(np.average(train.success_rates, weights=weights))
    ability = _ability(train, weights, mean)
    levelled = train.success_rates - ability[train.checkpoint_index] + mean
    count = np.bincount(train.query_index, weights=weights, minlength=len(queries))
    total = np.bincount(train.query_index, weights=weights * levelled, minlength=len(queries))
    regression = _Regression.on(rows, count > 0)
    hints = regression.fit((total / np.maximum(count, 1e-12))[:, None])
    left_out = hints.left_out[:, 0]
    known = beta_shrunk(total, count, left_out, KNOWN_STRENGTH)
    easiness = relative_log_odds(left_out, mean)
    slope = _slope(train, ability, easiness, weights)
    residuals = levelled - known[train.query_index]
    loadings = _loadings(train, weights * residuals, components)
    parts = regression.fit(loadings)
    if loadings.shape[1]:
        parts = parts.scaled(1 / max(float(np.sqrt(np.mean(parts.left_out**2))), 1e-9))
    places = {text_key(text): i for i, text in enumerate(queries.texts)}
    seen = relative_log_odds(known, mean)
    names = sorted(set(queries.datasets))
    rows_of = {name: i for i, name in enumerate(names)}
    told = _dataset_features(len(names), dataset_features)
    return Featuriser(backbone, kernel, hints, parts, slope, mean, places, seen, rows_of, told)


def _dataset_features(datasets: int, features: int) -> np.ndarray:
    """One column a data set, or random directions if there are too few columns; mean square 1."""
    if datasets < 2 or features == 0:
        return np.zeros((datasets, 0))
    if datasets <= features:
        return np.eye(datasets) * np.sqrt(datasets)
    directions = np.random.default_rng(0).normal(size=(datasets, features))
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    return directions / lengths * np.sqrt(features)


def _ability(train: TrainingOutcomes, weights: np.ndarray, mean: float) -> np.ndarray:
    """Mean success of each checkpoint, (J,), shrunk to the mean of all."""
    place, n = train.checkpoint_index, len(train.checkpoints)
    total = np.bincount(place, weights=weights * train.success_rates, minlength=n)
    count = np.bincount(place, weights=weights, minlength=n)
    return beta_shrunk(total, count, mean, ABILITY_STRENGTH)


def relative_log_odds(rates: np.ndarray, mean: float) -> np.ndarray:
    """Log odds of rates against those of `mean`."""
    return logit(rates, 0.01) - logit(mean)


def _slope(
    train: TrainingOutcomes, ability: np.ndarray, easiness: np.ndarray, weights: np.ndarray
) -> float:
    """The factor on `easiness` (Q,) with which it adds to the policy's log odds."""
    columns = np.column_stack(
        [
            np.ones(len(train)),
            logit(ability)[train.checkpoint_index],
            easiness[train.query_index],
        ]
    )
    plain_sum = np.array([0.0, 1.0, 1.0])
    fit = fit_logistic(columns, train.success_rates, weights, PULL, plain_sum)
    return float(np.clip(fit.coefficients[2], 0.0, LARGEST_SLOPE))


def _loadings(train: TrainingOutcomes, residuals: np.ndarray, components: int) -> np.ndarray:
    """Queries on the strongest components of the residuals (J, Q), (Q, R); absent ones are 0."""
    table = np.zeros((len(train.checkpoints), len(train.queries)))
    table[train.checkpoint_index, train.query_index] = residuals
    values, vectors = eigh(table @ table.T)
    kept = min(components, len(values) - 1)
    return table.T @ vectors[:, len(values) - kept :]


@dataclass(frozen=True)
class _Ridge:
    """Ridge regressions of several targets on the same rows, with one penalty."""

    centre: np.ndarray
    intercepts: np.ndarray
    slopes: np.ndarray
    """(Z, targets)."""
    left_out: np.ndarray
    """(Q, targets) predictions of each row by the fit without it."""

    def predict(self, rows: np.ndarray) -> np.ndarray:
        """(n, targets)."""
        return self.intercepts + (rows - self.centre) @ self.slopes

    def scaled(self, factor: float) -> _Ridge:
        """The fit to targets times `factor`."""
        return _Ridge(
            self.centre, factor * self.intercepts, factor * self.slopes, factor * self.left_out
        )


@dataclass(frozen=True)
class _Regression:
    """Rows to regress on, decomposed once for several targets."""

    rows: np.ndarray
    """Centred, (Q, Z)."""
    centre: np.ndarray
    used: np.ndarray
    """(Q,) bool: the rows to fit on, n of them."""
    values: np.ndarray
    """Eigenvalues (Z,) of the Gram matrix of the used rows."""
    vectors: np.ndarray
    projected: np.ndarray
    """Used rows on the eigenvectors, (n, Z)."""

    @classmethod
    def on(cls, rows: np.ndarray, used: np.ndarray) -> _Regression:
        """The regression on the rows `used`."""
        rows = rows.astype(float)
        centre = rows[used].mean(axis=0)
        rows = rows - centre
        values, vectors = eigh(rows[used].T @ rows[used], driver="evd")
        return cls(rows, centre, used, np.maximum(values, 0), vectors, rows[used] @ vectors)

    def fit(self, targets: np.ndarray) -> _Ridge:
        """Fit of (Q, targets); the penalty has the least leave-one-out error over all targets.

        The intercept is the mean of all rows also where one is left out. The mean of the others
        would be a mirror image of the row's own target, and all there is to see under a large
        penalty.
        """
        intercepts = targets[self.used].mean(axis=0)
        wanted = targets[self.used] - intercepts
        loads = self.projected.T @ wanted
        squares = self.projected**2
        best, shrunk, errors = np.inf, loads, wanted
        for penalty in PENALTIES:
            shrink = 1 / (self.values + penalty)
            leverage = np.minimum(squares @ shrink, 1 - 1e-6)
            left = (wanted - self.projected @ (shrink[:, None] * loads)) / (1 - leverage)[:, None]
            loss = float(np.sum(left**2))
            if loss < best:
                best, shrunk, errors = loss, shrink[:, None] * loads, left
        slopes = self.vectors @ shrunk
        left_out = intercepts + self.rows @ slopes
        left_out[self.used] = targets[self.used] - errors
        return _Ridge(self.centre, intercepts, slopes, left_out)
