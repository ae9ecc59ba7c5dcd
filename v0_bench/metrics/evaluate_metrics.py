"""Every metric as an `evaluate.Metric`: `load(name).compute(predictions=..., references=..., ...)`.

Predictions are values, references success rates. A metric also takes the columns it needs, named as
in PREDICTION_COLUMNS: `load(name).features` lists them. One seed at a time; columns a metric does
not need are not asked for, so the AUC wants no query ids and the squared error no checkpoints.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import datasets
import evaluate

from v0_bench.errors import V0BenchError
from v0_bench.metrics.catalogue import METRICS
from v0_bench.metrics.residuals import spearman_metrics
from v0_bench.metrics.rows import Rows, rows_by_seed
from v0_bench.metrics.scoring import (
    auc_scores,
    calibration_scores,
    error_scores,
    nullable,
    pairwise_scores,
    residual_scores,
)

if TYPE_CHECKING:
    import pandas as pd

Scores = Callable[[Rows], dict[str, float]]

CHECKPOINT = ("policy", "step")
NEEDS: dict[str, tuple[Scores, tuple[str, ...]]] = {
    "auc": (auc_scores, CHECKPOINT),
    "auc_left_out": (auc_scores, CHECKPOINT),
    "auc_weighted": (auc_scores, CHECKPOINT),
    "auc_soft": (auc_scores, CHECKPOINT),
    "auc_within": (auc_scores, (*CHECKPOINT, "dataset")),
    "pairwise_accuracy": (pairwise_scores, (*CHECKPOINT, "query_id", "n_rollouts")),
    "pairwise_skill": (pairwise_scores, (*CHECKPOINT, "query_id", "n_rollouts", "context_mean")),
    "pairwise_accuracy_paper": (pairwise_scores, (*CHECKPOINT, "query_id")),
    "mse": (error_scores, ()),
    "brier_skill": (error_scores, ("context_mean",)),
    "mse_excess": (error_scores, ("n_rollouts",)),
    "mse_excess_share": (error_scores, ("n_rollouts",)),
    "ece": (calibration_scores, ()),
    "ece_debiased": (calibration_scores, ()),
    "residual_context": (residual_scores, ("context_mean",)),
    "residual_query": (residual_scores, ("query_difficulty",)),
    "residual_context_spearman": (spearman_metrics, ("context_mean",)),
    "residual_context_spearman_null": (spearman_metrics, ("context_mean", "n_rollouts")),
    "residual_query_spearman": (spearman_metrics, ("query_difficulty",)),
    "residual_query_spearman_null": (spearman_metrics, ("query_difficulty", "n_rollouts")),
}
TYPES = {
    "policy": "string",
    "step": "int64",
    "query_id": "string",
    "dataset": "string",
    "n_rollouts": "int64",
    "context_mean": "float64",
    "query_difficulty": "float64",
}


class ValueMetric(evaluate.Metric):
    """One metric of METRICS; the configuration's name is the metric's."""

    def _info(self) -> evaluate.MetricInfo:
        _, needed = NEEDS[self.config_name]
        columns = {"predictions": "float64", "references": "float64"} | {
            name: TYPES[name] for name in needed
        }
        return evaluate.MetricInfo(
            description=METRICS[self.config_name].summary,
            citation="",
            inputs_description="Values, success rates, and the columns listed in `features`.",
            features=datasets.Features({k: datasets.Value(v) for k, v in columns.items()}),
        )

    def _compute(
        self,
        predictions: Sequence[float],
        references: Sequence[float],
        policy: Sequence[str] | None = None,
        step: Sequence[int | None] | None = None,
        query_id: Sequence[str] | None = None,
        dataset: Sequence[str] | None = None,
        n_rollouts: Sequence[int] | None = None,
        context_mean: Sequence[float | None] | None = None,
        query_difficulty: Sequence[float | None] | None = None,
    ) -> dict[str, float | None]:
        columns = {
            "prediction": predictions,
            "mean_reward": references,
            "policy": policy,
            "step": step,
            "query_id": query_id,
            "dataset": dataset,
            "n_rollouts": n_rollouts,
            "context_mean": context_mean,
            "query_difficulty": query_difficulty,
        }
        rows = rows_by_seed(_frame(columns))[0]
        scores, _ = NEEDS[self.config_name]
        return {self.config_name: nullable(scores(rows)[self.config_name])}


def load(name: str) -> ValueMetric:
    """The metric called `name`; raises V0BenchError with the nearest name if there is none."""
    if name not in NEEDS:
        near = difflib.get_close_matches(name, NEEDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(NEEDS)}"
        raise V0BenchError(f"no metric is called {name}{hint}")
    return ValueMetric(config_name=name)


def _frame(columns: Mapping[str, Sequence[object] | None]) -> pd.DataFrame:
    """Rows of one seed; columns the metric does not use get a value that keeps them legal."""
    import pandas as pd

    predictions = columns["prediction"] or []
    row_numbers = [str(i) for i in range(len(predictions))]
    unused: dict[str, object] = {
        "pool": "",
        "protocol": "",
        "seed": 0,
        "predictor": "",
        "policy": "",
        "step": None,
        "query_id": row_numbers,
        "dataset": "",
        "family": None,
        "n_rollouts": 1,
        "context_size": 0,
        "context_mean": None,
        "query_difficulty": None,
    }
    given = {name: values for name, values in columns.items() if values is not None}
    frame = pd.DataFrame({**unused, **given}, index=range(len(predictions)))
    return frame.assign(query_group=frame["query_id"])
