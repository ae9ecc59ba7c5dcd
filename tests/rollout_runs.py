"""Tiny checkpoints of several architectures, and the command `v0-bench rollouts` on them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from gt_models import rows, save_tiny_model, write_jsonl

TASK = "v0_gt_aime24"
COMMAND = [sys.executable, "-c", "from v0_bench.cli import main; raise SystemExit(main())"]


def save_checkpoint(folder: Path, kind: str = "llama", seed: int = 0, context: int = 512) -> Path:
    """A random model over characters, with a chat template."""
    import torch
    from tokenizers import decoders
    from transformers import (
        AutoTokenizer,
        GPTNeoXConfig,
        GPTNeoXForCausalLM,
        LlamaConfig,
        LlamaForCausalLM,
        Qwen2Config,
        Qwen2ForCausalLM,
    )

    save_tiny_model(folder, chat_template=True)  # for its tokenizer
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.decoder = decoders.Fuse()  # no blanks between characters
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    shared = {
        "vocab_size": 99,
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": context,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "bos_token_id": None,
    }
    model = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(**shared)),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**shared, num_key_value_heads=1)),
        "neox": lambda: GPTNeoXForCausalLM(GPTNeoXConfig(**shared)),
    }[kind]()
    with torch.no_grad():  # spread the next-token probabilities
        model.get_output_embeddings().weight.mul_(20)
    model.save_pretrained(folder)
    return folder


def save_problems(folder: Path, count: int) -> Path:
    return write_jsonl(folder / "problems.jsonl", rows("integer", count))


def arguments(checkpoints: Path, output: Path, problems: Path, *more: str) -> list[str]:
    return [
        *("rollouts", str(checkpoints), "--output", str(output), "--tasks", TASK),
        *("--metadata", f"{TASK}={problems}", "--gen-kwargs", "max_gen_toks=6", *more),
    ]


def start(args: list[str]) -> subprocess.Popen[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        COMMAND + args,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(args: list[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of the command."""
    process = start(args)
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


def journal_rows(file: Path) -> list[dict[str, object]]:
    """The whole lines of a journal."""
    if not file.exists():
        return []
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in lines]


def copy_broken(good: Path, folder: Path) -> dict[str, str]:
    """Checkpoints that cannot be used; name -> a part of what the run must say of it."""
    for name in ("no-weights", "no-template", "corrupt", "short-context"):
        shutil.copytree(good, folder / name / "step_1")
    (folder / "no-weights" / "step_1" / "model.safetensors").unlink()
    for file in (folder / "no-template" / "step_1").glob("chat_template*"):
        file.unlink()
    weights = folder / "corrupt" / "step_1" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    save_checkpoint(folder / "short-context" / "step_1", context=32)
    (folder / "empty" / "step_1").mkdir(parents=True)
    return {
        "no-weights/step_1": "no weights",
        "no-template/step_1": "no chat template",
        "corrupt/step_1": "afetensor",
        "short-context/step_1": "leaves no room in the model's context of 32",
        "empty/step_1": "no config.json",
    }
