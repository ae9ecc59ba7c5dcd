"""Small V0 models and outcomes with a planted structure, for the tests of V0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.special import expit

import outcome_samples as samples
from v0_bench import Queries, TrainingOutcomes
from v0_bench.episode import Checkpoint
from v0_bench.v0.config import V0Config
from v0_bench.v0.heads.saved import new_head, save_head

TINY_HEAD = {"n_features": 20, "width": 8, "layers": 2, "heads": 2, "experts": 2, "waves": 3}


def tiny_head(folder: Path, seed: int = 0) -> str:
    """The folder of an `icl` head with random weights, its correction not zero."""
    torch.manual_seed(seed)
    head = new_head("icl", TINY_HEAD)
    torch.nn.init.normal_(head.correction.weight, std=0.3)
    save_head(head, folder)
    return str(folder)


def tiny_config(**changes: Any) -> V0Config:
    """Hashed n-grams, two queries of width 4, the packaged Gaussian process."""
    values = {
        "backbone": "hash",
        "n_queries": 2,
        "d_proj": 4,
        "bottleneck": 8,
        "head": "gp",
        "components": 3,
        "dataset_features": 2,
        "landmarks": 40,
        "context_size": 32,
    }
    return V0Config(**(values | changes))


def outcomes(
    n_queries: int = 60,
    n_checkpoints: int = 8,
    seed: int = 0,
    interaction: float = 0.0,
    steps: tuple[int | None, ...] = (None,),
    families: int | None = None,
) -> TrainingOutcomes:
    """Every checkpoint on every query: ability + topic easiness + interaction with the topic."""
    rng = np.random.default_rng(seed)
    texts = samples.texts(n_queries, seed)
    topic = np.array([samples.TOPICS.index(text.split(" in case")[0]) for text in texts])
    n_topics = len(samples.TOPICS)
    easiness = rng.normal(0, 1.0, n_topics)
    policies = n_checkpoints // len(steps)
    checkpoints = tuple(
        Checkpoint(f"p{i}", step, f"f{i % (families or policies)}")
        for i in range(policies)
        for step in steps
    )
    tastes = interaction * rng.normal(size=(len(checkpoints), n_topics))
    ability = rng.normal(0, 1.0, len(checkpoints))
    checkpoint, query = np.divmod(np.arange(len(checkpoints) * n_queries), n_queries)
    odds = ability[checkpoint] + easiness[topic[query]] + tastes[checkpoint, topic[query]]
    rates = rng.binomial(10, expit(odds)) / 10
    n = len(rates)
    ids = tuple(f"t{seed}-{i}" for i in range(n_queries))
    return TrainingOutcomes(
        Queries(tuple(texts), ids, ("",) * n_queries),
        checkpoints,
        query,
        checkpoint,
        rates,
        np.full(n, 10),
        np.full(n, np.nan),
    )
