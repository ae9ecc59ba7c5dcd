"""The Residual Query Adapter against a slow NumPy definition written one head at a time."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from v0_bench.errors import V0BenchError
from v0_bench.v0.adapter import ConnectorConfig, ResidualQueryAdapter

SMALL = ConnectorConfig(hidden_size=10, n_queries=5, d_proj=6, n_heads=3, bottleneck=7)


def adapter_with_random_weights(config: ConnectorConfig = SMALL) -> ResidualQueryAdapter:
    """No weight at zero or one: each of them then matters."""
    torch.manual_seed(0)
    adapter = ResidualQueryAdapter(config).eval()
    for parameter in adapter.parameters():
        nn.init.normal_(parameter, std=0.5)
    return adapter


def batch(
    lengths: list[int], width: int = 10, padding: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States, mask and last states of texts of these lengths; `padding` fills what is no token."""
    rng = torch.Generator().manual_seed(1)
    states = torch.randn(len(lengths), max(lengths), width, generator=rng)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    last = states[torch.arange(len(lengths)), torch.tensor(lengths) - 1]
    return states.masked_fill(~mask[..., None], padding), mask, last


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def slow_features(
    weights: dict[str, np.ndarray], heads: int, tokens: np.ndarray, last: np.ndarray
) -> np.ndarray:
    """Features (K * d_proj,) of one text: tokens (L, D), last (D,), all in float64."""
    w = weights
    n_queries, width = w["static_queries"].shape
    hidden = w["generator.0.weight"] @ last + w["generator.0.bias"]
    hidden = layer_norm(hidden, w["generator.1.weight"], w["generator.1.bias"])
    hidden = np.array([x * (1 + math.erf(x / math.sqrt(2))) / 2 for x in hidden])
    shift = w["generator.4.weight"] @ hidden + w["generator.4.bias"]
    queries = w["static_queries"] + shift.reshape(n_queries, width)
    values = tokens @ w["projection.weight"].T + w["projection.bias"]
    q = layer_norm(queries, w["reader.query_norm.weight"], w["reader.query_norm.bias"])
    k = layer_norm(values, w["reader.key_norm.weight"], w["reader.key_norm.bias"])
    in_weight, in_bias = w["reader.in_projection.weight"], w["reader.in_projection.bias"]
    q = q @ in_weight[:width].T + in_bias[:width]
    k = k @ in_weight[width : 2 * width].T + in_bias[width : 2 * width]
    v = values @ in_weight[2 * width :].T + in_bias[2 * width :]
    read = np.zeros((n_queries, width))
    size = width // heads
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for i in range(n_queries):
            scores = np.exp([q[i, part] @ key[part] / math.sqrt(size) for key in k])
            read[i, part] = sum(s * value[part] for s, value in zip(scores, v, strict=True))
            read[i, part] /= scores.sum()
    out = read @ w["reader.out_projection.weight"].T + w["reader.out_projection.bias"]
    return out.reshape(-1)


@pytest.mark.parametrize("heads", [1, 2, 3, 6])
def test_equals_its_slow_definition(heads: int) -> None:
    config = ConnectorConfig(10, 5, 6, heads, 7)
    adapter = adapter_with_random_weights(config)
    states, mask, last = batch([4, 1, 9], padding=7.0)
    weights = {name: value.double().numpy() for name, value in adapter.state_dict().items()}
    features = adapter(states, mask, last)
    assert features.shape == (3, adapter.n_features) == (3, 30)
    for i in range(3):
        tokens = states[i][mask[i]].double().numpy()
        expected = slow_features(weights, heads, tokens, last[i].double().numpy())
        np.testing.assert_allclose(features[i].detach(), expected, atol=1e-5, rtol=1e-5)


def test_attention_equals_that_of_torch_and_starts_the_same_way() -> None:
    reader = adapter_with_random_weights().reader
    torch.manual_seed(3)
    fresh = ResidualQueryAdapter(SMALL).reader
    torch.manual_seed(3)
    ResidualQueryAdapter(SMALL)
    theirs = nn.MultiheadAttention(6, 3, batch_first=True)
    bound = math.sqrt(6 / (6 + 18))  # Xavier, of the three projections in one matrix
    for weight in (fresh.in_projection.weight, theirs.in_proj_weight):
        assert 0.8 * bound < weight.abs().max() <= bound
    assert not any(b.any() for b in (fresh.in_projection.bias, fresh.out_projection.bias))
    with torch.no_grad():
        theirs.in_proj_weight.copy_(reader.in_projection.weight)
        theirs.in_proj_bias.copy_(reader.in_projection.bias)
        theirs.out_proj.load_state_dict(reader.out_projection.state_dict())
    values, mask, _ = batch([3, 8], width=6)
    queries = torch.randn(2, 5, 6)
    expected, _ = theirs(
        reader.query_norm(queries), reader.key_norm(values), values, key_padding_mask=~mask
    )
    torch.testing.assert_close(reader(queries, values, mask), expected.flatten(1))


def test_parameters_at_the_papers_sizes() -> None:
    adapter = ResidualQueryAdapter(ConnectorConfig())
    count = sum(parameter.numel() for parameter in adapter.parameters() if parameter.requires_grad)
    d, k, p, hidden = 1024, 168, 6, 128
    formula = (
        k * p  # static queries
        + (d + 1) * hidden + 2 * hidden + (hidden + 1) * k * p  # generator
        + (d + 1) * p  # projection
        + 2 * 2 * p  # layer norms of queries and keys
        + (p + 1) * 3 * p + (p + 1) * p  # attention
    )  # fmt: skip
    assert count == formula == 268_838
    assert adapter.n_features == 1008


@pytest.mark.parametrize("more", [1, 50])
@pytest.mark.parametrize("padding", [0.0, 1e4, -3.0])
def test_padding_does_not_matter(more: int, padding: float) -> None:
    adapter = adapter_with_random_weights()
    states, mask, last = batch([4, 1, 9])
    wide, wide_mask = nn.functional.pad(states, (0, 0, 0, more)), nn.functional.pad(mask, (0, more))
    wide = wide.masked_fill(~wide_mask[..., None], padding)
    torch.testing.assert_close(adapter(wide, wide_mask, last), adapter(states, mask, last))


def test_order_of_tokens_does_not_matter_and_their_number_does() -> None:
    adapter = adapter_with_random_weights()
    states, mask, last = batch([6])
    features = adapter(states, mask, last)
    torch.testing.assert_close(adapter(states[:, [3, 5, 0, 1, 4, 2]], mask, last), features)
    assert not torch.allclose(adapter(states[:, :5], mask[:, :5], last), features, atol=1e-3)


def test_starts_from_the_static_queries() -> None:
    """A zero last layer: whatever the last state is, the queries are Q_static."""
    torch.manual_seed(0)
    adapter = ResidualQueryAdapter(SMALL).eval()
    states, mask, last = batch([4, 1, 9])
    features = adapter(states, mask, last)
    assert torch.equal(adapter(states, mask, 100 * torch.randn_like(last)), features)
    fixed = adapter.static_queries.expand(3, -1, -1)
    assert torch.equal(adapter.reader(fixed, adapter.projection(states), mask), features)


def test_gradients_reach_every_parameter_after_one_step() -> None:
    """At first the zero layer holds back what is before it; after one step nothing is held."""
    torch.manual_seed(0)
    adapter = ResidualQueryAdapter(SMALL)
    optimizer = torch.optim.AdamW(adapter.parameters(), lr=1e-2)
    inputs = batch([4, 2, 9])

    def step() -> set[str]:
        optimizer.zero_grad()
        adapter(*inputs).square().sum().backward()
        optimizer.step()
        return {n for n, p in adapter.named_parameters() if p.grad is None or not p.grad.any()}

    held = step()
    assert held == {f"generator.{i}.{kind}" for i in (0, 1) for kind in ("weight", "bias")}
    assert step() == set()


def test_dropout_is_in_the_generator_and_off_in_evaluation() -> None:
    adapter = adapter_with_random_weights(ConnectorConfig(10, 5, 6, 3, 64, dropout=0.5))
    inputs = batch([4, 1, 9])
    assert torch.equal(adapter(*inputs), adapter(*inputs))
    adapter.train()
    assert not torch.equal(adapter(*inputs), adapter(*inputs))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"d_proj": 7}, r"d_proj \(7\) must be a multiple of n_heads \(3\)"),
        ({"n_queries": 0}, "n_queries must be at least 1, got 0"),
        ({"hidden_size": -1}, "hidden_size must be at least 1"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
    ],
)
def test_bad_sizes_are_named(sizes: dict, message: str) -> None:
    with pytest.raises(V0BenchError, match=message):
        ConnectorConfig(**sizes)
