"""The pool: round trip, validation, fingerprint, filter, merge, and writes that cannot finish."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pools import small_pool, tables
from v0_bench import Pool, V0BenchError


def test_a_saved_pool_loads_as_it_was(tmp_path: Path) -> None:
    made = tables()
    made["outcomes"] = made["outcomes"].assign(
        step=[None, 16] * 8, cost=0.25, cost_kind="measured", role=["train", None] * 8, chars_out=7
    )
    pool = Pool("small", **made, licence="MIT", source="a place", citation="a paper")
    loaded = Pool.load(pool.save(tmp_path / "pool"))
    for table in ("queries", "policies", "outcomes"):
        pd.testing.assert_frame_equal(getattr(loaded, table), getattr(pool, table))
    assert loaded.fingerprint == pool.fingerprint
    assert (loaded.name, loaded.licence, loaded.source, loaded.citation) == (
        "small",
        "MIT",
        "a place",
        "a paper",
    )
    assert loaded.outcomes["chars_out"].eq(7).all()
    assert loaded.has_steps


def test_other_tools_open_the_tables(tmp_path: Path) -> None:
    import datasets
    import duckdb

    folder = small_pool().save(tmp_path / "pool")
    file = str(folder / "outcomes.parquet")
    mean = duckdb.sql(f"select avg(mean_reward), count(*) from '{file}'").fetchall()[0]
    assert mean == (pytest.approx(small_pool().outcomes["mean_reward"].mean()), 16)
    assert len(pd.read_parquet(file)) == 16
    loaded = datasets.Dataset.from_parquet(file, cache_dir=str(tmp_path / "cache"))
    assert loaded.num_rows == 16
    assert loaded.features["mean_reward"].dtype == "float64"
    assert loaded.features["step"].dtype == "int64"


def test_fingerprint_does_not_depend_on_the_order_of_rows_and_columns() -> None:
    made = tables()
    shuffled = {
        name: frame.sample(frac=1, random_state=1)[frame.columns[::-1]]
        for name, frame in made.items()
    }
    assert Pool("a", **made).fingerprint == Pool("b", **shuffled).fingerprint


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [("outcomes", "mean_reward", 0.25), ("queries", "text", "Other?"), ("outcomes", "step", 4)],
)
def test_fingerprint_changes_with_any_value(table: str, column: str, value: object) -> None:
    made = tables()
    changed = made[table].assign(**{column: made[table].get(column)})
    changed.loc[3, column] = value
    assert Pool("a", **made).fingerprint != Pool("a", **{**made, table: changed}).fingerprint


FAULTS = [
    ("outcomes", "mean_reward", 1.5, "mean_reward = '1.5' is not in [0, 1]"),
    ("outcomes", "mean_reward", -0.1, "mean_reward = '-0.1' is not in [0, 1]"),
    ("outcomes", "mean_reward", np.nan, "mean_reward = 'nan' is missing or NaN"),
    ("outcomes", "mean_reward", np.inf, "mean_reward = 'inf' is infinite"),
    ("outcomes", "mean_reward", "half", "mean_reward = 'half' is not a number"),
    ("outcomes", "mean_reward", True, "mean_reward = 'True' is not a number"),
    ("outcomes", "n_rollouts", 0, "n_rollouts = '0' is below 1"),
    ("outcomes", "n_rollouts", 2.5, "n_rollouts = '2.5' is not a whole number"),
    ("outcomes", "n_rollouts", 10**400, "is not a number"),
    ("outcomes", "query_id", "q99", "query_id = 'q99' is not in the queries"),
    ("outcomes", "policy", "green", "policy = 'green' is not in the policies"),
    ("outcomes", "policy", 3, "policy = '3' is not text"),
    ("outcomes", "query_id", None, "query_id = 'None' is missing or NaN"),
    ("outcomes", "step", 1.5, "step = '1.5' is not a whole number"),
    ("outcomes", "cost", -1.0, "cost = '-1.0' is negative"),
    ("outcomes", "cost_kind", "guessed", "cost_kind = 'guessed' is not one of"),
    ("outcomes", "role", "validation", "role = 'validation' is not one of"),
    ("queries", "text", None, "text = 'None' is missing or NaN"),
    ("queries", "text", "half a pair \ud800", "is not text"),
    ("queries", "query_id", "", "query_id = '' is empty"),
    ("queries", "query_id", "q0", "query_id = 'q0' is there twice"),
]


@pytest.mark.parametrize(("table", "column", "value", "message"), FAULTS)
def test_validation_names_file_row_and_value(
    table: str, column: str, value: object, message: str
) -> None:
    made = tables()
    changed = made[table].assign(**{column: made[table].get(column)}).astype({column: object})
    changed.loc[1, column] = value
    with pytest.raises(V0BenchError) as caught:
        Pool("small", **{**made, table: changed})
    assert f"{table}.parquet, row 1: " in str(caught.value)
    assert message in str(caught.value)


def test_a_key_that_is_there_twice_is_refused() -> None:
    made = tables()
    made["outcomes"] = pd.concat([made["outcomes"], made["outcomes"].iloc[[4]]], ignore_index=True)
    with pytest.raises(V0BenchError, match=r"row 16: query_id = 'q2', policy = 'red', step = "):
        Pool("small", **made)


def test_an_empty_pool_and_a_missing_column_are_refused() -> None:
    made = tables()
    with pytest.raises(V0BenchError, match=r"empty: outcomes.parquet has no rows"):
        Pool("small", **{**made, "outcomes": made["outcomes"].iloc[:0]})
    with pytest.raises(V0BenchError, match=r"queries.parquet lacks the column text"):
        Pool("small", **{**made, "queries": made["queries"].drop(columns="text")})


def test_a_pool_with_one_policy_is_a_pool(tmp_path: Path) -> None:
    pool = Pool("one", **tables(policies=("red",)))
    assert len(Pool.load(pool.save(tmp_path / "one")).policies) == 1


def test_damaged_folders_are_told_apart(tmp_path: Path) -> None:
    folder = small_pool().save(tmp_path / "pool")
    about = json.loads((folder / "pool.json").read_text())
    with pytest.raises(V0BenchError, match="no such folder"):
        Pool.load(tmp_path / "elsewhere")
    with pytest.raises(V0BenchError, match=r"it has no pool.json"):
        Pool.load(tmp_path)
    (folder / "pool.json").write_text(json.dumps(about | {"schema_version": 99}))
    with pytest.raises(V0BenchError, match="schema version 99"):
        Pool.load(folder)
    (folder / "pool.json").write_text(json.dumps(about | {"fingerprint": "0" * 64}))
    with pytest.raises(V0BenchError, match="do not match the fingerprint"):
        Pool.load(folder)
    (folder / "pool.json").write_text("{")
    with pytest.raises(V0BenchError, match=r"pool.json is not JSON"):
        Pool.load(folder)
    (folder / "pool.json").write_text(json.dumps(about))
    (folder / "outcomes.parquet").write_bytes(b"PAR1 and then something else")
    with pytest.raises(V0BenchError, match=r"outcomes.parquet is not a readable Parquet file"):
        Pool.load(folder)
    (folder / "outcomes.parquet").unlink()
    with pytest.raises(V0BenchError, match=r"outcomes.parquet is missing"):
        Pool.load(folder)


def test_filter_drops_what_has_no_outcome_left() -> None:
    pool = small_pool().filter(datasets=["sums"], policies=["blue"])
    assert set(pool.queries["dataset"]) == {"sums"}
    assert pool.policies["policy"].tolist() == ["blue"]
    assert len(pool.outcomes) == 4
    assert len(small_pool().filter(query_ids=["q1", "q2"]).outcomes) == 4
    with pytest.raises(V0BenchError, match="empty"):
        small_pool().filter(steps=[3])


def test_merging_the_parts_gives_the_whole() -> None:
    whole = small_pool("whole")
    parts = [whole.filter(policies=["red"]), whole.filter(policies=["blue"])]
    for order in (parts, parts[::-1], [*parts, parts[0]]):
        assert Pool.merge("whole", order).fingerprint == whole.fingerprint


def test_merging_refuses_two_truths() -> None:
    made = tables()
    other = made["outcomes"].assign(mean_reward=1 - made["outcomes"]["mean_reward"])
    with pytest.raises(V0BenchError, match="cannot merge: the pools differ on outcomes q0, red"):
        Pool.merge("both", [Pool("a", **made), Pool("b", **{**made, "outcomes": other})])


def test_save_replaces_a_pool_only_when_told_and_nothing_else_ever(tmp_path: Path) -> None:
    folder = small_pool("old").save(tmp_path / "pool")
    with pytest.raises(V0BenchError, match="exists already"):
        small_pool("new").save(folder)
    assert Pool.load(folder).name == "old"
    small_pool("new").save(folder, overwrite=True)
    assert Pool.load(folder).name == "new"
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.txt").write_text("years of work")
    with pytest.raises(V0BenchError, match="is not a pool"):
        small_pool().save(tmp_path / "work", overwrite=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pool", "work"]


SAVE_BIG = """
import sys
sys.path.insert(0, {tests!r})
from pools import small_pool
from v0_bench import V0BenchError
try:
    small_pool("new", n_queries=20_000).save({folder!r}, overwrite=True)
except V0BenchError as error:
    print(error)
"""


def test_a_disk_that_fills_up_leaves_the_old_pool(tmp_path: Path) -> None:
    folder = small_pool("old").save(tmp_path / "pool")
    script = SAVE_BIG.format(tests=str(Path(__file__).parent), folder=str(folder))
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        # No file may grow past 50 kB: the system refuses the write half way through a table.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000)),
    )
    assert f"cannot write {folder}" in done.stdout
    assert Pool.load(folder).name == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["pool"]


def test_ctrl_c_in_the_middle_of_a_write_leaves_the_old_pool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_pool("old").save(tmp_path / "pool")
    new = small_pool("new")
    write = pd.DataFrame.to_parquet

    def interrupted(frame: pd.DataFrame, path: Path, **options: object) -> None:
        if path.name == "outcomes.parquet":
            raise KeyboardInterrupt
        write(frame, path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(pd.DataFrame, "to_parquet", interrupted)
    with pytest.raises(KeyboardInterrupt):
        new.save(folder, overwrite=True)
    assert Pool.load(folder).name == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["pool"]
