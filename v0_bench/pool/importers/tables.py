"""What every importer returns, and what a user may tell one."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from v0_bench.pool.schema import PARQUET_PLACES


@dataclass(frozen=True)
class Options:
    """Choices that files leave open; only `lm-eval` has any."""

    metric: str | None = None
    policy: str | None = None
    step: int | None = None


@dataclass
class Tables:
    """The three tables of a pool as read: not yet validated, families not yet assigned.

    `places` says how to name a row of each table, the index of a table numbers its rows as its
    source does. `notes` tells what was left out and why, one sentence each.
    """

    queries: pd.DataFrame
    policies: pd.DataFrame
    outcomes: pd.DataFrame
    places: dict[str, str] = field(default_factory=lambda: dict(PARQUET_PLACES))
    notes: list[str] = field(default_factory=list)


def policies_of(outcomes: pd.DataFrame) -> pd.DataFrame:
    """A table of policies with nothing known but the names that stand in the outcomes."""
    names = outcomes.get("policy", pd.Series(dtype="str"))
    return pd.DataFrame({"policy": sorted({name for name in names if isinstance(name, str)})})


def counted(count: int, what: str, plural: str | None = None) -> str:
    """A count with its noun, such as "1 query" or "1,024 queries"."""
    return f"{count:,} {what if count == 1 else plural or what + 's'}"
