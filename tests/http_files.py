"""A real HTTP server on 127.0.0.1 for download tests, with the faults real servers have."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What the server holds and how it misbehaves; `requests` records (path, Range header)."""

    files: dict[str, bytes]
    ranges: bool = True
    etags: bool = True
    drop_after: int | None = None  # bytes of a body before the connection closes
    drops: int = 0  # how many more times that happens
    stall: float = 0.0  # seconds before each body
    pause: float = 0.0  # seconds between pieces of a body
    piece: int = 1 << 16
    fail_with: list[int] = field(default_factory=list)  # status codes to answer first
    redirects: dict[str, str] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    url: str = ""


@contextmanager
def serve(site: Site) -> Iterator[Site]:
    """Serves the site while the block runs; sets `site.url`, which ends in a slash."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(site))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.lstrip("/")
            site.requests.append((path, self.headers.get("Range")))
            if site.fail_with:
                self.send_error(site.fail_with.pop(0))
            elif path in site.redirects:
                self.send_response(302)
                self.send_header("Location", site.redirects[path])
                self.end_headers()
            elif path not in site.files:
                self.send_error(404)
            else:
                self._send_file(site.files[path])

        def _send_file(self, content: bytes) -> None:
            etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            start = self._start(content, etag)
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            if site.etags:
                self.send_header("ETag", etag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            time.sleep(site.stall)
            self._send_body(content[start:])

        def _start(self, content: bytes, etag: str) -> int:
            asked = self.headers.get("Range")
            if not asked or not site.ranges or self.headers.get("If-Range") != etag:
                return 0
            return int(asked.removeprefix("bytes=").removesuffix("-"))

        def _send_body(self, body: bytes) -> None:
            if site.drops and site.drop_after is not None:
                site.drops -= 1
                body = body[: site.drop_after]
            try:
                for first in range(0, len(body), site.piece):
                    self.wfile.write(body[first : first + site.piece])
                    time.sleep(site.pause)
            except OSError:
                pass  # the client has gone

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler
