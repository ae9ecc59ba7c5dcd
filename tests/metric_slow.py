"""The metrics once more, written for reading: plain loops over rows and pairs, one seed's frame.

Nothing here is shared with the package. Frames have the columns of `predictions.parquet`.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
from scipy import stats


def auc_of(pairs: list[tuple[float, float, float]]) -> float | None:
    """AUC of (prediction, positive weight, negative weight) by comparing everything."""
    won = total = 0.0
    for (p, w, _), (q, _, v) in itertools.product(pairs, pairs):
        total += w * v
        won += w * v * (1.0 if p > q else 0.5 if p == q else 0.0)
    return won / total if total > 1e-12 else None


def checkpoints(frame: pd.DataFrame) -> list[pd.DataFrame]:
    return [part for _, part in frame.groupby(["policy", "step"], dropna=False)]


def hard(frame: pd.DataFrame) -> list[tuple[float, float, float]]:
    return [
        (p, float(r >= 0.5), float(r < 0.5))
        for p, r in zip(frame.prediction, frame.mean_reward, strict=True)
    ]


def soft(frame: pd.DataFrame) -> list[tuple[float, float, float]]:
    return [(p, r, 1 - r) for p, r in zip(frame.prediction, frame.mean_reward, strict=True)]


def mean(values: list[float], weights: list[float]) -> float | None:
    total = sum(weights)
    if total <= 0:
        return None
    return sum(v * w for v, w in zip(values, weights, strict=True)) / total


def auc_metrics(frame: pd.DataFrame) -> dict[str, float | None]:
    parts = checkpoints(frame)
    plain, by_size, by_size_weights, smooth = [], [], [], []
    for part in parts:
        positive = int((part.mean_reward >= 0.5).sum())
        negative = len(part) - positive
        if positive and negative:
            by_size.append(auc_of(hard(part)))
            by_size_weights.append(len(part))
        if positive >= 5 and negative >= 5:
            plain.append(auc_of(hard(part)))
        if min(part.mean_reward.sum(), (1 - part.mean_reward).sum()) > 5 - 1e-6:
            smooth.append(auc_of(soft(part)))
    within, within_weights = [], []
    for part in parts:
        for _, cell in part.groupby("dataset"):
            positive = int((cell.mean_reward >= 0.5).sum())
            negative = len(cell) - positive
            if positive and negative:
                within.append(auc_of(hard(cell)))
                within_weights.append(positive * negative / (positive + negative))
    return {
        "auc": mean(plain, [1.0] * len(plain)),
        "auc_left_out": float(len(parts) - len(plain)),
        "auc_weighted": mean(by_size, by_size_weights),
        "auc_soft": mean(smooth, [1.0] * len(smooth)),
        "auc_within": mean(within, within_weights),
    }


def pair_result(frame: pd.DataFrame, column: str) -> tuple[float, int]:
    won, pairs = 0.0, 0
    for _, part in frame.groupby("query_id"):
        rows = list(zip(part[column], part.mean_reward, part.n_rollouts, strict=True))
        for (p, r, k), (q, s, m) in itertools.permutations(rows, 2):
            if r > s and max(k, m) <= 2 * min(k, m):
                pairs += 1
                won += 1.0 if p > q else 0.5 if p == q else 0.0
    return won, pairs


def paper_result(frame: pd.DataFrame) -> tuple[float, int]:
    won, pairs = 0.0, 0
    for _, part in frame.groupby(["query_id", "policy"]):
        rows = list(zip(part.prediction, part.mean_reward, strict=True))
        for (p, r), (q, s) in itertools.permutations(rows, 2):
            if r >= 0.5 > s and r - s > 0.5 - 1e-6:
                pairs += 1
                won += 1.0 if p > q else 0.5 if p == q else 0.0
    return won, pairs


def pairwise_metrics(frame: pd.DataFrame) -> dict[str, float | None]:
    frame = frame.assign(context_mean=frame.context_mean.fillna(0.5))
    won, pairs = pair_result(frame, "prediction")
    context_won, _ = pair_result(frame, "context_mean")
    paper_won, paper_pairs = paper_result(frame)
    enough = pairs >= 200
    room = 1 - context_won / pairs if enough else 0
    return {
        "pairwise_accuracy": won / pairs if enough else None,
        "pairwise_skill": (won - context_won) / pairs / room if room > 0 else None,
        "pairwise_accuracy_paper": paper_won / paper_pairs if paper_pairs else None,
    }


def error_metrics(frame: pd.DataFrame) -> dict[str, float | None]:
    p, r, k = frame.prediction, frame.mean_reward, frame.n_rollouts
    mse = float(((p - r) ** 2).mean())
    context = float(((frame.context_mean.fillna(0.5) - r) ** 2).mean())
    several = frame[k >= 2]
    excess = [
        (p - r) ** 2 - r * (1 - r) / (k - 1)
        for p, r, k in zip(several.prediction, several.mean_reward, several.n_rollouts, strict=True)
    ]
    return {
        "mse": mse,
        "brier_skill": 1 - mse / context if context > 0 else None,
        "mse_excess": float(np.mean(excess)) if excess else None,
        "mse_excess_share": len(several) / len(frame),
    }


def bins_of(values: list[float], bins: int) -> list[int]:
    """Bin of each value: which `bins`-th the middle of its run of ties falls in."""
    n = len(values)
    return [
        (2 * sum(w < v for w in values) + sum(w == v for w in values)) * bins // (2 * n)
        for v in values
    ]


def calibration_metrics(
    frame: pd.DataFrame, bins: list[int] | None = None
) -> dict[str, float | None]:
    bins = bins_of(list(frame.prediction), 15) if bins is None else bins
    gap, squares = 0.0, 0.0
    for b in set(bins):
        part = frame[[c == b for c in bins]]
        share = len(part) / len(frame)
        difference = part.prediction.mean() - part.mean_reward.mean()
        gap += share * abs(difference)
        if len(part) > 1:
            variance = (part.prediction - part.mean_reward).var(ddof=1)
            squares += share * (difference**2 - variance / len(part))
    return {"ece": gap, "ece_debiased": math.sqrt(max(0.0, squares))}


def residual_metrics(frame: pd.DataFrame) -> dict[str, float | None]:
    result: dict[str, float | None] = {}
    for name, column in (("context", "context_mean"), ("query", "query_difficulty")):
        part = frame.assign(context_mean=frame.context_mean.fillna(0.5)).dropna(subset=[column])
        error, other = part.prediction - part.mean_reward, part[column]
        varies = len(part) > 1 and np.ptp(error) > 1e-8 and np.ptp(other) > 1e-8
        result[f"residual_{name}"] = float(stats.pearsonr(error, other)[0]) if varies else None
        result[f"residual_{name}_spearman"] = (
            float(stats.spearmanr(error, other)[0]) if varies else None
        )
    return result


def score_one_seed(frame: pd.DataFrame) -> dict[str, float | None]:
    """All metrics but the two redrawn nulls."""
    return {
        **auc_metrics(frame),
        **pairwise_metrics(frame),
        **error_metrics(frame),
        **calibration_metrics(frame),
        **residual_metrics(frame),
    }
