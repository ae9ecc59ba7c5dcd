"""`JournaledLM`: any lm-eval model, with every finished query written down at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.copies import Query, batches, by_query, in_order
from v0_bench.rollouts.journal import Journal, journal_key
from v0_bench.rollouts.rollout import Rollout

Report = Callable[[int, int, int], None]  # queries, of them from the journal, tokens sampled


class JournaledLM(LM):
    """Answers from the journal what it holds; sends the rest to `inner`, a chunk at a time.

    `model` names the model and all that rollouts depend on beside prompt and options. `seed` is
    called with the number of queries known already, before the first is sampled: a run that
    resumes must not draw the same random numbers again. `report` is called after each chunk.
    """

    def __init__(
        self,
        inner: LM,
        journal: Journal,
        model: str,
        chunk: int,
        seed: Callable[[int], None],
        report: Report,
    ) -> None:
        super().__init__()
        self._inner, self._journal, self._model, self._chunk = inner, journal, model, chunk
        self._seed, self._report = seed, report
        self.prompt_tokens: dict[str, int] = {}

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """One rollout for each request, in their order."""
        queries = by_query(requests)
        self._measure(queries)
        answers: dict[Query, Sequence[str]] = {}
        waiting = []
        for query in queries:
            known = self._journal.get(self._key(query))
            if known is None:
                waiting.append(query)
            else:
                answers[query] = known
        self._report(len(answers), len(answers), 0)
        self._seed(len(answers))
        for chunk in batches(waiting, self._chunk * max(query.repeats for query in queries)):
            answers |= self._sample(chunk)
        return in_order(requests, answers)

    def _sample(self, chunk: Sequence[Query]) -> dict[Query, list[Rollout]]:
        requests = [query.request for query in chunk for _ in range(query.repeats)]
        responses = iter(self._inner.generate_until(requests, disable_tqdm=True))
        rollouts = {
            query: [self._counted(next(responses)) for _ in range(query.repeats)] for query in chunk
        }
        self._journal.put_many({self._key(query): drawn for query, drawn in rollouts.items()})
        tokens = sum(rollout.tokens or 0 for drawn in rollouts.values() for rollout in drawn)
        self._report(len(chunk), 0, tokens)
        return rollouts

    def _key(self, query: Query) -> str:
        return journal_key(query.prompt, query.options, query.repeats, self._model)

    def _counted(self, response: str) -> Rollout:
        """The response with its length, counted anew where the backend does not tell it."""
        if isinstance(response, Rollout) and response.tokens is not None:
            return response
        reason = getattr(response, "finish_reason", None)
        return Rollout(response, reason, self._count(response, add_special_tokens=False))

    def _measure(self, queries: Sequence[Query]) -> None:
        """Count the prompts' tokens, and refuse prompts that the context cannot hold."""
        context = getattr(self._inner, "max_length", None)
        for query in queries:
            tokens = self._count(query.prompt)
            if tokens is None:
                continue
            self.prompt_tokens[query.prompt] = tokens
            if isinstance(context, int) and tokens >= context:
                raise V0BenchError(
                    f"a prompt of {tokens} tokens leaves no room in the model's context of "
                    f"{context}: leave that query out, or take a model with a longer context"
                )

    def _count(self, text: str, **options: Any) -> int | None:
        encode = getattr(self._inner, "tok_encode", None)
        return None if encode is None else len(encode(str(text), **options))

    # What evaluate() asks a model beside its rollouts.

    @property
    def tokenizer_name(self) -> str:
        """For lm-eval's cache of requests, which the tasks refuse to use."""
        return str(getattr(self._inner, "tokenizer_name", ""))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The prompt of a conversation."""
        return self._inner.apply_chat_template(chat_history, add_generation_prompt)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Not asked of a model that samples."""
        raise V0BenchError("rollouts are sampled: take tasks with output_type generate_until")

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Not asked of a model that samples."""
        raise V0BenchError("rollouts are sampled: take tasks with output_type generate_until")
