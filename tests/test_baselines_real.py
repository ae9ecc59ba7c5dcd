"""The figures that context-only predictors reach on the official V0 sample."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "v0_release_contexts.py"


@pytest.mark.slow
def test_figures_on_the_official_sample(shared: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--pool", str(shared / "pools/v0_release"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(done.stdout)
    ridge = figures["ridge"]
    assert 0.1346 <= figures["context-mean"]["mse"] <= 0.1365
    assert 0.595 <= ridge["auc"] <= 0.615
    assert ridge["mse"] <= figures["context-mean"]["mse"] - 0.003
    assert figures["knn (k = 32)"]["auc"] == pytest.approx(0.586, abs=0.005)
    assert figures["gaussian-process"]["auc"] >= ridge["auc"] - 0.01
