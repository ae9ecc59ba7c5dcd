"""Which checkpoints a path holds, and what their files tell without loading a model."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers.lm_eval_files import checkpoint_of

PIECES = 32  # of each file that the fingerprint reads
PIECE_BYTES = 1 << 16
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
LONGEST_HEADER = 100_000_000  # bytes; the limit of safetensors itself


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint: `path` is a folder, or a model's name on the hub."""

    policy: str
    step: int | None
    path: str

    @property
    def name(self) -> str:
        """Policy and step as a relative path: NAME/step_12, or NAME."""
        policy = self.policy.replace("/", "__")
        return policy if self.step is None else f"{policy}/step_{self.step}"


def find_checkpoints(folder: Path, policy: str | None = None) -> list[Checkpoint]:
    """The checkpoints in `folder`, by policy and step.

    `folder` is itself a checkpoint, or holds `step_N` folders (of the policy `policy`, by default
    the folder's name), or holds such folders under one folder a policy, or finished models. A
    `step_N` folder counts whatever it holds. Raises V0BenchError where there is none.
    """
    if not folder.is_dir():
        raise V0BenchError(f"{folder} does not exist or is not a folder")
    folder, place = folder.absolute(), folder.resolve()
    named, step = checkpoint_of(place.as_posix())
    if step is not None or _is_model(folder):
        return [Checkpoint(policy or named, step, str(folder))]
    found = _steps(folder, policy or place.name)
    if not found and policy is None:
        for child in sorted(child for child in folder.iterdir() if child.is_dir()):
            model = [Checkpoint(child.name, None, str(child))] if _is_model(child) else []
            found += model or _steps(child, child.name)
    if not found:
        raise V0BenchError(
            f"{folder} holds no checkpoint: neither config.json nor folders named step_N, "
            "checkpoint-N, NAME/step_N"
        )
    return found


def check_distinct(checkpoints: Iterable[Checkpoint]) -> None:
    """Raises V0BenchError where two paths would be the same step of the same policy."""
    seen: dict[str, str] = {}
    for checkpoint in checkpoints:
        other = seen.setdefault(checkpoint.name, checkpoint.path)
        if other != checkpoint.path:
            raise V0BenchError(
                f"{other} and {checkpoint.path} would both be {checkpoint.name}: name the policies "
                "apart in a plan (docs/rollouts.md)"
            )


def check_complete(path: str) -> None:
    """Raises V0BenchError where `path` is a folder that lacks what a model needs, or is absent.

    A name on the hub (at most one slash) passes: whoever loads it asks the hub.
    """
    folder = Path(path)
    if not folder.is_dir():
        if folder.is_absolute() or len(folder.parts) > 2:
            raise V0BenchError(f"{path} does not exist or is not a folder")
        return
    if not _is_model(folder):
        raise V0BenchError(f"{path} is not a checkpoint: it has no config.json")
    if not any(file.suffix in WEIGHTS for file in folder.iterdir()):
        raise V0BenchError(
            f"{path} has no weights ({', '.join(WEIGHTS)}): was the checkpoint saved to the end?"
        )


def fingerprint(path: str) -> str:
    """What tells the model at `path` from any other: a hash of samples of all its files.

    Of each file the name, the size and up to 32 evenly spaced pieces of 64 KiB are read: enough
    to notice a retrained model, and quick for a large one. A name on the hub stands for itself.
    """
    folder = Path(path)
    if not folder.is_dir():
        return path
    digest = hashlib.sha256()
    for file in sorted(file for file in folder.iterdir() if file.is_file()):
        size = file.stat().st_size
        digest.update(f"{file.name}\0{size}\0".encode())
        stride = max(PIECE_BYTES, size // PIECES)
        with file.open("rb") as data:
            for start in range(0, size, stride):
                data.seek(start)
                digest.update(data.read(PIECE_BYTES))
    return digest.hexdigest()


def params_b(path: str) -> float | None:
    """Billions of parameters in the safetensors files of a folder; None where that is not told."""
    try:
        files = sorted(Path(path).glob("*.safetensors"))
        return sum(map(_count_parameters, files)) / 1e9 if files else None
    except (OSError, ValueError):
        return None


def _count_parameters(file: Path) -> int:
    with file.open("rb") as data:
        length = int.from_bytes(data.read(8), "little")
        if length > LONGEST_HEADER:
            raise ValueError("not a safetensors file")
        header = json.loads(data.read(length))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name[:2] != "__")


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _steps(folder: Path, policy: str) -> list[Checkpoint]:
    steps = ((checkpoint_of(f"x/{child.name}")[1], child) for child in folder.iterdir())
    found = [
        Checkpoint(policy, step, str(child))
        for step, child in steps
        if step is not None and child.is_dir()
    ]
    return sorted(found, key=lambda checkpoint: checkpoint.step or 0)
