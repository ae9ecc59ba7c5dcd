"""Pre-training of a head on the synthetic prior: resumable, and the same bits for the same seed.

Batch t is drawn from a generator seeded by (seed, t), so a run that is killed and resumed sees what
it would have seen. The folder of a run holds

    config.json, model.safetensors   the head as of the last validation (`heads.saved`)
    log.jsonl                        training loss, and validation beside its references
    resume.safetensors               all that is needed to go on
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits
from tqdm import tqdm

from v0_bench.errors import V0BenchError
from v0_bench.files import atomic_file
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
VALIDATION_CONTEXTS = CONTEXTS[:-1]
VALIDATION_SEED = 2**40
WARM_UP = 0.05  # share of the steps
LEARNING_RATES = {"gp": 0.02, "icl": 1e-3}


@dataclass(frozen=True)
class Run:
    """What decides the outcome of a pre-training run."""

    head: str
    steps: int
    seed: int = 0
    gp: str | None = None
    """Folder of the Gaussian process that an `icl` head builds on; None for the packaged one."""


def pretrain(
    run: Run,
    output: Path,
    device: str = "cpu",
    validate_every: int = 250,
    validation_episodes: int = 32,
    save_every: int = 20,
) -> Head:
    """Trains a head on the prior, continuing the run in `output` if there is one.

    Every `save_every` steps the log gets a line and the run can be resumed from there. Validation:
    `validation_episodes` episodes of each of several context sizes. Raises V0BenchError if `output`
    holds something else, the device is not there, or a setting makes no sense.
    """
    settings = {
        "steps": run.steps,
        "validate_every": validate_every,
        "validation_episodes": validation_episodes,
        "save_every": save_every,
    }
    for name, value in settings.items():
        if value < 1:
            raise V0BenchError(f"{name} must be at least 1, not {value}")
    trainer = _Trainer(run, _available(device))
    done = trainer.resume(output)
    log = _Log(output / "log.jsonl", done)
    validation = _Validation(validation_episodes, trainer.device)
    if not log.references:
        log.add(step=0, references=validation.references(trainer.head))
    bar = tqdm(range(done, run.steps), f"pretrain {run.head}", run.steps, initial=done, delay=3)
    for step in bar:
        loss, done = trainer.step(step), step + 1
        last = done == run.steps
        if last or done % save_every == 0:
            log.add(step=done, loss=loss, rate=trainer.learning_rate(step))
        if last or done % validate_every == 0:
            scores = validation.score(trainer.head)
            log.add(step=done, validation=scores)
            facts = {"run": asdict(run), "step": done, "validation": scores}
            save_head(trainer.head, output, facts | {"references": log.references})
        if last or done % save_every == 0:
            trainer.save(output, done)
    return trainer.head.eval()


def training_batch(seed: int, step: int) -> Episodes:
    """Batch number `step` of a run; the larger its contexts, the fewer its episodes."""
    generator = torch.Generator().manual_seed(seed * 2**24 + step)
    kind = int(torch.multinomial(torch.tensor(CONTEXT_WEIGHTS), 1, generator=generator))
    context = CONTEXTS[kind]
    return draw(generator, min(EPISODES, ITEMS // (context + QUERIES)), context, QUERIES)


class _Trainer:
    """A head with its optimiser."""

    def __init__(self, run: Run, device: torch.device) -> None:
        torch.manual_seed(run.seed)
        self.run, self.device = run, device
        self.head = new_head(run.head)
        if isinstance(self.head, ICLHead):
            self.head.gp = _gaussian_process(Path(run.gp or WEIGHTS / "head-gp"), self.head)
        self.head.to(device)
        self.trained = {n: p for n, p in self.head.named_parameters() if p.requires_grad}
        matrices = [p for p in self.trained.values() if p.ndim > 1]
        vectors = [p for p in self.trained.values() if p.ndim <= 1]
        groups: list[dict[str, Any]] = [
            {"params": matrices, "weight_decay": 0.01},
            {"params": vectors},
        ]
        self.optimizer = torch.optim.AdamW(groups, weight_decay=0.0, betas=(0.9, 0.98))

    def step(self, step: int) -> float:
        """One step on batch number `step`; returns its loss."""
        self.head.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate(step)
        batch = training_batch(self.run.seed, step).to(self.device)
        loss = binary_cross_entropy_with_logits(_logits(self.head, batch), batch.values)
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
        with atomic_file(output / "resume.safetensors") as path:
            save_file(tensors, path, {"run": json.dumps(asdict(self.run)), "step": str(done)})

    def resume(self, output: Path) -> int:
        """Loads what `save` wrote, if it did; returns the number of steps done."""
        from safetensors import SafetensorError, safe_open

        path = output / "resume.safetensors"
        if not path.exists():
            if (output / "config.json").exists():
                raise V0BenchError(f"{output} holds a head already; choose another folder")
            return 0
        try:
            with safe_open(path, "pt", device=str(self.device)) as file:
                facts = file.metadata()
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            run, step = json.loads(facts["run"]), int(facts["step"])
        except (OSError, LookupError, TypeError, ValueError, SafetensorError) as error:
            raise V0BenchError(f"cannot resume from {path}: {error}") from error
        if run != asdict(self.run):
            raise V0BenchError(
                f"{output} holds another run ({run}); repeat its settings to continue it, or "
                f"choose another folder"
            )
        self.head.load_state_dict(
            {n.removeprefix("head."): t for n, t in tensors.items() if n.startswith("head.")}
        )
        for name, parameter in self.trained.items():
            self.optimizer.state[parameter] = {
                # AdamW counts its steps on the CPU
                key: tensors[f"adam.{key}.{name}"].to("cpu" if key == "step" else self.device)
                for key in ("step", "exp_avg", "exp_avg_sq")
            }
        return step


class _Validation:
    """Episodes of the prior, the same for every run."""

    def __init__(self, episodes: int, device: torch.device) -> None:
        self.batches = {
            context: draw(
                torch.Generator().manual_seed(VALIDATION_SEED + context), episodes, context, QUERIES
            ).to(device)
            for context in VALIDATION_CONTEXTS
        }

    def score(self, head: Head) -> dict[str, Any]:
        """Soft cross entropy of a head in nats, and its excess over the values' own entropy."""
        head.eval()
        with torch.no_grad():
            return self._scores({n: _logits(head, batch) for n, batch in self.batches.items()})

    def references(self, head: Head) -> dict[str, Any]:
        """The same scores of what `head` must beat."""
        batches = tqdm(self.batches.items(), "references", delay=3)
        scores = {
            "context-mean": self._scores({n: context_mean(b) for n, b in self.batches.items()}),
            "logistic": self._scores({n: logistic(b) for n, b in batches}),
        }
        return scores | ({"gp": self.score(head.gp)} if isinstance(head, ICLHead) else {})

    def _scores(self, logits: dict[int, Tensor]) -> dict[str, Any]:
        losses, excesses = {}, {}
        for context, batch in self.batches.items():
            loss = binary_cross_entropy_with_logits(logits[context], batch.values)
            exact = torch.logit(batch.values, 1e-7)
            entropy = binary_cross_entropy_with_logits(exact, batch.values)
            losses[str(context)], excesses[str(context)] = float(loss), float(loss - entropy)
        return {
            "loss": sum(losses.values()) / len(losses),
            "excess": sum(excesses.values()) / len(excesses),
            "excess_by_context": excesses,
        }


class _Log:
    """Lines of JSON; those after the step a run resumes from are dropped, to be written again."""

    def __init__(self, path: Path, done: int) -> None:
        self.path, self.start = path, time.monotonic()
        lines = path.read_text().splitlines() if path.exists() and done else []
        # a line cut short by a kill is one of the last, after `done`
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        rows = [row for row in rows if row["step"] <= done]
        self.references = rows[0]["references"] if rows else None
        with atomic_file(path) as temporary:
            temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def add(self, **row: Any) -> None:
        """One line, with the seconds since this process began."""
        self.references = row.get("references", self.references)
        row["seconds"] = round(time.monotonic() - self.start, 1)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")


def _logits(head: Head, batch: Episodes) -> Tensor:
    return head(batch.features, batch.labels, batch.counts, batch.mask, batch.queries)


def _gaussian_process(folder: Path, head: ICLHead) -> GPHead:
    """The trained Gaussian process an `icl` head builds on, frozen."""
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
