"""Made-up predictions in the layout of `predictions.parquet`, full of ties and odd checkpoints."""

from __future__ import annotations

import numpy as np
import pandas as pd

from v0_bench.metrics import PREDICTION_COLUMNS


def made_up_frame(
    seed: int,
    policies: int = 4,
    steps: int = 1,
    queries: int = 30,
    rollouts: tuple[int, ...] = (1,),
    seeds: int = 1,
    families: int | None = None,
    grid: int = 10,
    missing: float = 0.0,
    one_class: int = 0,
) -> pd.DataFrame:
    """A crossed design with predictions and success rates on coarse grids, so ties abound.

    `missing` rows are dropped at random, the first `one_class` policies always succeed, a tenth of
    the difficulties are null, two queries share each group.
    """
    rng = np.random.default_rng(seed)
    parts = []
    for number in range(seeds):
        policy, step, query = (
            a.ravel()
            for a in np.meshgrid(np.arange(policies), np.arange(steps), np.arange(queries))
        )
        strength, ease = rng.normal(size=(policies, steps)), rng.normal(size=queries)
        rate = 1 / (1 + np.exp(-strength[policy, step] - ease[query]))
        rate = np.where(policy < one_class, 1.0, rate)
        k = rng.choice(rollouts, size=len(rate))
        noisy = np.clip(rate + rng.normal(scale=0.2, size=len(rate)), 0, 1)
        difficulty = np.where(
            rng.random(queries) < 0.1, np.nan, np.round(1 / (1 + np.exp(-ease)), 2)
        )
        part = pd.DataFrame(
            {
                "pool": "made-up",
                "protocol": "unseen-policy",
                "seed": number,
                "predictor": "some",
                "policy": [f"policy-{i}" for i in policy],
                "step": pd.array(np.where(steps > 1, step, -1), dtype="Int64"),
                "query_id": [f"q{i}" for i in query],
                "query_group": [f"g{i // 2}" for i in query],
                "dataset": [f"d{i % 3}" for i in query],
                "family": [f"f{i % families if families else i}" for i in policy],
                "prediction": np.round(noisy * grid) / grid,
                "mean_reward": rng.binomial(k, rate) / k,
                "n_rollouts": k,
                "context_size": 16,
                "context_mean": np.round(1 / (1 + np.exp(-strength[policy, step])), 1),
                "query_difficulty": difficulty[query],
            }
        )
        part["step"] = part["step"].mask(part["step"] < 0)
        parts.append(part[rng.random(len(part)) >= missing])
    frame = pd.concat(parts, ignore_index=True)
    return frame[list(PREDICTION_COLUMNS)]


def other_predictor(frame: pd.DataFrame, name: str, seed: int, noise: float) -> pd.DataFrame:
    """The same rows under noisier predictions."""
    rng = np.random.default_rng(seed)
    noisy = frame["prediction"] + rng.normal(scale=noise, size=len(frame))
    return frame.assign(predictor=name, prediction=np.clip(noisy, 0, 1).round(2))
