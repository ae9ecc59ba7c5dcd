"""Replicates equal scores of rows that are really repeated; pairing, ranks, and bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from metric_frames import made_up_frame, other_predictor
from metric_slow import bins_of, calibration_metrics
from v0_bench.metrics import (
    METRICS,
    MetricInputError,
    auc,
    intervals,
    score,
    score_per_seed,
)
from v0_bench.metrics.resample import draw_resample
from v0_bench.metrics.rows import codes

LINEAR = ("ece", "ece_debiased", "residual_context_spearman", "residual_query_spearman")
EXACT = [name for name, info in METRICS.items() if info.has_interval and name not in LINEAR]


def repeated_rows(frame: pd.DataFrame, groups: np.ndarray, families: np.ndarray) -> pd.DataFrame:
    """Every row as often as its group and family say; copies are new queries and new policies."""
    group = codes(frame["query_group"])
    family = codes(frame["family"])
    parts = []
    for a in range(groups.max()):
        for b in range(families.max()):
            part = frame[(groups[group] > a) & (families[family] > b)]
            parts.append(
                part.assign(
                    query_id=part["query_id"] + f"#{a}",
                    query_group=part["query_group"] + f"#{a}",
                    policy=part["policy"] + f"#{b}",
                    family=part["family"] + f"#{b}",
                )
            )
    return pd.concat(parts, ignore_index=True)


def design(**changes: object) -> pd.DataFrame:
    arguments = {"policies": 8, "queries": 60, "seeds": 2, "rollouts": (2, 4, 10), "families": 6}
    return made_up_frame(7, **(arguments | changes))


@pytest.mark.parametrize(
    "frame",
    [
        design(),
        design(steps=3, policies=6, queries=40, missing=0.2),
        design(rollouts=(1,), one_class=1, grid=1000),
    ],
    ids=["soft", "steps", "binary"],
)
def test_replicates_are_scores_of_repeated_rows(
    frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    # whether a checkpoint has 5 rows of each class is decided on the sample, not in a replicate
    monkeypatch.setattr(auc, "MIN_CLASS_ROWS", 0)
    table = intervals({"a": frame}, replicates=4, seed=1)
    resample = draw_resample(
        frame["query_group"].nunique(), frame["family"].nunique(), replicates=4, seed=1
    )
    assert resample.families is not None
    once = np.ones(resample.families.shape[1], dtype=int)
    defined = [name for name in EXACT if score(frame)[name] is not None]
    assert {"auc", "pairwise_skill", "residual_query"} <= set(defined)
    for i, groups in enumerate(resample.groups):
        plain = score(repeated_rows(frame, groups, once))
        policies = score(repeated_rows(frame, groups, resample.families[i]))
        for name in defined:
            assert table.replicates["a", name][i] == pytest.approx(plain[name], abs=1e-9), name
            replicate = table.replicates_policies["a", name][i]
            assert replicate == pytest.approx(policies[name], abs=1e-9), name


def test_calibration_replicates_keep_the_bins() -> None:
    frame = design(seeds=1)
    table = intervals({"a": frame}, replicates=3)
    resample = draw_resample(frame["query_group"].nunique(), 6, replicates=3, seed=0)
    binned = frame.assign(bin=bins_of(list(frame["prediction"]), 15))
    for i, groups in enumerate(resample.groups):
        rows = repeated_rows(binned, groups, np.ones(6, dtype=int))
        expected = calibration_metrics(rows, list(rows["bin"]))
        for name, value in expected.items():
            assert table.replicates["a", name][i] == pytest.approx(value, abs=1e-9)


def test_rank_correlations_in_replicates_are_close() -> None:
    frame = design(seeds=1, queries=300, grid=1000)
    table = intervals({"a": frame}, replicates=5)
    resample = draw_resample(frame["query_group"].nunique(), 6, replicates=5, seed=0)
    for i, groups in enumerate(resample.groups):
        expected = score(repeated_rows(frame, groups, np.ones(6, dtype=int)))
        for name in ("residual_context_spearman", "residual_query_spearman"):
            assert table.replicates["a", name][i] == pytest.approx(expected[name], abs=0.01)


def test_row_is_ready_for_the_leaderboard() -> None:
    frame = design()
    row = intervals({"a": frame}, replicates=200).row("a")
    values, per_seed = score(frame), score_per_seed(frame)
    assert list(row) == list(METRICS)
    for name, entry in row.items():
        assert entry["value"] == values[name]
        assert entry["per_seed"] == per_seed[name]
        if not METRICS[name].has_interval or entry["value"] is None:
            assert entry["low"] is entry["high"] is entry["low_policies"] is None
    for name in ("auc", "mse", "pairwise_accuracy", "residual_query_spearman"):
        entry = row[name]
        assert entry["low"] <= entry["value"] <= entry["high"]
        assert entry["low_policies"] <= entry["value"] <= entry["high_policies"]


def test_few_families_give_no_interval_for_new_policies() -> None:
    table = intervals({"a": design(families=5)}, replicates=50)
    assert not table.replicates_policies
    entry = table.row("a")["auc"]
    assert entry["low"] is not None
    assert entry["low_policies"] is entry["high_policies"] is None


def test_differences_are_paired_and_ranks_follow_them() -> None:
    frame = design(queries=200, seeds=1, grid=1000)
    frames = {
        "best": frame,
        "twin": other_predictor(frame, "twin", 0, 0.001),
        "noise": other_predictor(frame, "noise", 1, 3.0),
        "oracle": frame.assign(prediction=frame["mean_reward"]),
    }
    table = intervals(frames, replicates=300)
    difference = table.difference("best", "noise")
    direct = table.replicates["best", "auc"] - table.replicates["noise", "auc"]
    assert [difference["low"], difference["high"]] == pytest.approx(
        list(np.percentile(direct, [2.5, 97.5]))
    )
    assert difference["low"] > 0
    assert table.difference("best", "twin")["low"] < 0 < table.difference("best", "twin")["high"]
    assert table.ranks(leave_out=["oracle"]) == {"best": 1, "twin": 1, "noise": 3, "oracle": None}
    assert table.ranks() == {"best": 2, "twin": 2, "noise": 4, "oracle": 1}


def test_a_predictor_without_auc_has_no_rank() -> None:
    frame = made_up_frame(0, queries=4)
    table = intervals({"a": frame}, replicates=20)
    assert table.ranks() == {"a": None}
    assert table.difference("a", "a")["value"] is None


def test_rows_may_come_in_any_order() -> None:
    frame = design()
    other = other_predictor(frame, "b", 0, 0.2)
    shuffled = other.sample(frac=1, random_state=0)
    together = intervals({"a": frame, "b": other}, replicates=20)
    again = intervals({"a": frame, "b": shuffled}, replicates=20)
    for key, values in together.replicates.items():
        assert again.replicates[key] == pytest.approx(values, abs=1e-12)


def test_alone_or_together_a_predictor_gets_the_same_interval() -> None:
    frame = design()
    other = other_predictor(frame, "b", 0, 0.2)
    alone = intervals({"b": other}, replicates=20).row("b")
    together = intervals({"a": frame, "b": other}, replicates=20).row("b")
    for name, entry in alone.items():
        for key, value in entry.items():
            assert together[name][key] == (pytest.approx(value) if value is not None else None)


def test_a_checkpoint_left_with_one_class_has_no_weight() -> None:
    frame = made_up_frame(2, policies=7, queries=60, seeds=1)
    # two of the policies succeed on the queries of one group only
    odd = frame["policy"].isin(["policy-0", "policy-1"])
    frame.loc[odd, "mean_reward"] = (frame.loc[odd, "query_group"] == "g3").astype(float)
    table = intervals({"a": frame}, replicates=60)
    resample = draw_resample(frame["query_group"].nunique(), 7, replicates=60, seed=0)
    position = sorted(frame["query_group"].unique()).index("g3")
    without = np.flatnonzero(resample.groups[:, position] == 0)
    assert len(without)
    for i in without[:3]:
        rows = repeated_rows(frame[~odd], resample.groups[i], np.ones(7, dtype=int))
        assert table.replicates["a", "auc_weighted"][i] == pytest.approx(
            score(rows)["auc_weighted"]
        )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: f.iloc[1:], "rows and a"),
        (lambda f: f.assign(mean_reward=1 - f["mean_reward"]), "column mean_reward"),
        (lambda f: f.assign(query_id=f["query_id"] + "x"), "column query_id"),
        (lambda f: f.assign(pool="another"), "column pool"),
        (lambda f: f.assign(prediction=np.nan), "prediction"),
        (lambda f: f.drop(columns="family"), "family"),
    ],
)
def test_unpaired_rows_are_refused(change, message: str) -> None:
    frame = made_up_frame(0)
    with pytest.raises(MetricInputError, match=message):
        intervals({"a": frame, "b": change(frame)}, replicates=5)


def test_nothing_to_compare() -> None:
    with pytest.raises(MetricInputError, match="no predictors"):
        intervals({})
