"""Invented problems, and language models for lm-eval that answer them in a known way."""

import json
from pathlib import Path

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

TASKS = {
    "v0_gt_dapo_math": "integer",
    "v0_gt_aime24": "integer",
    "v0_gt_aime25": "integer",
    "v0_gt_gpqa_diamond": "choice",
    "v0_gt_math500": "math",
    "v0_gt_olympiad_bench": "math",
}


class ScriptedLM(LM):
    """Answers the n-th request for a prompt with the n-th of the responses given for it."""

    def __init__(self, script: dict[str, list[str]]) -> None:
        super().__init__()
        self._script = {text: list(responses) for text, responses in script.items()}
        self.requests: list[Instance] = []

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        self.requests += requests
        return [self._answer(request.args[0]) for request in requests]

    def _answer(self, prompt: str) -> str:
        (text,) = [text for text in self._script if text in prompt]
        return self._script[text].pop(0)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError


def write_jsonl(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows(kind: str, count: int) -> list[dict[str, object]]:
    """Problems such as "How many legs have 3 herons?", with wrong answers for `choice`."""
    made: list[dict[str, object]] = []
    for number in range(1, count + 1):
        text = f"How many legs have {number} herons?"
        row: dict[str, object] = {"query_id": f"h{number}", "text": text, "answer": 2 * number}
        if kind == "choice":
            row["wrong_answers"] = [f"{2 * number + extra}" for extra in (1, 2, 3)]
        made.append(row)
    return made


def save_tiny_model(folder: Path, chat_template: bool, hidden_size: int = 16) -> Path:
    """A random two-layer Llama over characters in Hugging Face format."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    symbols = ["<pad>", "<eos>", "<unk>", *map(chr, range(32, 127)), "\n"]
    inner = Tokenizer(models.WordLevel({s: i for i, s in enumerate(symbols)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    if chat_template:
        tokenizer.chat_template = (
            "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}[assistant] "
        )
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(symbols),
        hidden_size=hidden_size,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=512,
        eos_token_id=1,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
