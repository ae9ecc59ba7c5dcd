"""The gold study on part of the real problem sets: golds accepted, other answers rejected."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "answer_golds.py"


@pytest.mark.parametrize(
    ("name", "rows"),
    [("aime_2024", 30), ("aime_2025", 30), ("dapo_math_17k", 100), ("math_500", 60),
     ("olympiad_bench", 60)],
)  # fmt: skip
def test_real_golds(shared, name, rows):
    spec = importlib.util.spec_from_file_location("answer_golds", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found = script.study(shared / "problem_sets" / f"{name}.jsonl", rows, seed=1)
    assert found["accepted"] >= script.ACCEPTED, found["missed"]
    assert found["rejected"] >= script.REJECTED, found["let_through"]
