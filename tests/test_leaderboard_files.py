"""What a run writes: every file and key, and that the numbers are those of its predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from leaderboard_runs import numbers, rated_pool, run_leaderboard
from v0_bench.leaderboard.__main__ import main
from v0_bench.metrics import METRICS, PREDICTION_COLUMNS, intervals, score

PREDICTORS = ["context-mean", "knn", "random"]
ROW_KEYS = ["pool", "protocol", "predictor", "status", "reason", "rank", "fit_seconds"]
ROW_KEYS += ["ms_per_query"]
ENTRY_KEYS = ["value", "low", "high", "low_policies", "high_policies", "per_seed"]
TABLES = [("rated", "unseen-policy"), ("trained", "sequential")]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over two pools and two seeds, its standard output kept beside the files."""
    folder = tmp_path_factory.mktemp("run")
    rated = rated_pool(n_queries=120).save(folder / "rated")
    trained = rated_pool("trained", policies=("a", "b"), steps=(1, 2, 3)).save(folder / "trained")
    arguments = ["--pool", rated, "--pool", trained, "--seeds", "2", "--context-size", "32"]
    result = run_leaderboard(
        *arguments, "--predictors", ",".join(PREDICTORS), "--output", folder / "out", "--json"
    )
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
    (folder / "out" / "stdout").write_text(result.stdout)
    return folder / "out"


@pytest.fixture(scope="module")
def document(output: Path) -> dict[str, Any]:
    return json.loads((output / "leaderboard.json").read_text())


@pytest.fixture(scope="module")
def predictions(output: Path) -> pd.DataFrame:
    return pd.read_parquet(output / "predictions.parquet")


def ranked(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in document["rows"] if row["rank"] is not None]


def frame_of(predictions: pd.DataFrame, row: dict[str, Any]) -> pd.DataFrame:
    keys = ("pool", "protocol", "predictor")
    return predictions[np.all([predictions[key] == row[key] for key in keys], axis=0)]


def test_json_on_stdout_is_the_file(output: Path, document: dict[str, Any]) -> None:
    assert json.loads((output / "stdout").read_text()) == document


def test_document_has_every_key(document: dict[str, Any]) -> None:
    assert list(document) == ["schema_version", "provenance", "rows", "mean_ranks"]
    for row in document["rows"]:
        assert list(row) == [*ROW_KEYS, *METRICS]
        assert row["status"] in ("ok", "not_applicable")
        entries = [row[name] for name in METRICS if row[name] is not None]
        assert all(list(entry) == ENTRY_KEYS for entry in entries)
    for row in ranked(document):
        assert all(len(row[name]["per_seed"]) == 2 for name in METRICS)
        assert row["fit_seconds"] >= 0
        assert row["ms_per_query"] >= 0


def test_provenance_says_what_was_run(document: dict[str, Any], output: Path) -> None:
    record = document["provenance"]
    assert record["command"].startswith("python -m v0_bench.leaderboard --backbone hash --pool")
    assert (record["seeds"], record["context_size"], record["backbone"]) == ([0, 1], 32, "hash")
    assert {"python", "v0-bench", "numpy", "torch"} <= set(record["versions"])
    assert record["hardware"]["cores"] >= 1
    for name, about in record["pools"].items():
        stored = json.loads((output.parent / name / "pool.json").read_text())
        assert about["fingerprint"] == stored["fingerprint"]


def test_rows_of_each_table(document: dict[str, Any]) -> None:
    for table in TABLES:
        rows = [row for row in document["rows"] if (row["pool"], row["protocol"]) == table]
        names = [row["predictor"] for row in rows]
        assert sorted(names[:3]) == PREDICTORS
        assert names[3:] == ["ceiling", "cross-policy-oracle"]
        assert [row["rank"] for row in rows[3:]] == [None, None]
        auc = [row["auc"]["value"] for row in rows[:3]]
        assert auc == sorted(auc, reverse=True)
        assert rows[0]["rank"] == 1


def test_predictions_are_complete(predictions: pd.DataFrame) -> None:
    assert list(predictions.columns) == list(PREDICTION_COLUMNS)
    keys = ["pool", "protocol", "seed", "predictor", "policy", "step", "query_id"]
    assert not predictions.duplicated(keys).any()
    assert predictions["prediction"].between(0, 1).all()
    tests = predictions.drop(columns=["prediction", "predictor"])
    assert (tests.value_counts(dropna=False) == len(PREDICTORS)).all()  # the same for each
    assert set(predictions["seed"]) == {0, 1}
    means = predictions[predictions["predictor"] == "context-mean"]
    assert np.allclose(means["prediction"], means["context_mean"])


def test_metrics_are_those_of_the_predictions(
    document: dict[str, Any], predictions: pd.DataFrame
) -> None:
    for row in ranked(document):
        frame = frame_of(predictions, row)
        per_seed = [score(frame[frame["seed"] == seed]) for seed in (0, 1)]
        for name, value in score(frame).items():
            assert row[name]["value"] == value, name
            assert row[name]["per_seed"] == [one[name] for one in per_seed], name


def test_intervals_and_ranks_are_those_of_the_predictions(
    document: dict[str, Any], predictions: pd.DataFrame
) -> None:
    for pool, protocol in TABLES:
        rows = [row for row in ranked(document) if row["pool"] == pool]
        table = intervals({row["predictor"]: frame_of(predictions, row) for row in rows})
        for row in rows:
            others = [other["predictor"] for other in rows if other is not row]
            gains = [table.difference(other, row["predictor"])["low"] for other in others]
            assert row["rank"] == 1 + sum(low > 0 for low in gains)
            entry = table.row(row["predictor"])["auc"]
            assert row["protocol"] == protocol
            assert (row["auc"]["low"], row["auc"]["high"]) == (entry["low"], entry["high"])


def test_mean_ranks(document: dict[str, Any]) -> None:
    for entry in document["mean_ranks"]:
        ranks = [r["rank"] for r in ranked(document) if r["predictor"] == entry["predictor"]]
        assert (entry["mean_rank"], entry["tables"]) == (np.mean(ranks), 2)
    means = [entry["mean_rank"] for entry in document["mean_ranks"]]
    assert len(means) == 3
    assert means == sorted(means)


def test_csv_holds_the_same_numbers(document: dict[str, Any], output: Path) -> None:
    text = (output / "leaderboard.csv").read_text()
    table = pd.read_csv(output / "leaderboard.csv")
    assert len(table) == len(document["rows"])
    assert "rated,unseen-policy,random,ok,,1," in text  # a rank is a whole number
    for line, row in zip(table.to_dict("records"), document["rows"], strict=True):
        assert line["predictor"] == row["predictor"]
        for name in METRICS:
            value = None if row[name] is None else row[name]["value"]
            assert (value is None and pd.isna(line[name])) or line[name] == value


def test_markdown_tables_are_whole(output: Path) -> None:
    lines = (output / "leaderboard.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("## ")] == [
        "## rated, unseen-policy",
        "## trained, sequential",
        "## Mean rank",
    ]
    widths = [line.count("|") for line in lines if line.startswith("|")]
    assert widths == [11] * 7 + [11] * 7 + [3] * 5


def test_plots_are_images(output: Path) -> None:
    stems = {path.stem for path in output.glob("*.svg")}
    assert stems == {path.stem for path in output.glob("*.png")}
    assert stems == {
        "rated-unseen-policy-auc",
        "rated-unseen-policy-reliability",
        "rated-unseen-policy-auc_by_context_size",
        "trained-sequential-auc",
        "trained-sequential-reliability",
        "trained-sequential-auc_by_context_size",
        "trained-sequential-auc_by_step",
    }
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in output.glob("*.png"))


def test_nothing_else_is_left(output: Path) -> None:
    names = {path.name for path in output.iterdir()} - {"stdout"}
    files = {"leaderboard.json", "leaderboard.csv", "leaderboard.md", "predictions.parquet", "work"}
    assert {name for name in names if not name.endswith((".png", ".svg"))} == files
    assert len(list((output / "work").iterdir())) == len(TABLES) * len(PREDICTORS) * 2


def test_two_processes_give_the_same_numbers(
    output: Path, document: dict[str, Any], tmp_path: Path
) -> None:
    pools = ["--pool", output.parent / "rated", "--pool", output.parent / "trained"]
    result = run_leaderboard(
        *pools, "--seeds", "2", "--context-size", "32", "--predictors", ",".join(PREDICTORS),
        "--output", tmp_path, "--jobs", "2",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "Warning" not in result.stderr
    assert numbers(json.loads((tmp_path / "leaderboard.json").read_text())) == numbers(document)
    again = pd.read_parquet(tmp_path / "predictions.parquet")
    pd.testing.assert_frame_equal(again, pd.read_parquet(output / "predictions.parquet"))


def test_single_rollouts_have_no_ceiling(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pool = rated_pool("once", n_rollouts=1).save(tmp_path / "once")
    arguments = ["--pool", pool, "--predictors", "context-mean", "--output", tmp_path / "out"]
    assert main(list(map(str, arguments))) == 0
    assert "n/a (k=1)" in capsys.readouterr().out
    rows = json.loads((tmp_path / "out" / "leaderboard.json").read_text())["rows"]
    (ceiling,) = (row for row in rows if row["predictor"] == "ceiling")
    assert (ceiling["status"], ceiling["auc"]) == ("not_applicable", None)
    assert next(row for row in rows if row["rank"])["mse_excess"]["value"] is None
