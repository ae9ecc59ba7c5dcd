"""Pools from other layouts: one file per layout, one function for all of them."""

from v0_bench.pool.importers.convert import FORMATS, Imported, guess_format, import_pool

__all__ = ["FORMATS", "Imported", "guess_format", "import_pool"]
