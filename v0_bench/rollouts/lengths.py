"""Tokens of prompts and responses, by the tokenizer of whatever backend has one."""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval.api.model import LM

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.copies import Query


def prompt_tokens(model: LM, prompt: str) -> int | None:
    """Tokens of a prompt, special ones included; None for a model without a tokenizer."""
    encode = getattr(model, "tok_encode", None)
    return None if encode is None else len(encode(prompt))


def response_tokens(model: LM, response: str) -> int | None:
    """Tokens of a response; None for a model without a tokenizer."""
    encode = getattr(model, "tok_encode", None)
    return None if encode is None else len(encode(str(response), add_special_tokens=False))


def check_room(model: LM, queries: Sequence[Query]) -> None:
    """Raises V0BenchError where a prompt leaves no room, or would be shortened without a word.

    lm-eval's own backends cut off the beginning of a prompt that exceeds the context less
    max_gen_toks; a model with `lowers_limits` lowers max_gen_toks instead.
    """
    context = getattr(model, "max_length", None)
    if not isinstance(context, int):
        return
    for query in queries:
        tokens = prompt_tokens(model, query.prompt) or 0
        lowers = getattr(model, "lowers_limits", False)
        room = 1 if lowers else int(query.options.get("max_gen_toks", 1))
        if tokens + room > context:
            raise V0BenchError(
                f"a prompt of {tokens} tokens leaves no room in the model's context of {context} "
                f"for {room} more: leave that query out, take a model with a longer context"
                + ("" if lowers else ", or pass --gen-kwargs with a lower max_gen_toks")
            )
