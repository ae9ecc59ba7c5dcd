"""What a head must beat on the prior: predictions from the context alone, by regression."""

from __future__ import annotations

import numpy as np
import torch
from scipy.special import expit
from torch import Tensor

from v0_bench.predictors.numerics import beta_shrunk, fit_logistic, logit, rollout_weights
from v0_bench.v0.prior import Episodes

PENALTIES = (1.0, 10.0, 100.0, 1000.0)


def context_mean(episodes: Episodes) -> Tensor:
    """Logits (E, M): the context's mean success rate, shrunk to 1/2 as by one more item."""
    items = episodes.mask.sum(dim=1)
    rates = torch.where(episodes.mask, episodes.labels, 0).sum(dim=1)
    means = torch.logit((rates + 0.5) / (items + 1))
    return means[:, None].expand(episodes.values.shape)


def logistic(episodes: Episodes) -> Tensor:
    """Logits (E, M): ability + slope * hint + linear features, fitted to each context.

    A penalised logistic regression on soft labels; the penalty of the features is the one with the
    least approximate leave-one-out cross entropy.
    """
    rows = [_fit_and_predict(episodes, i) for i in range(len(episodes.mask))]
    return torch.from_numpy(np.stack(rows)).to(episodes.values)


def _fit_and_predict(episodes: Episodes, i: int) -> np.ndarray:
    mask = episodes.mask[i]
    context = episodes.features[i][mask].double().cpu().numpy()
    queries = episodes.queries[i].double().cpu().numpy()
    labels = episodes.labels[i][mask].double().cpu().numpy()
    weights = rollout_weights(episodes.counts[i][mask].cpu().numpy())
    ability = logit(beta_shrunk(labels.sum(), len(labels), 0.5, 1.0))
    if len(labels) == 0:
        return np.asarray(ability + queries[:, 0])
    used = np.flatnonzero(np.any(context != 0, axis=0) | (np.arange(context.shape[1]) == 0))
    centre = np.concatenate([[ability, 1.0], np.zeros(len(used) - 1)])
    best, chosen = np.inf, centre
    for penalty in PENALTIES:
        penalties = np.concatenate([[0.1, 10.0], np.full(len(used) - 1, penalty)])
        fit = fit_logistic(_design(context, used), labels, weights, penalties, centre)
        rates = np.clip(expit(fit.left_out), 1e-4, 1 - 1e-4)
        loss = -weights @ (labels * np.log(rates) + (1 - labels) * np.log1p(-rates))
        if loss < best:
            best, chosen = loss, fit.coefficients
    return np.asarray(_design(queries, used) @ chosen)


def _design(features: np.ndarray, used: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(features)), features[:, used]])
