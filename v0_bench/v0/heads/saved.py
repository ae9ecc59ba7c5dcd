"""Heads on disk: a folder with config.json (kind and sizes) and model.safetensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from v0_bench.errors import V0BenchError
from v0_bench.files import atomic_file
from v0_bench.nearest import unknown_name
from v0_bench.v0.heads.base import Head
from v0_bench.v0.heads.gp import GPHead
from v0_bench.v0.heads.icl import ICLHead

WEIGHTS = Path(__file__).resolve().parents[1] / "weights"
"""Folder of the weights that come with the package."""
KINDS: dict[str, type[GPHead] | type[ICLHead]] = {"gp": GPHead, "icl": ICLHead}


def new_head(kind: str, sizes: dict[str, Any] | None = None) -> GPHead | ICLHead:
    """An untrained head, "gp" or "icl"; V0BenchError for another kind or unknown sizes."""
    if kind not in KINDS:
        raise V0BenchError(unknown_name("head", kind, KINDS))
    try:
        return KINDS[kind](**(sizes or {}))
    except TypeError as error:
        raise V0BenchError(f"sizes of head {kind!r}: {error}") from error


def save_head(head: GPHead | ICLHead, folder: Path, facts: dict[str, Any] | None = None) -> None:
    """Writes a head; `facts` about its making go into config.json beside kind and sizes."""
    from safetensors.torch import save_file

    kind = next(kind for kind, cls in KINDS.items() if type(head) is cls)
    config = {"head": kind, "sizes": head.config, **(facts or {})}
    with atomic_file(folder / "model.safetensors") as path:
        save_file({name: t.contiguous() for name, t in head.state_dict().items()}, path)
    with atomic_file(folder / "config.json") as path:
        path.write_text(json.dumps(config, indent=1) + "\n")


def load_head(folder: str | Path) -> Head:
    """The head in a folder, in `eval` mode, on the CPU; V0BenchError if it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    try:
        config = json.loads((folder / "config.json").read_text())
        tensors = load_file(folder / "model.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise V0BenchError(
            f"{folder} holds no head (config.json and model.safetensors): {error}"
        ) from error
    if not isinstance(config, dict) or not isinstance(config.get("sizes"), dict):
        raise V0BenchError(f"{folder / 'config.json'} lacks the kind or the sizes of a head")
    head = new_head(str(config.get("head")), config["sizes"])
    try:
        head.load_state_dict(tensors)
    except RuntimeError as error:
        raise V0BenchError(
            f"the weights in {folder} do not fit its config.json: {error}"
        ) from error
    return head.eval()


def packaged_head(kind: str) -> Head:
    """The head "gp" or "icl" that comes with the package, pre-trained on the synthetic prior."""
    if kind not in KINDS:
        raise V0BenchError(unknown_name("head", kind, KINDS))
    return load_head(WEIGHTS / f"head-{kind}")
