"""No response may hang the checker for 5 seconds, kill it or spoil the next verdict."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from v0_bench.answers import check
from v0_bench.answers.processes import WORKERS

LIMIT = 5.0
MEGABYTE = 1_000_000
GOLDS = {"integer": "70", "math": r"\frac{x}{2}+1", "choice": "B"}


def garbage() -> str:
    rng = random.Random(0)
    return "".join(chr(rng.randrange(0x250)) for _ in range(MEGABYTE))


LARGE = {
    "garbage": garbage(),
    "garbage in a box": r"\boxed{" + garbage().replace("}", "") + "}",
    "open boxes": r"\boxed{" * (MEGABYTE // 7),
    "empty boxes": r"\boxed{}" * (MEGABYTE // 8),
    "nested boxes": r"\boxed{" * 60_000 + "7" + "}" * 60_000,
    "open braces": "{" * MEGABYTE,
    "closing braces": "}" * MEGABYTE,
    "dollars": "$" * MEGABYTE,
    "answer words": "Answer: " * (MEGABYTE // 8),
    "answer sentences": "the answer is " * (MEGABYTE // 14),
    "answer lines of parentheses": ("Answer: " + r"\(" * 700 + "\n") * 700,
    "answer lines of commas": ("Answer: " + " ," * 700 + "\n") * 700,
    "answer lines of dollars": ("Answer: " + "$a" * 700 + "\n") * 700,
    "thoughts": "<think>" * (MEGABYTE // 7),
    "half tags": "<   " * (MEGABYTE // 4),
    "spaces": " " * MEGABYTE,
    "lines": "\n" * MEGABYTE,
    "backslashes": "\\" * MEGABYTE,
    "hashes": "#" * MEGABYTE,
    "stars": "*" * MEGABYTE,
    "one word": "a" * MEGABYTE,
    "digits": r"\boxed{" + "9" * MEGABYTE + "}",
    "nulls": "\0" * MEGABYTE,
    "lone surrogates": "\ud800" * MEGABYTE,
    "Chinese": "答案" * (MEGABYTE // 2),
}
NASTY = {
    "power tower": "9^{9^{9}}",
    "deep parentheses": "(" * 480 + "1" + ")" * 480,
    "deep roots": r"\sqrt{" * 140 + "2" + "}" * 140,
    "deep text": r"\text{a " * 120 + "}" * 121,
    "many signs": r"\pm 1," * 120,
    "many equals": "x=" * 400,
    "many carets": "^" * 900,
    "long label": r"\alpha" * 120 + "^=1",
    "long list": "1," * 490 + "2",
    "long product": "(a+b)(c+d)(e+f)(x+y)" * 40,
    "integral": r"\int e^{x^{x}} \sin(x^x) dx",
    "digits": "9" * 990,
}
SPOILERS = [
    r"\infty - \infty",
    r"\frac{0}{0}",
    r"0^{-1}",
    "a" * 999,
    "\\",
    "{",
    "}",
    "$",
    "()",
    "[",
    "1/0",
]


@pytest.mark.parametrize("name", LARGE)
def test_large_responses_are_quick_and_wrong(name):
    for kind, gold in GOLDS.items():
        start = time.monotonic()
        assert not check(LARGE[name], gold, kind).correct
        assert time.monotonic() - start < LIMIT


def test_an_answer_after_a_megabyte_is_found():
    assert check(LARGE["garbage"] + "\n\\boxed{70}", "70").correct
    assert check("a " * 500_000 + "\nAnswer: 70", "70").correct
    start = time.monotonic()
    assert check("{" * 50 * MEGABYTE + "\nAnswer: 70", "70").correct
    assert time.monotonic() - start < LIMIT


def test_nasty_boxes_end_in_time_and_leave_the_checker_sound():
    def judge(name: str) -> tuple[str, bool, bool]:
        start = time.monotonic()
        correct = check(rf"\boxed{{{NASTY[name]}}}", "70").correct
        return name, correct, time.monotonic() - start < LIMIT

    with ThreadPoolExecutor(WORKERS) as threads:  # a thread for each worker: none has to wait
        assert list(threads.map(judge, NASTY)) == [(name, False, True) for name in NASTY]
    assert check(r"\boxed{\sqrt{20}}", r"2\sqrt{5}").correct


@pytest.mark.parametrize("box", SPOILERS)
def test_odd_boxes_are_wrong(box):
    assert not check(rf"\boxed{{{box}}}", "70").correct
    assert not check(f"Answer: {box}", r"\frac{x}{3}").correct


def test_code_is_not_run(tmp_path):
    target = tmp_path / "made"
    for call in (f"open('{target}','w')", f"__import__('os').mkdir('{target}')"):
        assert not check(rf"\boxed{{{call}}}", "70").correct
        assert not check(f"Answer: {call}", r"x+1").correct
    assert not target.exists()
