"""Importers on small invented files: what comes out, what is left out, what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from pools import tables, write_jsonl, write_long
from v0_bench import Pool, V0BenchError
from v0_bench.pool.importers import guess_format, import_pool


def outcome_of(pool: Pool, query: str, policy: str) -> pd.Series:
    rows = pool.outcomes[(pool.outcomes["query_id"] == query) & (pool.outcomes["policy"] == policy)]
    assert len(rows) == 1
    return rows.iloc[0]


# ---- long


def test_long_gives_the_tables_it_was_made_of(tmp_path: Path) -> None:
    imported = import_pool(write_long(tmp_path / "small"))
    assert imported.pool.name == "small"
    assert imported.notes == ()
    expected = Pool("small", **tables()).outcomes
    pd.testing.assert_frame_equal(imported.pool.outcomes, expected)


def test_long_reads_gzip_and_keeps_further_numbers_but_not_further_words(tmp_path: Path) -> None:
    folder = write_long(tmp_path / "small")
    rows = [
        row | {"chars_out": number, "host": "moon", "cost": 0.5 if number else None}
        for number, row in enumerate(tables()["outcomes"].to_dict("records"))
    ]
    (folder / "outcomes.jsonl").unlink()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "outcomes.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    outcomes = import_pool(folder, "long").pool.outcomes
    assert outcomes["chars_out"].tolist() == list(range(16))
    assert "host" not in outcomes
    assert outcomes["cost_kind"].isna().tolist() == [True] + [False] * 15
    assert set(outcomes["cost_kind"].dropna()) == {"measured"}


def test_long_leaves_out_and_counts_queries_without_a_text(tmp_path: Path) -> None:
    folder = write_long(tmp_path / "small")
    queries = tables()["queries"].to_dict("records")
    queries[2]["text"] = queries[5]["text"] = None
    write_jsonl(folder / "queries.jsonl", queries)
    imported = import_pool(folder)
    assert imported.notes == ("left out 2 queries without a text, and with them 4 outcomes",)
    assert len(imported.pool.queries) == 6
    assert len(imported.pool.outcomes) == 12


def test_long_fills_prices_and_sizes(tmp_path: Path) -> None:
    folder = write_long(tmp_path / "small")
    prices = {
        "red": {"size": "7B", "input_price": 0.2, "output_price": 0.4},
        "other": {"input_price": 1, "output_price": 1},
    }
    (folder / "prices_usd_per_Mtok.json").write_text(json.dumps(prices))
    policies = import_pool(folder).pool.policies.set_index("policy")
    assert policies.loc["red", ["params_b", "price_in", "price_out"]].tolist() == [7.0, 0.2, 0.4]
    assert policies.loc["blue", ["params_b", "price_in", "price_out"]].isna().all()
    prices["red"]["input_price"] = -1
    (folder / "prices_usd_per_Mtok.json").write_text(json.dumps(prices))
    with pytest.raises(V0BenchError, match=r"prices_usd_per_Mtok.json, model red: price_in = '-1"):
        import_pool(folder)


def test_equal_texts_and_queries_without_outcomes_are_kept(tmp_path: Path) -> None:
    folder = write_long(tmp_path / "small")
    queries = tables()["queries"].to_dict("records")
    queries.append(queries[0] | {"query_id": "copy"})
    write_jsonl(folder / "queries.jsonl", queries)
    imported = import_pool(folder)
    assert len(imported.pool.queries) == 9
    assert imported.notes == ("1 query without any outcome",)


def test_policies_that_move_together_become_one_family(tmp_path: Path) -> None:
    made = [
        {"query_id": f"q{n}", "policy": policy, "mean_reward": float(reward), "n_rollouts": 1}
        for n in range(60)
        for policy, reward in (
            ("red", n % 2),
            ("crimson", n % 2),
            ("blue", n % 3 == 0),
            ("green", n % 5 == 0),
        )
    ]
    words = [f"word{n} sits beside word{n + 100} and looks at word{n * 7}" for n in range(60)]
    queries = [{"query_id": f"q{n}", "dataset": "d", "text": word} for n, word in enumerate(words)]
    write_jsonl(tmp_path / "queries.jsonl", queries)
    write_jsonl(tmp_path / "outcomes.jsonl", made)
    imported = import_pool(tmp_path, "long")
    assert imported.pool.family["red"] == imported.pool.family["crimson"]
    assert imported.pool.family["red"] != imported.pool.family["blue"]
    assert any("crimson and red" in note and "1.00" in note for note in imported.notes)


LONG_FAULTS = [
    (b'{"query_id": "q0", "pol', "line 17: not JSON, or cut off"),
    (b'{"query_id": "q0\xff"}', "line 17: not UTF-8"),
    (b"[1, 2]", "line 17: a JSON object was expected"),
    (b"[" * 100_000, "line 17: not JSON"),
    (b'{"query_id": ["q0"], "policy": "red", "mean_reward": 1, "n_rollouts": 1}', "is not text"),
    (b'{"query_id": "q0", "policy": "new", "mean_reward": 2, "n_rollouts": 1}', "mean_reward = '2"),
    (b'{"query_id": "q0", "policy": "new", "mean_reward": NaN, "n_rollouts": 1}', "missing or NaN"),
    (
        b'{"query_id": "no", "policy": "new", "mean_reward": 1, "n_rollouts": 1}',
        "not in the querie",
    ),
    (b'{"query_id": "q0", "policy": "red", "mean_reward": 1, "n_rollouts": 1}', "is there twice"),
    (b'{"query_id": "q0", "policy": "new", "mean_reward": "1", "n_rollouts": 1}', "not a number"),
    (b'{"query_id": "q0", "policy": "new", "mean_reward": 1}', "n_rollouts = 'nan' is missing"),
]


@pytest.mark.parametrize(("line", "message"), LONG_FAULTS)
def test_long_names_file_and_line_of_a_fault(tmp_path: Path, line: bytes, message: str) -> None:
    folder = write_long(tmp_path / "small")
    with (folder / "outcomes.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(V0BenchError) as caught:
        import_pool(folder)
    assert f"{folder / 'outcomes.jsonl'}, line 17: " in str(caught.value)
    assert message in str(caught.value)


def test_long_tells_damaged_gzip_and_missing_files(tmp_path: Path) -> None:
    folder = write_long(tmp_path / "small")
    whole = gzip.compress((folder / "outcomes.jsonl").read_bytes())
    for damaged in (whole[:-20], b"not gzip at all", whole[:60] + b"\0" + whole[61:]):
        (folder / "outcomes.jsonl.gz").write_bytes(damaged)
        with pytest.raises(V0BenchError, match=r"outcomes.jsonl.gz"):
            import_pool(folder)
    (folder / "outcomes.jsonl.gz").unlink()
    (folder / "outcomes.jsonl").unlink()
    with pytest.raises(V0BenchError, match=r"cannot read .*outcomes.jsonl: No such file"):
        import_pool(folder)
    write_jsonl(folder / "outcomes.jsonl", [])
    with pytest.raises(V0BenchError, match=r"outcomes.jsonl"):
        import_pool(folder)


# ---- v0-release


def write_v0_release(folder: Path) -> Path:
    def row(number: int, score: float, step: int = 16) -> dict[str, Any]:
        return {"id": number, "score": score, "model": "tiny", "step": step, "dataset": "sums"}

    write_jsonl(folder / "context.jsonl", [row(1, -1.0), row(2, -0.4), row(1, 0.2, 64)])
    write_jsonl(folder / "train.jsonl", [row(3, 0.8)])
    write_jsonl(folder / "test.jsonl", [row(4, 1.0)])
    write_jsonl(folder / "validity.jsonl", [row(4, 1.0), row(5, 0.0)])
    texts = {f"sums_{number}": f"What is {number} times {number}?" for number in range(1, 7)}
    (folder / "prompt_dict.json").write_text(json.dumps(texts))
    return folder


def test_v0_release_scores_become_tenths_and_files_become_roles(tmp_path: Path) -> None:
    pool = import_pool(write_v0_release(tmp_path)).pool
    found = pool.outcomes.set_index(["query_id", "step"])
    assert found["mean_reward"].to_dict() == {
        ("sums_1", 16): 0.0,
        ("sums_2", 16): 0.3,
        ("sums_1", 64): 0.6,
        ("sums_3", 16): 0.9,
        ("sums_4", 16): 1.0,
        ("sums_5", 16): 0.5,
    }
    assert found["role"].fillna("none").tolist() == ["context"] * 3 + ["train", "test", "none"]
    assert set(found["n_rollouts"]) == {10}
    assert len(pool.queries) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": 1.2}, "test.jsonl, line 2: score = '1.2' is not a number in"),
        ({"score": None}, "test.jsonl, line 2: score = 'None' is not a number in"),
        ({"score": 0.123}, "test.jsonl, line 2: score = 0.123 does not stand for a whole number"),
        ({"id": 9}, "test.jsonl, line 2: prompt_dict.json has no text for 'sums_9'"),
        ({"id": 4}, "test.jsonl:2: query_id = 'sums_4', policy = 'tiny', step = '16' is there twi"),
        ({"model": None}, "test.jsonl, line 2: model = None, step = 16 is not a checkpoint"),
    ],
)
def test_v0_release_names_the_line_of_a_fault(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    row = {"id": 6, "score": 1.0, "model": "tiny", "step": 16, "dataset": "sums"}
    file = write_v0_release(tmp_path) / "test.jsonl"
    file.write_text(file.read_text() + json.dumps(row | change) + "\n")
    with pytest.raises(V0BenchError) as caught:
        import_pool(tmp_path)
    assert message in str(caught.value)


# ---- embedllm


def write_embedllm(folder: Path, label: object = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    head = "prompt_id,model_id,category_id,label,prompt,model_name,category\n"
    train = [f'7,{m},2,{m % 2},"Name one, two\nor three.",model{m},logic\n' for m in range(3)]
    test = [f"8,{m},2,{label},Name four.,model{m},law\n" for m in range(3)]
    (folder / "train.csv").write_text(head + "".join(train))
    (folder / "test.csv").write_text(head + "".join(test) + test[0])
    return folder


def test_embedllm_joins_the_splits(tmp_path: Path) -> None:
    imported = import_pool(write_embedllm(tmp_path))
    pool = imported.pool
    assert pool.queries["dataset"].tolist() == ["embedllm/logic", "embedllm/law"]
    assert pool.queries["text"].tolist() == ["Name one, two\nor three.", "Name four."]
    assert outcome_of(pool, "embedllm/7", "model1")["mean_reward"] == 1
    assert outcome_of(pool, "embedllm/7", "model2")["mean_reward"] == 0
    assert len(pool.outcomes) == 6
    assert imported.notes[0] == "left out 1 row equal to an earlier one"


def test_embedllm_names_the_row_of_a_fault(tmp_path: Path) -> None:
    with pytest.raises(V0BenchError, match=r"test.csv:1: mean_reward = '3"):
        import_pool(write_embedllm(tmp_path, label=3))
    (tmp_path / "train.csv").write_text("prompt_id,label\n1,1\n")
    with pytest.raises(V0BenchError, match=r"train.csv lacks the column model_name, prompt"):
        import_pool(tmp_path)
    (tmp_path / "train.csv").write_bytes(b"prompt_id,label,prompt,model_name\n1,1,\xff\xfe,m\n")
    with pytest.raises(V0BenchError, match=r"train.csv is not UTF-8"):
        import_pool(tmp_path)


# ---- routerbench


def routerbench_table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "sample_id": ["a.1", "a.2", "a.1"],
            "prompt": ["['First turn.', 'Second turn.']", "Plain [text].", "['First turn.']"],
            "eval_name": ["alpha", "alpha", "alpha"],
            "org/tiny": [1.0, 0.25, 0.0],
            "org/huge": [None, 1.0, 0.5],
            "org/tiny|model_response": ["x", "y", "z"],
            "org/tiny|total_cost": [0.001, 0.002, 0.003],
            "org/huge|total_cost": [0.1, 0.2, 0.3],
            "oracle_model_to_route_to": ["org/tiny"] * 3,
        }
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_routerbench_melts_the_wide_table(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"table.{suffix}"
    table = routerbench_table()
    if suffix == "csv":
        table.to_csv(file, index=False)
    else:
        table.to_parquet(file)
    for source in (file, tmp_path):
        imported = import_pool(source)
        pool = imported.pool
        assert pool.queries["text"].tolist() == ["First turn.\nSecond turn.", "Plain [text]."]
        assert outcome_of(pool, "a.1", "org/tiny")["mean_reward"] == 1
        assert outcome_of(pool, "a.1", "org/huge")["mean_reward"] == 0.5  # from the later row
        assert outcome_of(pool, "a.2", "org/huge")["cost"] == 0.2
        assert set(pool.outcomes["cost_kind"]) == {"measured"}
        assert imported.notes[:2] == (
            "left out 1 cell without a score",
            "left out 1 repeated score",
        )


def test_routerbench_refuses_pickles_and_tables_without_models(tmp_path: Path) -> None:
    pickle = tmp_path / "routerbench_raw.pkl"
    pickle.write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(V0BenchError, match="a pickle is not opened"):
        import_pool(pickle, "routerbench")
    routerbench_table()[["sample_id", "prompt", "eval_name"]].to_csv(tmp_path / "t.csv")
    with pytest.raises(V0BenchError, match="no model has both"):
        import_pool(tmp_path / "t.csv")


# ---- llmrouterbench


def write_result(folder: Path, model: str, date: str, records: object, **extra: object) -> None:
    place = folder / "bench" / "sums" / "test" / model
    place.mkdir(parents=True, exist_ok=True)
    content = {"model_name": model, "dataset_name": "sums", "split": "test", "records": records}
    (place / f"sums-test-{model}-{date}.json").write_text(json.dumps(content | extra))


def record(index: int, score: object, **extra: object) -> dict[str, Any]:
    return {
        "index": index,
        "origin_query": f"What is {index} + 1?",
        "prompt": "ignored",
        "ground_truth": index + 1,
        "score": score,
        "completion_tokens": 5,
        "cost": 0.01,
    } | extra


def test_llmrouterbench_takes_the_newest_run_that_is_no_demo(tmp_path: Path) -> None:
    write_result(tmp_path, "tiny", "20250101_000000", [record(1, 0.0), record(2, 0.0)])
    write_result(tmp_path, "tiny", "20250102_000000", [record(1, 1.0), record(2, None)])
    write_result(tmp_path, "tiny", "20250103_000000", [record(1, 0.0)], demo=True)
    free = [record(1, 0.5, cost=0.0, origin_query=""), record(2, 1.0, cost=0.0)]
    write_result(tmp_path, "free", "20250101_000000", free)
    imported = import_pool(tmp_path)
    pool = imported.pool
    assert outcome_of(pool, "sums/test/1", "tiny")["mean_reward"] == 1
    assert outcome_of(pool, "sums/test/2", "tiny")["mean_reward"] == 0
    assert outcome_of(pool, "sums/test/1", "tiny")["cost"] == 0.01
    assert pd.isna(outcome_of(pool, "sums/test/1", "free")["cost"])
    assert pool.queries["answer"].tolist() == ["2", "3"]
    assert set(pool.outcomes["tokens_out"]) == {5.0}
    assert imported.notes == (
        "left out 1 file of demo runs",
        "left out 1 file of older runs",
        "1 record without a score counted as wrong",
    )


def test_llmrouterbench_takes_names_from_folders(tmp_path: Path) -> None:
    place = tmp_path / "bench" / "sums" / "test" / "tiny"
    place.mkdir(parents=True)
    (place / "20250101_000000.json").write_text(json.dumps({"records": [record(1, 1.0)]}))
    pool = import_pool(tmp_path, "llmrouterbench").pool
    assert pool.policies["policy"].tolist() == ["tiny"]
    assert pool.queries["dataset"].tolist() == ["sums"]


def test_llmrouterbench_names_the_record_of_a_fault(tmp_path: Path) -> None:
    write_result(tmp_path, "tiny", "20250101_000000", [record(1, 1.0), record(2, 80)])
    with pytest.raises(V0BenchError, match=r"sums-test-tiny-20250101_000000.json:2: mean_reward"):
        import_pool(tmp_path)
    write_result(tmp_path, "tiny", "20250101_000000", 3)
    with pytest.raises(V0BenchError, match="records is not a list of objects"):
        import_pool(tmp_path)


# ---- any format


def test_formats_are_guessed_or_asked_for(tmp_path: Path) -> None:
    assert guess_format(write_long(tmp_path / "long")) == "long"
    assert guess_format(write_v0_release(tmp_path / "release")) == "v0-release"
    assert guess_format(write_embedllm(tmp_path / "embed")) == "embedllm"
    (tmp_path / "empty").mkdir()
    with pytest.raises(V0BenchError, match="cannot tell the format"):
        import_pool(tmp_path / "empty")
    with pytest.raises(V0BenchError, match="does not exist"):
        import_pool(tmp_path / "nowhere")
    with pytest.raises(V0BenchError, match="unknown format 'lnog': did you mean 'long'"):
        import_pool(tmp_path / "long", "lnog")
    with pytest.raises(V0BenchError, match="are for the format lm-eval alone"):
        import_pool(tmp_path / "long", policy="red")
