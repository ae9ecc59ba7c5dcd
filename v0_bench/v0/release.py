"""The adapter of the official release (github.com/Now-Join-Us/V0), from its `.pt` checkpoint.

A checkpoint holds `model_state_dict`, with the frozen backbone under `backbone.` (never trained
there, so not read here) and the adapter under `adapter_layer.`, and `args`, the run's options. The
release itself loads it with `strict=False`, which drops the adapter without a word; here a missing
or unexpected weight is an error.
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from v0_bench.errors import V0BenchError
from v0_bench.v0.adapter import ConnectorConfig, ResidualQueryAdapter

DDP_PREFIX = "module."
BACKBONE_PREFIX = "backbone."
PAPER_HEADS = 3
SHOWN = 20  # names an error lists

OUR_NAMES = {
    f"adapter_layer.{theirs}": ours
    for theirs, ours in {
        "static_queries": "static_queries",
        "generator.0.weight": "generator.0.weight",
        "generator.0.bias": "generator.0.bias",
        "generator.1.weight": "generator.1.weight",
        "generator.1.bias": "generator.1.bias",
        "generator.4.weight": "generator.4.weight",
        "generator.4.bias": "generator.4.bias",
        "proj_kv.weight": "projection.weight",
        "proj_kv.bias": "projection.bias",
        "ln_q.weight": "reader.query_norm.weight",
        "ln_q.bias": "reader.query_norm.bias",
        "ln_kv.weight": "reader.key_norm.weight",
        "ln_kv.bias": "reader.key_norm.bias",
        "mha.in_proj_weight": "reader.in_projection.weight",
        "mha.in_proj_bias": "reader.in_projection.bias",
        "mha.out_proj.weight": "reader.out_projection.weight",
        "mha.out_proj.bias": "reader.out_projection.bias",
    }.items()
}


def load_release(path: str | Path) -> ResidualQueryAdapter:
    """The trained adapter of a release checkpoint, float32 on the CPU, in evaluation mode.

    Its sizes are those of the weights; the number of heads, which no weight tells, is that of the
    checkpoint's `args`, else the paper's 3. Nothing in the file can run code.

    Raises V0BenchError for a file that is absent or unreadable, and for weights that are missing,
    unexpected, of another shape, or not finite; the message names them.
    """
    checkpoint = _read(Path(path))
    args = checkpoint.get("args")
    state = checkpoint.get("model_state_dict", checkpoint)
    if not isinstance(state, Mapping):
        raise V0BenchError(f"{path}: model_state_dict is not a dictionary of weights.")
    weights = _rename(state, path)
    heads = args.get("num_heads", PAPER_HEADS) if isinstance(args, Mapping) else PAPER_HEADS
    adapter = ResidualQueryAdapter(_config(weights, heads, path))
    _check_shapes(weights, adapter.state_dict(), path)
    adapter.load_state_dict(weights)
    return adapter.eval()


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise V0BenchError(f"There is no checkpoint {path}.")
    try:
        # Mapped, where the format allows it: the unused backbone makes up 2.4 GB of the file.
        content = torch.load(
            path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path)
        )
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        reason = str(error).partition("\n")[0]
        raise V0BenchError(f"{path} cannot be read as a checkpoint of weights: {reason}") from error
    if not isinstance(content, Mapping):
        raise V0BenchError(f"{path} holds no dictionary but {type(content).__name__}.")
    return content


def _rename(state: Mapping[str, Any], path: str | Path) -> dict[str, Tensor]:
    """The adapter's weights under our names."""
    named = [(str(name).removeprefix(DDP_PREFIX), value) for name, value in state.items()]
    adapter = [(name, value) for name, value in named if not name.startswith(BACKBONE_PREFIX)]
    names = [name for name, _ in adapter]
    problems = {
        "missing": OUR_NAMES.keys() - set(names),
        "unexpected": set(names) - OUR_NAMES.keys(),
        "there with and without 'module.'": {name for name in names if names.count(name) > 1},
        "not finite numbers": {name for name, value in adapter if not _is_finite(value)},
    }
    _refuse(path, problems)
    weights = {OUR_NAMES[name]: value.float() for name, value in adapter}
    weights["static_queries"] = weights["static_queries"].squeeze(0)
    return weights


def _config(weights: Mapping[str, Tensor], heads: int, path: str | Path) -> ConnectorConfig:
    queries, generator = weights["static_queries"], weights["generator.0.weight"]
    if queries.ndim != 2 or generator.ndim != 2:
        raise V0BenchError(
            f"{path}: static_queries must be (1, K, d_proj) and generator.0.weight (bottleneck, D)."
        )
    n_queries, d_proj = queries.shape
    bottleneck, hidden_size = generator.shape
    return ConnectorConfig(hidden_size, n_queries, d_proj, heads, bottleneck)


def _check_shapes(
    weights: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: str | Path
) -> None:
    wrong = {
        f"{name} {tuple(weights[ours].shape)} instead of {tuple(expected[ours].shape)}"
        for name, ours in OUR_NAMES.items()
        if weights[ours].shape != expected[ours].shape
    }
    _refuse(path, {"of the wrong shape": wrong})


def _refuse(path: str | Path, problems: Mapping[str, Set[str]]) -> None:
    """Raise an error that names the weights of each problem, if there are any."""
    found = [
        f"{problem}: {', '.join(sorted(names)[:SHOWN])}"
        + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        for problem, names in problems.items()
        if names
    ]
    if found:
        raise V0BenchError(
            f"{path} does not hold the adapter of the official release. Weights {'; '.join(found)}."
        )


def _is_finite(value: object) -> bool:
    return isinstance(value, Tensor) and bool(torch.isfinite(value).all())
