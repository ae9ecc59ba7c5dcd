"""The token-state store between processes: writing at once, kill -9, bounded memory.

Every process here is a real one, started anew, that knows the cache folder and nothing else.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from v0_bench.embeddings import states
from v0_bench.embeddings.state_folder import StateFolder

STORE = """
import sys, warnings
import numpy as np
from v0_bench.embeddings import state_folder, states, token_states
warnings.simplefilter("error")
state_folder.MERGE_ABOVE = 8
states.CHUNK = 16
out, first, last, step = sys.argv[1], *map(int, sys.argv[2:])
parts = []
for start in range(first, last, step):
    texts = [f"query number {i} {i * i}" for i in range(start, min(last, start + step))]
    parts += token_states(texts, "hash").arrays()
np.save(out, np.concatenate(parts))
"""


def start(cache: Path, code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "V0_BENCH_CACHE": str(cache), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def shards(cache: Path) -> list[Path]:
    return list(cache.glob("token-states/*/*/[!.]*"))


def keys_on_disk(cache: Path) -> list[bytes]:
    store = StateFolder(next(cache.glob("token-states/*/*")))
    store.unknown([b""])
    return [key.tobytes() for shard in store._shards.values() for key in shard.index.keys]


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Four writers, overlapping by half, that merge each other's shards while others read."""
    cache = tmp_path / "cache"
    ranges = [(0, 120), (60, 180), (120, 240), (180, 300)]
    writers = [start(cache, STORE, tmp_path / f"{a}.npy", a, b, 6) for a, b in ranges]
    for writer in writers:
        finish(writer)
    finish(start(tmp_path / "other", STORE, tmp_path / "all.npy", 0, 300, 300))
    whole = np.load(tmp_path / "all.npy").reshape(300, 4, 256)
    for first, last in ranges:
        part = np.load(tmp_path / f"{first}.npy").reshape(-1, 4, 256)
        assert np.array_equal(part, whole[first:last])
    assert set(keys_on_disk(cache)) == set(keys_on_disk(tmp_path / "other"))
    assert len(shards(cache)) < 50, "200 small shards were merged on the way"


def test_killed_process_is_resumed_where_it_stood(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    code = STORE.replace("MERGE_ABOVE = 8", "MERGE_ABOVE = 10_000")
    process = start(cache, code, tmp_path / "a.npy", 0, 60_000, 60_000)
    deadline = time.monotonic() + 240
    while len(shards(cache)) < 5 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was done before it could be killed"
    kept = {path: path.stat().st_mtime_ns for path in shards(cache)}
    done = keys_on_disk(cache)
    assert len(kept) >= 5
    assert len(done) == 16 * len(kept), "a shard is there whole or not at all"

    keys = {states.text_key(f"query number {i} {i * i}"): i for i in range(60_000)}
    near = sorted(keys[key] for key in done)
    first, last = near[0], min(near[0] + 400, 60_000)
    finish(start(cache, code, tmp_path / "a.npy", first, last, 400))
    finish(start(tmp_path / "other", code, tmp_path / "b.npy", first, last, 400))
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))
    after = keys_on_disk(cache)
    assert len(after) == len(set(after)), "nothing that survived was computed again"
    assert {path: path.stat().st_mtime_ns for path in kept} == kept


def test_full_disk_costs_a_warning_not_the_states(tmp_path: Path) -> None:
    """The system refuses every file over 8 kB, as a full disk would."""
    code = STORE.replace(
        'warnings.simplefilter("error")',
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))",
    ).replace("np.save(out, np.concatenate(parts))", "print(np.concatenate(parts).sum())")
    process = start(tmp_path / "cache", code, "-", 0, 64, 32)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert err.count("token states are not kept") == 1
    assert list((tmp_path / "cache").rglob("*.safetensors*")) == []
    assert np.isfinite(float(out))


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads Linux's /proc")
def test_memory_stays_bounded_whatever_the_size_of_the_store(tmp_path: Path) -> None:
    """A store of 160 MB is built and read; the process never owns 100 MB more than at first."""
    code = """
import re, sys
from v0_bench.embeddings import states, token_states
import torch
states.SHARD_BYTES = 4 << 20

def owned():
    return int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) >> 10

base, peak = owned(), 0
texts = [f"text {i} " + "some words more " * 100 for i in range(1024)]
states.Progress.update = lambda self, n: globals().update(peak=max(peak, owned()))
stored = token_states(texts, "hash")
for start in range(0, 1024, 16):
    total = stored.batch(slice(start, start + 16)).states.sum()
    peak = max(peak, owned())
print(stored.nbytes >> 20, peak - base)
"""
    size, growth = map(int, finish(start(tmp_path, code)).split())
    assert size > 150
    assert growth < 100


def test_warm_store_needs_no_backbone_and_import_no_torch(tmp_path: Path) -> None:
    code = """
import sys
from v0_bench.embeddings import token_states
print("torch" in sys.modules)
stored = token_states(["one apple", "two pears", ""])
print("torch" in sys.modules, "transformers" in sys.modules)
print(stored.lengths.tolist(), float(stored.batch().states.abs().sum()))
"""
    cold, warm = (
        finish(start(tmp_path, code)).split("\n"),
        finish(start(tmp_path, code)).split("\n"),
    )
    assert cold[:2] == ["False", "True True"]
    assert warm[:2] == ["False", "False False"]
    assert warm[2] == cold[2]
