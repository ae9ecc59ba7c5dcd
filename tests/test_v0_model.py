"""The V0 model: predictions, caches, files, and what it says to bad input."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.special import expit

import outcome_samples as samples
from tabpfn_checkpoint import save_checkpoint
from v0_bench import Context, Queries, V0BenchError
from v0_bench.v0.config import PRESETS, TrainConfig, V0Config, override, preset
from v0_bench.v0.model import CACHED_CONTEXTS, V0
from v0_parts import TINY_HEAD, outcomes, tiny_config, tiny_head


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> str:
    return tiny_head(tmp_path_factory.mktemp("head"))


@pytest.fixture
def model(head: str) -> V0:
    """Adapter, residual path and both terms of the output in use."""
    made = V0(tiny_config(head="icl", head_weights=head, components=4))
    with torch.no_grad():
        made.scale.fill_(20.0)  # an untrained adapter says little
    made.learn_features(outcomes(interaction=1.0))
    made.interaction_weight = 0.7
    return made


def shuffled(context: Context, seed: int = 0) -> Context:
    order = np.random.default_rng(seed).permutation(len(context))
    return Context(
        tuple(context.texts[i] for i in order),
        context.success_rates[order],
        context.n_rollouts[order],
        tuple(context.query_ids[i] for i in order),
        tuple(context.datasets[i] for i in order),
        context.costs[order],
    )


def test_output_is_the_mix_of_two_passes_of_the_head(model: V0) -> None:
    seen, asked = samples.context(30), samples.queries(9)
    shown = model.features(seen.texts, seen.datasets, False)[None]
    rows = model.features(asked.texts, asked.datasets, False)[None]
    assert shown.shape == (1, 30, 1 + 4 + 2 + 8)
    assert shown[..., 5:].std() > 0
    labels = torch.tensor(np.array(seen.success_rates))[None]
    counts = torch.tensor(np.array(seen.n_rollouts))[None].double()
    there = torch.ones(1, 30, dtype=torch.bool)
    with torch.no_grad():
        full = model.head(shown, labels, counts, there, rows)[0]
        blank = [torch.cat([x[..., :1], torch.zeros_like(x[..., 1:])], -1) for x in (shown, rows)]
        hint = model.head(blank[0], labels, counts, there, blank[1])[0]
    expected = expit((0.7 * full + 0.3 * hint).numpy())
    assert model.predict(seen, asked) == pytest.approx(expected, abs=1e-10)
    assert float((full - hint).abs().max()) > 0.01


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_one_term_is_left_out_where_it_does_not_count(model: V0, weight: float) -> None:
    seen, asked = samples.context(30), samples.queries(9)
    model.interaction_weight = weight + (1e-9 if weight == 0 else -1e-9)
    both = model.predict(seen, asked)
    model.interaction_weight = weight
    assert model.predict(seen, asked) == pytest.approx(both, abs=1e-6)
    (state,) = model.encode(seen).states.values()
    assert (state.full is None) == (weight == 0)
    assert (state.hint is None) == (weight == 1)


def test_context_as_pairs_and_queries_as_texts(model: V0) -> None:
    pairs = [("sum of primes in case 1", 0.9, 10), ("root of x in case 2", 0.1)]
    values = model.predict(pairs, ["sum of primes in case 3", "capital city"])
    same = model.predict(Context.from_pairs(pairs), Queries.from_texts(["sum of primes in case 3"]))
    assert values.dtype == np.float64
    assert values.shape == (2,)
    assert ((values > 0) & (values < 1)).all()
    assert values[0] == pytest.approx(same[0], abs=1e-12)


def test_a_known_context_answers_as_a_new_one(model: V0) -> None:
    seen, asked = samples.context(60), samples.queries(20)
    first = model.predict(seen, asked)
    encoded = model.encode(seen)
    calls = 0
    real = model.head.encode

    def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return real(*args)

    model.head.encode = counted  # type: ignore[method-assign]
    np.testing.assert_array_equal(model.predict(seen, asked), first)
    np.testing.assert_array_equal(model.predict(encoded, asked), first)
    np.testing.assert_array_equal(model.predict(samples.context(60), asked), first)
    assert calls == 0
    assert not np.allclose(model.predict(samples.context(60, seed=5), asked), first)
    assert calls == 2
    model.settle()
    np.testing.assert_array_equal(model.predict(seen, asked), first)
    assert calls == 4


def test_a_context_that_differs_in_one_outcome_is_another(model: V0) -> None:
    seen, asked = samples.context(20), samples.queries(5)
    before = model.predict(seen, asked)
    rates = np.array(seen.success_rates)
    rates[0] = 1 - rates[0]
    assert not np.array_equal(model.predict(replace(seen, success_rates=rates), asked), before)
    counts = np.array(seen.n_rollouts) + 1
    assert not np.array_equal(model.predict(replace(seen, n_rollouts=counts), asked), before)


def test_a_context_encoded_before_the_model_changed_is_encoded_anew(model: V0) -> None:
    encoded, asked = model.encode(samples.context(30)), samples.queries(6)
    before = model.predict(encoded, asked)
    model.interaction_weight = 0.0
    after = model.predict(encoded, asked)
    np.testing.assert_array_equal(after, model.predict(samples.context(30), asked))
    assert not np.array_equal(after, before)
    model.learn_features(outcomes(seed=7))
    again = model.predict(encoded, asked)
    np.testing.assert_array_equal(again, model.predict(samples.context(30), asked))
    assert not np.array_equal(again, after)
    with pytest.raises(V0BenchError, match="interaction weight"):
        model.interaction_weight = 1.5


def test_the_cache_keeps_the_contexts_last_used(model: V0, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CACHED_CONTEXTS, "icl", 2)
    first, second, third = ([(f"text {i}", 0.5)] for i in range(3))
    kept = model.encode(first)
    model.encode(second)
    assert model.encode(first) is kept
    model.encode(third)
    assert len(model._cache) == 2
    assert model.encode(first) is kept


def test_order_of_context_and_of_queries_changes_nothing(model: V0) -> None:
    seen, asked = samples.context(80), samples.texts(40, 100)
    values = model.predict(seen, asked)
    assert model.predict(shuffled(seen), asked) == pytest.approx(values, abs=1e-9)
    assert model.predict(seen, asked[::-1])[::-1] == pytest.approx(values, abs=1e-9)
    assert model.predict(seen, asked[:1]) == pytest.approx(values[:1], abs=1e-9)


def test_many_episodes_equal_one_by_one(model: V0) -> None:
    known = list(outcomes().queries.texts)
    pairs = [
        (samples.context(n, seed=n), samples.texts(m, 50 + n) + known[:n])
        for n, m in [(0, 3), (40, 20), (7, 1), (30, 0), (1, 5)]
    ]
    together = model.predict_many(pairs)
    for values, pair in zip(together, pairs, strict=True):
        assert values == pytest.approx(model.predict(*pair), abs=1e-9)
    assert model.predict_many([]) == []


def test_what_training_knows_of_a_text_reaches_the_value(model: V0) -> None:
    """A training text and the same text with one letter more: alike, but only one is known."""
    train = outcomes(interaction=1.0)
    hardest, easiest = np.argsort(train.query_success)[[0, -1]]
    for place, sign in ((hardest, -1), (easiest, 1)):
        text = train.queries.texts[place]
        known, unknown = model.predict(samples.context(60), [text, text + "s"])
        assert sign * (known - unknown) > 0


def test_contexts_of_training_texts_get_features_blind_to_their_outcomes(model: V0) -> None:
    train = outcomes(interaction=1.0)
    assert model.featuriser is not None
    rows = model.residual(train.queries.texts[:9], [""] * 9, False)
    assert rows[:, :5] == pytest.approx(model.featuriser.left_out[:9], abs=1e-5)


@pytest.mark.parametrize("parts", ["all", "residual", "adapter"])
def test_save_and_load_give_equal_predictions(parts: str, head: str, tmp_path: Path) -> None:
    config = tiny_config(
        head="icl",
        head_weights=head,
        connector=None if parts == "residual" else "residual-query",
        residual_path=parts != "adapter",
    )
    made = V0(config, seed=3).learn_features(outcomes())
    made.interaction_weight = 0.25
    made.facts["data"] = [{"pool": "invented", "fingerprint": "abc123"}]
    seen, asked = samples.context(50), [*samples.texts(20, 7), *outcomes().queries.texts[:5]]
    made.save_pretrained(tmp_path / "model")
    loaded = V0.from_pretrained(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(seen, asked), made.predict(seen, asked))
    assert loaded.config.connector == config.connector
    assert loaded.facts == made.facts
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    assert "invented (fingerprint abc123)" in (tmp_path / "model" / "README.md").read_text()
    for path in (tmp_path / "model").iterdir():
        content = path.read_bytes()
        assert not any(text.encode() in content for text in outcomes().queries.texts)
        assert head.encode() not in content


def test_new_training_outcomes_replace_the_old(model: V0) -> None:
    other = outcomes(seed=4)
    fresh = V0(model.config, head=model.head)
    fresh.load_state_dict(model.state_dict())
    fresh.interaction_weight = model.interaction_weight
    asked = samples.queries(10)
    model.predict(samples.context(30), asked)
    np.testing.assert_array_equal(
        model.learn_features(other).predict(samples.context(30), asked),
        fresh.learn_features(other).predict(samples.context(30), asked),
    )


# --------------------------------------------------------------------------- TabPFN


def test_tabpfn_is_found_again_by_its_hash(tmp_path: Path) -> None:
    weights = save_checkpoint(tmp_path / "pfn.ckpt")
    config = tiny_config(head="tabpfn", head_weights=str(weights), residual_path=False)
    made = V0(config)
    assert made.n_features == 8
    seen, asked = samples.context(20), samples.queries(5)
    expected = made.predict(seen, asked)
    made.save_pretrained(tmp_path / "model")
    assert not any(
        name.startswith("head.") for name in load_file(tmp_path / "model/model.safetensors")
    )
    moved = weights.rename(tmp_path / "elsewhere.ckpt")
    with pytest.raises(V0BenchError, match="neither a file nor"):
        V0.from_pretrained(tmp_path / "model")
    loaded = V0.from_pretrained(tmp_path / "model", head_weights=str(moved))
    assert loaded.predict(seen, asked) == pytest.approx(expected, abs=1e-6)
    other = save_checkpoint(tmp_path / "other.ckpt", seed=1)
    with pytest.raises(V0BenchError, match="is not the TabPFN checkpoint"):
        V0.from_pretrained(tmp_path / "model", head_weights=str(other))


# ------------------------------------------------------------------------ bad input


def test_long_empty_and_odd_queries_are_answered(model: V0) -> None:
    values = model.predict(samples.context(20), ["", " ", "x" * 1_000_000, "½\ud800", "word " * 9])
    assert np.isfinite(values).all()
    assert model.predict(samples.context(20), []).shape == (0,)
    assert np.isfinite(model.predict([], ["", "a"])).all()
    assert np.isfinite(model.predict([("", 1.0), ("", 0.0)], [""])).all()


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ([("a", float("nan"))], "must lie in"),
        ([("a", 1.5)], "must lie in"),
        ([("a", 0.5, 0)], "rollout counts"),
        ([("a", 0.5), ("b",)], "context item 1"),
        ([("a", 0.5), "bc"], "context item 1"),
        ([(3, 0.5)], "text of context item 0"),
        ("text", "a context is"),
        (7, "a context is"),
    ],
)
def test_a_bad_context_is_refused(model: V0, context: Any, message: str) -> None:
    with pytest.raises(V0BenchError, match=message):
        model.predict(context, ["a"])


@pytest.mark.parametrize(("queries", "message"), [("text", "queries are"), ([b"a"], "query 0")])
def test_bad_queries_are_refused(model: V0, queries: Any, message: str) -> None:
    with pytest.raises(V0BenchError, match=message):
        model.predict([("a", 1.0)], queries)


def test_a_context_over_the_limit_is_drawn_from_with_a_warning(head: str) -> None:
    small = V0(tiny_config(head="icl", head_weights=head, context_limit=50))
    small.learn_features(outcomes())
    seen, asked = samples.context(200), samples.queries(10)
    with pytest.warns(UserWarning, match=r"200 items, V0 reads 50"):
        values = small.predict(seen, asked)
    with pytest.warns(UserWarning, match="V0 reads 50"):
        assert small.predict(shuffled(seen), asked) == pytest.approx(values, abs=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small.predict(seen.first(50), asked)


def test_an_absent_device_is_an_error(model: V0, tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(V0BenchError, match="CUDA"):
        V0(tiny_config(), device="cuda")
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(V0BenchError, match="CUDA"):
        V0.from_pretrained(tmp_path / "model", device="cuda")
    with pytest.raises(V0BenchError, match="Unknown device"):
        V0.from_pretrained(tmp_path / "model", device="gpu")


def test_too_many_features_for_the_head_are_refused(head: str) -> None:
    most = TINY_HEAD["n_features"]
    with pytest.raises(
        V0BenchError, match=f"takes up to {most} features a text, this model has 27"
    ):
        V0(tiny_config(head="icl", head_weights=head, components=16))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("micr", "did you mean 'micro'"),
        ("./no/such/folder", "there is no folder"),
        ("somebody/no-such-model", "neither a folder nor a model the hub"),
    ],
)
def test_unknown_models(name: str, message: str) -> None:
    with pytest.raises(V0BenchError, match=message):
        V0.from_pretrained(name)


def test_foreign_and_damaged_files_are_refused(model: V0, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(V0BenchError, match="holds no V0 model"):
        V0.from_pretrained(tmp_path)
    model.save_pretrained(folder)
    config, tensors = folder / "config.json", folder / "model.safetensors"
    text, weights = config.read_text(), load_file(tensors)

    config.write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(V0BenchError, match="not that of a V0 model"):
        V0.from_pretrained(folder)
    config.write_text(text.replace('"interaction_weight": 0.7,', ""))
    with pytest.raises(V0BenchError, match="damaged or foreign"):
        V0.from_pretrained(folder)
    config.write_text(text.replace('"n_queries": 2', '"n_queries": 3'))
    with pytest.raises(V0BenchError, match="do not fit"):
        V0.from_pretrained(folder)
    config.write_text(text.replace('"n_queries": 2', '"n_queries": "two"'))
    with pytest.raises(V0BenchError, match="n_queries must be of type int"):
        V0.from_pretrained(folder)
    config.write_text(text)
    for changed in (
        {n: t for n, t in weights.items() if n != "connector.projection.weight"},
        weights | {"stranger": torch.zeros(1)},
    ):
        save_file(changed, tensors)
        with pytest.raises(V0BenchError, match=r"do not fit its config.json: (connector|stranger)"):
            V0.from_pretrained(folder)
    save_file({n: t for n, t in weights.items() if n != "featuriser.seen_hints"}, tensors)
    with pytest.raises(V0BenchError, match="damaged or foreign"):
        V0.from_pretrained(folder)
    tensors.write_bytes(tensors.read_bytes()[:500])
    with pytest.raises(V0BenchError, match="holds no V0 model"):
        V0.from_pretrained(folder)


# --------------------------------------------------------------------- configuration


def test_presets() -> None:
    paper = preset("paper")
    assert (paper.n_queries, paper.d_proj, paper.n_heads, paper.head) == (168, 6, 3, "tabpfn")
    assert paper.n_residual == 0
    micro = preset("micro")
    assert micro.n_residual + micro.n_queries * micro.d_proj == 33
    assert set(PRESETS) == {"micro", "paper"}
    with pytest.raises(V0BenchError, match="micro"):
        preset("mirco")


def test_settings_are_checked_by_name_and_type() -> None:
    config, settings = override(V0Config(), TrainConfig(), {"components": 8, "alpha": 1})
    assert (config.components, settings.alpha) == (8, 1)
    for values, message in [
        ({"component": 8}, "did you mean 'components'"),
        ({"steps": "many"}, "steps must be of type int"),
        ({"steps": True}, "steps must be of type int"),
        ({"alpha": 2.0}, "alpha must lie in"),
        ({"loss": "ranks"}, "did you mean 'rank'"),
        ({"head": "icll"}, "did you mean 'icl'"),
        ({"connector": None, "residual_path": False}, "needs a connector or"),
    ]:
        with pytest.raises(V0BenchError, match=message):
            override(V0Config(), TrainConfig(), values)
