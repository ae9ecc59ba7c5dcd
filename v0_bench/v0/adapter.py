"""Residual Query Adapter: token states of a text -> a few features an in-context head can read.

K queries attend over all token states of the text. They are Q = Q_static + G(v), where v is the
state of the last token and G a bottleneck generator whose last layer starts at zero, so that
training starts from the static queries (paper: arXiv 2602.03584, equation 4). As in the official
release, states are first projected D -> d_proj, the layer norms are on queries and keys but not
on values, and the output has no residual.

Axes in names: B texts, L tokens, D hidden size, K queries, P d_proj, F = K * P features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from v0_bench.embeddings.states import EVERY, Rows, TokenStates
from v0_bench.errors import V0BenchError
from v0_bench.v0.projection import project_stored


@dataclass(frozen=True)
class ConnectorConfig:
    """Sizes of an adapter or connector; the defaults are the paper's.

    hidden_size: D of the backbone. n_queries: K. d_proj: width of a query, a multiple of n_heads.
    bottleneck, dropout: hidden width of the query generator (and of the MLP) and its dropout.
    """

    hidden_size: int = 1024
    n_queries: int = 168
    d_proj: int = 6
    n_heads: int = 3
    bottleneck: int = 128
    dropout: float = 0.2

    def __post_init__(self) -> None:
        for name in ("hidden_size", "n_queries", "d_proj", "n_heads", "bottleneck"):
            if getattr(self, name) < 1:
                raise V0BenchError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.d_proj % self.n_heads:
            raise V0BenchError(
                f"d_proj ({self.d_proj}) must be a multiple of n_heads ({self.n_heads})."
            )
        if not 0 <= self.dropout < 1:
            raise V0BenchError(f"dropout must lie in [0, 1), got {self.dropout}.")

    @property
    def n_features(self) -> int:
        """F = K * d_proj."""
        return self.n_queries * self.d_proj


class QueryAttention(nn.Module):
    """Queries (B, K, P) read projected token states (B, L, P): features (B, K * P).

    Weights and their initial values are those of `nn.MultiheadAttention`, whose own forward would
    import SymPy to check its mask.
    """

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__()
        width = config.d_proj
        self.n_heads = config.n_heads
        self.query_norm = nn.LayerNorm(width)
        self.key_norm = nn.LayerNorm(width)
        self.in_projection = nn.Linear(width, 3 * width)
        self.out_projection = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_projection.weight)
        nn.init.zeros_(self.in_projection.bias)
        nn.init.zeros_(self.out_projection.bias)

    def forward(self, queries_BKP: Tensor, projected_BLP: Tensor, mask_BL: Tensor) -> Tensor:
        inputs = (self.query_norm(queries_BKP), self.key_norm(projected_BLP), projected_BLP)
        weights, biases = self.in_projection.weight.chunk(3), self.in_projection.bias.chunk(3)
        query, key, value = (
            functional.linear(x, weight, bias).unflatten(2, (self.n_heads, -1)).transpose(1, 2)
            for x, weight, bias in zip(inputs, weights, biases, strict=True)
        )
        read = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask_BL[:, None, None]
        )
        return self.out_projection(read.transpose(1, 2).flatten(2)).flatten(1)


class Connector(nn.Module):
    """Token states -> features (B, F). `n_features` is F."""

    n_features: int

    def forward(self, states_BLD: Tensor, mask_BL: Tensor, last_BD: Tensor) -> Tensor:
        """Features float (B, F).

        states: token states (B, L, D), the tokens of a text first, then padding. mask: bool
        (B, L), True on tokens and at least once in every row; what stands where it is False does
        not matter. last: state of each text's last token (B, D).
        """
        raise NotImplementedError

    def read(self, stored: TokenStates, rows: Rows = EVERY) -> Tensor:
        """`self(*stored.batch(rows))` without a padded float32 copy of the states."""
        raise NotImplementedError


class ProjectingConnector(Connector):
    """A connector whose first step, `projection`, is linear in each token state."""

    projection: nn.Linear

    def forward(self, states_BLD: Tensor, mask_BL: Tensor, last_BD: Tensor) -> Tensor:
        return self.attend(self.projection(states_BLD), mask_BL, last_BD)

    def read(self, stored: TokenStates, rows: Rows = EVERY) -> Tensor:
        projected_BLP, mask_BL = project_stored(stored.arrays(rows), self.projection)
        return self.attend(projected_BLP, mask_BL, stored.last(rows).to(projected_BLP))

    def attend(self, projected_BLP: Tensor, mask_BL: Tensor, last_BD: Tensor) -> Tensor:
        """Features of projected token states (B, L, d_proj)."""
        raise NotImplementedError


class ResidualQueryAdapter(ProjectingConnector):
    """The paper's adapter; 268,838 trainable parameters at its sizes."""

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__()
        self.n_features = config.n_features
        self.static_queries = nn.Parameter(torch.randn(config.n_queries, config.d_proj))
        self.generator = query_generator(config.hidden_size, config)
        self.projection = nn.Linear(config.hidden_size, config.d_proj)
        self.reader = QueryAttention(config)

    def attend(self, projected_BLP: Tensor, mask_BL: Tensor, last_BD: Tensor) -> Tensor:
        shift_BKP = self.generator(last_BD).unflatten(1, self.static_queries.shape)
        return self.reader(self.static_queries + shift_BKP, projected_BLP, mask_BL)


def bottleneck_network(width: int, config: ConnectorConfig) -> nn.Sequential:
    """(B, width) -> (B, K * d_proj) through a hidden layer of `config.bottleneck`."""
    return nn.Sequential(
        nn.Linear(width, config.bottleneck),
        nn.LayerNorm(config.bottleneck),
        nn.GELU(),
        nn.Dropout(config.dropout),
        nn.Linear(config.bottleneck, config.n_features),
    )


def query_generator(width: int, config: ConnectorConfig) -> nn.Sequential:
    """G: the bottleneck network, zero until its last layer is trained."""
    network = bottleneck_network(width, config)
    for parameter in network[-1].parameters():
        nn.init.zeros_(parameter)
    return network
