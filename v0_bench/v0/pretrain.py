"""Pre-training of a head on the synthetic prior: resumable, and the same bits for the same seed.

Batch t is drawn from a generator seeded by (seed, t), so a run that is killed and resumed sees what
it would have seen. The folder of a run holds

    config.json, model.safetensors   the head as of the last validation (`heads.saved`)
    log.jsonl                        training loss, and validation beside its references
    resume/                          all that is needed to go on; deleted at the end
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from v0_bench.errors import V0BenchError
from v0_bench.files import atomic_file, atomic_folder
from v0_bench.v0.heads.base import Head
from v0_bench.v0.heads.gp import GPHead
from v0_bench.v0.heads.icl import ICLHead
from v0_bench.v0.heads.saved import WEIGHTS, load_head, new_head, save_head
from v0_bench.v0.prior import Episodes, draw
from v0_bench.v0.references import context_mean, logistic

QUERIES = 64
CONTEXTS = (8, 32, 64, 128, 256, 512, 1024)
CONTEXT_WEIGHTS = (0.04, 0.16, 0.2, 0.2, 0.25, 0.12, 0.03)
EPISODES = 16
ITEMS = EPISODES * (256 + QUERIES)  # the most in one batch: larger contexts, fewer episodes
VALIDATION_SEED = 2**40
WARM_UP = 0.05  # share of the steps
LEARNING_RATES = {"gp": 0.02, "icl": 1e-3}
LOG_EVERY = 20


@dataclass(frozen=True)
class Run:
    """What decides the outcome of a pre-training run."""

    head: str
    steps: int
    seed: int = 0
    start: str | None = None
    """Folder of the Gaussian process inside an `icl` head; None for the packaged one."""


def pretrain(run: Run, output: Path, device: str = "cpu", validate_every: int = 250) -> Head:
    """Trains a head on the prior, continuing the run in `output` if there is one.

    Raises V0BenchError if `output` holds another run, or the device is not there.
    """
    from tqdm import tqdm

    if run.steps < 1:
        raise V0BenchError(f"steps must be at least 1, not {run.steps}")
    place = _available(device)
    trainer = _Trainer(run, place)
    done = trainer.resume(output)
    validation = list(_validation_set(place))
    references = _references(validation)
    log = _Log(output / "log.jsonl", done)
    if done == 0:
        log.add(step=0, references=references)
    for step in tqdm(range(done, run.steps), desc=run.head, initial=done, total=run.steps):
        loss = trainer.step(step)
        if (step + 1) % LOG_EVERY == 0 or step + 1 == run.steps:
            log.add(step=step + 1, loss=loss, rate=trainer.learning_rate(step))
        if (step + 1) % validate_every == 0 or step + 1 == run.steps:
            scores = validate(trainer.head, validation)
            log.add(step=step + 1, validation=scores)
            facts = {"run": asdict(run), "step": step + 1, "validation": scores}
            save_head(trainer.head, output, facts | {"references": references})
            trainer.save(output, step + 1)
    return trainer.head.eval()


class _Trainer:
    """A head with its optimiser."""

    def __init__(self, run: Run, device: torch.device) -> None:
        torch.manual_seed(run.seed)
        self.run, self.device = run, device
        self.head = new_head(run.head)
        if isinstance(self.head, ICLHead):
            self.head.gp = _gaussian_process(Path(run.start or WEIGHTS / "head-gp"), self.head)
        self.head.to(device)
        self.trained = {n: p for n, p in self.head.named_parameters() if p.requires_grad}
        matrices = [p for p in self.trained.values() if p.ndim > 1]
        vectors = [p for p in self.trained.values() if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors}]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0, betas=(0.9, 0.98))

    def step(self, step: int) -> float:
        """One step on batch number `step`; returns its loss."""
        self.head.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        batch = training_batch(self.run.seed, step).to(self.device)
        loss = soft_cross_entropy(_logits(self.head, batch), batch.values)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.trained.values(), 1.0)
        self.optimizer.step()
        return float(loss.detach())

    def learning_rate(self, step: int) -> float:
        """Linear warm-up, then a cosine to a hundredth."""
        warm_up = max(1, round(WARM_UP * self.run.steps))
        if step < warm_up:
            factor = (step + 1) / warm_up
        else:
            progress = (step - warm_up) / max(1, self.run.steps - warm_up)
            factor = 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * progress))
        return LEARNING_RATES[self.run.head] * factor

    def save(self, output: Path, done: int) -> None:
        """Writes what `resume` reads."""
        from safetensors.torch import save_file

        tensors = {f"head.{name}": t.contiguous() for name, t in self.head.state_dict().items()}
        for name, parameter in self.trained.items():
            for key, value in self.optimizer.state[parameter].items():
                tensors[f"adam.{key}.{name}"] = value.contiguous()
        with atomic_folder(output / "resume", overwrite=True) as folder:
            save_file(tensors, folder / "state.safetensors")
            (folder / "state.json").write_text(json.dumps({"run": asdict(self.run), "step": done}))

    def resume(self, output: Path) -> int:
        """Loads what `save` wrote, if it did; returns the number of steps done."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if not (output / "resume").is_dir():
            if (output / "config.json").exists():
                raise V0BenchError(f"{output} holds a head already; choose another folder")
            return 0
        try:
            facts = json.loads((output / "resume" / "state.json").read_text())
            tensors = load_file(output / "resume" / "state.safetensors", device=str(self.device))
        except (OSError, ValueError, SafetensorError) as error:
            raise V0BenchError(f"cannot resume from {output / 'resume'}: {error}") from error
        if facts["run"] != asdict(self.run):
            raise V0BenchError(
                f"{output} holds another run ({facts['run']}); repeat its settings to continue it, "
                f"or choose another folder"
            )
        self.head.load_state_dict(
            {n.removeprefix("head."): t for n, t in tensors.items() if n.startswith("head.")}
        )
        for name, parameter in self.trained.items():
            self.optimizer.state[parameter] = {
                key: tensors[f"adam.{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq")
            }
        return int(facts["step"])


def training_batch(seed: int, step: int) -> Episodes:
    """Batch number `step` of a run; the larger its contexts, the fewer its episodes."""
    generator = torch.Generator().manual_seed(seed * 2**24 + step)
    kind = int(torch.multinomial(torch.tensor(CONTEXT_WEIGHTS), 1, generator=generator))
    return _batch(generator, CONTEXTS[kind])


def soft_cross_entropy(logits: Tensor, values: Tensor) -> Tensor:
    """Mean cross entropy of predicted logits against true values, in nats."""
    return binary_cross_entropy_with_logits(logits, values)


def validate(head: Head, batches: list[Episodes]) -> dict[str, Any]:
    """Soft cross entropy of a head on episodes, and its excess over the values' own entropy."""
    head.eval()
    with torch.no_grad():
        return _scores([_logits(head, batch) for batch in batches], batches)


def _scores(logits: list[Tensor], batches: list[Episodes]) -> dict[str, Any]:
    losses, entropies = [], []
    for batch_logits, batch in zip(logits, batches, strict=True):
        losses.append(float(soft_cross_entropy(batch_logits, batch.values)))
        entropies.append(float(soft_cross_entropy(torch.logit(batch.values, 1e-7), batch.values)))
    excesses = [loss - entropy for loss, entropy in zip(losses, entropies, strict=True)]
    sizes = [str(batch.mask.shape[1]) for batch in batches]
    return {
        "loss": sum(losses) / len(losses),
        "excess": sum(excesses) / len(excesses),
        "excess_by_context": dict(zip(sizes, excesses, strict=True)),
    }


def _references(batches: list[Episodes]) -> dict[str, Any]:
    return {
        "context-mean": _scores([context_mean(batch) for batch in batches], batches),
        "logistic": _scores([logistic(batch) for batch in batches], batches),
    }


def _validation_set(device: torch.device) -> Iterator[Episodes]:
    for context in CONTEXTS[:-1]:
        generator = torch.Generator().manual_seed(VALIDATION_SEED + context)
        yield _batch(generator, context).to(device)


def _batch(generator: torch.Generator, context: int) -> Episodes:
    return draw(generator, min(EPISODES, ITEMS // (context + QUERIES)), context, QUERIES)


def _logits(head: Head, batch: Episodes) -> Tensor:
    return head(batch.features, batch.labels, batch.counts, batch.mask, batch.queries)


def _gaussian_process(folder: Path, head: ICLHead) -> GPHead:
    """The trained Gaussian process an `icl` head starts from, frozen."""
    trained = load_head(folder)
    if not isinstance(trained, GPHead) or trained.config != head.gp.config:
        raise V0BenchError(f"{folder} holds no Gaussian process of sizes {head.gp.config}")
    return trained.requires_grad_(False)


def _available(device: str) -> torch.device:
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise V0BenchError(f"device {device!r} is not there: {error}") from error
    return torch.device(device)


class _Log:
    """Lines of JSON; those after the step a run resumes from are dropped, to be written again."""

    def __init__(self, path: Path, done: int) -> None:
        self.path, self.start = path, time.monotonic()
        rows = [json.loads(line) for line in path.open()] if path.exists() and done else []
        with atomic_file(path) as temporary:
            kept = [json.dumps(row) + "\n" for row in rows if row["step"] <= done]
            temporary.write_text("".join(kept))

    def add(self, **row: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(row | {"seconds": round(time.monotonic() - self.start, 1)}) + "\n")
