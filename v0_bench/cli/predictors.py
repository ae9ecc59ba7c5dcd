"""`v0-bench predictors list|show NAME`: what predictors there are and what each one needs."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from v0_bench.predictors import Predictor

LIST_EXAMPLE = "v0-bench predictors list --json"
SHOW_EXAMPLE = "v0-bench predictors show knn"


def add_parser(subparsers: Any) -> None:
    """Adds `predictors` to the subcommands of `v0-bench`."""
    about = "list the predictors, or show one"
    parser = subparsers.add_parser("predictors", help=about, epilog=f"example: {LIST_EXAMPLE}")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    about = "every registered predictor, one a line"
    listing = actions.add_parser("list", help=about, epilog=f"example: {LIST_EXAMPLE}")
    listing.set_defaults(run=run_list)
    about = "one predictor: paper, licence, needs, parameters"
    showing = actions.add_parser("show", help=about, epilog=f"example: {SHOW_EXAMPLE}")
    showing.add_argument("name", metavar="NAME")
    showing.set_defaults(run=run_show)
    for action in (listing, showing):
        action.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run_list(args: argparse.Namespace) -> int:
    """Prints all predictors; returns the exit status."""
    from v0_bench.predictors import available_predictors

    rows = [describe(cls) for cls in available_predictors().values()]
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        _print_table(["predictor", "what it is"], [[row["name"], row["summary"]] for row in rows])
    return 0


def run_show(args: argparse.Namespace) -> int:
    """Prints one predictor; returns the exit status. V0BenchError for an unknown name."""
    from v0_bench.predictors import predictor_class

    row = describe(predictor_class(args.name))
    if args.json:
        print(json.dumps(row, indent=2))
    else:
        del row["name"]
        row["protocols"] = row["protocols"] or "all"
        _print_table(["", args.name], [[key, _in_words(value)] for key, value in row.items()])
    return 0


def describe(cls: type[Predictor]) -> dict[str, Any]:
    """Name, metadata, parameters with their defaults, class and full docstring of a predictor."""
    import inspect

    return {
        "name": cls.name,
        "summary": cls.info.summary,
        "details": inspect.getdoc(cls) or "",
        "paper": cls.info.paper,
        "licence": cls.info.licence,
        "needs": list(cls.info.needs),
        "protocols": None if cls.info.protocols is None else list(cls.info.protocols),
        "default": cls.info.default,
        "parameters": cls().get_params(),
        "class": f"{cls.__module__}.{cls.__qualname__}",
    }


def _in_words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        value = [f"{key}={item!r}" for key, item in value.items()]
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value)


def _print_table(headers: list[str], rows: list[list[str]]) -> None:
    """A table of two columns, at most 80 characters wide."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for header, no_wrap in zip(headers, (True, False), strict=True):
        table.add_column(header, no_wrap=no_wrap)
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console()
    console.print(table, width=min(80, console.width))
