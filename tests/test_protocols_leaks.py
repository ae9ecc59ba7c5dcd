"""The leak check must fail on every kind of fold that shows what is tested.

Each test takes sound folds, tampers with them as a faulty protocol might, and expects the fault to
be named; the untouched folds pass.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from protocol_pools import make_pool
from v0_bench.episode import Checkpoint, Context, Episode, Queries, TrainingOutcomes
from v0_bench.pool import Pool
from v0_bench.protocols import PROTOCOLS, Fold, LeakError, check_leaks, make_folds

POOL = make_pool(["fa", "fb", "fb", "fc"], n_queries=40, steps=(1, 2, 3), duplicates=4)
ROLES = make_pool(["fa", "fb"], n_queries=40, steps=(1, 2, 3), duplicates=4, roles=True)
WITHOUT_SHARED_GROUPS = [name for name in PROTOCOLS if name != "sequential"]


def tampered_episode(folds: list[Fold], change: Callable[[Episode], Episode]) -> list[Fold]:
    """The folds with the first episode of the last fold's last stage changed."""
    *earlier, last = folds
    *stages, stage = last.stages
    episodes = (change(stage.episodes[0]), *stage.episodes[1:])
    return [*earlier, Fold((*stages, replace(stage, episodes=episodes)))]


def tampered_training(folds: list[Fold], more: TrainingOutcomes) -> list[Fold]:
    """The folds with further training outcomes in the first stage of the last fold."""
    *earlier, last = folds
    stage, *stages = last.stages
    stage = replace(stage, train=stage.train.join(more))
    return [*earlier, Fold((stage, *stages))]


def last_episode(folds: list[Fold]) -> Episode:
    return folds[-1].stages[-1].episodes[0]


def training_of(pool: Pool, checkpoint: Checkpoint, query_ids: tuple[str, ...]) -> TrainingOutcomes:
    """The pool's outcomes of a checkpoint on some queries, as training outcomes."""
    n = len(query_ids)
    return TrainingOutcomes(
        queries=queries_of(pool, query_ids),
        checkpoints=(checkpoint,),
        query_index=np.arange(n),
        checkpoint_index=np.zeros(n, dtype=int),
        success_rates=rates_of(pool, checkpoint, query_ids),
        n_rollouts=np.full(n, 10),
        costs=np.full(n, np.nan),
    )


def queries_of(pool: Pool, query_ids: tuple[str, ...]) -> Queries:
    table = pool.queries.set_index("query_id").loc[list(query_ids)]
    return Queries(tuple(table["text"]), query_ids, tuple(table["dataset"]))


def rates_of(pool: Pool, checkpoint: Checkpoint, query_ids: tuple[str, ...]) -> np.ndarray:
    outcomes = pool.outcomes[pool.outcomes["policy"] == checkpoint.policy]
    if checkpoint.step is not None:
        outcomes = outcomes[outcomes["step"] == checkpoint.step]
    return outcomes.set_index("query_id")["mean_reward"].loc[list(query_ids)].to_numpy()


def with_context(pool: Pool, episode: Episode, query_ids: tuple[str, ...]) -> Episode:
    """The episode with further outcomes of its checkpoint in the context."""
    old, more = episode.context, queries_of(pool, query_ids)
    n = len(query_ids)
    context = Context(
        old.texts + more.texts,
        np.concatenate([old.success_rates, rates_of(pool, episode.checkpoint, query_ids)]),
        np.concatenate([old.n_rollouts, np.full(n, 10)]),
        old.query_ids + query_ids,
        old.datasets + more.datasets,
        np.concatenate([old.costs, np.full(n, np.nan)]),
        old.policy,
        old.step,
    )
    return replace(episode, context=context)


def straddling_pair(pool: Pool, episode: Episode) -> tuple[str, str]:
    """Two queries of one group that are both among the episode's test queries."""
    groups = pool.query_group[list(episode.queries.query_ids)]
    group = groups[groups.duplicated()].iloc[0]
    one, other = groups.index[groups == group][:2]
    return one, other


def without_query(episode: Episode, query_id: str) -> Episode:
    """The episode without one of its test queries."""
    keep = [i for i, other in enumerate(episode.queries.query_ids) if other != query_id]
    queries = episode.queries
    fewer = Queries(
        tuple(queries.texts[i] for i in keep),
        tuple(queries.query_ids[i] for i in keep),
        tuple(queries.datasets[i] for i in keep),
    )
    return replace(episode, queries=fewer, rows=episode.rows[keep])


@pytest.mark.parametrize("protocol", [*PROTOCOLS, "shift:set0>set1"])
@pytest.mark.parametrize("pool", [POOL, ROLES])
def test_sound_folds_pass(pool, protocol):
    check_leaks(pool, protocol, make_folds(pool, protocol))


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
@pytest.mark.parametrize("pool", [POOL, ROLES])
def test_a_test_query_in_the_context(pool, protocol):
    folds = make_folds(pool, protocol, context_size=8)
    leaked = last_episode(folds).queries.query_ids[:1]
    bad = tampered_episode(folds, lambda episode: with_context(pool, episode, leaked))
    with pytest.raises(LeakError, match=f"{leaked[0]} is in its context"):
        check_leaks(pool, protocol, bad)


@pytest.mark.parametrize("protocol", ["strict", "sequential"])
@pytest.mark.parametrize("pool", [POOL, ROLES])
def test_a_tested_outcome_in_training(pool, protocol):
    folds = make_folds(pool, protocol)
    episode = folds[-1].stages[0].episodes[0]
    leaked = episode.queries.query_ids[:1]
    bad = tampered_training(folds, training_of(pool, episode.checkpoint, leaked))
    with pytest.raises(LeakError, match=f"{leaked[0]} was shown for training"):
        check_leaks(pool, protocol, bad)


@pytest.mark.parametrize("protocol", WITHOUT_SHARED_GROUPS)
def test_a_tested_query_in_training_by_another_checkpoint(protocol):
    folds = make_folds(POOL, protocol)
    episode, teacher = last_episode(folds), folds[-1].stages[0].train.checkpoints[0]
    if teacher == episode.checkpoint:
        teacher = folds[-1].stages[0].train.checkpoints[-1]
    more = training_of(POOL, teacher, episode.queries.query_ids[:1])
    with pytest.raises(LeakError, match="is shown and tested"):
        check_leaks(POOL, protocol, tampered_training(folds, more))


@pytest.mark.parametrize("protocol", ["unseen-policy", "shift:weak-strong"])
def test_the_tested_family_in_training(protocol):
    folds = make_folds(POOL, protocol)
    episode = last_episode(folds)
    harmless = folds[-1].stages[0].train.queries.query_ids[:1]
    more = training_of(POOL, episode.checkpoint, harmless)
    with pytest.raises(LeakError, match=f"its family {episode.checkpoint.family} is in training"):
        check_leaks(POOL, protocol, tampered_training(folds, more))


@pytest.mark.parametrize("pool", [POOL, ROLES])
def test_a_later_step_in_training_under_sequential(pool):
    folds = make_folds(pool, "sequential")
    first, *_, last = folds[0].stages
    with pytest.raises(LeakError, match="step 3 was shown for training"):
        check_leaks(pool, "sequential", tampered_training(folds, last.train))
    # even where the stage that shows it tests nothing itself
    silent = [Fold((replace(first, train=last.train, episodes=()), *folds[0].stages[1:]))]
    with pytest.raises(LeakError, match="step 3 was shown for training"):
        check_leaks(pool, "sequential", silent)


def test_stages_in_the_wrong_order():
    (fold,) = make_folds(POOL, "sequential")
    with pytest.raises(LeakError, match="was shown for training"):
        check_leaks(POOL, "sequential", [Fold(fold.stages[::-1])])


def test_a_tested_step_in_training_under_early_late():
    folds = make_folds(POOL, "shift:early-late")
    episode = last_episode(folds)
    harmless = folds[-1].stages[0].train.queries.query_ids[:1]
    more = training_of(POOL, episode.checkpoint, harmless)
    with pytest.raises(LeakError, match="step 3 was shown for training"):
        check_leaks(POOL, "shift:early-late", tampered_training(folds, more))


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_a_group_on_both_sides(protocol):
    for seed in range(20):  # a seed that tests a query together with its copies
        folds = make_folds(POOL, protocol, seed)
        episode = last_episode(folds)
        if POOL.query_group[list(episode.queries.query_ids)].duplicated().any():
            break
    one, other = straddling_pair(POOL, episode)
    bad = tampered_episode(folds, lambda e: with_context(POOL, without_query(e, other), (other,)))
    with pytest.raises(LeakError, match=f"group {POOL.query_group[one]} is shown and tested"):
        check_leaks(POOL, protocol, bad)


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_the_context_of_another_checkpoint(protocol):
    pool = make_pool(["fa", "fb", "fc", "fd"], n_queries=40, steps=(1, 2, 3))
    folds = make_folds(pool, protocol)
    other = folds[-1].stages[-1].episodes[-1]
    if other.checkpoint == last_episode(folds).checkpoint:
        other = folds[0].stages[0].episodes[0]
    bad = tampered_episode(folds, lambda episode: replace(episode, context=other.context))
    with pytest.raises(LeakError, match="the context belongs to another checkpoint"):
        check_leaks(pool, protocol, bad)

    def disguised(episode: Episode) -> Episode:
        who = episode.checkpoint
        return replace(episode, context=replace(other.context, policy=who.policy, step=who.step))

    with pytest.raises(LeakError, match="outcomes that are not in the pool"):
        check_leaks(pool, protocol, tampered_episode(folds, disguised))


def test_rows_of_other_outcomes():
    folds = make_folds(POOL, "strict")
    shifted = tampered_episode(folds, lambda e: replace(e, rows=np.roll(e.rows, 1)))
    with pytest.raises(LeakError, match="its test queries and its rows differ"):
        check_leaks(POOL, "strict", shifted)
    stage = folds[-1].stages[-1]
    other = stage.episodes[1]
    swapped = tampered_episode(folds, lambda e: replace(e, rows=other.rows))
    with pytest.raises(LeakError, match="its test queries and its rows differ"):
        check_leaks(POOL, "strict", swapped)


def test_made_up_training_outcomes():
    folds = make_folds(POOL, "strict")
    train = folds[0].stages[0].train
    altered = replace(train, success_rates=1 - train.success_rates / 2)
    stranger = replace(train, checkpoints=(Checkpoint("px", 1, "fx"), *train.checkpoints[1:]))
    renamed = replace(
        train,
        queries=replace(train.queries, query_ids=("new", *train.queries.query_ids[1:])),
    )
    for bad in (altered, stranger, renamed):
        stage = replace(folds[0].stages[0], train=bad)
        with pytest.raises(LeakError, match="not in the pool"):
            check_leaks(POOL, "strict", [Fold((stage,))])
