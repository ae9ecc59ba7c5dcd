"""Connectors: one contract, hand-computed cases, and reading from the store without padding."""

from pathlib import Path

import pytest
import torch
from torch import nn

from test_adapter import batch
from v0_bench.embeddings import TokenStates, token_states
from v0_bench.errors import V0BenchError
from v0_bench.v0 import projection
from v0_bench.v0.adapter import Connector, ConnectorConfig
from v0_bench.v0.connectors import CONNECTORS, make_connector, window_means

SIZES = ConnectorConfig(hidden_size=10, n_queries=5, d_proj=6, n_heads=3, bottleneck=7)
WIDTHS = {"last-token": 10, "mean": 10}


def connector(name: str, config: ConnectorConfig = SIZES) -> Connector:
    """One whose every weight matters."""
    torch.manual_seed(0)
    made = make_connector(name, config).eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made


@pytest.mark.parametrize("name", CONNECTORS)
def test_contract(name: str) -> None:
    made = connector(name)
    states, mask, last = batch([4, 1, 40])
    features = made(states, mask, last)
    assert features.shape == (3, made.n_features) == (3, WIDTHS.get(name, 30))
    for i, length in enumerate([4, 1, 40]):
        one = made(states[i : i + 1, :length], mask[i : i + 1, :length], last[i : i + 1])
        torch.testing.assert_close(one[0], features[i], atol=1e-5, rtol=1e-5)
    garbage = states.masked_fill(~mask[..., None], -50.0)
    torch.testing.assert_close(made(garbage, mask, last), features, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CONNECTORS)
def test_gradients_reach_every_parameter(name: str) -> None:
    made = connector(name)
    made(*batch([4, 2, 40])).square().sum().sqrt().requires_grad_().backward()
    assert all(p.grad is not None and p.grad.any() for p in made.parameters())


@pytest.mark.parametrize("name", ["fixed-queries", "cascaded", "multi-scale", "residual-query"])
def test_queries_start_static_and_only_fixed_ones_stay_so(name: str) -> None:
    """A connector with a generator starts as the same connector without its output."""
    torch.manual_seed(0)
    made = make_connector(name, SIZES).eval()
    states, mask, last = batch([4, 1, 40])
    assert torch.equal(made(states, mask, last), made(states, mask, 2 * last))
    made = connector(name)
    moved = not torch.allclose(made(states, mask, last), made(states, mask, 2 * last), atol=1e-3)
    assert moved == (name in ("multi-scale", "residual-query"))


def test_last_token_and_mean_are_what_they_say() -> None:
    states, mask, last = batch([4, 1, 9], padding=5.0)
    assert torch.equal(connector("last-token")(states, mask, last), last)
    means = torch.stack([row[keep].mean(0) for row, keep in zip(states, mask, strict=True)])
    torch.testing.assert_close(connector("mean")(states, mask, last), means)


def test_window_means_by_hand() -> None:
    values = torch.tensor([[1.0, 3, 5, 7, 9], [2, 4, 99, 99, 99]])[..., None]
    mask = torch.tensor([[True] * 5, [True, True, False, False, False]])
    means, held = window_means(values, mask, 2)
    assert means[..., 0].tolist() == [[2, 6, 9], [3, 0, 0]]
    assert held.tolist() == [[True, True, True], [True, False, False]]
    assert torch.equal(window_means(values, mask, 1)[1], mask)


def test_multi_scale_tells_the_order_of_tokens_and_the_adapter_does_not() -> None:
    states, mask, last = batch([40])
    shuffled = states[:, torch.randperm(40, generator=torch.Generator().manual_seed(0))]
    for name, tells in (("residual-query", False), ("multi-scale", True)):
        made = connector(name)
        same = torch.allclose(made(shuffled, mask, last), made(states, mask, last), atol=1e-4)
        assert same != tells


def test_cascaded_reads_twice() -> None:
    """Its second queries are moved by what the first read, so other tokens move them."""
    made = connector("cascaded")
    states, mask, last = batch([9, 9])
    projected = made.projection(states)
    queries = made.static_queries.expand(2, -1, -1)
    first = made.first_reader(queries, projected, mask)
    expected = made.second_reader(queries + made.generator(first).reshape(2, 5, 6), projected, mask)
    torch.testing.assert_close(made(states, mask, last), expected)


def test_unknown_connector_names_the_nearest() -> None:
    with pytest.raises(V0BenchError, match="did you mean 'residual-query'"):
        make_connector("residual-queries", SIZES)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TokenStates:
    monkeypatch.setenv("V0_BENCH_CACHE", str(tmp_path))
    return token_states([f"{i} " + "more words " * (i % 9) for i in range(30)], "hash")


@pytest.mark.parametrize("name", CONNECTORS)
@pytest.mark.parametrize("rows", [slice(None), [3], [7, 7, 0], []])
def test_reading_equals_the_padded_form(name: str, rows, stored: TokenStates, monkeypatch) -> None:
    monkeypatch.setattr(projection, "CHUNK_TOKENS", 20)
    made = connector(name, ConnectorConfig(hidden_size=256, n_queries=4, d_proj=6, bottleneck=7))

    def gradients(features: torch.Tensor) -> list[torch.Tensor]:
        made.zero_grad()
        features.square().sum().requires_grad_().backward()
        return [p.grad.clone() if p.grad is not None else p * 0 for p in made.parameters()]

    padded, read = made(*stored.batch(rows)), made.read(stored, rows)
    torch.testing.assert_close(read, padded, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients(read), gradients(padded), atol=1e-3, rtol=1e-3)


def test_gradient_of_the_projection_by_finite_differences() -> None:
    arrays = [torch.randn(n, 4).half().numpy() for n in (3, 1, 5)]
    linear = nn.Linear(4, 2).double()

    def project(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        held = nn.Linear(4, 2)
        del held.weight, held.bias
        held.weight, held.bias = weight, bias
        return projection.project_stored(arrays, held)[0]

    assert torch.autograd.gradcheck(project, (linear.weight, linear.bias))
