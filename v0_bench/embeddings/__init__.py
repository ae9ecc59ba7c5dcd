"""Frozen text backbones with one shared cache.

`embed(texts, backbone)` gives a vector a text, float32 (n, d); `token_states(texts, backbone)` the
hidden states of its tokens. Either is computed once per machine: it is kept on disk under the hash
of the backbone's files and the text. Vectors stay in memory for the life of the process, token
states are mapped from disk. Importing this package loads NumPy only; torch is imported when a text
is missing from the cache, or when token states are read.
"""

from v0_bench.embeddings.api import embed
from v0_bench.embeddings.backbones import DEFAULT_BACKBONE
from v0_bench.embeddings.shards import cache_root
from v0_bench.embeddings.states import TokenBatch, TokenStates, token_states

__all__ = [
    "DEFAULT_BACKBONE",
    "TokenBatch",
    "TokenStates",
    "cache_root",
    "embed",
    "token_states",
]
