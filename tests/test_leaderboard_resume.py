"""Interrupted runs resume, finished parts are not run twice, and inputs are never mixed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from leaderboard_runs import (
    environment,
    install_package,
    leaderboard,
    modified,
    numbers,
    rated_pool,
    run_leaderboard,
)
from v0_bench import Context, Pool, Predictor, PredictorInfo, Queries
from v0_bench.leaderboard import work
from v0_bench.leaderboard.work import Result, Unit, run_unit
from v0_bench.predictors import available_predictors, registry

SLOW = """
import os, time
import numpy as np
from v0_bench import Predictor, PredictorInfo

class Slow(Predictor):
    name = "slow"
    info = PredictorInfo(summary="Takes its time.", default=False)
    def predict(self, context, queries):
        time.sleep(float(os.environ.get("SLOW_SECONDS", "0")))
        return np.full(len(queries), context.mean)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_package(tmp_path_factory.mktemp("site"), SLOW, slow="Slow")


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rated_pool().save(tmp_path_factory.mktemp("pool") / "rated")


@pytest.fixture(scope="module")
def whole(pool: Path, site: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """The numbers of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("whole")
    assert run_leaderboard(*settings(pool, folder), env=environment(site)).returncode == 0
    return numbers(json.loads((folder / "leaderboard.json").read_text()))


def settings(pool: Path, output: Path) -> list[str | Path]:
    names = ["--predictors", "knn,slow,random", "--context-size", "16", "--seeds", "2"]
    return ["--pool", pool, "--output", output, *names]


def start(pool: Path, site: Path, output: Path, seconds: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        leaderboard(*settings(pool, output)),
        env=environment(site, SLOW_SECONDS=seconds),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_for_unit(process: subprocess.Popen[str], output: Path) -> None:
    deadline = time.monotonic() + 60
    while not modified(output):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_stopped_resumes(
    pool: Path, site: Path, whole: list[dict], tmp_path: Path, signal_number: int
) -> None:
    process = start(pool, site, tmp_path, seconds="5")
    wait_for_unit(process, tmp_path)  # knn is done, slow is at work
    time.sleep(0.3)
    os.killpg(process.pid, signal_number)
    out, err = process.communicate(timeout=30)
    if signal_number == signal.SIGINT:
        assert (process.returncode, out) == (130, "")
        assert err.strip().endswith("interrupted")
        assert "Traceback" not in err
    before = modified(tmp_path)
    assert len(before) == 1
    assert not (tmp_path / "leaderboard.json").exists()
    assert run_leaderboard(*settings(pool, tmp_path), env=environment(site)).returncode == 0
    after = modified(tmp_path)
    assert len(after) == 6
    assert before.items() <= after.items()  # not run again
    assert numbers(json.loads((tmp_path / "leaderboard.json").read_text())) == whole


def test_two_runs_at_once_share_an_output_folder(
    pool: Path, site: Path, whole: list[dict], tmp_path: Path
) -> None:
    processes = [start(pool, site, tmp_path, seconds="0.01") for _ in range(2)]
    for process in processes:
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
    assert numbers(json.loads((tmp_path / "leaderboard.json").read_text())) == whole
    assert not list(tmp_path.rglob(".*"))


# --- one unit at a time


class Constant(Predictor):
    """Predicts its parameter, or the text's length if it has a backbone."""

    name = "constant"
    info = PredictorInfo(summary="A number.")

    def __init__(self, value: float = 0.25, backbone: str = "hash") -> None:
        self.value = value
        self.backbone = backbone

    def predict(self, context: Context, queries: Queries) -> np.ndarray:
        return np.full(len(queries), self.value)


class OtherConstant(Constant):
    """The same with another default."""

    def __init__(self, value: float = 0.75, backbone: str = "hash") -> None:
        super().__init__(value, backbone)


@pytest.fixture
def unit(pool: Path, monkeypatch: pytest.MonkeyPatch) -> Unit:
    available_predictors()
    monkeypatch.setitem(registry._classes, "constant", Constant)
    return Unit(Pool.load(pool), "unseen-policy", "constant", 0, 16, "hash")


def ran(unit: Unit, folder: Path) -> bool:
    """Whether the unit was run, and not read from its file."""
    before = modified(folder.parent)
    result = run_unit(unit, folder)
    assert result.status == "ok", result
    return modified(folder.parent) != before


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "work"


def test_the_same_unit_is_read_back(unit: Unit, folder: Path) -> None:
    first = run_unit(unit, folder)
    assert not ran(unit, folder)
    again = run_unit(unit, folder)
    assert first.predictions is not None
    assert np.array_equal(first.predictions, again.predictions)
    assert (first.fit_seconds, first.predict_seconds) == (again.fit_seconds, again.predict_seconds)


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"context_size": 17}, {"protocol": "strict"}, {"backbone": "minilm"}],
    ids=lambda change: next(iter(change)),
)
def test_changed_settings_run_anew(unit: Unit, folder: Path, change: dict) -> None:
    run_unit(unit, folder)
    assert ran(replace(unit, **change), folder)


def test_changed_pools_run_anew(unit: Unit, folder: Path) -> None:
    run_unit(unit, folder)
    pool = unit.pool
    for table, column, value in (
        ("outcomes", "mean_reward", 0.125),
        ("queries", "text", "Another text, which no other query has?"),
        ("policies", "family", "some family"),
    ):
        frames = {name: getattr(pool, name).copy() for name in ("queries", "policies", "outcomes")}
        frames[table].loc[0, column] = value
        assert ran(replace(unit, pool=Pool("rated", **frames)), folder), table
    assert ran(replace(unit, pool=rated_pool("other")), folder)


def test_the_order_of_a_pools_rows_does_not_matter(unit: Unit, folder: Path) -> None:
    unit = replace(unit, predictor="length")
    first = run_unit(unit, folder)
    pool = unit.pool
    shuffled = [frame.sample(frac=1, random_state=0) for frame in (pool.queries, pool.policies)]
    mixed = Pool("rated", *shuffled, pool.outcomes.sample(frac=1, random_state=1))
    assert not ran(replace(unit, pool=mixed), folder)
    fresh = run_unit(replace(unit, pool=mixed), folder / "fresh")
    assert np.array_equal(first.predictions, fresh.predictions)


def test_changed_parameters_run_anew(
    unit: Unit, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_unit(unit, folder)
    monkeypatch.setitem(registry._classes, "constant", OtherConstant)
    result = run_unit(unit, folder)
    assert result.predictions is not None
    assert set(result.predictions) == {0.75}


def test_changed_versions_run_anew(
    unit: Unit, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_unit(unit, folder)
    monkeypatch.setattr(work, "package_versions", lambda: {"numpy": "99"})
    assert ran(unit, folder)


def test_changed_code_runs_anew(
    unit: Unit, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "changing_package"
    package.mkdir()
    (package / "helper.py").write_text("VALUE = 0.5\n")
    (package / "__init__.py").write_text("from changing_package.helper import VALUE\n")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("changing_package")
    monkeypatch.setattr(Constant, "__module__", "changing_package")
    run_unit(unit, folder)
    work._source_code.cache_clear()
    assert not ran(unit, folder)
    (package / "helper.py").write_text("VALUE = 0.6\n")
    work._source_code.cache_clear()
    assert ran(unit, folder)
    del sys.modules["changing_package"], sys.modules["changing_package.helper"]


def test_code_without_a_source_is_never_taken_for_unchanged(
    unit: Unit, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "typed_at_a_prompt", type(sys)("typed_at_a_prompt"))
    monkeypatch.setattr(Constant, "__module__", "typed_at_a_prompt")
    run_unit(unit, folder)
    work._source_code.cache_clear()
    assert ran(unit, folder)


@pytest.mark.parametrize("damage", ["short", "empty", "garbage", "text", "no key"])
def test_a_damaged_file_is_computed_again(unit: Unit, folder: Path, damage: str) -> None:
    first = run_unit(unit, folder)
    (path,) = folder.glob("*.npz")
    content = path.read_bytes()
    if damage == "no key":
        np.savez(path, predictions=np.zeros(3))
    else:
        middle = len(content) // 2
        garbled = content[:middle] + bytes(100) + content[middle + 100 :]
        bad = {"short": content[:-50], "empty": b"", "garbage": garbled, "text": b"hello"}
        path.write_bytes(bad[damage])
    again = run_unit(unit, folder)
    assert np.array_equal(first.predictions, again.predictions)
    assert not ran(unit, folder)


@pytest.mark.parametrize("name", ["../../up", "a/b", "..", "题" * 150, "x" * 300, "nul\0l"])
def test_odd_pool_names_stay_inside_the_folder(unit: Unit, folder: Path, name: str) -> None:
    pool = Pool(name, unit.pool.queries, unit.pool.policies, unit.pool.outcomes)
    result: Result = run_unit(replace(unit, pool=pool), folder)
    assert result.status == "ok"
    assert len(list(folder.iterdir())) == 1
    assert list(folder.parent.iterdir()) == [folder]


def test_units_never_share_a_file(unit: Unit, folder: Path) -> None:
    other = Pool("rated_", unit.pool.queries, unit.pool.policies, unit.pool.outcomes)
    for one in (unit, replace(unit, pool=other), replace(unit, seed=1)):
        run_unit(one, folder)
    assert len(modified(folder.parent)) == 3
    slash = replace(other_name(unit, "a/b"), seed=0)
    for one in (slash, other_name(unit, "a_b")):
        run_unit(one, folder)
    assert len(modified(folder.parent)) == 5


def other_name(unit: Unit, name: str) -> Unit:
    tables: list[pd.DataFrame] = [unit.pool.queries, unit.pool.policies, unit.pool.outcomes]
    return replace(unit, pool=Pool(name, *tables))
