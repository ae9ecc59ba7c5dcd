"""A synthetic prior over in-context problems, from which heads learn to learn.

An episode is one imagined policy: feature vectors of texts, a hint of how easy each item is, and
true success rates sigmoid(ability + easiness + interaction), of which the context shows binomial
samples. Ranges cover what real pools show, generously: see `draw`.

Axes: E episodes, N context items (padded), M queries, T = N + M items, F features.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

N_FEATURES = 33
"""F of the prior: the hint and up to 32 features of the text."""
ROLLOUTS = (1, 4, 8, 10, 16)
NOISE_DRAWS = 8
"""Draws of what the text does not tell, over which a query's value is averaged."""


@dataclass(frozen=True)
class Episodes:
    """A batch of imagined episodes, in the form a head takes."""

    features: Tensor
    """(E, N, F); feature 0 is the hint, unused features are 0."""
    labels: Tensor
    """(E, N) success rates of the context's rollouts."""
    counts: Tensor
    """(E, N) rollouts behind each label."""
    mask: Tensor
    """(E, N) bool, True where there is an item."""
    queries: Tensor
    """(E, M, F)."""
    rates: Tensor
    """(E, M) true success rates of the queries."""
    values: Tensor
    """(E, M) `rates` averaged over the item noise: the best that could be said of a text."""

    def to(self, device: str | torch.device) -> Episodes:
        """The same on another device."""
        return Episodes(*(getattr(self, field.name).to(device) for field in fields(self)))


def draw(
    generator: torch.Generator,
    episodes: int,
    context: int,
    queries: int,
    n_features: int = N_FEATURES,
) -> Episodes:
    """Episodes with contexts of up to `context` items (0 and 1 among them), on the CPU.

    Features: 0 or 4 to `n_features` - 1 used ones, Gaussian, heavy-tailed or clustered, with a flat
    to steep spectrum, often rotated. Ability: from hopeless to mastered. Easiness: sd .5 to 3
    logits, of which the hint explains 0 to .9 with a slope near 1, and the features some of the
    rest. Interaction: sd 0 to 1.5 logits; linear, smooth, clustered or sparse. Item noise:
    Gaussian, heavy-tailed or bimodal. Some episodes have a floor, as multiple choice has.
    """
    source = _Source(generator, episodes, context + queries)
    x, clusters = _texts(source, n_features - 1)
    ability = torch.where(source.chance(0.25), 3.5, 1.5) * source.normal()
    spread = source.between(0.5, 3.0)
    hinted = _where(source.chance(0.18), 0.0, source.between(0.05, 0.9))
    in_text = _where(source.chance(0.5), 0.0, source.between(0.0, 0.6))
    told = spread * hinted.sqrt() * _hinted_part(source, x, clusters)
    written = spread * ((1 - hinted) * in_text).sqrt() * _function(source, x, clusters)
    noise_sd = spread * ((1 - hinted) * (1 - in_text)).sqrt()
    noise_sd = noise_sd * _where(source.chance(0.15), 0.1, 1.0)
    noise_sd = noise_sd * _where(source.chance(0.3), source.between(1.0, 2.5), 1.0)
    strength = 0.45 * torch.exp(0.7 * source.normal())
    strength = _where(source.chance(0.15), 0.0, strength).clamp(max=1.5)
    known = ability + told + written + strength * _function(source, x, clusters)
    noise = noise_sd * _item_noise(source)  # (1 + NOISE_DRAWS, E, T)
    floor = _where(source.chance(0.15), source.choice((0.1, 0.2, 0.25, 0.5)), 0.0)
    rates = floor + (1 - floor) * torch.sigmoid(known + noise)
    features = torch.cat([_hint(source, told, hinted)[..., None], x], dim=-1)
    counts = _counts(source)[:, :context]
    labels = torch.binomial(counts, rates[0, :, :context], generator=generator) / counts
    return Episodes(
        features=features[:, :context],
        labels=labels,
        counts=counts,
        mask=_mask(source, context),
        queries=features[:, context:],
        rates=rates[0, :, context:],
        values=rates[1:, :, context:].mean(dim=0),
    )


class _Source:
    """Random numbers for a batch; per-episode ones have shape (E, 1)."""

    def __init__(self, generator: torch.Generator, episodes: int, items: int) -> None:
        self.generator, self.episodes, self.items = generator, episodes, items

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(self.episodes, *(shape or (1,)), generator=self.generator)

    def between(self, low: float, high: float, *shape: int) -> Tensor:
        uniform = torch.rand(self.episodes, *(shape or (1,)), generator=self.generator)
        return low + (high - low) * uniform

    def chance(self, probability: float) -> Tensor:
        return self.between(0, 1) < probability

    def choice(self, values: tuple[float, ...], *shape: int) -> Tensor:
        shape = (self.episodes, *(shape or (1,)))
        return torch.tensor(values)[torch.randint(len(values), shape, generator=self.generator)]


def _texts(source: _Source, width: int) -> tuple[Tensor, Tensor]:
    """Features of texts (E, T, width), and the cluster (E, T) each text belongs to."""
    episodes, items = source.episodes, source.items
    position = torch.arange(width)
    used = torch.where(source.chance(0.05), 0, source.between(4, width + 1).floor())
    spectrum = (position + 1.0) ** -_where(source.chance(0.3), 0.0, source.between(0.0, 2.0))
    spectrum = spectrum * (position < used)
    plain = source.normal(items, width)
    tails = torch.exp(0.5 * source.normal(items, 1))  # a common factor: heavy tails
    plain = torch.where(source.chance(0.3)[..., None], plain * tails, plain)
    n_clusters = source.between(2, 13).floor()
    popularity = source.between(0, 1, 12) ** 2 * (torch.arange(12) < n_clusters)
    clusters = torch.multinomial(
        popularity + 1e-9 * (torch.arange(12) < 2), items, True, generator=source.generator
    )
    centres = source.normal(12, width)
    own = torch.take_along_dim(centres, clusters[..., None].expand(-1, -1, width), dim=1)
    share = _where(source.chance(0.5), 0.0, source.between(0.2, 0.9))[..., None]
    x = share.sqrt() * own + (1 - share).sqrt() * plain
    x = x * spectrum.sqrt()[:, None]
    rotated = x @ _rotations(source, width, used)
    x = torch.where(source.chance(0.5)[..., None], rotated, x)
    x = x - x.mean(dim=1, keepdim=True)
    variance = x.square().mean(dim=1).sum(dim=1, keepdim=True) / used.clamp(min=1)
    x = x / variance.clamp(min=1e-6).sqrt()[..., None]
    places = source.between(0, 1, width).argsort(dim=1)  # unused features stand anywhere
    places = torch.where(source.chance(0.5), places, position)
    return torch.take_along_dim(x, places[:, None].expand(episodes, items, width), dim=2), clusters


def _rotations(source: _Source, width: int, used: Tensor) -> Tensor:
    """Random rotations (E, width, width) of the used features."""
    inside = (torch.arange(width) < used).float()
    block = inside[:, :, None] * inside[:, None]
    rotation, _ = torch.linalg.qr(source.normal(width, width) * block + torch.eye(width) * 1e-6)
    return rotation * block


def _function(source: _Source, x: Tensor, clusters: Tensor) -> Tensor:
    """A random function of the texts (E, T), mean 0 and sd 1 over items: a mix of four kinds."""
    kinds = [
        _linear(source, x),
        _smooth(source, x),
        torch.take_along_dim(source.normal(12), clusters, dim=1),
        _sparse(source, x),
    ]
    weights = source.between(0, 1, len(kinds)) ** 6  # mostly one or two kinds
    weights = weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
    mix = sum(weights[:, i, None].sqrt() * _standardised(kind) for i, kind in enumerate(kinds))
    return _standardised(torch.as_tensor(mix))


def _linear(source: _Source, x: Tensor) -> Tensor:
    return (x @ source.normal(x.shape[2], 1))[..., 0]


def _smooth(source: _Source, x: Tensor, waves: int = 64) -> Tensor:
    """A draw from a Gaussian process of random length scale, by random Fourier features."""
    norm = x.square().sum(dim=2).mean(dim=1).clamp(min=1.0).sqrt()[:, None]
    scale = 0.4 * 6 ** source.between(0, 1) * norm
    frequencies = source.normal(x.shape[2], waves) / scale[..., None]
    phases = source.between(0, 2 * torch.pi, 1, waves)
    return (torch.cos(x @ frequencies + phases) @ source.normal(waves, 1))[..., 0]


def _sparse(source: _Source, x: Tensor) -> Tensor:
    """A function of one feature: the feature itself, or a step."""
    variances = x.square().mean(dim=1) > 0
    chosen = torch.multinomial(variances + 1e-9, 1, generator=source.generator)
    feature = torch.take_along_dim(x, chosen[:, None].expand(-1, x.shape[1], 1), dim=2)[..., 0]
    step = torch.sign(feature - 0.5 * source.normal())
    return torch.where(source.chance(0.4), step, feature)


def _standardised(x: Tensor) -> Tensor:
    """Mean 0 and sd 1 over items; 0 where constant."""
    x = x - x.mean(dim=1, keepdim=True)
    sd = x.square().mean(dim=1, keepdim=True).sqrt()
    return torch.where(sd > 1e-4, x / sd.clamp(min=1e-4), 0.0)


def _hinted_part(source: _Source, x: Tensor, clusters: Tensor) -> Tensor:
    """What the hint tells (E, T), sd 1: partly a function of the features, partly of its own."""
    shared = source.between(0, 1)
    own = source.normal(source.items)
    return _standardised(shared.sqrt() * _function(source, x, clusters) + (1 - shared).sqrt() * own)


def _hint(source: _Source, told: Tensor, hinted: Tensor) -> Tensor:
    """The hint (E, T): `told` in a slope near 1; useless or absent where nothing is told."""
    slope = torch.exp(0.3 * source.normal()).clamp(0.4, 2.5)
    useless = source.between(0.1, 1.0) * source.normal(source.items)
    absent = source.chance(0.5)
    return torch.where(hinted > 0, told / slope, torch.where(absent, 0.0, useless))


def _item_noise(source: _Source) -> Tensor:
    """(1 + NOISE_DRAWS, E, T), sd 1: Gaussian, heavy-tailed, or bimodal, as each episode has it."""
    rows = 1 + NOISE_DRAWS
    shape = (source.episodes, rows * source.items)
    normal = source.normal(rows * source.items)
    heavy = normal * torch.exp(0.5 * source.normal(rows * source.items) - 0.25)
    upper = source.between(0.2, 0.8)
    high = source.between(0, 1, rows * source.items) < upper
    sides = torch.where(high, ((1 - upper) / upper).sqrt(), -(upper / (1 - upper)).sqrt())
    bimodal = 0.95 * sides + 0.3 * normal
    kind = source.between(0, 1).expand(shape)
    noise = torch.where(kind < 0.5, normal, torch.where(kind < 0.7, heavy, bimodal))
    return noise.view(source.episodes, rows, source.items).transpose(0, 1)


def _counts(source: _Source) -> Tensor:
    """Rollouts (E, T): one number an episode, in some episodes one an item."""
    mixed = source.choice(ROLLOUTS, source.items)
    return torch.where(source.chance(0.1), mixed, source.choice(ROLLOUTS)).float()


def _mask(source: _Source, context: int) -> Tensor:
    """(E, N) bool: sizes from .6 N to N, a few of 0, 1 and 2 to 7."""
    sizes = (source.between(0.6, 1.0) * (context + 1)).floor().clamp(max=context)
    sizes = torch.where(source.chance(0.04), source.between(0, 8).floor(), sizes)
    sizes = torch.where(source.chance(0.03), source.choice((0, 1)), sizes)
    return torch.arange(context) < sizes


def _where(condition: Tensor, value: float | Tensor, otherwise: float | Tensor) -> Tensor:
    return torch.where(condition, torch.as_tensor(value), torch.as_tensor(otherwise))
