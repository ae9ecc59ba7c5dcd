"""`check`: the verdict on one response, and `check_many` for a batch.

Order of work: the text after the last closed thought; the last balanced box, else the last answer
line; equality as strings or exact numbers here; everything else in a worker process.
"""

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

from v0_bench.answers.choice import LETTERS, chosen_letter, letter_of
from v0_bench.answers.extract import (
    LONGEST_ANSWER,
    after_thought,
    answer_line,
    bare_answer,
    last_box,
    unwrap_boxes,
)
from v0_bench.answers.processes import WORKERS, WorkerLost, compare
from v0_bench.answers.quantity import Quantity, labels_clash, read_quantity, units_clash
from v0_bench.answers.spelling import canonical, equal_numbers, key, rational
from v0_bench.errors import V0BenchError

KINDS = ("math", "integer", "choice")
LONGEST_RESPONSE = 4_000_000  # characters; of a longer response only the end is read
_UNPRINTABLE = re.compile("[\ud800-\udfff\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SEVERAL = re.compile(r"[,;]|\s(?:and|or)\s")


@dataclass(frozen=True)
class Verdict:
    """What `check` found.

    `extracted` is the answer as written (None where there is none), `reason` one of: equal,
    different, no answer, unfinished thought, truncated, answer too long, timed out,
    not comparable.
    """

    correct: bool
    extracted: str | None
    reason: str


def check(
    response: str, gold: str, kind: str = "math", finish_reason: str | None = None
) -> Verdict:
    """Whether `response` gives the answer `gold`; never raises for anything a response holds.

    `kind`: "math" (any expression, list, interval, ...), "integer" (the gold is an integer, as in
    AIME and DAPO), "choice" (the gold is a letter A to J). `finish_reason` "length" marks a
    response that was cut: it counts only with a complete box or a complete answer line.
    A comparison takes at most about 4 seconds, then it counts as wrong ("timed out").
    Raises V0BenchError for an unknown kind, a gold that does not fit it, or a missing math-verify.
    """
    gold = _checked_gold(response, gold, kind)
    truncated = finish_reason == "length"
    text = after_thought(_printable(response[-LONGEST_RESPONSE:]))
    if text is None:
        return Verdict(False, None, "unfinished thought")
    if kind == "choice":
        extracted = chosen_letter(text, truncated)
    else:
        extracted = last_box(text) or answer_line(text, truncated)
        if extracted is None and not truncated:
            extracted = bare_answer(text)
    if extracted is None:
        return Verdict(False, None, "truncated" if truncated else "no answer")
    if len(extracted) > LONGEST_ANSWER:
        return Verdict(False, extracted[:100], "answer too long")
    if kind == "choice":
        return _verdict(extracted == gold, extracted)
    return _judge(gold, extracted)


def check_many(
    responses: Sequence[str],
    golds: Sequence[str],
    kind: str = "math",
    finish_reasons: Sequence[str | None] | None = None,
) -> list[Verdict]:
    """`check` for each pair, in order, with the worker processes in parallel."""
    reasons = [None] * len(responses) if finish_reasons is None else list(finish_reasons)
    if not len(responses) == len(golds) == len(reasons):
        raise V0BenchError(
            f"check_many needs as many golds as responses, got {len(responses)} responses, "
            f"{len(golds)} golds and {len(reasons)} finish reasons"
        )
    with ThreadPoolExecutor(WORKERS) as threads:
        return list(threads.map(check, responses, golds, [kind] * len(golds), reasons))


def _judge(gold: str, extracted: str) -> Verdict:
    """Compare as strings, then as numbers, then in a worker."""
    wanted, given = canonical(gold), canonical(extracted)
    if not given:
        return Verdict(False, extracted, "different")
    if key(wanted) == key(given):
        return Verdict(True, extracted, "equal")
    quick = _quick_numbers(wanted, given)
    if quick is not None:
        return _verdict(quick, extracted)
    try:
        reply = compare(wanted, given)
    except WorkerLost as lost:
        return Verdict(False, extracted, "timed out" if lost.timed_out else "not comparable")
    if "equal" not in reply:
        return Verdict(False, extracted, "not comparable")
    return _verdict(bool(reply["equal"]), extracted)


def _quick_numbers(gold: str, given: str) -> bool | None:
    """The verdict where both are plain numbers, labels and units aside; None where not."""
    left, right = _number(gold), _number(given)
    if left is None or right is None:
        return None
    if units_clash(left[0], right[0]) or labels_clash(left[0].label, right[0].label):
        return False
    return equal_numbers(left[1], right[1], right[0].value)


def _number(text: str) -> tuple[Quantity, Fraction] | None:
    """The quantity and its value where the text is one plain number; None for anything else."""
    if "=" in text and _SEVERAL.search(text):
        return None  # `m = 3 and n = 4` is not 4
    quantity = read_quantity(text)
    value = None if quantity.percent or quantity.base else rational(quantity.value)
    return None if value is None else (quantity, value)


def _checked_gold(response: str, gold: str, kind: str) -> str:
    """The gold ready to compare with; raises V0BenchError for what no response could answer."""
    if kind not in KINDS:
        raise V0BenchError(f"unknown kind of answer {kind!r}: use one of {', '.join(KINDS)}")
    if not isinstance(response, str) or not isinstance(gold, str):
        raise V0BenchError(
            "a response and a gold answer must be text, got "
            f"{type(response).__name__} and {type(gold).__name__}"
        )
    gold = unwrap_boxes(_printable(gold)).strip()
    if len(gold) > LONGEST_ANSWER:
        raise V0BenchError(
            f"the gold answer is too long ({len(gold)} characters): give the answer alone, at most "
            f"{LONGEST_ANSWER}"
        )
    if not canonical(gold):
        raise V0BenchError("the gold answer is empty: leave this problem out or give its answer")
    if kind == "choice":
        return _gold_letter(gold)
    if kind == "integer":
        number = _number(canonical(gold))
        if number is None or number[1].denominator != 1:
            raise V0BenchError(f"kind 'integer' needs an integer gold, got {gold!r}: use 'math'")
    return gold


def _gold_letter(gold: str) -> str:
    letter = letter_of(gold)
    if letter is None:
        raise V0BenchError(
            f"kind 'choice' needs a gold letter {LETTERS[0]} to {LETTERS[-1]}, got {gold!r}"
        )
    return letter


def _printable(text: str) -> str:
    """The text without lone surrogates and control characters, which no output could carry."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _verdict(correct: bool, extracted: str) -> Verdict:
    return Verdict(correct, extracted, "equal" if correct else "different")
