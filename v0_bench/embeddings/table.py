"""The vectors of one backbone in memory: text -> row of a matrix, backed by the shards on disk."""

from collections.abc import Sequence

import numpy as np

from v0_bench.embeddings.shards import KEY_BYTES, ShardFolder, text_key

MAX_CHARACTERS = 1 << 28  # of texts remembered by themselves; beyond it they are hashed anew


class EmbeddingTable:
    """Looks texts up in memory first, then by key among the shards; grows, never forgets a key."""

    def __init__(self, shards: ShardFolder) -> None:
        self._shards = shards
        self._row_of_key: dict[bytes, int] = {}
        # Strings keep their own hash, so a second look-up of the same object costs ~50 ns.
        self._row_of_text: dict[str, int] = {}
        self._characters = 0
        self._matrix: np.ndarray | None = None

    @property
    def dimension(self) -> int | None:
        """Width of the vectors, None while there is none."""
        return None if self._matrix is None else int(self._matrix.shape[1])

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        """Row of each text, int64 (n,); -1 where the vector is in neither memory nor cache."""
        find = self._row_of_text.get
        rows = np.array([find(text, -1) for text in texts], dtype=np.int64)
        unknown = np.flatnonzero(rows < 0).tolist()
        if unknown:
            keys = [text_key(texts[i]) for i in unknown]
            if any(key not in self._row_of_key for key in keys):
                self._read_shards()
            rows[unknown] = [self._row_of_key.get(key, -1) for key in keys]
            self._remember([texts[i] for i in unknown], rows[unknown])
        return rows

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """A copy of the vectors at `rows`, float32 (n, d)."""
        if self._matrix is None:
            raise LookupError("the table is empty")
        return self._matrix[rows]

    def add(self, texts: Sequence[str], vectors: np.ndarray) -> None:
        """Keep vectors float32 (n, d) of texts, in memory and as one shard on disk."""
        joined = b"".join(text_key(text) for text in texts)
        keys = np.frombuffer(joined, np.uint8).reshape(-1, KEY_BYTES)
        self._append(keys, vectors)
        self._shards.write(keys, vectors)

    def _read_shards(self) -> None:
        for keys, vectors in self._shards.read_new():
            self._append(keys, vectors)

    def _append(self, keys: np.ndarray, vectors: np.ndarray) -> None:
        start = len(self._row_of_key)
        joined = keys.tobytes()
        fresh: list[int] = []
        for i in range(len(keys)):
            key = joined[i * KEY_BYTES : (i + 1) * KEY_BYTES]
            if key not in self._row_of_key:
                self._row_of_key[key] = start + len(fresh)
                fresh.append(i)
        end = start + len(fresh)
        self._reserve(end, vectors.shape[1])[start:end] = vectors[fresh]

    def _reserve(self, rows: int, dimension: int) -> np.ndarray:
        """The matrix with room for `rows`; doubling keeps the total cost of growing linear."""
        if self._matrix is None:
            self._matrix = np.empty((rows, dimension), np.float32)
        elif rows > len(self._matrix):
            grown = np.empty((max(rows, 2 * len(self._matrix)), dimension), np.float32)
            grown[: len(self._matrix)] = self._matrix
            self._matrix = grown
        return self._matrix

    def _remember(self, texts: Sequence[str], rows: np.ndarray) -> None:
        known = {text: row for text, row in zip(texts, rows.tolist(), strict=True) if row >= 0}
        size = sum(map(len, known))
        if self._characters + size > MAX_CHARACTERS:
            self._row_of_text.clear()
            self._characters = 0
        if size <= MAX_CHARACTERS:
            self._row_of_text.update(known)
            self._characters += size
