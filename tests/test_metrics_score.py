"""`score` against plain loops on random frames, hand-computed cases, and bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metric_frames import made_up_frame
from metric_slow import score_one_seed
from v0_bench.errors import V0BenchError
from v0_bench.metrics import METRICS, score, score_per_seed

NULLS = ("residual_context_spearman_null", "residual_query_spearman_null")

frames = st.builds(
    made_up_frame,
    seed=st.integers(0, 10_000),
    policies=st.integers(1, 6),
    steps=st.integers(1, 3),
    queries=st.integers(1, 25),
    rollouts=st.sampled_from([(1,), (10,), (1, 10), (4, 8, 16), (1, 2, 3, 5, 9)]),
    grid=st.sampled_from([1, 4, 1000]),
    missing=st.sampled_from([0.0, 0.4]),
    one_class=st.integers(0, 2),
).filter(len)


def assert_same(values: dict, expected: dict) -> None:
    assert set(values) == set(METRICS)
    for name, value in expected.items():
        if value is None:
            assert values[name] is None, name
        else:
            assert values[name] == pytest.approx(value, abs=1e-9), name


@settings(max_examples=60, deadline=None)
@given(frames)
def test_score_equals_plain_loops(frame: pd.DataFrame) -> None:
    assert_same(score(frame), score_one_seed(frame))


@settings(max_examples=10, deadline=None)
@given(frames, st.randoms(use_true_random=False))
def test_row_order_and_types_do_not_matter(frame: pd.DataFrame, random) -> None:
    order = list(range(len(frame)))
    random.shuffle(order)
    shuffled = frame.iloc[order].astype({"policy": "category", "step": "float64"})
    kept = {name: value for name, value in score(frame).items() if name not in NULLS}
    again = score(shuffled)  # the nulls draw row by row
    assert {name: again[name] for name in kept} == pytest.approx(kept, nan_ok=True)


def test_seeds_are_scored_apart_and_averaged() -> None:
    frame = made_up_frame(3, policies=5, queries=20, seeds=3, rollouts=(2, 4))
    per_seed = score_per_seed(frame)
    slow = [score_one_seed(part) for _, part in frame.groupby("seed")]
    for name in slow[0]:
        assert per_seed[name] == pytest.approx([values[name] for values in slow], abs=1e-9)
    assert score(frame)["auc"] == pytest.approx(np.mean(per_seed["auc"]))


def test_a_seed_without_a_value_is_left_out_of_the_average() -> None:
    frame = made_up_frame(0, policies=2, queries=40, seeds=2)
    frame.loc[frame.seed == 1, "mean_reward"] = 1.0
    per_seed = score_per_seed(frame)["auc"]
    assert per_seed[1] is None
    assert score(frame)["auc"] == per_seed[0]


def by_hand(prediction: list[float], reward: list[float], **columns: object) -> pd.DataFrame:
    """One checkpoint, one row a query, unless `columns` say otherwise."""
    number = len(prediction)
    return pd.DataFrame(
        {
            "pool": "p",
            "protocol": "strict",
            "seed": 0,
            "predictor": "x",
            "policy": "a",
            "step": None,
            "query_id": [str(i) for i in range(number)],
            "query_group": [str(i) for i in range(number)],
            "dataset": "d",
            "family": "f",
            "prediction": prediction,
            "mean_reward": reward,
            "n_rollouts": 10,
            "context_size": 4,
            "context_mean": 0.5,
            "query_difficulty": np.nan,
        }
        | columns
    )


def test_auc_by_hand() -> None:
    # positives .9 .8 .5 .5 .2; negatives .5 .4 .3 .2 .1: 5+5+4.5+4.5+1.5 of 25
    frame = by_hand(
        [0.9, 0.8, 0.5, 0.5, 0.2, 0.5, 0.4, 0.3, 0.2, 0.1], [1.0] * 4 + [0.5] + [0.0] * 4 + [0.4]
    )
    values = score(frame)
    assert values["auc"] == pytest.approx(20.5 / 25)
    assert values["auc_weighted"] == values["auc"] == values["auc_within"]
    assert values["auc_left_out"] == 0


def test_four_successes_are_too_few_for_auc_but_not_for_the_paper_s() -> None:
    frame = by_hand([0.9, 0.8, 0.7, 0.6] + [0.1] * 6, [1.0] * 4 + [0.0] * 6)
    values = score(frame)
    assert values["auc"] is None
    assert values["auc_left_out"] == 1
    assert values["auc_weighted"] == 1.0


def test_auc_soft_by_hand() -> None:
    # five rows at p = .9 with r = .8 and five at p = .1 with r = .2: weights 4|1 and 1|4
    frame = by_hand([0.9] * 5 + [0.1] * 5, [0.8] * 5 + [0.2] * 5)
    # 4 x (4 + 1/2) + 1 x (4/2) of 25
    assert score(frame)["auc_soft"] == pytest.approx((4 * 4.5 + 1 * 2) / 25)


def test_errors_by_hand() -> None:
    frame = by_hand([0.5, 1.0], [0.2, 1.0], n_rollouts=[5, 1], context_mean=[0.4, 0.4])
    values = score(frame)
    assert values["mse"] == pytest.approx(0.045)
    assert values["brier_skill"] == pytest.approx(1 - 0.09 / (0.04 + 0.36))
    assert values["mse_excess"] == pytest.approx(0.09 - 0.2 * 0.8 / 4)
    assert values["mse_excess_share"] == 0.5
    assert values["residual_context"] is None
    assert values["residual_query"] is None
    assert values["pairwise_accuracy"] is None


def test_constant_prediction_has_one_bin() -> None:
    frame = by_hand([0.5] * 8, [1.0] * 6 + [0.0] * 2)
    values = score(frame)
    assert values["ece"] == pytest.approx(0.25)
    # the rows' p - r have variance 3/14, over 8 rows
    assert values["ece_debiased"] == pytest.approx(np.sqrt(0.0625 - 3 / 14 / 8))


def test_paper_pairs_need_a_gap_of_half_across_half() -> None:
    frame = by_hand(
        [0.9, 0.1, 0.3, 0.3, 0.2, 0.8],
        [0.7, 0.2, 0.9, 0.6, 1.0, 0.4],
        query_id=["q", "q", "w", "w", "z", "z"],
        step=[1, 2, 1, 2, 1, 2],
    )
    # q: .7 - .2 counts and is right; w does not cross .5; z is wrong
    assert score(frame)["pairwise_accuracy_paper"] == 0.5


def test_pairwise_ties_and_unequal_rollouts() -> None:
    copies = 200
    columns = {
        "policy": ["a", "b", "c"] * copies,
        "query_id": [str(i // 3) for i in range(3 * copies)],
        "n_rollouts": [2, 4, 5] * copies,  # a with b, b with c, but not a with c
        "context_mean": [0.9, 0.5, 0.1] * copies,
    }
    frame = by_hand([0.7, 0.7, 0.8] * copies, [1.0, 0.5, 0.0] * copies, **columns)
    values = score(frame)
    assert values["pairwise_accuracy"] == pytest.approx(0.25)  # a tie, and a loss
    assert values["pairwise_skill"] is None  # the context mean leaves nothing to gain


def test_spearman_null_is_what_noise_alone_gives() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(4000)
    frame = by_hand(
        list(p), list(rng.binomial(1, p)), n_rollouts=1, query_difficulty=p, context_mean=p
    )
    values = score(frame)
    assert values["residual_query"] == pytest.approx(0, abs=0.05)
    assert values["residual_query_spearman_null"] < -0.1
    assert values["residual_query_spearman"] == pytest.approx(
        values["residual_query_spearman_null"], abs=0.05
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.drop(columns=["family", "step"]), "step, family"),
        (lambda f: f.iloc[:0], "no rows"),
        (lambda f: f.assign(predictor=["a", *["b"] * (len(f) - 1)]), "2 values of predictor"),
        (lambda f: f.assign(pool=[str(i % 2) for i in range(len(f))]), "2 values of pool"),
        (lambda f: f.assign(protocol=[str(i % 2) for i in range(len(f))]), "of protocol"),
        (lambda f: f.assign(prediction=np.nan), "prediction, row 0: nan"),
        (lambda f: f.assign(prediction=1.5), "prediction, row 0: 1.5"),
        (lambda f: f.assign(prediction="high"), "not numbers"),
        (lambda f: f.assign(mean_reward=-1), "mean_reward"),
        (lambda f: f.assign(n_rollouts=0), "n_rollouts"),
        (lambda f: f.assign(policy=None), "policy holds nulls"),
        (lambda f: pd.concat([f, f.iloc[:1]]), "more than once"),
    ],
)
def test_bad_input_is_a_value_error(change, message: str) -> None:
    frame = change(made_up_frame(0))
    with pytest.raises(ValueError, match=message) as caught:
        score(frame)
    assert isinstance(caught.value, V0BenchError)


def test_null_family_and_empty_context() -> None:
    frame = made_up_frame(1, policies=3, queries=30).assign(family=None, context_mean=None)
    values = score(frame)
    assert values["residual_context"] is None
    assert values["brier_skill"] == pytest.approx(
        1 - values["mse"] / ((0.5 - frame.mean_reward) ** 2).mean()
    )
