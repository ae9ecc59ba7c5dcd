"""Any lm-eval backend by name, made for one checkpoint."""

from __future__ import annotations

import hashlib

from lm_eval.api.model import LM
from lm_eval.api.registry import get_model, model_registry

from v0_bench.errors import V0BenchError
from v0_bench.lm_eval_plugin import MODELS, register_models
from v0_bench.nearest import unknown_name
from v0_bench.rollouts.checkpoints import Checkpoint
from v0_bench.rollouts.settings import ENGINES, Settings


def tells_tokens(backend: str) -> bool:
    """Whether a backend counts the tokens it samples; for others their text is tokenised anew."""
    return backend in MODELS


def check_backend(name: str) -> None:
    """Raises V0BenchError for a backend that neither lm-eval nor this package has."""
    if name not in _backends():
        raise V0BenchError(unknown_name("backend", name, _backends()))


def load_model(checkpoint: Checkpoint, settings: Settings) -> LM:
    """The checkpoint's weights in the backend of `settings`.

    Raises V0BenchError where chat prompts are wanted and its tokenizer has no chat template, and
    whatever the backend raises where the weights are missing or damaged.
    """
    import torch

    _backends()
    arguments = {"pretrained": checkpoint.path} | settings.model_args
    if settings.backend in ENGINES:  # whose random numbers torch's seed does not reach
        arguments.setdefault("seed", _seed(settings.seed, checkpoint))
    device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    options = {"batch_size": settings.rollouts_a_batch, "device": device}
    model: LM = get_model(settings.backend).create_from_arg_obj(arguments, options)
    tokenizer = getattr(model, "tokenizer", None)
    if settings.chat_template and getattr(tokenizer, "chat_template", "") is None:
        raise V0BenchError(
            f"the tokenizer in {checkpoint.path} has no chat template: save one with it, or pass "
            "--no-chat-template for models that continue plain text"
        )
    return model


def _seed(seed: int, checkpoint: Checkpoint) -> int:
    digest = hashlib.sha256(f"{seed} {checkpoint.name}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _backends() -> list[str]:
    """lm-eval's backends with ours among them."""
    register_models()
    return list(model_registry)
