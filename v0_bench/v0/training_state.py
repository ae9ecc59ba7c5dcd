"""Where a training run stands, in memory and on disk: a killed run goes on with the same losses.

log.jsonl                        loss of every step, and validations
resume/state.safetensors, .json  weights, optimiser, best weights so far; gone at the end
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from v0_bench.episode import TrainingOutcomes
from v0_bench.errors import V0BenchError
from v0_bench.files import atomic_file, atomic_folder
from v0_bench.v0.processes import Processes

ADAM = ("step", "exp_avg", "exp_avg_sq")


class TrainingState:
    """Steps done, the best validation loss with its weights, and what `resume/` held."""

    def __init__(self, output: Path | None, identity: dict[str, Any], main: bool) -> None:
        self.output, self.identity, self.main = output, identity, main
        self.step = 0
        self.waited = 0
        """Validations since the best."""
        self.best: float | None = None
        self._best_weights: dict[str, Tensor] = {}
        self._loaded: dict[str, Tensor] = {}
        self._trained: Mapping[str, torch.nn.Parameter] = {}
        self._optimizer: torch.optim.Optimizer | None = None

    @classmethod
    def open(cls, output: Path | None, identity: dict[str, Any], processes: Processes) -> Self:
        """The state in a folder, or a new one; V0BenchError if the folder holds another run."""
        state = cls(output, identity, processes.main)
        if output is not None and (output / "resume").is_dir():
            state._load(output / "resume", processes.device)
        processes.wait()  # nobody writes before everybody has read
        return state

    def attach(
        self, trained: Mapping[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> None:
        """Says which weights and optimiser this is the state of, and loads what was saved."""
        self._trained, self._optimizer = trained, optimizer
        _copy(self._loaded, "weight.", trained)
        for name, parameter in trained.items():
            if f"adam.step.{name}" in self._loaded:
                optimizer.state[parameter] = {
                    key: self._loaded[f"adam.{key}.{name}"] for key in ADAM
                }
        self._best_weights = {
            name: self._loaded[f"best.{name}"] for name in trained if f"best.{name}" in self._loaded
        }
        self._loaded = {}

    def note(self, loss: float) -> None:
        """Takes in a validation loss."""
        if self.best is None or loss < self.best:
            self.best, self.waited = loss, 0
            self._best_weights = {n: t.detach().clone() for n, t in self._trained.items()}
        else:
            self.waited += 1

    def restore_best(self) -> None:
        """Gives the weights of the best validation back, if there was one."""
        _copy({f"best.{n}": t for n, t in self._best_weights.items()}, "best.", self._trained)

    def save(self) -> None:
        """Writes `resume/`, entirely or not at all."""
        if self.output is None or not self.main or self._optimizer is None:
            return
        from safetensors.torch import save_file

        tensors = {f"weight.{n}": t.detach() for n, t in self._trained.items()}
        tensors |= {f"best.{n}": t for n, t in self._best_weights.items()}
        for name, parameter in self._trained.items():
            moments = self._optimizer.state.get(parameter, {})
            tensors |= {f"adam.{key}.{name}": value for key, value in moments.items()}
        facts = {
            "identity": self.identity,
            "step": self.step,
            "waited": self.waited,
            "best": self.best,
        }
        with atomic_folder(self.output / "resume", overwrite=True) as folder:
            save_file({n: t.contiguous() for n, t in tensors.items()}, folder / "state.safetensors")
            (folder / "state.json").write_text(json.dumps(facts))

    def log(self, tensorboard: bool) -> Log:
        """The log, cut back to the steps that this state knows."""
        return Log(self.output if self.main else None, self.step, tensorboard)

    def _load(self, folder: Path, device: str) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            facts = json.loads((folder / "state.json").read_text())
            self._loaded = load_file(folder / "state.safetensors", device=device)
            identity = facts["identity"]
            self.step, self.waited, self.best = facts["step"], facts["waited"], facts["best"]
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise V0BenchError(f"cannot resume from {folder}: {error!r}") from error
        if identity != self.identity:
            raise V0BenchError(
                f"{folder.parent} holds another training run (other data, settings or seed): "
                f"repeat them to continue it, or choose another folder"
            )


class Log:
    """Lines of JSON, and TensorBoard where it is wanted."""

    def __init__(self, folder: Path | None, done: int, tensorboard: bool) -> None:
        self._path = folder / "log.jsonl" if folder is not None else None
        self._writer = _tensorboard(folder) if tensorboard and folder is not None else None
        self._start = time.monotonic()
        if self._path is not None:
            rows = self._path.read_text().splitlines() if self._path.exists() and done else []
            with atomic_file(self._path) as temporary:
                kept = [row + "\n" for row in rows if json.loads(row)["step"] <= done]
                temporary.write_text("".join(kept))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, step: int, **values: float) -> None:
        """One line."""
        if self._path is not None:
            row = {"step": step, **values, "seconds": round(time.monotonic() - self._start, 1)}
            with self._path.open("a") as file:
                file.write(json.dumps(row) + "\n")
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)


def finish(output: Path) -> None:
    """Removes what only an unfinished run needs."""
    shutil.rmtree(output / "resume", ignore_errors=True)


def data_digest(train: TrainingOutcomes) -> str:
    """SHA-256 of training outcomes."""
    digest = hashlib.sha256()
    for texts in (train.queries.texts, train.queries.query_ids, train.queries.datasets):
        digest.update(json.dumps(texts).encode())
    digest.update(json.dumps([[c.policy, c.step, c.family] for c in train.checkpoints]).encode())
    for column in (
        train.query_index,
        train.checkpoint_index,
        train.success_rates,
        train.n_rollouts,
    ):
        digest.update(np.asarray(column, dtype=float).tobytes())
    return digest.hexdigest()


def _copy(source: Mapping[str, Tensor], prefix: str, trained: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, parameter in trained.items():
            if prefix + name in source:
                parameter.copy_(source[prefix + name])


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise V0BenchError("--tensorboard needs tensorboard: pip install tensorboard") from error
    return SummaryWriter(str(folder / "tensorboard"))
