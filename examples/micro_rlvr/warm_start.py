"""Supervised warm start: a policy learns from demonstrations of which many are wrong.

What comes out is a policy that often knows the right answer but spreads its probability over near
misses too, as a base model does; reinforcement learning then has something to sharpen.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from random import Random

import torch
from policies import TEACHING, Teaching, make_policy, make_tokenizer
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from v0_bench.files import atomic_folder
from v0_bench.micro import FAMILIES, LEVELS, Problem, draw

BATCH = 96
SORTED_TOGETHER = 16  # batches drawn at once, then made of problems of like length
MUON_RATE, ADAM_RATE = 0.012, 3e-3  # matrices; embeddings and norms
WARM_UP, DECAY_SHARE = 30, 0.4  # steps; of all steps, at the end
CLEAN_SHARE = 0.65  # of the steps, at first, show right answers only
LEVEL_WEIGHTS = (3, 3, 2, 2, 2)
RARE_WEIGHT = 0.15


def warm_start(name: str, folder: Path, steps: int | None = None) -> None:
    """Train the policy `name` from nothing and save it as `folder`/step_0."""
    teaching = TEACHING[name]
    torch.manual_seed(teaching.seed)
    tokenizer = make_tokenizer()
    model = make_policy(name, tokenizer)
    steps = steps or teaching.steps
    optimisers = make_optimisers(model)
    schedules = [
        torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: pace(step, steps))
        for optimiser in optimisers
    ]
    demonstrations = Demonstrations(teaching)
    model.train()
    bar = tqdm(
        range(steps),
        desc=f"{name}: warm start",
        unit="step",
        position=int(os.environ.get("BAR", "0")),
    )
    batches: list[dict[str, torch.Tensor]] = []
    for step in bar:
        if not batches:
            batches = make_batches(demonstrations, tokenizer, clean=step < CLEAN_SHARE * steps)
        loss = model(**batches.pop()).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser, schedule in zip(optimisers, schedules, strict=True):
            optimiser.step()
            schedule.step()
            optimiser.zero_grad()
        if step % 50 == 0:
            bar.set_postfix(loss=f"{loss.item():.3f}")
    with atomic_folder(folder / "step_0", overwrite=True) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)


def make_optimisers(model: PreTrainedModel) -> list[torch.optim.Optimizer]:
    """Muon, which learns arithmetic in half the steps, for the matrices; AdamW for the rest."""
    matrices, rest = [], []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and "embed" not in name
        (matrices if is_matrix else rest).append(parameter)
    muon = torch.optim.Muon(
        matrices, lr=MUON_RATE, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"
    )
    return [muon, torch.optim.AdamW(rest, lr=ADAM_RATE)]


def pace(step: int, steps: int) -> float:
    """The share of the learning rate at a step: up, level, then down to 2 %."""
    left = (steps - step) / (DECAY_SHARE * steps)
    return min(1.0, (step + 1) / WARM_UP, max(left, 0.02))


class Demonstrations:
    """An endless stream of training problems with the answers that the policy is shown."""

    def __init__(self, teaching: Teaching) -> None:
        self.rng = Random(teaching.seed)
        self.drop = teaching.drop
        self.families = list(FAMILIES)
        self.weights = [RARE_WEIGHT if name in teaching.rare else 1.0 for name in FAMILIES]
        self.right = {name: self.rng.uniform(*teaching.right) for name in FAMILIES}

    def draw(self, clean: bool) -> tuple[Problem, str]:
        """A problem and an answer to it: right, or (unless `clean`) perhaps a near miss."""
        family = self.rng.choices(self.families, self.weights)[0]
        level = self.rng.choices(LEVELS, LEVEL_WEIGHTS)[0]
        problem = draw(self.rng, family, level, "train")
        if clean or self.rng.random() < self.right[family] - self.drop * (level - 1):
            return problem, problem.answer
        return problem, near_miss(self.rng, int(problem.answer))


def near_miss(rng: Random, answer: int) -> str:
    """A wrong answer such as a slip would give: off by a little, or by ten."""
    return str(rng.choice([answer + off for off in (-10, -2, -1, 1, 2, 10) if answer + off >= 0]))


def make_batches(
    demonstrations: Demonstrations, tokenizer: PreTrainedTokenizerFast, clean: bool
) -> list[dict[str, torch.Tensor]]:
    """Batches of problems of like length, in random order; only the answers count for the loss."""
    chats = []
    for _ in range(BATCH * SORTED_TOGETHER):
        problem, answer = demonstrations.draw(clean)
        response = f"\\boxed{{{answer}}}"
        chats.append(
            [
                {"role": "user", "content": problem.text},
                {"role": "assistant", "content": response},
            ]
        )
    texts = tokenizer.apply_chat_template(chats, tokenize=False)
    rows = sorted(tokenizer(texts, add_special_tokens=False)["input_ids"], key=len)
    batches = [collate(rows[i : i + BATCH], tokenizer) for i in range(0, len(rows), BATCH)]
    demonstrations.rng.shuffle(batches)
    return batches


def collate(rows: list[list[int]], tokenizer: PreTrainedTokenizerFast) -> dict[str, torch.Tensor]:
    """Rows padded on the right, which causal attention never looks at, so no mask is needed."""
    asked = tokenizer.convert_tokens_to_ids("<|assistant|>")
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), tokenizer.pad_token_id)
    labels = torch.full((len(rows), width), -100)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
        start = row.index(asked) + 1
        labels[i, start : len(row)] = torch.tensor(row[start:])
    return {"input_ids": ids, "labels": labels}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", choices=TEACHING)
    parser.add_argument("folder", type=Path, help="where step_0 goes")
    parser.add_argument("--steps", type=int)
    options = parser.parse_args()
    start = time.time()
    warm_start(options.policy, options.folder, options.steps)
    print(f"{options.policy}: warm start took {time.time() - start:.0f} s")
