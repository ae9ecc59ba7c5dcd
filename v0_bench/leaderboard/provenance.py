"""Where a result comes from: command, versions, seeds, data, hardware."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from v0_bench.pool import Pool

PACKAGES = (
    "v0-bench",
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "scikit-learn",
    "torch",
    "transformers",
    "sentence-transformers",
)


def provenance(arguments: Sequence[str], pools: Sequence[Pool], **settings: Any) -> dict[str, Any]:
    """A record of a run: `settings` are stored as given beside versions, data and hardware."""
    return {
        "command": shlex.join(["python", "-m", "v0_bench.leaderboard", *arguments]),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version()} | package_versions(),
        "pools": {pool.name: _about(pool) for pool in pools},
        "hardware": {
            "machine": platform.machine(),
            "system": platform.system(),
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
        **settings,
    }


def _about(pool: Pool) -> dict[str, Any]:
    return {"fingerprint": pool.fingerprint, "source": pool.source, "licence": pool.licence}


def package_versions() -> dict[str, str]:
    """Versions of the packages that numbers depend on."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue  # recorded by its absence: a predictor may work without it
    return found


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
