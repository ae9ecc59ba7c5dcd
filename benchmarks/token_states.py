"""The token-state store: how fast it is built and read, and how large it is.

Draws texts of a pool, computes their token states into a store in a temporary folder, and reads
them back in steps of `--step` texts: padded float32, and through the adapter (forward and backward
pass), once padded and once straight from the store. Re-encoding a step is what reading replaces.
Seconds are processor time of this process, so that a busy machine does not count; the medians of
`--repeats` steps are printed. Torch uses one thread.

    python benchmarks/token_states.py --pool FOLDER [--texts 1024] [--backbone minilm] [--json]

FOLDER is a pool, or one of the layouts that `v0-bench pool import` reads.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from v0_bench import Pool
from v0_bench.pool.importers import import_pool

PROMPTS = 17_000


def load_texts(path: Path, size: int) -> list[str]:
    """Distinct texts of a pool, drawn with a fixed seed."""
    pool = Pool.load(path) if (path / "pool.json").exists() else import_pool(path).pool
    texts = pool.queries["text"].drop_duplicates()
    return texts.sample(min(size, len(texts)), random_state=0).tolist()


def seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(texts: list[str], backbone: str, step: int, repeats: int) -> dict[str, float]:
    """Every figure, from an empty cache."""
    import torch

    from v0_bench.embeddings import token_states
    from v0_bench.v0.adapter import ConnectorConfig, ResidualQueryAdapter

    torch.set_num_threads(1)
    token_states(texts[:1], backbone)  # loads the backbone
    build = seconds(lambda: token_states(texts, backbone))
    stored = token_states(texts, backbone)
    files = Path(os.environ["V0_BENCH_CACHE"]).glob("token-states/*/*/*.safetensors")
    size = sum(path.stat().st_size for path in files)

    rng = np.random.default_rng(0)
    steps = [rng.integers(0, len(texts), step) for _ in range(repeats)]
    adapter = ResidualQueryAdapter(ConnectorConfig(stored.dimension, n_queries=32))

    def median(work: Callable[[np.ndarray], object]) -> float:
        work(steps[0])  # the first pass checks the states, and finds the memory
        return float(np.median([seconds(lambda rows=rows: work(rows)) for rows in steps]))

    tokens = int(stored.lengths.sum())
    read = median(stored.batch)
    return {
        "texts": len(texts),
        "tokens": tokens,
        "build_texts_per_s": len(texts) / build,
        "build_tokens_per_s": tokens / build,
        "bytes_per_token": size / tokens,
        f"gb_of_{PROMPTS}_prompts": size / len(texts) * PROMPTS / 1e9,
        "encode_step_s": build / len(texts) * step,
        "read_step_s": read,
        "read_speedup": build / len(texts) * step / read,
        "adapter_padded_step_s": median(lambda rows: adapter(*stored.batch(rows)).sum().backward()),
        "adapter_stored_step_s": median(lambda rows: adapter.read(stored, rows).sum().backward()),
    }


def main() -> None:
    """Measures and prints one figure a line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--pool", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--texts", type=int, default=1024)
    parser.add_argument("--backbone", default="minilm")
    parser.add_argument("--step", type=int, default=528, help="texts of a training step")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    texts = load_texts(args.pool, args.texts)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["V0_BENCH_CACHE"] = folder
        results = measure(texts, args.backbone, args.step, args.repeats)
    if args.json:
        print(json.dumps(results, indent=2))
        return
    for name, value in results.items():
        print(f"{name:24}{value:12.4g}")


if __name__ == "__main__":
    main()
