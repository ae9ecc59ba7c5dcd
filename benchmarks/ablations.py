"""The ablations of the paper's Tables 6 and 9 on a pool, as one command.

    python benchmarks/ablations.py --pool FOLDER --output results/ablations [--seeds 3]

Every row changes one thing about V0 without the residual path (what the paper ablates) and with
the head `icl`: the connector, the loss, whether the head is tuned, the size of the context, soft or
hard context labels. Models are fitted to what `--protocol` shows and scored on what it tests.
Writes ablations.json, ablations.md and ablations.png; a row that is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from v0_bench import Pool
from v0_bench.files import atomic_file
from v0_bench.leaderboard.rows import test_rows, with_predictions
from v0_bench.metrics import intervals
from v0_bench.protocols import default_protocol, make_folds
from v0_bench.v0.config import TrainConfig, V0Config
from v0_bench.v0.training import fit_v0

BASE = V0Config(residual_path=False, n_queries=4, d_proj=8)
TRAINING = TrainConfig(steps=400, learning_rate=1e-3)
STANDARD = "standard"
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    "connector": {
        "residual-query": {},
        "fixed-queries": {"connector": "fixed-queries"},
        "mlp": {"connector": "mlp"},
        "cascaded": {"connector": "cascaded"},
        "multi-scale": {"connector": "multi-scale"},
        "last-token, 32 axes": {"connector": "last-token", "axes": 32},
        "mean, 32 axes": {"connector": "mean", "axes": 32},
    },
    "loss": {
        "combined": {},
        "rank": {"loss": "rank"},
        "ce": {"loss": "ce"},
        "hard-ce, as the release": {"loss": "hard-ce"},
    },
    "head": {"frozen": {}, "tuned": {"tune_head": True}},
    "context size": {str(size): {"context_size": size} for size in (32, 64, 128, 256, 512, 1024)},
    "context labels": {"soft": {}, "hard": {"context_labels": "hard"}},
}
METRICS = ("auc", "pairwise_accuracy", "mse", "ece")


def settings_of(change: Mapping[str, Any]) -> tuple[V0Config, TrainConfig]:
    """The standard configuration with some settings changed."""
    model = {name: value for name, value in change.items() if hasattr(BASE, name)}
    training = {name: value for name, value in change.items() if name not in model}
    return replace(BASE, **model), replace(TRAINING, **training)


def predictions(
    pool: Pool, protocol: str, change: Mapping[str, Any], seeds: int
) -> tuple[pd.DataFrame, float]:
    """Test rows with the values of one variant, and the seconds its training took."""
    config, training = settings_of(change)
    hard = training.context_labels == "hard"
    frames, seconds = [], 0.0
    for seed in range(seeds):
        folds = make_folds(pool, protocol, seed, context_size=config.context_size)
        values: list[np.ndarray] = []
        for fold in folds:
            started = time.perf_counter()
            first, *later = fold.stages
            if later:
                raise SystemExit(f"{protocol} has several stages; choose another protocol")
            model = fit_v0(first.train, config, training, seed=seed)
            seconds += time.perf_counter() - started
            pairs = [(rounded(e.context) if hard else e.context, e.queries) for e in first.episodes]
            values += model.predict_many(pairs)
        tests = test_rows(pool, protocol, seed, folds)
        frames.append(with_predictions(tests, "v0", np.concatenate(values)))
    return pd.concat(frames, ignore_index=True), seconds


def rounded(context: Any) -> Any:
    """The context with its success rates cut to 0 and 1, as the release does."""
    return replace(context, success_rates=(context.success_rates >= 0.5).astype(float))


def measure(pool: Pool, protocol: str, change: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Metrics with intervals of one variant."""
    frame, seconds = predictions(pool, protocol, change, seeds)
    row = intervals({"v0": frame}).row("v0")
    found: dict[str, Any] = {
        name: [row[name][end] for end in ("value", "low", "high")] for name in METRICS
    }
    return found | {"change": dict(change), "seconds": round(seconds, 1)}


def provenance(pool: Pool, protocol: str, seeds: int) -> dict[str, Any]:
    return {
        "command": "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "pool": {"name": pool.name, "fingerprint": pool.fingerprint},
        "protocol": protocol,
        "seeds": list(range(seeds)),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in ("v0-bench", "torch", "numpy")},
        "model": BASE.to_json(),
        "training": asdict(TRAINING),
    }


def markdown(found: Mapping[str, Any]) -> str:
    lines = []
    for table, rows in found.items():
        lines += [f"| {table} | AUC | pairwise | MSE | ECE |", "| --- " * 5 + "|"]
        lines += [f"| {n} | " + " | ".join(shown(r[m]) for m in METRICS) + " |" for n, r in rows]
        lines.append("")
    return "\n".join(lines)


def shown(values: Sequence[float | None]) -> str:
    value, low, high = ["-" if v is None else f"{v:.3f}".removeprefix("0") for v in values]
    return f"{value} [{low}, {high}]"


def plot(found: Mapping[str, Any], file: Path) -> None:
    """AUC with its interval, one panel a table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        len(found),
        1,
        figsize=(7, 0.4 * sum(len(rows) + 2 for rows in found.values())),
        gridspec_kw={"height_ratios": [len(rows) + 0.5 for rows in found.values()]},
        sharex=True,
    )
    for axes, (table, rows) in zip(panels, found.items(), strict=True):
        for i, (_, row) in enumerate(rows):
            value, low, high = row["auc"]
            axes.plot([low, high], [i, i], color="#0072B2", linewidth=1.5)
            axes.plot([value], [i], "o", color="#0072B2", markersize=5)
        axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_title(table, fontsize=9, loc="left")
        axes.grid(axis="x", alpha=0.3)
    panels[-1].set_xlabel("AUC, 95 % interval over query groups")
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pool", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--protocol", metavar="P", help="default: the pool's own")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--tables", default=",".join(VARIANTS), help="default: %(default)s")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    args = parser.parse_args()
    pool = Pool.load(args.pool)
    protocol = args.protocol or default_protocol(pool)
    origin = provenance(pool, protocol, args.seeds)
    file = args.output / "ablations.json"
    known = json.loads(file.read_text()) if file.exists() else {"rows": {}}
    same = ("pool", "protocol", "seeds", "model", "training")
    if known["rows"] and any(known["provenance"][name] != origin[name] for name in same):
        raise SystemExit(f"{file} holds another run; choose another folder")
    work = [
        (table, name, change)
        for table in args.tables.split(",")
        for name, change in VARIANTS[table].items()
    ]
    for *_, change in tqdm(work, "ablations"):
        key = json.dumps(change, sort_keys=True)
        if key not in known["rows"]:
            known["rows"][key] = measure(pool, protocol, change, args.seeds)
            known["provenance"] = origin
            with atomic_file(file) as temporary:
                temporary.write_text(json.dumps(known, indent=1) + "\n")
    found: dict[str, list[tuple[str, Any]]] = {}
    for table, name, change in work:
        row = known["rows"][json.dumps(change, sort_keys=True)]
        found.setdefault(table, []).append((name, row))
    (args.output / "ablations.md").write_text(markdown(found))
    plot(found, args.output / "ablations.png")
    print(markdown(found))


if __name__ == "__main__":
    main()
