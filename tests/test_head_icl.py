"""The transformer head: what it adds to the Gaussian process it builds on."""

from __future__ import annotations

import torch

from v0_bench.v0.heads.icl import ICLHead
from v0_bench.v0.heads.saved import WEIGHTS, packaged_head
from v0_bench.v0.prior import draw


def test_untrained_it_is_its_gaussian_process() -> None:
    torch.manual_seed(0)
    head = ICLHead().eval()
    batch = draw(torch.Generator().manual_seed(0), 4, 32, 8)
    arguments = (batch.features, batch.labels, batch.counts, batch.mask, batch.queries)
    with torch.no_grad():
        torch.testing.assert_close(head(*arguments), head.gp(*arguments))


def test_queries_do_not_see_one_another() -> None:
    torch.manual_seed(0)
    head = ICLHead().eval()
    torch.nn.init.normal_(head.correction.weight)
    batch = draw(torch.Generator().manual_seed(0), 4, 32, 8)
    arguments = (batch.features, batch.labels, batch.counts, batch.mask)
    with torch.no_grad():
        before = head(*arguments, batch.queries)
        batch.queries[:, 3:] += 1
        after = head(*arguments, batch.queries)
    torch.testing.assert_close(after[:, :3], before[:, :3])
    assert (after[:, 3:] - before[:, 3:]).abs().min() > 0


def test_sizes_and_weights_are_small() -> None:
    head = packaged_head("icl")
    assert 4e5 < sum(p.numel() for p in head.parameters()) < 1e6
    assert (WEIGHTS / "head-icl" / "model.safetensors").stat().st_size < 10e6


def test_shipped_weights_beat_the_gaussian_process_on_the_prior() -> None:
    head = packaged_head("icl")
    assert isinstance(head, ICLHead)
    gains = []
    for context in (32, 128, 256):
        batch = draw(torch.Generator().manual_seed(context), 24, context, 32)
        arguments = (batch.features, batch.labels, batch.counts, batch.mask, batch.queries)
        with torch.no_grad():
            losses = [
                torch.nn.functional.binary_cross_entropy_with_logits(part(*arguments), batch.values)
                for part in (head, head.gp)
            ]
        gains.append(float(losses[1] - losses[0]))
    assert sum(gains) > 0
