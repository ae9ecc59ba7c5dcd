"""Token states on disk: immutable safetensors files that are mapped into memory, not read.

A shard holds `keys` uint8 (n, 16), `lengths` int32 (n), `checksums` uint32 (n) and `states` float16
(sum of lengths, D), the states of its n texts one after the other. It is named by the hash of the
first three, which is checked when the shard is opened; the states of a text are checked against
their CRC-32 when they are first read, so opening a large store costs nothing.
"""

import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from v0_bench.embeddings.shards import KEY_BYTES
from v0_bench.embeddings.shared_folder import SharedFolder
from v0_bench.errors import V0BenchError

SHARD_BYTES = 64 << 20  # about the most one write holds in memory
SMALL_BYTES = 16 << 20
MERGE_ABOVE = 128  # small shards: opening more than this is slower than merging them once
MEMORY_BYTES = 1 << 30  # of states kept in memory where the folder cannot be written
SUFFIX = ".safetensors"
TYPES = {"U8": "u1", "I32": "<i4", "U32": "<u4", "F16": "<f2"}


class Shard:
    """The states of n texts, mapped from a file or held in memory."""

    def __init__(self, name: str, index: "Index", states: np.ndarray) -> None:
        ends = np.cumsum(index.lengths, dtype=np.int64)
        if index.digest() + SUFFIX != name or len(states) != ends[-1]:
            raise ValueError("the index does not match its name")
        self.name = name
        self.index = index
        self.states = states
        self._bounds = np.concatenate([[0], ends]).tolist()
        self._checked = np.zeros(len(index.lengths), bool)

    @property
    def nbytes(self) -> int:
        """Bytes of its states."""
        return self.states.nbytes

    def read(self, i: int) -> np.ndarray | None:
        """States float16 (tokens, D) of its text i, without a copy; None if they are damaged."""
        states = self.states[self._bounds[i] : self._bounds[i + 1]]
        if not self._checked[i]:
            if zlib.crc32(states.data) != self.index.checksums[i]:
                return None
            self._checked[i] = True
        return states


class Index(NamedTuple):
    """What a shard holds: parallel arrays over its texts."""

    keys: np.ndarray
    lengths: np.ndarray
    checksums: np.ndarray

    def digest(self) -> str:
        """Hash of the index, and through the checksums of the states."""
        content = hashlib.blake2b(digest_size=16)
        for array in self:
            content.update(np.ascontiguousarray(array).data)
        return content.hexdigest()


class StateFolder:
    """The token states of one backbone, layer and limit of tokens: key of a text -> states."""

    def __init__(self, folder: Path) -> None:
        self._files = SharedFolder(folder, SUFFIX, "token states")
        self._shards: dict[str, Shard] = {}
        self._places: dict[bytes, tuple[Shard, int]] = {}
        self._unwritten = 0

    @property
    def folder(self) -> Path:
        """Where the shards are."""
        return self._files.folder

    @property
    def dimension(self) -> int:
        """D, the width of a state; 0 while there is none."""
        return next((shard.states.shape[1] for shard in self._shards.values()), 0)

    def unknown(self, keys: Sequence[bytes]) -> list[bytes]:
        """Those keys whose states are not there; looks at the disk if there are any."""
        if any(key not in self._places for key in keys):
            self._open_new()
        return [key for key in keys if key not in self._places]

    def length(self, key: bytes) -> int:
        """Number of tokens of a known key."""
        shard, i = self._places[key]
        return int(shard.index.lengths[i])

    def read(self, key: bytes) -> np.ndarray | None:
        """States float16 (tokens, D) of a key, without a copy; None if it is not known.

        A shard whose states turn out damaged is removed with a warning, and its keys are no
        longer known.
        """
        if key not in self._places:
            return None
        shard, i = self._places[key]
        states = shard.read(i)
        if states is None:
            self._forget(shard)
            self._files.remove_damaged(shard.name)
        return states

    def add(self, keys: Sequence[bytes], states: Sequence[np.ndarray]) -> None:
        """Keep states float16 (tokens, D) of keys, as one shard.

        Where the folder cannot be written they are kept in memory, up to MEMORY_BYTES; beyond
        that V0BenchError.
        """
        shard = _pack(keys, states)
        if self._write(shard):
            self._open(shard.name)
            return
        self._unwritten += shard.nbytes
        if self._unwritten > MEMORY_BYTES:
            raise V0BenchError(
                f"Token states cannot be written to {self.folder}, and more than "
                f"{MEMORY_BYTES >> 20} MiB of them are not kept in memory: free some space or set "
                "V0_BENCH_CACHE to a folder that can be written."
            )
        self._place(shard)

    def _write(self, shard: Shard) -> bool:
        from safetensors.numpy import save

        return self._files.add(shard.name, save({**shard.index._asdict(), "states": shard.states}))

    def _open_new(self) -> None:
        while names := self._files.new_names():
            for name in names:
                self._open(name)
            # Another process may have merged shards away under us: look for what replaced them.
        small = [shard for shard in self._shards.values() if shard.nbytes < SMALL_BYTES]
        if len(small) > MERGE_ABOVE and self._files.writable:
            for group in _groups(small):
                self._merge(group)
            self._files.remove_stale()

    def _open(self, name: str) -> None:
        self._files.seen.add(name)
        try:
            self._place(_map(self.folder / name))
        except OSError:
            pass  # merged away by another process, or unreadable: compute
        except (ValueError, KeyError, TypeError, OverflowError):
            self._files.remove_damaged(name)

    def _place(self, shard: Shard) -> None:
        self._shards[shard.name] = shard
        for i, key in enumerate(_rows(shard.index.keys)):
            self._places[key] = shard, i

    def _forget(self, shard: Shard) -> None:
        self._shards.pop(shard.name, None)
        for key in _rows(shard.index.keys):
            if self._places.get(key, (None,))[0] is shard:
                del self._places[key]

    def _merge(self, shards: list[Shard]) -> None:
        """Replace shards by one. The old ones go only once the new one stands."""
        sound = {
            key: states
            for shard in shards
            for i, key in enumerate(_rows(shard.index.keys))
            if (states := shard.read(i)) is not None
        }
        if not sound:
            return
        merged = _pack(list(sound), list(sound.values()))
        if self._write(merged):
            self._open(merged.name)
            for shard in shards:
                if shard.name != merged.name:
                    self._forget(shard)
                    self._files.remove(shard.name)


def _groups(shards: list[Shard]) -> Iterator[list[Shard]]:
    """Cut shards into groups of about SHARD_BYTES."""
    group: list[Shard] = []
    for shard in shards:
        group.append(shard)
        if sum(each.nbytes for each in group) >= SHARD_BYTES:
            yield group
            group = []
    if group:
        yield group


def _rows(keys: np.ndarray) -> list[bytes]:
    joined = keys.tobytes()
    return [joined[i : i + KEY_BYTES] for i in range(0, len(joined), KEY_BYTES)]


def _pack(keys: Sequence[bytes], states: Sequence[np.ndarray]) -> Shard:
    joined = np.concatenate(states)
    index = Index(
        np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY_BYTES),
        np.array([len(each) for each in states], np.int32),
        np.array([zlib.crc32(np.ascontiguousarray(each).data) for each in states], np.uint32),
    )
    return Shard(index.digest() + SUFFIX, index, joined)


def _map(path: Path) -> Shard:
    """Open a shard; ValueError, KeyError, TypeError or OverflowError if it is not a whole one."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(size, path.stat().st_size)))

    def array(name: str) -> np.ndarray:
        entry = header[name]
        start = 8 + size + entry["data_offsets"][0]
        # "c": pages are shared and never written, yet torch may hold the array.
        return np.memmap(path, TYPES[entry["dtype"]], "c", start, tuple(entry["shape"]))

    index = Index(*(np.array(array(name)) for name in Index._fields))
    return Shard(path.name, index, np.asarray(array("states")))
