"""`JournaledLM`: any lm-eval model, with every finished query written down at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.copies import Query, batches, by_query, in_order
from v0_bench.rollouts.journal import Journal, journal_key
from v0_bench.rollouts.lengths import check_room, response_tokens
from v0_bench.rollouts.rollout import Rollout

Report = Callable[[int, int, int], None]  # queries, of them from the journal, tokens sampled


class ObservedJournal(Journal):
    """A journal that reports what is found in it and what is added to it."""

    def __init__(self, path: Path, report: Report) -> None:
        super().__init__(path)
        self._report = report

    def get(self, key: str) -> list[Rollout] | None:
        """The rollouts of a query; None where it is not finished."""
        rollouts = super().get(key)
        if rollouts is not None:
            self._report(1, 1, 0)
        return rollouts

    def put_many(self, finished: Mapping[str, Sequence[Rollout]]) -> None:
        """Append finished queries; they are on disk when this returns."""
        super().put_many(finished)
        tokens = sum(rollout.tokens or 0 for drawn in finished.values() for rollout in drawn)
        self._report(len(finished), 0, tokens)


class JournaledLM(LM):
    """Answers from the journal what it holds; sends the rest to `inner`, a chunk at a time.

    `model` names the model and all that rollouts depend on beside prompt and options. `chunk` is
    the number of queries between two writes. `seed` is called with the number of queries known
    before the first is sampled: a run that resumes must not draw the same random numbers again.
    """

    def __init__(
        self, inner: LM, journal: Journal, model: str, chunk: int, seed: Callable[[int], None]
    ) -> None:
        super().__init__()
        self.inner = inner
        self._journal, self._model = journal, model
        self._chunk, self._seed = chunk, seed

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """One rollout for each request, in their order."""
        queries = by_query(requests)
        found = {query: self._journal.get(self._key(query)) for query in queries}
        answers = {query: rollouts for query, rollouts in found.items() if rollouts is not None}
        waiting = [query for query in queries if query not in answers]
        check_room(self.inner, waiting)
        self._seed(len(self._journal))
        for chunk in batches(waiting, self._chunk * max(query.repeats for query in queries)):
            answers |= self._sample(chunk)
        return in_order(requests, answers)

    def _sample(self, chunk: Sequence[Query]) -> dict[Query, list[Rollout]]:
        requests = [query.request for query in chunk for _ in range(query.repeats)]
        responses = iter(self.inner.generate_until(requests, disable_tqdm=True))
        rollouts = {
            query: [self._counted(next(responses)) for _ in range(query.repeats)] for query in chunk
        }
        self._journal.put_many({self._key(query): drawn for query, drawn in rollouts.items()})
        return rollouts

    def _key(self, query: Query) -> str:
        return journal_key(query.prompt, query.options, query.repeats, self._model)

    def _counted(self, response: str) -> Rollout:
        """The response with its length, counted anew where the backend does not tell it."""
        if isinstance(response, Rollout) and response.tokens is not None:
            return response
        reason = getattr(response, "finish_reason", None)
        return Rollout(response, reason, response_tokens(self.inner, response))

    # What lm-eval asks a model beside its rollouts.

    @property
    def tokenizer_name(self) -> str:
        """For lm-eval's cache of requests, which the tasks refuse to use."""
        return str(getattr(self.inner, "tokenizer_name", ""))

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """The prompt of a conversation."""
        return self.inner.apply_chat_template(chat_history, add_generation_prompt)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Refused: this model samples."""
        raise V0BenchError("rollouts are sampled: take tasks with output_type generate_until")

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Refused: this model samples."""
        raise V0BenchError("rollouts are sampled: take tasks with output_type generate_until")
