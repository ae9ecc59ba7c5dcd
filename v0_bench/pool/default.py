"""Which pool is meant: a folder, a name, or none given at all."""

from __future__ import annotations

import os
from pathlib import Path

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name
from v0_bench.pool.catalogue import catalogue
from v0_bench.pool.fetch import cached_pool, fetch, is_pool
from v0_bench.pool.pool import Pool

PACKAGED_POOL = Path(__file__).with_name("packaged")
OFFICIAL_SAMPLE = "v0-release"


def resolve_pool(name_or_path: str) -> Pool:
    """The pool in a folder, or the fetched one of that name.

    Raises V0BenchError if it is neither: for a catalogued source it says how to fetch it, else it
    suggests the nearest name.
    """
    path, cached = Path(name_or_path), cached_pool(name_or_path)
    for folder in (path, cached):
        if is_pool(folder):
            return Pool.load(folder)
    entries = catalogue()
    if name_or_path in entries:
        raise V0BenchError(
            f"the pool {name_or_path!r} is not on this machine yet: "
            f"run `v0-bench pool fetch {name_or_path}`"
        )
    if path.exists() or path.name != name_or_path:
        return Pool.load(path)  # which says what the folder lacks
    raise V0BenchError(unknown_name("pool", name_or_path, entries))


def default_pool() -> Pool:
    """$V0_BENCH_POOL if set, else the packaged pool, else the official V0 sample (fetched once).

    Raises V0BenchError naming all three if none can be had.
    """
    chosen = os.environ.get("V0_BENCH_POOL")
    if chosen:
        return resolve_pool(chosen)
    if is_pool(PACKAGED_POOL):
        return Pool.load(PACKAGED_POOL)
    try:
        return Pool.load(fetch(OFFICIAL_SAMPLE))
    except V0BenchError as error:
        raise V0BenchError(
            "there is no default pool: V0_BENCH_POOL is not set (a pool's folder or name), this "
            f"installation has no packaged pool ({PACKAGED_POOL}), and the official sample "
            f"could not be had: {error}"
        ) from error
