"""Predictors by name: the registry, packages of others, and `v0-bench predictors`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from v0_bench import Context, Predictor, PredictorInfo, Queries, V0BenchError, create_predictor
from v0_bench.cli import main
from v0_bench.predictors import (
    PredictorError,
    available_predictors,
    check_values,
    predictor_class,
    register_predictor,
)

ROOT = Path(__file__).resolve().parents[1]
BASELINES = {
    "random",
    "length",
    "context-mean",
    "dataset-mean",
    "query-difficulty",
    "additive",
    "knn",
    "knn-smoothed",
    "ridge",
    "logistic",
    "gaussian-process",
}


def test_every_baseline_is_found_under_its_name() -> None:
    known = available_predictors()
    assert set(known) >= BASELINES
    assert list(known) == sorted(known)
    assert all(cls.name == name for name, cls in known.items())


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(V0BenchError, match=r"unknown predictor 'rigde': did you mean 'ridge'\?"):
        predictor_class("rigde")


def test_a_name_belongs_to_one_class() -> None:
    class Impostor(Predictor):
        name = "ridge"
        info = PredictorInfo(summary="Another one.")

        def predict(self, context: Context, queries: Queries) -> np.ndarray:
            return np.zeros(len(queries))

    ridge = predictor_class("ridge")
    with pytest.raises(V0BenchError, match="'ridge' is taken by v0_bench"):
        register_predictor(Impostor)
    assert predictor_class("ridge") is ridge
    assert register_predictor(ridge) is ridge  # the same class may register again


def test_reserved_parameters_are_filled_where_a_predictor_has_them() -> None:
    assert create_predictor("knn", backbone="hash", seed=3).get_params()["backbone"] == "hash"
    assert create_predictor("random", backbone="hash", seed=3).get_params() == {"seed": 3}
    assert create_predictor("knn").get_params()["backbone"] == "minilm"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.1, np.nan], "1 NaN or inf"),
        ([[0.1, 0.2]], r"shape \(1, 2\), expected \(2,\)"),
        ([0.5], r"shape \(1,\)"),
        ([0.5, 1.25], r"must be within \[0, 1\]"),
    ],
)
def test_broken_values_are_refused(values: list, message: str) -> None:
    with pytest.raises(PredictorError, match=message):
        check_values(values, 2, "mine")


# --- a predictor from a package of its own


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example package, installed into a folder of its own, without the network."""
    folder = tmp_path_factory.mktemp("third_party")
    source = folder / "source"
    source.mkdir()
    for file in (ROOT / "examples" / "third_party_predictor").iterdir():
        if file.is_file():
            (source / file.name).write_bytes(file.read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run(
        [*pip, "--no-build-isolation", "--target", str(folder / "site"), str(source)],
        check=True,
        capture_output=True,
    )
    return folder / "site"


def run_with(site: Path, code: str) -> subprocess.CompletedProcess[str]:
    paths = [str(site), str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )


def test_an_installed_package_adds_its_predictor(installed: Path) -> None:
    code = """
from v0_bench import Context, Queries, create_predictor
from v0_bench.predictors import available_predictors
assert "context-median" in available_predictors()
seen = Context.from_pairs([("a", 1.0), ("b", 1.0), ("c", 0.0)])
print(create_predictor("context-median").predict(seen, Queries.from_texts(["x", "y"])).tolist())
"""
    assert json.loads(run_with(installed, code).stdout) == [0.75, 0.75]


def test_a_package_that_does_not_load_only_warns(tmp_path: Path) -> None:
    (tmp_path / "broken_predictor.py").write_text("raise RuntimeError('out of order')\n")
    metadata = tmp_path / "broken-0.1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 0.1\n")
    (metadata / "entry_points.txt").write_text(
        "[v0_bench.predictors]\nfaulty = broken_predictor:Faulty\n"
    )
    code = "from v0_bench.predictors import available_predictors; print(*available_predictors())"
    done = run_with(tmp_path, code)
    assert set(done.stdout.split()) >= BASELINES
    assert "faulty" not in done.stdout
    assert "'faulty' of broken_predictor:Faulty did not load" in done.stderr
    assert "out of order" in done.stderr


# --- the command line


def test_the_list_fits_eighty_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predictors", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name in BASELINES:
        assert any(re.match(rf" *{name} ", line) for line in lines), name


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predictors", "list", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert set(rows) == set(available_predictors())
    assert rows["knn"]["paper"] == "2602.03584"
    assert rows["knn"]["parameters"] == {"backbone": "minilm", "k": 64, "memory": 2048}


def test_show_prints_one_predictor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predictors", "show", "knn"]) == 0
    shown = capsys.readouterr().out
    assert "arXiv" in shown or "2602.03584" in shown
    assert "Apache-2.0" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["predictors", "show", "knn", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["class"].endswith("knn.NearestNeighbours")


def test_show_of_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predictors", "show", "knnn"]) == 2
    error = capsys.readouterr().err
    assert error == "error: unknown predictor 'knnn': did you mean 'knn'?\n"
