"""Whether two canonical answers mean the same. Runs in a worker process: it may hang or crash.

Structure (lists, sets, tuples, unions) is compared here, item by item; single expressions by
exact rationals where both are numbers, else by math-verify. docs/answers.md lists the conventions.
"""

import re
from fractions import Fraction

from latex2sympy2_extended import NormalizationConfig
from math_verify import parse, verify
from math_verify.parser import LatexExtractionConfig
from sympy import Basic, Expr, I, MatrixBase, Rational
from sympy.logic.boolalg import Boolean

from v0_bench.answers.choice import letter_of
from v0_bench.answers.parts import Part, split_answer
from v0_bench.answers.quantity import (
    Quantity,
    function_argument,
    is_relation,
    labels_clash,
    read_quantity,
    units_clash,
)
from v0_bench.answers.spelling import equal_numbers, key, rational, rounds_to

_CONFIG = LatexExtractionConfig(
    boxed_match_priority=-1,
    normalization_config=NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none",
        equations=False,
    ),
)  # fmt: skip
_WORDS = re.compile(r"\\text\{([^{}]*)\}|\(?([A-Z])\)|([A-Za-z]{3,}(?: [A-Za-z]+)*)")
_DIGITS = 40


def same_answer(gold: str, given: str) -> bool:
    """Whether the canonical answer `given` means the canonical answer `gold`."""
    if key(gold) == key(given):
        return True
    return _same_part(split_answer(gold), split_answer(given))


def _same_part(gold: Part, given: Part) -> bool:
    kinds = {gold.kind, given.kind}
    if kinds == {"atom"}:
        return same_item(gold.text, given.text)
    if kinds <= {"list", "set", "atom"}:
        return _same_collection(gold, given, "set" in kinds)
    if kinds <= {"union", "list"} and _same_items_any_order(list(gold.items), list(given.items)):
        return True  # `x < 2 or x > 3` is a union written as a list
    if kinds == {"matrix"}:
        return _same_matrix(gold, given)
    if kinds == {"matrix", "()"}:
        return _in_order(_vector(gold), _vector(given))
    if kinds == {"()", "list"} or (len(kinds) == 1 and "union" not in kinds):
        return _in_order(gold.items, given.items)
    if _labelled(gold, given):
        return True
    # an inequality against an interval, a union cut in other places
    return (_is_range(gold) or _is_range(given)) and _verified(gold.text, given.text)


def _labelled(gold: Part, given: Part) -> bool:
    """A bracketed answer behind a label on one side: `x \\in [1, 2]`, `(x, y) = (3, 4)`."""
    stripped = [
        split_answer(read_quantity(part.text).value) if part.kind == "atom" else part
        for part in (gold, given)
    ]
    if stripped == [gold, given] or "atom" in {part.kind for part in stripped}:
        return False
    return _same_part(stripped[0], stripped[1])


def _same_collection(gold: Part, given: Part, as_set: bool) -> bool:
    if gold.kind == "atom" and given.kind == "list":  # one value, said in several ways
        return all(_same_part(gold, part) for part in given.items)
    left, right = list(gold.items or (gold,)), list(given.items or (given,))
    if gold.kind == "set" and not gold.items:
        left = []
    if given.kind == "set" and not given.items:
        right = []
    if as_set:
        left, right = _distinct(left), _distinct(right)
    return _same_items_any_order(left, right)


def _distinct(parts: list[Part]) -> list[Part]:
    kept: list[Part] = []
    for part in parts:
        if not any(_same_part(part, other) for other in kept):
            kept.append(part)
    return kept


def _same_items_any_order(gold: list[Part], given: list[Part]) -> bool:
    """A one-to-one matching; equality is transitive, so the first match will do."""
    if len(gold) != len(given) or len(gold) > 64:
        return False
    rest = list(given)
    for part in gold:
        found = next((i for i, other in enumerate(rest) if _same_part(part, other)), None)
        if found is None:
            return False
        del rest[found]
    return True


def _in_order(gold: tuple[Part, ...], given: tuple[Part, ...]) -> bool:
    return len(gold) == len(given) and all(map(_same_part, gold, given))


def _same_matrix(gold: Part, given: Part) -> bool:
    return len(gold.items) == len(given.items) and all(
        _in_order(left.items, right.items)
        for left, right in zip(gold.items, given.items, strict=True)
    )


def _vector(part: Part) -> tuple[Part, ...]:
    """The entries of a one-row or one-column matrix or of a tuple; nothing for other matrices."""
    if part.kind != "matrix":
        return part.items
    if len(part.items) == 1:
        return part.items[0].items
    return (
        tuple(row.items[0] for row in part.items)
        if all(len(row.items) == 1 for row in part.items)
        else ()
    )


def _is_range(part: Part) -> bool:
    return part.kind == "union" or is_relation(part.text) or r"\infty" in part.text


def same_item(gold: str, given: str) -> bool:
    """Whether two single expressions, each with its label, unit, percent and base, agree."""
    if key(gold) == key(given):
        return True
    words = _words(gold)
    if len(words) == 1:
        return words == (letter_of(given) or "").lower()
    if words:
        return words == _words(given)
    if is_relation(gold) or is_relation(given):
        return _verified(gold, given)
    left, right = read_quantity(gold), read_quantity(given)
    if labels_clash(left.label, right.label) or units_clash(left, right):
        return False
    if left.base or right.base:
        return _same_in_base(left, right)
    if _same_value(left, right):
        return True
    return "=" in gold and "=" in given and _verified(gold, given)


def _words(text: str) -> str:
    r"""The words of an answer that is words only (`\text{east}`, `(B)`), in lower case."""
    match = _WORDS.fullmatch(text.strip())
    if match is None:
        return ""
    words = next(group for group in match.groups() if group is not None)
    return re.sub(r"[^\w]+", " ", words.lower()).strip()


def _same_in_base(gold: Quantity, given: Quantity) -> bool:
    """The digits as written; the base may be left out of the response, not out of the gold."""
    if gold.base and not given.base:
        return gold.value == given.value
    return gold.value == given.value and (gold.base or "10") == given.base


def _same_value(gold: Quantity, given: Quantity) -> bool:
    other = _rename_argument(gold.label, given.label, given.value)
    if gold.percent == given.percent:
        return _equal(gold.value, other)
    with_sign, without = (gold.value, other) if gold.percent else (other, gold.value)
    return _equal(without, with_sign) or _equal(without, rf"\frac{{{with_sign}}}{{100}}")


def _rename_argument(gold_label: str, given_label: str, value: str) -> str:
    """`x+1` said of f(x), where the gold speaks of f(n): `n+1`."""
    wanted, written = function_argument(gold_label), function_argument(given_label)
    if len(wanted) == len(written) == 1 and wanted != written:
        return re.sub(rf"(?<![\\a-zA-Z]){written}(?![a-zA-Z])", wanted, value)
    return value


def _equal(gold: str, given: str) -> bool:
    """Two bare expressions: as strings, as exact numbers, else by math-verify."""
    if key(gold) == key(given):
        return True
    if ("=" in gold) != ("=" in given):
        return False  # an equation proper is not a value
    if r"\infty" in gold + given:
        return False  # infinities are compared as written
    left, right = _number(gold), _number(given)
    if left is not None and right is not None:
        return equal_numbers(left, right, given)
    return _verified(gold, given)


def _number(text: str) -> Fraction | None:
    found = re.fullmatch(r"\\frac\{(.*)\}\{100\}", text)
    inner = rational(found.group(1)) if found else None
    return inner / 100 if inner is not None else rational(text)


def _verified(gold: str, given: str) -> bool:
    left, right = _parsed(gold), _parsed(given)
    if left is None or right is None:
        return False
    if _is_constant(left) and _is_constant(right):
        return _same_constant(left, right, given)
    if is_relation(gold) and isinstance(left, Boolean) and isinstance(right, Boolean):
        return _same_range(left, right)
    return bool(verify(left, right, timeout_seconds=None, allow_set_relation_comp=True))


def _parsed(text: str) -> Basic | MatrixBase | None:
    """math-verify's reading of one expression, with decimals as exact fractions."""
    text = re.sub(r"(?<![\d.])(\d*)\.(\d+)(?![\d.])", _decimal_fraction, text)
    text = re.sub(r"(\d+)\s?\\text\{degrees\}", r"(\\frac{\1\\pi}{180})", text)
    found = parse(f"${text}$", [_CONFIG], fallback_mode="no_fallback", parsing_timeout=None)
    if not found or not isinstance(found[0], Basic | MatrixBase):
        return None
    imaginary = {symbol: I for symbol in found[0].free_symbols if str(symbol) == "i"}
    return found[0].xreplace(imaginary) if imaginary else found[0]


def _decimal_fraction(match: re.Match[str]) -> str:
    whole, part = match.groups()
    return rf"\frac{{{int(whole + part)}}}{{{10 ** len(part)}}}"


def _same_range(gold: Boolean, given: Boolean) -> bool:
    """Two inequalities: in one and the same variable as sets of numbers, else by math-verify."""
    if len(gold.free_symbols) == 1 and gold.free_symbols == given.free_symbols:
        return bool(gold.as_set() == given.as_set())
    return bool(verify(gold, given, timeout_seconds=None))


def _is_constant(value: Basic | MatrixBase) -> bool:
    return isinstance(value, Expr) and not value.free_symbols and value.is_number is True


def _same_constant(gold: Basic, given: Basic, text: str) -> bool:
    """Exactly equal rationals, else 28 equal digits; six digits may round an irrational gold."""
    left, right = gold.doit(), given.doit()
    if left.is_Rational and right.is_Rational:
        return bool(left == right)
    left, right = left.evalf(_DIGITS), right.evalf(_DIGITS)
    if not (left.is_finite and right.is_finite):
        return False
    if abs(left - right) <= max(abs(left), abs(right)) * Rational(1, 10**28):
        return True
    if rational(text) is None or not left.is_real:
        return False
    return rounds_to(Fraction(str(left)), Fraction(str(right)), text)
