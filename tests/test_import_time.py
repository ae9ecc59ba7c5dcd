"""What importing the package costs, and that it puts nothing else at the top level."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("torch", "transformers", "pandas", "sklearn", "scipy", "matplotlib", "rich", "joblib")
HELP = "from v0_bench.cli import main; main(['--help'])"


def seconds(code: str) -> float:
    """Wall time of a fresh interpreter that runs the code."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    return time.perf_counter() - start


def own_seconds(code: str) -> float:
    """Median of three runs, less that of an interpreter that does nothing."""
    pairs = [(seconds(code), seconds("pass")) for _ in range(3)]
    return statistics.median(run for run, _ in pairs) - statistics.median(bare for _, bare in pairs)


def test_import_is_quick() -> None:
    assert own_seconds("import v0_bench") < 0.5


def test_help_is_quick() -> None:
    assert own_seconds(HELP) < 1.0


@pytest.mark.parametrize(
    "code", ["import v0_bench", "from v0_bench.cli import build_parser; build_parser()"]
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    loaded = f"{code}\nimport sys; print([m for m in {HEAVY} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("[]\n", "")


def test_public_names_load_when_first_used() -> None:
    code = "import v0_bench; print(all(hasattr(v0_bench, name) for name in v0_bench.__all__))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "True\n", result.stderr


def test_an_unknown_name_is_an_attribute_error() -> None:
    import v0_bench

    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = v0_bench.Nothing


def test_no_folder_of_the_repository_is_a_top_level_module(tmp_path: Path) -> None:
    """From elsewhere, `import tasks` must not find ours; v0_bench must."""
    names = ("tasks", "baselines", "tests", "results", "benchmarks", "examples", "v0_bench")
    code = f"""
from importlib.util import find_spec
for name in {names}:
    spec = find_spec(name)
    places = [] if spec is None else [spec.origin or "", *(spec.submodule_search_locations or [])]
    print(name, *places)
"""
    result = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = result.stdout.splitlines()
    assert len(lines) == len(names)
    # another distribution may have put a `tests` of its own into site-packages
    ours = [line for line in lines if f"{ROOT}/" in line and "site-packages" not in line]
    assert {line.split()[0] for line in ours} <= {"v0_bench"}
    assert lines[-1] != "v0_bench"
