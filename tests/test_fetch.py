"""Fetching over a real local HTTP server: whole, resumed, refused, by two processes at once."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from http_files import Site, serve
from v0_bench.errors import V0BenchError
from v0_bench.pool import download as download_module
from v0_bench.pool.download import download
from v0_bench.pool.fetch import cached_pool, fetch
from v0_bench.pool.pool import Pool

BIG = bytes(range(256)) * 8192  # 2 MiB
PART = 8 * download_module.CHUNK
QUERIES = b"".join(
    json.dumps({"query_id": f"q{i}", "dataset": "sums", "text": f"What is {i} + {i}?"}).encode()
    + b"\n"
    for i in range(20)
)
OUTCOMES = b"".join(
    json.dumps(
        {"query_id": f"q{i}", "policy": policy, "mean_reward": (i % 3) / 2, "n_rollouts": 2}
    ).encode()
    + b"\n"
    for i in range(20)
    for policy in ("alpha", "beta")
)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("V0_BENCH_CACHE", str(folder))
    monkeypatch.setattr(download_module, "FIRST_PAUSE", 0.01)
    return folder


@pytest.fixture
def site() -> Iterator[Site]:
    with serve(Site({"queries.jsonl": QUERIES, "outcomes.jsonl": OUTCOMES, "big": BIG})) as site:
        yield site


def list_sources(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, base: str, files: dict[str, str | None]
) -> None:
    """Adds the entry `toy` to the catalogue, with these files and hashes."""
    rows = ", ".join(
        f'{{ path = "{path}"' + (f', sha256 = "{digest}" }}' if digest else " }")
        for path, digest in files.items()
    )
    file = tmp_path / "catalogue.toml"
    file.write_text(
        '[toy]\ntitle = "Toy"\nlicence = "CC0"\ncitation = "Us, 2026"\n'
        f'homepage = "https://example.org/toy"\nformat = "long"\nbase = "{base}"\n'
        f"files = [{rows}]\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("V0_BENCH_CATALOGUE", str(file))


PINNED = {"queries.jsonl": sha256(QUERIES), "outcomes.jsonl": sha256(OUTCOMES)}


# One file


@pytest.mark.parametrize("ranges", [True, False])
def test_a_dropped_connection_is_taken_up_again(
    ranges: bool, site: Site, cache: Path, tmp_path: Path
) -> None:
    site.ranges, site.drop_after, site.drops = ranges, PART, 2
    digest = download(site.url + "big", tmp_path / "big", progress=False)
    assert digest == sha256(BIG)
    assert (tmp_path / "big").read_bytes() == BIG
    assert [path.name for path in tmp_path.iterdir()] == ["big"]
    second = f"bytes={PART}-"
    assert [asked for _, asked in site.requests] == (
        [None, second, f"bytes={2 * PART}-"] if ranges else [None, second, second]
    )


def test_a_later_call_goes_on_where_the_last_one_gave_up(
    site: Site, cache: Path, tmp_path: Path
) -> None:
    site.drop_after, site.drops = PART, download_module.ATTEMPTS
    with pytest.raises(V0BenchError, match="what has arrived is kept"):
        download(site.url + "big", tmp_path / "big", progress=False)
    assert (tmp_path / "big.part").stat().st_size == 4 * PART
    site.requests.clear()
    assert download(site.url + "big", tmp_path / "big", progress=False) == sha256(BIG)
    assert site.requests == [("big", f"bytes={4 * PART}-")]


def test_a_file_that_changed_meanwhile_starts_again(
    site: Site, cache: Path, tmp_path: Path
) -> None:
    site.drop_after, site.drops = PART, download_module.ATTEMPTS
    with pytest.raises(V0BenchError):
        download(site.url + "big", tmp_path / "big", progress=False)
    changed = bytes(reversed(BIG))
    site.files["big"] = changed
    assert download(site.url + "big", tmp_path / "big", progress=False) == sha256(changed)
    assert (tmp_path / "big").read_bytes() == changed


def test_without_a_version_from_the_server_nothing_is_resumed(
    site: Site, cache: Path, tmp_path: Path
) -> None:
    site.etags, site.drop_after, site.drops = False, PART, 1
    assert download(site.url + "big", tmp_path / "big", progress=False) == sha256(BIG)
    assert [asked for _, asked in site.requests] == [None, None]


def test_a_part_that_is_whole_already(site: Site, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "big.part").write_bytes(BIG)
    (tmp_path / "big.part.version").write_text(f'"{sha256(BIG)[:16]}"')
    assert download(site.url + "big", tmp_path / "big", progress=False) == sha256(BIG)


def test_a_wrong_hash_leaves_nothing(site: Site, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(V0BenchError) as error:
        download(site.url + "big", tmp_path / "big", sha256="0" * 64, progress=False)
    assert sha256(BIG) in str(error.value)
    assert "0" * 64 in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_busy_server_is_asked_again(site: Site, cache: Path, tmp_path: Path) -> None:
    site.fail_with = [503, 429]
    assert download(site.url + "big", tmp_path / "big", progress=False) == sha256(BIG)
    assert len(site.requests) == 3


def test_an_absent_file_is_asked_for_once(site: Site, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(V0BenchError, match="404"):
        download(site.url + "nothing", tmp_path / "nothing", progress=False)
    assert len(site.requests) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_stalls(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download_module, "TIMEOUT", (1.0, 0.1))
    site.stall = 1.0
    started = time.monotonic()
    with pytest.raises(V0BenchError, match="timed out"):
        download(site.url + "big", tmp_path / "big", progress=False)
    assert time.monotonic() - started < 5


def test_no_server_at_all(cache: Path, tmp_path: Path) -> None:
    with serve(Site({})) as gone:
        url = gone.url + "big"
    with pytest.raises(V0BenchError, match="cannot download"):
        download(url, tmp_path / "big", progress=False)


def test_redirects_are_followed_but_only_over_http(site: Site, cache: Path, tmp_path: Path) -> None:
    site.redirects = {"moved": site.url + "big", "local": "file:///etc/hostname"}
    assert download(site.url + "moved", tmp_path / "a", progress=False) == sha256(BIG)
    with pytest.raises(V0BenchError, match="cannot download"):
        download(site.url + "local", tmp_path / "b", progress=False)
    assert not (tmp_path / "b").exists()


def test_a_full_disk(site: Site, cache: Path, tmp_path: Path) -> None:
    """A limit on file size stands for the full disk: the system refuses the write likewise."""
    code = (
        "import resource, signal; from pathlib import Path\n"
        "from v0_bench.pool.download import download; from v0_bench.errors import V0BenchError\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))\n"
        f"try: download({site.url + 'big'!r}, Path({str(tmp_path / 'big')!r}), progress=False)\n"
        "except V0BenchError as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.startswith(f"cannot write {tmp_path / 'big'}: File too large")


def test_a_proxy_does_not_stand_between_a_machine_and_itself(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert download(site.url + "big", tmp_path / "big", progress=False) == sha256(BIG)


# Whole sources


def test_a_pinned_source_becomes_a_pool(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_sources(monkeypatch, tmp_path, site.url, PINNED)
    folder = fetch("toy", progress=False)
    assert folder == cache / "pools" / "toy" == cached_pool("toy")
    pool = Pool.load(folder)
    assert (pool.name, len(pool.queries), len(pool.outcomes)) == ("toy", 20, 40)
    assert (pool.licence, pool.citation) == ("CC0", "Us, 2026")
    assert pool.source == "https://example.org/toy"
    assert not (cache / "downloads" / "toy").exists()
    asked = len(site.requests)
    assert fetch("toy", progress=False) == folder
    assert len(site.requests) == asked


def test_a_destination_of_ones_own(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_sources(monkeypatch, tmp_path, site.url, PINNED)
    assert fetch("toy", destination=tmp_path / "here", progress=False) == tmp_path / "here"
    assert len(Pool.load(tmp_path / "here").outcomes) == 40
    with pytest.raises(V0BenchError, match="exists already"):
        fetch("toy", destination=tmp_path / "here", progress=False)


def test_a_wrong_hash_is_refused_and_nothing_is_left(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_sources(monkeypatch, tmp_path, site.url, PINNED | {"outcomes.jsonl": "1" * 64})
    with pytest.raises(V0BenchError, match=sha256(OUTCOMES)):
        fetch("toy", progress=False)
    left = [path for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert left == []
    assert not cached_pool("toy").exists()


def test_an_unpinned_source_needs_consent_and_shows_its_hashes(
    site: Site,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    list_sources(monkeypatch, tmp_path, site.url, PINNED | {"outcomes.jsonl": None})
    with pytest.raises(V0BenchError, match="--accept-unpinned"):
        fetch("toy", progress=False)
    assert site.requests == []
    fetch("toy", accept_unpinned=True, progress=False)
    printed = capsys.readouterr().err
    assert f"{sha256(OUTCOMES)}  outcomes.jsonl" in printed
    assert sha256(QUERIES) not in printed


def test_a_manual_source_says_where_and_what(cache: Path) -> None:
    with pytest.raises(V0BenchError) as error:
        fetch("zeroeval")
    for part in ("https://github.com/WildEval/ZeroEval", "Apache-2.0", "queries.jsonl", "long"):
        assert part in str(error.value)


def test_an_archive_is_unpacked(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files["all.tar.gz"] = archive({"queries.jsonl": QUERIES, "outcomes.jsonl": OUTCOMES})
    list_sources(monkeypatch, tmp_path, site.url, {"all.tar.gz": sha256(site.files["all.tar.gz"])})
    assert len(Pool.load(fetch("toy", progress=False)).outcomes) == 40


@pytest.mark.parametrize("kind", ["climbing", "damaged"])
def test_a_bad_archive_is_refused(
    kind: str, site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = archive({"../../../climbed": b"x"} if kind == "climbing" else {"queries": QUERIES})
    content = content if kind == "climbing" else content[: len(content) // 2]
    site.files["all.tar.gz"] = content
    list_sources(monkeypatch, tmp_path, site.url, {"all.tar.gz": sha256(content)})
    with pytest.raises(V0BenchError, match=r"cannot unpack all\.tar\.gz"):
        fetch("toy", progress=False)
    assert not list(tmp_path.rglob("climbed"))
    assert not cached_pool("toy").exists()


def test_files_that_are_no_pool_leave_nothing(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.files["outcomes.jsonl"] = b"{not json\n"
    list_sources(monkeypatch, tmp_path, site.url, PINNED | {"outcomes.jsonl": None})
    with pytest.raises(V0BenchError, match=r"outcomes\.jsonl"):
        fetch("toy", accept_unpinned=True, progress=False)
    assert not (cache / "downloads" / "toy").exists()
    assert not cached_pool("toy").exists()


FETCH = "from v0_bench.pool.fetch import fetch; print(fetch('toy', progress=False))"


def test_killed_in_the_middle_then_resumed(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_queries = QUERIES + b"\n" * len(BIG)  # blank lines are skipped
    site.files["queries.jsonl"], site.pause = long_queries, 0.05
    list_sources(monkeypatch, tmp_path, site.url, PINNED | {"queries.jsonl": sha256(long_queries)})
    part = cache / "downloads" / "toy" / "queries.jsonl.part"
    process = subprocess.Popen([sys.executable, "-c", FETCH])
    deadline = time.monotonic() + 60
    while not (part.exists() and part.stat().st_size > 200_000):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    arrived = part.stat().st_size
    assert 0 < arrived < len(long_queries)
    site.pause = 0.0
    assert len(Pool.load(fetch("toy", progress=False)).outcomes) == 40
    assert ("queries.jsonl", f"bytes={arrived}-") in site.requests


def test_two_processes_at_once_download_once(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.stall = 0.5
    list_sources(monkeypatch, tmp_path, site.url, PINNED)
    processes = [
        subprocess.Popen([sys.executable, "-c", FETCH], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    printed = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert printed == [str(cached_pool("toy"))] * 2
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(path for path, _ in site.requests) == ["outcomes.jsonl", "queries.jsonl"]
    assert len(Pool.load(cached_pool("toy")).outcomes) == 40


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_cache_that_cannot_be_written(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_sources(monkeypatch, tmp_path, site.url, PINNED)
    cache.mkdir(mode=0o500)
    with pytest.raises(V0BenchError, match="cannot write"):
        fetch("toy", progress=False)


def test_a_cache_that_is_a_file(
    site: Site, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    list_sources(monkeypatch, tmp_path, site.url, PINNED)
    cache.write_text("in the way")
    with pytest.raises(V0BenchError, match="cannot write"):
        fetch("toy", progress=False)


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as members:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            members.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
