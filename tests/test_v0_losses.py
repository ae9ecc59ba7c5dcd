"""The losses of V0 against loops, derivatives and pairs worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from v0_bench.v0.losses import balanced_pairs, context_loss, cross_entropy, ranking_loss, v0_loss


def slow_loss(logits: list[float], rates: list[float], loss: str, alpha: float) -> float:
    """Equations 7 and 8 one pair and one query at a time."""
    positive = [i for i, r in enumerate(rates) if r >= 0.5]
    negative = [i for i, r in enumerate(rates) if r < 0.5]
    rank = 0.0
    if positive and negative:
        n = max(len(positive), len(negative))
        for i in range(n):
            gap = logits[positive[i % len(positive)]] - logits[negative[i % len(negative)]]
            rank += math.log1p(math.exp(-gap)) / n
    entropy = 0.0
    for s, r in zip(logits, rates, strict=True):
        value = 1 / (1 + math.exp(-s))
        y = float(r >= 0.5) if loss == "hard-ce" else r
        entropy -= (y * math.log(value) + (1 - y) * math.log(1 - value)) / len(rates)
    parts = {"rank": rank, "ce": entropy, "hard-ce": entropy}
    return parts.get(loss, alpha * rank + (1 - alpha) * entropy)


def test_pairs_by_hand() -> None:
    better, worse = balanced_pairs(np.array([0.9, 0.1, 0.6, 0.2, 0.3]))
    assert list(zip(better.tolist(), worse.tolist(), strict=True)) == [(0, 1), (2, 3), (0, 4)]
    better, worse = balanced_pairs(np.array([0.5, 0.49, 1.0, 0.7]))
    assert list(zip(better.tolist(), worse.tolist(), strict=True)) == [(0, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize("rates", [[], [0.5, 1.0], [0.0, 0.49]])
def test_one_class_has_no_pairs(rates: list[float]) -> None:
    better, worse = balanced_pairs(np.array(rates))
    assert len(better) == len(worse) == 0
    nothing = torch.zeros(0, dtype=torch.double, requires_grad=True)
    loss = ranking_loss(nothing, nothing)
    loss.backward()
    assert float(loss.detach()) == 0


@pytest.mark.parametrize("loss", ["combined", "rank", "ce", "hard-ce"])
@pytest.mark.parametrize("seed", range(5))
def test_losses_equal_loops_and_finite_differences(loss: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, rates = rng.normal(0, 2, 7), rng.integers(0, 11, 7) / 10
    logits = torch.tensor(values, requires_grad=True)
    found = context_loss(logits, torch.tensor(rates), loss, 0.25)
    assert float(found.detach()) == pytest.approx(
        slow_loss(values.tolist(), rates.tolist(), loss, 0.25)
    )
    (gradient,) = torch.autograd.grad(found, logits)
    for i in range(7):
        up, down = values.copy(), values.copy()
        up[i] += 1e-5
        down[i] -= 1e-5
        slope = (
            slow_loss(up.tolist(), rates.tolist(), loss, 0.25)
            - slow_loss(down.tolist(), rates.tolist(), loss, 0.25)
        ) / 2e-5
        assert float(gradient[i]) == pytest.approx(slope, abs=1e-8)


def test_the_ranking_loss_does_not_see_a_shift_of_the_context() -> None:
    logits, rates = torch.randn(6, dtype=torch.double), torch.tensor([1, 0, 0.6, 0.2, 0.5, 0.1])
    shifted = context_loss(logits + 3, rates, "rank")
    assert float(context_loss(logits, rates, "rank")) == pytest.approx(float(shifted))


def test_queries_of_different_contexts_are_not_paired() -> None:
    """One context all right, one all wrong: no pair, so cross entropy alone."""
    logits = torch.tensor([[1.0, 2.0], [3.0, -1.0]], dtype=torch.double)
    rates = torch.tensor([[1.0, 0.8], [0.0, 0.2]], dtype=torch.double)
    there = torch.ones(2, 2, dtype=torch.bool)
    entropy = (cross_entropy(logits[0], rates[0]) + cross_entropy(logits[1], rates[1])) / 2
    assert float(v0_loss(logits, rates, there)) == pytest.approx(0.75 * float(entropy))
    assert float(v0_loss(logits, rates, there, "rank")) == 0


def test_padding_does_not_count() -> None:
    logits = torch.tensor([[1.0, 2.0, 9.0], [3.0, -1.0, 0.5]], dtype=torch.double)
    rates = torch.tensor([[1.0, 0.2, 0.0], [0.0, 0.7, 0.3]], dtype=torch.double)
    there = torch.tensor([[True, True, False], [True, True, True]])
    expected = (context_loss(logits[0, :2], rates[0, :2]) + context_loss(logits[1], rates[1])) / 2
    assert float(v0_loss(logits, rates, there)) == pytest.approx(float(expected))


def test_the_ranking_loss_changes_the_gradient_of_training() -> None:
    """In the official release it never runs."""
    logits = torch.zeros(4, dtype=torch.double, requires_grad=True)
    rates = torch.tensor([0.5, 0.4, 0.5, 0.4], dtype=torch.double)
    with_rank, without = (
        torch.autograd.grad(context_loss(logits, rates, loss), logits)[0]
        for loss in ("combined", "ce")
    )
    assert (with_rank - 0.75 * without).abs().min() > 0.05
