"""`v0-bench pool`: what it prints, its JSON, and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pools import small_pool, write_jsonl, write_long
from v0_bench import Pool
from v0_bench.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = main(["pool", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_import_then_describe_then_validate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, made = write_long(tmp_path / "source"), tmp_path / "made"
    status, out, _ = run(capsys, "import", source, made, "--licence", "MIT")
    assert (status, out) == (0, f"{made}: 8 queries, 2 policies, 16 outcomes\n")
    assert Pool.load(made).name == "made"
    status, out, _ = run(capsys, "describe", made)
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out
    for words in ("made", "2 in 2 families", "8 in 8 groups", "leave-one-out AUC", "MIT"):
        assert words in out
    status, out, _ = run(capsys, "describe", made, "--json")
    assert json.loads(out)["fingerprint"] == Pool.load(made).fingerprint
    status, out, _ = run(capsys, "validate", made)
    assert out.startswith("made is valid: 8 queries, 2 policies, 16 outcomes in 8 groups")
    status, out, _ = run(capsys, "validate", made, "--json")
    assert json.loads(out)["valid"] is True


def test_import_does_not_replace_unless_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, made = write_long(tmp_path / "source"), small_pool("old").save(tmp_path / "made")
    status, out, err = run(capsys, "import", source, made)
    assert (status, out) == (2, "")
    assert "exists already; pass --overwrite" in err
    assert run(capsys, "import", source, made, "--overwrite", "--name", "new")[0] == 0
    assert Pool.load(made).name == "new"


def test_import_says_what_it_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_long(tmp_path / "source")
    rows = [json.loads(line) for line in (source / "queries.jsonl").read_text().splitlines()]
    write_jsonl(source / "queries.jsonl", [*rows[:-1], rows[-1] | {"text": None}])
    _, out, _ = run(capsys, "import", source, tmp_path / "made", "--format", "long")
    assert "left out 1 query without a text, and with them 2 outcomes" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["describe", "v0-relaese"], "unknown pool 'v0-relaese': did you mean 'v0-release'?"),
        (["validate", "/no/such/folder"], "no such folder"),
        (["import", "/no/such/folder", "made"], "does not exist"),
        (["fetch", "emmbedllm"], "unknown pool 'emmbedllm': did you mean 'embedllm'?"),
    ],
)
def test_mistakes_are_one_line_and_status_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_describe_prints_names_with_brackets_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = small_pool("odd [red] name")
    assert "odd [red] name" in run(capsys, "describe", pool.save(tmp_path / "odd"))[1]


def test_list_names_every_source(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "list")
    assert status == 0
    assert max(map(len, out.splitlines())) <= 80
    facts = json.loads(run(capsys, "list", "--json")[1])
    assert all(entry["name"] in out for entry in facts)
    assert {"name", "status", "licence", "citation", "homepage", "fetched"} <= set(facts[0])
