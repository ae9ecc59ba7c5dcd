"""What every registered predictor must do, whatever it predicts."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import (
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_parameters_default_constructible,
    check_set_params,
)

from outcome_samples import context, queries, texts, training
from v0_bench import Context, Predictor, Queries, create_predictor
from v0_bench.predictors import available_predictors, check_values

NAMES = tuple(available_predictors())
LEARNS = ("additive", "query-difficulty", "length")

pytestmark = pytest.mark.parametrize("name", NAMES)


def make(name: str) -> Predictor:
    predictor = create_predictor(name, backbone="hash")
    reason = predictor.why_unavailable()
    if reason is not None:
        pytest.skip(reason)
    return predictor


def subset(asked: Queries, order: np.ndarray) -> Queries:
    return Queries(
        *(
            tuple(np.array(part, dtype=object)[order])
            for part in (asked.texts, asked.query_ids, asked.datasets)
        )
    )


@pytest.mark.parametrize("size", [0, 1, 2, 3, 64, 65, 300])
def test_values_are_probabilities_at_every_context_size(name: str, size: int) -> None:
    values = make(name).fit(training()).predict(context(size), queries(30))
    assert isinstance(values, np.ndarray)
    assert values.dtype == np.float64
    check_values(values, 30, name)


def test_a_context_of_two_thousand(name: str) -> None:
    check_values(make(name).fit(training()).predict(context(2000), queries(50)), 50, name)


@pytest.mark.parametrize("rate", [0.0, 1.0, 0.4])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_equal_outcomes_are_answered(name: str, rate: float, size: int) -> None:
    seen = context(size, rates=np.full(size, rate))
    check_values(make(name).fit(training()).predict(seen, queries(20)), 20, name)


def test_equal_texts_and_empty_texts_are_answered(name: str) -> None:
    seen = Context.from_pairs([("same", 1.0), ("same", 0.0), ("same", 1.0), ("", 0.5)] * 20)
    asked = Queries.from_texts(["same", "", "other", "same"])
    check_values(make(name).fit(training()).predict(seen, asked), 4, name)


def test_no_queries_give_no_values(name: str) -> None:
    assert make(name).fit(training()).predict(context(80), queries(0)).shape == (0,)


def test_nothing_to_learn_from(name: str) -> None:
    nothing = training(n_queries=0)
    check_values(make(name).fit(nothing).predict(context(80), queries(10)), 10, name)


def test_one_training_outcome(name: str) -> None:
    one = training(n_queries=1, n_checkpoints=1)
    check_values(make(name).fit(one).predict(context(80), queries(10)), 10, name)


def test_the_order_of_queries_changes_nothing(name: str) -> None:
    predictor, seen, asked = make(name).fit(training()), context(150), queries(60)
    order = np.random.default_rng(3).permutation(60)
    straight = predictor.predict(seen, asked)
    np.testing.assert_allclose(predictor.predict(seen, subset(asked, order)), straight[order])
    alone = [predictor.predict(seen, subset(asked, np.array([i])))[0] for i in range(5)]
    np.testing.assert_allclose(alone, straight[:5], atol=1e-9)


def test_no_state_survives_a_fit(name: str) -> None:
    seen, asked = context(90), queries(25)
    fresh = make(name).fit(training(seed=5)).predict(seen, asked)
    used = make(name).fit(training(seed=9))
    used.predict(context(70, seed=4), queries(9))
    np.testing.assert_array_equal(used.fit(training(seed=5)).predict(seen, asked), fresh)


def test_predicting_twice_gives_the_same(name: str) -> None:
    predictor = make(name).fit(training())
    first = predictor.predict(context(90), queries(25))
    predictor.predict(context(20, seed=7), queries(5))
    np.testing.assert_array_equal(predictor.predict(context(90), queries(25)), first)


def test_inputs_are_left_as_they_were(name: str) -> None:
    seen, train = context(70), training()
    rates, outcomes = seen.success_rates.copy(), train.success_rates.copy()
    predictor = make(name).fit(train)
    predictor.update(training(seed=1, step=2))
    predictor.predict(seen, queries(12))
    np.testing.assert_array_equal(seen.success_rates, rates)
    np.testing.assert_array_equal(train.success_rates, outcomes)


def test_a_batch_of_episodes_equals_one_by_one(name: str) -> None:
    predictor = make(name).fit(training())
    pairs = [(context(40, seed=i), queries(7, seed=50 + i)) for i in range(3)]
    together = predictor.predict_many(pairs)
    for values, pair in zip(together, pairs, strict=True):
        np.testing.assert_allclose(values, predictor.predict(*pair), atol=1e-9)


def test_update_adds_to_what_was_fitted(name: str) -> None:
    early, late = training(seed=0, step=1), training(seed=8, step=2)
    seen, asked = context(60), Queries.from_texts([*texts(10, seed=8), *texts(5, seed=0)])
    updated = make(name).fit(early).update(late).predict(seen, asked)
    check_values(updated, 15, name)
    if name in LEARNS:
        joined = make(name).fit(early.join(late)).predict(seen, asked)
        np.testing.assert_allclose(updated, joined)


@pytest.mark.parametrize(
    "check",
    [
        check_no_attributes_set_in_init,
        check_get_params_invariance,
        check_set_params,
    ],
)
def test_scikit_learn_parameter_checks(name: str, check: Callable) -> None:
    check(name, available_predictors()[name]())


def test_scikit_learn_default_construction(name: str) -> None:
    check_parameters_default_constructible(name, available_predictors()[name]())


def test_clone_keeps_parameters_and_drops_what_was_learned(name: str) -> None:
    predictor = make(name).fit(training())
    copy = clone(predictor)
    assert copy.get_params() == predictor.get_params()
    assert not [field for field in vars(copy) if field.endswith("_")]


def test_metadata_is_complete(name: str) -> None:
    cls = available_predictors()[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", cls.name)
    assert cls.info.summary.endswith(".")
    assert len(cls.info.summary) <= 58, "the list must fit 80 columns"
    assert cls.info.licence
    assert cls.info.paper is None or re.fullmatch(r"\d{4}\.\d{4,5}", cls.info.paper)
