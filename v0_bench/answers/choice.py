"""The letter a response chooses among lettered options (A to J)."""

import re

from v0_bench.answers.extract import LONGEST_ANSWER, answer_line, last_box

LETTERS = "ABCDEFGHIJ"

_FONT = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textrm|mbox|textit|mathit|text\s?bf)\s?(?=\{)")
_LETTER = re.compile(
    r"^[\W_]*(?:(?:the|correct|final|answer|option|choice|is|letter)[\W_]+)*"
    r"([A-J])(?![A-Za-z0-9^_])",
    re.I,
)
_SECOND = re.compile(r"^\W*(?:\s(?:or|and)\s|[,/&])\W*(?:option\s)?[A-J](?![A-Za-z0-9])", re.I)
_PROSE_AFTER = re.compile(r"^\s+(?!because|since|as|is|for|which|with)[a-z]", re.I)


def chosen_letter(text: str, truncated: bool) -> str | None:
    """The letter in the last box, else in the last answer line, else the text if only a letter."""
    boxed = last_box(text)
    letter = letter_of(boxed) if boxed is not None else None
    if letter is None:
        line = answer_line(text, truncated)
        letter = letter_of(line) if line is not None else None
    if letter is None and not truncated and len(text.strip()) <= 10:
        letter = letter_of(text)
    return letter


def letter_of(answer: str) -> str | None:
    r"""The letter of `B`, `(B)`, `\text{(B)}`, `B. 3 nm`, `option b`; None for `A or B`, `3.2`.

    A letter that starts prose ("A hydrogen atom") is a word, not a choice.
    """
    plain = _FONT.sub("", answer[:LONGEST_ANSWER]).replace("{", " ").replace("}", " ")
    plain = re.sub(r"\\[ ,;:!()\[\]]", " ", plain).replace("$", " ").strip()
    match = _LETTER.match(plain)
    if match is None:
        return None
    rest = plain[match.end() :]
    if _SECOND.match(rest) or _PROSE_AFTER.match(rest):
        return None
    return match.group(1).upper()
