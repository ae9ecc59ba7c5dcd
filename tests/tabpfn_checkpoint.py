"""Small TabPFN classifiers with random weights, in the file format that tabpfn publishes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

SMALL: dict[str, dict[str, Any]] = {
    "v2": {"emsize": 24, "nlayers": 3, "nhead": 2, "features_per_group": 2},
    "v2.5": {
        "emsize": 24,
        "nlayers": 3,
        "nhead": 2,
        "features_per_group": 3,
        "num_thinking_rows": 4,
    },
}


def save_checkpoint(path: Path, version: str = "v2.5", *, seed: int = 0, **config: Any) -> Path:
    """Writes a classifier of the architecture `version`; config values other than SMALL's by name.

    A new TabPFN has zeros where its layers and outputs end: it answers one half, without gradient.
    So every weight is drawn anew, at a scale that keeps the signal through the layers.
    """
    from tabpfn.architectures import ARCHITECTURES

    architecture = ARCHITECTURES[{"v2": "tabpfn_v2", "v2.5": "tabpfn_v2_5"}[version]]
    parsed, unused = architecture.parse_config({**SMALL[version], **config, "max_num_classes": 10})
    assert not unused
    model = architecture.get_architecture(parsed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = parameter.shape[-1]
            parameter.normal_(std=1.5 * fan_in**-0.5, generator=generator)
    checkpoint = {"state_dict": model.state_dict(), "config": asdict(parsed)}
    if version != "v2":  # as published: v2 files do not name their architecture, 2.5 says "base"
        checkpoint["architecture_name"] = "base"
    torch.save(checkpoint, path)
    return path
