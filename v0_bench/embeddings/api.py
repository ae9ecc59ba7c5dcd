"""`embed`: texts -> vectors, each computed at most once per backbone and machine."""

import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from v0_bench.embeddings.backbones import DEFAULT_BACKBONE, Backbone, resolve_backbone
from v0_bench.embeddings.encoders import (
    LOCK,
    load_encoder,
    reject_non_sequence,
    reject_non_strings,
)
from v0_bench.embeddings.progress import Progress
from v0_bench.embeddings.shards import ShardFolder, cache_root
from v0_bench.embeddings.table import EmbeddingTable

FLUSH_TEXTS = 256
FLUSH_SECONDS = 3.0  # at most this much work is lost to a kill


def embed(
    texts: Sequence[str],
    backbone: str = DEFAULT_BACKBONE,
    *,
    progress: bool = True,
    device: str = "cpu",
) -> np.ndarray:
    """Vectors of texts under a frozen backbone, float32 (n, d), rows in the order of `texts`.

    Parameters
    ----------
    texts: any texts, empty ones too; n = 0 gives (0, d). Equal texts are computed once.
    backbone: `minilm` (384 dimensions, unit length), `hash`, a model folder or a hub id, with
        an optional `#mean`, `#last` or `#cls`; see `v0_bench.embeddings.backbones`.
    progress: report on stderr when the work takes over 3 seconds.
    device: torch device for texts that are not in the cache yet (`cpu`, `cuda`, `cuda:1`, `mps`).
        The cache does not tell devices apart: they agree to float32 rounding.

    Texts longer than the backbone reads are truncated by its tokenizer. Vectors are kept under
    `$V0_BENCH_CACHE` or `~/.cache/v0-bench`; when that cannot be written, a warning says so and
    the vectors are returned all the same.

    Raises V0BenchError for an unknown backbone, missing or altered weights, a device that is
    not there, or texts that are not strings.
    """
    reject_non_sequence(texts, "embed")
    resolved = resolve_backbone(backbone)
    with LOCK:
        table = _table(cache_root(), resolved)
        if not len(texts):
            dimension = table.dimension or load_encoder(resolved, device).dimension
            return np.empty((0, dimension), np.float32)
        rows = _rows(table, texts)
        if rows.min() < 0:
            missing = [text for text, row in zip(texts, rows, strict=True) if row < 0]
            _compute(table, missing, resolved, progress, device)
            rows = table.rows(texts)
        return table.vectors(rows)


@lru_cache(maxsize=16)
def _table(root: Path, backbone: Backbone) -> EmbeddingTable:
    return EmbeddingTable(ShardFolder(root / "embeddings" / backbone.label))


def _rows(table: EmbeddingTable, texts: Sequence[str]) -> np.ndarray:
    try:
        return table.rows(texts)
    except (AttributeError, TypeError):
        reject_non_strings(texts)
        raise


def _compute(
    table: EmbeddingTable, texts: list[str], backbone: Backbone, progress: bool, device: str
) -> None:
    """Encode distinct texts and add them to the table, a shard every few seconds."""
    texts = list(dict.fromkeys(texts))
    encoder = load_encoder(backbone, device)
    report = Progress(len(texts), f"embedding with {backbone.name}", progress)
    pending: list[tuple[np.ndarray, np.ndarray]] = []

    def flush() -> None:
        if pending:
            positions = np.concatenate([block[0] for block in pending])
            table.add([texts[i] for i in positions], np.concatenate([b[1] for b in pending]))
            pending.clear()

    last = time.monotonic()
    try:
        for positions, vectors in encoder.encode(texts):
            pending.append((positions, vectors))
            report.update(len(positions))
            waiting = sum(len(block[0]) for block in pending)
            if waiting >= FLUSH_TEXTS or time.monotonic() - last > FLUSH_SECONDS:
                flush()
                last = time.monotonic()
    finally:  # Ctrl-C keeps what is done
        flush()
        report.close()
