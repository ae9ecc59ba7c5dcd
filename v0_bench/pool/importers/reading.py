"""JSONL, JSON and CSV from disk; whatever is wrong is told with its file and line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pandas as pd

from v0_bench.errors import V0BenchError

CSV_ROWS_AT_ONCE = 200_000


def jsonl_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number from 1, object) of every line that is not blank, read one at a time.

    A name ending in `.gz` is unpacked on the way. Raises V0BenchError naming file and line where
    the file is cut off, is not UTF-8, or a line is not a JSON object.
    """
    number = 0
    try:
        with _open(path) as lines:
            for number, line in enumerate(lines, 1):
                if not line.isspace():
                    yield number, _parsed_object(line, f"{path}, line {number}")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise V0BenchError(
            f"{path}: the gzip data are damaged or cut off after line {number} ({error}); "
            "fetch the file again"
        ) from error
    except OSError as error:
        raise unreadable(path, error) from error


def read_jsonl(path: Path) -> pd.DataFrame:
    """A JSONL file as a table: a column for every key, absent keys None, indexed by line."""
    columns: dict[str, list[Any]] = {}
    numbers: list[int] = []
    for number, row in jsonl_rows(path):
        for key, value in row.items():
            if key not in columns:
                columns[key] = [None] * len(numbers)
            columns[key].append(value)
        numbers.append(number)
        if len(row) < len(columns):
            for key in columns.keys() - row.keys():
                columns[key].append(None)
    return pd.DataFrame(columns, index=pd.Index(numbers, dtype="int64"))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        return _parsed_object(path.read_bytes(), str(path))
    except OSError as error:
        raise unreadable(path, error) from error


def csv_chunks(
    path: Path, wanted: Callable[[str], bool], texts: Collection[str]
) -> Iterator[pd.DataFrame]:
    """The wanted columns of a CSV file in pieces of bounded size; rows are numbered from 1.

    Columns named in `texts` are read as text, others as what they look like; an empty field is
    a null, the word "nan" in a text is not.
    """
    try:
        with pd.read_csv(
            path,
            usecols=lambda name: wanted(str(name)),
            dtype=dict.fromkeys(texts, "str"),
            chunksize=CSV_ROWS_AT_ONCE,
            keep_default_na=False,
            na_values=[""],
        ) as chunks:
            for chunk in chunks:
                if not isinstance(chunk.index, pd.RangeIndex):
                    raise V0BenchError(f"{path}: rows have more fields than the header has names")
                chunk.index += 1
                yield chunk
    except UnicodeDecodeError as error:
        raise V0BenchError(f"{path} is not UTF-8: {error}; convert it first") from error
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError) as error:
        raise V0BenchError(f"{path} is not a readable CSV file: {str(error).strip()}") from error
    except OSError as error:
        raise unreadable(path, error) from error


def parquet_table(path: Path) -> pd.DataFrame:
    """The table in a Parquet file; rows are numbered from 1."""
    from pyarrow import ArrowException

    try:
        table = pd.read_parquet(path)
    except (ArrowException, ValueError) as error:
        raise V0BenchError(f"{path} is not a readable Parquet file: {error}") from error
    except OSError as error:
        raise unreadable(path, error) from error
    table.index = pd.RangeIndex(1, len(table) + 1)
    return table


def unreadable(path: Path, error: OSError) -> V0BenchError:
    """What to tell a user whose file the system does not hand out."""
    return V0BenchError(f"cannot read {path}: {error.strerror or error}")


def _open(path: Path) -> gzip.GzipFile | BinaryIO:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _parsed_object(data: bytes, place: str) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise V0BenchError(f"{place}: not UTF-8 ({error.reason} at byte {error.start})") from error
    except (ValueError, RecursionError) as error:
        raise V0BenchError(f"{place}: not JSON, or cut off ({error})") from error
    if not isinstance(value, dict):
        raise V0BenchError(f"{place}: a JSON object was expected, not {str(value)[:40]!r}")
    return value
