"""From a name in the catalogue to a pool in the cache: download, check, unpack, import."""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name
from v0_bench.pool.catalogue import Entry, catalogue

LONG_LAYOUT = (
    "queries.jsonl {query_id, dataset, text, answer?} and "
    "outcomes.jsonl[.gz] {query_id, policy, step|null, mean_reward in [0, 1], n_rollouts, "
    "cost|null (USD), tokens_out|null}"
)


def cache_folder() -> Path:
    """Where fetched pools go: $V0_BENCH_CACHE, else ~/.cache/v0-bench."""
    return Path(os.environ.get("V0_BENCH_CACHE") or Path.home() / ".cache" / "v0-bench")


def cached_pool(name: str) -> Path:
    """Where a fetched pool of this name stands, whether or not it is there yet."""
    return cache_folder() / "pools" / name


def is_pool(folder: Path) -> bool:
    """Whether a folder looks like a pool."""
    return (folder / "pool.json").is_file()


def fetch(
    name: str,
    *,
    accept_unpinned: bool = False,
    destination: Path | None = None,
    progress: bool = True,
) -> Path:
    """Downloads and imports a catalogued source; returns the folder of the pool.

    Without `destination` the pool goes to the cache, and one that is there is returned as it is.
    An interrupted download goes on where it stopped. Of two processes that fetch the same source,
    one waits for the other. Raises V0BenchError for an unknown or manual source, an unpinned one
    unless `accept_unpinned` (its hashes are then printed on stderr), a wrong hash (nothing is left
    behind), a destination that exists, or where the server or the disk refuses.
    """
    entry = find_entry(name)
    folder = destination or cached_pool(name)
    if destination is None and is_pool(folder):
        return folder
    _check_fetchable(entry, accept_unpinned)
    source = cache_folder() / "downloads" / name
    with _only_one_process(source.with_name(f"{name}.lock")):
        if destination is None and is_pool(folder):
            return folder  # another process brought it meanwhile
        if folder.exists():
            raise V0BenchError(f"{folder} exists already; choose another place, or remove it")
        _download_all(entry, source, progress)
        _import(entry, source, folder)
    return folder


def find_entry(name: str) -> Entry:
    """The catalogue's entry; V0BenchError suggests the nearest name."""
    entries = catalogue()
    if name not in entries:
        raise V0BenchError(unknown_name("pool", name, entries))
    return entries[name]


def _check_fetchable(entry: Entry, accept_unpinned: bool) -> None:
    if entry.status == "manual":
        raise V0BenchError(
            f"{entry.name} cannot be fetched by itself. {entry.note} Get it from {entry.homepage} "
            f"(licence: {entry.licence}), bring it into the layout `long`: {LONG_LAYOUT}, "
            f"then run `v0-bench pool import SOURCE {entry.name} --format long`"
        )
    if entry.status == "unpinned" and not accept_unpinned:
        raise V0BenchError(
            f"{entry.name} is unpinned: the catalogue has no sha256 to check its files against; "
            "--accept-unpinned (accept_unpinned=True) fetches it all the same and prints its hashes"
        )


def _download_all(entry: Entry, source: Path, progress: bool) -> None:
    from v0_bench.pool.download import WrongHashError, download

    for file in entry.files:
        try:
            digest = download(file.url, source / file.path, sha256=file.sha256, progress=progress)
        except WrongHashError:
            shutil.rmtree(source)
            raise
        if file.sha256 is None:
            print(f"{digest}  {file.path} (unpinned, {file.url})", file=sys.stderr)


def _import(entry: Entry, source: Path, folder: Path) -> None:
    """Imports the downloaded files, then removes them, whether or not they could be read."""
    from v0_bench.pool.importers import import_pool

    try:
        for archive in source.rglob("*.tar.gz"):
            _unpack(archive)
        imported = import_pool(
            source,
            entry.format,
            name=entry.name,
            licence=entry.licence,
            source=entry.homepage,
            citation=entry.citation,
        )
        imported.pool.save(folder)
    finally:
        shutil.rmtree(source, ignore_errors=True)
    for note in imported.notes:
        print(note, file=sys.stderr)


def _unpack(archive: Path) -> None:
    """Replaces an archive by its contents; members that would leave the folder are refused."""
    try:
        with tarfile.open(archive) as members:
            members.extractall(archive.parent, filter="data")
        archive.unlink()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise V0BenchError(f"cannot unpack {archive.name}: {error}") from error


@contextmanager
def _only_one_process(lock_file: Path) -> Iterator[None]:
    """Waits until no other process holds the lock; a process that dies lets go of it."""
    from filelock import FileLock, Timeout

    try:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(lock_file)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            print("another process is fetching this pool: waiting for it", file=sys.stderr)
            lock.acquire()
    except OSError as error:
        raise V0BenchError(f"cannot write {lock_file}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()
