"""A pool: a set of outcomes with its queries and policies, on disk as three Parquet files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.files import atomic_folder
from v0_bench.pool.groups import query_groups
from v0_bench.pool.schema import COLUMNS, KEYS, PARQUET_PLACES, SCHEMA_VERSION, validate


class Pool:
    """Outcomes, queries and policies that belong together. Treat the tables as read-only.

    `queries`, `policies` and `outcomes` are data frames with the columns of `schema.COLUMNS`;
    `outcomes` may carry further numeric columns. The constructor validates them and raises
    V0BenchError naming table, row and value.
    """

    def __init__(
        self,
        name: str,
        queries: pd.DataFrame,
        policies: pd.DataFrame,
        outcomes: pd.DataFrame,
        *,
        licence: str | None = None,
        source: str | None = None,
        citation: str | None = None,
        places: Mapping[str, str] = PARQUET_PLACES,
    ) -> None:
        tables = {"queries": queries, "policies": policies, "outcomes": outcomes}
        valid = validate(tables, places)
        self.name = name
        self.queries = valid["queries"]
        self.policies = valid["policies"]
        self.outcomes = valid["outcomes"]
        self.licence = licence
        self.source = source
        self.citation = citation

    def __repr__(self) -> str:
        return (
            f"Pool({self.name!r}: {len(self.queries)} queries, {len(self.policies)} policies, "
            f"{len(self.outcomes)} outcomes)"
        )

    @classmethod
    def load(cls, path: str | Path) -> Pool:
        """The pool in a folder, validated; V0BenchError names the file, row and value at fault."""
        path = Path(path)
        about = _read_about(path)
        tables = {table: _read_parquet(path / f"{table}.parquet") for table in COLUMNS}
        pool = cls(
            about["name"],
            tables["queries"],
            tables["policies"],
            tables["outcomes"],
            licence=about.get("licence"),
            source=about.get("source"),
            citation=about.get("citation"),
            places={table: f"{path / table}.parquet, row" for table in COLUMNS},
        )
        stated = about.get("fingerprint")
        if stated is not None and stated != pool.fingerprint:
            raise V0BenchError(
                f"{path}: the tables do not match the fingerprint in pool.json; if you changed "
                "them on purpose, remove the line 'fingerprint' from pool.json"
            )
        return pool

    def save(self, path: str | Path, overwrite: bool = False) -> Path:
        """Writes the pool as a folder, entirely or not at all, and returns its path.

        Raises V0BenchError if the folder exists and `overwrite` is false, or holds something else
        than a pool, or cannot be written.
        """
        path = Path(path)
        if path.is_dir() and any(path.iterdir()) and not (path / "pool.json").exists():
            raise V0BenchError(f"{path} exists and is not a pool; choose another place")
        about = {
            "name": self.name,
            "schema_version": SCHEMA_VERSION,
            "licence": self.licence,
            "source": self.source,
            "citation": self.citation,
            "fingerprint": self.fingerprint,
        }
        with atomic_folder(path, overwrite) as folder:
            for table in COLUMNS:
                frame: pd.DataFrame = getattr(self, table)
                frame.to_parquet(folder / f"{table}.parquet", index=False, compression="zstd")
            (folder / "pool.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        return path

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the three tables' contents, whatever the order of rows and columns."""
        digest = hashlib.sha256()
        for table, key in KEYS.items():
            frame = getattr(self, table).sort_values(key, kind="stable")
            for column in sorted(frame.columns):
                digest.update(f"{table}.{column}\0".encode())
                digest.update(_column_bytes(frame[column]))
        return digest.hexdigest()

    @cached_property
    def query_group(self) -> pd.Series:
        """Group of each query, indexed by query_id: near-duplicates share one."""
        groups = query_groups(self.queries)
        return pd.Series(groups, index=self.queries["query_id"], name="query_group")

    @cached_property
    def family(self) -> pd.Series:
        """Family of each policy, indexed by policy; a policy without one is its own."""
        policies = self.policies
        family = policies["family"].fillna(policies["policy"])
        return pd.Series(family.to_numpy(), index=policies["policy"], name="family")

    @property
    def has_steps(self) -> bool:
        """Whether any outcome belongs to a training step."""
        return bool(self.outcomes["step"].notna().any())

    def filter(
        self,
        *,
        policies: Collection[str] | None = None,
        datasets: Collection[str] | None = None,
        steps: Collection[int] | None = None,
        query_ids: Collection[str] | None = None,
    ) -> Pool:
        """The outcomes of the named policies, data sets, steps and queries, as a pool.

        Queries and policies without an outcome are dropped. Raises V0BenchError if nothing is left.
        """
        keep = pd.Series(True, index=self.outcomes.index)
        dataset = self.outcomes["query_id"].map(self.queries.set_index("query_id")["dataset"])
        for column, wanted in (
            (self.outcomes["policy"], policies),
            (dataset, datasets),
            (self.outcomes["step"], steps),
            (self.outcomes["query_id"], query_ids),
        ):
            if wanted is not None:
                keep &= column.isin(list(wanted))
        outcomes = self.outcomes[keep]
        return self._with(
            self.queries[self.queries["query_id"].isin(outcomes["query_id"])],
            self.policies[self.policies["policy"].isin(outcomes["policy"])],
            outcomes,
        )

    @staticmethod
    def merge(name: str, pools: Sequence[Pool]) -> Pool:
        """One pool of several. Rows that are equal in all columns are kept once.

        Raises V0BenchError where two pools hold different rows under one key.
        """
        tables = {
            table: pd.concat([getattr(pool, table) for pool in pools], ignore_index=True)
            for table in COLUMNS
        }
        for table, key in KEYS.items():
            tables[table] = tables[table].drop_duplicates(ignore_index=True)
            clash = tables[table][tables[table].duplicated(key)]
            if len(clash):
                value = ", ".join(str(clash.iloc[0][column]) for column in key)
                raise V0BenchError(f"cannot merge: the pools differ on {table} {value}")
        return Pool(
            name,
            tables["queries"],
            tables["policies"],
            tables["outcomes"],
            licence=_joined(pool.licence for pool in pools),
            source=_joined(pool.source for pool in pools),
            citation=_joined(pool.citation for pool in pools),
        )

    def _with(self, queries: pd.DataFrame, policies: pd.DataFrame, outcomes: pd.DataFrame) -> Pool:
        return Pool(
            self.name,
            queries,
            policies,
            outcomes,
            licence=self.licence,
            source=self.source,
            citation=self.citation,
        )


def _joined(values: Iterable[str | None]) -> str | None:
    return "; ".join(dict.fromkeys(value for value in values if value)) or None


def _column_bytes(column: pd.Series) -> bytes:
    if pd.api.types.is_numeric_dtype(column):
        return column.to_numpy(dtype="float64", na_value=np.nan).tobytes()
    return json.dumps(column.astype(object).where(column.notna(), None).tolist()).encode()


def _read_about(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise V0BenchError(f"{path} is not a pool: no such folder")
    try:
        about = json.loads((path / "pool.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise V0BenchError(
            f"{path} is not a pool: it has no pool.json; `v0-bench pool import` makes one"
        ) from None
    except ValueError as error:
        raise V0BenchError(f"{path / 'pool.json'} is not JSON: {error}") from error
    if not isinstance(about, dict) or not isinstance(about.get("name"), str):
        raise V0BenchError(f"{path / 'pool.json'} lacks the pool's name")
    if about.get("schema_version") != SCHEMA_VERSION:
        raise V0BenchError(
            f"{path}: schema version {about.get('schema_version')} is not {SCHEMA_VERSION}, "
            "the one this release reads"
        )
    return about


def _read_parquet(path: Path) -> pd.DataFrame:
    from pyarrow import ArrowException

    try:
        return pd.read_parquet(path)
    except FileNotFoundError:
        raise V0BenchError(f"{path} is missing") from None
    except (ArrowException, OSError, ValueError) as error:
        raise V0BenchError(f"{path} is not a readable Parquet file: {error}") from error
