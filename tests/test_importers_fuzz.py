"""Importers on damaged files: either a pool that can be saved, or a V0BenchError."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pools import write_long
from test_importers import write_embedllm, write_result, write_v0_release
from test_importers_lm_eval import sample, write_run
from v0_bench import Pool, V0BenchError
from v0_bench.pool.importers import import_pool

FUZZ = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, 2**63, 2**64, -0.0])
    | st.floats()
    | st.text(st.characters(), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)


def write_sample_run(folder: Path) -> Path:
    write_run(folder, "acme/tiny", [sample(number) for number in range(3)])
    return folder


def write_results(folder: Path) -> Path:
    records = [
        {"index": number, "origin_query": f"Is {number} odd?", "score": 1.0, "cost": 0.1}
        for number in range(3)
    ]
    write_result(folder, "tiny", "20250101_000000", records)
    return folder


def write_routerbench(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "table.csv").write_text(
        "sample_id,prompt,eval_name,tiny,tiny|total_cost\n"
        "a,\"['Is it?']\",alpha,1.0,0.1\nb,Is it not?,alpha,0.5,\n"
    )
    return folder


SOURCES = {
    "long": write_long,
    "v0-release": write_v0_release,
    "lm-eval": write_sample_run,
    "embedllm": write_embedllm,
    "routerbench": write_routerbench,
    "llmrouterbench": write_results,
}


def source_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def import_or_refuse(folder: Path, format: str) -> None:
    """A pool that comes out must also survive being saved and loaded."""
    try:
        pool = import_pool(folder, format).pool
    except V0BenchError:
        return
    assert Pool.load(pool.save(folder / "saved")).fingerprint == pool.fingerprint


@pytest.mark.parametrize("format", SOURCES)
def test_the_files_are_whole_before_they_are_damaged(tmp_path: Path, format: str) -> None:
    assert len(import_pool(SOURCES[format](tmp_path / "whole"), format).pool.outcomes)


@pytest.mark.parametrize("format", SOURCES)
@FUZZ
@given(data=st.data())
def test_damaged_bytes(format: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = SOURCES[format](Path(place) / "whole")
        file = data.draw(st.sampled_from(source_files(folder)))
        content = file.read_bytes()
        start = data.draw(st.integers(0, len(content)))
        stop = data.draw(st.integers(start, min(len(content), start + 40)))
        file.write_bytes(content[:start] + data.draw(st.binary(max_size=6)) + content[stop:])
        import_or_refuse(folder, format)


@pytest.mark.parametrize("format", ["long", "v0-release", "lm-eval"])
@FUZZ
@given(data=st.data())
def test_changed_fields_of_lines(format: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = SOURCES[format](Path(place) / "whole")
        files = [file for file in source_files(folder) if file.suffix == ".jsonl"]
        file = data.draw(st.sampled_from(files))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        change(data, data.draw(st.sampled_from(lines)))
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        import_or_refuse(folder, format)


@pytest.mark.parametrize(
    ("format", "pattern"),
    [
        ("v0-release", "prompt_dict.json"),
        ("llmrouterbench", "**/*.json"),
        ("lm-eval", "**/results_*.json"),
    ],
)
@FUZZ
@given(data=st.data())
def test_changed_fields_of_documents(format: str, pattern: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = SOURCES[format](Path(place) / "whole")
        file = next(folder.glob(pattern))
        content = json.loads(file.read_text())
        inner = [value for value in content.values() if isinstance(value, dict)]
        change(data, data.draw(st.sampled_from([content, *content.get("records", []), *inner])))
        file.write_text(json.dumps(content))
        import_or_refuse(folder, format)


def change(data: st.DataObject, row: dict[str, Any]) -> None:
    """Gives one field another value, or adds or removes one."""
    key = data.draw(st.sampled_from([*row, "cost", "step", "extra"]))
    if data.draw(st.booleans()):
        row[key] = data.draw(JSON_VALUES)
    else:
        row.pop(key, None)
