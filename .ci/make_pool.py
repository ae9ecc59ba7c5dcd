"""Writes a small made-up pool in the `long` layout: sums whose size decides who solves them."""

import json
import random
import sys
from pathlib import Path

folder = Path(sys.argv[1])
folder.mkdir()
rng = random.Random(0)
sums = [(rng.randint(1, 10**d), rng.randint(1, 10**d)) for d in (1, 2, 3, 4, 5) for _ in range(80)]
skills = {f"maker-{letter}-7b": 1 + i for i, letter in enumerate("abcdef")}

with (folder / "queries.jsonl").open("w") as out:
    for i, (a, b) in enumerate(sums):
        out.write(
            json.dumps({"query_id": f"q{i}", "dataset": "sums", "text": f"{a} + {b} = ?"}) + "\n"
        )
with (folder / "outcomes.jsonl").open("w") as out:
    for policy, skill in skills.items():
        for i, (a, b) in enumerate(sums):
            chance = 1 / (1 + 2.0 ** (len(str(a + b)) - skill))
            solved = sum(rng.random() < chance for _ in range(10))
            row = {
                "query_id": f"q{i}",
                "policy": policy,
                "step": None,
                "mean_reward": solved / 10,
                "n_rollouts": 10,
            }
            out.write(json.dumps(row) + "\n")
