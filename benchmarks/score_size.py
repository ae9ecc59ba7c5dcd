"""Time and memory of `score` as the rows grow to 250 checkpoints x 10,000 queries.

    python benchmarks/score_size.py [--json] [--queries 625,1250,2500,5000,10000]

Every size runs in a process of its own, so its peak memory (frame included) is its own. The made-up
outcomes have 10 rollouts each (r on tenths, so ties in r abound) and 10 policies of 25 steps.
Target: 2.5 million rows, 311 million pairs, in at most 10 s and 2 GB on 2 cores.
"""

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np
import pandas as pd

from v0_bench.metrics import score

CHECKPOINTS, STEPS = 250, 25
TARGET_ROWS, TARGET_SECONDS, TARGET_GB = 2_500_000, 10.0, 2.0


def make_frame(queries: int) -> pd.DataFrame:
    """Rows of one predictor: a crossed design of checkpoints and queries."""
    rng = np.random.default_rng(0)
    n = CHECKPOINTS * queries
    skill = rng.normal(size=CHECKPOINTS)
    ease = rng.normal(size=queries)
    rate = (1 / (1 + np.exp(-(skill[:, None] + ease)))).ravel()
    checkpoint, query = (
        np.repeat(np.arange(CHECKPOINTS), queries),
        np.tile(np.arange(queries), CHECKPOINTS),
    )
    return pd.DataFrame(
        {
            "pool": "made-up",
            "protocol": "sequential",
            "seed": 0,
            "predictor": "noisy-truth",
            "policy": _names("policy", checkpoint // STEPS),
            "step": checkpoint % STEPS,
            "query_id": _names("query", query),
            "query_group": _names("query", query),
            "dataset": _names("dataset", query % 12),
            "family": _names("family", checkpoint // STEPS),
            "prediction": np.clip(rate + rng.normal(scale=0.1, size=n), 0, 1),
            "mean_reward": rng.binomial(10, rate) / 10,
            "n_rollouts": 10,
            "context_size": 256,
            "context_mean": np.repeat(1 / (1 + np.exp(-skill)), queries),
            "query_difficulty": np.tile(1 / (1 + np.exp(-ease)), CHECKPOINTS),
        }
    )


def _names(prefix: str, code: np.ndarray) -> pd.Series:
    names = pd.Series([f"{prefix}-{i:05d}" for i in range(code.max() + 1)])
    return names.take(code).reset_index(drop=True)


def measure(queries: int) -> dict[str, float]:
    """Score one frame in this process: seconds of `score` alone, and peak memory in GB."""
    frame = make_frame(queries)
    start = time.perf_counter()
    values = score(frame)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    pairs = queries * CHECKPOINTS * (CHECKPOINTS - 1) // 2
    return {"rows": len(frame), "pairs": pairs, "seconds": seconds, "peak_gb": peak, **values}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", default="625,1250,2500,5000,10000")
    parser.add_argument("--json", action="store_true", help="print the measurements as JSON")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.one)))
        return 0
    results = []
    for queries in map(int, arguments.queries.split(",")):
        command = [sys.executable, __file__, "--one", str(queries)]
        results.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    if arguments.json:
        print(json.dumps(results, indent=2))
    else:
        print(f"{'rows':>10} {'pairs':>12} {'seconds':>8} {'us/row':>7} {'peak GB':>8}")
        for r in results:
            per_row = 1e6 * r["seconds"] / r["rows"]
            print(
                f"{r['rows']:>10,} {r['pairs']:>12,} {r['seconds']:>8.2f} {per_row:>7.2f} "
                f"{r['peak_gb']:>8.2f}"
            )
    slow = [
        r
        for r in results
        if r["rows"] <= TARGET_ROWS and (r["seconds"] > TARGET_SECONDS or r["peak_gb"] > TARGET_GB)
    ]
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
