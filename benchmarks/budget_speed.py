"""Time and memory of `allocate`: 1,024 queries, 16,384 rollouts, every utility and method.

    python benchmarks/budget_speed.py [--json] [--queries 1024] [--rollouts 16384]

Success rates are drawn from Beta(.7, .7), many near 0 and 1; in the rows marked `equal` all are
.02, where `exact` can rule out little. Seconds are the least of five runs; memory is the peak of
one more.
Targets at the default size: `heap` on `nonuniform` 50 ms, `exact` on `v0` 5 s.
"""

import argparse
import json
import time
import tracemalloc

import numpy as np

from v0_bench.budget import METHODS, UTILITIES, allocate, utility
from v0_bench.errors import V0BenchError

TARGETS = {("nonuniform", "heap"): 0.05, ("v0", "exact"): 5.0}


def measure(p: np.ndarray, total: int, name: str, method: str) -> dict[str, float]:
    """Seconds, peak megabytes and the value reached by one utility and method."""
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        counts = allocate(p, total, utility=name, method=method)
        seconds.append(time.perf_counter() - start)
    tracemalloc.start()
    allocate(p, total, utility=name, method=method)
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    worth = float(utility(name)(counts, p).sum())
    return {"seconds": min(seconds), "peak_mb": peak, "value": worth}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=1024)
    parser.add_argument("--rollouts", type=int, default=16384)
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    arguments = parser.parse_args()
    draws = {
        "spread": np.random.default_rng(0).beta(0.7, 0.7, arguments.queries),
        "equal": np.full(arguments.queries, 0.02),
    }
    results = []
    for rates, p in draws.items():
        for name in UTILITIES:
            for method in METHODS:
                try:
                    row = measure(p, arguments.rollouts, name, method)
                except V0BenchError:  # heap, where the utility is not concave
                    continue
                results.append({"rates": rates, "utility": name, "method": method, **row})
    if arguments.json:
        print(json.dumps(results, indent=2))
    else:
        for r in results:
            print(
                f"{r['rates']:7} {r['utility']:14} {r['method']:11} {1e3 * r['seconds']:8.1f} ms "
                f"{r['peak_mb']:6.1f} MB {r['value']:14.4f}"
            )
    slow = [
        r for r in results if r["seconds"] > TARGETS.get((r["utility"], r["method"]), float("inf"))
    ]
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
