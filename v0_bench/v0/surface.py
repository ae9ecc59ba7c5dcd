"""What a text looks like: counts that say much about its difficulty and that embeddings lose."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

_NUMBER = re.compile(r"\d+")
_COUNTED = ("\\", "$", "\n", "?", ",", ".", "(", "{")
_OPERATORS = frozenset("+-*/=^<>")
N_SURFACE = 18


def surface_features(texts: Sequence[str]) -> np.ndarray:
    """Length, numbers, punctuation and vocabulary of texts, float32 (n, N_SURFACE), unscaled."""
    return np.array([_features(text) for text in texts], np.float32).reshape(-1, N_SURFACE)


def _features(text: str) -> list[float]:
    words, numbers, size = text.split(), _NUMBER.findall(text), max(len(text), 1)
    logs = (
        len(text),
        len(words),
        len(numbers),
        max(map(len, numbers), default=0),
        *(text.count(mark) for mark in _COUNTED),
        sum(not character.isascii() for character in text),
        sum(character in _OPERATORS for character in text),
    )
    shares = (
        sum(map(len, numbers)) / size,
        sum(map(str.isupper, text)) / size,
        sum(map(len, words)) / max(len(words), 1) / 10,
        len(set(words)) / max(len(words), 1),
    )
    return [*np.log1p(logs), *shares]
