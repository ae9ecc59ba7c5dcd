"""What V0 trains on: inner splits share nothing, episodes show nothing they ask."""

from __future__ import annotations

import numpy as np
import pytest

from v0_bench import TrainingOutcomes
from v0_bench.v0.sampling import EpisodeSampler, InnerSplit, inner_split, subset
from v0_parts import outcomes


def split_of(train: TrainingOutcomes, seed: int = 0) -> InnerSplit:
    split = inner_split(train, seed, context_size=20, episodes=50, queries=10)
    assert split is not None
    return split


@pytest.mark.parametrize("seed", range(5))
def test_validation_checkpoints_and_queries_are_not_trained_on(seed: int) -> None:
    train = outcomes(60, 10)
    split = split_of(train, seed)
    trained_queries = set(split.train.queries.query_ids)
    assert len({c.family for c in split.train.checkpoints}) == 7
    assert len(split.validation) == 3
    for episode in split.validation:
        asked, shown = set(episode.queries.query_ids), set(episode.context.query_ids)
        assert not asked & trained_queries
        assert not asked & shown
        assert shown <= trained_queries
        assert len(asked) == 10
        assert len(shown) == 20
    answers = dict(
        zip(
            zip(train.query_index, train.checkpoint_index, strict=True),
            train.success_rates,
            strict=True,
        )
    )
    place = {query_id: i for i, query_id in enumerate(train.queries.query_ids)}
    held_out = [i for i, c in enumerate(train.checkpoints) if c not in split.train.checkpoints]
    for episode in split.validation:
        asked_at = [place[q] for q in episode.queries.query_ids]
        assert any([answers[q, c] for q in asked_at] == episode.rates.tolist() for c in held_out)


def test_near_duplicates_stay_together() -> None:
    train = outcomes(40, 6)
    texts = list(train.queries.texts)
    texts[1::2] = [text.upper() + "!" for text in texts[::2]]
    doubled = TrainingOutcomes(
        type(train.queries)(tuple(texts), train.queries.query_ids, train.queries.datasets),
        train.checkpoints,
        train.query_index,
        train.checkpoint_index,
        train.success_rates,
        train.n_rollouts,
        train.costs,
    )
    for seed in range(5):
        kept = {int(q.split("-")[1]) for q in split_of(doubled, seed).train.queries.query_ids}
        assert {i ^ 1 for i in kept} == kept
        assert 0 < len(kept) < 40


def test_steps_are_split_where_families_are_few() -> None:
    train = outcomes(40, 10, steps=(1, 5, 9, 13, 17), families=2)
    split = split_of(train)
    assert {c.step for c in split.train.checkpoints} == {1, 5, 9}
    assert len(split.validation) == 4


def test_nothing_to_split() -> None:
    assert inner_split(outcomes(40, 4, families=2), 0, 20, 8, 8) is None
    assert inner_split(outcomes(40, 2, steps=(3,)), 0, 20, 8, 8) is None
    assert inner_split(subset(outcomes(), np.array([], dtype=int)), 0, 20, 8, 8) is None
    assert inner_split(outcomes(1, 9), 0, 20, 8, 8) is None


@pytest.mark.parametrize("size", [4, 20, 1000])
def test_no_query_is_shown_and_asked(size: int) -> None:
    train = outcomes(30, 6)
    sampler = EpisodeSampler(train, size, 8)
    truth = {
        (q, c): r
        for q, c, r in zip(
            train.query_index, train.checkpoint_index, train.success_rates, strict=True
        )
    }
    shown_rates = []
    for step in range(40):
        batch = sampler.batch(0, step, 3)
        for i in range(3):
            shown, asked = batch.context[i][batch.context_mask[i]], batch.query[i]
            assert len(asked) == 8
            assert len(shown) == min(size, 22)
            assert len({*shown, *asked}) == len(shown) + 8
            policies = [
                c
                for c in range(6)
                if all(
                    truth[q, c] == r
                    for q, r in [
                        *zip(asked, batch.query_rates[i], strict=True),
                        *zip(shown, batch.context_rates[i], strict=False),
                    ]
                )
            ]
            assert len(policies) >= 1  # all of one checkpoint
        shown_rates.append(batch.context_rates[batch.context_mask].mean())
    assert np.mean(shown_rates) == pytest.approx(train.success_rates.mean(), abs=0.04)


def test_few_outcomes_are_shared_and_one_is_left_out() -> None:
    train = outcomes(5, 3)
    rows = np.concatenate(
        [
            np.flatnonzero(train.checkpoint_index == 0),
            np.flatnonzero(train.checkpoint_index == 1)[:1],
        ]
    )
    sampler = EpisodeSampler(subset(train, rows), 100, 8)
    assert len(sampler) == 1
    batch = sampler.batch(0, 0, 2)
    assert batch.query.shape == (2, 2)
    assert batch.context.shape == (2, 3)


def test_processes_share_the_batch_of_one() -> None:
    sampler = EpisodeSampler(outcomes(40, 8), 16, 4)
    whole = sampler.batch(3, 7, 4)
    for rank in range(2):
        part = sampler.batch(3, 7, 4, rank, 2)
        np.testing.assert_array_equal(part.query, whole.query[rank::2])
        np.testing.assert_array_equal(part.context_rates, whole.context_rates[rank::2])
    assert not np.array_equal(sampler.batch(3, 8, 4).query, whole.query)
    assert not np.array_equal(sampler.batch(4, 7, 4).query, whole.query)
