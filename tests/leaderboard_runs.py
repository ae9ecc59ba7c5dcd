"""Invented pools, a third party's package and ways to run the leaderboard, for its tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pools import TOPICS
from v0_bench import Pool

ROOT = Path(__file__).resolve().parents[1]
TIMES = ("fit_seconds", "ms_per_query")


def rated_pool(
    name: str = "rated",
    *,
    n_queries: int = 60,
    policies: Sequence[str] = ("m0", "m1", "m2", "m3", "m4", "m5"),
    steps: Sequence[int | None] = (None,),
    n_rollouts: int = 4,
    seed: int = 0,
) -> Pool:
    """Every policy tries every query; success depends on the query and a little on the policy."""
    rng = np.random.default_rng(seed)
    texts = [f"Story {i} of {TOPICS[i // 8 % 8]}: which {TOPICS[i % 8]}?" for i in range(n_queries)]
    queries = pd.DataFrame(
        {
            "query_id": [f"q{i}" for i in range(n_queries)],
            "dataset": ["sums" if i % 2 else "words" for i in range(n_queries)],
            "text": texts,
        }
    )
    rows = [
        {
            "query_id": f"q{i}",
            "policy": policy,
            "step": step,
            "mean_reward": rng.binomial(n_rollouts, (i % 5 + p % 3 + 1) / 8) / n_rollouts,
            "n_rollouts": n_rollouts,
        }
        for p, policy in enumerate(policies)
        for step in steps
        for i in range(n_queries)
    ]
    return Pool(name, queries, pd.DataFrame({"policy": list(policies)}), pd.DataFrame(rows))


def environment(*site: Path, **extra: str) -> dict[str, str]:
    """The environment of a child: this repository and the folders of third parties importable."""
    paths = [*map(str, site), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **extra}


def leaderboard(*arguments: str | Path) -> list[str]:
    """The command line of a run with the hashed n-gram backbone."""
    words = [sys.executable, "-m", "v0_bench.leaderboard", "--backbone", "hash"]
    return [*words, *map(str, arguments)]


def run_leaderboard(
    *arguments: str | Path,
    env: dict[str, str] | None = None,
    before: Callable[[], Any] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end and returns status, stdout and stderr."""
    return subprocess.run(
        leaderboard(*arguments),
        env=env or environment(),
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=120,
    )


def install_package(site: Path, code: str, **predictors: str) -> Path:
    """Puts a package `theirs` with entry points name=class into a folder, as pip would."""
    about = site / "theirs-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    points = [f"{name} = theirs:{cls}" for name, cls in predictors.items()]
    (about / "entry_points.txt").write_text("\n".join(["[v0_bench.predictors]", *points, ""]))
    (site / "theirs.py").write_text(code)
    return site


def numbers(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows without the times, which differ from run to run."""
    return [{k: v for k, v in row.items() if k not in TIMES} for row in document["rows"]]


def modified(output: Path) -> dict[str, int]:
    """When each finished unit of an output folder was written."""
    return {path.name: path.stat().st_mtime_ns for path in (output / "work").glob("*.npz")}
