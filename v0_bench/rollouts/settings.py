"""How to sample: what is the same for every checkpoint of a run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# backends whose engine does not give a GPU's memory back: each checkpoint gets a new process
ENGINES = ("vllm", "v0-vllm")


@dataclass(frozen=True)
class Settings:
    """Options of a run; all but `tasks` have defaults.

    `chunk` is the number of queries between two writes to the journal, `batch_size` lm-eval's
    (rollouts for `v0-hf`); None leaves either to the backend.
    """

    tasks: tuple[str, ...]
    backend: str = "v0-hf"
    model_args: dict[str, Any] = field(default_factory=dict)
    gen_kwargs: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    limit: int | None = None
    seed: int = 0
    chat_template: bool = True
    batch_size: str | None = None
    chunk: int | None = None
    device: str | None = None

    @property
    def queries_a_chunk(self) -> int:
        """Engines fill their batches from one chunk, so theirs are larger."""
        return self.chunk or (512 if self.backend in ENGINES else 64)

    @property
    def rollouts_a_batch(self) -> str:
        """The batch size handed to lm-eval."""
        default = {"v0-hf": "320", "hf": "64"}.get(self.backend, "auto")
        return self.batch_size or default

    def model_key(self, fingerprint: str) -> str:
        """What tells the rollouts of this model from any other's, prompt and options aside."""
        return _digest([fingerprint, self.backend, self.model_args, self.seed])


@dataclass(frozen=True)
class Output:
    """The folder of a run, and what lies where in it."""

    folder: Path

    def journal(self, checkpoint: str) -> Path:
        """The journal of a checkpoint, given its name."""
        return self.folder / "journal" / f"{checkpoint}.jsonl"

    def results(self, checkpoint: str, task: str) -> Path:
        """The folder of lm-eval's files for a checkpoint and a task."""
        return self.samples / checkpoint / task

    @property
    def samples(self) -> Path:
        """lm-eval's files of all checkpoints, ready for `v0-bench pool import`."""
        return self.folder / "lm-eval"

    @property
    def pool(self) -> Path:
        """The pool made of all that is finished."""
        return self.folder / "pool"

    @property
    def log(self) -> Path:
        """What workers printed, and the tracebacks of failures."""
        return self.folder / "rollouts.log"


def unit_key(model_key: str, settings: Settings, task: dict[str, Any], docs: list[Any]) -> str:
    """What a finished task of a checkpoint depends on; a change of any of it runs it again."""
    return _digest([model_key, settings.limit, settings.chat_template, task, docs])


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
