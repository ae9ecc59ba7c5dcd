"""Progress on stderr for work that takes a while: a bar on a terminal, plain lines elsewhere."""

import sys
import time

PATIENCE = 3.0  # seconds of silence at the start
LINE_EVERY = 30.0  # seconds between lines in a log file


class Progress:
    """Counts embedded texts; says nothing for the first seconds, or at all if not `shown`."""

    def __init__(self, total: int, label: str, shown: bool) -> None:
        from tqdm import tqdm

        self._total, self._label, self._done = total, label, 0
        terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=total, desc=label, unit="text", delay=PATIENCE, disable=not (shown and terminal)
        )
        self._lines = shown and not terminal
        self._start = time.monotonic()
        self._next_line = self._start + PATIENCE

    def update(self, n: int) -> None:
        """Report `n` more texts as done."""
        self._done += n
        self._bar.update(n)
        now = time.monotonic()
        if self._lines and now >= self._next_line:
            rate = self._done / (now - self._start)
            print(
                f"{self._label}: {self._done}/{self._total} texts, {rate:.0f} texts/s",
                file=sys.stderr,
                flush=True,
            )
            self._next_line = now + LINE_EVERY

    def close(self) -> None:
        """Finish the bar's line."""
        self._bar.close()
