"""The micro task's problems, each solved again from its text alone, in another way."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from datetime import date, datetime, timedelta
from fractions import Fraction
from itertools import pairwise

import pandas as pd
import pytest

from v0_bench.answers import check
from v0_bench.micro import FAMILIES, LEVELS, held_out, make_problems, training_set
from v0_bench.pool.groups import query_groups

HELD, TRAINING = held_out(), training_set()
MONTHS = [date(2026, month, 1).strftime("%B") for month in range(1, 13)]
PLACES = ["first", "second", "third", "fourth", "fifth", "sixth"]


def addition(text: str, numbers: list[int]) -> int:
    return sum(numbers)


def subtraction(text: str, numbers: list[int]) -> int:
    return max(numbers) - min(numbers)


def multiplication(text: str, numbers: list[int]) -> int:
    return sum([numbers[0]] * numbers[1])


def division(text: str, numbers: list[int]) -> int:
    return next(n for n in range(1000) if n * min(numbers) == max(numbers))


def remainders(text: str, numbers: list[int]) -> int:
    left, divisor = numbers
    while left >= divisor:
        left -= divisor
    return left


def fractions(text: str, numbers: list[int]) -> int:
    share = Fraction(re.search(r"\d+/\d+", text)[0])
    whole = int(re.search(r"(?<![\d/])\d+(?![\d/])", text)[0])
    return int(share * whole)


def percent(text: str, numbers: list[int]) -> int:
    share = int(re.search(r"(\d+) percent", text)[1])
    whole = int(re.search(r"\d+", text.replace(f"{share} percent", ""))[0])
    assert whole * share % 100 == 0
    return int(whole * Fraction(share, 100))


def sequences(text: str, numbers: list[int]) -> int:
    steps = [b - a for a, b in pairwise(numbers)]
    if len(numbers) == 5 and all(
        numbers[i] == numbers[i - 1] + numbers[i - 2] for i in range(2, 5)
    ):
        return numbers[-1] + numbers[-2]
    growth = steps[-1] - steps[-2]
    return numbers[-1] + steps[-1] + growth


def geometry(text: str, numbers: list[int]) -> int:
    if "square" in text:
        return sum(numbers * 4)
    if "other side" in text:
        side, around = numbers
        return (around - 2 * side) // 2
    if "perimeter" in text:
        return sum(numbers) + sum(numbers)
    cells = 1
    for number in numbers:
        cells = sum([cells] * number)
    return cells


def dates(text: str, numbers: list[int]) -> int:
    days = [
        date(2026, MONTHS.index(month) + 1, int(day))
        for month, day in re.findall(rf"({'|'.join(MONTHS)}) (\d+)", text)
    ]
    if len(days) == 2:
        return abs((days[1] - days[0]).days)
    count, unit = re.search(r"(\d+) (day|week)", text).groups()
    return (days[0] + timedelta(**{f"{unit}s": int(count)})).day


def clock(text: str, numbers: list[int]) -> int:
    times = [datetime.strptime(shown, "%H:%M") for shown in re.findall(r"\d+:\d\d", text)]
    if times:
        return int((times[1] - times[0]).total_seconds() / 60) % 720
    start = int(re.search(r"(\d+) o'clock", text)[1])
    hours = int(re.search(r"(\d+) hours", text)[1])
    return int((datetime(2026, 1, 1, start) + timedelta(hours=hours)).strftime("%I"))


def counting(text: str, numbers: list[int]) -> int:
    listed = [int(n) for n in re.search(r"\d(?:, \d)+", text)[0].split(", ")]
    if "even" in text:
        return sum(n in (2, 4, 6, 8) for n in listed)
    kind, bound = re.search(r"(equal to|greater than) (\d)", text).groups()
    return len([n for n in listed if (n == int(bound) if kind[0] == "e" else n > int(bound))])


def comparison(text: str, numbers: list[int]) -> int:
    ordered = sorted(numbers)
    if "difference" in text:
        return ordered[-1] - ordered[0]
    return ordered[-1] if "largest" in text else ordered[0]


def stories(text: str, numbers: list[int]) -> int:
    first, second, third = numbers
    if re.search("loses|gives|get off", text):
        return first + second - third
    return first + second * third


def money(text: str, numbers: list[int]) -> int:
    if re.search("change|left", text):
        small, middle, paid = sorted(numbers)
        return paid - small * middle
    return numbers[0] * numbers[1]


def averages(text: str, numbers: list[int]) -> int:
    mean = statistics.mean(numbers)
    assert mean == int(mean)
    return int(mean)


def digits(text: str, numbers: list[int]) -> int:
    (number,) = numbers
    listed = []
    while number:
        number, digit = divmod(number, 10)
        listed.append(digit)
    if "last" in text:
        return listed[0]
    return max(listed) if "largest" in text else sum(listed)


def units(text: str, numbers: list[int]) -> int:
    inside = {"weeks": 7, "days": 24, "hours": 60, "metres": 100, "dozens": 12}
    count, large = re.search(r"(\d+) (weeks|days|hours|metres|dozens)", text).groups()
    return int(count) * inside[large] + sum(numbers[1:])


def positions(text: str, numbers: list[int]) -> int:
    if "second smallest" in text or "second largest" in text:
        rest = sorted(set(numbers))
        return rest[1] if "smallest" in text else rest[-2]
    place = PLACES.index(re.search("|".join(PLACES), text)[0])
    return numbers[-1 - place] if "from the end" in text else numbers[place]


def ages(text: str, numbers: list[int]) -> int:
    if "older." in text:
        sum_wanted = "together?" in text
        return numbers[0] + numbers[1] + (numbers[0] if sum_wanted else 0)
    if "younger" in text:
        return numbers[0] - numbers[1]
    if "Together they are" in text:
        return numbers[0] // 3
    years = int(re.search(r"in (\d+) years", text)[1])
    return 2 * int(re.search(r"who is (\d+)", text)[1]) + years


SOLVERS = {
    solver.__name__: solver
    for solver in (
        *(addition, subtraction, multiplication, division, remainders, fractions, percent),
        *(sequences, geometry, dates, clock, counting, comparison, stories, money, averages),
        *(digits, units, positions, ages),
    )
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_answer_is_right(family: str) -> None:
    problems = [problem for problem in (*HELD, *TRAINING) if problem.family == family]
    wrong = []
    for problem in problems:
        numbers = [int(number) for number in re.findall(r"\d+", problem.text)]
        if str(SOLVERS[family](problem.text, numbers)) != problem.answer:
            wrong.append(problem)
    assert len(problems) == 200
    assert not wrong, wrong[:3]


def test_the_checker_accepts_each_gold_and_rejects_a_near_miss() -> None:
    for problem in HELD:
        assert check(f"\\boxed{{{problem.answer}}}", problem.answer, "integer").correct
        assert not check(f"\\boxed{{{int(problem.answer) + 1}}}", problem.answer, "integer").correct


def test_the_sets_have_every_family_level_and_several_wordings() -> None:
    assert len(FAMILIES) >= 16
    for problems, per_level in ((HELD, 8), (TRAINING, 32)):
        cells = Counter((problem.family, problem.level) for problem in problems)
        assert cells == {(family, level): per_level for family in FAMILIES for level in LEVELS}
        for family in FAMILIES:
            wordings = {problem.wording for problem in problems if problem.family == family}
            assert len(wordings) >= 3
    ids = [problem.query_id for problem in (*HELD, *TRAINING)]
    assert len(set(ids)) == len(ids) == 4000
    assert HELD[17].query_id == "addition-held-017"
    assert TRAINING[0].query_id == "addition-train-000"


def test_no_held_out_problem_is_trained_on_under_another_name_or_seed() -> None:
    held = {(problem.family, problem.facts, problem.wording) for problem in HELD}
    for seed in (0, 1):
        trained = make_problems("train", 32, seed)
        assert not held & {(problem.family, problem.facts, problem.wording) for problem in trained}
    assert not {p.text for p in HELD} & {p.text for p in TRAINING}


def test_levels_get_harder() -> None:
    """By what a reader must do: longer texts or larger numbers."""
    for family in FAMILIES:
        size = {
            level: statistics.mean(
                sum(map(int, re.findall(r"\d+", p.text))) + len(re.findall(r"\d+", p.text))
                for p in TRAINING
                if p.family == family and p.level == level
            )
            for level in (1, 5)
        }
        assert size[5] > size[1], family


def test_a_seed_gives_the_same_problems_and_another_seed_others() -> None:
    assert make_problems("held", 8) == HELD
    assert make_problems("held", 2, seed=1) != make_problems("held", 2)


def test_the_held_out_set_never_changes() -> None:
    """Published outcomes belong to these very texts."""
    import hashlib

    for problems, digest in ((HELD, "7335b87d3e325efe"), (TRAINING, "766183e42202e9c4")):
        shown = repr([(problem.query_id, problem.text, problem.answer) for problem in problems])
        assert hashlib.sha256(shown.encode()).hexdigest()[:16] == digest


def test_problems_are_no_near_duplicates() -> None:
    problems = [*HELD, *TRAINING]
    frame = pd.DataFrame(
        {
            "query_id": [problem.query_id for problem in problems],
            "dataset": [problem.family for problem in problems],
            "text": [problem.text for problem in problems],
            "group": None,
        }
    )
    sizes = Counter(query_groups(frame))
    assert max(sizes.values()) <= 3
    assert len(sizes) > 0.99 * len(problems)
    groups = dict(zip(frame["query_id"], query_groups(frame), strict=True))
    assert len({groups[problem.query_id] for problem in HELD}) >= 799
