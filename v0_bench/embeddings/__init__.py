"""Frozen text backbones with one shared cache: `embed(texts, backbone)` -> float32 (n, d).

A vector is computed once per machine: it is kept on disk under the hash of the backbone's files,
its pooling and the text, and in memory for the life of the process. Importing this package loads
NumPy only; torch is imported when a text is missing from the cache.
"""

from v0_bench.embeddings.api import embed
from v0_bench.embeddings.backbones import DEFAULT_BACKBONE
from v0_bench.embeddings.shards import cache_root

__all__ = ["DEFAULT_BACKBONE", "cache_root", "embed"]
