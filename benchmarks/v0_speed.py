"""How fast V0 trains and predicts, beside the same without its caches.

    python benchmarks/v0_speed.py --pool FOLDER [--repeats 20] [--json]

Training: steps of 2 episodes, 256 context items and 8 queries each, MiniLM, the head `icl`, read
from the token-state store; and the same step when its 528 prompts are encoded anew, as the
published code does. Predicting: 8 queries against a context of 256 that is encoded already
(the queries' own texts embedded or not), and with nothing known. Seconds by the clock,
medians, as many threads as the machine has cores: leave the machine alone meanwhile.

FOLDER is a pool, or one of the layouts that `v0-bench pool import` reads.
"""

from __future__ import annotations

import argparse
import itertools
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
NUMBERS = itertools.count()
CHARACTERS_PER_TOKEN = 3.5  # of these texts, about
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

    def fresh(pieces: list[str]) -> list[str]:
        """Texts that neither disk nor memory has seen."""
        return [f"{piece} ({next(NUMBERS)})" for piece in pieces]

    def context() -> Context:
        return Context.from_pairs([(text, 0.5, 10) for text in fresh(texts[:CONTEXT])])

    known = model.encode(context())
    long = [text for text in texts if 128 <= len(text) / CHARACTERS_PER_TOKEN <= 256]
    usual = texts[CONTEXT : CONTEXT + QUERIES]
    embedded = fresh(usual)
    timed = {
        "embedded queries": lambda _: model.predict(known, embedded),
        "new one-line queries": lambda _: model.predict(known, fresh(["What is 3 + 4?"] * QUERIES)),
        "new queries of the pool": lambda _: model.predict(known, fresh(usual)),
        "new queries of 128-256 tokens": lambda _: model.predict(known, fresh(long[:QUERIES])),
    }
    found = {name: median_seconds(work, repeats) for name, work in timed.items()}
    new, longest = (found[f"new queries of {which}"] for which in ("the pool", "128-256 tokens"))
    nothing = median_seconds(lambda _: model.predict(context(), fresh(usual)), 3)
    return found | {
        "share of embedding, 128-256 tokens": 1 - found["embedded queries"] / longest,
        "nothing cached, context neither": nothing,
        "speedup of a known context": nothing / new,
        "the paper, on its hardware": PAPER_SECONDS,
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
