"""GRPO with TRL on the checker's verdicts: checkpoints at equal distances, all rollouts recorded.

`FOLDER/step_N` is the policy after N optimiser steps; `FOLDER/rollouts/step_N.jsonl` holds the
rollouts that trained it since the checkpoint before. A run that is killed goes on from its last
checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from policies import TEACHING
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from v0_bench.answers import check
from v0_bench.files import atomic_file, atomic_folder
from v0_bench.micro import training_set

PROMPTS, COMPLETIONS = 12, 8  # of each optimiser step
EVERY = 20  # steps between checkpoints: 1,920 rollouts
CHECKPOINTS = 40
DECAY_SHARE = 0.375  # of the steps, at the end: the learning rate falls to 0
LEARNING_RATE = 1e-3
LONGEST_ANSWER = 8  # tokens


def grpo(
    name: str, folder: Path, checkpoints: int = CHECKPOINTS, rate: float = LEARNING_RATE
) -> None:
    """Train `folder`/step_0 on, up to `checkpoints` more checkpoints beside it."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "step_0")
    model = AutoModelForCausalLM.from_pretrained(folder / "step_0")
    rollouts = Rollouts()
    config = GRPOConfig(
        output_dir=str(folder / "trainer"),
        seed=TEACHING[name].seed,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        per_device_train_batch_size=PROMPTS * COMPLETIONS,
        num_generations=COMPLETIONS,
        max_completion_length=LONGEST_ANSWER,
        temperature=1.0,
        beta=0.0,
        learning_rate=rate,
        lr_scheduler_type="warmup_stable_decay",
        lr_scheduler_kwargs={"num_decay_steps": round(DECAY_SHARE * checkpoints * EVERY)},
        warmup_steps=5,
        max_steps=checkpoints * EVERY,
        save_steps=EVERY,
        save_total_limit=2,
        logging_steps=EVERY,
        report_to="none",
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=rollouts.reward,
        args=config,
        train_dataset=Dataset.from_list(
            [
                {
                    "prompt": [{"role": "user", "content": problem.text}],
                    "query_id": problem.query_id,
                    "answer": problem.answer,
                }
                for problem in training_set()
            ]
        ),
        callbacks=[Checkpoints(folder, rollouts, tokenizer)],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=_last_whole(folder / "trainer"))


class Rollouts:
    """The rewards of completions, remembered until the next checkpoint is written."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def reward(
        self,
        completions: list[list[dict[str, str]]],
        query_id: list[str],
        answer: list[str],
        trainer_state: Any,
        **_: Any,
    ) -> list[float]:
        """1 for a right answer, else 0."""
        rewards = []
        for chat, query, gold in zip(completions, query_id, answer, strict=True):
            response = chat[-1]["content"]
            rewards.append(float(check(response, gold, "integer").correct))
            self.rows.append(
                {
                    "query_id": query,
                    "step": trainer_state.global_step,
                    "response": response,
                    "reward": rewards[-1],
                }
            )
        return rewards


class Checkpoints(TrainerCallback):
    """Writes policy and rollouts before the trainer saves its own state, from which it resumes."""

    def __init__(self, folder: Path, rollouts: Rollouts, tokenizer: Any) -> None:
        self.folder, self.rollouts, self.tokenizer = folder, rollouts, tokenizer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar = tqdm(
            desc=f"{self.folder.name}: GRPO",
            total=state.max_steps,
            initial=state.global_step,
            unit="step",
            position=int(os.environ.get("BAR", "0")),
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.bar.update()
        if state.global_step % EVERY:
            return
        name = f"step_{state.global_step}"
        with atomic_file(self.folder / "rollouts" / f"{name}.jsonl") as file:
            file.write_text("".join(json.dumps(row) + "\n" for row in self.rollouts.rows))
        reward = sum(row["reward"] for row in self.rollouts.rows) / len(self.rollouts.rows)
        self.bar.set_postfix(reward=f"{reward:.2f}")
        self.rollouts.rows.clear()
        with atomic_folder(self.folder / name, overwrite=True) as temporary:
            kwargs["model"].save_pretrained(temporary)
            self.tokenizer.save_pretrained(temporary)


def _last_whole(folder: Path) -> str | None:
    """The trainer's newest checkpoint that was written to its end."""
    states = folder.glob("checkpoint-*/trainer_state.json")
    whole = sorted((state.parent for state in states), key=lambda path: int(path.name[11:]))
    return str(whole[-1]) if whole else None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", choices=TEACHING)
    parser.add_argument("folder", type=Path, help="holds step_0, takes the checkpoints")
    parser.add_argument("--checkpoints", type=int, default=CHECKPOINTS)
    parser.add_argument("--rate", type=float, default=LEARNING_RATE)
    options = parser.parse_args()
    torch.manual_seed(TEACHING[options.policy].seed)
    start = time.time()
    grpo(options.policy, options.folder, options.checkpoints, options.rate)
    print(f"{options.policy}: GRPO took {time.time() - start:.0f} s")
