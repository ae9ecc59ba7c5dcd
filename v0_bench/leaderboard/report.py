"""The leaderboard as files (JSON, CSV, Markdown) and as a table on the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from v0_bench.files import atomic_file
from v0_bench.leaderboard.rows import NO_CEILING
from v0_bench.metrics import METRICS

SCHEMA_VERSION = 1
PLAIN = ("pool", "protocol", "predictor", "status", "reason", "rank", "fit_seconds", "ms_per_query")
ENDS = ("low", "high", "low_policies", "high_policies")
HEADERS = ("", "predictor", "AUC", "95 %", "pair", "MSE", "skill", "ECE", "fit s", "ms/q")
LEGEND = (
    "AUC [95 % over query groups], pairwise accuracy, MSE, Brier skill over context-mean, "
    "ECE, seconds to fit, milliseconds per query. Rank: 1 + how many are better by AUC, "
    "the paired interval of the difference above 0."
)
Row = dict[str, Any]


def write_files(folder: Path, document: dict[str, Any], predictions: pd.DataFrame) -> None:
    """Writes leaderboard.json, .csv, .md and predictions.parquet, each entirely or not at all."""
    rows = document["rows"]
    _write_text(folder / "leaderboard.json", json.dumps(document, indent=1, allow_nan=False) + "\n")
    _write_text(folder / "leaderboard.csv", _flat(rows).to_csv(index=False))
    _write_text(folder / "leaderboard.md", markdown(document))
    with atomic_file(folder / "predictions.parquet") as temporary:
        predictions.to_parquet(temporary, index=False, compression="zstd")


def tables(rows: Sequence[Row]) -> Iterator[tuple[str, str, list[Row]]]:
    """The rows of each (pool, protocol), in order of appearance."""
    for pool, protocol in dict.fromkeys((row["pool"], row["protocol"]) for row in rows):
        mine = [row for row in rows if (row["pool"], row["protocol"]) == (pool, protocol)]
        yield pool, protocol, mine


def markdown(document: dict[str, Any]) -> str:
    """All tables as Markdown, with the command that made them."""
    parts = ["# Leaderboard", f"    {_one_line(document['provenance']['command'])}"]
    for pool, protocol, rows in tables(document["rows"]):
        parts += [_escaped(f"## {pool}, {protocol}"), _markdown_table(HEADERS, map(cells, rows))]
        parts += [_escaped(f"- {line}") for line in remarks(rows)]
    if document["mean_ranks"]:
        means = ((m["predictor"], f"{m['mean_rank']:.2f}") for m in document["mean_ranks"])
        parts += ["## Mean rank", _markdown_table(("predictor", "mean rank"), means)]
    return "\n\n".join([*parts, LEGEND]) + "\n"


def print_tables(document: dict[str, Any]) -> None:
    """Prints one table a pool, 80 columns wide, and the mean ranks of several."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(width=80, highlight=False)
    for pool, protocol, rows in tables(document["rows"]):
        console.print(_rich_table(f"{pool}, {protocol}", HEADERS, [cells(row) for row in rows]))
        for line in remarks(rows):
            console.print(Padding(Text(line), (0, 0, 0, 2)))
    if document["mean_ranks"]:
        means = [(m["predictor"], f"{m['mean_rank']:.2f}") for m in document["mean_ranks"]]
        console.print(_rich_table("mean rank over tables", ("predictor", "mean rank"), means))
    console.print(Text(LEGEND, style="dim"))


def cells(row: Row) -> tuple[str, ...]:
    """A row of the printed table, parallel to HEADERS; a dash where there is no number."""
    rank = "-" if row["rank"] is None else str(row["rank"])
    numbers = [
        _number(row, "auc", 3),
        NO_CEILING if row["reason"] == NO_CEILING else _range(row.get("auc")),
        _number(row, "pairwise_accuracy", 3),
        _number(row, "mse", 4),
        _number(row, "brier_skill", 3),
        _number(row, "ece", 3),
    ]
    times = [_seconds(row["fit_seconds"]), _seconds(row["ms_per_query"])]
    return (rank, row["predictor"], *numbers, *times)


def remarks(rows: Sequence[Row]) -> list[str]:
    """Why some rows have no numbers: one line for every reason, with the rows it holds for."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if row["status"] != "ok" and row["reason"] != NO_CEILING:
            why = f"{row['status'].replace('_', ' ')}: {_one_line(row['reason'])}"
            names.setdefault(why, []).append(row["predictor"])
    return [f"{', '.join(mine)}: {why}" for why, mine in names.items()]


def _one_line(text: str) -> str:
    """The text without line breaks or control characters, which a terminal might obey."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _number(row: Row, metric: str, digits: int) -> str:
    entry = row.get(metric)
    if entry is None or entry["value"] is None:
        return "-"
    return _short(entry["value"], digits)


def _short(value: float, digits: int) -> str:
    """A number in as many characters below 1 (.123) as from 1 on (1.23)."""
    if round(abs(value), digits) >= 1:
        return f"{value:.{digits - 1}f}"
    return f"{value:.{digits}f}".replace("0.", ".", 1)


def _range(entry: dict[str, Any] | None) -> str:
    if entry is None or entry["low"] is None:
        return "-"
    return f"[{_short(entry['low'], 2)} {_short(entry['high'], 2)}]"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value >= 0.05 else f"{value:.2f}"


def _markdown_table(headers: Sequence[str], rows: Any) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(_escaped(cell) for cell in line) + " |" for line in lines)


def _escaped(cell: str) -> str:
    """Text in which nothing is Markdown or HTML."""
    text = _one_line(cell).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\`*_|]|\](?=[(\[:]))", r"\\\1", text)


def _rich_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(title),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title_justify="left",
    )
    for number, header in enumerate(headers):
        name = header == "predictor"
        table.add_column(
            header,
            justify="left" if name else "right",
            overflow="fold" if name else "ellipsis",
            no_wrap=not name,
            style="bold" if number == 1 else None,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _flat(rows: Sequence[Row]) -> pd.DataFrame:
    flat = []
    for row in rows:
        line = {name: row[name] for name in PLAIN}
        for metric in METRICS:
            entry = row.get(metric) or {}
            line[metric] = entry.get("value")
            line |= {f"{metric}_{end}": entry.get(end) for end in ENDS}
        flat.append(line)
    return pd.DataFrame(flat).astype({"rank": "Int64"})


def _write_text(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
