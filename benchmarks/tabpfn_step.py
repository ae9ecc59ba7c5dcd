"""Where the time of a training step with TabPFN goes, and how near it comes to the machine's peak.

    python benchmarks/tabpfn_step.py [--threads 2] [--layers 24] [--default-memory] [--json]

The paper's sizes: 2 episodes, 256 context items and 8 queries each, 168 x 6 = 1,008 features from a
backbone of width 1,024, the full architecture of TabPFN-2.5. Its weights are random: they change no
count of operations. Every layer costs the same, so `--layers 4` is a sixth of a step.

The peak is that of a float32 product of two 2,048 x 2,048 matrices, measured around the step with
as many threads. Operations counted are those of the matrix products that a step needs: forward, and
backward to the features (the head is frozen). Recomputing a layer for its backward pass is work
done to save memory; the fraction is given without and with it. Seconds are also given as CPU time,
which says more than the clock on a machine that is shared. `--default-memory` leaves the allocator
as it is (see `keep_freed_memory`).
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from v0_bench.v0.adapter import ConnectorConfig, ResidualQueryAdapter
from v0_bench.v0.heads.memory import keep_freed_memory
from v0_bench.v0.heads.tabpfn import TabPFNHead
from v0_bench.v0.losses import v0_loss

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from tabpfn_checkpoint import save_checkpoint

EPISODES, CONTEXT, QUERIES = 2, 256, 8
WIDTH, GROUP, THINKING_ROWS, MATRIX = 192, 3, 64, 2048


class Clock:
    """Seconds, (by the clock, of CPU), of named parts."""

    def __init__(self) -> None:
        self.parts: dict[str, tuple[float, float]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        started = time.perf_counter(), time.process_time()
        yield
        self.parts[name] = time.perf_counter() - started[0], time.process_time() - started[1]
        print(f"{name}: {self.parts[name][0]:.1f} s", file=sys.stderr)


def measure_peak(clock: Clock, name: str, repeats: int = 10) -> None:
    a, b = torch.randn(2, MATRIX, MATRIX)
    a @ b  # warm
    with clock.part(name):
        for _ in range(repeats):
            a @ b
    clock.parts[name] = tuple(2 * MATRIX**3 * repeats / seconds for seconds in clock.parts[name])


def operations(layers: int, n_features: int) -> dict[str, float]:
    """Floating point operations of the head's matrix products: forward and backward."""
    rows, known, columns = THINKING_ROWS + CONTEXT + QUERIES, THINKING_ROWS + CONTEXT, 1
    columns += -(-n_features // GROUP)
    cells = EPISODES * rows * columns
    linear = cells * (4 + 4 + 4) * WIDTH**2 * 2  # two attentions, and an MLP of twice the width
    linear -= EPISODES * QUERIES * columns * 2 * WIDTH**2 * 2  # queries are no keys or values
    attention = cells * (columns + known) * WIDTH * 2 * 2
    return {
        "forward": layers * (linear + attention),
        "backward": layers * (linear + 2 * attention),
    }


def run_step(clock: Clock, head: TabPFNHead, tokens: int) -> int:
    """One step; returns the number of features."""
    config = ConnectorConfig()
    adapter = ResidualQueryAdapter(config)
    texts, items = EPISODES * (CONTEXT + QUERIES), CONTEXT + QUERIES
    states = torch.randn(texts, tokens, config.hidden_size)
    mask = torch.ones(texts, tokens, dtype=torch.bool)
    rates = torch.randint(11, (EPISODES, items)) / 10
    here = torch.ones(EPISODES, items, dtype=torch.bool)
    counts = torch.full((EPISODES, items), 10)
    with clock.part("adapter forward"):
        features = adapter(states, mask, states[:, -1])
    leaf = features.detach().requires_grad_()
    split = leaf.unflatten(0, (EPISODES, items))
    with clock.part("head forward"):
        context = (part[:, :CONTEXT] for part in (split, rates, counts, here))
        logits = head(*context, split[:, CONTEXT:])
        loss = v0_loss(logits, rates[:, CONTEXT:], here[:, CONTEXT:])
    with clock.part("head backward"):
        loss.backward()
    with clock.part("adapter backward"):
        features.backward(leaf.grad)
    return config.n_features


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each prompt")
    parser.add_argument("--default-memory", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    kept = not args.default_memory and keep_freed_memory()
    sizes = {"emsize": WIDTH, "nhead": 3, "num_thinking_rows": THINKING_ROWS}
    with tempfile.TemporaryDirectory() as folder:
        path = save_checkpoint(Path(folder) / "full.ckpt", nlayers=args.layers, **sizes)
        head = TabPFNHead(path)
    clock = Clock()
    measure_peak(clock, "peak before")
    needed = operations(args.layers, run_step(clock, head, args.tokens))
    measure_peak(clock, "peak after")
    peaks = [clock.parts.pop("peak before"), clock.parts.pop("peak after")]
    peak = [sum(pair) / 2 for pair in zip(*peaks, strict=True)]
    head_seconds = [
        sum(pair)
        for pair in zip(clock.parts["head forward"], clock.parts["head backward"], strict=True)
    ]
    useful = needed["forward"] + needed["backward"]
    found = {
        "threads": args.threads,
        "layers": args.layers,
        "freed_memory_kept": kept,
        "seconds": {name: pair[0] for name, pair in clock.parts.items()},
        "cpu_seconds": {name: pair[1] for name, pair in clock.parts.items()},
        "head_tflop": useful / 1e12,
        "head_tflop_with_recomputation": (useful + needed["forward"]) / 1e12,
        "peak_gflops": peak[0] / 1e9,
        "peak_gflops_per_cpu_second": peak[1] / 1e9,
        "fraction_of_peak": useful / head_seconds[0] / peak[0],
        "fraction_of_peak_by_cpu_time": useful / head_seconds[1] / peak[1],
        "fraction_with_recomputation": (useful + needed["forward"]) / head_seconds[1] / peak[1],
        "peak_memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
    }
    if args.json:
        print(json.dumps(found, indent=1))
        return
    for name, value in found.items():
        parts = value if isinstance(value, dict) else {"": value}
        for part, number in parts.items():
            shown = f"{number:.3g}" if isinstance(number, float) else number
            print(f"{f'{name} {part}':34s} {shown}")


if __name__ == "__main__":
    main()
