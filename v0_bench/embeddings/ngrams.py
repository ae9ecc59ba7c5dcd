"""The backbone `hash`: signed hashing of character trigrams and words into 256 dimensions.

No weights, no torch, the same vector on every machine. It knows spelling, not meaning: use it in
tests and smoke runs. Feature hashing: Weinberger et al., 2009, arXiv 0902.2206.
"""

import re
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from v0_bench.errors import V0BenchError

BATCH = 256
WORD = re.compile(r"\w+")
TRIGRAM_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)


class HashedNgrams:
    """Encoder of the backbone `hash`."""

    dimension = 256

    def encode(self, texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (positions in `texts`, unit vectors float32 (b, 256)) batch by batch."""
        for start in range(0, len(texts), BATCH):
            batch = texts[start : start + BATCH]
            yield np.arange(start, start + len(batch)), np.stack([_vector(t) for t in batch])

    def token_states(
        self, texts: Sequence[str], layer: int, max_tokens: int | None
    ) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """Yield (positions, for each text float16 (words, 256)): a state is the vector of a word.

        A text without a word has one state, the vector of the text. The only layer is -1.
        """
        if layer != -1:
            raise V0BenchError(f"Backbone 'hash' has only layer -1, not {layer}.")
        for i, text in enumerate(texts):
            words = _words(text)[:max_tokens] or [text]
            yield np.array([i]), [np.stack([_word_state(word) for word in words])]


@lru_cache(maxsize=8192)
def _word_state(word: str) -> np.ndarray:
    return _vector(word).astype(np.float16)


def _vector(text: str) -> np.ndarray:
    # The four marks at the ends give every text, the empty one too, at least two trigrams.
    padded = f"\2\2{text.lower()}\3\3".encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(padded, "<u4").astype(np.uint64)
    trigrams = sum(
        codes[i : len(codes) - 2 + i] * np.uint64(factor)
        for i, factor in enumerate(TRIGRAM_FACTORS)
    )
    words = [zlib.crc32(word.encode("utf-8", "surrogatepass")) for word in _words(text)]
    hashes = _mix(np.concatenate([trigrams, np.array(words, np.uint64) + np.uint64(1 << 40)]))
    signs = np.where(hashes >> np.uint64(63), 1.0, -1.0)
    counts = np.bincount((hashes & np.uint64(255)).astype(np.int64), signs, HashedNgrams.dimension)
    # Square roots keep one frequent n-gram from drowning the rest.
    vector = np.sign(counts) * np.sqrt(np.abs(counts))
    norm = np.linalg.norm(vector)
    return (vector / norm if norm else vector).astype(np.float32)


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _mix(values: np.ndarray) -> np.ndarray:
    """Spread 64-bit values so that every output bit depends on every input bit (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
