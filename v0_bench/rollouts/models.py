"""Any lm-eval backend by name, made for one checkpoint, with its journal."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from lm_eval.api.model import LM
from lm_eval.api.registry import get_model, model_registry

from v0_bench.errors import V0BenchError
from v0_bench.lm_eval_plugin import MODELS, register_models
from v0_bench.nearest import unknown_name
from v0_bench.rollouts.checkpoints import Checkpoint, check_complete
from v0_bench.rollouts.journal import Journal
from v0_bench.rollouts.journaled import JournaledLM
from v0_bench.rollouts.settings import ENGINES, Settings


def tells_tokens(backend: str) -> bool:
    """Whether a backend counts the tokens it samples; for others their text is tokenised anew."""
    return backend in MODELS


def check_backend(name: str) -> None:
    """Raises V0BenchError for a backend that neither lm-eval nor this package has."""
    register_models()
    if name not in model_registry:
        raise V0BenchError(unknown_name("backend", name, model_registry))


def load_model(checkpoint: Checkpoint, settings: Settings, journal: Journal, key: str) -> LM:
    """The checkpoint's weights in the backend of `settings`, finished queries going to `journal`.

    `key` names the model in the journal. Raises V0BenchError where weights are absent, or the
    tokenizer has no chat template but chat prompts are wanted, and whatever the backend raises
    where files are damaged.
    """
    check_complete(checkpoint.path)
    arguments: dict[str, Any] = {"pretrained": checkpoint.path} | settings.model_args
    if settings.backend in ENGINES:  # whose random numbers torch's seed does not reach
        arguments.setdefault("seed", _seed(settings, checkpoint, 0))
    if settings.backend == "v0-vllm":  # writes each query when it finishes
        arguments["journal"] = journal
    device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    options = {"batch_size": settings.rollouts_a_batch, "device": device}
    model: LM = get_model(settings.backend).create_from_arg_obj(arguments, options)
    tokenizer = getattr(model, "tokenizer", None)
    if settings.chat_template and getattr(tokenizer, "chat_template", "") is None:
        raise V0BenchError(
            f"the tokenizer in {checkpoint.path} has no chat template: save one with it, or pass "
            "--no-chat-template for models that continue plain text"
        )
    if settings.backend == "v0-vllm":
        return model

    def seed(known: int) -> None:
        torch.manual_seed(_seed(settings, checkpoint, known))

    return JournaledLM(model, journal, key, settings.queries_a_chunk, seed)


def _seed(settings: Settings, checkpoint: Checkpoint, known: int) -> int:
    """Differs between checkpoints, and after every interruption, `known` queries being done."""
    text = f"{settings.seed} {checkpoint.name} {known}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
