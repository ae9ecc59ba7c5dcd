"""The residual path of V0: surface counts, the kernel on texts, hints and components."""

import numpy as np
import pytest
from scipy.special import expit

import outcome_samples as samples
from v0_bench import Queries, TrainingOutcomes
from v0_bench.episode import Checkpoint
from v0_bench.predictors.numerics import logit
from v0_bench.v0.featuriser import (
    PENALTIES,
    _dataset_features,
    _Regression,
    fit_featuriser,
    relative_log_odds,
)
from v0_bench.v0.surface import N_SURFACE, surface_features
from v0_bench.v0.text_kernel import DATASET_WEIGHT, fit_text_kernel, text_blocks


def training(n_queries: int, policies: np.ndarray, seed: int = 0) -> TrainingOutcomes:
    """Outcomes on `samples.texts` with log odds by topic: `policies` (J, topics)."""
    rng = np.random.default_rng(seed)
    texts = samples.texts(n_queries, seed)
    topic = np.array([samples.TOPICS.index(" ".join(t.split(" in case")[:1])) for t in texts])
    checkpoint, query = np.divmod(np.arange(len(policies) * n_queries), n_queries)
    rates = rng.binomial(10, expit(policies[checkpoint, topic[query]])) / 10
    n = len(rates)
    return TrainingOutcomes(
        Queries(tuple(texts), tuple(map(str, range(n_queries))), ("",) * n_queries),
        tuple(Checkpoint(f"p{j}", None, f"f{j}") for j in range(len(policies))),
        query,
        checkpoint,
        rates,
        np.full(n, 10),
        np.full(n, np.nan),
    )


def test_surface_by_hand() -> None:
    row = surface_features(["Is 12 + 345 = 7?"])[0]
    logs = [16, 6, 3, 3, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2]
    assert row[:14] == pytest.approx(np.log1p(logs))
    assert row[14:] == pytest.approx([6 / 16, 1 / 16, 11 / 6 / 10, 1.0])


@pytest.mark.parametrize("text", ["", " ", "\n", "x" * 1_000_000, "½÷∑", "\ud800"])
def test_surface_of_odd_texts_is_finite(text: str) -> None:
    found = surface_features([text, "plain"])
    assert found.shape == (2, N_SURFACE)
    assert np.isfinite(found).all()


def slow_kernel(blocks: list[np.ndarray], datasets: list[str]) -> np.ndarray:
    """The kernel of the module's page, one pair at a time."""
    n = len(datasets)
    kernel = np.zeros((n, n))
    for block in blocks:
        if block.shape[1] < 32:
            block = block / np.where(block.std(axis=0) > 1e-6, block.std(axis=0), 1)
        squares = np.array([[np.sum((a - b) ** 2) for b in block] for a in block])
        median = np.median(squares[squares > 1e-9])
        kernel += np.exp(-squares / median / 2) / len(blocks)
    same = [[DATASET_WEIGHT * (a == b) for b in datasets] for a in datasets]
    return kernel + np.array(same)


def test_features_have_the_kernel_as_inner_products() -> None:
    texts = samples.texts(40)
    datasets = samples.datasets(texts)
    blocks = text_blocks(texts, "hash")
    kernel = fit_text_kernel(blocks, datasets, landmarks=1000, seed=0)
    rows = kernel.features(blocks, datasets)
    assert rows @ rows.T == pytest.approx(slow_kernel(blocks, list(datasets)), abs=2e-3)


def test_features_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = samples.texts(50)
    blocks = text_blocks(texts, "hash")
    kernel = fit_text_kernel(blocks, [""] * 50, landmarks=20, seed=1)
    whole = kernel.features(blocks, [""] * 50)
    assert whole.shape[1] <= 20
    monkeypatch.setattr("v0_bench.v0.text_kernel.ROWS_AT_ONCE", 7)
    assert kernel.features(blocks, [""] * 50) == pytest.approx(whole, abs=1e-5)
    assert kernel.features([block[:0] for block in blocks], []).shape == (0, whole.shape[1])


def test_left_out_predictions_are_those_of_fits_without_the_row() -> None:
    rng = np.random.default_rng(0)
    rows, targets = rng.normal(size=(30, 6)), rng.normal(size=(30, 2))
    fit = _Regression.on(rows, np.ones(30, bool)).fit(targets)

    def without(i: int, penalty: float) -> np.ndarray:
        kept = np.arange(30) != i
        # centre and intercept are those of all rows
        x = rows[kept] - rows.mean(axis=0)
        y = targets[kept] - targets.mean(axis=0)
        slopes = np.linalg.solve(x.T @ x + penalty * np.eye(6), x.T @ y)
        return targets.mean(axis=0) + (rows[i] - rows.mean(axis=0)) @ slopes

    options = [np.array([without(i, penalty) for i in range(30)]) for penalty in PENALTIES]
    best = min(options, key=lambda left_out: float(np.sum((left_out - targets) ** 2)))
    assert fit.left_out == pytest.approx(best, abs=1e-8)


def test_hint_knows_how_hard_a_topic_is() -> None:
    easiness = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    train = training(200, np.linspace(-1, 1, 6)[:, None] + easiness)
    fitted = fit_featuriser(train, "hash", components=4, dataset_features=0, landmarks=100, seed=0)
    assert fitted is not None
    asked = samples.texts(100, seed=9)
    topic = [samples.TOPICS.index(text.split(" in case")[0]) for text in asked]
    hints = fitted.features(asked, [""] * 100)[:, 0]
    assert np.corrcoef(hints, easiness[topic])[0, 1] > 0.95
    assert np.polyfit(easiness[topic], hints, 1)[0] == pytest.approx(1.0, abs=0.25)


@pytest.mark.parametrize("seed", range(4))
def test_hints_of_training_queries_are_blind_to_their_own_outcomes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 2, 150)
    train = training(150, np.zeros((5, 5)), seed)
    rates = expit(noise)[train.query_index]
    train = TrainingOutcomes(
        train.queries,
        train.checkpoints,
        train.query_index,
        train.checkpoint_index,
        rates,
        train.n_rollouts,
        train.costs,
    )
    fitted = fit_featuriser(train, "hash", components=4, dataset_features=0, landmarks=150, seed=0)
    assert fitted is not None
    blind = fitted.features(train.queries.texts, train.queries.datasets, seen=False)[:, 0]
    assert np.corrcoef(blind, noise)[0, 1] < 0.2
    seen = fitted.features(train.queries.texts, train.queries.datasets, seen=True)[:, 0]
    assert np.corrcoef(seen, noise)[0, 1] > 0.95


def test_components_tell_apart_what_policies_differ_on() -> None:
    rng = np.random.default_rng(5)
    contrast = np.array([1.0, 1.0, 0.0, -1.0, -1.0])
    train = training(200, rng.normal(0, 1.5, 12)[:, None] * contrast)
    fitted = fit_featuriser(train, "hash", components=3, dataset_features=0, landmarks=100, seed=0)
    assert fitted is not None
    asked = samples.texts(100, seed=11)
    topic = [samples.TOPICS.index(text.split(" in case")[0]) for text in asked]
    loadings = fitted.features(asked, [""] * 100)[:, 1:]
    assert loadings.shape == (100, 3)
    strongest = loadings[:, -1]
    assert abs(np.corrcoef(strongest, contrast[topic])[0, 1]) > 0.9
    assert np.mean(fitted.left_out[:, 1:] ** 2) == pytest.approx(1.0, rel=1e-3)


def test_relative_log_odds() -> None:
    assert relative_log_odds(np.array([0.5, 0.8]), 0.5) == pytest.approx([0, float(logit(0.8))])
    assert np.isfinite(relative_log_odds(np.array([0.0, 1.0]), 0.3)).all()


@pytest.mark.parametrize("n_queries", [0, 3, 15])
def test_too_little_to_learn_from(n_queries: int) -> None:
    assert fit_featuriser(samples.training(n_queries, 3), "hash", 4, 0, 50, 0) is None


def test_one_checkpoint_has_no_components() -> None:
    fitted = fit_featuriser(samples.training(40, 1), "hash", 4, 0, 50, 0)
    assert fitted is not None
    assert fitted.n_features == 1
    assert fitted.left_out.shape == (40, 1)
    assert np.isfinite(fitted.left_out).all()


@pytest.mark.parametrize(("columns", "kept"), [(0, 0), (5, 5), (16, 5)])
def test_data_sets_are_told_apart(columns: int, kept: int) -> None:
    train = samples.training(40, 5)
    names = sorted(set(train.queries.datasets))
    assert len(names) == 5
    fitted = fit_featuriser(train, "hash", 4, columns, 50, 0)
    assert fitted is not None
    told = fitted.features(list("vwxyzvw"), [*names, names[0], "unheard of"])
    told = told[:, fitted.left_out.shape[1] :]
    assert told.shape == (7, kept)
    np.testing.assert_array_equal(told[5], told[0])
    assert not told[6].any()
    np.testing.assert_allclose(told[:5] @ told[:5].T, kept * np.eye(5), rtol=1e-6)


def test_more_data_sets_than_features_share_random_directions() -> None:
    told = _dataset_features(40, 16)
    np.testing.assert_allclose((told**2).mean(axis=1), 1)
    alike = told @ told.T / 16
    assert np.abs(alike[~np.eye(40, dtype=bool)]).max() < 0.9
    assert _dataset_features(1, 16).shape == (1, 0)
