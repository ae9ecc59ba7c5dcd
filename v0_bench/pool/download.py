"""One file over HTTP: streamed to disk, hashed on the way, resumed where it stopped.

A transfer under way is PATH.part. Beside it, PATH.part.version holds the server's ETag or
Last-Modified, sent as If-Range, so that a resumed transfer never joins two versions of a file; a
server that gives neither, or does not serve ranges, starts again.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from urllib.parse import urlsplit

import requests
from tqdm import tqdm

from v0_bench.errors import V0BenchError

ATTEMPTS = 4
FIRST_PAUSE = 0.5  # seconds before the second attempt; doubled before each further one
TIMEOUT = (10.0, 60.0)  # seconds to connect, and to wait for the next bytes
CHUNK = 1 << 14  # bytes; up to this much is lost when a connection drops
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PASSING_FAULTS = (
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
)


class WrongHashError(V0BenchError):
    """The bytes that arrived are not the ones expected; they have been removed."""


def download(url: str, path: Path, *, sha256: str | None = None, progress: bool = True) -> str:
    """Brings the bytes of an http or https address to `path` and returns their sha256.

    A complete file already at `path` is hashed, not fetched again. Raises WrongHashError if the
    bytes do not have the hash `sha256`, and V0BenchError if the server refuses, cannot be reached
    (what has arrived is kept for the next call), or the disk refuses.
    """
    part = path.with_name(path.name + ".part")
    try:
        if path.exists():
            digest = _hash_of(path).hexdigest()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            digest = _transfer(url, part, progress)
            _version_file(part).unlink(missing_ok=True)
            part.replace(path)
        if sha256 is not None and digest != sha256:
            path.unlink()
            raise WrongHashError(
                f"{url} is not the file expected and was removed: "
                f"its sha256 is {digest}, it should be {sha256}"
            )
    except OSError as error:
        raise V0BenchError(f"cannot write {path}: {error.strerror or error}") from error
    return digest


def _transfer(url: str, part: Path, progress: bool) -> str:
    """Attempts the transfer until it is complete; the sha256 of the file."""
    fault: Exception
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(FIRST_PAUSE * 2 ** (attempt - 1))
        try:
            return _attempt(url, part, progress)
        except _PASSING_FAULTS as error:
            fault = error
        except requests.RequestException as error:
            raise V0BenchError(f"cannot download {url}: {error}") from error
    kept = "; what has arrived is kept, call again to go on" if part.exists() else ""
    raise V0BenchError(f"cannot download {url}: {fault}{kept}")


def _attempt(url: str, part: Path, progress: bool) -> str:
    offset, headers = _resume_point(part)
    with (
        _session(url) as session,
        session.get(url, headers=headers, stream=True, timeout=TIMEOUT) as response,
    ):
        content_range = response.headers.get("Content-Range", "")
        resumed = response.status_code == 206
        if response.status_code == 416 or (
            resumed and not content_range.startswith(f"bytes {offset}-")
        ):
            _version_file(part).unlink(missing_ok=True)
            raise requests.ConnectionError(f"the server cannot go on from byte {offset}")
        if response.status_code == 429 or response.status_code >= 500:
            raise requests.ConnectionError(f"{response.status_code} {response.reason}")
        response.raise_for_status()
        if not resumed:
            offset = 0
            part.write_bytes(b"")  # before the version file: a kill between the two is harmless
            _version_file(part).write_text(_version(response), encoding="utf-8")
        return _stream(response, part, offset, progress)


def _stream(response: requests.Response, part: Path, offset: int, progress: bool) -> str:
    """Appends the body to `part`; the sha256 of the whole."""
    digest = _hash_of(part)
    length = response.headers.get("Content-Length")
    with (
        part.open("ab") as file,
        tqdm(
            desc=part.name.removesuffix(".part"),
            total=offset + int(length) if length else None,
            initial=offset,
            unit="B",
            unit_scale=True,
            disable=None if progress else True,
        ) as bar,
    ):
        for chunk in response.iter_content(CHUNK):
            file.write(chunk)
            digest.update(chunk)
            bar.update(len(chunk))
    return digest.hexdigest()


def _resume_point(part: Path) -> tuple[int, dict[str, str]]:
    """Bytes to go on from, and the headers that ask for the rest of the same version."""
    version_file = _version_file(part)
    version = version_file.read_text(encoding="utf-8") if version_file.exists() else ""
    offset = part.stat().st_size if part.exists() else 0
    if not version or not offset:
        return 0, {}
    return offset, {"Range": f"bytes={offset}-", "If-Range": version}


def _version(response: requests.Response) -> str:
    etag = response.headers.get("ETag", "")
    strong = etag and not etag.startswith("W/")  # If-Range allows no weak ones
    return etag if strong else response.headers.get("Last-Modified", "")


def _version_file(part: Path) -> Path:
    return part.with_name(part.name + ".version")


def _session(url: str) -> requests.Session:
    session = requests.Session()
    # Compressed transfers cannot be resumed by byte.
    session.headers["Accept-Encoding"] = "identity"
    # No proxy stands between this machine and itself.
    session.trust_env = urlsplit(url).hostname not in _LOOPBACK
    return session


def _hash_of(path: Path) -> hashlib._Hash:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")
