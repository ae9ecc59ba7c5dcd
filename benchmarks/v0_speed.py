"""How fast V0 trains and predicts, beside the same without its caches.

    python benchmarks/v0_speed.py --pool FOLDER [--repeats 20] [--json]

Training: steps of 2 episodes, 256 context items and 8 queries each, MiniLM, the head `icl`, read
from the token-state store; and the same step when its 528 prompts are encoded anew, as the
published code does. Predicting: 8 queries against a context of 256, with the context encoded
already (the queries' own texts embedded or not), and with nothing cached. Seconds by the clock,
medians, as many threads as the machine has cores: leave the machine alone meanwhile.

FOLDER is a pool, or one of the layouts that `v0-bench pool import` reads.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from v0_bench import Context, Pool, Queries
from v0_bench.cli.train import all_outcomes
from v0_bench.embeddings.backbones import resolve_backbone
from v0_bench.embeddings.encoders import load_encoder
from v0_bench.pool.importers import import_pool
from v0_bench.v0.config import PRESETS, TrainConfig
from v0_bench.v0.model import V0
from v0_bench.v0.processes import Processes
from v0_bench.v0.training import Trainer

CONTEXT, QUERIES = 256, 8
PAPER_SECONDS = 0.6  # a prediction, in the paper, on hardware of its own


def median_seconds(work: Callable[[int], object], repeats: int) -> float:
    """By the clock; work(0) is the warm-up."""
    work(0)
    seconds = []
    for i in range(1, repeats + 1):
        started = time.perf_counter()
        work(i)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds)


def training(model: V0, pool: Pool, repeats: int) -> dict[str, float]:
    """Seconds of a step, and of encoding its prompts."""
    settings = TrainConfig()
    trainer = Trainer(model, all_outcomes(pool), (), settings, 0, Processes("cpu"))
    optimizer = torch.optim.AdamW(trainer.trained.values(), settings.learning_rate)
    texts = trainer.sampler.train.queries.texts
    encoder = load_encoder(resolve_backbone(model.config.backbone), "cpu")

    def encode(step: int) -> None:
        batch = trainer.sampler.batch(0, step, settings.episodes)
        rows = np.concatenate([batch.context.ravel(), batch.query.ravel()])
        for _ in encoder.token_states([texts[row] for row in rows], -1, None):
            pass

    step = median_seconds(lambda i: trainer._one(trainer.step_module, optimizer, i, 1e-4), repeats)
    encoded = median_seconds(encode, max(2, repeats // 10))
    return {
        "step_s": step,
        "encoding_s": encoded,
        "step_with_encoding_s": step + encoded,
        "speedup": (step + encoded) / step,
    }


def predicting(model: V0, texts: list[str], repeats: int) -> dict[str, float]:
    """Seconds of 8 queries against a context of 256."""
    rng = np.random.default_rng(0)
    context = Context.from_pairs([(text, float(rng.random()), 10) for text in texts[:CONTEXT]])
    known = model.encode(context)
    pieces = [texts[CONTEXT + i * QUERIES :][:QUERIES] for i in range(3 * (repeats + 1))]
    one_line = [[f"What is {i} + {3 * i + j}?" for j in range(QUERIES)] for i in range(repeats + 1)]

    def without_caches(i: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            before, os.environ["V0_BENCH_CACHE"] = os.environ["V0_BENCH_CACHE"], folder
            model._forget()
            model.predict(context, pieces[i])
            os.environ["V0_BENCH_CACHE"] = before

    new = median_seconds(lambda i: model.predict(known, pieces[i]), repeats)
    lines = median_seconds(lambda i: model.predict(known, one_line[i]), repeats)
    embedded = median_seconds(lambda i: model.predict(known, pieces[i]), repeats)
    cold = median_seconds(without_caches, 3)
    tokens = [len(text) / 4 for piece in pieces[: repeats + 1] for text in piece]
    return {
        "embedded_queries_s": embedded,
        "new_one_line_queries_s": lines,
        "new_pool_queries_s": new,
        "new_pool_queries_tokens_about": statistics.median(tokens),
        "embedding_share_of_pool_queries": 1 - embedded / new,
        "nothing_cached_s": cold,
        "speedup": cold / new,
        "paper_s_on_its_hardware": PAPER_SECONDS,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pool", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    found = Path(args.pool)
    pool = Pool.load(found) if (found / "pool.json").exists() else import_pool(found).pool
    with tempfile.TemporaryDirectory() as folder:
        os.environ["V0_BENCH_CACHE"] = folder
        model = V0(PRESETS["micro"]).learn_features(all_outcomes(pool))
        figures = {"training": training(model, pool, args.repeats)}
        texts = Queries.from_texts(pool.queries["text"].drop_duplicates().tolist()).texts
        model.settle()
        figures["predicting, with the adapter"] = predicting(model, list(texts), args.repeats)
        model.drop_connector()
        model.settle()
        figures["predicting, without"] = predicting(model, list(texts), args.repeats)
    if args.json:
        print(json.dumps(figures, indent=1))
        return
    for part, values in figures.items():
        print(part)
        for name, value in values.items():
            print(f"  {name:32}{value:10.4g}")


if __name__ == "__main__":
    main()
