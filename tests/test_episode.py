"""Contexts, queries and training outcomes: what they hold, refuse and compute."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import v0_bench.embeddings
from v0_bench.episode import Checkpoint, Context, Queries, TrainingOutcomes
from v0_bench.errors import V0BenchError

ALPHA, BETA = Checkpoint("alpha", None, "fa"), Checkpoint("beta", 7, "fb")


def outcomes(
    query_ids: tuple[str, ...],
    checkpoints: tuple[Checkpoint, ...],
    rows: list[tuple[int, int, float]],
) -> TrainingOutcomes:
    """Training outcomes from (query, checkpoint, success rate) rows."""
    query, checkpoint, rates = zip(*rows, strict=True) if rows else ((), (), ())
    return TrainingOutcomes(
        Queries(tuple(f"text of {q}" for q in query_ids), query_ids, ("d",) * len(query_ids)),
        checkpoints,
        np.array(query, dtype=int),
        np.array(checkpoint, dtype=int),
        np.array(rates, dtype=float),
        np.ones(len(rows), dtype=int),
        np.full(len(rows), np.nan),
    )


def as_set(train: TrainingOutcomes) -> set[tuple[str, Checkpoint, float]]:
    return {
        (train.queries.query_ids[q], train.checkpoints[c], rate)
        for q, c, rate in zip(
            train.query_index, train.checkpoint_index, train.success_rates, strict=True
        )
    }


def test_a_context_from_pairs():
    context = Context.from_pairs([("one", 0.5), ("two", 1, 4), ("three", 0.0)])
    assert context.texts == ("one", "two", "three")
    assert context.success_rates.tolist() == [0.5, 1.0, 0.0]
    assert context.n_rollouts.tolist() == [1, 4, 1]
    assert context.query_ids == ("0", "1", "2")
    assert context.mean == 0.5
    assert (context.policy, context.step) == (None, None)
    assert np.isnan(context.costs).all()


def test_an_empty_context_is_legal_and_its_mean_is_one_half():
    context = Context.from_pairs([])
    assert len(context) == 0
    assert context.mean == 0.5
    assert len(context.first(3)) == len(context.newest(3)) == 0


@given(st.integers(0, 6), st.integers(0, 9))
def test_first_and_newest_are_the_two_ends(n, size):
    context = Context.from_pairs([(f"t{i}", i / 10, i + 1) for i in range(n)])
    context = replace(context, policy="alpha", step=3)
    for part, kept in (
        (context.first(size), range(min(n, size))),
        (context.newest(size), range(max(0, n - size), n)),
    ):
        assert part.texts == tuple(f"t{i}" for i in kept)
        assert part.success_rates.tolist() == [i / 10 for i in kept]
        assert part.n_rollouts.tolist() == [i + 1 for i in kept]
        assert part.query_ids == tuple(str(i) for i in kept)
        assert (len(part.costs), len(part.datasets)) == (len(kept), len(kept))
        assert (part.policy, part.step) == ("alpha", 3)


@pytest.mark.parametrize("rate", [-0.1, 1.1, np.nan, np.inf])
def test_a_success_rate_outside_0_to_1_is_refused(rate):
    with pytest.raises(V0BenchError, match="success rates must lie in"):
        Context.from_pairs([("one", 0.5), ("two", rate)])


def test_a_rollout_count_below_1_is_refused():
    with pytest.raises(V0BenchError, match="rollout counts must be at least 1"):
        Context.from_pairs([("one", 0.5, 0)])


def test_fields_of_different_lengths_are_refused():
    with pytest.raises(V0BenchError, match=r"Queries: fields differ in length: .*'texts': 2"):
        Queries(("a", "b"), ("1",), ("d", "d"))
    with pytest.raises(V0BenchError, match="Context: fields differ in length"):
        replace(Context.from_pairs([("one", 0.5)]), costs=np.zeros(2))
    with pytest.raises(V0BenchError, match="TrainingOutcomes: fields differ in length"):
        replace(outcomes(("q",), (ALPHA,), [(0, 0, 1.0)]), n_rollouts=np.ones(2))


def test_what_a_predictor_sees_is_frozen():
    for record, field in (
        (Context.from_pairs([]), "texts"),
        (Queries.from_texts(["a"]), "texts"),
        (outcomes((), (), []), "queries"),
        (ALPHA, "policy"),
    ):
        with pytest.raises(FrozenInstanceError):
            setattr(record, field, ())


def test_queries_from_texts():
    queries = Queries.from_texts(["a", "b"])
    assert queries.texts == ("a", "b")
    assert queries.query_ids == ("0", "1")
    assert len(queries) == 2


def test_embed_goes_through_the_shared_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("V0_BENCH_CACHE", str(tmp_path))
    texts = ("one two three", "four five")
    expected = v0_bench.embeddings.embed(texts, "hash")
    context = Context.from_pairs([(text, 1.0) for text in texts])
    for record in (context, Queries.from_texts(texts)):
        values = record.embed("hash")
        assert values.dtype == np.float32
        np.testing.assert_array_equal(values, expected)


def test_join_keeps_each_query_and_checkpoint_in_one_place():
    early = outcomes(("a", "b"), (ALPHA,), [(0, 0, 0.1), (1, 0, 0.2)])
    late = outcomes(("c", "b"), (BETA, ALPHA), [(0, 0, 0.3), (1, 0, 0.4), (0, 1, 0.5)])
    both = early.join(late)
    assert both.queries.query_ids == ("a", "b", "c")
    assert both.queries.texts == ("text of a", "text of b", "text of c")
    assert both.checkpoints == (ALPHA, BETA)
    assert both.query_index.tolist() == [0, 1, 2, 1, 2]
    assert both.checkpoint_index.tolist() == [0, 0, 1, 1, 0]
    assert both.success_rates.tolist() == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert as_set(both) == as_set(early) | as_set(late)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.floats(0, 1)), max_size=6),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.floats(0, 1)), max_size=6),
)
def test_join_holds_the_rows_of_both(first, second):
    early = outcomes(("a", "b", "c", "d"), (ALPHA, BETA), first)
    late = outcomes(("d", "e", "a"), (BETA, ALPHA), second)
    both = early.join(late)
    assert len(both) == len(early) + len(late)
    assert as_set(both) == as_set(early) | as_set(late)
    assert len(set(both.queries.query_ids)) == len(both.queries)


def test_join_with_nothing_changes_nothing():
    some, nothing = outcomes(("a",), (ALPHA,), [(0, 0, 0.1)]), outcomes((), (), [])
    assert as_set(some.join(nothing)) == as_set(nothing.join(some)) == as_set(some)


def test_query_success_is_the_mean_over_rows_and_nan_without_rows():
    train = outcomes(("a", "b", "c"), (ALPHA, BETA), [(0, 0, 0.0), (0, 1, 1.0), (2, 1, 0.3)])
    np.testing.assert_allclose(train.query_success, [0.5, np.nan, 0.3])
    assert outcomes((), (), []).query_success.shape == (0,)
