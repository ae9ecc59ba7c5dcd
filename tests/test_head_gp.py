"""The Gaussian-process head against slow, dense computations and scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import DotProduct

from v0_bench.v0.heads.gp import GPHead
from v0_bench.v0.prior import draw

N_FEATURES = 7


def small_head(seed: int = 0, experts: int = 3) -> GPHead:
    """A head in float64 whose parameters are all different."""
    torch.manual_seed(seed)
    head = GPHead(N_FEATURES, experts=experts, waves=5).double()
    with torch.no_grad():
        for parameter in head.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return head.eval()


@dataclass
class Problem:
    """One episode in NumPy."""

    context: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    queries: np.ndarray

    def tensors(self) -> tuple[torch.Tensor, ...]:
        """Arguments of a head."""
        arrays = (self.context, self.labels, self.counts, np.ones(len(self.labels), bool))
        return tuple(torch.from_numpy(a)[None] for a in (*arrays, self.queries))


def problem(seed: int = 0, items: int = 12, k: int | None = None) -> Problem:
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, items).astype(float) if k is None else np.full(items, float(k))
    labels = rng.binomial(counts.astype(int), rng.random(items)) / counts
    texts = rng.normal(size=(items + 5, N_FEATURES))
    return Problem(texts[:items], labels, counts, texts[items:])


class DenseGP:
    """Laplace's approximation in N x N matrices; the mode by a general optimiser."""

    def __init__(self, head: GPHead, expert: int, data: Problem) -> None:
        self.head, self.expert, self.data = head, expert, data
        texts = data.context[:, 1:]
        self.scale = (np.sum(texts**2) + 16) / (len(texts) + 1)
        self.noise = self.sd("noise") ** 2
        self.prior = self.kernel(data.context, data.context) + self.noise * np.eye(len(texts))
        self.mean = self.prior_mean(data.context)
        inverse = np.linalg.inv(self.prior)

        def loss(f: np.ndarray) -> float:
            likelihood = data.counts * (data.labels * f - np.logaddexp(0, f))
            return float(0.5 * (f - self.mean) @ inverse @ (f - self.mean) - likelihood.sum())

        def slope(f: np.ndarray) -> np.ndarray:
            return inverse @ (f - self.mean) - data.counts * (data.labels - expit(f))

        found = minimize(loss, self.mean, jac=slope, method="BFGS", options={"gtol": 1e-10})
        self.mode = found.x
        self.curvature = data.counts * expit(self.mode) * expit(-self.mode)
        whole = np.eye(len(texts)) + self.prior * self.curvature
        self.evidence = -loss(self.mode) - 0.5 * np.linalg.slogdet(whole)[1]

    def sd(self, name: str) -> float:
        return float(self.head.log_sd[name][self.expert].exp().detach())

    def prior_mean(self, a: np.ndarray) -> np.ndarray:
        head, e = self.head, self.expert
        return head.ability_mean[e].item() + head.slope_mean[e].item() * a[:, 0]

    def kernel(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        linear = a[:, 1:] @ b[:, 1:].T / self.scale
        frequencies = (self.head.directions / self.head.log_length.exp()).detach().numpy()
        angles_a = a[:, 1:] @ frequencies / np.sqrt(self.scale)
        angles_b = b[:, 1:] @ frequencies / np.sqrt(self.scale)
        smooth = np.cos(angles_a[:, None] - angles_b[None]).mean(axis=2)
        return (
            self.sd("ability") ** 2
            + self.sd("slope") ** 2 * np.outer(a[:, 0], b[:, 0])
            + self.sd("linear") ** 2 * linear
            + self.sd("smooth") ** 2 * smooth
        )

    def predict(self, queries: np.ndarray) -> np.ndarray:
        """Logits of queries from the Gaussian that stands for the likelihood at the mode."""
        return self._regress(np.arange(len(self.mode)), queries)

    def left_out(self) -> np.ndarray:
        """Logits of context items, each by a new regression on the others."""
        items = np.arange(len(self.mode))
        return np.array(
            [self._regress(np.delete(items, i), self.data.context[i : i + 1])[0] for i in items]
        )

    def _regress(self, items: np.ndarray, queries: np.ndarray) -> np.ndarray:
        slopes = self.data.counts * (self.data.labels - expit(self.mode))
        targets = (self.mode + slopes / self.curvature)[items]
        covariance = self.prior[np.ix_(items, items)] + np.diag(1 / self.curvature[items])
        cross = self.kernel(queries, self.data.context[items])
        gain = np.linalg.solve(covariance, cross.T).T
        mean = self.prior_mean(queries) + gain @ (targets - self.mean[items])
        variance = np.diag(self.kernel(queries, queries)) - np.sum(gain * cross, axis=1)
        return mean / np.sqrt(1 + np.pi / 8 * (variance + self.noise))


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_dense_matrices(seed: int) -> None:
    head, data = small_head(seed), problem(seed)
    dense = [DenseGP(head, e, data) for e in range(3)]
    *context, queries = data.tensors()
    with torch.no_grad():
        state = head.encode(*context)
        experts = head.expert_logits(state, queries)[0].numpy()
        answer = head.logits(state, queries)[0].numpy()
    for gp, expert, left_out in zip(dense, experts, state.left_out[0].numpy(), strict=True):
        np.testing.assert_allclose(expert, gp.predict(data.queries), atol=1e-5)
        np.testing.assert_allclose(left_out, gp.left_out(), atol=1e-5)
    scores = np.array([gp.evidence for gp in dense]) * float(head.log_trust.exp())
    scores += head.share.detach().numpy()
    shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
    np.testing.assert_allclose(state.log_share[0].exp().numpy(), shares, atol=1e-5)
    np.testing.assert_allclose(answer, logit(shares @ expit(experts)), atol=1e-5)


def test_agrees_with_scikit_learn_on_single_rollouts() -> None:
    head, data = small_head(experts=2), problem(items=40, k=1)
    with torch.no_grad():
        for name in ("ability_mean", "slope_mean"):
            getattr(head, name).zero_()
        head.log_sd["noise"].fill_(-12.0)  # scikit-learn knows no item noise
    *context, queries = data.tensors()
    with torch.no_grad():
        state = head.encode(*context)
        values = torch.sigmoid(head.expert_logits(state, queries))[0].numpy()
        contexts = head._basis(context[0], state.scale)[0].numpy()
        others = head._basis(queries, state.scale)[0].numpy()
    evidence = []
    for expert in range(2):
        kernel = DotProduct(sigma_0=0.0, sigma_0_bounds="fixed")
        rival = GaussianProcessClassifier(kernel, optimizer=None).fit(contexts[expert], data.labels)
        evidence.append(rival.log_marginal_likelihood_value_)
        theirs = rival.predict_proba(others[expert])[:, 1]
        np.testing.assert_allclose(values[expert], theirs, atol=0.01)  # two approximations
    ours = (state.log_share[0] - head.share) / head.log_trust.exp()
    assert float(ours[1] - ours[0]) == pytest.approx(evidence[1] - evidence[0], abs=1e-4)


def test_gradients_to_features_and_parameters_are_exact() -> None:
    head, data = small_head(experts=2), problem(items=6)
    features, labels, counts, mask, queries = data.tensors()
    features.requires_grad_()
    queries.requires_grad_()

    def answer(features: torch.Tensor, queries: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return head(features, labels, counts, mask, queries)

    inputs = (features, queries, *head.parameters())
    assert torch.autograd.gradcheck(answer, inputs, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("context", [32, 256])
def test_single_precision_and_few_newton_steps_are_enough(
    context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = GPHead().eval()
    batch = draw(torch.Generator().manual_seed(0), 12, context, 16)
    arguments = (batch.features, batch.labels, batch.counts, batch.mask, batch.queries)
    with torch.no_grad():
        quick = torch.sigmoid(head(*arguments))
        monkeypatch.setattr("v0_bench.v0.heads.gp.NEWTON_STEPS", 60)
        exact = torch.sigmoid(
            head.double()(*(t.double() if t.is_floating_point() else t for t in arguments))
        )
    assert (quick - exact).abs().max() < 0.01
