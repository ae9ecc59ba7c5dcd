"""Real pools: counts of the sources and leave-one-out AUCs that were computed elsewhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from v0_bench import Pool
from v0_bench.pool.describe import leave_one_out_auc
from v0_bench.pool.importers import Imported, import_pool

# name: queries, policies, checkpoints, outcomes, leave-one-out AUC
EXPECTED = {
    "oneshot_rlvr": (1_209, 1, 20, 24_180, 0.992),
    "livecodebench": (880, 77, 77, 44_720, 0.919),
    "zeroeval": (2_840, 60, 60, 128_890, 0.910),
    "routerdc7": (4_017, 7, 7, 28_119, 0.872),
    "mmlu_pro": (12_032, 29, 29, 347_215, 0.847),
    "llmrouter9": (5_541, 9, 9, 49_869, 0.817),
    "routerbench_part": (3_164, 11, 11, 34_804, 0.780),
}


@cache
def imported(folder: Path) -> Imported:
    return import_pool(folder)


@pytest.mark.parametrize("name", EXPECTED)
def test_counts_and_leave_one_out_auc(shared: Path, name: str) -> None:
    queries, policies, checkpoints, outcomes, auc = EXPECTED[name]
    pool = imported(shared / "pools" / name).pool
    assert len(pool.queries) == queries
    assert len(pool.policies) == policies
    assert len(pool.outcomes[["policy", "step"]].drop_duplicates()) == checkpoints
    assert len(pool.outcomes) == outcomes
    assert leave_one_out_auc(pool.outcomes) == pytest.approx(auc, abs=0.002)


def test_the_official_sample(shared: Path, tmp_path: Path) -> None:
    pool = imported(shared / "pools" / "v0_release").pool
    assert len(pool.queries) == 2_910
    assert len(pool.outcomes) == 3_478
    roles = pool.outcomes["role"].fillna("none").value_counts().to_dict()
    assert roles == {"context": 3_072, "train": 192, "test": 192, "none": 22}
    tenths = pool.outcomes["mean_reward"] * 10
    assert (tenths - tenths.round()).abs().max() < 1e-9
    context = pool.outcomes[pool.outcomes["role"] == "context"]
    means = context.groupby(["policy", "step"])["mean_reward"].mean().round(2).to_dict()
    assert means == {
        ("Qwen3-4B-Instruct", 16): 0.54,
        ("Qwen3-4B-Instruct", 64): 0.63,
        ("Qwen3-4B-Instruct", 256): 0.72,
        ("DeepSeek-R1-Distill-Qwen-1.5B", 16): 0.37,
        ("DeepSeek-R1-Distill-Qwen-1.5B", 64): 0.50,
        ("DeepSeek-R1-Distill-Qwen-1.5B", 256): 0.62,
    }
    assert Pool.load(pool.save(tmp_path / "pool")).fingerprint == pool.fingerprint


def test_what_is_left_out_is_said(shared: Path) -> None:
    notes = imported(shared / "pools" / "livecodebench").notes
    assert notes[0] == "left out 176 queries without a text, and with them 2,816 outcomes"


@pytest.mark.parametrize("name", ["livecodebench", "zeroeval"])
def test_one_model_under_two_names_is_one_family(shared: Path, name: str) -> None:
    family = imported(shared / "pools" / name).pool.family
    pairs = {
        "livecodebench": [("Gemini-Pro", "Google-Gemini-Pro"), ("CodeQwen15", "CodeQwen15-7B")],
        "zeroeval": [
            ("Llama-3.1-405B-Inst@sambanova", "Meta-Llama-3.1-405B-Instruct@hyperbolic"),
            ("gemma-2-27b-it", "gemma-2-27b-it@together"),
        ],
    }
    assert all(family[left] == family[right] for left, right in pairs[name])


def test_prices_and_extra_numbers_are_kept(shared: Path) -> None:
    policies = imported(shared / "pools" / "llmrouter9").pool.policies
    assert policies[["params_b", "price_in", "price_out"]].notna().all(axis=None)
    assert imported(shared / "pools" / "zeroeval").pool.outcomes["chars_out"].notna().all()
    routed = imported(shared / "pools" / "routerbench_part").pool.outcomes
    assert routed["cost"].notna().all()
    assert set(routed["cost_kind"]) == {"measured"}
