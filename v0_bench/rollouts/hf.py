"""The lm-eval model `v0-hf`: lm-eval's `hf` for repeated sampling.

Each prompt is read once, however many rollouts it gets: its keys and values are copied, then
Hugging Face's own `generate` samples from there. Rollouts know how they ended and how long they
are. A prompt is never shortened: one that leaves no room in the context is an error, and a limit
of tokens that exceeds the room is lowered to it.

    B  queries in a batch        L  tokens of the longest prompt
    N  B x rollouts of a query   T  tokens of the longest rollout
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_model
from lm_eval.models.huggingface import HFLM
from lm_eval.models.utils import normalize_gen_kwargs
from transformers import (
    GenerationMixin,
    PreTrainedTokenizerBase,
    StoppingCriteria,
    StoppingCriteriaList,
)

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.copies import Query, batches, by_query, in_order
from v0_bench.rollouts.rollout import Rollout

# what this release of transformers calls keys and values: `past_key_values` before 5.20 or so
_CACHE = (
    "cache"
    if "cache" in inspect.signature(GenerationMixin.prepare_inputs_for_generation).parameters
    else "past_key_values"
)


@register_model("v0-hf")
class RolloutHFLM(HFLM):
    """`HFLM` whose `generate_until` returns `Rollout`s; `batch_size` counts rollouts."""

    lowers_limits = True

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """One `Rollout` for each request, in their order."""
        if self.backend != "causal":
            raise V0BenchError("v0-hf is for decoder-only models: take --backend hf for this one")
        queries = by_query(requests)
        size = int(self.batch_size)
        answers: dict[Query, list[Rollout]] = {}
        for batch in batches(queries, size):
            for query, rollouts in zip(batch, self._roll_out(batch), strict=True):
                answers[query] = rollouts
        return in_order(requests, answers)

    def _roll_out(self, batch: Sequence[Query]) -> list[list[Rollout]]:
        """The rollouts of each query; halves the batch where the GPU's memory does not suffice."""
        try:
            return self._sample(batch)
        except torch.cuda.OutOfMemoryError:
            if len(batch) == 1:
                raise
        torch.cuda.empty_cache()
        half = len(batch) // 2
        return self._roll_out(batch[:half]) + self._roll_out(batch[half:])

    @torch.inference_mode()
    def _sample(self, batch: Sequence[Query]) -> list[list[Rollout]]:
        repeats, options = batch[0].repeats, dict(batch[0].options)
        ids_BL, mask_BL = (
            tensor.to(self.device)
            for tensor in self.tok_batch_encode([query.prompt for query in batch])
        )
        kwargs: dict[str, Any] = dict(normalize_gen_kwargs(options, self.max_gen_toks))
        stop = [text for text in kwargs.pop("until") if text]
        limit = min(kwargs.pop("max_gen_toks"), self.max_length - ids_BL.shape[1])
        if limit < 1:
            raise V0BenchError(
                f"a prompt of {ids_BL.shape[1]} tokens leaves no room in the model's context of "
                f"{self.max_length}: leave that query out, or take a model with a longer context"
            )
        ids_NL = ids_BL.repeat_interleave(repeats, dim=0)
        if stop:
            criterion = _StopStrings(self.tokenizer, stop, ids_NL.shape[1])
            kwargs["stopping_criteria"] = StoppingCriteriaList([criterion])
        if ids_BL.shape[1] > 1:
            kwargs[_CACHE] = self._read(ids_BL[:, :-1], mask_BL[:, :-1], repeats)
        out_NLT = self.model.generate(
            input_ids=ids_NL,
            attention_mask=mask_BL.repeat_interleave(repeats, dim=0),
            max_new_tokens=limit,
            eos_token_id=self._end_ids(),
            pad_token_id=self.tokenizer.pad_token_id,
            **kwargs,
        )
        rollouts = self._rollouts(out_NLT[:, ids_NL.shape[1] :].tolist(), stop)
        return [rollouts[start : start + repeats] for start in range(0, len(rollouts), repeats)]

    def _read(self, ids_BL: torch.Tensor, mask_BL: torch.Tensor, repeats: int) -> Any:
        """The keys and values of the prompts, each `repeats` times."""
        output = self.model.base_model(  # without the head: no logits of a whole prompt
            input_ids=ids_BL,
            attention_mask=mask_BL,
            position_ids=(mask_BL.cumsum(-1) - 1).clamp(min=0),  # as `generate` counts
            use_cache=True,
        )
        cache = output[_CACHE]
        cache.batch_repeat_interleave(repeats)
        return cache

    def _end_ids(self) -> list[int]:
        """The tokens that end a rollout, for the tokenizer or for the model."""
        told = self.model.generation_config.eos_token_id
        ids = told if isinstance(told, list) else [told]
        return sorted({token for token in (*ids, self.tokenizer.eos_token_id) if token is not None})

    def _rollouts(self, sequences: list[list[int]], stop: list[str]) -> list[Rollout]:
        """Text, ending and length of each sequence; the token that ends it counts as one."""
        ends = set(self._end_ids())
        if stop:  # what follows a stop string is padding
            ends.add(self.tokenizer.pad_token_id)
        lengths = [
            next((at + 1 for at, token in enumerate(ids) if token in ends), 0) for ids in sequences
        ]
        cut = [ids[: length or len(ids)] for ids, length in zip(sequences, lengths, strict=True)]
        texts = self.tokenizer.batch_decode(cut, skip_special_tokens=True)
        return [
            _rollout(text, len(ids), bool(length), stop)
            for text, ids, length in zip(texts, cut, lengths, strict=True)
        ]


class _StopStrings(StoppingCriteria):
    """Ends each rollout in whose last tokens one of the strings appears."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: list[str], prompt: int) -> None:
        self._tokenizer, self._stop, self._prompt = tokenizer, stop, prompt
        lengths = [len(tokenizer.encode(string, add_special_tokens=False)) for string in stop]
        self._window = max(lengths) + 3  # tokens; a string may be cut into others than when alone

    def __call__(self, ids_NL: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
        last = ids_NL[:, max(self._prompt, ids_NL.shape[1] - self._window) :]
        texts = self._tokenizer.batch_decode(last, skip_special_tokens=True)
        found = [any(string in text for string in self._stop) for text in texts]
        return torch.tensor(found, device=ids_NL.device)


def _rollout(text: str, tokens: int, ended: bool, stop: list[str]) -> Rollout:
    found = [text.index(string) for string in stop if string in text]
    if found:
        text, ended = text[: min(found)], True
    return Rollout(text, "stop" if ended else "length", tokens)
