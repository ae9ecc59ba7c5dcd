"""The answer checker: the table of cases, the order of work, bad arguments, the spelling rules."""

import csv
from collections import Counter
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from v0_bench.answers import KINDS, Verdict, check, check_many
from v0_bench.answers.extract import after_thought, answer_line, last_box
from v0_bench.answers.parts import split_answer
from v0_bench.answers.spelling import canonical, key, rational
from v0_bench.errors import V0BenchError

TABLE = Path(__file__).parent / "data" / "answer_cases.tsv"


def read_table() -> list[dict[str, str]]:
    """The rows; a visible sign stands for each line break of a response."""
    with TABLE.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [row | {"response": row["response"].replace("⏎", "\n")} for row in rows]


def test_every_case_of_the_table_gets_its_verdict():
    rows = read_table()
    wrong = []
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        verdicts = check_many(
            [row["response"] for row in mine], [row["gold"] for row in mine], kind
        )
        wrong += [
            (row, verdict)
            for row, verdict in zip(mine, verdicts, strict=True)
            if verdict.correct is not (row["correct"] == "yes")
        ]
    assert wrong == []


def test_the_table_is_large_and_balanced():
    rows = read_table()
    counts = Counter((row["kind"], row["correct"]) for row in rows)
    assert len(rows) >= 200
    assert len({(row["response"], row["gold"], row["kind"]) for row in rows}) == len(rows)
    assert all(counts[kind, verdict] >= 10 for kind in KINDS for verdict in ("yes", "no"))


@pytest.mark.parametrize(
    ("response", "finish_reason", "expected"),
    [
        (r"\boxed{70}", "stop", Verdict(True, "70", "equal")),
        (r"\boxed{71}", None, Verdict(False, "71", "different")),
        ("I give up", "stop", Verdict(False, None, "no answer")),
        ("so we add 30 and 40 and", "length", Verdict(False, None, "truncated")),
        (r"so \boxed{70} and then", "length", Verdict(True, "70", "equal")),
        (r"so \boxed{70", "length", Verdict(False, None, "truncated")),
        ("Answer: 70", "length", Verdict(False, None, "truncated")),  # perhaps 700 was meant
        ("Answer: 70\nCheck:", "length", Verdict(True, "70", "equal")),
        ("70", "length", Verdict(False, None, "truncated")),
        (r"<think>\boxed{70}", "length", Verdict(False, None, "unfinished thought")),
        (r"<think>\boxed{70}", "stop", Verdict(False, None, "unfinished thought")),
    ],
)
def test_truncation_and_reasons(response, finish_reason, expected):
    assert check(response, "70", "integer", finish_reason) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "70", "maths"), "unknown kind"),
        (("x", "70", ""), "unknown kind"),
        (("x", "", "math"), "empty"),
        (("x", " $ $ ", "math"), "empty"),
        (("x", r"\boxed{}", "math"), "empty"),
        (("x", "1" * 2000, "math"), "too long"),
        (("x", r"\frac{1}{2}", "integer"), "integer gold"),
        (("x", "3,4", "integer"), "integer gold"),
        (("x", "Bromine", "choice"), "gold letter"),
        (("x", "Z", "choice"), "gold letter"),
        ((None, "70", "math"), "must be text"),
        (("x", 70, "math"), "must be text"),
        ((b"x", "70", "math"), "must be text"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(V0BenchError, match=message):
        check(*arguments)


def test_check_many_wants_equal_lengths():
    with pytest.raises(V0BenchError, match="as many golds as responses"):
        check_many(["a", "b"], ["1"])
    assert check_many([], []) == []


def test_check_many_keeps_the_order():
    golds = [str(number) for number in range(200)]
    responses = [rf"\boxed{{{number} + 0}}" for number in range(200)]
    responses[17] = r"\boxed{9^{9^{9}}}"
    verdicts = check_many(responses, golds, "integer")
    assert [verdict.correct for verdict in verdicts] == [number != 17 for number in range(200)]
    assert verdicts[17].reason == "timed out"


@given(st.integers(-(10**12), 10**12))
def test_an_integer_in_many_spellings(number):
    spellings = [
        f"{number}", f"{number:,}", f"{number}.0", f"$x = {number}$", rf"\mathbf{{{number}}}",
        f"{number:,}".replace(",", "{,}"), f"{number:,}".replace(",", r"\,"),
        f"{number}".replace("-", "−"), rf"{number}\text{{ cm}}", f"{number}^\\circ",
    ]  # fmt: skip
    for spelling in spellings:
        assert check(rf"\boxed{{{spelling}}}", str(number), "integer").correct, spelling
        assert not check(rf"\boxed{{{spelling}}}", str(number + 1), "integer").correct, spelling


@given(st.integers(-999, 999), st.integers(1, 999), st.integers(-5, 5))
def test_fractions_are_exact(top, bottom, shift):
    value = Fraction(top, bottom)
    other = value + Fraction(shift, 7)
    gold = rf"\frac{{{top}}}{{{bottom}}}"
    response = rf"\boxed{{\dfrac{{{other.numerator}}}{{{other.denominator}}}}}"
    assert check(response, gold).correct is (shift == 0)


@given(st.text(alphabet=r"\{}()[]$^_,.:=+-*/%! 0123456789abxCfracsqrtboxedtext&<>|~", max_size=80))
@settings(max_examples=300, deadline=None)
def test_spelling_is_stable_and_never_raises(text):
    once = canonical(text)
    assert key(canonical(once)) == key(canonical(canonical(once)))
    rational(once)
    split_answer(once)


@given(st.text(max_size=200))
@settings(max_examples=300, deadline=None)
def test_extraction_never_raises(text):
    for candidate in (text, rf"\boxed{{{text}", f"Answer: {text}", f"<think>{text}</think>{text}"):
        rest = after_thought(candidate)
        if rest is not None:
            last_box(rest)
            answer_line(rest)


@given(st.text(max_size=60))
@settings(max_examples=40, deadline=None)
def test_any_text_in_a_box_gets_a_verdict(text):
    for kind, gold in (("integer", "70"), ("choice", "B"), ("math", r"x^2+\frac{1}{2}")):
        assert isinstance(check(rf"\boxed{{{text}}}", gold, kind), Verdict)


def test_an_extracted_answer_can_be_written_to_any_file():
    verdict = check("\\boxed{7\ud8000\0}", "70")
    assert verdict.extracted is not None
    verdict.extracted.encode("utf-8")
    assert "\0" not in verdict.extracted
