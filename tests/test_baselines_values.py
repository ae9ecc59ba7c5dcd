"""What each baseline predicts, against hand-computed cases and slow independent computations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from outcome_samples import context, queries, training
from v0_bench import Context, Queries, TrainingOutcomes, V0BenchError
from v0_bench.baselines.additive import Additive
from v0_bench.baselines.context_mean import ContextMean
from v0_bench.baselines.dataset_mean import DatasetMean
from v0_bench.baselines.gaussian_process import RATIOS, WIDTHS, GaussianProcess
from v0_bench.baselines.knn import NearestNeighbours
from v0_bench.baselines.knn_smoothed import SmoothedNeighbours
from v0_bench.baselines.length import Length
from v0_bench.baselines.logistic import Logistic
from v0_bench.baselines.query_difficulty import QueryDifficulty
from v0_bench.baselines.random import Random
from v0_bench.baselines.ridge import Ridge


def of_datasets(names: str, rates: list[float] | None = None) -> Context | Queries:
    """Queries (or a context) whose data sets are the letters of `names`."""
    ids = tuple(f"{name}{i}" for i, name in enumerate(names))
    if rates is None:
        return Queries(ids, ids, tuple(names))
    n = len(rates)
    return Context(ids, np.array(rates), np.ones(n, int), ids, tuple(names), np.full(n, np.nan))


def test_context_mean_by_hand() -> None:
    seen = Context.from_pairs([("a", 1.0), ("b", 0.25), ("c", 0.25)])
    np.testing.assert_array_equal(
        ContextMean().predict(seen, Queries.from_texts(["x", "y"])), [0.5, 0.5]
    )


def test_dataset_mean_by_hand() -> None:
    seen = of_datasets("aaab", [1.0, 1.0, 1.0, 0.0])  # mu(C) = 3/4
    values = DatasetMean(strength=4).predict(seen, of_datasets("abc"))
    np.testing.assert_allclose(values, [(3 + 3) / 7, (0 + 3) / 5, 0.75])


def test_random_is_uniform_and_set_by_its_keys() -> None:
    asked = Queries.from_texts(["text"] * 4000)
    values = Random().predict(context(3), asked)
    assert abs(values.mean() - 0.5) < 0.02
    assert abs(values.var() - 1 / 12) < 0.005
    assert len(set(values)) == 4000
    for other in (
        Random(seed=1).predict(context(3), asked),
        Random().predict(Context.from_pairs([("a", 1.0)]), asked),
    ):
        assert abs(np.corrcoef(values, other)[0, 1]) < 0.06


def test_knn_takes_the_mean_of_the_nearest() -> None:
    seen, asked = context(200), queries(30)
    rows, targets = seen.embed("hash"), asked.embed("hash")
    values = NearestNeighbours(k=7, backbone="hash").predict(seen, asked)
    for value, target in zip(values, targets, strict=True):
        distances = np.linalg.norm(rows - target, axis=1)
        inside = np.sort(distances)[6]
        sure = seen.success_rates[distances < inside - 1e-6].sum()
        tied = seen.success_rates[np.abs(distances - inside) <= 1e-6]
        left = 7 - (distances < inside - 1e-6).sum()
        low, high = np.sort(tied)[:left].sum(), np.sort(tied)[-left:].sum()
        assert sure + low - 1e-9 <= 7 * value <= sure + high + 1e-9


def test_knn_remembers_the_newest_items_only() -> None:
    rates = np.concatenate([np.ones(50), np.zeros(100)])
    seen = context(150, rates=rates)
    values = NearestNeighbours(k=10, memory=100, backbone="hash").predict(seen, queries(5))
    np.testing.assert_array_equal(values, 0.0)


def test_knn_caps_k_by_the_context() -> None:
    seen = context(20)
    values = NearestNeighbours(backbone="hash").predict(seen, queries(5))
    np.testing.assert_allclose(values, seen.mean)


def test_smoothed_knn_by_the_formula() -> None:
    seen, asked = context(40), queries(6)
    values = SmoothedNeighbours(temperature=0.3, strength=0.7, backbone="hash").predict(seen, asked)
    for i, target in enumerate(asked.embed("hash").astype(float)):
        top, bottom = 0.7 * seen.mean, 0.7
        for j, row in enumerate(seen.embed("hash").astype(float)):
            cosine = row @ target / np.linalg.norm(row) / np.linalg.norm(target)
            k = seen.n_rollouts[j]
            weight = np.exp((cosine - 1) / 0.3) * 2 * k / (k + 1)
            top, bottom = top + weight * seen.success_rates[j], bottom + weight
        assert values[i] == pytest.approx(top / bottom, abs=1e-6)


def test_length_learns_its_sign_from_the_context_without_training() -> None:
    pairs = [("x" * n, 1.0 if n < 50 else 0.0) for n in range(10, 90)]
    values = Length().predict(Context.from_pairs(pairs), Queries.from_texts(["x" * 12, "x" * 80]))
    assert values[0] > 0.8
    assert values[1] < 0.2


def test_length_prefers_training_outcomes_to_the_context() -> None:
    train = training(n_queries=60)
    lengths = np.array([len(text) for text in train.queries.texts])
    rates = (lengths > np.median(lengths)).astype(float)[train.query_index]
    longer_is_easier = TrainingOutcomes(
        train.queries,
        train.checkpoints,
        train.query_index,
        train.checkpoint_index,
        rates,
        train.n_rollouts,
        train.costs,
    )
    seen = Context.from_pairs([("x" * n, float(n < 50)) for n in range(10, 90)])
    values = Length().fit(longer_is_easier).predict(seen, Queries.from_texts(["x" * 12, "x" * 80]))
    assert values[0] < values[1]


def test_query_difficulty_shrinks_the_mean_of_a_seen_text() -> None:
    train = training()
    predictor = QueryDifficulty(strength=3, backbone="hash").fit(train)
    values = predictor.predict(context(5), train.queries)
    text_only = QueryDifficulty(strength=1e9, backbone="hash").fit(train)
    regressed = text_only.predict(context(5), train.queries)
    for i in range(len(train.queries)):
        rates = train.success_rates[train.query_index == i]
        expected = (rates.sum() + 3 * regressed[i]) / (len(rates) + 3)
        assert values[i] == pytest.approx(expected, abs=1e-6)


def test_query_difficulty_reads_the_text_of_an_unseen_query() -> None:
    words = ["easy", "hard"]
    asked = Queries.from_texts([f"{words[i % 2]} item {i}" for i in range(80)])
    rates = np.array([1.0, 0.0] * 40)
    train = TrainingOutcomes(
        asked,
        training().checkpoints[:1],
        np.arange(80),
        np.zeros(80, int),
        rates,
        np.ones(80, int),
        np.full(80, np.nan),
    )
    predictor = QueryDifficulty(backbone="hash").fit(train)
    values = predictor.predict(context(5), Queries.from_texts(["easy item 901", "hard item 901"]))
    assert values[0] > 0.7
    assert values[1] < 0.3


def test_additive_beats_both_of_its_parts_on_additive_outcomes() -> None:
    train = training(n_queries=300, n_checkpoints=12)
    shown, new = np.arange(300) < 200, 11
    rows = train.checkpoint_index == new
    old = ~rows
    seen_by_others = TrainingOutcomes(
        train.queries,
        train.checkpoints,
        train.query_index[old],
        train.checkpoint_index[old],
        train.success_rates[old],
        train.n_rollouts[old],
        train.costs[old],
    )
    rates = train.success_rates[rows]
    seen = Context.from_pairs(
        [(t, r, 10) for t, r, s in zip(train.queries.texts, rates, shown, strict=True) if s]
    )
    asked = Queries.from_texts([train.queries.texts[i] for i in np.flatnonzero(~shown)])

    def error(predictor: Additive | QueryDifficulty | ContextMean) -> float:
        values = predictor.fit(seen_by_others).predict(seen, asked)
        return float(np.mean((values - rates[~shown]) ** 2))

    additive = error(Additive(backbone="hash"))
    assert additive < 0.6 * error(QueryDifficulty(backbone="hash"))
    assert additive < 0.6 * error(ContextMean())


@pytest.mark.parametrize("cls", [Additive, QueryDifficulty])
def test_learners_ask_to_be_fitted_first(cls: type) -> None:
    with pytest.raises(V0BenchError, match="call fit first"):
        cls(backbone="hash").predict(context(10), queries(2))


@pytest.mark.parametrize("cls", [Ridge, Logistic, GaussianProcess])
def test_regressions_find_a_signal_in_the_text(cls: type) -> None:
    asked = Queries.from_texts([f"{'easy' if i % 3 else 'hard'} item {i}" for i in range(60)])
    pairs = [(text, float("easy" in text)) for text in asked.texts[:40]]
    values = cls(backbone="hash").predict(Context.from_pairs(pairs), asked)[40:]
    truth = np.array(["easy" in text for text in asked.texts[40:]])
    assert values[truth].min() > values[~truth].max()
    assert np.mean((values - truth) ** 2) < 0.1


def test_gaussian_process_maximises_the_likelihood_of_its_grid() -> None:
    seen, asked = context(60, seed=2), queries(8)
    rows, targets = seen.embed("hash").astype(float), asked.embed("hash").astype(float)
    noise = 1 + 1 / seen.n_rollouts
    mean = np.average(seen.success_rates, weights=1 / noise)
    y = seen.success_rates - mean
    squares = ((rows[:, None] - rows) ** 2).sum(axis=2)
    typical = np.median(squares[squares > 1e-9])
    best = (-np.inf, 1.0, 1.0)
    for width in WIDTHS:
        for ratio in RATIOS:
            shape = ratio * np.exp(-squares / (2 * width**2 * typical)) + np.diag(noise)
            scale = y @ np.linalg.solve(shape, y) / len(y)
            likelihood = multivariate_normal(cov=scale * shape, allow_singular=True).logpdf(y)
            best = max(best, (likelihood, width, ratio))
    _, width, ratio = best
    kernel = ratio * np.exp(-squares / (2 * width**2 * typical)) + np.diag(noise)
    away = ((targets[:, None] - rows) ** 2).sum(axis=2)
    cross = ratio * np.exp(-away / (2 * width**2 * typical))
    expected = np.clip(mean + cross @ np.linalg.solve(kernel, y), 0, 1)
    values = GaussianProcess(backbone="hash").predict(seen, asked)
    np.testing.assert_allclose(values, expected, atol=1e-6)
