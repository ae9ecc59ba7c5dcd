"""lm-eval's output files for one checkpoint and task, written so that they tell what is finished.

The results file comes last and holds the key of what it depends on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from v0_bench.errors import V0BenchError
from v0_bench.files import atomic_file
from v0_bench.pool.importers.reading import read_json


def finished(folder: Path, key: str) -> dict[str, Any] | None:
    """The results in a folder if they were made under this key, else None."""
    for file in folder.glob("results_*.json"):
        try:
            results = read_json(file)
        except V0BenchError:  # a damaged file is as good as none
            continue
        if results.get("v0_bench", {}).get("key") == key:
            return results
    return None


def write_results(folder: Path, task: str, results: Mapping[str, Any]) -> None:
    """Replaces what is in `folder` by the files of one evaluation of one task."""
    from lm_eval.utils import handle_non_serializable

    for old in (*folder.glob("results_*.json"), *folder.glob("samples_*.jsonl")):
        old.unlink()
    date = datetime.now().isoformat().replace(":", "-")
    rows = (_sample(sample) for sample in results["samples"][task])
    with atomic_file(folder / f"samples_{task}_{date}.jsonl") as file:
        _write_lines(file, rows)
    rest = {key: value for key, value in results.items() if key != "samples"}
    with atomic_file(folder / f"results_{date}.json") as file:
        text = json.dumps(rest, indent=1, default=handle_non_serializable, ensure_ascii=False)
        file.write_text(text, encoding="utf-8")


def scores(results: Mapping[str, Any], task: str) -> dict[str, float]:
    """The task's metrics that are numbers, without lm-eval's name of the filter."""
    values = results["results"][task].items()
    return {
        name.partition(",")[0]: float(value)
        for name, value in values
        if "," in name and isinstance(value, int | float)
    }


def _sample(sample: Mapping[str, Any]) -> dict[str, Any]:
    """A sample with its requests as a mapping, as lm-eval writes them."""
    arguments = {
        f"gen_args_{number}": {f"arg_{at}": part for at, part in enumerate(request)}
        for number, request in enumerate(sample["arguments"])
    }
    return dict(sample) | {"arguments": arguments, "target": str(sample["target"])}


def _write_lines(file: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    from lm_eval.utils import handle_non_serializable

    with file.open("w", encoding="utf-8", errors="backslashreplace") as lines:
        for row in rows:
            text = json.dumps(row, default=handle_non_serializable, ensure_ascii=False)
            lines.write(text + "\n")
