"""`JournaledLM` around models that answer as told."""

from collections import Counter
from pathlib import Path

import pytest
from lm_eval.api.instance import Instance

from gt_models import ScriptedLM
from v0_bench.errors import V0BenchError
from v0_bench.rollouts.journaled import JournaledLM, ObservedJournal
from v0_bench.rollouts.rollout import Rollout

OPTIONS = {"until": [], "temperature": 1.0, "max_gen_toks": 4}


class CountingLM(ScriptedLM):
    """Answers with the prompt and a number that grows; dies before the n-th query."""

    def __init__(self, dies_before: int = 10**6, context: int = 100) -> None:
        super().__init__({})
        self.max_length, self._dies_before = context, dies_before
        self.calls: list[int] = []
        self.asked: Counter[str] = Counter()

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        self.calls.append(len(requests))
        answers = []
        for request in requests:
            prompt = request.args[0]
            self.asked[prompt] += 1
            if len(self.asked) > self._dies_before:
                raise KeyboardInterrupt
            answers.append(f"{prompt} #{self.asked[prompt]}")
        return answers

    def tok_encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return list(range(len(text) + add_special_tokens))


def requests(count: int, repeats: int, options: dict[str, object] = OPTIONS) -> list[Instance]:
    made = [Instance("generate_until", {}, (f"query {n}", options), n) for n in range(count)]
    return [request for request in made for _ in range(repeats)]


def ask(path: Path, inner: CountingLM, asked: list[Instance], model: str = "m", chunk: int = 2):
    seeds: list[int] = []
    reports: list[tuple[int, int, int]] = []
    with ObservedJournal(path, lambda *report: reports.append(report)) as journal:
        lm = JournaledLM(inner, journal, model, chunk, seeds.append)
        return lm.generate_until(asked), seeds, reports


def test_answers_are_dealt_out_in_order_chunk_by_chunk(tmp_path):
    inner = CountingLM()
    answers, seeds, reports = ask(tmp_path / "j", inner, requests(5, 3))
    assert answers == [f"query {n} #{draw}" for n in range(5) for draw in (1, 2, 3)]
    assert inner.calls == [6, 6, 3]
    assert seeds == [0]
    tokens = len("query 0 #1") * 3
    assert reports == [(2, 0, 2 * tokens), (2, 0, 2 * tokens), (1, 0, tokens)]


def test_what_was_finished_before_an_interruption_is_not_asked_again(tmp_path):
    first, second = CountingLM(dies_before=3), CountingLM()
    with pytest.raises(KeyboardInterrupt):
        ask(tmp_path / "j", first, requests(5, 3))
    answers, seeds, reports = ask(tmp_path / "j", second, requests(5, 3))
    assert answers == [f"query {n} #{draw}" for n in range(5) for draw in (1, 2, 3)]
    assert second.asked == {f"query {n}": 3 for n in (2, 3, 4)}
    assert seeds == [2]  # other random numbers than those of the first run
    assert reports[:2] == [(1, 1, 0)] * 2


@pytest.mark.parametrize(
    "change",
    [{"model": "other"}, {"asked": requests(2, 4)}, {"asked": requests(2, 3, OPTIONS | {"t": 2})}],
)
def test_rollouts_of_another_model_or_sampling_are_not_reused(tmp_path, change):
    ask(tmp_path / "j", CountingLM(), requests(2, 3))
    inner = CountingLM()
    ask(tmp_path / "j", inner, **{"asked": requests(2, 3)} | change)
    assert set(inner.asked) == {"query 0", "query 1"}


def test_counts_and_endings_of_a_backend_that_knows_are_kept(tmp_path):
    class Knowing(CountingLM):
        def generate_until(self, requests, disable_tqdm=False):
            return [Rollout("abc", "length", 77) for _ in requests]

    for _ in range(2):  # sampled, then read back
        answers, _, _ = ask(tmp_path / "j", Knowing(), requests(1, 2))
        assert [(a.finish_reason, a.tokens) for a in answers] == [("length", 77)] * 2


def test_lengths_are_counted_where_the_backend_does_not_tell(tmp_path):
    answers, _, _ = ask(tmp_path / "j", CountingLM(), requests(1, 1))
    assert (answers[0].finish_reason, answers[0].tokens) == (None, len("query 0 #1"))


def test_a_prompt_that_would_be_cut_is_refused_before_anything_is_sampled(tmp_path):
    prompt = len("query 0") + 1
    inner = CountingLM(context=prompt + 3)
    with pytest.raises(V0BenchError, match="lower max_gen_toks"):
        ask(tmp_path / "j", inner, requests(2, 1))
    assert not inner.calls
    ask(tmp_path / "j", CountingLM(context=prompt + 4), requests(2, 1))
