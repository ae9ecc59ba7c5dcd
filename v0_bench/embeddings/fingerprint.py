"""SHA-256 of the files that make up a model, without reading large ones twice.

The hash of a file is remembered under its path, size and modification time: in memory, and as one
tiny file in the cache folder, so that a later process need not read 90 MB to name its cache.
"""

import contextlib
import hashlib
import os
from functools import lru_cache
from pathlib import Path

MODEL_FILES = {".json", ".txt", ".model", ".jinja", ".safetensors", ".bin"}
SMALL = 1 << 20  # bytes: below this, hashing is as cheap as looking the answer up


def folder_fingerprint(folder: Path, cache: Path) -> str:
    """SHA-256 (hex) over names and contents of a model folder's weights, config and tokenizer."""
    total = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.suffix in MODEL_FILES and not hidden and path.is_file():
            line = f"{path.relative_to(folder).as_posix()}\0{file_sha256(path, cache)}\n"
            total.update(line.encode())
    return total.hexdigest()


def file_sha256(path: Path, cache: Path) -> str:
    """SHA-256 (hex) of a file; `cache` is the folder that remembers it for other processes."""
    real = path.resolve()
    stat = real.stat()
    return _file_sha256(real, stat.st_size, stat.st_mtime_ns, cache)


@lru_cache(maxsize=4096)
def _file_sha256(path: Path, size: int, mtime_ns: int, cache: Path) -> str:
    if size < SMALL:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    stamp = hashlib.sha256(f"{path}\0{size}\0{mtime_ns}".encode()).hexdigest()[:32]
    note = cache / "file-hashes" / stamp
    try:
        remembered = note.read_text(encoding="ascii")
        if len(remembered) == 64:
            return remembered
    except (OSError, UnicodeDecodeError):
        pass  # not known yet, or unreadable: hash the file
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    _remember(note, digest)
    return digest


def _remember(note: Path, digest: str) -> None:
    """Write the note whole or not at all; a cache that cannot be written only costs time."""
    temporary = note.with_name(f".{note.name}-{os.getpid()}")
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(digest, encoding="ascii")
        os.replace(temporary, note)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
