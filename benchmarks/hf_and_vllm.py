"""Do two backends of lm-eval measure the same success rates? Compares their avg@k, query by query.

    python benchmarks/hf_and_vllm.py OUT_A OUT_B

Each folder is the --output_path of one `lm_eval --log_samples` run of the same task. The standard
error of the difference is over queries, paired. If both sample from one distribution, the squared
difference of a query's two rates is 2 p (1 - p) / k on average, which is estimated without bias by
the sum of r (1 - r) / (k - 1) over the two.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from v0_bench.pool.importers.reading import jsonl_rows


def rates(folder: Path) -> tuple[dict[str, float], int]:
    """Success rate of each query, and the number of rollouts."""
    samples = [row for file in folder.rglob("samples_*.jsonl") for _, row in jsonl_rows(file)]
    return {row["doc"]["query_id"]: row["avg@k"] for row in samples}, samples[0]["k"]


def compare(first: Path, second: Path) -> dict[str, float]:
    """Means, paired difference with its standard error, squared differences seen and expected."""
    (of_a, k), (of_b, k_b) = rates(first), rates(second)
    if of_a.keys() != of_b.keys() or k != k_b:
        raise SystemExit("the two runs have other queries or numbers of rollouts")
    a = np.array(list(of_a.values()))
    b = np.array([of_b[query] for query in of_a])
    error = (a - b).std(ddof=1) / len(a) ** 0.5
    return {
        "queries": len(a),
        "k": k,
        "avg@k of the first": a.mean(),
        "avg@k of the second": b.mean(),
        "difference": (a - b).mean(),
        "standard error": error,
        "difference / standard error": (a - b).mean() / error,
        "mean squared difference": ((a - b) ** 2).mean(),
        "expected from sampling alone": (a * (1 - a) + b * (1 - b)).mean() / (k - 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    arguments = parser.parse_args()
    found = compare(arguments.first, arguments.second)
    print(json.dumps({name: round(float(value), 4) for name, value in found.items()}, indent=2))
