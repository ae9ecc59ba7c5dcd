"""The metrics of one query, from the verdicts on its rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from math import comb

from v0_bench.answers import Verdict
from v0_bench.answers.spelling import canonical, key, rational
from v0_bench.rollouts.rollout import finish_reasons, token_counts


def summarise(responses: list[str], verdicts: Sequence[Verdict]) -> dict[str, object]:
    """Metric -> value of one query with k = len(responses) rollouts.

    All values are in [0, 1] but `k`, `mean_tokens` and `verdicts`. `truncation_rate` and
    `mean_tokens` are left out where a rollout's finish reason or token count is not known.
    `verdicts` holds what the checker found for each rollout.
    """
    k = len(responses)
    right = sum(verdict.correct for verdict in verdicts)
    metrics: dict[str, object] = {"avg@k": right / k, "k": k}
    metrics |= {f"pass@{draws}": pass_at(draws, right, k) for draws in range(1, k + 1)}
    metrics[f"majority@{k}"] = majority(verdicts)
    metrics["no_answer_rate"] = sum(verdict.extracted is None for verdict in verdicts) / k
    metrics["distinct_rate"] = len(set(responses)) / k
    reasons, tokens = finish_reasons(responses), token_counts(responses)
    if None not in reasons:
        metrics["truncation_rate"] = reasons.count("length") / k
    known = [count for count in tokens if count is not None]
    if len(known) == k:
        metrics["mean_tokens"] = sum(known) / k
    metrics["verdicts"] = [asdict(verdict) for verdict in verdicts]
    return metrics


def pass_at(draws: int, right: int, k: int) -> float:
    """The chance that one of `draws` rollouts, drawn from k without replacement, is right.

    Unbiased for the success of `draws` fresh rollouts (Chen et al. 2021, arXiv 2107.03374, eq. 1).
    """
    return 1.0 - comb(k - right, draws) / comb(k, draws)


def majority(verdicts: Sequence[Verdict]) -> float:
    """The chance that the most frequent answer is right, ties broken at random.

    Right answers are one candidate however spelled; rollouts without an answer do not vote.
    """
    votes = Counter(
        "right" if verdict.correct else f"wrong: {answer_key(verdict.extracted)}"
        for verdict in verdicts
        if verdict.extracted is not None
    )
    top = [answer for answer, count in votes.items() if count == max(votes.values())]
    return 1.0 / len(top) if "right" in top else 0.0


def answer_key(answer: str) -> str:
    """One spelling for answers that are the same number, or the same text up to layout."""
    text = canonical(answer)
    number = rational(text)
    return key(text) if number is None else str(number)


def count_reasons(queries: Sequence[Sequence[dict[str, object]]]) -> str:
    """How often each reason occurs over all queries, as "different 61, equal 29, no answer 10"."""
    counts = Counter(str(verdict["reason"]) for query in queries for verdict in query)
    return ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
