"""The command `v0-bench`: one subcommand a file, loaded late so that `--help` is quick."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence

from v0_bench import __version__
from v0_bench.errors import V0BenchError

EXAMPLES = """examples:
  v0-bench pool import outcomes_folder my_pool --format long
  v0-bench pool describe my_pool
  v0-bench predictors list
  python -m v0_bench.leaderboard --pool my_pool
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of `v0-bench` with all subcommands."""
    import v0_bench.cli.pool as pool
    import v0_bench.cli.predict as predict
    import v0_bench.cli.predictors as predictors
    import v0_bench.cli.pretrain_head as pretrain_head
    import v0_bench.cli.rollouts as rollouts
    import v0_bench.cli.train as train

    parser = argparse.ArgumentParser(
        prog="v0-bench",
        description="How likely is this policy to solve this query?",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"v0-bench {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    pool.add_parser(subparsers)
    predictors.add_parser(subparsers)
    pretrain_head.add_parser(subparsers)
    rollouts.add_parser(subparsers)
    train.add_parser(subparsers)
    predict.add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `v0-bench`; returns the exit status (2 for a user's mistake, 130 for Ctrl-C)."""
    args = build_parser().parse_args(arguments)
    return run_safely(lambda: args.run(args))


def run_safely(command: Callable[[], int]) -> int:
    """Runs a command; a V0BenchError or Ctrl-C becomes one line on stderr and an exit status."""
    try:
        status = command()
        sys.stdout.flush()
        return status
    except V0BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
