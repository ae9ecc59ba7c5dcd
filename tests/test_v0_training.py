"""Training of V0: the same bits twice, resumable, and everything chosen by validation."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outcome_samples as samples
from v0_bench import V0BenchError
from v0_bench.v0 import training
from v0_bench.v0.config import TrainConfig
from v0_bench.v0.model import V0
from v0_bench.v0.processes import Processes
from v0_bench.v0.sampling import inner_split, subset
from v0_bench.v0.training import WEIGHTS, Trainer, fit_v0, learning_rate, validation_loss
from v0_bench.v0.training_state import TrainingState
from v0_parts import outcomes, tiny_config

CONFIG = tiny_config(n_queries=1, d_proj=2, components=2)
SETTINGS = TrainConfig(steps=6, validate_every=2, validation_episodes=2, learning_rate=0.01)


def losses(folder: Path) -> list[tuple[int, float]]:
    rows = map(json.loads, (folder / "log.jsonl").read_text().splitlines())
    return [(row["step"], row["loss"]) for row in rows if "loss" in row]


def test_the_same_arguments_give_the_same_bits(tmp_path: Path) -> None:
    models = [fit_v0(outcomes(), CONFIG, SETTINGS, output=tmp_path / name) for name in "ab"]
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert len(losses(tmp_path / "a")) == 6
    seen, asked = samples.context(30), samples.queries(10)
    first, second = (model.predict(seen, asked) for model in models)
    np.testing.assert_array_equal(first, second)
    fit_v0(outcomes(), CONFIG, SETTINGS, seed=1, output=tmp_path / "c")
    assert losses(tmp_path / "c") != losses(tmp_path / "a")


def test_a_run_that_was_cut_off_goes_on_with_the_same_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_v0(outcomes(), CONFIG, SETTINGS, output=tmp_path / "whole")
    often = TrainConfig(**(vars(SETTINGS) | {"save_minutes": 0.0}))
    real = Trainer._one

    def failing(self: Trainer, forward: Any, optimizer: Any, step: int, rate: float) -> float:
        if step == 3:
            raise KeyboardInterrupt
        return real(self, forward, optimizer, step, rate)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_one", failing)
        with pytest.raises(KeyboardInterrupt):
            fit_v0(outcomes(), CONFIG, often, output=tmp_path / "cut")
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")[:3]
    with pytest.raises(V0BenchError, match="another training run"):
        fit_v0(outcomes(seed=1), CONFIG, often, output=tmp_path / "cut")
    resumed = fit_v0(outcomes(), CONFIG, often, output=tmp_path / "cut")
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert resumed.facts == fit_v0(outcomes(), CONFIG, SETTINGS).facts


def test_a_damaged_state_is_an_error(tmp_path: Path) -> None:
    fit_v0(outcomes(), CONFIG, SETTINGS, output=tmp_path)
    (tmp_path / "resume" / "state.safetensors").write_bytes(b"nothing")
    with pytest.raises(V0BenchError, match="cannot resume"):
        fit_v0(outcomes(), CONFIG, SETTINGS, output=tmp_path)


def trained(settings: TrainConfig, validated: bool = False) -> tuple[V0, Trainer, TrainingState]:
    """A trainer that has run, before anything is chosen."""
    train = outcomes(interaction=1.5)
    split = inner_split(train, 0, 32, 4, 20)
    assert split is not None
    model = V0(CONFIG)
    model.learn_features(split.train)
    validation = split.validation if validated else ()
    trainer = Trainer(model, split.train, validation, settings, 0, Processes("cpu"))
    state = TrainingState(None, {}, True)
    assert trainer.run(state)
    return model, trainer, state


def test_the_adapter_is_the_one_that_validated_best(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[float] = []
    real = Trainer._validate

    def noted(self: Trainer) -> float:
        found.append(real(self))
        return found[-1]

    monkeypatch.setattr(Trainer, "_validate", noted)
    _, trainer, state = trained(
        TrainConfig(steps=40, validate_every=1, patience=3, learning_rate=0.3), validated=True
    )
    best = int(np.argmin(found))
    assert len(found) - 1 - best == 3  # patience, and the first is from before training
    assert state.step == len(found) - 1 < 40
    assert real(trainer) == pytest.approx(found[best], abs=1e-7)


def test_training_lowers_the_loss_of_training() -> None:
    """On one fixed batch, by the adapter alone; and the frozen head keeps its weights."""
    model, trainer, _ = trained(TrainConfig(steps=1))
    head = {n: t.clone() for n, t in model.head.state_dict().items()}
    optimizer = torch.optim.AdamW(trainer.trained.values(), 0.02)
    batch = trainer.sampler.batch
    trainer.sampler.batch = lambda *_: batch(0, 0, 2)  # type: ignore[method-assign]
    run = [trainer._one(trainer.step_module, optimizer, 5, 0.02) for _ in range(25)]
    assert min(run[-3:]) < run[0] - 0.01
    for name, tensor in model.head.state_dict().items():
        assert torch.equal(tensor, head[name])


def test_a_tuned_head_is_trained_and_saved(tmp_path: Path) -> None:
    settings = TrainConfig(steps=2, tune_head=True, learning_rate=0.1)
    model, _, _ = trained(settings)
    packaged = V0(CONFIG).head.float().state_dict()
    assert not torch.equal(model.head.state_dict()["log_sd.ability"], packaged["log_sd.ability"])
    model.settle().save_pretrained(tmp_path / "m")
    seen, asked = samples.context(20), samples.queries(5)
    loaded = V0.from_pretrained(tmp_path / "m")
    np.testing.assert_array_equal(loaded.predict(seen, asked), model.predict(seen, asked))


def test_hard_labels_are_rounded_and_soft_ones_are_not() -> None:
    _, trainer, _ = trained(TrainConfig(steps=1))
    shown: list[torch.Tensor] = []
    forward = trainer.model.head.forward

    def spy(*args: Any) -> torch.Tensor:
        shown.append(args[1])
        return forward(*args)

    trainer.model.head.forward = spy  # type: ignore[method-assign]
    batch = trainer.sampler.batch(0, 0, 2)
    for hard in (False, True):
        trainer.step_module(trainer.residual, trainer.stored, batch, hard)
    soft, rounded = shown
    assert torch.equal(rounded, (soft >= 0.5).float())
    assert not torch.equal(soft, rounded)
    np.testing.assert_allclose(soft.numpy(), batch.context_rates, rtol=1e-6)


def test_training_and_prediction_compute_the_same() -> None:
    """The logits of a training step are those of `predict`, without the mixing."""
    _, trainer, _ = trained(TrainConfig(steps=1))
    model, train = trainer.model, trainer.sampler.train
    batch = trainer.sampler.batch(0, 3, 1)
    trainer.step_module.eval()
    with torch.no_grad():
        logits = trainer.step_module(trainer.residual, trainer.stored, batch, False)[0]
    shown = [
        (train.queries.texts[q], float(r), int(k))
        for q, r, k in zip(
            batch.context[0], batch.context_rates[0], batch.context_counts[0], strict=True
        )
    ]
    asked = [train.queries.texts[q] for q in batch.query[0]]
    model.settle()
    assert model.featuriser is not None
    model.featuriser.seen_hints[:] = model.featuriser.left_out[:, 0]  # as in training
    values = model.predict(shown, asked)
    assert values == pytest.approx(torch.sigmoid(logits).numpy(), abs=1e-5)


def test_the_interaction_must_be_won() -> None:
    """Policies that differ in ability only against policies that differ by topic."""
    plain = fit_v0(outcomes(150, 12, seed=3), tiny_config(connector=None), TrainConfig(steps=0))
    tastes = outcomes(150, 12, seed=3, interaction=2.0)
    rich = fit_v0(tastes, tiny_config(connector=None), TrainConfig(steps=0))
    assert rich.interaction_weight >= 0.75
    assert plain.interaction_weight < rich.interaction_weight
    assert plain.interaction_weight in WEIGHTS
    assert rich.facts["validation"]["loss"] > 0


def test_nothing_to_validate_on_leaves_the_hint_alone() -> None:
    train = outcomes(40, 4, families=2)
    with pytest.warns(UserWarning, match="the adapter is left out"):
        model = fit_v0(train, CONFIG, SETTINGS)
    assert model.connector is None
    assert model.interaction_weight == 0
    assert model.featuriser is not None


def test_without_residual_path_the_adapter_trains_unvalidated() -> None:
    config = tiny_config(residual_path=False)
    model = fit_v0(outcomes(40, 4, families=2), config, TrainConfig(steps=2))
    assert model.connector is not None
    assert model.interaction_weight == 1
    empty = fit_v0(subset(outcomes(), np.array([], dtype=int)), config, TrainConfig(steps=2))
    assert np.isfinite(empty.predict(samples.context(9), samples.queries(4))).all()
    with pytest.raises(V0BenchError, match="steps >= 1"):
        fit_v0(outcomes(), config, TrainConfig(steps=0))


@pytest.mark.parametrize("connector", ["last-token", "mean"])
def test_connectors_without_parameters_need_no_training(connector: str) -> None:
    from v0_bench.v0.heads.saved import new_head

    model = V0(tiny_config(connector=connector), head=new_head("gp", {"n_features": 300}))
    trainer = Trainer(model, outcomes(30, 4), (), SETTINGS, 0, Processes("cpu"))
    assert trainer.run(TrainingState(None, {}, True))
    features = model.features(outcomes(30, 4).queries.texts, [""] * 30, False)
    assert features.shape == (30, 6 + 256)
    assert float(features[:, 6:].square().mean()) == pytest.approx(1, abs=1e-3)


def test_the_best_weight_is_the_one_of_least_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a loop over weights and episodes that predicts with each weight."""
    train = outcomes(80, 9, interaction=1.0)
    split = inner_split(train, 0, 32, 5, 15)
    assert split is not None
    model = V0(tiny_config(connector=None)).learn_features(split.train)
    loss, weight = training._best_weight(model, split.validation)
    table = {}
    for option in WEIGHTS:
        model.interaction_weight = option
        terms = []
        for episode in split.validation:
            values = model.predict(episode.context, episode.queries)
            y = episode.rates
            terms.append(float(np.mean(-y * np.log(values) - (1 - y) * np.log1p(-values))))
        table[option] = float(np.mean(terms))
    assert weight == min(table, key=lambda option: table[option])
    assert loss == pytest.approx(table[weight], abs=1e-9)


def test_validation_loss_by_hand() -> None:
    split = inner_split(outcomes(), 0, 32, 2, 2)
    assert split is not None
    zeros = [np.zeros(len(episode.queries)) for episode in split.validation]
    assert validation_loss(zeros, split.validation) == pytest.approx(math.log(2))


def test_learning_rate_warms_up_and_falls_to_nothing() -> None:
    settings = TrainConfig(steps=100, learning_rate=1.0)
    rates = [learning_rate(step, settings) for step in range(100)]
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5] == 1.0
    assert rates[52] == pytest.approx(0.5, abs=0.02)
    assert 0 < rates[99] < 0.001
    assert rates[5:] == sorted(rates[5:], reverse=True)


def test_episodes_must_divide_among_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    processes = Processes("cpu")
    processes.count = 3
    with pytest.raises(V0BenchError, match="multiple of the processes"):
        Trainer(V0(CONFIG), outcomes(), (), SETTINGS, 0, processes)


def test_tensorboard_is_asked_for_in_words(tmp_path: Path) -> None:
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        with pytest.raises(V0BenchError, match="pip install tensorboard"):
            fit_v0(outcomes(), CONFIG, SETTINGS, output=tmp_path, tensorboard=True)
    else:
        fit_v0(outcomes(), CONFIG, SETTINGS, output=tmp_path, tensorboard=True)
        assert list((tmp_path / "tensorboard").iterdir())


def test_a_wide_connector_is_reduced_to_principal_axes(tmp_path: Path) -> None:
    """Features as PCA of the connector's makes them, the same after saving."""
    config = tiny_config(connector="mean", axes=3, residual_path=False)
    model = fit_v0(outcomes(), config, SETTINGS)
    split = inner_split(outcomes(), 0, config.context_size, 2, SETTINGS.validation_queries)
    assert split is not None
    texts = split.train.queries.texts
    rows = model.features(texts, [""] * len(texts), False).numpy()
    means = model.token_states(texts).mean().double().numpy()
    _, _, directions = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    for i in range(3):
        component = (means - means.mean(axis=0)) @ directions[i]
        assert abs(np.corrcoef(component, rows[:, 1 + i])[0, 1]) > 0.9999
    assert np.mean(rows[:, 1:].var(axis=0)) == pytest.approx(1, abs=1e-3)
    model.save_pretrained(tmp_path)
    seen, asked = samples.context(30), samples.queries(10)
    again = V0.from_pretrained(tmp_path).predict(seen, asked)
    np.testing.assert_allclose(again, model.predict(seen, asked), atol=1e-5)
