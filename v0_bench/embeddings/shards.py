"""Vectors on disk: a folder of small, immutable files that any number of processes may add to.

A shard is one `.npy` file of records (key of the text, vector), named by the BLAKE2 hash of its
bytes. It is written to a temporary file and renamed, so a reader sees it whole or not at all, and
a name that does not match its content gives away damage. The cache is the union of its shards.
"""

import contextlib
import hashlib
import io
import os
import secrets
import time
import warnings
from pathlib import Path

import numpy as np

KEY_BYTES = 16
MERGE_ABOVE = 128  # shards: reading more files than this is slower than merging them once
STALE_SECONDS = 3600.0  # a temporary file this old belongs to a process that was killed

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
        self.folder = folder
        self._seen: set[str] = set()
        self._writable = True

    def read_new(self) -> list[Block]:
        """Keys uint8 (n, 16) and vectors float32 (n, d) of every shard not yet returned.

        Damaged shards are removed with a warning: their vectors will be computed again.
        """
        found: dict[str, Block] = {}
        while names := self._new_names():
            for name in names:
                block = self._read(name)
                self._seen.add(name)
                if block is not None:
                    found[name] = block
            # Another process may have merged shards away under us: look for what replaced them.
        return [self._merge(found)] if len(found) > MERGE_ABOVE else list(found.values())

    def write(self, keys: np.ndarray, vectors: np.ndarray) -> str | None:
        """Add one shard and return its name; None, after one warning, if it cannot be written."""
        if not self._writable:
            return None
        content = _encode(keys, vectors)
        name = f"{_digest(content)}.npy"
        temporary = self.folder / f".{name}-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content)
            os.replace(temporary, self.folder / name)
        except OSError as error:
            self._writable = False
            _remove(temporary)
            warnings.warn(
                f"embeddings are not kept: cannot write {self.folder} ({error.strerror}); "
                "free some space or set V0_BENCH_CACHE to a folder that can be written",
                stacklevel=2,
            )
            return None
        self._seen.add(name)
        return name

    def _new_names(self) -> list[str]:
        try:
            names = os.listdir(self.folder)
        except OSError:  # nothing there yet, or nothing that can be read: compute
            return []
        shards = (name for name in names if name.endswith(".npy") and not name.startswith("."))
        return sorted(set(shards) - self._seen)

    def _read(self, name: str) -> Block | None:
        path = self.folder / name
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if f"{_digest(content)}.npy" == name:
            return _decode(content)
        warnings.warn(f"damaged cache file {path} was removed", stacklevel=2)
        _remove(path)
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
                _remove(self.folder / old)
            self._remove_stale()
        return keys, vectors

    def _remove_stale(self) -> None:
        for path in self.folder.glob(".*.npy-*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()


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


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # a read-only cache is still a cache
        path.unlink()
