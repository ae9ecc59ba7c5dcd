"""The skill families of the micro task: each draws a word problem of a given difficulty.

A family is a function (random generator, level) -> `Draft`. Levels run from 1 to 5 and make the
numbers larger, the lists longer or the steps more. Every answer is a whole number of at most four
digits, 0 or above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from random import Random

LEVELS = (1, 2, 3, 4, 5)

NAMES = (
    *("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Ida", "Jonas"),
    *("Kate", "Leo", "Maria", "Noah", "Olga", "Paul", "Rosa", "Sam", "Tina", "Victor"),
)
THINGS = (
    *("apples", "books", "coins", "cards", "eggs", "flowers", "keys", "lemons", "nuts", "pens"),
    *("plums", "shells", "stamps", "stones", "toys"),
)
MONTHS = {
    "January": 31,
    "February": 28,
    "March": 31,
    "April": 30,
    "May": 31,
    "June": 30,
    "July": 31,
    "August": 31,
    "September": 30,
    "October": 31,
    "November": 30,
    "December": 31,
}
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
TOPS = (9, 12, 20, 40, 99)  # the largest operand at each level, where a family says nothing else


@dataclass(frozen=True)
class Draft:
    """One drawn problem: what it asks, in several wordings, and the answer.

    `facts` is all that the answer depends on, and nothing else: names and things are left out.
    """

    facts: tuple[object, ...]
    answer: int
    wordings: tuple[str, ...]


Family = Callable[[Random, int], Draft]
FAMILIES: dict[str, Family] = {}


def family(draw: Family) -> Family:
    """Registers a family under the name of its function."""
    FAMILIES[draw.__name__] = draw
    return draw


@family
def addition(rng: Random, level: int) -> Draft:
    top = TOPS[level - 1]
    a, b = rng.randint(2, top), rng.randint(2, top)
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    return Draft(
        (a, b),
        a + b,
        (
            f"What is {a} plus {b}?",
            f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?",
            f"Add {b} to {a}.",
            f"There are {a} {thing} in one box and {b} {thing} in another. How many are there?",
        ),
    )


@family
def subtraction(rng: Random, level: int) -> Draft:
    top = TOPS[level - 1]
    b, a = sorted((rng.randint(2, top), rng.randint(4, top + 4)))
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    return Draft(
        (a, b),
        a - b,
        (
            f"What is {a} minus {b}?",
            f"{name} has {a} {thing} and gives away {b}. How many {thing} are left?",
            f"Take {b} away from {a}.",
            f"Of {a} {thing} in a box, {name} takes {b}. How many stay in the box?",
        ),
    )


@family
def multiplication(rng: Random, level: int) -> Draft:
    a = rng.randint(2, (7, 7, 9, 9, 12)[level - 1])
    b = rng.randint(2, (5, 7, 7, 9, 12)[level - 1])
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    return Draft(
        (a, b),
        a * b,
        (
            f"What is {a} times {b}?",
            f"{name} fills {a} boxes with {b} {thing} each. How many {thing} is that?",
            f"Multiply {a} by {b}.",
            f"There are {a} rows of {b} {thing}. How many {thing} are there?",
        ),
    )


@family
def division(rng: Random, level: int) -> Draft:
    share = rng.randint(2, (9, 9, 9, 12, 20)[level - 1])
    parts = rng.randint(2, (4, 5, 9, 9, 12)[level - 1])
    total = share * parts
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    return Draft(
        (total, parts),
        share,
        (
            f"What is {total} divided by {parts}?",
            f"{name} shares {total} {thing} equally among {parts} friends. How many does each get?",
            f"{total} {thing} are packed into {parts} equal boxes. How many are in each box?",
            f"How many times does {parts} go into {total}?",
        ),
    )


@family
def remainders(rng: Random, level: int) -> Draft:
    divisor = rng.randint(2, (3, 5, 6, 9, 9)[level - 1])
    total = rng.randint(divisor + 1, (15, 20, 30, 50, 99)[level - 1])
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    return Draft(
        (total, divisor),
        total % divisor,
        (
            f"What is the remainder of {total} divided by {divisor}?",
            f"{name} packs {total} {thing} into bags of {divisor}. How many {thing} are left over?",
            f"What is left when {total} is divided by {divisor}?",
        ),
    )


@family
def fractions(rng: Random, level: int) -> Draft:
    bottom = rng.randint(2, (4, 4, 5, 6, 9)[level - 1])
    top = 1 if level <= 2 else rng.randint(1, bottom - 1)
    whole = bottom * rng.randint(2, (9, 12, 9, 10, 12)[level - 1])
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    return Draft(
        (top, bottom, whole),
        top * whole // bottom,
        (
            f"What is {top}/{bottom} of {whole}?",
            (
                f"{name} has {whole} {thing} and loses {top}/{bottom} of them. "
                f"How many {thing} is that?"
            ),
            f"A box holds {whole} {thing}. {top}/{bottom} of them are red. How many are red?",
        ),
    )


@family
def percent(rng: Random, level: int) -> Draft:
    shares = ((50,), (10, 50), (10, 20, 50), (10, 20, 25, 50), range(10, 100, 10))
    share = rng.choice(shares[level - 1])
    step = next(n for n in range(1, 101) if n * share % 100 == 0)
    whole = step * rng.randint(1, (50, 60, 80, 80, 150)[level - 1] // step)
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    return Draft(
        (share, whole),
        share * whole // 100,
        (
            f"What is {share} percent of {whole}?",
            f"{name} sells {share} percent of {whole} {thing}. How many {thing} is that?",
            f"Of {whole} {thing}, {share} percent are blue. How many are blue?",
        ),
    )


@family
def sequences(rng: Random, level: int) -> Draft:
    if level <= 2:  # equal steps up
        first, step = rng.randint(1, 15), rng.randint(1, (3, 6)[level - 1])
        terms = [first + step * i for i in range(5)]
    elif level == 3:  # equal steps down
        step, last = rng.randint(1, 5), rng.randint(0, 20)
        terms = [last + step * (4 - i) for i in range(5)]
    elif level == 4:  # steps that grow by one
        first, step = rng.randint(1, 15), rng.randint(1, 4)
        terms = [first + step * i + comb(i, 2) for i in range(5)]
    else:  # each term the sum of the two before
        terms = [rng.randint(1, 8), rng.randint(1, 8)]
        while len(terms) < 6:
            terms.append(terms[-1] + terms[-2])
    shown = ", ".join(map(str, terms[:-1]))
    name = rng.choice(NAMES)
    return Draft(
        tuple(terms),
        terms[-1],
        (
            f"Which number comes next: {shown}?",
            f"{name} writes {shown}. What is the next number?",
            f"Continue the sequence {shown}.",
        ),
    )


@family
def geometry(rng: Random, level: int) -> Draft:
    long, wide = rng.randint(2, (20, 12, 9, 15, 6)[level - 1]), rng.randint(2, 9)
    name = rng.choice(NAMES)
    facts: tuple[int, ...]
    if level == 1:
        facts, answer, shape = (long,), 4 * long, f"a square of side {long}"
        asked = "perimeter"
    elif level == 2:
        facts, answer, shape = (long, wide), 2 * (long + wide), f"a {long} by {wide} rectangle"
        asked = "perimeter"
    elif level == 3:
        facts, answer, shape = (long, wide), long * wide, f"a {long} by {wide} rectangle"
        asked = "area"
    elif level == 4:
        shape = f"a rectangle of side {wide} and perimeter {2 * (long + wide)}"
        facts, answer, asked = (long, wide), long, "other side"
    else:
        high = rng.randint(2, 5)
        shape = f"a {long} by {wide} by {high} block"
        facts, answer, asked = (long, wide, high), long * wide * high, "volume"
    return Draft(
        (level, *facts),
        answer,
        (
            f"What is the {asked} of {shape}?",
            f"{name} draws {shape}. What is its {asked}?",
            f"Find the {asked} of {shape}.",
        ),
    )


@family
def dates(rng: Random, level: int) -> Draft:
    month = rng.choice(list(MONTHS)[:11])
    following = list(MONTHS)[list(MONTHS).index(month) + 1]
    length, name = MONTHS[month], rng.choice(NAMES)
    if level == 1:  # some days later in the same month
        day, days = rng.randint(1, 19), rng.randint(2, 9)
        answer, span = day + days, f"{days} days"
    elif level == 2:  # some weeks later in the same month
        day, days = rng.randint(1, 13), rng.randint(1, 2) * 7
        answer, span = day + days, f"{days // 7} weeks" if days > 7 else "1 week"
    elif level == 4:  # the end of the month lies between
        day, days = rng.randint(length - 9, length - 1), rng.randint(10, 25)
        answer, span = day + days - length, f"{days} days"
    else:
        return _days_between(rng, level, name, month, following)
    return Draft(
        (month, day, days),
        answer,
        (
            f"Today is {month} {day}. Which day of the month is it in {span}?",
            (
                f"{name} leaves on {month} {day} and comes back {span} later. "
                "On which day of the month is that?"
            ),
            f"Which day of the month is {span} after {month} {day}?",
        ),
    )


def _days_between(rng: Random, level: int, name: str, month: str, following: str) -> Draft:
    """Level 3: two days of one month; level 5: of two months that follow each other."""
    day, end = sorted(rng.sample(range(1, 29), 2))
    answer, until = end - day, month
    if level == 5:
        answer, until = MONTHS[month] - day + end, following
    return Draft(
        (month, day, until, end),
        answer,
        (
            f"How many days are there from {month} {day} to {until} {end}?",
            f"Today is {month} {day}. In how many days is {until} {end}?",
            (
                f"{name} leaves on {month} {day} and comes back on {until} {end}. "
                "How many days later is that?"
            ),
        ),
    )


@family
def clock(rng: Random, level: int) -> Draft:
    hour, minute = rng.randint(1, 11), 5 * rng.randint(0, 10)
    name = rng.choice(NAMES)
    if level == 1:  # whole hours, 12 being followed by 1
        hour, hours = rng.randint(1, 12), rng.randint(2, 11)
        return Draft(
            (hour, hours),
            (hour + hours - 1) % 12 + 1,
            (
                f"It is {hour} o'clock. Which hour does the clock show {hours} hours later?",
                f"{name} starts at {hour} o'clock and works {hours} hours. At which hour is that?",
                f"Which hour is {hours} hours after {hour} o'clock?",
                (
                    f"A train leaves at {hour} o'clock and takes {hours} hours. "
                    "At which hour does it arrive?"
                ),
            ),
        )
    if level == 2:  # within one hour
        minutes = 5 * rng.randint(1, 11 - minute // 5)
    elif level == 3:  # into the next hour
        minutes = 5 * rng.randint(12 - minute // 5, 18)
    elif level == 4:  # up to three hours, any minute
        minute, minutes = rng.randint(0, 59), rng.randint(60, 180)
    else:  # five hours and more
        minute, minutes = rng.randint(0, 59), rng.randint(300, 480)
    end = hour * 60 + minute + minutes
    start = f"{hour}:{minute:02d}"
    stop = f"{(end // 60 - 1) % 12 + 1}:{end % 60:02d}"
    return Draft(
        (start, stop),
        minutes,
        (
            f"How many minutes pass from {start} to {stop}?",
            f"{name} reads from {start} until {stop}. How many minutes is that?",
            f"A train leaves at {start} and arrives at {stop}. How many minutes does it take?",
        ),
    )


@family
def counting(rng: Random, level: int) -> Draft:
    numbers = [rng.randint(1, (4, 5, 9, 9, 9)[level - 1]) for _ in range(level + 3)]
    shown, name = ", ".join(map(str, numbers)), rng.choice(NAMES)
    if level <= 2:
        same = rng.choice(numbers)
        answer, wanted = numbers.count(same), f"equal to {same}"
    elif level == 4:
        answer, wanted = sum(number % 2 == 0 for number in numbers), "even"
    else:
        bound = rng.randint(2, 8)
        answer, wanted = sum(number > bound for number in numbers), f"greater than {bound}"
    return Draft(
        (*numbers, wanted),
        answer,
        (
            f"How many of the numbers {shown} are {wanted}?",
            f"{name} rolls {shown}. How many of these are {wanted}?",
            f"Count the numbers that are {wanted}: {shown}.",
        ),
    )


@family
def comparison(rng: Random, level: int) -> Draft:
    size, top = (2, 2, 3, 4, 3)[level - 1], (9, 50, 50, 99, 50)[level - 1]
    numbers = rng.sample(range(1, top + 1), size)
    shown = ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
    name = rng.choice(NAMES)
    if level == 5:
        answer, asked = max(numbers) - min(numbers), "difference between the largest and smallest"
    elif rng.random() < 0.5:
        answer, asked = max(numbers), "largest"
    else:
        answer, asked = min(numbers), "smallest"
    return Draft(
        (*numbers, asked),
        answer,
        (
            f"What is the {asked} of {shown}?",
            f"{name} finds cards with {shown}. What is the {asked} of them?",
            f"Look at {shown}. Give the {asked} number."
            if level < 5
            else f"Look at {shown}. Give the {asked}.",
        ),
    )


@family
def stories(rng: Random, level: int) -> Draft:
    top = (9, 12, 20, 20, 50)[level - 1]
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    other = rng.choice([person for person in NAMES if person != name])
    a, b = rng.randint(3, top), rng.randint(2, top)
    if level % 2:  # gains, then loses
        c = rng.randint(2, a + b - 1)
        return Draft(
            (a, b, "then", c),
            a + b - c,
            (
                (
                    f"{name} has {a} {thing}, finds {b} and loses {c}. "
                    f"How many {thing} does {name} have?"
                ),
                (
                    f"{name} buys {a} {thing}, then {b} more, and gives {other} {c}. "
                    "How many are left?"
                ),
                (
                    f"A bus with {a} people takes on {b}, then {c} get off. "
                    "How many people are on the bus?"
                ),
            ),
        )
    c = rng.randint(2, 9 if level == 2 else 12)
    b = rng.randint(2, 9)
    return Draft(
        (a, b, "each", c),
        a + b * c,
        (
            f"{name} has {a} {thing} and gets {b} bags of {c}. How many {thing} does {name} have?",
            (
                f"{name} has {a} {thing}. {other} brings {c} {thing} on each of {b} days. "
                f"How many {thing} are there?"
            ),
            (
                f"A bus with {a} people stops {b} times and takes on {c} each time. "
                "How many people are on the bus?"
            ),
        ),
    )


@family
def money(rng: Random, level: int) -> Draft:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    price, count = (
        rng.randint(2, (9, 9, 9, 9, 12)[level - 1]),
        rng.randint(2, 5 if level == 1 else 9),
    )
    if level <= 2:  # what it costs
        return Draft(
            ("cost", price, count),
            price * count,
            (
                f"{name} buys {count} {thing} at {price} dollars each. How many dollars is that?",
                f"What do {count} {thing} cost at {price} dollars each?",
                f"Each of {count} {thing} costs {price} dollars. How many dollars do they cost?",
            ),
        )
    paid = price * count + rng.randint(1, (5, 9, 20)[level - 3])
    return Draft(
        ("change", price, count, paid),
        paid - price * count,
        (
            (
                f"{name} buys {count} {thing} at {price} dollars each and pays with {paid} "
                "dollars. How much change is due?"
            ),
            (
                f"{name} has {paid} dollars and buys {count} {thing} for {price} dollars each. "
                "How many dollars are left?"
            ),
            (
                f"From {paid} dollars, {name} spends {price} dollars on each of {count} days. "
                "How many dollars are left?"
            ),
        ),
    )


@family
def averages(rng: Random, level: int) -> Draft:
    size, top = (2, 2, 3, 3, 4)[level - 1], (9, 20, 9, 20, 20)[level - 1]
    numbers = [rng.randint(1, top) for _ in range(size)]
    numbers[-1] += -sum(numbers) % size
    shown = ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"
    name = rng.choice(NAMES)
    return Draft(
        tuple(numbers),
        sum(numbers) // size,
        (
            f"What is the average of {shown}?",
            f"{name} scores {shown} points. What is the average score?",
            f"Find the mean of {shown}.",
        ),
    )


@family
def digits(rng: Random, level: int) -> Draft:
    length = (2, 2, 3, 3, 4)[level - 1]
    number = [rng.randint(1, 9) for _ in range(length)]
    shown, name = "".join(map(str, number)), rng.choice(NAMES)
    if level == 1:
        asked, answer = "last digit", number[-1]
    elif level == 3:
        asked, answer = "largest digit", max(number)
    else:
        asked, answer = "sum of the digits", sum(number)
    return Draft(
        (asked, shown),
        answer,
        (
            f"What is the {asked} of {shown}?",
            f"{name} writes down {shown}. What is the {asked}?",
            f"Give the {asked} of the number {shown}.",
        ),
    )


@family
def units(rng: Random, level: int) -> Draft:
    small, large, factor = rng.choice(
        (
            ("days", "weeks", 7),
            ("hours", "days", 24),
            ("minutes", "hours", 60),
            ("centimetres", "metres", 100),
            ("pieces", "dozens", 12),
        )
    )
    count = rng.randint(2, (6, 9, 5, 9, 12)[level - 1])
    rest = rng.randint(1, factor - 1) if level >= 3 else 0
    amount = f"{count} {large}" + (f" and {rest} {small}" if rest else "")
    name = rng.choice(NAMES)
    return Draft(
        (large, count, rest),
        count * factor + rest,
        (
            f"How many {small} are {amount}?",
            f"{name} counts {amount}. How many {small} is that?",
            f"Write {amount} in {small}.",
        ),
    )


@family
def positions(rng: Random, level: int) -> Draft:
    size = (3, 4, 4, 5, 4)[level - 1]
    numbers = rng.sample(range(1, (9, 9, 20, 50, 20)[level - 1] + 1), size)
    shown, name = ", ".join(map(str, numbers)), rng.choice(NAMES)
    place = rng.randint(1, size)
    if level == 5:
        place = rng.choice((2, size - 1))
        answer = sorted(numbers)[place - 1]
        asked = "second smallest" if place == 2 else "second largest"
    elif level in (2, 4) and place > 1:
        answer, asked = numbers[-place], f"{ORDINALS[place - 1]} from the end"
    else:
        answer, asked = numbers[place - 1], ORDINALS[place - 1]
    return Draft(
        (*numbers, asked),
        answer,
        (
            f"Which number is {asked} in {shown}?",
            f"{name} reads out {shown}. Which number is {asked}?",
            f"Give the number that is {asked} in the list {shown}.",
        ),
    )


@family
def ages(rng: Random, level: int) -> Draft:
    name, other = rng.sample(NAMES, 2)
    age, gap = rng.randint(4, (9, 15, 20, 20, 30)[level - 1]), rng.randint(2, 9)
    if level == 1:
        answer, story = age + gap, f"{name} is {age} and {other} is {gap} years older."
        asked = f"How old is {other}?"
    elif level == 2:
        age += gap
        answer, story = age - gap, f"{name} is {age} and {other} is {gap} years younger."
        asked = f"How old is {other}?"
    elif level == 3:
        answer, story = 2 * age + gap, f"{name} is {age} and {other} is {gap} years older."
        asked = "How old are they together?"
    elif level == 4:
        answer, story = 2 * age + gap, f"{other} is twice as old as {name}, who is {age}."
        asked = f"How old is {other} in {gap} years?"
    else:
        answer, story = age, f"{other} is twice as old as {name}. Together they are {3 * age}."
        asked = f"How old is {name}?"
        gap = 0
    return Draft(
        (level, age, gap),
        answer,
        (
            f"{story} {asked}",
            f"{asked} {story}",
            f"This is known: {story} {asked}",
        ),
    )
