"""The connectors the adapter is compared with, and one factory for all of them.

Every connector maps (token states (B, L, D), mask (B, L), last state (B, D)) to features (B, F).
The names are those of the paper's ablation (arXiv 2602.03584, Table 6). Its exact forms of `mlp`,
`cascaded` and `multi-scale` are not known to us: what stands here is our definition.

Axes in names as in `adapter.py`; W is a number of windows of tokens.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from v0_bench.embeddings.states import EVERY, Rows, TokenStates
from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name
from v0_bench.v0.adapter import (
    Connector,
    ConnectorConfig,
    ProjectingConnector,
    QueryAttention,
    ResidualQueryAdapter,
    bottleneck_network,
    query_generator,
)

SCALES = (1, 4, 16)  # tokens a window of `multi-scale` holds


class LastToken(Connector):
    """`last-token`: the state of the last token itself; F = D, nothing to train."""

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__()
        self.n_features = config.hidden_size

    def forward(self, states_BLD: Tensor, mask_BL: Tensor, last_BD: Tensor) -> Tensor:
        return last_BD

    def read(self, stored: TokenStates, rows: Rows = EVERY) -> Tensor:
        return stored.last(rows)


class MeanPooling(Connector):
    """`mean`: the mean of the token states; F = D, nothing to train."""

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__()
        self.n_features = config.hidden_size

    def forward(self, states_BLD: Tensor, mask_BL: Tensor, last_BD: Tensor) -> Tensor:
        weights_BL = mask_BL / mask_BL.sum(1, keepdim=True)
        return (weights_BL[:, None].to(states_BLD) @ states_BLD)[:, 0]

    def read(self, stored: TokenStates, rows: Rows = EVERY) -> Tensor:
        return stored.mean(rows)


class MLP(Connector):
    """`mlp` (ours): the generator's network on the last state, but not started at zero."""

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__()
        self.n_features = config.n_features
        self.network = bottleneck_network(config.hidden_size, config)

    def forward(self, states_BLD: Tensor, mask_BL: Tensor, last_BD: Tensor) -> Tensor:
        return self.network(last_BD)

    def read(self, stored: TokenStates, rows: Rows = EVERY) -> Tensor:
        return self.network(stored.last(rows).to(next(self.parameters())))


class FixedQueries(ProjectingConnector):
    """`fixed-queries`: the adapter without its generator, Q = Q_static."""

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__()
        self.n_features = config.n_features
        self.static_queries = nn.Parameter(torch.randn(config.n_queries, config.d_proj))
        self.projection = nn.Linear(config.hidden_size, config.d_proj)
        self.reader = QueryAttention(config)

    def attend(self, projected_BLP: Tensor, mask_BL: Tensor, last_BD: Tensor) -> Tensor:
        queries_BKP = self.static_queries.expand(len(last_BD), -1, -1)
        return self.reader(queries_BKP, projected_BLP, mask_BL)


class Cascaded(ProjectingConnector):
    """`cascaded` (ours): fixed queries read the text first; what they read moves the queries of
    a second read, Q = Q_static + G(first read), where the adapter uses the last state."""

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__()
        self.n_features = config.n_features
        self.static_queries = nn.Parameter(torch.randn(config.n_queries, config.d_proj))
        self.projection = nn.Linear(config.hidden_size, config.d_proj)
        self.first_reader = QueryAttention(config)
        self.generator = query_generator(config.n_features, config)
        self.second_reader = QueryAttention(config)

    def attend(self, projected_BLP: Tensor, mask_BL: Tensor, last_BD: Tensor) -> Tensor:
        queries_BKP = self.static_queries.expand(len(last_BD), -1, -1)
        first_BF = self.first_reader(queries_BKP, projected_BLP, mask_BL)
        shift_BKP = self.generator(first_BF).unflatten(1, self.static_queries.shape)
        return self.second_reader(queries_BKP + shift_BKP, projected_BLP, mask_BL)


class MultiScale(ResidualQueryAdapter):
    """`multi-scale` (ours): the adapter's queries read single tokens and the means of windows of
    4 and 16 consecutive tokens, each scale marked by a learned vector."""

    def __init__(self, config: ConnectorConfig) -> None:
        super().__init__(config)
        self.scale_marks = nn.Parameter(torch.zeros(len(SCALES), config.d_proj))

    def attend(self, projected_BLP: Tensor, mask_BL: Tensor, last_BD: Tensor) -> Tensor:
        scales = [window_means(projected_BLP, mask_BL, size) for size in SCALES]
        windows_BWP = torch.cat(
            [means + mark for (means, _), mark in zip(scales, self.scale_marks, strict=True)], 1
        )
        return super().attend(windows_BWP, torch.cat([mask for _, mask in scales], 1), last_BD)


CONNECTORS: dict[str, Callable[[ConnectorConfig], Connector]] = {
    "residual-query": ResidualQueryAdapter,
    "last-token": LastToken,
    "mean": MeanPooling,
    "mlp": MLP,
    "fixed-queries": FixedQueries,
    "cascaded": Cascaded,
    "multi-scale": MultiScale,
}


def make_connector(name: str, config: ConnectorConfig) -> Connector:
    """A new connector by name (the keys of `CONNECTORS`); `.n_features` is its F.

    Raises V0BenchError for an unknown name.
    """
    if name not in CONNECTORS:
        raise V0BenchError(unknown_name("connector", name, CONNECTORS))
    return CONNECTORS[name](config)


def window_means(values_BLX: Tensor, mask_BL: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Means over windows of `size` tokens, (B, W, X), and which windows hold a token (B, W).

    Windows are counted from the left, where the store puts the tokens of a text.
    """
    length = mask_BL.shape[1]
    padding = -length % size
    kept_BLX = values_BLX.masked_fill(~mask_BL[..., None], 0)
    sums = nn.functional.pad(kept_BLX, (0, 0, 0, padding)).unflatten(1, (-1, size)).sum(2)
    counts = nn.functional.pad(mask_BL, (0, padding)).unflatten(1, (-1, size)).sum(2)
    return sums / counts.clamp(min=1)[..., None], counts > 0
