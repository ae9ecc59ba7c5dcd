"""Vectors on disk: a folder of small, immutable files that any number of processes may add to.

A shard is one `.npy` file of records (key of the text, vector), named by the BLAKE2 hash of its
bytes: a name that does not match its content gives away damage.
"""

import hashlib
import io
import os
from pathlib import Path

import numpy as np

from v0_bench.embeddings.shared_folder import SharedFolder

KEY_BYTES = 16
MERGE_ABOVE = 128  # shards: reading more files than this is slower than merging them once

Block = tuple[np.ndarray, np.ndarray]


def cache_root() -> Path:
    """`$V0_BENCH_CACHE` if set, else `~/.cache/v0-bench`."""
    named = os.environ.get("V0_BENCH_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "v0-bench"


def text_key(text: str) -> bytes:
    """Key of a text inside one backbone's folder: 16 bytes of its SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:KEY_BYTES]


class ShardFolder:
    """The shards of one backbone; remembers which of them this process has read."""

    def __init__(self, folder: Path) -> None:
        self._files = SharedFolder(folder, ".npy", "embeddings")

    def read_new(self) -> list[Block]:
        """Keys uint8 (n, 16) and vectors float32 (n, d) of every shard not yet returned.

        Damaged shards are removed with a warning: their vectors will be computed again.
        """
        found: dict[str, Block] = {}
        while names := self._files.new_names():
            for name in names:
                block = self._read(name)
                self._files.seen.add(name)
                if block is not None:
                    found[name] = block
            # Another process may have merged shards away under us: look for what replaced them.
        return [self._merge(found)] if len(found) > MERGE_ABOVE else list(found.values())

    def write(self, keys: np.ndarray, vectors: np.ndarray) -> str | None:
        """Add one shard and return its name; None, after one warning, if it cannot be written."""
        content = _encode(keys, vectors)
        name = f"{_digest(content)}.npy"
        return name if self._files.add(name, content) else None

    def _read(self, name: str) -> Block | None:
        try:
            content = (self._files.folder / name).read_bytes()
        except OSError:
            return None
        if f"{_digest(content)}.npy" == name:
            return _decode(content)
        self._files.remove_damaged(name)
        return None

    def _merge(self, shards: dict[str, Block]) -> Block:
        """Replace shards by one. The old ones go only once the new one stands."""
        keys = np.concatenate([block[0] for block in shards.values()])
        vectors = np.concatenate([block[1] for block in shards.values()])
        _, first = np.unique(keys, axis=0, return_index=True)
        keys, vectors = keys[first], vectors[first]
        name = self.write(keys, vectors)
        if name is not None:
            for old in shards.keys() - {name}:
                self._files.remove(old)
            self._files.remove_stale()
        return keys, vectors


def _encode(keys: np.ndarray, vectors: np.ndarray) -> bytes:
    record = np.dtype([("key", "u1", (KEY_BYTES,)), ("vector", "<f4", (vectors.shape[1],))])
    records = np.empty(len(keys), record)
    records["key"], records["vector"] = keys, vectors
    buffer = io.BytesIO()
    np.save(buffer, records, allow_pickle=False)
    return buffer.getvalue()


def _decode(content: bytes) -> Block:
    records = np.load(io.BytesIO(content), allow_pickle=False)
    return records["key"], records["vector"]


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
