"""How a leaderboard reads: 80 columns, plain when piped, odd names whole and harmless."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from leaderboard_runs import rated_pool
from plot_tables import row as plain_row
from v0_bench.leaderboard.__main__ import main
from v0_bench.leaderboard.report import cells, markdown, print_tables, remarks

ODD = "odd [bold]x[/bold] | <script>y</script> .. :apple: [a](b) `t` \\| é/z"


def row(name: str, auc: float | None, rank: int | None, status: str = "ok") -> dict[str, Any]:
    """A row with all that a table prints; numbers are those of a good predictor."""
    made = plain_row(name, auc, rank, status=status)
    numbers = {"pairwise_accuracy": 0.7, "mse": 0.1234, "brier_skill": 0.1, "ece": 0.05}
    if status == "ok":
        made |= {metric: made["auc"] | {"value": value} for metric, value in numbers.items()}
    times = dict.fromkeys(("fit_seconds", "ms_per_query"), 1.0 if status == "ok" else None)
    return made | times | {"reason": None}


def document_of(*rows: dict[str, Any]) -> dict[str, Any]:
    return {"provenance": {"command": "python"}, "rows": list(rows), "mean_ranks": []}


def failed(name: str, reason: str, status: str = "error") -> dict[str, Any]:
    return row(name, None, None, status) | {"reason": reason}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rated_pool(ODD).save(tmp_path_factory.mktemp("odd") / "pool")


def test_odd_names_come_out_whole(
    odd: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--pool", odd, "--predictors", "context-mean,random", "--backbone", "hash"]
    assert main(list(map(str, [*arguments, "--output", tmp_path / "out"]))) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    shown = " ".join(out.split())
    assert " ".join(ODD.split()) in shown
    assert json.loads((tmp_path / "out" / "leaderboard.json").read_text())["rows"][0]["pool"] == ODD
    table = pd.read_csv(tmp_path / "out" / "leaderboard.csv")
    assert set(table["pool"]) == {ODD}
    text = (tmp_path / "out" / "leaderboard.md").read_text()
    assert "<script" not in text
    assert "[a](b)" not in text
    assert "\\`t\\` \\\\\\|" in text
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len([path for path in made if path.suffix == ".png"]) == 3
    assert {path.parent for path in made} == {tmp_path / "out", tmp_path / "out" / "work"}


def test_table_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    wide = row("cross-policy-oracle", 1.0, None) | {"fit_seconds": 1234.5, "ms_per_query": 123.4}
    wide["brier_skill"] = wide["brier_skill"] | {"value": -12.345}
    wide["pairwise_accuracy"] = wide["pairwise_accuracy"] | {"value": 1.0}
    print_tables(
        document_of(
            row("a-predictor-with-a-name-that-no-table-has-room-for-in-one-line", 0.5, 12),
            wide,
            failed("broken", "ValueError: " + "word " * 60),
        )
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any("1.00" in line and "-12.35" in line and "1234.5" in line for line in lines)
    assert all(line.startswith("  ") for line in lines if "word" in line)  # wrapped, indented


def test_the_default_names_stand_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("gaussian-process", 0.6, 1), row("cross-policy-oracle", 0.9, None)]
    for one in rows:
        one["brier_skill"] = one["brier_skill"] | {"value": -1.558}
        one |= {"fit_seconds": 123.4, "ms_per_query": 12.3}
    print_tables(document_of(*rows))
    out = capsys.readouterr().out
    assert all(one["predictor"] in out for one in rows)


def test_numbers_lose_a_digit_at_one() -> None:
    one = row("x", 0.9996, 1)
    assert cells(one)[2] == "1.00"
    assert cells(row("x", 0.0, 1))[2] == ".000"
    assert cells(row("x", -0.25, 1))[2] == "-.250"


def test_a_row_without_numbers_has_dashes() -> None:
    assert cells(failed("broken", "why")) == ("-", "broken", *["-"] * 8)


def test_remarks_join_rows_with_one_reason() -> None:
    rows = [failed("a", "no steps", "not_applicable"), failed("b", "no steps", "not_applicable")]
    assert remarks([*rows, failed("c", "KeyError: 'x'"), row("fine", 0.5, 1)]) == [
        "a, b: not applicable: no steps",
        "c: error: KeyError: 'x'",
    ]


def test_reasons_cannot_steer_the_terminal_or_the_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = document_of(failed("bad", "Oops: \x1b[31m<img src=x>\n\n# Title\r| [link](x)"))
    print_tables(document)
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "bad: error: Oops: [31m<img src=x> # Title | [link](x)" in " ".join(out.split())
    text = markdown(document)
    assert "- bad: error: Oops: [31m&lt;img src=x> # Title \\| [link\\](x)" in text
    assert "\n# Title" not in text
