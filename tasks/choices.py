"""Lettered options of a multiple-choice problem, in an order that never changes.

The order comes from a hash of the record's id: no random state, library or data version moves it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from v0_bench.answers.choice import LETTERS


def option_order(query_id: str, size: int) -> list[int]:
    """A permutation of range(size) that depends on `query_id` alone."""

    def rank(option: int) -> bytes:
        return hashlib.sha256(f"{query_id}\n{option}".encode()).digest()

    return sorted(range(size), key=rank)


def with_options(
    query_id: str, text: str, answer: str, wrong_answers: Sequence[str]
) -> tuple[str, str]:
    """The question followed by its lettered options, and the letter of the right one."""
    options = [answer, *wrong_answers]
    order = option_order(query_id, len(options))
    lines = [f"{letter}) {options[option]}" for letter, option in zip(LETTERS, order, strict=False)]
    return text + "\n\n" + "\n".join(lines), LETTERS[order.index(0)]
