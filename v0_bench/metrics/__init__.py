"""Metrics of predicted success rates: scores, intervals, and reference rows.

`score(frame)` gives every metric of one predictor's rows; `intervals(frames)` compares predictors
on the same rows. The kernels work on arrays and need nothing but NumPy and SciPy.
"""

from v0_bench.metrics.catalogue import METRICS, MetricInfo
from v0_bench.metrics.difficulty import query_difficulty
from v0_bench.metrics.intervals import Difference, IntervalTable, MetricEntry, intervals
from v0_bench.metrics.reference import ceiling_metrics, cross_policy_oracle
from v0_bench.metrics.rows import PREDICTION_COLUMNS, MetricInputError
from v0_bench.metrics.scoring import score, score_per_seed

__all__ = [
    "METRICS",
    "PREDICTION_COLUMNS",
    "Difference",
    "IntervalTable",
    "MetricEntry",
    "MetricInfo",
    "MetricInputError",
    "ceiling_metrics",
    "cross_policy_oracle",
    "intervals",
    "query_difficulty",
    "score",
    "score_per_seed",
]
