"""The three tables of a pool: their columns, and the checks every load makes.

The index of a table handed to `validate` numbers its rows as the source does (line numbers of a
JSONL file, say), so that a message names the place where a person finds the fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from numbers import Real

import numpy as np
import pandas as pd

from v0_bench.errors import V0BenchError

SCHEMA_VERSION = 1
ROLES = ("context", "train", "test")
COST_KINDS = ("measured", "estimated")

# column -> (pandas dtype, may be null)
COLUMNS: dict[str, dict[str, tuple[str, bool]]] = {
    "queries": {
        "query_id": ("str", False),
        "dataset": ("str", False),
        "text": ("str", False),
        "answer": ("str", True),
        "group": ("str", True),
    },
    "policies": {
        "policy": ("str", False),
        "family": ("str", True),
        "params_b": ("float64", True),
        "price_in": ("float64", True),
        "price_out": ("float64", True),
    },
    "outcomes": {
        "query_id": ("str", False),
        "policy": ("str", False),
        "step": ("Int64", True),
        "mean_reward": ("float64", False),
        "n_rollouts": ("int64", False),
        "cost": ("float64", True),
        "cost_kind": ("str", True),
        "tokens_out": ("float64", True),
        "role": ("str", True),
    },
}
KEYS = {"queries": ["query_id"], "policies": ["policy"], "outcomes": ["query_id", "policy", "step"]}
OPTIONAL = {"answer", "group", "family", "params_b", "price_in", "price_out", "step", "cost"} | {
    "cost_kind",
    "tokens_out",
    "role",
}
PARQUET_PLACES = {table: f"{table}.parquet, row" for table in COLUMNS}


def validate(
    tables: Mapping[str, pd.DataFrame], places: Mapping[str, str] = PARQUET_PLACES
) -> dict[str, pd.DataFrame]:
    """The tables with their types set, columns in order and rows numbered from 0.

    `places` says how to name a row of each table, such as "outcomes.jsonl, line". Raises
    V0BenchError naming file, row and value for a missing column, a wrong type, a null or NaN, a
    value out of range, a key that is not unique, or an id that no table holds.
    """
    if tables["outcomes"].empty:
        raise V0BenchError(f"the pool is empty: {places['outcomes'].split(',')[0]} has no rows")
    typed = {name: _typed(tables[name], name, places[name]) for name in COLUMNS}
    _check_ranges(typed, places)
    for name, key in KEYS.items():
        _fail_where(typed[name], typed[name].duplicated(key), places[name], key, "is there twice")
    outcomes = typed["outcomes"]
    for column, table in (("query_id", "queries"), ("policy", "policies")):
        dangling = ~outcomes[column].isin(typed[table][column])
        _fail_where(outcomes, dangling, places["outcomes"], [column], f"is not in the {table}")
    return {name: frame.reset_index(drop=True) for name, frame in typed.items()}


def _typed(frame: pd.DataFrame, table: str, place: str) -> pd.DataFrame:
    missing = set(COLUMNS[table]) - OPTIONAL - set(frame.columns)
    if missing:
        raise V0BenchError(
            f"{place.split(',')[0]} lacks the column {', '.join(sorted(missing))}; "
            f"it has {', '.join(map(str, frame.columns)) or 'none'}"
        )
    columns = {
        column: _typed_column(frame, column, dtype, nullable, place)
        for column, (dtype, nullable) in COLUMNS[table].items()
    }
    if table == "outcomes":
        columns |= _extra_numbers(frame)
    return pd.DataFrame(columns, index=frame.index)


def _typed_column(
    frame: pd.DataFrame, column: str, dtype: str, nullable: bool, place: str
) -> pd.Series:
    if column not in frame.columns:
        return pd.Series(pd.NA if dtype == "Int64" else np.nan, index=frame.index, dtype=dtype)
    values = frame[column]
    if not nullable:
        _fail_where(frame, values.isna(), place, [column], "is missing or NaN")
    if dtype == "str":
        return _texts(frame, column, place)
    numbers = _numbers(frame, column, place)
    _fail_where(frame, np.isinf(numbers), place, [column], "is infinite")
    if dtype in ("Int64", "int64"):
        fraction = numbers.notna() & (numbers % 1 != 0)
        _fail_where(frame, fraction, place, [column], "is not a whole number")
        _fail_where(frame, numbers.abs() > 2**53, place, [column], "is too large")
    return numbers.astype(dtype)  # type: ignore[call-overload]


def _texts(frame: pd.DataFrame, column: str, place: str) -> pd.Series:
    values = frame[column]
    if pd.api.types.infer_dtype(values, skipna=True) in ("string", "empty"):
        with suppress(UnicodeEncodeError):
            return values.astype("str")
    is_text = values.isna() | values.map(_is_text).astype(bool)
    _fail_where(frame, ~is_text, place, [column], "is not text")
    return values.astype("str")


def _is_text(value: object) -> bool:
    """Whether a value is a string that UTF-8 can hold: half a surrogate pair is no character."""
    return isinstance(value, str) and not any("\ud800" <= char <= "\udfff" for char in value)


def _numbers(frame: pd.DataFrame, column: str, place: str) -> pd.Series:
    values = frame[column]
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):
        return values.astype("Float64").astype("float64")
    is_number = values.isna() | values.map(_is_number).astype(bool)
    _fail_where(frame, ~is_number, place, [column], "is not a number")
    return values.map(float, na_action="ignore").astype("float64")


def _is_number(value: object) -> bool:
    """Whether a value is a number (no bool, no text) that a float can hold."""
    if not isinstance(value, Real | Decimal) or isinstance(value, bool):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def _extra_numbers(frame: pd.DataFrame) -> dict[str, pd.Series]:
    """Columns beyond the schema are kept where they hold numbers, and ignored otherwise."""
    extra = {}
    for column in frame.columns.difference(list(COLUMNS["outcomes"])):
        if pd.api.types.is_numeric_dtype(frame[column]):
            extra[str(column)] = frame[column].astype("float64")
    return extra


def _check_ranges(typed: Mapping[str, pd.DataFrame], places: Mapping[str, str]) -> None:
    outcomes, place = typed["outcomes"], places["outcomes"]
    reward = outcomes["mean_reward"]
    _fail_where(outcomes, ~reward.between(0, 1), place, ["mean_reward"], "is not in [0, 1]")
    _fail_where(outcomes, outcomes["n_rollouts"] < 1, place, ["n_rollouts"], "is below 1")
    for table, column in (
        ("outcomes", "cost"),
        ("outcomes", "tokens_out"),
        ("policies", "params_b"),
        ("policies", "price_in"),
        ("policies", "price_out"),
    ):
        frame = typed[table]
        _fail_where(frame, frame[column] < 0, places[table], [column], "is negative")
    for column, allowed in (("role", ROLES), ("cost_kind", COST_KINDS)):
        values = outcomes[column]
        wrong = values.notna() & ~values.isin(allowed)
        _fail_where(outcomes, wrong, place, [column], f"is not one of {', '.join(allowed)}")
    for table in COLUMNS:
        key = KEYS[table][0]
        _fail_where(typed[table], typed[table][key] == "", places[table], [key], "is empty")


def _fail_where(
    frame: pd.DataFrame, wrong: pd.Series, place: str, columns: list[str], fault: str
) -> None:
    """Raises V0BenchError about the first row where `wrong` holds, and how many there are."""
    positions = np.flatnonzero(np.asarray(wrong, dtype=bool))
    if not positions.size:
        return
    row = frame.iloc[positions[0]]
    value = ", ".join(f"{column} = {str(row[column])[:80]!r}" for column in columns)
    more = f" ({positions.size} such rows)" if positions.size > 1 else ""
    raise V0BenchError(f"{place} {frame.index[positions[0]]}: {value} {fault}{more}")
