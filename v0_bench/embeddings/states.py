"""`token_states`: texts -> the hidden states of their tokens, each computed once per machine.

A backbone is frozen, so what it says about a text never changes: training reads token states from
disk and never runs the backbone. They are kept in half precision under the hash of the backbone's
files, the layer, the limit of tokens and the text: 2 D bytes a token.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from v0_bench.embeddings.backbones import DEFAULT_BACKBONE, Backbone, resolve_backbone
from v0_bench.embeddings.encoders import (
    LOCK,
    Encoder,
    load_encoder,
    reject_non_sequence,
    reject_non_strings,
)
from v0_bench.embeddings.progress import Progress
from v0_bench.embeddings.shards import cache_root, text_key
from v0_bench.embeddings.state_folder import SHARD_BYTES, StateFolder
from v0_bench.errors import V0BenchError

if TYPE_CHECKING:
    from torch import Tensor

FLUSH_SECONDS = 5.0  # at most this much work is lost to a kill
CHUNK = 256  # texts between two looks at what other processes have computed
MIN_TOKENS = 8  # leaves room beside the special tokens of any tokenizer
# Part of the folder's name: raise it when the same files and text would give other states.
STATES_VERSION = "1"

Rows = slice | Sequence[int] | np.ndarray
EVERY = slice(None)


class TokenBatch(NamedTuple):
    """Token states of B texts, padded at the right to the longest: what a connector takes."""

    states: Tensor
    """float32 (B, L, D), zero on padding."""
    mask: Tensor
    """bool (B, L), True on tokens; every row has at least one."""
    last: Tensor
    """float32 (B, D), the state of each text's last token."""


class Recipe(NamedTuple):
    """What token states depend on beside the text, and the device that computes them."""

    backbone: Backbone
    layer: int
    max_tokens: int | None
    device: str


class TokenStates:
    """The token states of n texts, on disk; `batch(rows)` reads some of them."""

    def __init__(self, texts: Sequence[str], folder: Path, recipe: Recipe) -> None:
        self._texts, self._folder, self._recipe = tuple(texts), folder, recipe
        self._keys = [text_key(text) for text in texts]
        store = _store(folder)
        self.dimension = store.dimension
        """D, the width of a state."""
        self.lengths = np.array([store.length(key) for key in self._keys], dtype=np.int64)
        """Number of tokens of each text, int64 (n,)."""

    def __len__(self) -> int:
        return len(self._texts)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as what to open, not as gigabytes."""
        return _open, (self._texts, self._folder, self._recipe)

    @property
    def nbytes(self) -> int:
        """Bytes of the states of these texts on disk, equal texts counted once."""
        lengths = dict(zip(self._keys, self.lengths.tolist(), strict=True))
        return 2 * self.dimension * sum(lengths.values())

    def batch(self, rows: Rows = EVERY) -> TokenBatch:
        """Token states of the texts at `rows`, float32 and padded; takes 4 B L D bytes."""
        import torch

        arrays = self.arrays(rows)
        lengths = torch.tensor([len(array) for array in arrays], dtype=torch.long)
        longest = int(lengths.max()) if arrays else 0
        states = torch.empty(len(arrays), longest, self.dimension)
        for padded, array in zip(states, arrays, strict=True):
            padded[: len(array)] = torch.from_numpy(array)
            padded[len(array) :] = 0
        mask = torch.arange(longest) < lengths[:, None]
        return TokenBatch(states, mask, states[torch.arange(len(arrays)), lengths - 1])

    def last(self, rows: Rows = EVERY) -> Tensor:
        """States of the last tokens, float32 (b, D)."""
        return self._reduce(rows, lambda states: states[-1])

    def mean(self, rows: Rows = EVERY) -> Tensor:
        """Means over the tokens, float32 (b, D)."""
        return self._reduce(rows, lambda states: states.float().mean(dim=0))

    def arrays(self, rows: Rows = EVERY) -> list[np.ndarray]:
        """States float16 (tokens, D) of each text at `rows`, mapped from disk and not copied.

        The whole process shares them: do not write to them.
        """
        with LOCK:
            return [self._array(i) for i in np.arange(len(self))[rows].tolist()]

    def _array(self, i: int) -> np.ndarray:
        store = _store(self._folder)
        array = store.read(self._keys[i])
        if array is None:  # damaged since it was written
            _compute(store, [self._texts[i]], self._recipe, progress=False)
            array = store.read(self._keys[i])
        if array is None:
            raise _unreadable(store)
        return array

    def _reduce(self, rows: Rows, reduce: Callable[[Tensor], Tensor]) -> Tensor:
        import torch

        arrays = self.arrays(rows)
        out = torch.empty(len(arrays), self.dimension)
        for row, array in zip(out, arrays, strict=True):
            row.copy_(reduce(torch.from_numpy(array)))
        return out


def token_states(
    texts: Sequence[str],
    backbone: str = DEFAULT_BACKBONE,
    *,
    layer: int = -1,
    max_tokens: int | None = None,
    progress: bool = True,
    device: str = "cpu",
) -> TokenStates:
    """Token states of texts under a frozen backbone, computed where they are not on disk yet.

    Parameters
    ----------
    texts: any texts, in any number: memory holds keys and lengths, the states stay on disk.
    backbone: as for `embed`. A pooling (`#last`) makes no difference here. `hash` has one state
        for each word. A text is given to the tokenizer as it stands, without a prompt or a chat
        template; special tokens have states like any other.
    layer: which hidden states, from -1 (the last, what the backbone puts out) to -n (the first).
    max_tokens: keep the first `max_tokens` tokens of a text, special ones included, as if the
        backbone read no more (the paper's limit is 2048). By default the backbone's own limit,
        8,192 at most.
    progress: report on stderr when the work takes over 3 seconds.
    device: torch device for texts that are not on disk yet. The store does not tell devices
        apart: they agree to half precision.

    Processes that compute at once share the work: each looks at what the others have written.
    One that is killed loses the last seconds, and the next call goes on from there. Where the
    store cannot be written, a warning says so and up to 1 GiB is kept in memory.

    Raises V0BenchError for texts that are not strings, an unknown backbone, a layer it lacks, a
    backbone without token states, a device that is not there, or states beyond half precision.
    """
    reject_non_sequence(texts, "token_states")
    reject_non_strings(texts)
    if max_tokens is not None and max_tokens < MIN_TOKENS:
        raise V0BenchError(f"max_tokens must be at least {MIN_TOKENS}, got {max_tokens}.")
    recipe = Recipe(resolve_backbone(backbone), layer, max_tokens, device)
    return _open(texts, cache_root() / "token-states" / _folder(recipe), recipe, progress)


def _folder(recipe: Recipe) -> Path:
    states = resolve_backbone(recipe.backbone.name)  # without its pooling
    limit = recipe.max_tokens or "all"
    return Path(states.label) / f"v{STATES_VERSION}-layer{recipe.layer}-tokens-{limit}"


@lru_cache(maxsize=16)
def _store(folder: Path) -> StateFolder:
    return StateFolder(folder)


def _open(texts: Sequence[str], folder: Path, recipe: Recipe, progress: bool = True) -> TokenStates:
    with LOCK:
        store = _store(folder)
        # An empty list still has a width, which the empty text tells.
        wanted = texts if len(texts) or store.dimension else [""]
        _compute(store, wanted, recipe, progress)
        return TokenStates(texts, folder, recipe)


def _compute(store: StateFolder, texts: Sequence[str], recipe: Recipe, progress: bool) -> None:
    """Add the states of texts that the store lacks, a shard every few seconds."""
    missing = _missing(store, texts)
    if not missing:
        return
    encoder = load_encoder(recipe.backbone, recipe.device)
    report = Progress(len(missing), f"token states of {recipe.backbone.name}", progress)
    try:
        for chunk in _chunks(missing):
            _encode(store, encoder, _missing(store, chunk), recipe)
            report.update(len(chunk))
    finally:
        report.close()
    if _missing(store, texts):
        raise _unreadable(store)


def _missing(store: StateFolder, texts: Sequence[str]) -> list[str]:
    """The distinct texts whose states are not on disk."""
    by_key = {text_key(text): text for text in texts}
    return [by_key[key] for key in store.unknown(list(by_key))]


def _chunks(texts: list[str]) -> list[list[str]]:
    """Cut texts, longest first, beginning somewhere: processes that run at once then meet late."""
    ordered = sorted(texts, key=len, reverse=True)
    chunks = [ordered[i : i + CHUNK] for i in range(0, len(ordered), CHUNK)]
    first = secrets.randbelow(len(chunks))
    return chunks[first:] + chunks[:first]


def _encode(store: StateFolder, encoder: Encoder, texts: list[str], recipe: Recipe) -> None:
    keys: list[bytes] = []
    states: list[np.ndarray] = []

    def flush() -> None:
        if keys:
            store.add(keys, states)
            keys.clear()
            states.clear()

    last = time.monotonic()
    try:
        for positions, batch in encoder.token_states(texts, recipe.layer, recipe.max_tokens):
            keys += [text_key(texts[i]) for i in positions]
            states += batch
            size = sum(array.nbytes for array in states)
            if size >= SHARD_BYTES or time.monotonic() - last > FLUSH_SECONDS:
                flush()
                last = time.monotonic()
    finally:  # Ctrl-C keeps what is done
        flush()


def _unreadable(store: StateFolder) -> V0BenchError:
    return V0BenchError(
        f"Token states written to {store.folder} cannot be read back: is the disk damaged?"
    )
