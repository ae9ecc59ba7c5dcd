"""The metrics of one query: pass@j, majority, rates, token counts."""

import pickle
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from v0_bench.answers import Verdict, check
from v0_bench.rollouts.rollout import Rollout
from v0_bench.tasks.summary import answer_key, count_reasons, majority, pass_at, summarise


def verdicts(responses: list[str], gold: str = "4") -> list[Verdict]:
    return [check(response, gold, "math") for response in responses]


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_pass_at_is_the_share_of_subsets_with_a_right_rollout(rewards, data):
    draws = data.draw(st.integers(1, len(rewards)))
    subsets = list(combinations(rewards, draws))
    share = sum(any(subset) for subset in subsets) / len(subsets)
    assert pass_at(draws, sum(rewards), len(rewards)) == pytest.approx(share)


def test_a_query_by_hand():
    responses = [r"\boxed{4}"] * 3 + [r"\boxed{5}", r"\boxed{6}", "no idea at all, sorry about it"]
    metrics = summarise(responses, verdicts(responses))
    assert metrics["avg@k"] == metrics["pass@1"] == 0.5
    assert metrics["k"] == 6
    assert metrics["pass@2"] == pytest.approx(1 - 3 / 15)
    assert metrics["pass@4"] == metrics["pass@6"] == 1.0
    assert metrics["majority@6"] == 1.0
    assert metrics["no_answer_rate"] == pytest.approx(1 / 6)
    assert metrics["distinct_rate"] == pytest.approx(4 / 6)
    assert metrics["verdicts"][3] == {"correct": False, "extracted": "5", "reason": "different"}
    assert "truncation_rate" not in metrics
    assert "mean_tokens" not in metrics


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["4", "4", "5"], 1.0),
        (["4", "5"], 0.5),
        (["4", "5", "6"], 1 / 3),
        (["4", "5", "5"], 0.0),
        (["4", "4.0", "1/2", "0.5", r"\frac12"], 0.0),
        (["4", r"\frac{8}{2}", "5"], 1.0),
        ([], 0.0),
    ],
)
def test_majority(answers, expected):
    found = verdicts([rf"\boxed{{{answer}}}" for answer in answers])
    assert majority(found) == pytest.approx(expected)


def test_rollouts_without_an_answer_do_not_vote():
    assert majority([Verdict(False, None, "no answer")] * 9 + [Verdict(True, "4", "equal")]) == 1.0
    assert majority([Verdict(False, None, "no answer")] * 10) == 0.0


def test_answer_key_joins_spellings():
    assert answer_key("033") == answer_key("33.0") == answer_key("$33$") == "33"
    assert answer_key("x+1") == answer_key(" x + 1 ")
    assert answer_key("x+1") != answer_key("x+2")


def test_truncation_and_tokens_where_known():
    known = [Rollout(r"\boxed{4}", "stop", 7), Rollout("let me think about th", "length", 9)]
    metrics = summarise(known, verdicts(known))
    assert metrics["truncation_rate"] == 0.5
    assert metrics["mean_tokens"] == 8.0
    partly = [*known, r"\boxed{4}"]
    assert not {"truncation_rate", "mean_tokens"} & summarise(partly, verdicts(partly)).keys()


def test_a_rollout_is_a_string_that_survives_pickling():
    rollout = pickle.loads(pickle.dumps(Rollout("text", "length", 3)))
    assert (rollout, rollout.finish_reason, rollout.tokens) == ("text", "length", 3)
    assert isinstance(rollout, str)


def test_reasons_are_counted_over_queries():
    query = [{"reason": "equal"}, {"reason": "different"}]
    assert count_reasons([query, query[:1]]) == "different 1, equal 2"
