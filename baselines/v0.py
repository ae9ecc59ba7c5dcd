"""`v0` and `v0-paper`: the V0 model, as this project sets it up and as the paper does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from v0_bench.episode import Context, Queries, TrainingOutcomes
from v0_bench.predictors import Predictor, PredictorInfo, register_predictor

if TYPE_CHECKING:
    from v0_bench.v0.config import TrainConfig, V0Config
    from v0_bench.v0.model import V0

PAPER = "2602.03584"


class _V0(Predictor):
    """A V0 model that is made anew from the outcomes of a fold."""

    seed: int
    device: str

    def fit(self, train: TrainingOutcomes) -> Self:
        """Learn the residual path, the adapter if it is trained, and the interaction weight."""
        from v0_bench.v0.training import fit_v0  # late: torch

        config, settings = self._configs()
        self.train_ = train
        self.model_ = fit_v0(train, config, settings, seed=self.seed, device=self.device)
        return self

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1]."""
        model = self._model()
        return model.predict(context.newest(model.config.context_limit), queries)

    def predict_many(self, pairs: Sequence[tuple[Context, Queries]]) -> list[np.ndarray]:
        """Values for many episodes, in batches."""
        model = self._model()
        limit = model.config.context_limit
        return model.predict_many([(context.newest(limit), queries) for context, queries in pairs])

    def _configs(self) -> tuple[V0Config, TrainConfig]:
        raise NotImplementedError

    def _model(self) -> V0:
        from v0_bench.v0.model import V0

        if not hasattr(self, "model_"):
            self.model_ = V0.from_pretrained("micro", device=self.device)
        return self.model_


@register_predictor
class V0Predictor(_V0):
    """The V0 model with a residual path for what training outcomes tell about a text.

    The head comes from a synthetic prior and has seen no outcomes. `fit` learns the hint, the
    `components` and, in `adapter_steps` steps, the adapter from the training outcomes, and chooses
    the weight of the interaction on an inner split of checkpoints and queries. Without `fit` it is
    the packaged model `micro`. Of a context of more than 1,024 items the newest count.
    """

    name = "v0"
    info = PredictorInfo(summary="The V0 model, fitted on the training outcomes.", paper=PAPER)

    def __init__(
        self,
        components: int = 8,
        dataset_features: int = 16,
        landmarks: int = 700,
        adapter_steps: int = 0,
        head: str = "icl",
        head_weights: str | None = None,
        backbone: str = "minilm",
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.components = components
        self.dataset_features = dataset_features
        self.landmarks = landmarks
        self.adapter_steps = adapter_steps
        self.head = head
        self.head_weights = head_weights
        self.backbone = backbone
        self.seed = seed
        self.device = device

    def why_unavailable(self) -> str | None:
        """Why the head's weights cannot be had here."""
        from v0_bench.errors import V0BenchError
        from v0_bench.v0.heads.saved import load_head, packaged_head

        try:
            load_head(self.head_weights) if self.head_weights else packaged_head(self.head)
        except V0BenchError as error:
            return str(error)
        return None

    def fit(self, train: TrainingOutcomes) -> Self:
        """Learn the residual path, the adapter if it is trained, and the interaction weight."""
        self.chosen_at_ = len(train)
        return super().fit(train)

    def update(self, outcomes: TrainingOutcomes) -> Self:
        """Learn the residual path anew from all outcomes so far.

        The interaction weight is chosen anew whenever the outcomes have doubled; an adapter that
        is trained stays as it is.
        """
        self.train_ = self.train_.join(outcomes)
        if self.model_.connector is None and len(self.train_) >= 2 * self.chosen_at_:
            return self.fit(self.train_)
        self.model_.learn_features(self.train_, self.seed)
        return self

    def _configs(self) -> tuple[V0Config, TrainConfig]:
        from v0_bench.v0.config import TrainConfig, V0Config

        config = V0Config(
            backbone=self.backbone,
            connector="residual-query" if self.adapter_steps else None,
            head=self.head,
            head_weights=self.head_weights,
            components=self.components,
            dataset_features=self.dataset_features,
            landmarks=self.landmarks,
        )
        return config, TrainConfig(steps=self.adapter_steps)


@register_predictor
class V0Paper(_V0):
    """The model of the paper: Residual Query Adapter and frozen TabPFN, no residual path.

    It needs its backbone by path (the paper's is Qwen3-Embedding-0.6B: `--backbone FOLDER`) and
    TabPFN weights on this machine: `weights` as for `tabpfn-embedding`. Nothing is downloaded.
    The adapter is trained once, in at most `steps` steps; later outcomes do not change it.
    """

    name = "v0-paper"
    info = PredictorInfo(
        summary="The V0 model in the paper's configuration.",
        paper=PAPER,
        licence="Apache-2.0; weights of TabPFN 2.5 and later: non-commercial",
        needs=("weights",),
        default=False,
    )

    def __init__(
        self,
        weights: str | None = None,
        steps: int = 1000,
        backbone: str = "minilm",
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.weights = weights
        self.steps = steps
        self.backbone = backbone
        self.seed = seed
        self.device = device

    def why_unavailable(self) -> str | None:
        """What is missing: the backbone's folder, or TabPFN's weights."""
        from v0_bench.v0.heads.tabpfn import WeightsMissing, find_weights  # late: torch

        if not Path(self.backbone).is_dir():
            return (
                "needs its backbone by path, such as a folder with Qwen3-Embedding-0.6B: "
                f"--backbone FOLDER, not {self.backbone!r}"
            )
        try:
            find_weights(self.weights)
        except WeightsMissing as error:
            return str(error)
        return None

    def _configs(self) -> tuple[V0Config, TrainConfig]:
        from dataclasses import replace

        from v0_bench.v0.config import TrainConfig, preset

        config = replace(preset("paper"), backbone=self.backbone, head_weights=self.weights)
        return config, TrainConfig(steps=self.steps)
