"""The command `v0-lm-eval`: lm-eval's own command line, with this package's tasks known to it.

It needs no start-up hook, and starts faster: where all tasks asked for are ours, lm-eval's own
are not indexed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from v0_bench.cli import run_safely


def main() -> int:
    """Runs lm-eval with the arguments of this process; 2 for a user's mistake."""

    def run() -> int:
        from lm_eval.__main__ import cli_evaluate
        from lm_eval.tasks.manager import TaskManager

        from v0_bench.lm_eval_plugin import install

        install(TaskManager, only_ours=only_our_tasks(sys.argv[1:]))
        cli_evaluate()
        return 0

    return run_safely(run)


def only_our_tasks(arguments: Sequence[str]) -> bool:
    """Whether every name that follows --tasks or -t is one of ours (v0_...)."""
    names: list[str] = []
    reading = False
    for argument in arguments:
        if argument.startswith("-"):
            flag, _, value = argument.partition("=")
            reading = flag in ("--tasks", "-t")
            names += value.split(",") if reading and value else []
        elif reading:
            names += argument.split(",")
    return bool(names) and all(name.startswith("v0_") for name in names)
