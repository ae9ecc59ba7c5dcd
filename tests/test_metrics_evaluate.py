"""The `evaluate.Metric` of every metric gives what `score` gives."""

from __future__ import annotations

import pandas as pd
import pytest

from metric_frames import made_up_frame
from v0_bench.errors import V0BenchError
from v0_bench.metrics import METRICS, evaluate_metrics, score

FRAME = made_up_frame(4, policies=6, steps=3, queries=25, rollouts=(4, 8), missing=0.1)
STEPLESS = made_up_frame(4, policies=6, queries=25)


@pytest.mark.parametrize("frame", [FRAME, STEPLESS], ids=["steps", "stepless"])
@pytest.mark.parametrize("name", list(METRICS))
def test_compute_equals_score(name: str, frame) -> None:
    metric = evaluate_metrics.load(name)
    columns = {
        column: frame[column].astype(object).where(frame[column].notna(), None).tolist()
        for column in metric.features
        if column in frame
    }
    if "step" in columns:
        columns["step"] = [None if s is pd.NA else int(s) for s in frame["step"]]
    result = metric.compute(
        predictions=frame["prediction"].tolist(),
        references=frame["mean_reward"].tolist(),
        **columns,
    )
    expected = score(frame)[name]
    if expected is None:
        assert result == {name: None}
    else:
        assert result[name] == pytest.approx(expected)


def test_every_metric_has_one() -> None:
    assert set(evaluate_metrics.NEEDS) == set(METRICS)
    metric = evaluate_metrics.load("brier_skill")
    assert metric.name
    assert METRICS["brier_skill"].summary in metric.description


def test_batches_may_be_added() -> None:
    metric = evaluate_metrics.load("mse")
    metric.add_batch(predictions=[0.5, 1.0], references=[0.0, 1.0])
    metric.add_batch(predictions=[0.0], references=[1.0])
    assert metric.compute() == {"mse": pytest.approx(1.25 / 3)}


def test_unknown_name_and_bad_values() -> None:
    with pytest.raises(V0BenchError, match="did you mean auc_within"):
        evaluate_metrics.load("auc_withn")
    with pytest.raises(ValueError, match="prediction"):
        evaluate_metrics.load("mse").compute(predictions=[1.5], references=[0.0])
