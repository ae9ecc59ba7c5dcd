"""The cache between processes: hits without torch, writing at once, kill -9, a full disk.

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

from v0_bench.embeddings.shards import ShardFolder

EMBED = """
import sys, warnings
import numpy as np
from v0_bench.embeddings import embed
warnings.simplefilter("error")
out, first, last, step = sys.argv[1], *map(int, sys.argv[2:])
parts = []
for start in range(first, last, step):
    parts.append(embed([f"query number {i}" * 20 for i in range(start, start + step)], "hash"))
np.save(out, np.concatenate(parts))
"""


def environment(cache: Path) -> dict[str, str]:
    return {**os.environ, "V0_BENCH_CACHE": str(cache), "OMP_NUM_THREADS": "1"}


def start(cache: Path, code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment(cache), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out


def keys_on_disk(cache: Path) -> list[bytes]:
    [folder] = (cache / "embeddings").iterdir()
    return [key.tobytes() for keys, _ in ShardFolder(folder).read_new() for key in keys]


def shards(cache: Path) -> list[Path]:
    return list(cache.glob("embeddings/*/[!.]*.npy"))


def test_another_process_finds_the_vectors(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    finish(start(cache, EMBED, tmp_path / "a.npy", 0, 600, 600))
    before = {path: path.stat().st_mtime_ns for path in shards(cache)}
    finish(start(cache, EMBED, tmp_path / "b.npy", 0, 600, 600))
    assert {path: path.stat().st_mtime_ns for path in shards(cache)} == before
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Four writers of one shard a call, overlapping by half, enough to merge while others write."""
    cache = tmp_path / "cache"
    ranges = [(0, 600), (300, 900), (600, 1200), (900, 1500)]
    writers = [
        start(cache, EMBED, tmp_path / f"{first}.npy", first, last, 5) for first, last in ranges
    ]
    for writer in writers:
        finish(writer)
    finish(start(tmp_path / "other", EMBED, tmp_path / "all.npy", 0, 1500, 1500))
    whole = np.load(tmp_path / "all.npy")
    for first, last in ranges:
        assert np.array_equal(np.load(tmp_path / f"{first}.npy"), whole[first:last])
    assert set(keys_on_disk(cache)) == set(keys_on_disk(tmp_path / "other"))


def test_killed_process_is_resumed_where_it_stood(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    process = start(cache, EMBED, tmp_path / "a.npy", 0, 60_000, 60_000)
    deadline = time.monotonic() + 60
    while len(shards(cache)) < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "it was done before it could be killed"
    survived = shards(cache)
    kept = keys_on_disk(cache)
    assert len(survived) >= 3
    assert len(kept) == 256 * len(survived)

    finish(start(cache, EMBED, tmp_path / "a.npy", 0, 2000, 2000))
    finish(start(tmp_path / "other", EMBED, tmp_path / "b.npy", 0, 2000, 2000))
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))
    after = keys_on_disk(cache)
    assert len(after) == len(set(after)), "nothing that survived was computed again"
    assert set(kept) < set(after) or set(kept) == set(after)


def test_full_disk_costs_a_warning_not_the_vectors(tmp_path: Path) -> None:
    """The system refuses every file over 64 kB, as a full disk would."""
    code = EMBED.replace(
        'warnings.simplefilter("error")',
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))",
    ).replace("np.save(out, np.concatenate(parts))", "print(np.concatenate(parts).sum())")
    process = start(tmp_path / "cache", code, "-", 0, 600, 300)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err.count("embeddings are not kept") == 1
    assert "File too large" in err
    assert list((tmp_path / "cache").rglob("*.npy*")) == []
    finish(start(tmp_path / "other", EMBED, tmp_path / "a.npy", 0, 600, 300))
    assert float(out) == pytest.approx(float(np.load(tmp_path / "a.npy").sum()), abs=0.01)


def test_import_and_hash_backbone_do_without_torch(tmp_path: Path) -> None:
    code = """
import sys
from v0_bench.embeddings import embed
embed(["a", "b"], "hash")
print([m for m in ("torch", "transformers", "sentence_transformers", "pandas") if m in sys.modules])
"""
    assert finish(start(tmp_path, code)).strip() == "[]"


def test_warm_minilm_needs_no_torch_and_does_not_read_the_weights(tmp_path: Path) -> None:
    code = """
import builtins, io, sys
import v0_bench.embeddings as e
opened = []
sys.addaudithook(lambda event, args: event == "open" and opened.append(str(args[0])))
x = e.embed(["one apple", "two pears", ""])
print(x.shape, float(abs(x).sum()), "torch" in sys.modules or "transformers" in sys.modules)
print(any(name.endswith("model.safetensors") for name in opened))
"""
    cold = finish(start(tmp_path, code)).splitlines()
    warm = finish(start(tmp_path, code)).splitlines()
    assert cold[0].endswith("True")
    assert cold[1] == "True"
    assert warm == [cold[0].replace("True", "False"), "False"]
