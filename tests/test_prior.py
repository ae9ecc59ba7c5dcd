"""The synthetic prior: same seed same episodes, ranges as wide as promised, extremes present."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from v0_bench.v0.prior import ROLLOUTS, Episodes, draw


@pytest.fixture(scope="module")
def many() -> Episodes:
    return draw(torch.Generator().manual_seed(0), 600, 48, 48)


def test_same_seed_same_episodes_and_other_seed_others() -> None:
    first, again, other = (draw(torch.Generator().manual_seed(s), 5, 16, 8) for s in (1, 1, 2))
    for field in fields(Episodes):
        assert torch.equal(getattr(first, field.name), getattr(again, field.name))
    assert not torch.equal(first.features, other.features)


def test_shapes_ranges_and_binomial_labels(many: Episodes) -> None:
    assert many.features.shape == many.queries.shape == (600, 48, 33)
    assert many.mask.shape == many.labels.shape == many.counts.shape == (600, 48)
    for field in fields(Episodes):
        assert torch.isfinite(getattr(many, field.name)).all(), field.name
    for rates in (many.labels, many.rates, many.values):
        assert rates.min() >= 0
        assert rates.max() <= 1
    assert set(many.counts.unique().tolist()) == set(ROLLOUTS)
    successes = many.labels * many.counts
    torch.testing.assert_close(successes, successes.round(), atol=1e-4, rtol=0)
    mixed = (many.counts != many.counts[:, :1]).any(dim=1).float().mean()
    assert 0.03 < mixed < 0.2


def test_context_sizes(many: Episodes) -> None:
    sizes = many.mask.sum(dim=1)
    assert {0, 1, 48} <= set(sizes.tolist())
    assert (sizes >= 28).float().mean() > 0.85
    assert torch.all(many.mask[:, :-1] >= many.mask[:, 1:])


def test_items_of_context_and_queries_are_exchangeable(many: Episodes) -> None:
    gap = (many.labels.mean(dim=1) - many.rates.mean(dim=1)).numpy()
    assert abs(gap.mean()) < 4 * gap.std() / np.sqrt(len(gap))
    assert gap.std() < 0.15


def test_values_are_expected_rates(many: Episodes) -> None:
    gap = (many.rates - many.values).numpy()
    assert abs(gap.mean()) < 0.005
    slope = np.polyfit(many.values.flatten().numpy(), many.rates.flatten().numpy(), 1)[0]
    assert 0.85 < slope < 1.02  # a mean of 8 draws is a little noisy itself
    assert gap.std() > 0.1


def test_features_have_unit_variance_and_unused_ones_are_zero(many: Episodes) -> None:
    texts = torch.cat([many.features, many.queries], dim=1)[..., 1:]
    used = (texts != 0).any(dim=1)
    numbers = used.sum(dim=1)
    assert {0, 4, 32} <= set(numbers.tolist())
    assert set(numbers.tolist()) <= {0, *range(4, 33)}
    variance = texts.square().mean(dim=1).sum(dim=1)[numbers > 0] / numbers[numbers > 0]
    torch.testing.assert_close(variance, torch.ones_like(variance), atol=1e-3, rtol=0)
    torch.testing.assert_close(texts.mean(dim=1), torch.zeros(600, 32), atol=1e-3, rtol=0)
    first = texts.square().mean(dim=1).max(dim=1).values[numbers > 0] / numbers[numbers > 0]
    assert first.quantile(0.05) < 0.15  # flat spectra
    assert first.quantile(0.95) > 0.5  # steep ones


def test_hints_are_absent_useless_or_good(many: Episodes) -> None:
    hints = torch.cat([many.features, many.queries], dim=1)[..., 0]
    absent = (hints == 0).all(dim=1)
    assert 0.04 < absent.float().mean() < 0.15
    correlations = np.array(
        [
            spearmanr(many.queries[i, :, 0], many.rates[i]).statistic
            for i in (~absent).nonzero().flatten().tolist()
        ]
    )
    assert 0.3 < np.nanmedian(correlations) < 0.7
    assert np.nanquantile(correlations, 0.95) > 0.8
    assert np.nanquantile(correlations, 0.05) < 0.15


def test_policies_from_hopeless_to_mastered(many: Episodes) -> None:
    means = many.rates.mean(dim=1)
    for low, high in ((0, 0.05), (0.05, 0.3), (0.3, 0.7), (0.7, 0.95), (0.95, 1)):
        share = ((means >= low) & (means <= high)).float().mean()
        assert share > 0.02, (low, high)
    labels = torch.where(many.mask, many.labels, many.labels[:, :1])
    one_class = (labels == labels[:, :1]).all(dim=1).float().mean()
    assert 0.01 < one_class < 0.25


def test_bimodal_items_occur(many: Episodes) -> None:
    middling = (many.rates.mean(dim=1) - 0.5).abs() < 0.2
    extreme = ((many.rates < 0.1) | (many.rates > 0.9)).float().mean(dim=1)[middling]
    assert extreme.quantile(0.95) > 0.6
    assert extreme.quantile(0.1) < 0.1


def test_structure_beyond_the_hint_can_be_learned() -> None:
    """With many items, linear regression on the features explains more than the hint in some."""
    batch = draw(torch.Generator().manual_seed(4), 60, 0, 600)
    gains = []
    for features, values in zip(batch.queries.numpy(), batch.values.numpy(), strict=True):
        target = np.log(np.clip(values, 1e-3, 1) / np.clip(1 - values, 1e-3, 1))
        if target.std() < 0.1:
            continue
        columns = [np.column_stack([np.ones(600), features[:, :k]]) for k in (1, 33)]
        errors = [np.mean((target - c @ np.linalg.lstsq(c, target)[0]) ** 2) for c in columns]
        gains.append(1 - errors[1] / errors[0])
    assert np.quantile(gains, 0.25) < 0.3
    assert np.quantile(gains, 0.9) > 0.5
