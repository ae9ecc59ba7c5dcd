"""The metrics by name: which way is better, whether an interval makes sense, one line on each."""

from dataclasses import dataclass
from typing import Literal

Better = Literal["high", "low"] | None


@dataclass(frozen=True)
class MetricInfo:
    """What a table needs to know of a metric: `better` is None where neither way is."""

    better: Better
    has_interval: bool
    summary: str


METRICS: dict[str, MetricInfo] = {
    "auc": MetricInfo(
        "high", True, "mean AUC of p for r >= .5 over checkpoints with 5 rows of each class"
    ),
    "auc_left_out": MetricInfo(None, False, "number of checkpoints that auc leaves out"),
    "auc_weighted": MetricInfo(
        "high", True, "AUC over all two-class checkpoints, weighted by rows (the paper's)"
    ),
    "auc_soft": MetricInfo(
        "high", True, "AUC with each row positive by weight r and negative by weight 1 - r"
    ),
    "auc_within": MetricInfo("high", True, "AUC inside one checkpoint and one data set"),
    "pairwise_accuracy": MetricInfo(
        "high", True, "share of checkpoint pairs of one query that p puts in the order of r"
    ),
    "pairwise_skill": MetricInfo(
        "high", True, "pairwise accuracy gained over the context mean, as a share of what is left"
    ),
    "pairwise_accuracy_paper": MetricInfo(
        "high", True, "pairwise accuracy over two steps of one policy whose r differ by .5 or more"
    ),
    "mse": MetricInfo("low", True, "mean (p - r)^2"),
    "brier_skill": MetricInfo("high", True, "1 - mse / mse of the context mean"),
    "mse_excess": MetricInfo("low", True, "mse without the rollouts' own noise, rows with k >= 2"),
    "mse_excess_share": MetricInfo(None, False, "share of rows with k >= 2"),
    "ece": MetricInfo("low", True, "expected calibration error, 15 equal-mass bins"),
    "ece_debiased": MetricInfo("low", True, "calibration error, root mean square, noise removed"),
    "residual_context": MetricInfo(None, True, "Pearson correlation of p - r and context mean"),
    "residual_query": MetricInfo(None, True, "Pearson correlation of p - r and query difficulty"),
    "residual_context_spearman": MetricInfo(None, True, "the paper's form of residual_context"),
    "residual_context_spearman_null": MetricInfo(
        None, False, "residual_context_spearman if p were the true success rate"
    ),
    "residual_query_spearman": MetricInfo(None, True, "the paper's form of residual_query"),
    "residual_query_spearman_null": MetricInfo(
        None, False, "residual_query_spearman if p were the true success rate"
    ),
}
