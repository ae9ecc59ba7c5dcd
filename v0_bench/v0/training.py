"""Fits a V0 model to training outcomes: the adapter by gradient, w by validation, the rest at once.

Everything is decided on an inner split (`sampling.inner_split`): checkpoints and queries that
nothing was trained on. The adapter trains on random episodes of the other outcomes until the
validation loss stops falling; then the interaction weight w that gives the least cross entropy is
taken, with the adapter or without; last, the residual path learns from all outcomes.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from v0_bench.embeddings import TokenStates
from v0_bench.episode import TrainingOutcomes
from v0_bench.errors import V0BenchError
from v0_bench.predictors.numerics import soft_cross_entropy
from v0_bench.v0.config import TrainConfig, V0Config
from v0_bench.v0.losses import v0_loss
from v0_bench.v0.model import TEXTS_AT_ONCE, V0
from v0_bench.v0.processes import Processes
from v0_bench.v0.sampling import Batch, EpisodeSampler, ValidationEpisode, inner_split
from v0_bench.v0.training_state import TrainingState, data_digest

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Interaction weights to choose from; of equals the first is taken."""
WARM_UP = 0.05  # share of the steps
CLIP = 1.0
SCALE_SAMPLE = 512  # texts that tell the scale of the adapter's features


def fit_v0(
    train: TrainingOutcomes,
    config: V0Config,
    settings: TrainConfig | None = None,
    *,
    seed: int = 0,
    device: str = "cpu",
    output: Path | None = None,
    tensorboard: bool = False,
) -> V0:
    """A V0 model of these outcomes, ready to predict.

    settings: `steps=0` leaves the adapter out. output: a folder for log.jsonl and the state that a
    run with the same arguments goes on from when this one is killed; the model itself is not
    written. Fixed arguments and threads give the same bits on one machine's CPU.

    Raises V0BenchError if `output` holds another run, or the settings leave nothing to learn.
    """
    settings = settings or TrainConfig()
    if settings.steps == 0 and not config.residual_path:
        raise V0BenchError("without the residual path the adapter must be trained: steps >= 1")
    processes = Processes(device)
    model = V0(config, seed=seed, device=processes.device)
    split = inner_split(
        train,
        seed,
        config.context_size,
        settings.validation_episodes,
        settings.validation_queries,
    )
    trained = False
    if model.connector is not None and settings.steps and (split or not config.residual_path):
        inner = split.train if split else train
        model.learn_features(inner, seed)
        validation = split.validation if split else ()
        state = TrainingState.open(
            output, _identity(train, model.config, settings, seed), processes
        )
        trainer = Trainer(model, inner, validation, settings, seed, processes)
        trained = trainer.run(state, tensorboard)
    elif model.connector is not None and settings.steps:
        warnings.warn(
            "the adapter is left out: these outcomes have neither 3 families of policies nor 2 "
            "training steps to validate it on",
            stacklevel=2,
        )
    if not trained and config.residual_path:
        model.drop_connector()
    if split is not None:
        if not trained:
            model.learn_features(split.train, seed)
        _choose(model.settle(), split.validation)
    elif config.residual_path and config.head != "tabpfn":
        model.interaction_weight = 0.0  # nothing speaks for more than the hint
    return model.learn_features(train, seed).settle()


def validation_loss(logits: Sequence[np.ndarray], episodes: Sequence[ValidationEpisode]) -> float:
    """Mean over episodes of the cross entropy of logits against success rates, in nats."""
    losses = [
        soft_cross_entropy(row, episode.rates, np.ones(len(row)))
        for row, episode in zip(logits, episodes, strict=True)
    ]
    return float(np.mean(losses))


def _choose(model: V0, validation: Sequence[ValidationEpisode]) -> None:
    """Sets the interaction weight; drops the adapter where the model is better without."""
    best, weight = _best_weight(model, validation)
    facts: dict[str, float] = {"episodes": len(validation)}
    if model.connector is not None and model.config.residual_path:
        kept = model.connector, model.config, model.centre, model.axes
        model.drop_connector()
        without, other = _best_weight(model, validation)
        facts |= {"loss_with_adapter": best, "loss_without_adapter": without}
        if without <= best:
            best, weight = without, other
        else:
            model.connector, model.config, model.centre, model.axes = kept
    model.interaction_weight = weight
    model.facts["validation"] = facts | {"loss": best}


def _best_weight(model: V0, validation: Sequence[ValidationEpisode]) -> tuple[float, float]:
    """(loss, weight) of the best interaction weight; that of TabPFN is 1, as in the paper."""
    fixed = model.config.head == "tabpfn"
    found = model.logits_many([(e.context, e.queries) for e in validation], both=not fixed)
    options = [
        (
            validation_loss(
                [f.full if fixed else weight * f.full + (1 - weight) * f.hint for f in found],
                validation,
            ),
            weight,
        )
        for weight in ((1.0,) if fixed else WEIGHTS)
    ]
    return min(options)


class Trainer:
    """Trains the adapter of a model (and its head, if tuned) on episodes of training outcomes."""

    def __init__(
        self,
        model: V0,
        train: TrainingOutcomes,
        validation: Sequence[ValidationEpisode],
        settings: TrainConfig,
        seed: int,
        processes: Processes,
    ) -> None:
        if settings.episodes % processes.count:
            raise V0BenchError(
                f"episodes ({settings.episodes}) must be a multiple of the processes "
                f"({processes.count})"
            )
        self.model, self.validation = model.float(), validation
        self.settings, self.seed, self.processes = settings, seed, processes
        self.sampler = EpisodeSampler(train, model.config.context_size, settings.queries)
        texts, datasets = train.queries.texts, train.queries.datasets
        self.residual = torch.from_numpy(model.residual(texts, datasets, False)).to(model.centre)
        self.stored = model.token_states(texts)
        model.head.requires_grad_(settings.tune_head)
        model.facts["head_tuned"] = settings.tune_head
        self.step_module = _Step(model)
        self.trained = {n: p for n, p in self.step_module.named_parameters() if p.requires_grad}

    def run(self, state: TrainingState, tensorboard: bool = False) -> bool:
        """Trains to the end, or until validation says stop; False without an episode."""
        if not len(self.sampler):
            return False
        self._set_scale()
        if not self.trained:  # a connector such as the last token
            return True
        optimizer = torch.optim.AdamW(
            self.trained.values(),
            self.settings.learning_rate,
            weight_decay=self.settings.weight_decay,
        )
        state.attach(self.trained, optimizer)
        if self.validation and state.best is None:
            state.note(self._validate())
        forward = self.processes.prepare(self.step_module, self.settings.tune_head)
        self._loop(forward, optimizer, state, tensorboard)
        state.restore_best()
        return True

    def _loop(
        self,
        forward: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: TrainingState,
        tensorboard: bool,
    ) -> None:
        settings = self.settings
        bar = self.processes.progress(state.step, settings.steps)
        saved = time.monotonic()
        with state.log(tensorboard and self.processes.main) as log:
            while state.step < settings.steps and state.waited < settings.patience:
                rate = learning_rate(state.step, settings)
                loss = self._one(forward, optimizer, state.step, rate)
                state.step += 1
                log.add(step=state.step, loss=loss, rate=rate)
                bar.update()
                due = state.step % settings.validate_every == 0 or state.step == settings.steps
                if self.validation and due:
                    found = self._validate()
                    state.note(found)
                    log.add(step=state.step, validation=found)
                if time.monotonic() - saved >= 60 * settings.save_minutes:
                    state.save()
                    saved = time.monotonic()
        bar.close()
        state.save()

    def _one(
        self, forward: nn.Module, optimizer: torch.optim.Optimizer, step: int, rate: float
    ) -> float:
        """One step; returns its loss, averaged over the processes."""
        processes, settings = self.processes, self.settings
        batch = self.sampler.batch(
            self.seed, step, settings.episodes, processes.rank, processes.count
        )
        for group in optimizer.param_groups:
            group["lr"] = rate
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((self.seed * 2**24 + step) * 2**8 + processes.rank)
            logits = forward(self.residual, self.stored, batch, settings.context_labels == "hard")
        rates = torch.from_numpy(batch.query_rates).to(logits)
        there = torch.from_numpy(batch.query_mask).to(logits.device)
        loss = v0_loss(logits, rates, there, settings.loss, settings.alpha)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained.values(), CLIP)
        optimizer.step()
        return processes.mean(loss.detach())

    def _validate(self) -> float:
        self.model.eval()
        pairs = [(episode.context, episode.queries) for episode in self.validation]
        found = self.model.logits_many(pairs)
        self.step_module.train()
        return validation_loss([logits.full for logits in found], self.validation)

    @torch.no_grad()
    def _set_scale(self) -> None:
        """Makes the untrained adapter's features centred, of mean square 1, like the components.

        If they are reduced to principal axes, those are found first. TabPFN standardises what it
        gets, so there they stay as published.
        """
        model = self.model
        chosen = np.random.default_rng([self.seed, 14]).permutation(len(self.stored))
        sample = list(_chunks(chosen[:SCALE_SAMPLE]))
        if model.axes is not None:
            assert model.connector is not None
            rows = torch.cat([model.connector.read(self.stored, part) for part in sample])
            directions = torch.linalg.svd(rows - rows.mean(dim=0), full_matrices=False).Vh.mT
            found = min(model.axes.shape[1], directions.shape[1])
            model.axes[:, :found].copy_(directions[:, :found])
        if model.config.head != "tabpfn":
            features = torch.cat([model.adapted(self.stored, part) for part in sample])
            model.centre.copy_(features.mean(dim=0))
            model.scale.copy_(1 / features.var(dim=0, correction=0).mean().sqrt().clamp(min=1e-6))
        self.step_module.train()


class _Step(nn.Module):
    """Logits (E, M) of a batch of episodes; what `DistributedDataParallel` wraps."""

    def __init__(self, model: V0) -> None:
        super().__init__()
        self.connector, self.head = model.connector, model.head
        self._model = (model,)  # in a tuple: its parameters are not counted twice

    def train(self, mode: bool = True) -> _Step:
        super().train(mode)
        self.head.eval()  # no dropout inside a pre-trained head
        return self

    def forward(
        self, residual: Tensor, stored: TokenStates, batch: Batch, hard_labels: bool
    ) -> Tensor:
        (model,) = self._model
        used, places = np.unique(
            np.concatenate([batch.context.ravel(), batch.query.ravel()]), return_inverse=True
        )
        rows = torch.cat([residual[torch.from_numpy(used)], model.adapted(stored, used)], dim=1)
        shown, asked = np.split(places, [batch.context.size])
        labels = torch.from_numpy(batch.context_rates).to(rows)
        return self.head(
            rows[torch.from_numpy(shown.reshape(batch.context.shape))],
            (labels >= 0.5).to(rows) if hard_labels else labels,
            torch.from_numpy(batch.context_counts).to(rows),
            torch.from_numpy(batch.context_mask).to(rows.device),
            rows[torch.from_numpy(asked.reshape(batch.query.shape))],
        )


def learning_rate(step: int, settings: TrainConfig) -> float:
    """Linear warm-up over 5 % of the steps, then a cosine to 0."""
    warm_up = max(1, round(WARM_UP * settings.steps))
    if step < warm_up:
        return settings.learning_rate * (step + 1) / warm_up
    progress = (step - warm_up) / max(1, settings.steps - warm_up)
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))


def _chunks(rows: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(rows), TEXTS_AT_ONCE):
        yield rows[start : start + TEXTS_AT_ONCE]


def _identity(
    train: TrainingOutcomes, config: V0Config, settings: TrainConfig, seed: int
) -> dict[str, Any]:
    """What decides a training run."""
    return {
        "config": config.to_json(),
        "settings": {n: v for n, v in asdict(settings).items() if n != "save_minutes"},
        "seed": seed,
        "data": data_digest(train),
    }
