"""Is V0 the best predictor? Paired comparisons from the predictions of leaderboard runs.

    python -m v0_bench.leaderboard --pool P --predictors default --seeds 3 --output DIR
    python benchmarks/v0_quality.py DIR [DIR ...] [--output FOLDER]

For each table it gives the difference of V0 to every other predictor in AUC and in MSE with its
95 % interval (query groups resampled, all predictors on the same resamples), and says where V0 is
ahead (the interval is on its side of 0) or behind by more than .01 AUC or .002 MSE (Holm-adjusted
over the predictors of the table; a p-value is twice the smaller share of replicates on one side).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from v0_bench.metrics import intervals
from v0_bench.metrics.intervals import IntervalTable

OURS = "v0"
CONTEXT_ONLY = (
    *("context-mean", "dataset-mean", "knn", "knn-smoothed", "ridge", "logistic"),
    "gaussian-process",
)
ADDITIVE = "additive"
MARGINS = {"auc": 0.01, "mse": 0.002}
BETTER = {"auc": 1, "mse": -1}
COLUMNS = [(other, m) for other in (ADDITIVE, "best context-only") for m in ("AUC", "MSE")]


def tables(folder: Path) -> Iterator[tuple[str, str, IntervalTable]]:
    """(pool, protocol, intervals) of each table of a leaderboard's output."""
    predictions = pd.read_parquet(folder / "predictions.parquet")
    compared = [OURS, *CONTEXT_ONLY, ADDITIVE]
    for (pool, protocol), rows in predictions.groupby(["pool", "protocol"], sort=False):
        frames = {name: rows[rows["predictor"] == name] for name in compared}
        yield str(pool), str(protocol), intervals(frames)


def compare(table: IntervalTable) -> dict[str, Any]:
    """What is claimed of V0 in one table."""
    found: dict[str, Any] = {"differences": {}, "ahead": {}, "behind": []}
    for metric, sign in BETTER.items():
        p_values = {}
        for other in (*CONTEXT_ONLY, ADDITIVE):
            difference = table.difference(OURS, other, metric)
            found["differences"].setdefault(other, {})[metric] = [
                difference["value"],
                difference["low"],
                difference["high"],
            ]
            ends = sorted(sign * difference[end] for end in ("low", "high"))
            found["ahead"].setdefault(other, {})[metric] = ends[0] > 0
            if sign * difference["value"] < -MARGINS[metric]:
                p_values[other] = p_value(table, other, metric)
        family = len(CONTEXT_ONLY) + 1
        found["behind"] += [f"{other} in {metric}" for other in holm(p_values, family)]
    for metric in ("auc", "auc_within", "mse", "ece_debiased", "residual_context"):
        found[metric] = interval(table, OURS, metric)
    found["residual_query"] = {
        name: interval(table, name, "residual_query") for name in (OURS, "ridge", ADDITIVE)
    }
    for name in ("residual_context_spearman", "residual_query_spearman"):
        found[name] = [table.row(OURS)[key]["value"] for key in (name, f"{name}_null")]
    return found


def p_value(table: IntervalTable, other: str, metric: str) -> float:
    """Two-sided, of no difference between V0 and another predictor."""
    gaps = table.replicates[OURS, metric] - table.replicates[other, metric]
    gaps = gaps[~np.isnan(gaps)]
    smaller = min((gaps <= 0).mean(), (gaps >= 0).mean())
    return float(min(1.0, 2 * max(smaller, 1 / len(gaps))))


def holm(p_values: dict[str, float], tests: int, level: float = 0.05) -> list[str]:
    """The names whose p-value is significant by Holm's step-down rule among so many tests."""
    significant = []
    for i, (name, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        if p > level / (tests - i):
            break
        significant.append(name)
    return significant


def interval(table: IntervalTable, name: str, metric: str) -> list[float | None]:
    """Value, low and high."""
    entry = table.row(name)[metric]
    return [entry["value"], entry["low"], entry["high"]]


def verdict(found: dict[str, Any]) -> dict[str, bool | None]:
    """Which claims hold in one table; None where the metric is undefined."""
    ahead = found["ahead"]
    ours, ridge, additive = (value[0] for value in found["residual_query"].values())
    known = None not in (ours, ridge, additive)
    return {
        "beats context-only": all(all(ahead[name].values()) for name in CONTEXT_ONLY),
        "beats additive": all(ahead[ADDITIVE].values()),
        "nowhere behind": not found["behind"],
        "residual_context": _near_zero(*found["residual_context"]),
        "residual_query": abs(ours) < abs(ridge) and abs(ours) <= abs(additive) if known else None,
        "ece_debiased": found["ece_debiased"][0] <= 0.05,
    }


def _near_zero(value: float | None, low: float | None, high: float | None) -> bool | None:
    if value is None or low is None or high is None:
        return None
    return abs(value) <= 0.1 or low <= 0 <= high


def markdown(results: dict[str, dict[str, Any]]) -> str:
    """The tables of the results page."""
    lines = [
        "| pool | AUC | within data sets | MSE | ECE, debiased "
        + "".join(f"| {metric} over {other} " for other, metric in COLUMNS)
        + "|",
        "| --- " * 9 + "|",
    ]
    for name, found in results.items():
        cells = [shown(found["auc"]), shown(found["auc_within"][:1]), shown(found["mse"])]
        cells += [shown(found["ece_debiased"][:1])]
        gaps = found["differences"]
        cells += [shown(gaps[ADDITIVE][metric]) for metric in ("auc", "mse")]
        for metric, sign in BETTER.items():
            closest = min(CONTEXT_ONLY, key=lambda n: sign * gaps[n][metric][0])
            cells.append(f"{shown(gaps[closest][metric])} ({closest})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    claims = list(verdict(next(iter(results.values()))))
    lines += ["", "| pool | " + " | ".join(claims) + " |", "| --- " * (len(claims) + 1) + "|"]
    for name, found in results.items():
        marks = ["n/a" if h is None else "yes" if h else "no" for h in verdict(found).values()]
        lines.append(f"| {name} | " + " | ".join(marks) + " |")
    lines += ["", "| pool | residual_context | residual_query v0 | ridge | additive |"]
    lines.append("| --- " * 5 + "|")
    for name, found in results.items():
        cells = [shown(found["residual_context"])]
        cells += [shown(value) for value in found["residual_query"].values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def shown(values: list[float | None]) -> str:
    """A value with its interval, three digits."""
    texts = ["n/a" if v is None else f"{v:.4f}".replace("0.", ".", 1) for v in values]
    return texts[0] if len(texts) == 1 else f"{texts[0]} [{texts[1]}, {texts[2]}]"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="writes quality.{json,md}")
    arguments = parser.parse_args()
    all_found: dict[str, dict[str, Any]] = {}
    for folder in arguments.folders:
        for pool, protocol, table in tables(folder):
            all_found[f"{pool}, {protocol}"] = found = compare(table)
            print(f"{pool}, {protocol}: {verdict(found)}", flush=True)
            for line in found["behind"]:
                print(f"  behind {line}")
    print(text := markdown(all_found))
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / "quality.md").write_text(text)
        document = {name: found | {"verdict": verdict(found)} for name, found in all_found.items()}
        (arguments.output / "quality.json").write_text(json.dumps(document, indent=1) + "\n")
