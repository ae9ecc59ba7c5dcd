"""Predictors that fail, and predictors that cannot run: a row each, and the run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leaderboard_runs import environment, install_package, numbers, rated_pool, run_leaderboard
from v0_bench.leaderboard.__main__ import main
from v0_bench.metrics import METRICS, PREDICTION_COLUMNS

THEIRS = """
import numpy as np
from v0_bench import Predictor, PredictorInfo

class Base(Predictor):
    info = PredictorInfo(summary="Fails.", default=False)
    def predict(self, context, queries):
        return np.full(len(queries), 0.5)

class Fine(Base):
    name = "fine"

class Raises(Base):
    name = "raises"
    def fit(self, train):
        raise KeyError("no such thing")

class NoNumber(Base):
    name = "no-number"
    def predict(self, context, queries):
        return np.full(len(queries), np.nan)

class Shape(Base):
    name = "shape"
    def predict(self, context, queries):
        return np.zeros((len(queries), 1))

class Range(Base):
    name = "range"
    def predict(self, context, queries):
        return np.full(len(queries), 1.5)

class Few(Base):
    name = "few"
    def predict_many(self, pairs):
        return [self.predict(*pair) for pair in pairs[1:]]

class Init(Base):
    name = "init"
    def __init__(self):
        raise RuntimeError("cannot be made")

class Writes(Base):
    name = "writes"
    def predict(self, context, queries):
        context.success_rates[:] = 0
        return np.full(len(queries), 0.5)

class Quits(Base):
    name = "quits"
    def predict(self, context, queries):
        raise SystemExit(0)

class Away(Base):
    name = "away"
    def why_unavailable(self):
        return "its weights are not here; get them with `theirs fetch`"

class Picky(Base):
    name = "picky"
    info = PredictorInfo(summary="Needs steps.", protocols=("sequential",), default=False)
"""
CLASSES = {
    "fine": "Fine",
    "raises": "Raises",
    "no-number": "NoNumber",
    "shape": "Shape",
    "range": "Range",
    "few": "Few",
    "init": "Init",
    "writes": "Writes",
    "quits": "Quits",
    "away": "Away",
    "picky": "Picky",
}
REASONS = {
    "raises": "KeyError: 'no such thing'",
    "no-number": "no-number: predict returned 18 NaN or inf",
    "shape": "predict returned shape (18, 1), expected (18,)",
    "range": "must be within [0, 1]",
    "few": "ValueError: ",
    "init": "RuntimeError: cannot be made",
    "quits": "SystemExit: 0",
    "writes": "ValueError: assignment destination is read-only",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_package(tmp_path_factory.mktemp("site"), THEIRS, **CLASSES)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rated_pool().save(tmp_path_factory.mktemp("pool") / "rated")


def rows_of(output: Path) -> dict[str, dict[str, Any]]:
    document = json.loads((output / "leaderboard.json").read_text())
    return {row["predictor"]: row for row in document["rows"]}


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_failing_predictor_is_a_row(site: Path, pool: Path, tmp_path: Path, jobs: str) -> None:
    names = ",".join(CLASSES)
    result = run_leaderboard(
        "--pool", pool, "--predictors", names, "--output", tmp_path, "--jobs", jobs,
        env=environment(site),
    )  # fmt: skip
    assert result.returncode == 1
    assert "Traceback" not in result.stdout + result.stderr
    rows = rows_of(tmp_path)
    assert rows["fine"]["status"] == "ok"
    assert rows["fine"]["rank"] == 1
    for name, reason in REASONS.items():
        row = rows[name]
        assert (row["status"], row["rank"]) == ("error", None)
        assert reason in row["reason"]
        assert all(row[metric] is None for metric in METRICS)
        assert f"{name}: error: " in result.stdout
    (trace,) = (tmp_path / "work").glob("*-raises-*.error.txt")
    assert 'raise KeyError("no such thing")' in trace.read_text()
    assert (rows["away"]["status"], rows["picky"]["status"]) == ("not_applicable",) * 2
    assert rows["picky"]["reason"] == "can do sequential only"


def test_what_cannot_run_is_no_failure(site: Path, pool: Path, tmp_path: Path) -> None:
    result = run_leaderboard(
        "--pool", pool, "--predictors", "away,picky,fine", "--output", tmp_path,
        env=environment(site),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "away: not applicable: its weights are not here" in " ".join(result.stdout.split())
    assert rows_of(tmp_path)["away"]["reason"].startswith("its weights are not here")


def test_a_pool_of_one_policy_has_no_table_but_the_other_pools_do(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = rated_pool("alone", policies=("m0",)).save(tmp_path / "alone")
    arguments = ["--predictors", "context-mean,random", "--output", tmp_path / "out", "--pool"]
    assert main(list(map(str, [*arguments, alone]))) == 0
    assert "needs 2 families of policies" in " ".join(capsys.readouterr().out.split())
    assert {row["status"] for row in rows_of(tmp_path / "out").values()} == {"not_applicable"}
    import pandas as pd

    empty = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert (list(empty.columns), len(empty)) == (list(PREDICTION_COLUMNS), 0)
    assert main(list(map(str, [*arguments, alone, "--pool", pool]))) == 0
    document = json.loads((tmp_path / "out" / "leaderboard.json").read_text())
    assert document["mean_ranks"] == []  # one table has ranks: nothing to average
    assert {row["pool"] for row in document["rows"] if row["rank"]} == {"rated"}
    frame = pd.read_parquet(tmp_path / "out" / "predictions.parquet")
    assert frame["prediction"].dtype == float
    capsys.readouterr()


def test_policies_that_always_pass_or_fail_have_no_auc(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = rated_pool("flat")
    pool.outcomes["mean_reward"] = (pool.outcomes["policy"] == "m0").astype(float)
    folder = pool.save(tmp_path / "flat")
    arguments = ["--pool", folder, "--predictors", "context-mean,random", "--seeds", "2"]
    assert main(list(map(str, [*arguments, "--output", tmp_path / "out"]))) == 0
    rows = rows_of(tmp_path / "out")
    assert rows["context-mean"]["auc"]["value"] is None
    assert rows["context-mean"]["rank"] is None
    assert rows["context-mean"]["mse"]["value"] == 0
    capsys.readouterr()


def test_an_error_is_tried_again_and_leaves_the_rest_as_it_was(
    site: Path, pool: Path, tmp_path: Path
) -> None:
    arguments = ["--pool", pool, "--output", tmp_path, "--predictors"]
    assert run_leaderboard(*arguments, "fine,raises", env=environment(site)).returncode == 1
    mended = site.parent / "mended"
    code = THEIRS.replace('raise KeyError("no such thing")', "return self")
    install_package(mended, code, **CLASSES)
    assert run_leaderboard(*arguments, "fine,raises", env=environment(mended)).returncode == 0
    document = json.loads((tmp_path / "leaderboard.json").read_text())
    fine, raises = (numbers(document)[i] | {"predictor": ""} for i in (0, 1))
    assert fine == raises
