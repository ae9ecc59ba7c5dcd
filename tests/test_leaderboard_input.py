"""Mistakes on the command line, damaged pools and full disks: one message, status 2, no harm."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path

import pandas as pd
import pytest

from leaderboard_runs import rated_pool, run_leaderboard
from v0_bench.leaderboard.__main__ import main


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rated_pool().save(tmp_path_factory.mktemp("pool") / "rated")


@pytest.fixture
def damaged(pool: Path, tmp_path: Path) -> Path:
    """A copy of the pool without its fingerprint, to be damaged."""
    copy = Path(shutil.copytree(pool, tmp_path / "damaged"))
    about = json.loads((copy / "pool.json").read_text())
    del about["fingerprint"]
    (copy / "pool.json").write_text(json.dumps(about))
    return copy


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The one line that the command prints for a mistake."""
    status = main(["--backbone", "hash", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert (status, out) == (2, ""), err
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    return err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--predictors", "rigde"], "unknown predictor 'rigde': did you mean 'ridge'?"),
        (["--predictors", "knn,,nothing-like-it"], "unknown predictor 'nothing-like-it': known:"),
        (["--predictors", ","], "no predictor is named; see `v0-bench predictors list`"),
        (["--protocol", "unseen-polcy"], "did you mean 'unseen-policy'?"),
        (["--protocol", "shift:sums>wrods"], "unknown data set 'wrods': did you mean 'words'?"),
        (["--protocol", "shift:sums>sums"], "the two data sets are the same"),
        (["--backbone", "minilmm"], "minilm"),
        (["--context-size", "-1"], "--context-size must be at least 0"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--output", "/proc/nowhere"], "cannot write to /proc/nowhere: "),
    ],
)
def test_mistakes_on_the_command_line(
    pool: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain = ["--pool", pool, "--predictors", "knn", "--output", tmp_path / "out"]
    assert message in refused(capsys, *plain, *arguments)
    assert not (tmp_path / "out" / "leaderboard.json").exists()


def test_unknown_pools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = ["--output", tmp_path / "out"]
    assert "did you mean 'v0-release'?" in refused(capsys, "--pool", "v0-relaese", *output)
    assert "no such folder" in refused(capsys, "--pool", tmp_path / "none", *output)
    assert "it has no pool.json" in refused(capsys, "--pool", tmp_path, *output)
    assert not (tmp_path / "out").exists()


def test_two_pools_of_one_name(pool: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "two pools share a name: rated" in refused(capsys, "--pool", pool, "--pool", pool)


@pytest.mark.parametrize("option", ["--seeds=two", "--context-size=1.5", "--nothing", "--jobs="])
def test_words_that_are_no_options(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([option])
    assert "usage: " in capsys.readouterr().err


def test_damaged_pools(damaged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--pool", damaged, "--output", tmp_path / "out"]
    file = damaged / "outcomes.parquet"
    outcomes = pd.read_parquet(file)
    for reward, words in ((float("nan"), "row 3"), (1.5, "1.5")):
        outcomes.assign(mean_reward=[0.5] * 3 + [reward] + [0.5] * (len(outcomes) - 4)).to_parquet(
            file
        )
        message = refused(capsys, *arguments)
        assert "outcomes.parquet" in message
        assert "mean_reward" in message
        assert words in message
    outcomes.head(0).to_parquet(file)
    assert "the pool is empty" in refused(capsys, *arguments)
    file.write_bytes(file.read_bytes()[:-40])
    assert f"{file} is not a readable Parquet file" in refused(capsys, *arguments)
    file.write_text("query_id,policy\n")
    assert f"{file} is not a readable Parquet file" in refused(capsys, *arguments)
    file.unlink()
    assert f"{file} is missing" in refused(capsys, *arguments)
    assert not (tmp_path / "out").exists()


def test_a_file_in_the_way(pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--pool", pool, "--predictors", "random", "--output"]
    (tmp_path / "file").write_text("mine")
    for output in (tmp_path / "file", tmp_path / "file" / "below"):
        assert f"cannot write to {output}: " in refused(capsys, *arguments, output)
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "out" / "leaderboard.json").mkdir(parents=True)
    assert "leaderboard.json: Is a directory" in refused(capsys, *arguments, tmp_path / "out")


@pytest.mark.parametrize("size", ["0", "1", "2", "100000000000000000000"])
def test_every_size_of_context_works(
    pool: Path, tmp_path: Path, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = "context-mean,knn,ridge,gaussian-process,additive,dataset-mean"
    arguments = ["--pool", pool, "--output", tmp_path, "--context-size", size]
    assert main(["--backbone", "hash", "--predictors", names, *map(str, arguments)]) == 0
    sizes = set(pd.read_parquet(tmp_path / "predictions.parquet")["context_size"])
    assert sizes == {min(int(size), 42)}  # 42 of 60 queries may be shown
    capsys.readouterr()


def test_a_protocol_named_twice_is_one_table(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--pool", pool, "--output", tmp_path, "--protocol", "strict, strict,sequential"]
    assert main(["--predictors", "random", *map(str, arguments)]) == 0
    rows = json.loads((tmp_path / "leaderboard.json").read_text())["rows"]
    protocols = [row["protocol"] for row in rows if row["predictor"] == "random"]
    assert protocols == ["strict", "sequential"]
    assert rows[-1]["reason"] == "needs training steps, this pool's policies are finished models"
    capsys.readouterr()


# --- a full disk


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def test_a_full_disk_leaves_the_old_leaderboard(
    pool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    arguments = ["--pool", pool, "--output", output, "--context-size", "16", "--predictors"]
    assert main(["--backbone", "hash", *map(str, arguments), "context-mean,random"]) == 0
    capsys.readouterr()
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    assert len(before[output / "leaderboard.json"]) > 12_000
    full = run_leaderboard(*arguments, "random", before=lambda: limit_files(6_000))
    assert (full.returncode, full.stdout) == (2, "")
    assert f"error: cannot write {output}/leaderboard.json: File too large\n" in full.stderr
    assert "Traceback" not in full.stderr
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before


def test_a_full_disk_in_the_middle_of_the_work(pool: Path, tmp_path: Path) -> None:
    arguments = ["--pool", pool, "--output", tmp_path, "--predictors", "context-mean"]
    full = run_leaderboard(*arguments, before=lambda: limit_files(500))
    assert (full.returncode, full.stdout) == (2, "")
    assert f"error: cannot write {tmp_path}/work/" in full.stderr
    assert full.stderr.endswith("File too large\n")
    assert "Traceback" not in full.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["work"]
