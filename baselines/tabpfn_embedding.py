"""`tabpfn-embedding`: TabPFN on the embeddings of the context, without an adapter or training.

This is what the demonstration in the official V0 release computes: there the adapter is not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from v0_bench.episode import Context, Queries
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor

if TYPE_CHECKING:
    from tabpfn import TabPFNClassifier

QUERIES_AT_ONCE = 1024
"""Bounds the memory of a prediction."""


@register_predictor
class TabPFNEmbedding(Predictor):
    """Probability of success by `TabPFNClassifier`, with its own ensemble and preprocessing.

    `weights` is a TabPFN classifier on this machine: a path, a published file name or a version;
    None stands for `$V0_BENCH_TABPFN`, else `v2.5`, the paper's. Nothing is downloaded, and weights
    of 2.5 and later are for non-commercial use. The paper runs 4 estimators.

    A context item is a success if its success rate is at least one half. Where all are alike, or
    all embeddings, TabPFN has nothing to go by, and every query gets the mean success rate under a
    Beta(1/2, 1/2) prior. Of a context of more than `memory` items the newest count.
    """

    name = "tabpfn-embedding"
    info = PredictorInfo(
        summary="TabPFN on embeddings, fitted on the context.",
        paper="2602.03584",
        licence="Apache-2.0; weights of TabPFN 2.5 and later: non-commercial",
        needs=("weights",),
        default=False,
    )

    def __init__(
        self,
        weights: str | None = None,
        n_estimators: int = 4,
        memory: int = 1000,
        backbone: str = "minilm",
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.weights = weights
        self.n_estimators = n_estimators
        self.memory = memory
        self.backbone = backbone
        self.seed = seed
        self.device = device

    def why_unavailable(self) -> str | None:
        """How to get the weights, where they are not on this machine."""
        from v0_bench.v0.heads.tabpfn import WeightsMissing, find_weights  # late: torch

        try:
            find_weights(self.weights)
        except WeightsMissing as error:
            return str(error)
        return None

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]."""
        items = context.newest(self.memory)
        successes = items.success_rates >= 0.5
        rows = items.embed(self.backbone)
        if successes.all() or not successes.any() or (rows == rows[0]).all():
            return np.full(len(queries), (items.success_rates.sum() + 0.5) / (len(items) + 1))
        classifier = self._fit(rows, successes)
        asked = queries.embed(self.backbone)
        parts = [
            classifier.predict_proba(asked[start : start + QUERIES_AT_ONCE])[:, 1]
            for start in range(0, len(asked), QUERIES_AT_ONCE)
        ]
        return np.concatenate([np.empty(0), *parts])

    def _fit(self, rows: np.ndarray, successes: np.ndarray) -> TabPFNClassifier:
        import torch
        from tabpfn import TabPFNClassifier  # late: seconds

        from v0_bench.embeddings.transformer import check_device
        from v0_bench.v0.heads.tabpfn import find_weights

        check_device(self.device)
        classifier = TabPFNClassifier(
            model_path=find_weights(self.weights),
            n_estimators=self.n_estimators,
            device=self.device,
            random_state=self.seed,
            inference_precision=torch.float32,
            ignore_pretraining_limits=True,
            # it numbers equal rows, so the value of a query would depend on its neighbours
            inference_config={"FINGERPRINT_FEATURE": False},
        )
        return classifier.fit(rows, successes.astype(int))
