"""The project's own in-context head: a small row-wise transformer that corrects a Gaussian process.

A token is one text. Context tokens attend to one another; query tokens attend to the context only,
so a context is encoded once. Beside the features, a token knows what the Gaussian process (`gp.py`)
says of it: for a context item, when shown all others. The output is the Gaussian process's logit,
stretched and shifted; an untrained head returns it unchanged.

Axes: E episodes, H experts of the Gaussian process, N context items (padded), M queries, F
features, W width.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from v0_bench.v0.heads.base import Head
from v0_bench.v0.heads.gp import GPHead, GPState, mixture

OUTCOME_FACTS = 5  # see `_outcomes`
LOGIT_UNIT = 3.0  # logits enter the network divided by this
LARGEST_STRETCH = 1.0  # of the logarithm of the factor on the Gaussian process's logit


@dataclass(frozen=True)
class ICLState:
    """An encoded context."""

    gp: GPState
    size: Tensor
    """(E, 1, 1) log(1 + N), scaled."""
    keys: tuple[tuple[Tensor, Tensor], ...]
    """Keys and values (E, heads, 1 + N, W / heads) of each layer; the first item is learned."""
    mask: Tensor
    """(E, 1, 1, 1 + N) bool."""


class ICLHead(Head):
    """Values by a transformer over the context, on top of a Gaussian process.

    Narrower feature vectors than `n_features` are filled up with zeros. Labels are soft, their
    rollout counts matter, contexts may be empty, and their order does not matter.
    """

    n_features: int

    def __init__(
        self,
        n_features: int = 33,
        width: int = 96,
        layers: int = 4,
        heads: int = 4,
        experts: int = 4,
        waves: int = 8,
    ) -> None:
        super().__init__()
        self.config = {
            "n_features": n_features,
            "width": width,
            "layers": layers,
            "heads": heads,
            "experts": experts,
            "waves": waves,
        }
        self.n_features = n_features
        self.gp = GPHead(n_features, experts, waves)
        self.embed_text = nn.Linear(n_features, width, bias=False)
        self.embed_opinion = nn.Linear(2 * experts + 2, width)
        self.embed_outcome = nn.Linear(OUTCOME_FACTS, width)
        self.no_item = nn.Parameter(torch.randn(width) / math.sqrt(width))
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.correction = nn.Linear(width, 2)
        nn.init.zeros_(self.correction.weight)
        nn.init.zeros_(self.correction.bias)

    def encode(self, features: Tensor, labels: Tensor, counts: Tensor, mask: Tensor) -> ICLState:
        """Keys and values of the contexts, and the Gaussian process fitted to them."""
        features = torch.where(mask[..., None], self.gp.padded(features), 0)
        labels = torch.where(mask, labels, 0.5)
        counts = torch.where(mask, counts, 1).to(features.dtype)
        gp = self.gp.encode(features, labels, counts, mask)
        size = mask.sum(dim=1).to(features.dtype).log1p()[:, None, None] / math.log(256)
        tokens = self._embed(features, gp.left_out, gp, size)
        expected = torch.sigmoid(mixture(gp.left_out, gp.log_share))
        tokens = tokens + self.embed_outcome(_outcomes(labels, counts, expected))
        first = self.no_item.expand(len(tokens), 1, -1)
        tokens = torch.cat([first, tokens], dim=1)
        mask = nn.functional.pad(mask, (1, 0), value=True)[:, None, None]
        keys = []
        for layer in self.layers:
            assert isinstance(layer, Layer)  # torch types the items of a list as any module
            context = layer.keys(tokens)
            keys.append(context)
            if layer is not self.layers[-1]:
                tokens = layer(tokens, context, mask)
        return ICLState(gp, size, tuple(keys), mask)

    def logits(self, state: ICLState, queries: Tensor) -> Tensor:
        """Logits (E, M) of queries (E, M, F)."""
        queries = self.gp.padded(queries)
        opinions = self.gp.expert_logits(state.gp, queries)
        tokens = self._embed(queries, opinions, state.gp, state.size)
        for layer, keys in zip(self.layers, state.keys, strict=True):
            tokens = layer(tokens, keys, state.mask)
        stretch, shift = self.correction(self.norm(tokens)).unbind(dim=-1)
        factor = torch.exp(LARGEST_STRETCH * torch.tanh(stretch))
        return factor * mixture(opinions, state.gp.log_share) + shift

    def _embed(self, features: Tensor, opinions: Tensor, gp: GPState, size: Tensor) -> Tensor:
        """Tokens (E, N, W) of texts: features, the experts' logits and weights, context size."""
        shares = gp.log_share.exp()[:, None].expand(-1, features.shape[1], -1)
        opinion = mixture(opinions, gp.log_share)[..., None] / LOGIT_UNIT
        sizes = size.expand(-1, features.shape[1], -1)
        facts = torch.cat([opinions.mT / LOGIT_UNIT, shares, opinion, sizes], dim=-1)
        return self.embed_text(features) + self.embed_opinion(facts)


class Layer(nn.Module):
    """Attention to context tokens, then a perceptron; both residual and normalised before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )

    def keys(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (E, heads, N, W / heads) of context tokens (E, N, W)."""
        keys, values = self.key_value(self.attention_norm(context)).chunk(2, dim=-1)
        return self._split(keys), self._split(values)

    def forward(self, tokens: Tensor, keys: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        """Tokens (E, M, W) after attending to the context."""
        queries = self._split(self.query(self.attention_norm(tokens)))
        read = scaled_dot_product_attention(queries, *keys, attn_mask=mask)
        tokens = tokens + self.out(read.transpose(1, 2).flatten(2))
        return tokens + self.perceptron(tokens)

    def _split(self, tokens: Tensor) -> Tensor:
        return tokens.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _outcomes(labels: Tensor, counts: Tensor, expected: Tensor) -> Tensor:
    """What is known of each context item's outcome, (E, N, 5).

    Success rate, its smoothed logit, its difference from the rate expected of the item by all
    others, log and inverse of the rollout count.
    """
    smoothed = torch.logit((labels * counts + 0.5) / (counts + 1)) / LOGIT_UNIT
    facts = (labels, smoothed, labels - expected, counts.log() / LOGIT_UNIT, 1 / counts)
    return torch.stack(facts, dim=-1)
