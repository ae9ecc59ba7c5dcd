"""Layout `oneshot-rlvr`: the training record that the authors of One-Shot RLVR published.

`acc_step_500.json` maps the index of a prompt in `dsr_sub.parquet` to the success rates of its
visits, 8 rollouts each, in time order. The record says how often a prompt was visited in 500 steps
but not when, so visits are taken as evenly spaced and averaged in buckets of 25 steps, each named
by its middle. That is exact to about one epoch.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.pool.importers.reading import read_json
from v0_bench.pool.importers.tables import Options, Tables, policies_of

POLICY = "Qwen2.5-Math-1.5B/GRPO-DSR-sub"
PROMPTS = "train/one_shot_rlvr/dsr_sub.parquet"
ROLLOUTS_PER_VISIT = 8
STEPS = 500
BUCKET = 25
_INSTRUCTION = re.compile(r"\s*Let's think step by step and output the final answer within.*$")


def read_oneshot_rlvr(path: Path, options: Options) -> Tables:
    """The tables in the folder `path`, laid out as in the repository's `data/`."""
    record = read_json(path / "acc_step_500.json")
    rows = [row for index, rates in record.items() for row in _visits(index, rates, path)]
    visits = pd.DataFrame(rows, columns=["query_id", "step", "mean_reward"])
    means = visits.groupby(["query_id", "step"])["mean_reward"].agg(["mean", "size"]).reset_index()
    outcomes = means.rename(columns={"mean": "mean_reward", "size": "n_rollouts"})
    outcomes["n_rollouts"] *= ROLLOUTS_PER_VISIT
    outcomes["policy"] = POLICY
    return Tables(_queries(path / PROMPTS), policies_of(outcomes), outcomes)


def _visits(index: str, rates: Any, path: Path) -> list[tuple[str, int, Any]]:
    if not isinstance(rates, list):
        raise V0BenchError(f"{path / 'acc_step_500.json'}: {index} should map to a list of rates")
    steps = [round((visit + 0.5) * STEPS / len(rates)) for visit in range(len(rates))]
    buckets = [min(step, STEPS - 1) // BUCKET * BUCKET + BUCKET // 2 for step in steps]
    return [(f"dsr-{index}", step, rate) for step, rate in zip(buckets, rates, strict=True)]


def _queries(file: Path) -> pd.DataFrame:
    try:
        prompts = pd.read_parquet(file)
        rows = [
            {
                "query_id": f"dsr-{extra['index']}",
                "dataset": "DSR-sub",
                "text": _INSTRUCTION.sub("", prompt[0]["content"]),
                "answer": reward["ground_truth"],
            }
            for prompt, reward, extra in zip(
                prompts["prompt"], prompts["reward_model"], prompts["extra_info"], strict=True
            )
        ]
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise V0BenchError(f"{file} is not the Parquet file of that repository: {error}") from error
    return pd.DataFrame(rows)
