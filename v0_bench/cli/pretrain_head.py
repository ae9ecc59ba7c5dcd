"""`v0-bench pretrain-head`: trains an in-context head on the synthetic prior."""

from __future__ import annotations

import argparse
from pathlib import Path

EXAMPLES = """examples:
  v0-bench pretrain-head --head gp --steps 300 --output ./head-gp
  v0-bench pretrain-head --head icl --steps 3000 --output ./head-icl --gp ./head-gp

The same command continues a run that was interrupted.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `pretrain-head`."""
    text = "train an in-context head on a synthetic prior; no data needed"
    parser = subparsers.add_parser(
        "pretrain-head",
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--head", required=True, metavar="HEAD", help="gp or icl")
    parser.add_argument("--steps", required=True, type=int, metavar="N", help="training steps")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder to write")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="default: 0")
    parser.add_argument("--device", default="cpu", metavar="D", help="cpu (default), cuda, ...")
    parser.add_argument(
        "--gp", metavar="DIR", help="for icl: the gp head to build on (default: the packaged one)"
    )
    parser.add_argument(
        "--validate-every", type=int, default=250, metavar="N", help="steps; default: 250"
    )
    parser.add_argument(
        "--validation-episodes",
        type=int,
        default=32,
        metavar="N",
        help="a context size; default: 32",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Trains, or continues to train."""
    from v0_bench.v0.pretrain import Run, pretrain

    settings = Run(args.head, args.steps, args.seed, args.gp)
    pretrain(settings, args.output, args.device, args.validate_every, args.validation_episodes)
    print(args.output)
    return 0
