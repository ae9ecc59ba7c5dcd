"""The catalogue: public sources of outcomes that `fetch` knows, with licence, citation and hashes.

The entries stand in catalogue.toml, one table each. The environment variable V0_BENCH_CATALOGUE may
name a second file of the same layout: its entries are added, and replace those of the same name.
"""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, urlsplit

from v0_bench.errors import V0BenchError

PACKAGED_CATALOGUE = Path(__file__).with_name("catalogue.toml")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TEXTS = ("title", "licence", "citation", "homepage", "format", "note")


@dataclass(frozen=True)
class RemoteFile:
    """One file of a source: where it is, and where it goes below the source folder."""

    url: str
    path: str
    sha256: str | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Entry:
    """One source. `format` is the importer that reads its files; a manual source has no files."""

    name: str
    title: str
    licence: str
    citation: str
    homepage: str
    format: str
    note: str
    files: tuple[RemoteFile, ...]

    @property
    def status(self) -> str:
        """`pinned` (the hash of every file is known), `unpinned`, or `manual` (no files)."""
        if not self.files:
            return "manual"
        return "pinned" if all(file.sha256 for file in self.files) else "unpinned"

    @property
    def bytes(self) -> int | None:
        """Size of the download; null if it is not known of every file."""
        sizes = [file.bytes for file in self.files if file.bytes is not None]
        return sum(sizes) if sizes and len(sizes) == len(self.files) else None


def catalogue() -> dict[str, Entry]:
    """Every catalogued source by name, in the order of the file.

    Raises V0BenchError naming file and entry if the file at $V0_BENCH_CATALOGUE is not a catalogue.
    """
    entries = _read(PACKAGED_CATALOGUE)
    more = os.environ.get("V0_BENCH_CATALOGUE")
    return entries | _read(Path(more)) if more else entries


def _read(path: Path) -> dict[str, Entry]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise V0BenchError(f"the catalogue {path} cannot be read: {error}") from error
    return {name: _entry(name, table, f"{path}, [{name}]") for name, table in tables.items()}


def _entry(name: str, table: Any, place: str) -> Entry:
    if not _NAME.fullmatch(name) or not isinstance(table, dict):
        raise V0BenchError(f"{place}: an entry is a table named by lower-case words and hyphens")
    _only_known_keys(table, {*_TEXTS, "base", "files"}, place)
    texts = {key: table.get(key, "") for key in _TEXTS}
    wrong = [key for key, value in texts.items() if not isinstance(value, str)]
    wrong += [key for key in _TEXTS if key != "note" and not texts[key]]
    if wrong:
        raise V0BenchError(f"{place}: {wrong[0]} must be text")
    base = table.get("base", "")
    files = tuple(_file(base, file, place) for file in table.get("files", []))
    paths = [file.path for file in files]
    if len(set(paths)) < len(paths):
        raise V0BenchError(f"{place}: two files have the same path")
    return Entry(name=name, files=files, **texts)


def _file(base: str, table: dict[str, Any], place: str) -> RemoteFile:
    """One file: its address is the entry's `base` followed by its path."""
    _only_known_keys(table, {"path", "sha256", "bytes"}, place)
    path, sha256 = table.get("path", ""), table.get("sha256")
    address = urlsplit(base)
    if address.scheme not in ("http", "https") or not address.hostname or not base.endswith("/"):
        raise V0BenchError(f"{place}: base = {base!r} is not an http or https folder ending in /")
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or any(mark in path for mark in "\\:\0"):
        raise V0BenchError(f"{place}: {path!r} must be a path below the source folder")
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise V0BenchError(f"{place}: {sha256!r} is not a sha256 in lower-case hexadecimal")
    return RemoteFile(url=base + quote(path), path=path, sha256=sha256, bytes=table.get("bytes"))


def _only_known_keys(table: dict[str, Any], known: set[str], place: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise V0BenchError(
            f"{place}: unknown key {unknown[0]!r}; known: {', '.join(sorted(known))}"
        )
