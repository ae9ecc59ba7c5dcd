"""One spelling for the many ways to write an answer: Unicode, LaTeX variants, separators.

`canonical` keeps the meaning and changes only the spelling; `rational` reads exact numbers.
Both expect short texts (the caller bounds the length).
"""

import re
import unicodedata
from fractions import Fraction

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_SYMBOLS = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "－": "-",
    "×": r"\cdot ", "·": r"\cdot ", "⋅": r"\cdot ", "∗": r"\cdot ", "÷": "/", "∕": "/", "⁄": "/",
    "π": r"\pi ", "∞": r"\infty ", "∪": r"\cup ", "∩": r"\cap ", "∈": r"\in ", "∅": r"\emptyset ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "≈": r"\approx ", "±": r"\pm ", "∓": r"\mp ",
    "°": r"\text{degrees}", "º": r"\text{degrees}", "θ": r"\theta ", "α": r"\alpha ",
    "β": r"\beta ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "，": ",", "、": ",", "；": ";",
    "（": "(", "）": ")", "％": "%", "€": "", "£": "", "¥": "", "⟨": r"\langle ", "⟩": r"\rangle ",
}  # fmt: skip

_FONTS = (
    r"text|mbox|textbf|textrm|textit|textsf|texttt|textnormal|mathrm|mathbf|mathit|mathsf|mathtt|"
    r"mathnormal|boldsymbol|bm|operatorname|bf|rm|emph|underline|hbox"
)
_FONT_GROUP = re.compile(rf"\\(?:{_FONTS})\*?\s*\{{([^{{}}]*)\}}")
_FONT_LEFT = re.compile(rf"\\(?:{_FONTS})(?![a-zA-Z])\*?")
_WORD = re.compile(r"[^\W\d_]{2,}|[^\W\d_]+/[^\W\d_]+|^\s*[mgsLhNJWVKC]\s*$|^\s*\([A-Z]\)\s*$")
_ROMAN_MATH = {"i", "e", "d", "pi"}

_SEPARATOR = r"(?:,\\!|\\!,|\{,\}|\\,|\\ |~|[ \u00a0\u2009\u202f])\s*"
_SEPARATED = re.compile(rf"(?<![\d.^_}}])[1-9]\d{{0,2}}(?:{_SEPARATOR}\d{{3}})+(?![\d/])")
_SPACING = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"(?<=\d)\{,\}(?=\d)", "."),
        (r"\\(?:left|right|middle|[bB]igg?[lrm]?)(?![a-zA-Z])\s*\.?", ""),
        (r"(?<!\\)\\[,;:!> ]|\\(?:q?quad|displaystyle|textstyle|thinspace|limits)(?![a-zA-Z])|~",
         " "),
        (r"\\\$\s*(-?[\d.,]*\d)", r"\1\\text{dollars}"),
    ]
]  # fmt: skip
_COMMANDS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"(?<!\\)\\[()\[\]]|\\?\$|`", " "),
        (r"\\(?:text)?color\s?\{\w+\}|\\(?:tiny|small|large|Large|huge|Huge)(?![a-zA-Z])", " "),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\[dt]binom(?![a-zA-Z])", r"\\binom"),
        (r"\^\s*\{?\s*\\circ\s*\}?|\\degree(?![a-zA-Z])|\\textdegree(?![a-zA-Z])",
         r"\\text{degrees}"),
        (r"\\%|(?i:\bper\s?cent\b)", "%"),
        (r"\\leq(?:slant)?(?![a-zA-Z])|<=", r"\\le "),
        (r"\\geq(?:slant)?(?![a-zA-Z])|>=", r"\\ge "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\log\s?_\s?\{?e\}?(?![a-zA-Z])", r"\\ln "),
        (r"\\varnothing|\\emptyset|\\\{\s*\\\}", r"\\emptyset "),
        (r"\\mathbb\s?([A-Z])", r"\\mathbb{\1}"),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\\(?:l|r)vert(?![a-zA-Z])", "|"),
        (r"\*\*", "^"),
        (r"\*|\\times(?![a-zA-Z])|\\cdotp?(?![a-zA-Z])|\\ast(?![a-zA-Z])", r"\\cdot "),
        (r"\\simeq(?![a-zA-Z])|\\thickapprox", r"\\approx "),
        (r"(?<![\\a-zA-Z])(?:infinity|Infinity|infty|inf|oo)(?![a-zA-Z])", r"\\infty "),
        (r"(?<![\\a-zA-Z])[pP]i(?![a-zA-Z])", r"\\pi "),
        (r"(?<![\\a-zA-Z])(sqrt|sin|cos|tan|cot|log|ln|exp|floor)(?=\s?[({])", r"\\\1"),
        (r"\\sqrt\s*(\d+|[a-zA-Z])", r"\\sqrt{\1}"),
        (r"\\frac\s*([\da-zA-Z])\s*([\da-zA-Z])", r"\\frac{\1}{\2}"),
        (r"\\frac\s*([\da-zA-Z])\s*\{", r"\\frac{\1}{"),
        (r"\\frac\s*\{([^{}]*)\}\s*([\da-zA-Z])", r"\\frac{\1}{\2}"),
        (r"\\frac\s*\{\s*([^{}]*?)\s*\}\s*\{\s*([^{}]*?)\s*\}", r"\\frac{\1}{\2}"),
        (r"(?<![\w)])([a-zA-Z]|\d+)!\^", r"(\1!)^"),
        (r"(?<=\d)[eE]([+-]?\d{1,4})(?![\w.])", r"\\cdot 10^{\1}"),
        (r"(?<=\d),(?=\d{3}(?:,\d{3})*\.\d)", ""),
    ]
]  # fmt: skip

_SIGNED = r"[+-]?\s?"
_DECIMAL = r"(?:\d+\.?\d*|\.\d+)"
THOUSANDS = re.compile(r"(?<![\d,.])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_GROUPED = re.compile(r"[+-]?\s?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_PLAIN = re.compile(rf"({_SIGNED})({_DECIMAL})")
_RATIO = re.compile(rf"({_SIGNED})(?:(\d+)\s?/\s?(\d+)|\\frac\{{({_SIGNED}\d+)\}}\{{(\d+)\}})")
_RECURRING = re.compile(rf"({_SIGNED})(\d*\.\d*)\s?\\overline\{{(\d+)\}}")
_MIXED = re.compile(
    rf"({_SIGNED})(\d+)\s?(?:\\frac\{{(\d+)\}}\{{(\d+)\}}|(?:\s(?:and\s)?|-|\+)(\d+)\s?/\s?(\d+))"
)


def canonical(text: str) -> str:
    r"""The same answer in one spelling, such as `\frac{3}{4}` for `\dfrac 34.`.

    Idempotent for the spellings it produces. Changes nothing about value, order or brackets.
    """
    text = _ascii_symbols(text)
    text = _SEPARATED.sub(lambda match: re.sub(r"\D", "", match.group()), text)
    for pattern, replacement in _SPACING:
        text = pattern.sub(replacement, text)
    for _ in range(3):
        text = _FONT_GROUP.sub(_font_content, text)
    text = _FONT_LEFT.sub(lambda m: m.group() if m.group() == r"\text" else " ", text)
    for pattern, replacement in _COMMANDS:
        text = pattern.sub(replacement, text)
    text = _paren_groups(text)
    text = re.sub(r"\s+", " ", text).lstrip(" ,;:").rstrip(" .,;:?\\")
    return _drop_outer_braces(text)


def key(text: str) -> str:
    """A canonical text without the spaces that separate nothing, for string comparison."""
    text = re.sub(r"(?<![a-zA-Z0-9]) | (?![a-zA-Z0-9])|(?<=\d) (?=[a-zA-Z])", "", text)
    return text.lstrip("+")


def rational(text: str) -> Fraction | None:
    r"""The exact value of `-3`, `1,234`, `0.50`, `.5`, `3/4`, `\frac{3}{4}`, `1 \frac{1}{2}`."""
    text = text.strip()
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    while text[:1] == "(" and text[-1:] == ")" and _PLAIN.fullmatch(text[1:-1].strip()):
        text = text[1:-1].strip()
    if match := _PLAIN.fullmatch(text):
        return _sign(match.group(1)) * Fraction(match.group(2).rstrip(".") or "0")
    if match := _RATIO.fullmatch(text):
        top, bottom = match.group(2) or match.group(4), match.group(3) or match.group(5)
        over = int(bottom)
        return _sign(match.group(1)) * Fraction(int(top.replace(" ", "")), over) if over else None
    if match := _MIXED.fullmatch(text):
        return _mixed_number(match)
    if match := _RECURRING.fullmatch(text):
        sign, start, cycle = match.groups()
        nines = (10 ** len(cycle) - 1) * 10 ** len(start.partition(".")[2])
        return _sign(sign) * (Fraction(start + "0") + Fraction(int(cycle), nines))
    return None


def equal_numbers(gold: Fraction, value: Fraction, text: str) -> bool:
    """Equal exactly; a gold that no finite decimal equals (1/3) may also be rounded by `text`."""
    return gold == value or (not _finite_decimal(gold) and rounds_to(gold, value, text))


def rounds_to(gold: Fraction, value: Fraction, text: str) -> bool:
    """Whether `text` is a decimal of six or more digits, `value`, that gold rounds or cuts to."""
    digits = re.fullmatch(r"[+-]?\s?(\d*)\.(\d+)", text.strip())
    if digits is None or len((digits.group(1) + digits.group(2)).lstrip("0")) < 6:
        return False
    step, gap = Fraction(1, 10 ** len(digits.group(2))), abs(gold - value)
    return gap * 2 <= step or (gap < step and abs(value) <= abs(gold))


def _finite_decimal(value: Fraction) -> bool:
    over = value.denominator
    for prime in (2, 5):
        while over % prime == 0:
            over //= prime
    return over == 1


def _mixed_number(match: re.Match[str]) -> Fraction | None:
    sign, whole, *parts = match.groups()
    top, bottom = (int(part) for part in parts if part is not None)
    if not 0 < top < bottom:
        return None
    return _sign(sign) * (int(whole) + Fraction(top, bottom))


def _sign(sign: str) -> int:
    return -1 if "-" in sign else 1


def _ascii_symbols(text: str) -> str:
    text = re.sub(
        "[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text
    )
    text = re.sub("[₀-₉]+", lambda m: "_{" + unicodedata.normalize("NFKC", m.group()) + "}", text)
    text = re.sub(r"√\s?\{?(\d+|[a-zA-Z])\}?", r"\\sqrt{\1}", text).replace("√", r"\sqrt")
    text = "".join(_one_symbol(char) for char in text)
    text = unicodedata.normalize("NFKC", text)
    return "".join(char for char in text if unicodedata.category(char) != "Cf")


def _one_symbol(char: str) -> str:
    if char in _SYMBOLS:
        return _SYMBOLS[char]
    if char < "\x80" or not unicodedata.decomposition(char).startswith("<fraction>"):
        return char
    top, _, bottom = unicodedata.normalize("NFKC", char).partition("⁄")
    return rf"\frac{{{top}}}{{{bottom}}}" if bottom else char


def _font_content(match: re.Match[str]) -> str:
    content = match.group(1)
    if content.strip() in _ROMAN_MATH or not _WORD.search(content):
        return f" {content} "
    if re.fullmatch(r"\s*(?:and|or|,\s?and|,\s?or)\s*", content):
        return " , "
    if counted := re.fullmatch(r"\s*(-?[\d.,]*\d)\s+([^\d]+)", content):
        return rf"{counted.group(1)}\text{{{counted.group(2).strip()}}}"
    return rf"\text{{{content.strip()}}}"


def _paren_groups(text: str) -> str:
    r"""`\sqrt(x)` -> `\sqrt{x}` and `^(x)` -> `^{x}`, for balanced parentheses."""
    position = 0
    while match := re.compile(r"(?:\\sqrt|\^)\s?\(").search(text, position):
        opened, depth = match.end() - 1, 0
        position = match.end()
        for index in range(opened, len(text)):
            depth += {"(": 1, ")": -1}.get(text[index], 0)
            if depth == 0:
                head, inside, rest = text[:opened], text[opened + 1 : index], text[index + 1 :]
                text = head + "{" + inside + "}" + rest
                break
    return text


def _drop_outer_braces(text: str) -> str:
    while text.startswith("{") and text.endswith("}") and not text.endswith("\\}"):
        depth = 0
        for index, char in enumerate(text):
            depth += {"{": 1, "}": -1}.get(char, 0)
            if depth == 0 and index < len(text) - 1:
                return text
        text = text[1:-1].strip()
    return text
