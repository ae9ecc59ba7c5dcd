"""Checkpoints of the official release, in the layout its training code writes."""

import argparse
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from test_adapter import batch, slow_features
from v0_bench.errors import V0BenchError
from v0_bench.v0.release import load_release

Weights = dict[str, torch.Tensor]


def release_state(d: int = 10, k: int = 5, p: int = 6, hidden: int = 7) -> Weights:
    """Random weights under the release's names and in its shapes, with a bit of its backbone."""
    rng = torch.Generator().manual_seed(0)
    shapes = {
        "static_queries": (1, k, p),
        "generator.0.weight": (hidden, d),
        "generator.0.bias": (hidden,),
        "generator.1.weight": (hidden,),
        "generator.1.bias": (hidden,),
        "generator.4.weight": (k * p, hidden),
        "generator.4.bias": (k * p,),
        "proj_kv.weight": (p, d),
        "proj_kv.bias": (p,),
        "mha.in_proj_weight": (3 * p, p),
        "mha.in_proj_bias": (3 * p,),
        "mha.out_proj.weight": (p, p),
        "mha.out_proj.bias": (p,),
        "ln_q.weight": (p,),
        "ln_q.bias": (p,),
        "ln_kv.weight": (p,),
        "ln_kv.bias": (p,),
    }
    state = {"backbone.embed_tokens.weight": torch.zeros(4, d)}
    state |= {f"adapter_layer.{n}": torch.randn(s, generator=rng) for n, s in shapes.items()}
    return state


def saved(path: Path, state: Weights, **others: object) -> Path:
    """A checkpoint as the release's CheckpointManager writes it."""
    args = {"num_heads": 3, "device": torch.device("cuda", 0), "eval_data_paths": ["a.jsonl"]}
    content = {
        "epoch": 3,
        "model_state_dict": state,
        "optimizer_state_dict": {"state": {}, "param_groups": [{"lr": 2e-4, "params": [0]}]},
        "scheduler_state_dict": None,
        "args": args,
        "wandb_run_id": None,
    }
    torch.save({**content, **others}, path)
    return path


def features_of_the_release(state: Weights, heads: int) -> np.ndarray:
    """Features by the slow definition, every release weight put into its place by hand."""
    s = {n.removeprefix("adapter_layer."): v.double().numpy() for n, v in state.items()}
    weights = {name: s[name] for name in s if name.startswith("generator.")}
    weights |= {
        "static_queries": s["static_queries"][0],
        "projection.weight": s["proj_kv.weight"],
        "projection.bias": s["proj_kv.bias"],
        "reader.query_norm.weight": s["ln_q.weight"],
        "reader.query_norm.bias": s["ln_q.bias"],
        "reader.key_norm.weight": s["ln_kv.weight"],
        "reader.key_norm.bias": s["ln_kv.bias"],
        "reader.in_projection.weight": s["mha.in_proj_weight"],
        "reader.in_projection.bias": s["mha.in_proj_bias"],
        "reader.out_projection.weight": s["mha.out_proj.weight"],
        "reader.out_projection.bias": s["mha.out_proj.bias"],
    }
    states, mask, last = batch([4, 1, 9])
    return np.stack(
        [
            slow_features(weights, heads, states[i][mask[i]].double().numpy(), last[i].numpy())
            for i in range(3)
        ]
    )


@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("prefix", ["", "module."])
def test_every_weight_lands_in_its_place(tmp_path: Path, heads: int, prefix: str) -> None:
    state = release_state()
    prefixed = {prefix + name: value for name, value in state.items()}
    adapter = load_release(saved(tmp_path / "r.pt", prefixed, args={"num_heads": heads}))
    assert not adapter.training
    expected = features_of_the_release(state, heads)
    with torch.no_grad():
        np.testing.assert_allclose(adapter(*batch([4, 1, 9])), expected, atol=1e-4, rtol=1e-4)


def test_the_papers_sizes(tmp_path: Path) -> None:
    path = saved(tmp_path / "r.pt", release_state(1024, 168, 6, 128))
    adapter = load_release(str(path))
    assert sum(p.numel() for p in adapter.parameters()) == 268_838
    assert adapter.n_features == 1008


@pytest.mark.parametrize("layout", ["bare", "legacy", "half"])
def test_other_ways_to_save_it(tmp_path: Path, layout: str) -> None:
    """A bare dictionary of weights (3 heads then), torch's old file format, half precision."""
    state = release_state()
    path = tmp_path / "r.pt"
    if layout == "bare":
        torch.save(state, path)
    elif layout == "legacy":
        torch.save({"model_state_dict": state}, path, _use_new_zipfile_serialization=False)
    else:
        saved(path, {name: value.half() for name, value in state.items()})
    adapter = load_release(path)
    expected = torch.tensor(features_of_the_release(state, 3)).float()
    tolerance = 0.1 if layout == "half" else 1e-4
    torch.testing.assert_close(
        adapter(*batch([4, 1, 9])).detach(), expected, atol=tolerance, rtol=tolerance
    )
    assert {p.dtype for p in adapter.parameters()} == {torch.float32}


def without(state: Weights, *names: str) -> Weights:
    return {name: value for name, value in state.items() if name not in names}


A = "adapter_layer."
WRONG = {
    "missing": (
        lambda s: without(s, A + "ln_q.bias", A + "proj_kv.weight"),
        "missing: adapter_layer.ln_q.bias, adapter_layer.proj_kv.weight",
    ),
    "unexpected": (
        lambda s: {**s, A + "queries": torch.ones(1)},
        "unexpected: adapter_layer.queries",
    ),
    "foreign": (lambda s: {"layer.weight": torch.ones(2)}, "missing: adapter_layer.generator.0"),
    "no adapter": (lambda s: {n: v for n, v in s.items() if A not in n}, "missing: adapter_layer."),
    "twice": (
        lambda s: {**s, "module." + A + "ln_q.bias": torch.ones(6)},
        "there with and without 'module.': adapter_layer.ln_q.bias",
    ),
    "shape": (
        lambda s: {**s, A + "ln_q.bias": torch.ones(4)},
        "wrong shape: adapter_layer.ln_q.bias (4,) instead of (6,)",
    ),
    "flat queries": (
        lambda s: {**s, A + "static_queries": torch.ones(30)},
        "static_queries must be (1, K, d_proj)",
    ),
    "NaN": (
        lambda s: {**s, A + "ln_q.bias": torch.full((6,), torch.nan)},
        "not finite numbers: adapter_layer.ln_q.bias",
    ),
    "no tensor": (
        lambda s: {**s, A + "ln_q.bias": [1, 2]},
        "not finite numbers: adapter_layer.ln_q.bias",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_weights_are_named(tmp_path: Path, kind: str) -> None:
    change, message = WRONG[kind]
    with pytest.raises(V0BenchError) as caught:
        load_release(saved(tmp_path / "r.pt", change(release_state())))
    assert message in str(caught.value)


def test_heads_that_do_not_divide_the_width(tmp_path: Path) -> None:
    with pytest.raises(V0BenchError, match="must be a multiple of n_heads"):
        load_release(saved(tmp_path / "r.pt", release_state(), args={"num_heads": 4}))


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\3\4 cut", pickle.dumps([1])])
def test_files_that_are_no_checkpoint(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "r.pt"
    path.write_bytes(content)
    with pytest.raises(V0BenchError, match=r"r\.pt"):
        load_release(path)


def test_a_cut_file_and_an_absent_one(tmp_path: Path) -> None:
    path = saved(tmp_path / "r.pt", release_state())
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(V0BenchError, match="cannot be read as a checkpoint"):
        load_release(path)
    with pytest.raises(V0BenchError, match="There is no checkpoint"):
        load_release(tmp_path / "absent.pt")
    torch.save([1, 2], path)
    with pytest.raises(V0BenchError, match="holds no dictionary but list"):
        load_release(path)
    torch.save({"model_state_dict": 3}, path)
    with pytest.raises(V0BenchError, match="model_state_dict is not a dictionary"):
        load_release(path)


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("hidden_in", ["weights", "args"])
def test_nothing_in_it_can_run(tmp_path: Path, hidden_in: str) -> None:
    evil, namespace = Evil(tmp_path / "owned"), argparse.Namespace()
    for thing in (evil, namespace):
        state, others = release_state(), {}
        if hidden_in == "weights":
            state["adapter_layer.ln_q.bias"] = thing
        else:
            others = {"args": {"num_heads": 3, "more": thing}}
        path = saved(tmp_path / "r.pt", state, **others)
        with pytest.raises(V0BenchError, match="cannot be read as a checkpoint"):
            load_release(path)
    assert not (tmp_path / "owned").exists()
