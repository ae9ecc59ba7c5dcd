"""What every in-context head of the project promises (`heads.base`), and heads on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from v0_bench.errors import V0BenchError
from v0_bench.v0.heads.base import Head
from v0_bench.v0.heads.icl import ICLHead
from v0_bench.v0.heads.saved import KINDS, load_head, new_head, packaged_head, save_head
from v0_bench.v0.prior import Episodes, draw


def episodes(seed: int = 0, number: int = 3, context: int = 24, queries: int = 7) -> Episodes:
    return draw(torch.Generator().manual_seed(seed), number, context, queries)


def logits(head: Head, batch: Episodes) -> Tensor:
    with torch.no_grad():
        return head(batch.features, batch.labels, batch.counts, batch.mask, batch.queries)


@pytest.fixture(params=sorted(KINDS))
def head(request: pytest.FixtureRequest) -> Head:
    """An untrained head all of whose parts take part in its output."""
    torch.manual_seed(0)
    head = new_head(request.param)
    if isinstance(head, ICLHead):  # at first its correction is zero
        torch.nn.init.normal_(head.correction.weight)
    return head.eval()


@pytest.fixture(params=sorted(KINDS))
def trained(request: pytest.FixtureRequest) -> Head:
    return packaged_head(request.param)


def test_order_of_the_context_does_not_matter(head: Head) -> None:
    batch = episodes()
    order = torch.randperm(24, generator=torch.Generator().manual_seed(1))
    shuffled = head(
        batch.features[:, order],
        batch.labels[:, order],
        batch.counts[:, order],
        batch.mask[:, order],
        batch.queries,
    )
    torch.testing.assert_close(shuffled, logits(head, batch), atol=1e-4, rtol=1e-4)


def test_padding_does_not_matter_whatever_it_holds(head: Head) -> None:
    batch = episodes()
    rows = []
    for i in range(3):
        items = batch.mask[i]
        row = [t[i : i + 1, items] for t in (batch.features, batch.labels, batch.counts)]
        rows.append(head(*row, items[None, items], batch.queries[i : i + 1]))
    outside = ~batch.mask
    assert outside.any()
    for tensor in (batch.features, batch.labels, batch.counts):
        tensor[outside] = torch.nan
    torch.testing.assert_close(torch.cat(rows), logits(head, batch), atol=1e-4, rtol=1e-4)


def test_encoded_context_serves_any_number_of_queries(head: Head) -> None:
    batch = episodes(queries=9)
    with torch.no_grad():
        state = head.encode(batch.features, batch.labels, batch.counts, batch.mask)
        parts = [head.logits(state, batch.queries[:, a:b]) for a, b in ((0, 4), (4, 5), (5, 9))]
        assert head.logits(state, batch.queries[:, :0]).shape == (3, 0)
    torch.testing.assert_close(torch.cat(parts, 1), logits(head, batch), atol=1e-5, rtol=1e-5)


def test_every_context_is_answered_with_finite_logits(head: Head) -> None:
    queries = episodes().queries[:1]
    for size in (0, 1, 2, 100):
        features = torch.randn(1, size, 33, generator=torch.Generator().manual_seed(size))
        for rate in (0.0, 1.0):
            for count in (1, 1000):
                labels, counts = torch.full((1, size), rate), torch.full((1, size), count)
                answer = head(features, labels, counts, torch.ones(1, size).bool(), queries)
                assert torch.isfinite(answer).all(), (size, rate, count)
                answer.sum().backward()
                gradients = [p.grad for p in head.parameters() if p.grad is not None]
                assert all(torch.isfinite(g).all() for g in gradients), (size, rate, count)


def test_identical_items_and_features_of_any_size_are_answered(head: Head) -> None:
    for scale in (0.0, 1e-6, 30.0):
        features = torch.full((1, 12, 33), scale)
        features[..., 0] = 0
        labels = torch.tensor([[0.0, 1.0] * 6])
        mask = torch.ones(1, 12).bool()
        answer = head(features, labels, torch.ones(1, 12), mask, features[:, :2])
        assert torch.isfinite(answer).all()


def test_gradients_reach_the_features_of_context_and_queries(head: Head) -> None:
    batch = episodes(context=64)
    features, queries = batch.features.requires_grad_(), batch.queries.requires_grad_()
    head(features, batch.labels, batch.counts, batch.mask, queries).sum().backward()
    assert features.grad is not None
    assert queries.grad is not None
    assert features.grad[batch.mask].abs().sum() > 0
    assert torch.all(features.grad[~batch.mask] == 0)
    assert queries.grad.abs().sum() > 0
    assert torch.isfinite(features.grad).all()


def test_narrow_features_are_filled_up_and_wide_ones_refused(head: Head) -> None:
    batch = episodes()
    batch.features[..., 9:] = 0
    batch.queries[..., 9:] = 0
    narrow = head(
        batch.features[..., :9], batch.labels, batch.counts, batch.mask, batch.queries[..., :9]
    )
    torch.testing.assert_close(narrow, logits(head, batch))
    with pytest.raises(V0BenchError, match="up to 33 features, not 34"):
        head(torch.zeros(1, 2, 34), torch.zeros(1, 2), torch.ones(1, 2), torch.ones(1, 2).bool(), 0)


def test_more_rollouts_speak_louder(trained: Head) -> None:
    features, queries = torch.zeros(1, 4, 33), torch.zeros(1, 1, 33)
    labels, mask = torch.tensor([[0.9, 0.9, 0.1, 0.1]]), torch.ones(1, 4).bool()
    answers = [
        float(trained(features, labels, torch.tensor([counts]), mask, queries))
        for counts in ([10, 10, 1, 1], [1, 1, 10, 10])
    ]
    assert answers[0] > answers[1] + 0.2


def test_shipped_heads_know_ability_and_hint(trained: Head) -> None:
    hints = torch.linspace(-2, 2, 40)
    features = torch.zeros(2, 40, 33)
    features[..., 0] = hints
    labels = torch.stack([torch.sigmoid(hints - 2), torch.sigmoid(hints + 2)])
    mask = torch.ones(2, 40).bool()
    values = torch.sigmoid(trained(features, labels, torch.full((2, 40), 8), mask, features))
    assert torch.all(values[1] > values[0] + 0.3)
    assert torch.all(values[:, 1:] > values[:, :-1])
    nothing = torch.zeros(1, 0)
    prior = trained(features[:1, :0], nothing, nothing, nothing.bool(), features[:1])
    assert torch.all(prior[:, 1:] > prior[:, :-1])
    assert float(prior.mean().abs()) < 1


@pytest.mark.parametrize("kind_of_structure", ["one feature", "clusters", "hint"])
def test_shipped_heads_find_a_planted_structure(trained: Head, kind_of_structure: str) -> None:
    generator = torch.Generator().manual_seed(3)
    texts = torch.randn(1, 656, 33, generator=generator)
    texts[..., 17:] = 0
    texts[..., 0] = 0
    if kind_of_structure == "one feature":
        truth = texts[..., 5] > 0
    elif kind_of_structure == "clusters":
        centres = 2 * torch.randn(6, 16, generator=generator)
        member = torch.randint(6, (656,), generator=generator)
        texts[0, :, 1:17] = (0.5 * texts[0, :, 1:17] + centres[member]) / 2
        truth = (member % 2 == 0)[None]
    else:
        texts[..., 0] = 1.5 * torch.randn(1, 656, generator=generator)
        truth = texts[..., 0] > 0.3
    labels = truth[:, :256].float()
    ones = torch.ones(1, 256)
    answer = trained(texts[:, :256], labels, ones, ones.bool(), texts[:, 256:]).detach()
    assert roc_auc_score(truth[0, 256:], answer[0]) > 0.93


def test_head_comes_back_from_disk(head: Head, tmp_path: Path) -> None:
    save_head(head, tmp_path, {"note": "a test"})
    assert json.loads((tmp_path / "config.json").read_text())["note"] == "a test"
    loaded = load_head(tmp_path)
    assert not loaded.training
    assert torch.equal(logits(loaded, episodes()), logits(head, episodes()))


def test_unreadable_heads_are_named(tmp_path: Path) -> None:
    with pytest.raises(V0BenchError, match="holds no head"):
        load_head(tmp_path)
    save_head(new_head("gp"), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for change, message in (
        ({"sizes": {"experts": 5}}, "do not fit"),
        ({"sizes": {"wings": 2}}, "wings"),
        ({"sizes": None}, "lacks the kind or the sizes"),
        ({"head": "gpp"}, "did you mean 'gp'"),
    ):
        (tmp_path / "config.json").write_text(json.dumps(config | change))
        with pytest.raises(V0BenchError, match=message):
            load_head(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(V0BenchError, match="holds no head"):
        load_head(tmp_path)
    with pytest.raises(V0BenchError, match="unknown head"):
        packaged_head("tabpfn")
