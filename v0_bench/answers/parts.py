r"""Split a canonical answer into its parts: lists, sets, tuples, intervals, unions, matrices.

`1, 2` and `1 \pm \sqrt{2}` are lists (order free), `\{1, 2\}` a set, `(1, 2)` a tuple or open
interval (order kept, brackets kept), `(0, 1) \cup [2, 3]` a union.
"""

import re
from dataclasses import dataclass

from v0_bench.answers.spelling import THOUSANDS

_TOKEN = re.compile(r"\\[a-zA-Z]+|\\.|.", re.S)
_OPEN = {"(", "[", "{", r"\{", r"\langle"}
_CLOSE = {")", "]", "}", r"\}", r"\rangle"}
_MATRIX = re.compile(r"\\begin\{([pbB]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\1\}", re.S)
_DEEPEST = 6


@dataclass(frozen=True)
class Part:
    """One node: `kind` is atom, list, set, union, matrix (rows as tuples) or brackets like `(]`."""

    kind: str
    text: str
    items: tuple["Part", ...] = ()


def split_answer(text: str, depth: int = 0) -> Part:
    """The tree of a canonical answer, at most a few levels deep."""
    text = text.strip().strip(",;").strip()
    text = _join_thousands(text)
    if depth >= _DEEPEST:
        return Part("atom", text)
    union = _split_top(text, {r"\cup"})
    if len(union) > 1:
        return Part("union", text, _parts(union, depth))
    pieces = _split_top(text, {",", ";"}, words=True)
    if len(pieces) > 1:
        return _flat_list(text, _parts(pieces, depth))
    part = _enclosed(text, depth)
    if part.kind == "atom" and (signs := _both_signs(part.text)):
        return Part("list", text, _parts(signs, depth))
    return part


def _enclosed(text: str, depth: int) -> Part:
    """A bracketed group, a matrix, or an atom."""
    matrix = _MATRIX.fullmatch(text)
    if matrix:
        body = matrix.group(2)
        rows = [row for row in re.split(r"\\\\", body) if row.strip()]
        cells = [_parts(row.split("&"), depth) for row in rows]
        return Part("matrix", text, tuple(Part("row", "", row) for row in cells))
    tokens = _TOKEN.findall(text)
    if len(tokens) < 2 or tokens[0] not in _OPEN or not _encloses(tokens):
        return Part("atom", text)
    inside = "".join(tokens[1:-1]).strip()
    if tokens[0] == r"\{":
        pieces = _split_top(inside, {",", ";"}, words=True)
        flat = _flat_list(text, _parts([piece for piece in pieces if piece.strip()], depth))
        return Part("set", text, flat.items)
    pieces = _split_top(inside, {",", ";"})
    if len(pieces) > 1:
        brackets = "()" if tokens[0] == r"\langle" else tokens[0] + tokens[-1]
        return Part(brackets, text, _parts(pieces, depth))
    return split_answer(inside, depth + 1) if tokens[0] in "([" else Part("atom", text)


def _parts(pieces: list[str], depth: int) -> tuple[Part, ...]:
    return tuple(split_answer(piece, depth + 1) for piece in pieces)


def _flat_list(text: str, parts: tuple[Part, ...]) -> Part:
    """A list whose items that are themselves lists (`1 \\pm 2, 5`) are spread out."""
    flat: list[Part] = []
    for part in parts:
        flat.extend(part.items if part.kind == "list" else (part,))
    return Part("list", text, tuple(flat))


def _split_top(text: str, separators: set[str], words: bool = False) -> list[str]:
    """Split outside all brackets; with `words`, the words `and` and `or` separate as well."""
    if words:
        text = re.sub(r"(?<=[\d\s)}])(?:\s?,)?\s(?:and|or)\s(?=\S)", " , ", text)
        text = re.sub(r",\s*,", ",", text)
    pieces, depth = [""], 0
    for token in _TOKEN.findall(text):
        depth += (token in _OPEN) - (token in _CLOSE)
        if depth == 0 and token in separators:
            pieces.append("")
        else:
            pieces[-1] += token
    return pieces


def _encloses(tokens: list[str]) -> bool:
    """Whether the first bracket closes at the last token."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += (token in _OPEN) - (token in _CLOSE)
        if depth == 0:
            return index == len(tokens) - 1
    return False


def _both_signs(text: str) -> list[str]:
    r"""The two values of an expression with `\pm`; empty without one."""
    if r"\pm" not in text and r"\mp" not in text:
        return []
    plus = re.sub(r"\\pm(?![a-zA-Z])", "+", re.sub(r"\\mp(?![a-zA-Z])", "-", text))
    minus = re.sub(r"\\pm(?![a-zA-Z])", "-", re.sub(r"\\mp(?![a-zA-Z])", "+", text))
    label = re.match(r"[^=]*=", plus)
    cut = label.end() if label else 0
    return [plus[cut:].strip().lstrip("+"), minus[cut:].strip()]


def _join_thousands(text: str) -> str:
    """`1,234` -> `1234` outside brackets; `(1,234)` stays a pair."""
    if not THOUSANDS.search(text):
        return text
    pieces, depth, run = "", 0, ""
    for token in [*_TOKEN.findall(text), ""]:
        depth += (token in _OPEN) - (token in _CLOSE)
        if depth == 0 and token and token in "0123456789,.":
            run += token
            continue
        pieces += THOUSANDS.sub(lambda match: match.group().replace(",", ""), run) + token
        run = ""
    return pieces
