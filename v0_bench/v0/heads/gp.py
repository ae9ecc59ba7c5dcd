"""Gaussian-process head: Laplace's approximation to a GP classifier of success counts.

The logit of an item's success rate is ability + slope * hint + f(text) + item noise, all Gaussian;
f is linear plus smooth (random Fourier features), so the kernel has finite rank D and is worked
with in the D weights. Several such priors ("experts", which differ in their variances) are kept,
and a context weighs them by its evidence. Only those variances are trained.

Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), sections 2.1, 3.4 and 5.4,
with the binomial likelihood of k rollouts. Rahimi and Recht (2007) for the Fourier features.

Axes: E episodes, H experts, N context items (padded), M queries, F features, D basis functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, softplus

from v0_bench.errors import V0BenchError
from v0_bench.v0.heads.base import Head

NEWTON_STEPS = 6
STEP_SIZES = (1.0, 0.5, 0.2, 0.05)
USUAL_NORM = 16.0  # squared norm of a text's features, before a context tells it


@dataclass(frozen=True)
class GPState:
    """A context as the experts see it."""

    scale: Tensor
    """(E, 1, 1) mean squared norm of a text's features, the unit of the kernels."""
    weights: Tensor
    """(E, H, D) posterior mean of the weights of the basis functions."""
    factor: Tensor
    """(E, H, D, D) Cholesky factor of the posterior precision of the weights."""
    log_share: Tensor
    """(E, H) log of the weight of each expert."""
    left_out: Tensor
    """(E, H, N) the logit each expert gives each context item when shown all others."""


class GPHead(Head):
    """Values by a mixture of Gaussian-process experts.

    Feature 0 is the hint, an estimate of easiness on the logit scale; its slope has a prior around
    a learned mean. The other features count in units of their mean squared norm in the context.
    Narrower feature vectors than `n_features` are filled up with zeros. Gradients to the features
    are those of the exact mode: the Newton steps that find it need none.
    """

    n_features: int
    directions: Tensor

    def __init__(self, n_features: int = 33, experts: int = 4, waves: int = 8) -> None:
        super().__init__()
        self.config = {"n_features": n_features, "experts": experts, "waves": waves}
        self.n_features = n_features
        generator = torch.Generator().manual_seed(0)
        directions = torch.randn(n_features - 1, waves, generator=generator)
        self.register_buffer("directions", directions)
        spread = torch.linspace(-1, 1, experts)
        strong = torch.arange(experts) % 2
        self.log_sd = nn.ParameterDict(  # in logits
            {
                "ability": nn.Parameter(torch.full((experts,), math.log(1.8))),
                "slope": nn.Parameter(torch.full((experts,), math.log(0.4))),
                "linear": nn.Parameter(math.log(0.25) + 1.0 * strong),
                "smooth": nn.Parameter(math.log(0.25) + 1.0 * strong),
                "noise": nn.Parameter(0.1 + 1.0 * spread),
            }
        )
        self.ability_mean = nn.Parameter(torch.zeros(experts))
        self.slope_mean = nn.Parameter(torch.ones(experts))
        self.log_length = nn.Parameter(torch.zeros(waves))
        self.share = nn.Parameter(torch.zeros(experts))
        self.log_trust = nn.Parameter(torch.zeros(1))  # of the power evidence is raised to

    def encode(self, features: Tensor, labels: Tensor, counts: Tensor, mask: Tensor) -> GPState:
        """The contexts as the experts see them."""
        features = torch.where(mask[..., None], self.padded(features), 0)
        labels = torch.where(mask, labels, 0)[:, None]
        counts = torch.where(mask, counts, 0).to(features.dtype)[:, None]
        squares = features[..., 1:].square().sum(dim=(1, 2)) + USUAL_NORM
        scale = (squares / (mask.sum(dim=1) + 1))[:, None, None]
        laplace = _Laplace(
            basis=self._basis(features, scale),
            mean=self._prior_mean(features),
            noise=self._noise_variance(),
            labels=labels,
            counts=counts,
        )
        with torch.no_grad():
            slopes = laplace.find_mode()
        # One more step, now with gradients: at the mode it has exactly the mode's derivative.
        logits = laplace.logits(laplace.newton(laplace.logits(slopes)).slopes)
        fit = laplace.newton(logits)
        log_share = torch.log_softmax(
            self.share + self.log_trust.exp() * laplace.evidence(logits, fit), dim=-1
        )
        left_out = laplace.left_out(logits, fit)
        return GPState(scale, fit.weights, fit.factor, log_share, left_out)

    def logits(self, state: GPState, queries: Tensor) -> Tensor:
        """Logits (E, M) of the mixture of experts."""
        return mixture(self.expert_logits(state, queries), state.log_share)

    def expert_logits(self, state: GPState, queries: Tensor) -> Tensor:
        """The logit (E, H, M) each expert gives each query."""
        queries = self.padded(queries)
        basis = self._basis(queries, state.scale)
        mean = self._prior_mean(queries) + _apply(basis, state.weights)
        return damped(mean, _spread(basis, state.factor) + self._noise_variance())

    def padded(self, features: Tensor) -> Tensor:
        """Features filled up with zeros to `n_features`; V0BenchError if there are more."""
        missing = self.n_features - features.shape[-1]
        if missing < 0:
            raise V0BenchError(
                f"the head takes up to {self.n_features} features, not {features.shape[-1]}"
            )
        return nn.functional.pad(features, (0, missing)) if missing else features

    def _noise_variance(self) -> Tensor:
        return (2 * self.log_sd["noise"]).exp()[:, None]

    def _prior_mean(self, features: Tensor) -> Tensor:
        return self.ability_mean[:, None] + self.slope_mean[:, None] * features[:, None, :, 0]

    def _basis(self, features: Tensor, scale: Tensor) -> Tensor:
        """Basis functions (E, H, N, D) whose weights are standard normal."""
        hint, texts = features[:, None, :, :1], features[..., 1:] / scale.sqrt()
        angles = texts @ (self.directions * (-self.log_length).exp())
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1) / math.sqrt(angles.shape[-1])
        sd = {name: log_sd.exp()[:, None, None] for name, log_sd in self.log_sd.items()}
        return torch.cat(
            [
                sd["ability"] * torch.ones_like(hint),
                sd["slope"] * hint,
                sd["linear"] * texts[:, None],
                sd["smooth"] * waves[:, None],
            ],
            dim=-1,
        )


@dataclass(frozen=True)
class _Fit:
    """The Gaussian that one Newton step arrives at."""

    slopes: Tensor
    """(E, H, N) K^-1 (logits - mean): at the mode, the slopes of the log likelihood."""
    weights: Tensor
    """(E, H, D) posterior mean of the weights."""
    factor: Tensor
    """(E, H, D, D) Cholesky factor of the posterior precision of the weights."""
    curvature: Tensor
    """(E, H, N) of the negative log likelihood; 0 in padding."""
    precision: Tensor
    """(E, H, N) of an item's noise and likelihood together."""


@dataclass(frozen=True)
class _Laplace:
    """Laplace's approximation: prior covariance K = basis basis' + noise I; padding has count 0."""

    basis: Tensor
    mean: Tensor
    noise: Tensor
    labels: Tensor
    counts: Tensor

    def find_mode(self) -> Tensor:
        """`slopes` of the most probable logits, by Newton steps of the best of some sizes."""
        slopes = torch.zeros_like(self.mean)
        logits = self.mean
        for _ in range(NEWTON_STEPS):
            step = self.newton(logits).slopes - slopes
            change = self.logits(step) - self.mean
            values = torch.stack(
                [self.log_posterior(logits + s * change, slopes + s * step) for s in STEP_SIZES]
            )
            size = step.new_tensor(STEP_SIZES)[values.argmax(dim=0)][..., None]
            slopes, logits = slopes + size * step, logits + size * change
        return slopes

    def newton(self, logits: Tensor) -> _Fit:
        """The posterior under the likelihood's second-order expansion at `logits` (E, H, N)."""
        rates = torch.sigmoid(logits)
        curvature = self.counts * rates * (1 - rates)
        target = curvature * (logits - self.mean) + self.counts * (self.labels - rates)
        target = target / (1 + self.noise * curvature)
        precision = curvature / (1 + self.noise * curvature)
        weighted = precision[..., None] * self.basis
        inner = self.basis.mT @ weighted
        factor = torch.linalg.cholesky(inner + torch.eye(inner.shape[-1]).to(inner))
        weights = torch.cholesky_solve((self.basis.mT @ target[..., None]), factor)[..., 0]
        slopes = target - precision * _apply(self.basis, weights)
        return _Fit(slopes, weights, factor, curvature, precision)

    def logits(self, slopes: Tensor) -> Tensor:
        """mean + K slopes."""
        return self.mean + _apply(self.basis, _apply(self.basis.mT, slopes)) + self.noise * slopes

    def log_posterior(self, logits: Tensor, slopes: Tensor) -> Tensor:
        """Log density of logits and labels, up to a constant: (E, H)."""
        likelihood = self.counts * (self.labels * logits - softplus(logits))
        return (likelihood - 0.5 * slopes * (logits - self.mean)).sum(dim=-1)

    def evidence(self, logits: Tensor, fit: _Fit) -> Tensor:
        """Laplace's log marginal likelihood, up to a constant: (E, H)."""
        log_determinant = 2 * fit.factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
        log_determinant = log_determinant + torch.log1p(self.noise * fit.curvature).sum(dim=-1)
        return self.log_posterior(logits, fit.slopes) - 0.5 * log_determinant

    def left_out(self, logits: Tensor, fit: _Fit) -> Tensor:
        """The logit of each context item from all others, (E, H, N), by the mode's Gaussian."""
        spread = _spread(self.basis, fit.factor)
        leverage = (fit.precision * spread).clamp(max=1 - 1e-6)
        variance = spread / (1 - leverage) + self.noise
        return damped(logits - fit.slopes * variance, variance)


def damped(mean: Tensor, variance: Tensor) -> Tensor:
    """The logit of the mean of sigmoid(x), x normal, nearly (MacKay 1992)."""
    return mean / torch.sqrt(1 + math.pi / 8 * variance)


def mixture(logits: Tensor, log_share: Tensor) -> Tensor:
    """The logit (E, M) of a mixture of probabilities given by their logits (E, H, M)."""
    success = torch.logsumexp(log_share[..., None] + logsigmoid(logits), dim=1)
    failure = torch.logsumexp(log_share[..., None] + logsigmoid(-logits), dim=1)
    return success - failure


def _spread(basis: Tensor, factor: Tensor) -> Tensor:
    """Posterior variance (..., M) of basis (..., M, D) @ weights."""
    return torch.linalg.solve_triangular(factor, basis.mT, upper=False).square().sum(dim=-2)


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector[..., None])[..., 0]
