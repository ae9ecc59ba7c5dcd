r"""Peel one canonical item: `x = 5 \text{ cm}^2` is the value `5`, label `x`, unit `cm^2`."""

import re
from dataclasses import dataclass

_RELATION = re.compile(r"\\(?:le|ge|ne)(?![a-zA-Z])|[<>]")
_EQUALS = re.compile(r"=|\\approx(?![a-zA-Z])|\\equiv(?![a-zA-Z])")
_DECIMAL = re.compile(r"-?\d*\.\d+")
_EXACT = re.compile(r"(?:\\(?:frac|sqrt|pi|cdot)|[\d{}()/+\- ])+")  # no letters, no point
_MEMBER = re.compile(r"^\s*\\?[a-zA-Z]+\s*\\in(?![a-zA-Z])\s*")
_LEAD = re.compile(r"^\\text\{[^{}]*(?::|\bis)\s*\}\s*:?\s*(?=\S)")
_BARE_LABEL = re.compile(r"\\?[a-zA-Z]+'?\s*(?:_\s*(?:\w|\{[^{}]*\}))?")
_FUNCTION_LABEL = re.compile(r"(\\?[a-zA-Z]+)'?\s*(?:_\s*(?:\w|\{[^{}]*\}))?\s*\(([^()]*)\)")
_QUANTITY_LABEL = re.compile(
    r"(?:\\[a-zA-Z]++|[A-Za-z_{}()|,'+ ]|(?<![\d ])\d(?![a-zA-Z(\\])){1,80}"
)
_TEXT_UNIT = re.compile(r"(.*[^\s,])\s*\\text\{([^{}]*)\}\s*(?:\^\s*\{?\s*([23])\s*\}?)?", re.S)
_WORD_UNIT = re.compile(
    r"(.*[\d})])\s?((?:(?:square|cubic|sq|cu)\.? )?[a-zA-Z]+(?: per [a-zA-Z]+|/[a-zA-Z]+)?)\.?"
    r"(?:\^\{?([23])\}?)?",
    re.S,
)
_BASE = re.compile(r"([0-9A-Z]+)\s?_\s?\{?\s?(?:\\text\{\s?)?(\w+)\s?\}?\}?")
_BASE_WORDS = re.compile(
    r"([0-9A-Z]+)\s?\\text\{\s?\(?(?:in )?base (\w+)\)?\}|"
    r"([0-9A-Z]+)\s?\(?(?:in )?base (\w+)\)?"
)
_NUMERALS = {
    "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8",
    "nine": "9", "ten": "10", "eleven": "11", "twelve": "12", "sixteen": "16",
}  # fmt: skip

# alias -> unit. Plain words count as units only when listed here; \text{} words always do.
_UNIT_WORDS = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre",
    "km": "kilometer kilometre", "inch": "inches in", "foot": "feet ft", "yard": "yd",
    "mile": "mi", "gram": "g gm", "kg": "kilogram", "mg": "milligram", "pound": "lb",
    "ounce": "oz", "ton": "tonne", "second": "sec s", "minute": "min", "hour": "hr h",
    "day": "", "week": "", "month": "", "year": "yr", "liter": "litre l", "ml": "milliliter",
    "gallon": "gal", "degree": "deg", "radian": "rad", "dollar": "usd", "cent": "", "unit": "",
    "euro": "", "people": "person", "student": "", "way": "", "point": "pt", "apple": "",
    "coin": "", "hz": "hertz", "newton": "n", "joule": "j", "watt": "w", "volt": "v",
    "mph": "", "ft": "", "kph": "", "book": "", "card": "", "solution": "", "triple": "",
    "pair": "", "square": "", "number": "", "integer": "", "digit": "", "term": "", "ball": "",
    "marble": "", "child": "children", "girl": "", "boy": "", "page": "", "mole": "mol",
    "acre": "", "bit": "", "byte": "", "cup": "", "time": "", "element": "", "game": "",
}  # fmt: skip
_ALIASES = {
    alias: unit for unit, words in _UNIT_WORDS.items() for alias in [unit, *words.split()]
} | {"ft": "foot"}
_NOT_UNITS = re.compile(
    r"\b(?:and|or|not|if|for|where|when|mod|modulo|no|hundred|thousand|million|billion|trillion|"
    r"dozen|factorial|squared|cubed|times|plus|minus|more|less|than|at least|at most|over|"
    r"divided|to|is|are|odd|even|integers?|all|any|only|base)\b",
    re.I,
)


@dataclass(frozen=True)
class Quantity:
    """An item's value with what was written around it; empty strings for what was not."""

    value: str
    label: str = ""
    unit: str = ""
    percent: bool = False
    base: str = ""


def read_quantity(text: str) -> Quantity:
    """Separate label, value, unit, percent sign and number base of a canonical item."""
    text = _MEMBER.sub("", _LEAD.sub("", text.strip()))
    label, value = _split_label(text)
    if found := _base(value):
        return Quantity(found[0], label, base=found[1])
    value, unit = _split_unit(value)
    percent = value.endswith("%")
    return Quantity(value.rstrip("% ."), label, unit, percent)


def is_relation(text: str) -> bool:
    """Whether the text states an inequality."""
    return _RELATION.search(text) is not None


def labels_clash(gold: str, given: str) -> bool:
    """Two names of the same sort that differ: `x` and `y`, or `f(x)` and `g(x)`."""
    for pattern in (_BARE_LABEL, _FUNCTION_LABEL):
        if pattern.fullmatch(gold) and pattern.fullmatch(given):
            return _first_name(gold) != _first_name(given)
    return False


def units_clash(gold: Quantity, given: Quantity) -> bool:
    """Both have a unit and the units differ; nothing is converted."""
    return bool(gold.unit and given.unit) and gold.unit != given.unit


def function_argument(label: str) -> str:
    """The argument of a label such as `f(x)`: `x`; empty for any other label."""
    match = _FUNCTION_LABEL.fullmatch(label)
    return match.group(2).strip() if match else ""


def _first_name(label: str) -> str:
    found = re.search(r"[a-zA-Z]+", label)
    return found.group()[:1].lower() if found else ""


def _split_label(text: str) -> tuple[str, str]:
    """(label, value) of `x = 5`, `m+n = 20 + 50 = 70`; an equation proper stays whole."""
    pieces = [piece.strip() for piece in _EQUALS.split(text)]
    if len(pieces) == 1 or is_relation(text):
        return "", text
    if _DECIMAL.fullmatch(pieces[-1]) and _EXACT.fullmatch(pieces[-2]):
        pieces.pop()  # `1/3 = 0.333`, `5\sqrt{2} \approx 7.07`: the exact form is the answer
    if len(pieces) == 1:
        return "", pieces[0]
    label, value = pieces[0], pieces[-1]
    if _EXACT.fullmatch(label) and _QUANTITY_LABEL.fullmatch(value) and re.search("[a-z]", value):
        label, value = value, label  # `70 = m + n`
    named = _BARE_LABEL.fullmatch(label) or _FUNCTION_LABEL.fullmatch(label)
    if named or _QUANTITY_LABEL.fullmatch(label) or len(pieces) > 2:
        return label, value
    return ("", text) if re.search(r"[a-zA-Z]", label) else (label, value)


def _split_unit(text: str) -> tuple[str, str]:
    if match := _TEXT_UNIT.fullmatch(text):
        value, words, power = match.groups()
        angle = re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", value)
        if not _NOT_UNITS.search(words) and not angle and not value.endswith(("_", "^", "{")):
            return value.strip(), _unit(words, power)
    elif match := _WORD_UNIT.fullmatch(text):
        value, words, power = match.groups()
        if all(is_unit_word(word) for word in re.findall("[a-zA-Z]+", words)):
            return value.strip(), _unit(words, power)
    return text, ""


def is_unit_word(word: str) -> bool:
    """Whether a plain word after a number is read as a unit."""
    if len(word) == 1:
        return False  # a variable
    word = word.lower()
    return word in {"square", "cubic", "sq", "cu", "per"} or _singular(word) in _ALIASES


def _unit(words: str, power: str | None) -> str:
    """`square inches`, `sq. in`, `inches` with power 2 -> `inch^2`; `km/h` -> `km/hour`."""
    words = words.lower().replace("per", "/").replace(".", "").strip(" ()")
    match = re.match(r"(square|sq|cubic|cu) (.*)", words)
    if match:
        power, words = ("2" if match.group(1).startswith("sq") else "3"), match.group(2)
    words = {"mph": "mile/hour", "kph": "km/hour"}.get(words, words)
    names = [
        _ALIASES.get(_singular(name.strip()), _singular(name.strip())) for name in words.split("/")
    ]
    unit = "/".join(names)
    if unit == "unit" or not unit:
        return ""
    return f"{unit}^{power}" if power else unit


def _singular(word: str) -> str:
    if word in _ALIASES or len(word) < 3 or not word.endswith("s"):
        return word
    return word[:-1]


def _base(text: str) -> tuple[str, str] | None:
    """(digits, base) of `204_5`, `204_{\\text{five}}`, `204 base 5`; None without a base."""
    match = _BASE.fullmatch(text) or _BASE_WORDS.fullmatch(text)
    if match is None:
        return None
    digits, base = (group for group in match.groups() if group)
    base = _NUMERALS.get(base.lower(), base)
    return (digits, base) if base.isdigit() and digits[:1].isdigit() else None
