"""Writes that happen entirely or not at all: a temporary sibling, then a rename."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from v0_bench.errors import V0BenchError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path` that replaces it when the block ends well.

    Raises V0BenchError where the system refuses (folder not writable, disk full); whatever stood
    at `path` is then untouched and nothing is left behind.
    """
    path = Path(path)
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(
            dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix
        )
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            temporary.chmod(0o666 & ~_umask())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, overwrite: bool = False) -> Iterator[Path]:
    """Yields a temporary folder that becomes `path` when the block ends well.

    Raises V0BenchError if `path` exists and `overwrite` is false, or where the system refuses.
    """
    path = Path(path)
    if path.exists() and not overwrite:
        raise V0BenchError(f"{path} exists already; choose another place or pass --overwrite")
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
        try:
            temporary.chmod(0o777 & ~_umask())
            yield temporary
            _replace_folder(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _replace_folder(new: Path, path: Path) -> None:
    if not path.exists():
        new.rename(path)
        return
    aside = new.with_name(new.name + ".old")
    path.rename(aside)
    try:
        new.rename(path)
    except BaseException:
        aside.rename(path)
        raise
    if aside.is_dir():
        shutil.rmtree(aside)
    else:
        aside.unlink()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise V0BenchError(f"cannot write {path}: {error.strerror or error}") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
