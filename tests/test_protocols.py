"""What every protocol promises, tried on invented pools of many shapes.

Who sees what is worked out here from the finished folds with plain sets, not with the package's
own leak check.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from protocol_pools import digest, make_pool, pools, shuffled
from v0_bench.episode import Episode, TrainingOutcomes
from v0_bench.errors import V0BenchError
from v0_bench.leaderboard.work import folds_of
from v0_bench.pool import Pool
from v0_bench.protocols import (
    PROTOCOLS,
    Fold,
    NotApplicable,
    check_protocol_name,
    default_protocol,
    make_folds,
)

FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SEEDS = st.integers(0, 5)
Outcome = tuple[str, str, int | None]


def folds_or_skip(pool: Pool, protocol: str, seed: int = 0, size: int = 8) -> list[Fold]:
    """The folds, or an example passed over if the protocol does not apply to the pool."""
    try:
        return make_folds(pool, protocol, seed, size)
    except NotApplicable:
        assume(False)
        raise


def episodes(folds: list[Fold]) -> list[Episode]:
    return [e for fold in folds for stage in fold.stages for e in stage.episodes]


def in_training(train: TrainingOutcomes) -> set[Outcome]:
    """(query_id, policy, step) of every training outcome."""
    return {
        (train.queries.query_ids[q], train.checkpoints[c].policy, train.checkpoints[c].step)
        for q, c in zip(train.query_index, train.checkpoint_index, strict=True)
    }


def asked(episode: Episode) -> set[Outcome]:
    who = episode.checkpoint
    return {(q, who.policy, who.step) for q in episode.queries.query_ids}


def in_context(episode: Episode) -> set[Outcome]:
    who = episode.checkpoint
    return {(q, who.policy, who.step) for q in episode.context.query_ids}


def groups(pool: Pool, outcomes: set[Outcome]) -> set[str]:
    return {pool.query_group[query_id] for query_id, _, _ in outcomes}


def shown_and_tested(folds: list[Fold]) -> Iterator[tuple[set[Outcome], Episode]]:
    """Each episode with all that was shown for training before it is tested."""
    for fold in folds:
        shown: set[Outcome] = set()
        for stage in fold.stages:
            shown |= in_training(stage.train)
            for episode in stage.episodes:
                yield shown, episode


@FEW
@given(pools(), st.sampled_from([*PROTOCOLS, "shift:set0>set1"]), SEEDS, st.integers(0, 40))
def test_no_tested_outcome_is_seen_and_rows_point_at_the_test_outcomes(pool, protocol, seed, size):
    assume(protocol in PROTOCOLS or pool.queries["dataset"].nunique() > 1)
    folds = folds_or_skip(pool, protocol, seed, size)
    for shown, episode in shown_and_tested(folds):
        assert not asked(episode) & (shown | in_context(episode))
        assert len(episode.context) <= size
        assert len(set(episode.context.query_ids)) == len(episode.context)
        outcomes = pool.outcomes.iloc[episode.rows]
        assert tuple(outcomes["query_id"]) == episode.queries.query_ids
        assert set(outcomes["policy"]) == {episode.checkpoint.policy}
        assert set(outcomes["step"].astype(object).where(outcomes["step"].notna(), None)) == {
            episode.checkpoint.step
        }
    rows = np.concatenate([episode.rows for episode in episodes(folds)])
    assert len(rows) == len(np.unique(rows))


@FEW
@given(pools(), st.sampled_from([*PROTOCOLS, "shift:set0>set1"]), SEEDS)
def test_what_is_shown_is_what_the_pool_holds(pool, protocol, seed):
    assume(protocol in PROTOCOLS or pool.queries["dataset"].nunique() > 1)
    truth = {
        (row.query_id, row.policy, None if row.step != row.step else int(row.step)): row
        for row in pool.outcomes.astype({"step": "float64"}).itertuples()
    }
    query = pool.queries.set_index("query_id")
    folds = folds_or_skip(pool, protocol, seed)
    for context, who in ((e.context, e.checkpoint) for e in episodes(folds)):
        for i, query_id in enumerate(context.query_ids):
            row = truth[query_id, who.policy, who.step]
            assert context.success_rates[i] == row.mean_reward
            assert context.n_rollouts[i] == row.n_rollouts
            assert context.costs[i] == row.cost
            assert context.texts[i] == query["text"][query_id]
            assert context.datasets[i] == query["dataset"][query_id]
    for train in (stage.train for fold in folds for stage in fold.stages):
        for i, (q, c) in enumerate(zip(train.query_index, train.checkpoint_index, strict=True)):
            who = train.checkpoints[c]
            row = truth[train.queries.query_ids[q], who.policy, who.step]
            assert who.family == pool.family[who.policy]
            assert (train.success_rates[i], train.costs[i]) == (row.mean_reward, row.cost)
        assert len(in_training(train)) == len(train)
        assert train.queries.texts == tuple(query["text"][list(train.queries.query_ids)])


@FEW
@given(pools(families=2), SEEDS)
def test_unseen_policy_tests_each_policy_once_without_its_family(pool, seed):
    folds = folds_or_skip(pool, "unseen-policy", seed)
    assert len(folds) <= 5
    for shown, episode in shown_and_tested(folds):
        families = {pool.family[policy] for _, policy, _ in shown}
        assert pool.family[episode.checkpoint.policy] not in families
        assert not groups(pool, asked(episode)) & groups(pool, shown | in_context(episode))
    times = Counter(e.checkpoint for e in episodes(folds))
    assert set(times.values()) == {1}
    in_fold = {
        (e.checkpoint.policy, i)
        for i, fold in enumerate(folds)
        for stage in fold.stages
        for e in stage.episodes
    }
    assert max(Counter(policy for policy, _ in in_fold).values()) == 1


@given(st.integers(2, 60), st.integers(0, 3), SEEDS)
@FEW
def test_unseen_policy_tests_three_tenths_of_the_groups_for_every_policy(n, duplicates, seed):
    pool = make_pool(["fa", "fb", "fb", "fc"], n_queries=n, duplicates=min(duplicates, n))
    n_test = min(max(1, round(0.3 * n)), n - 1)
    drawn = []
    for protocol in ("unseen-policy", "strict", "shift:weak-strong"):
        folds = make_folds(pool, protocol, seed)
        for episode in episodes(folds):
            drawn.append(groups(pool, asked(episode)))
            # a copy is tested with its original
            assert len(episode.queries) == pool.query_group.isin(drawn[-1]).sum()
        if protocol != "shift:weak-strong":
            assert {e.checkpoint.policy for e in episodes(folds)} == {"p0", "p1", "p2", "p3"}
    assert all(one == drawn[0] for one in drawn)
    assert len(drawn[0]) == n_test


@pytest.mark.parametrize(("families", "expected"), [(2, 2), (4, 4), (5, 5), (11, 5)])
def test_unseen_policy_has_a_fold_per_family_up_to_five(families, expected):
    folds = make_folds(make_pool([f"f{i}" for i in range(families)]), "unseen-policy")
    assert len(folds) == expected
    sizes = [len(fold.stages[0].episodes) for fold in folds]
    assert sum(sizes) == families
    assert max(sizes) - min(sizes) <= 1


@FEW
@given(pools(), st.sampled_from(["strict", "shift:early-late", "shift:weak-strong"]), SEEDS)
def test_groups_are_never_both_shown_and_tested(pool, protocol, seed):
    folds = folds_or_skip(pool, protocol, seed)
    shown = set().union(*(in_training(s.train) for f in folds for s in f.stages))
    shown |= set().union(*(in_context(e) for e in episodes(folds)))
    on_test = set().union(*(asked(e) for e in episodes(folds)))
    assert not groups(pool, shown) & groups(pool, on_test)


def test_strict_trains_on_all_that_is_not_tested_the_tested_policy_included():
    pool = make_pool(["fa", "fb", None], steps=(1, 2), missing=0.2, duplicates=2)
    (fold,) = make_folds(pool, "strict")
    (stage,) = fold.stages
    on_test = set().union(*(asked(e) for e in stage.episodes))
    assert in_training(stage.train) | on_test == {
        (row.query_id, row.policy, row.step) for row in pool.outcomes.itertuples()
    }
    assert {c.policy for c in stage.train.checkpoints} == {"p0", "p1", "p2"}


@FEW
@given(pools(steps=True), SEEDS)
def test_sequential_shows_nothing_later_and_keeps_groups_of_a_step_apart(pool, seed):
    folds = folds_or_skip(pool, "sequential", seed)
    assert len(folds) == 1
    fixed = pool.outcomes["role"].notna().any()
    for shown, episode in shown_and_tested(folds):
        assert max((step for _, _, step in shown), default=0) <= episode.checkpoint.step
    for stage in folds[0].stages:
        on_test = set().union(*(asked(e) for e in stage.episodes))
        contexts = set().union(*(in_context(e) for e in stage.episodes))
        parts = [groups(pool, part) for part in (on_test, contexts, in_training(stage.train))]
        if not fixed:
            assert sum(map(len, parts)) == len(set().union(*parts))


def test_sequential_takes_steps_in_time_order_and_trains_on_each_as_it_comes():
    pool = make_pool(["fa", "fb"], n_queries=100, steps=(300, 20, 7))
    (fold,) = make_folds(pool, "sequential", context_size=1000)
    for step, stage in zip((7, 20, 300), fold.stages, strict=True):
        assert {c.step for c in stage.train.checkpoints} == {step}
        assert [(e.checkpoint.policy, e.checkpoint.step) for e in stage.episodes] == [
            ("p0", step),
            ("p1", step),
        ]
        assert len(stage.train) == 2 * 30
        assert {len(e.context) for e in stage.episodes} == {40}
        assert {len(e.queries) for e in stage.episodes} == {30}
    drawn = [frozenset(stage.episodes[0].queries.query_ids) for stage in fold.stages]
    assert len(set(drawn)) == 3  # every step draws anew


@FEW
@given(st.integers(0, 30), SEEDS)
def test_sequential_uses_the_roles_that_the_source_fixed(pool_seed, seed):
    pool = make_pool(["fa", "fb"], steps=(1, 2), roles=True, duplicates=2, seed=pool_seed)
    folds = folds_or_skip(pool, "sequential", seed, size=1000)
    role = {(row.query_id, row.policy, row.step): row.role for row in pool.outcomes.itertuples()}
    seen = {"train": set(), "context": set(), "test": set()}
    for stage in folds[0].stages:
        seen["train"] |= in_training(stage.train)
        for episode in stage.episodes:
            seen["context"] |= in_context(episode)
            seen["test"] |= asked(episode)
    for name, outcomes in seen.items():
        assert outcomes == {key for key, value in role.items() if value == name}


@pytest.mark.parametrize(("n_steps", "n_early"), [(2, 1), (3, 2), (5, 3), (10, 6), (20, 12)])
def test_early_late_trains_on_the_first_sixty_percent_of_steps(n_steps, n_early):
    steps = [10 * i for i in range(n_steps)]
    pool = make_pool(["fa", None], n_queries=20, steps=steps[::-1])
    (fold,) = make_folds(pool, "shift:early-late")
    (stage,) = fold.stages
    assert {c.step for c in stage.train.checkpoints} == set(steps[:n_early])
    assert {e.checkpoint.step for e in stage.episodes} == set(steps[n_early:])
    assert len(stage.episodes) == 2 * (n_steps - n_early)


def test_weak_strong_trains_on_the_weaker_families_even_where_they_tried_easier_queries():
    pool = make_pool(["fa", "fb", "fc", "fd", "fe"], n_queries=60)
    skill = {"p0": 0.4, "p1": 0.1, "p2": 0.35, "p3": 0.05, "p4": 0.3}
    outcomes = pool.outcomes.copy()
    hard = outcomes["query_id"] >= "q030"
    outcomes["mean_reward"] = outcomes["policy"].map(skill) + 0.6 * ~hard
    # the strongest tried hard queries only: its plain mean is the second lowest
    outcomes = outcomes[hard | (outcomes["policy"] != "p0")]
    pool = Pool("skewed", pool.queries, pool.policies, outcomes)
    (fold,) = make_folds(pool, "shift:weak-strong")
    assert {c.family for c in fold.stages[0].train.checkpoints} == {"fb", "fd", "fe"}
    assert {e.checkpoint.family for e in fold.stages[0].episodes} == {"fa", "fc"}


def test_dataset_shift_shows_one_data_set_and_tests_another_without_shared_groups():
    pool = make_pool(["fa", "fb"], n_queries=30, datasets=3)
    queries = pool.queries.copy()
    queries.loc[queries["query_id"] == "q000a", "text"] = "A copy of another, that is what this is"
    queries.loc[queries["query_id"] == "q001a", "text"] = "a copy of another that is what this is."
    pool = Pool("twins", queries, pool.policies, pool.outcomes)
    dataset = queries.set_index("query_id")["dataset"]
    (fold,) = make_folds(pool, "shift:set0>set1", context_size=1000)
    (stage,) = fold.stages
    assert set(dataset[list(stage.train.queries.query_ids)]) == {"set0"}
    assert len(stage.train.queries) == 9  # q000a is a copy of the tested q001a
    for episode in stage.episodes:
        assert set(dataset[list(episode.context.query_ids)]) == {"set0"}
        assert set(episode.queries.query_ids) == set(dataset.index[dataset == "set1"])
        assert "q000a" not in episode.context.query_ids


@FEW
@given(pools(), st.sampled_from(list(PROTOCOLS)), SEEDS, st.integers(0, 20), st.integers(0, 20))
def test_contexts_of_growing_size_are_nested_and_all_else_is_equal(pool, protocol, seed, a, b):
    small, large = (folds_or_skip(pool, protocol, seed, size) for size in sorted((a, b)))
    assert digest(small, leave_out=["context"]) == digest(large, leave_out=["context"])
    for one, other in zip(episodes(small), episodes(large), strict=True):
        n = len(one.context)
        assert n <= min(a, b)
        assert other.context.query_ids[:n] == one.context.query_ids
        assert digest([other.context.first(min(a, b))]) == digest([one.context])


@FEW
@given(pools(), st.sampled_from(list(PROTOCOLS)), SEEDS)
def test_folds_do_not_depend_on_the_order_of_the_pools_rows(pool, protocol, seed):
    other = shuffled(pool)
    one, two = (folds_or_skip(p, protocol, seed) for p in (pool, other))
    assert digest(one, leave_out=["rows"]) == digest(two, leave_out=["rows"])
    for a, b in zip(episodes(one), episodes(two), strict=True):
        assert (
            pool.outcomes["mean_reward"].iloc[a.rows].tolist()
            == other.outcomes["mean_reward"].iloc[b.rows].tolist()
        )


def test_folds_kept_for_a_pool_are_not_used_for_a_copy_in_another_order():
    pool = make_pool(["fa", "fb"])
    other = shuffled(pool)
    assert pool.fingerprint == other.fingerprint
    for one in (pool, other, pool):
        for episode in episodes(folds_of(one, "strict", 0, 8)):
            asked_in_rows = one.outcomes["query_id"].iloc[episode.rows]
            assert tuple(asked_in_rows) == episode.queries.query_ids
    assert folds_of(pool, "strict", 0, 8) is folds_of(pool, "strict", 0, 8)


def test_the_draw_of_a_checkpoint_does_not_depend_on_the_others():
    pool = make_pool(["fa", "fb", "fc", "fd"], steps=(1, 2), duplicates=2)
    for protocol in ("strict", "sequential", "unseen-policy"):
        some = episodes(make_folds(pool.filter(policies=["p1", "p3"]), protocol, context_size=9))
        every = {e.checkpoint: e for e in episodes(make_folds(pool, protocol, context_size=9))}
        assert len(some) == 4
        for episode in some:
            twin = every[episode.checkpoint]
            assert digest([twin], leave_out=["rows"]) == digest([episode], leave_out=["rows"])


@pytest.mark.parametrize("protocol", list(PROTOCOLS))
def test_seeds_differ_and_every_array_is_read_only(protocol):
    pool = make_pool(["fa", "fb", "fc"], steps=(1, 2, 3))
    digests = {digest(make_folds(pool, protocol, seed, 8)) for seed in range(4)}
    assert len(digests) == 4
    folds = make_folds(pool, protocol)
    records = [stage.train for fold in folds for stage in fold.stages]
    for record in [*records, *episodes(folds), *(e.context for e in episodes(folds))]:
        for array in vars(record).values():
            assert not isinstance(array, np.ndarray) or not array.flags.writeable
            if isinstance(array, np.ndarray) and len(array):
                with pytest.raises(ValueError, match="read-only"):
                    array[0] = 0


def digest_of_all() -> str:
    """One digest over every protocol on one pool."""
    pool = make_pool(["fa", "fb", None, "fc"], steps=(1, 2, 3), duplicates=3, missing=0.1)
    protocols = [*PROTOCOLS, "shift:set0>set1"]
    return " ".join(digest(make_folds(pool, name, seed=3, context_size=16)) for name in protocols)


def test_folds_are_byte_identical_in_another_process():
    code = "import test_protocols; print(test_protocols.digest_of_all())"
    there = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.strip() == digest_of_all() == digest_of_all()


@pytest.mark.parametrize(
    ("pool", "protocol", "reason"),
    [
        (make_pool(["fa", "fa"]), "unseen-policy", "needs 2 families of policies"),
        (make_pool(["fa", "fa"]), "shift:weak-strong", "needs 2 families of policies"),
        (make_pool(["fa", "fb"]), "sequential", "needs training steps"),
        (make_pool(["fa"], steps=[5]), "shift:early-late", "needs 2 training steps"),
        (make_pool(["fa", "fb"], n_queries=1), "unseen-policy", "nothing to split"),
        (make_pool(["fa"], n_queries=1, duplicates=1), "strict", "nothing to split"),
        (make_pool(["fa"], n_queries=1, steps=[5]), "sequential", "no checkpoint has an outcome"),
    ],
)
def test_a_protocol_that_makes_no_sense_says_why(pool, protocol, reason):
    with pytest.raises(NotApplicable, match=reason):
        make_folds(pool, protocol)


@pytest.mark.parametrize(
    ("protocol", "hint"),
    [
        ("unseen_policy", "did you mean 'unseen-policy'"),
        ("sequental", "did you mean 'sequential'"),
        ("shift:weak-stron", "did you mean 'shift:weak-strong'"),
        ("shift:set0>", "unknown protocol"),
        ("set0>set1", "unknown protocol"),
        ("", "unknown protocol"),
    ],
)
def test_an_unknown_protocol_suggests_the_nearest(protocol, hint):
    for call in (check_protocol_name, lambda name: make_folds(make_pool(["fa", "fb"]), name)):
        with pytest.raises(V0BenchError, match=hint):
            call(protocol)


def test_a_data_set_shift_names_data_sets_of_the_pool():
    pool = make_pool(["fa", "fb"])
    check_protocol_name("shift:any>other")
    with pytest.raises(V0BenchError, match="did you mean 'set1'"):
        make_folds(pool, "shift:set0>sett1")
    with pytest.raises(V0BenchError, match="the two data sets are the same"):
        make_folds(pool, "shift:set0>set0")


def test_negative_numbers_are_refused_and_a_context_may_be_empty():
    pool = make_pool(["fa", "fb"])
    with pytest.raises(V0BenchError, match="context size -1 is negative"):
        make_folds(pool, "strict", context_size=-1)
    with pytest.raises(V0BenchError, match="seed -1 is negative"):
        make_folds(pool, "strict", seed=-1)
    folds = make_folds(pool, "unseen-policy", context_size=0)
    assert {len(e.context) for e in episodes(folds)} == {0}
    assert {e.context.mean for e in episodes(folds)} == {0.5}


def test_the_default_protocol_depends_on_steps():
    assert default_protocol(make_pool(["fa"], steps=[1])) == "sequential"
    assert default_protocol(make_pool(["fa", "fb"])) == "unseen-policy"


def test_steps_may_be_negative_and_finished_models_may_stand_beside_them():
    pool = make_pool(["fa", "fb"], steps=(-1, 4))
    outcomes = pool.outcomes.copy()
    outcomes.loc[outcomes["policy"] == "p1", "step"] = None
    outcomes = outcomes.drop_duplicates(["query_id", "policy", "step"])
    mixed = Pool("mixed", pool.queries, pool.policies, outcomes)
    steps = [e.checkpoint.step for e in episodes(make_folds(mixed, "sequential"))]
    assert steps == [-1, 4]
    who = {(e.checkpoint.policy, e.checkpoint.step) for e in episodes(make_folds(mixed, "strict"))}
    assert who == {("p0", -1), ("p0", 4), ("p1", None)}
