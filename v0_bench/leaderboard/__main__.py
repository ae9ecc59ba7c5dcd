"""`python -m v0_bench.leaderboard`: predictors ranked on real outcomes, with intervals."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from v0_bench.cli import run_safely
from v0_bench.errors import V0BenchError

EXAMPLES = """examples:
  python -m v0_bench.leaderboard
  python -m v0_bench.leaderboard --pool my_pool --seeds 3 --output out
  python -m v0_bench.leaderboard --pool a --pool b --predictors knn,ridge --protocol strict
  python -m v0_bench.leaderboard --protocol 'shift:gsm8k>math' --context-size 64

Run again with the same --output to resume; finished parts are not run twice.
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of the command."""
    parser = argparse.ArgumentParser(
        prog="python -m v0_bench.leaderboard",
        description="Ranks predictors of success on the outcomes of one or more pools.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--pool", action="append", metavar="PATH|NAME", help="a pool; may be given several times")
    add("--predictors", default="default", help="names with commas, 'default' or 'all'")
    add(
        "--protocol",
        metavar="P[,P]",
        help="unseen-policy, strict, sequential, shift:early-late, shift:weak-strong or "
        "shift:DATASET>DATASET; default: sequential for pools with steps, else unseen-policy",
    )
    add("--context-size", type=int, default=256, help="outcomes in a context (default 256)")
    add("--seeds", type=int, default=1, help="number of seeds: 0, 1, ... (default 1)")
    add("--backbone", default="minilm", help="text backbone: minilm, hash, a path or a hub id")
    add("--output", type=Path, default=Path("leaderboard"), help="folder (default leaderboard)")
    add("--jobs", type=int, default=1, help="processes (default 1)")
    add("--json", action="store_true", help="print leaderboard.json instead of tables")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 if every row is fine or not applicable, 1 if a predictor failed."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    args = build_parser().parse_args(typed)
    return run_safely(lambda: _main(args, typed))


def _main(args: argparse.Namespace, typed: list[str]) -> int:
    for name, least in (("seeds", 1), ("jobs", 1), ("context_size", 0)):
        if getattr(args, name) < least:
            raise V0BenchError(f"--{name.replace('_', '-')} must be at least {least}")
    from v0_bench.leaderboard.report import print_tables
    from v0_bench.leaderboard.run import Settings, choose_predictors, run
    from v0_bench.pool.default import default_pool, resolve_pool

    predictors = choose_predictors(args.predictors)
    pools = tuple(map(resolve_pool, args.pool)) if args.pool else (default_pool(),)
    names = [pool.name for pool in pools]
    if len(set(names)) < len(names):
        raise V0BenchError(f"two pools share a name: {', '.join(names)}")
    protocols = (p.strip() for p in (args.protocol or "").split(",") if p.strip())
    settings = Settings(
        pools=pools,
        predictors=predictors,
        protocols=tuple(dict.fromkeys(protocols)),
        context_size=args.context_size,
        seeds=args.seeds,
        backbone=args.backbone,
        output=args.output,
        jobs=args.jobs,
    )
    document = run(settings, typed)
    if args.json:
        print(json.dumps(document, indent=1))
    else:
        print_tables(document)
        print(f"written to {args.output}/")
    return 1 if any(row["status"] == "error" for row in document["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
