"""The losses of V0: ranking inside a context, and cross entropy against success rates.

Arrays of one step: logits and success rates (E, M), mask (E, M) of the queries that are there.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid


def balanced_pairs(rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places (better, worse) of query pairs of one context: success rate >= .5 against < .5.

    The rarer class is repeated in turn until it is as large as the other; rates (M,) of one class
    give no pair.
    """
    positive, negative = np.flatnonzero(rates >= 0.5), np.flatnonzero(rates < 0.5)
    if not len(positive) or not len(negative):
        return positive[:0], negative[:0]
    n = max(len(positive), len(negative))
    return np.resize(positive, n), np.resize(negative, n)


def ranking_loss(better: Tensor, worse: Tensor) -> Tensor:
    """Mean of -log sigmoid(better - worse) over pairs of logits (P,); 0 without pairs (eq. 7)."""
    if not len(better):
        return better.sum()
    return -logsigmoid(better - worse).mean()


def cross_entropy(logits: Tensor, rates: Tensor, hard: bool = False) -> Tensor:
    """Mean cross entropy of logits (M,) against success rates, or [rate >= .5] if `hard`."""
    targets = (rates >= 0.5).to(logits) if hard else rates.to(logits)
    return binary_cross_entropy_with_logits(logits, targets)


def context_loss(
    logits: Tensor, rates: Tensor, loss: str = "combined", alpha: float = 0.25
) -> Tensor:
    """Loss of the queries (M,) of one context: alpha ranking + (1 - alpha) cross entropy (eq. 8).

    `loss`: combined, or rank, ce, and hard-ce, which is the cross entropy against rounded rates
    that the official release always falls back to.
    """
    if loss in ("ce", "hard-ce"):
        return cross_entropy(logits, rates, hard=loss == "hard-ce")
    better, worse = balanced_pairs(rates.cpu().numpy())
    ranking = ranking_loss(logits[better], logits[worse])
    if loss == "rank":
        return ranking
    return alpha * ranking + (1 - alpha) * cross_entropy(logits, rates)


def v0_loss(
    logits: Tensor, rates: Tensor, mask: Tensor, loss: str = "combined", alpha: float = 0.25
) -> Tensor:
    """Mean of `context_loss` over the contexts of a step, so that processes can share them."""
    parts = [
        context_loss(row[there], wanted[there], loss, alpha)
        for row, wanted, there in zip(logits, rates, mask, strict=True)
    ]
    return torch.stack(parts).mean()
