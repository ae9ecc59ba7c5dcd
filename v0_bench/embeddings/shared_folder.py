"""A folder of immutable files that any number of processes may add to.

A file is written under a temporary name and renamed, so a reader sees it whole or not at all. The
folder's content is the union of its files; each process remembers which of them it has read.
"""

import contextlib
import os
import secrets
import time
import warnings
from pathlib import Path

STALE_SECONDS = 3600.0  # a temporary file this old belongs to a process that was killed


class SharedFolder:
    """Files of one suffix in a folder; `what` names their content in the one warning."""

    def __init__(self, folder: Path, suffix: str, what: str) -> None:
        self.folder = folder
        self.suffix = suffix
        self.seen: set[str] = set()
        self._what = what
        self.writable = True

    def new_names(self) -> list[str]:
        """Names of files not seen yet."""
        try:
            names = os.listdir(self.folder)
        except OSError:  # nothing there yet, or nothing that can be read: compute
            return []
        ours = (name for name in names if name.endswith(self.suffix) and not name.startswith("."))
        return sorted(set(ours) - self.seen)

    def add(self, name: str, content: bytes) -> bool:
        """Write a file; False, after one warning, if it cannot be written."""
        if not self.writable:
            return False
        temporary = self.folder / f".{name}-{os.getpid()}-{secrets.token_hex(4)}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(content)
            os.replace(temporary, self.folder / name)
        except OSError as error:
            self.writable = False
            self.remove(temporary.name)
            warnings.warn(
                f"{self._what} are not kept: cannot write {self.folder} ({error.strerror}); "
                "free some space or set V0_BENCH_CACHE to a folder that can be written",
                stacklevel=2,
            )
            return False
        self.seen.add(name)
        return True

    def remove(self, name: str) -> None:
        """Remove a file if that can be done: a read-only cache is still a cache."""
        with contextlib.suppress(OSError):
            (self.folder / name).unlink()

    def remove_damaged(self, name: str) -> None:
        """Remove a file whose content is not what was written, and say so."""
        warnings.warn(f"damaged cache file {self.folder / name} was removed", stacklevel=2)
        self.remove(name)

    def remove_stale(self) -> None:
        """Remove what killed processes left half written."""
        for path in self.folder.glob(f".*{self.suffix}-*"):
            with contextlib.suppress(OSError):
                if time.time() - path.stat().st_mtime > STALE_SECONDS:
                    path.unlink()
