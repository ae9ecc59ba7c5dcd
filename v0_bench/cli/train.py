"""`v0-bench train`: fits a V0 model to the outcomes of a pool."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from v0_bench.episode import TrainingOutcomes
    from v0_bench.pool import Pool

EXAMPLES = """Settings for --set are those of v0_bench.v0.config: of the model (backbone, connector,
n_queries, head, components, context_size, ...) and of its training (steps, loss, alpha,
learning_rate, context_labels, tune_head, ...). Typing the same command again goes on where a run
was killed. Several processes: start it by `torchrun` or `accelerate launch`.

examples:
  v0-bench train --pool my_pool --output my_model
  v0-bench train --pool my_pool --output my_model --set steps=3000 --set context_size=512
  v0-bench train --pool my_pool --output m --protocol unseen-policy --fold 0
  v0-bench train --pool my_pool --output m --preset paper --set backbone=QWEN3_FOLDER \\
      --set head_weights=tabpfn-v2.5.ckpt --device cuda
  torchrun --nproc-per-node 2 --no-python v0-bench train --pool my_pool --output m
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train`."""
    parser = subparsers.add_parser(
        "train",
        help="fit a V0 model to the outcomes of a pool",
        description="Fit a V0 model to the outcomes of a pool.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--pool", required=True, metavar="PATH|NAME", help="the pool")
    add("--output", required=True, metavar="DIR", type=Path, help="folder to write")
    add("--preset", default="micro", metavar="NAME", help="micro (default) or paper")
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting")
    add(
        "--protocol",
        metavar="P",
        help="train on what this protocol shows in one fold (default: on all outcomes)",
    )
    add("--fold", type=int, default=0, metavar="N", help="of the protocol (default: 0)")
    add("--seed", type=int, default=0, metavar="N", help="default: 0")
    add("--device", default="cpu", metavar="D", help="cpu (default), cuda, ...")
    add("--tensorboard", action="store_true", help="write event files too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Trains, or continues to train."""
    from v0_bench.errors import V0BenchError
    from v0_bench.pool.default import resolve_pool
    from v0_bench.v0.config import TrainConfig, override, preset
    from v0_bench.v0.training import fit_v0
    from v0_bench.v0.training_state import finish

    if (args.output / "config.json").exists():
        raise V0BenchError(f"{args.output} holds a model already; choose another folder")
    config, settings = override(preset(args.preset), TrainConfig(), _settings(args.set))
    pool = resolve_pool(args.pool)
    train = _outcomes(pool, args.protocol, args.fold, args.seed)
    model = fit_v0(
        train,
        config,
        settings,
        seed=args.seed,
        device=args.device,
        output=args.output,
        tensorboard=args.tensorboard,
    )
    if os.environ.get("RANK", "0") == "0":
        part = {"protocol": args.protocol, "fold": args.fold} if args.protocol else {}
        model.facts["data"] = [{"pool": pool.name, "fingerprint": pool.fingerprint, **part}]
        model.facts["seed"] = args.seed
        model.save_pretrained(args.output)
        finish(args.output)
        print(f"{args.output}: interaction weight {model.interaction_weight:g}, ", end="")
        print("with the adapter" if model.connector is not None else "without adapter")
    return 0


def _settings(pairs: list[str]) -> dict[str, Any]:
    """Values as YAML reads them: numbers, true, false, null, else text."""
    import yaml

    from v0_bench.errors import V0BenchError

    values = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise V0BenchError(f"--set {pair}: write it as KEY=VALUE")
        try:
            read = yaml.safe_load(value)
        except yaml.YAMLError:
            read = value
        values[name.strip()] = float(value) if _is_number(read) else read
    return values


def _is_number(value: object) -> bool:
    """Whether YAML left a number such as 1e-4 as text."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def all_outcomes(pool: Pool) -> TrainingOutcomes:
    """All outcomes of a pool to train on."""
    import numpy as np

    from v0_bench.protocols.tables import Tables

    return Tables(pool).training(np.arange(len(pool.outcomes)))


def _outcomes(pool: Pool, protocol: str | None, fold: int, seed: int) -> TrainingOutcomes:
    """All outcomes of a pool, or those that a protocol shows in a fold."""
    from v0_bench.errors import V0BenchError
    from v0_bench.protocols import make_folds

    if protocol is None:
        return all_outcomes(pool)
    folds = make_folds(pool, protocol, seed)
    if not 0 <= fold < len(folds):
        raise V0BenchError(
            f"--fold {fold}: the protocol {protocol} has folds 0 to {len(folds) - 1}"
        )
    first, *later = folds[fold].stages
    train = first.train
    for stage in later:
        train = train.join(stage.train)
    return train
