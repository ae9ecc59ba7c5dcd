"""A featuriser as tensors and plain values, for the files of a model; no training text is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from v0_bench.embeddings.shards import KEY_BYTES
from v0_bench.v0.featuriser import Featuriser, _Ridge
from v0_bench.v0.text_kernel import TextKernel

RIDGE = ("centre", "intercepts", "slopes", "left_out")
BLOCK = ("centres", "scales", "landmarks")


def pack(featuriser: Featuriser) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors by name, and what goes into JSON beside them."""
    kernel = featuriser.kernel
    arrays = {
        f"kernel.{name}.{i}": a for name in BLOCK for i, a in enumerate(getattr(kernel, name))
    }
    arrays["kernel.whitening"] = kernel.whitening
    for part in ("hints", "components"):
        arrays |= {f"{part}.{name}": getattr(getattr(featuriser, part), name) for name in RIDGE}
    keys = np.frombuffer(b"".join(featuriser.places), np.uint8).reshape(-1, KEY_BYTES)
    arrays |= {
        "training_texts": keys,
        "training_places": np.array(list(featuriser.places.values()), dtype=np.int64),
        "seen_hints": featuriser.seen_hints,
        "dataset_features": featuriser.dataset_features,
    }
    values = {
        "backbone": featuriser.backbone,
        "slope": featuriser.slope,
        "mean": featuriser.mean,
        "landmark_datasets": list(kernel.landmark_datasets),
        "datasets": list(featuriser.dataset_rows),
    }
    return {name: torch.tensor(array).contiguous() for name, array in arrays.items()}, values


def unpack(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> Featuriser:
    """What `pack` took apart. KeyError, TypeError or ValueError if something is missing."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    blocks = sum(name.startswith("kernel.centres.") for name in arrays)
    centres, scales, landmarks = (
        tuple(arrays[f"kernel.{name}.{i}"] for i in range(blocks)) for name in BLOCK
    )
    datasets = tuple(map(str, values["landmark_datasets"]))
    kernel = TextKernel(centres, scales, landmarks, datasets, arrays["kernel.whitening"])
    hints, components = (
        _Ridge(*(arrays[f"{part}.{name}"] for name in RIDGE)) for part in ("hints", "components")
    )
    keys = map(bytes, arrays["training_texts"])
    places = dict(zip(keys, arrays["training_places"].tolist(), strict=True))
    return Featuriser(
        str(values["backbone"]),
        kernel,
        hints,
        components,
        float(values["slope"]),
        float(values["mean"]),
        places,
        arrays["seen_hints"],
        {str(name): i for i, name in enumerate(values["datasets"])},
        arrays["dataset_features"],
    )
