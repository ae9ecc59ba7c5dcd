"""Checks an installed wheel: where modules come from, what is importable, how quickly."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import v0_bench
import v0_bench.baselines
import v0_bench.tasks

repository = Path(sys.argv[1]).resolve()
for module in (v0_bench, v0_bench.baselines, v0_bench.tasks):
    home = Path(module.__path__[0]).resolve()
    assert repository not in home.parents, f"{module.__name__} comes from the repository"
for name in ("tasks", "baselines", "tests", "results"):
    assert importlib.util.find_spec(name) is None, f"a top-level module {name} is importable"


def seconds(*command: str) -> float:
    """Best of three wall times of a command."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return min(times)


bare = seconds(sys.executable, "-c", "pass")
loaded = seconds(sys.executable, "-c", "import sys, v0_bench; assert 'torch' not in sys.modules")
shown = seconds(str(Path(sys.executable).with_name("v0-bench")), "--help")
print(f"import v0_bench {loaded - bare:.3f} s, v0-bench --help {shown:.3f} s")
assert loaded - bare < 0.5
assert shown < 1.0
