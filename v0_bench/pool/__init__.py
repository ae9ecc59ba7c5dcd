"""Outcomes on disk: the pool, its importers and where pools come from."""

from v0_bench.pool.pool import Pool

__all__ = ["Pool"]
