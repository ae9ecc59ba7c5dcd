"""The encoder behind a backbone, and what both caches ask of the texts given to them."""

import threading
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np

from v0_bench.embeddings.backbones import Backbone
from v0_bench.embeddings.ngrams import HashedNgrams
from v0_bench.errors import V0BenchError

LOCK = threading.RLock()  # threads of one process share encoders and caches, one at a time


class Encoder(Protocol):
    """What computes what is missing from a cache, in any order."""

    dimension: int

    def encode(self, texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield (positions in `texts`, vectors (b, d))."""
        ...

    def token_states(
        self, texts: Sequence[str], layer: int, max_tokens: int | None
    ) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        """Yield (positions in `texts`, for each its states float16 (tokens, D))."""
        ...


def load_encoder(backbone: Backbone, device: str) -> Encoder:
    """The encoder of a backbone; the last two transformers stay loaded.

    Two, because V0 asks one backbone for depths and for token states in turn.
    """
    if backbone.folder is None:
        return HashedNgrams()
    return _load_transformer(backbone.folder, backbone.pooling, device)


@lru_cache(maxsize=2)
def _load_transformer(folder: Path, pooling: str | None, device: str) -> Encoder:
    from v0_bench.embeddings.transformer import TransformerEncoder

    return TransformerEncoder(folder, pooling, device)


def reject_non_sequence(texts: object, caller: str) -> None:
    """Raise V0BenchError for anything but a list or tuple of texts."""
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise V0BenchError(f"{caller} needs a list or tuple of texts, got {type(texts).__name__}.")


def reject_non_strings(texts: Sequence[object]) -> None:
    """Raise V0BenchError that names the first text that is not a string."""
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise V0BenchError(f"text {i} is not a string but {type(text).__name__}.")
