"""`v0-bench` as a whole: help, JSON, exit statuses, pipes that close."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leaderboard_runs import environment
from pools import small_pool
from v0_bench import __version__, cli
from v0_bench.errors import V0BenchError
from v0_bench.leaderboard import __main__ as leaderboard

V0_BENCH = [sys.executable, "-c", "import sys; from v0_bench.cli import main; sys.exit(main())"]
NO_TABLE = ("pool import", "pool fetch", "pretrain-head", "train", "predict")
PRINT_NO_TABLE = tuple(f"v0-bench {name}" for name in NO_TABLE)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser and those of all its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from parsers(child)


def all_parsers() -> list[argparse.ArgumentParser]:
    return [*parsers(cli.build_parser()), leaderboard.build_parser()]


def commands() -> list[argparse.ArgumentParser]:
    """The parsers that run something."""
    return [p for p in all_parsers() if p._subparsers is None]


@pytest.mark.parametrize("parser", commands(), ids=lambda parser: parser.prog)
def test_commands_that_print_a_table_take_json(parser: argparse.ArgumentParser) -> None:
    takes = "--json" in parser._option_string_actions
    assert takes == (parser.prog not in PRINT_NO_TABLE)


@pytest.mark.parametrize("parser", all_parsers(), ids=lambda parser: parser.prog)
def test_help_has_examples_and_fits(parser: argparse.ArgumentParser) -> None:
    text = parser.format_help()
    assert "example" in text
    assert parser.prog.split()[0] in text.split("example", 1)[1]
    assert all(len(line) <= 100 for line in text.splitlines())


def test_json_of_every_command_is_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pool = str(small_pool().save(tmp_path / "pool"))
    for words in (
        ["pool", "describe", pool],
        ["pool", "validate", pool],
        ["pool", "list"],
        ["predictors", "list"],
        ["predictors", "show", "knn"],
    ):
        assert cli.main([*words, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"v0-bench {__version__}\n"


@pytest.mark.parametrize("words", [[], ["pool"], ["nothing"], ["pool", "nothing"]])
def test_words_that_are_no_command(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert "usage: v0-bench" in capsys.readouterr().err


def fails(error: BaseException) -> int:
    def command() -> int:
        raise error

    return cli.run_safely(command)


def test_a_mistake_is_status_2_and_an_interrupt_130(capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(V0BenchError("do this")) == 2
    assert capsys.readouterr().err == "error: do this\n"
    assert fails(KeyboardInterrupt()) == 130
    assert capsys.readouterr().err.strip() == "interrupted"
    assert cli.run_safely(lambda: 1) == 1
    with pytest.raises(ZeroDivisionError):  # our own faults keep their traceback
        fails(ZeroDivisionError())


@pytest.mark.parametrize(
    "words",
    [["predictors", "list", "--json"], ["predictors", "list"], ["pool", "list"], ["--help"]],
)
def test_a_reader_that_leaves_is_no_traceback(words: list[str]) -> None:
    process = subprocess.Popen(
        [*V0_BENCH, *words],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate()[1] == ""


def test_ctrl_c_while_a_pool_is_read(tmp_path: Path) -> None:
    small_pool().save(tmp_path / "pool")
    code = """
import sys, time
import v0_bench.pool.pool as pool
from v0_bench.cli import main

def slow_groups(queries):
    print("on", flush=True)
    time.sleep(60)

pool.query_groups = slow_groups
sys.exit(main())
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, "pool", "validate", str(tmp_path / "pool")],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.strip()) == (130, "interrupted")
