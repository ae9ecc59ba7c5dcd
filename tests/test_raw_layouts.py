"""The layouts that One-Shot RLVR, RouterDC and MMLU-Pro publish, on small invented files."""

import json
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers import import_pool
from v0_bench.pool.importers.oneshot_rlvr import PROMPTS


def write_oneshot(folder: Path, record: object) -> None:
    (folder / PROMPTS).parent.mkdir(parents=True)
    hint = " Let's think step by step and output the final answer within \\boxed{}."
    frame = pd.DataFrame(
        {
            "prompt": [[{"role": "user", "content": f"What is {i} + 1?{hint}"}] for i in range(2)],
            "reward_model": [{"ground_truth": str(i + 1), "style": "rule"} for i in range(2)],
            "extra_info": [{"index": i, "split": "train"} for i in range(2)],
        }
    )
    frame.to_parquet(folder / PROMPTS)
    (folder / "acc_step_500.json").write_text(json.dumps(record))


def test_oneshot_rlvr_averages_visits_in_buckets_of_25_steps(tmp_path: Path) -> None:
    # 40 visits in 500 steps: number 0 is at step 6, 1 at 19, 2 at 31, and 39 at 494.
    write_oneshot(tmp_path, {"0": [0.0, 0.5, 1.0, *[0.25] * 36, 1.0], "1": [0.125]})
    pool = import_pool(tmp_path, "oneshot-rlvr").pool
    assert pool.queries["text"].tolist() == ["What is 0 + 1?", "What is 1 + 1?"]
    assert pool.queries["answer"].tolist() == ["1", "2"]
    rows = pool.outcomes.set_index(["query_id", "step"])
    assert rows.loc[("dsr-0", 12), ["mean_reward", "n_rollouts"]].tolist() == [0.25, 16]
    assert rows.loc[("dsr-0", 37), "mean_reward"] == (1.0 + 0.25) / 2
    assert rows.loc[("dsr-0", 487), "mean_reward"] == (0.25 + 1.0) / 2
    assert rows.loc[("dsr-1", 262), ["mean_reward", "n_rollouts"]].tolist() == [0.125, 8]
    assert len(rows) == 21


def test_routerdc_counts_rollouts_by_data_set(tmp_path: Path) -> None:
    item = {"question": "Sum of 1 and 2?", "scores": {"org/a": 0.3, "org/b": 1.0}}
    (tmp_path / "sums.json").write_text(json.dumps([item, item]))
    item = {"question": "Sum of 1 and 2?", "scores": {"org/a": 0, "org/b": 1}}
    (tmp_path / "MATH_prealgebra.json").write_text(json.dumps([item]))
    imported = import_pool(tmp_path, "routerdc")
    pool = imported.pool
    assert sorted(pool.queries["dataset"]) == ["MATH_prealgebra", "sums"]
    assert sorted(pool.outcomes["n_rollouts"]) == [1, 1, 10, 10]
    assert sorted(pool.outcomes["mean_reward"]) == [0.0, 0.3, 1.0, 1.0]
    assert "left out 1 repeated question" in imported.notes


def test_mmlu_pro_scores_letters_and_skips_remarks(tmp_path: Path) -> None:
    item = {"question_id": 7, "question": "Which?", "options": ["x", "y"], "category": "law"}
    for model, letters in {"Some-7B": ["B", "A"], "Other": [None, "A"]}.items():
        items = [
            item | {"answer": "B", "pred": letters[0]},
            item | {"question_id": 8, "answer": "A", "pred": letters[1]},
            "a remark",
        ]
        with zipfile.ZipFile(tmp_path / f"model_outputs_{model}_5shots.zip", "w") as archive:
            archive.writestr("outputs.json", json.dumps(items))
    imported = import_pool(tmp_path, "mmlu-pro")
    pool = imported.pool
    rates = pool.outcomes.set_index(["policy", "query_id"])["mean_reward"].to_dict()
    assert rates == {
        ("Some-7B", "mmlupro-7"): 1.0,
        ("Some-7B", "mmlupro-8"): 1.0,
        ("Other", "mmlupro-7"): 0.0,
        ("Other", "mmlupro-8"): 1.0,
    }
    assert pool.queries.iloc[0].drop("group").to_dict() == {
        "query_id": "mmlupro-7",
        "dataset": "mmlu-pro/law",
        "text": "Which?\n(A) x\n(B) y",
        "answer": "B",
    }
    assert sum("left out 1 item" in note for note in imported.notes) == 2


@pytest.mark.parametrize("format", ["oneshot-rlvr", "routerdc", "mmlu-pro"])
@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"0": 3}', b"\xff\xfe", b"[[[", b"null"])
def test_bad_files_are_told_by_name(format: str, content: bytes, tmp_path: Path) -> None:
    write_oneshot(tmp_path, {"0": [1.0]})
    for name in ("acc_step_500.json", "model_outputs_m_5shots.zip"):
        (tmp_path / name).write_bytes(content)
    with pytest.raises(V0BenchError, match=r"acc_step_500\.json|model_outputs_m_5shots\.zip|empty"):
        import_pool(tmp_path, format)


def test_bad_prompts_and_rates(tmp_path: Path) -> None:
    write_oneshot(tmp_path, {"0": [1.5]})
    with pytest.raises(V0BenchError, match="mean_reward"):
        import_pool(tmp_path, "oneshot-rlvr")
    (tmp_path / PROMPTS).write_bytes(b"PAR1 no")
    with pytest.raises(V0BenchError, match=r"dsr_sub\.parquet"):
        import_pool(tmp_path, "oneshot-rlvr")
