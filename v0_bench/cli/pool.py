"""`v0-bench pool`: import, describe, validate, list and fetch pools."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from v0_bench.pool.catalogue import Entry

EXAMPLES = """examples:
  v0-bench pool list
  v0-bench pool fetch oneshot-rlvr
  v0-bench pool import ./my_outcomes ./my_pool
  v0-bench pool describe ./my_pool --json
"""
IMPORT_EXAMPLES = """formats:
  long            queries.jsonl, outcomes.jsonl[.gz], prices_usd_per_Mtok.json
  lm-eval         a samples JSONL or output folder of lm-evaluation-harness
  v0-release      the folder data/ of the official V0 sample
  embedllm        train.csv, val.csv, test.csv of EmbedLLM
  routerbench     CSV or Parquet tables of RouterBench
  llmrouterbench  result folders of LLMRouterBench
  oneshot-rlvr, routerdc, mmlu-pro   the raw files that `pool fetch` gets

examples:
  v0-bench pool import ./outcomes ./my_pool --format long --name my-fleet
  v0-bench pool import ./lm_eval_output ./my_pool --metric exact_match
  v0-bench pool import samples_aime.jsonl ./my_pool --policy my-model --step 9
"""
DATASETS_SHOWN = 8


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `pool` and its subcommands."""
    pool = _subcommand(subparsers, "pool", "import, describe, validate, list, fetch", EXAMPLES)
    commands = pool.add_subparsers(dest="pool_command", metavar="COMMAND", required=True)
    _add_import(commands)
    describe = _subcommand(
        commands,
        "describe",
        "print what a pool holds",
        "example:\n  v0-bench pool describe ./my_pool",
    )
    validate = _subcommand(
        commands,
        "validate",
        "check every row of a pool, and its near-duplicates",
        "example:\n  v0-bench pool validate ./my_pool",
    )
    for parser, run in ((describe, _run_describe), (validate, _run_validate)):
        parser.add_argument(
            "pool", metavar="POOL", help="folder of a pool, or a fetched one's name"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")
        parser.set_defaults(run=run)
    _add_list_and_fetch(commands)


def _subcommand(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, epilog: str
) -> argparse.ArgumentParser:
    return commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _add_import(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    text = "make a pool of outcomes in another layout"
    parser = _subcommand(commands, "import", text, IMPORT_EXAMPLES)
    parser.add_argument("path", metavar="SOURCE", type=Path, help="folder or file to read")
    parser.add_argument("destination", metavar="DEST", type=Path, help="folder of the new pool")
    parser.add_argument("--format", metavar="F", help="layout of SOURCE (default: guessed)")
    parser.add_argument("--name", help="name of the pool (default: that of DEST)")
    parser.add_argument("--metric", help="lm-eval: METRIC or METRIC,FILTER (default: avg@k, ...)")
    parser.add_argument("--policy", help="lm-eval: policy (default: from the model's path)")
    parser.add_argument("--step", type=int, help="lm-eval: step (default: from the model's path)")
    parser.add_argument("--licence", help="licence of the data, noted in the pool")
    parser.add_argument("--source", help="address of the data, noted in the pool")
    parser.add_argument("--citation", help="how to cite the data, noted in the pool")
    parser.add_argument("--overwrite", action="store_true", help="replace DEST if it exists")
    parser.set_defaults(run=_run_import)


def _add_list_and_fetch(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    listing = _subcommand(
        commands,
        "list",
        "list the public sources that `fetch` knows",
        "example:\n  v0-bench pool list --json",
    )
    listing.add_argument("--json", action="store_true", help="print JSON")
    listing.set_defaults(run=_run_list)
    fetch = _subcommand(
        commands,
        "fetch",
        "download a public source, check its hashes and import it",
        "examples:\n  v0-bench pool fetch oneshot-rlvr\n"
        "  v0-bench pool fetch embedllm --accept-unpinned --destination ./embedllm",
    )
    fetch.add_argument("name", metavar="NAME", help="a name that `v0-bench pool list` prints")
    fetch.add_argument("--destination", metavar="DIR", type=Path, help="default: the cache")
    fetch.add_argument(
        "--accept-unpinned",
        action="store_true",
        help="fetch a source whose hashes are not known, and print them",
    )
    fetch.set_defaults(run=_run_fetch)


def _run_import(args: argparse.Namespace) -> int:
    from v0_bench.errors import V0BenchError
    from v0_bench.pool.importers import import_pool

    if args.destination.exists() and not args.overwrite:
        raise V0BenchError(f"{args.destination} exists already; pass --overwrite to replace it")
    imported = import_pool(
        args.path,
        args.format,
        args.name or args.destination.resolve().name,
        metric=args.metric,
        policy=args.policy,
        step=args.step,
        licence=args.licence,
        source=args.source,
        citation=args.citation,
    )
    imported.pool.save(args.destination, overwrite=args.overwrite)
    for note in imported.notes:
        print(note)
    print(f"{args.destination}: {_sizes(imported.pool)}")
    return 0


def _run_describe(args: argparse.Namespace) -> int:
    from v0_bench.pool.default import resolve_pool
    from v0_bench.pool.describe import describe

    description = describe(resolve_pool(args.pool))
    if args.json:
        print(json.dumps(description, indent=1))
    else:
        _print(_description_table(description))
    return 0


def _run_validate(args: argparse.Namespace) -> int:
    from v0_bench.pool.default import resolve_pool

    pool = resolve_pool(args.pool)
    groups = pool.query_group.nunique()
    if args.json:
        facts = {"name": pool.name, "valid": True, "groups": groups}
        print(json.dumps(facts | {"fingerprint": pool.fingerprint}, indent=1))
    else:
        print(f"{pool.name} is valid: {_sizes(pool)} in {groups:,} groups of near-duplicates")
    return 0


def _run_list(args: argparse.Namespace) -> int:
    from v0_bench.pool.catalogue import catalogue
    from v0_bench.pool.fetch import cached_pool, is_pool

    facts = [
        _entry_facts(entry) | {"fetched": is_pool(cached_pool(entry.name))}
        for entry in catalogue().values()
    ]
    if args.json:
        print(json.dumps(facts, indent=1))
        return 0
    from rich.table import Table

    table = Table("name", "status", "size", "fetched", "what it is (licence)", box=None)
    for entry in facts:
        what = f"{entry['title']} ({entry['licence']})"
        here = "yes" if entry["fetched"] else ""
        table.add_row(entry["name"], entry["status"], _megabytes(entry["bytes"]), here, what)
    _print(table)
    return 0


def _run_fetch(args: argparse.Namespace) -> int:
    from v0_bench.pool.fetch import fetch

    folder = fetch(args.name, accept_unpinned=args.accept_unpinned, destination=args.destination)
    print(folder)
    return 0


def _description_table(facts: dict[str, Any]) -> Table:
    from rich.table import Table

    table = Table(title=facts["name"], show_header=False, box=None)
    for label, value in (
        ("policies", f"{facts['policies']:,} in {facts['families']:,} families"),
        ("checkpoints", f"{facts['checkpoints']:,} ({_steps(facts['steps'])})"),
        ("one-class checkpoints", f"{facts['one_class_checkpoints']:,}"),
        ("queries", f"{facts['queries']:,} in {facts['groups']:,} groups"),
        ("duplicates", f"{facts['duplicates']:,} (largest group {facts['largest_group']:,})"),
        ("data sets", _datasets(facts["datasets"])),
        ("outcomes", f"{facts['outcomes']:,}"),
        ("rollouts", f"{facts['rollouts']['total']:,}; k {_range(facts['rollouts'], 'g')}"),
        ("accuracy of checkpoints", _range(facts["accuracy"], ".3f")),
        ("cost known", _costs(facts["cost"])),
        ("tokens known", f"{facts['tokens_coverage']:.0%}"),
        ("roles", ", ".join(f"{role} {n:,}" for role, n in facts["roles"].items() if n)),
        ("leave-one-out AUC", _or_dash(facts["leave_one_out_auc"])),
        ("licence", facts["licence"] or "-"),
        ("fingerprint", facts["fingerprint"][:16]),
    ):
        table.add_row(label, value)
    for family, policies in facts["families_with_several_policies"].items():
        table.add_row(f"family {family}", ", ".join(policies))
    return table


def _sizes(pool: Any) -> str:
    return (
        f"{len(pool.queries):,} queries, {len(pool.policies):,} policies, "
        f"{len(pool.outcomes):,} outcomes"
    )


def _steps(steps: list[int]) -> str:
    return f"{len(steps)} steps, {steps[0]} to {steps[-1]}" if steps else "no steps"


def _datasets(sizes: dict[str, int]) -> str:
    names = [f"{name} {size:,}" for name, size in sizes.items()]
    more = len(names) - DATASETS_SHOWN
    return ", ".join(names[:DATASETS_SHOWN]) + (f", and {more} more" if more > 0 else "")


def _range(spread: dict[str, float], form: str) -> str:
    return " / ".join(format(spread[key], form) for key in ("min", "median", "max"))


def _costs(cost: dict[str, float]) -> str:
    return (
        f"{cost['coverage']:.0%} ({cost['measured']:,} measured, {cost['estimated']:,} estimated)"
    )


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:,.1f} MB"


def _entry_facts(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "title": entry.title,
        "status": entry.status,
        "bytes": entry.bytes,
        "format": entry.format,
        "licence": entry.licence,
        "citation": entry.citation,
        "homepage": entry.homepage,
        "note": entry.note,
    }


def _print(table: Table) -> None:
    """Prints a table in at most 80 columns; rich leaves out colour where no terminal reads."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)
    console.width = min(console.width, 80)
    console.print(table)
