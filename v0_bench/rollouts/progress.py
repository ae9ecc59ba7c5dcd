"""Progress of a run on stderr: a line that renews itself on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter

from v0_bench.rollouts.checkpoints import Checkpoint
from v0_bench.rollouts.events import Progress

BAR_EVERY = 0.2  # seconds between changes on a terminal
LINE_EVERY = 30.0  # seconds between lines in a log file


class ProgressLine:
    """Checkpoints and queries done, tokens a second, time left.

    Rate and time left come from queries that were sampled, not from those a journal held.
    """

    def __init__(self, checkpoints: int) -> None:
        from tqdm import tqdm

        self.queries = 0  # of each checkpoint, once a worker has told
        self._checkpoints, self._done = checkpoints, 0
        self._answered: Counter[Checkpoint] = Counter()
        self._closed = 0  # queries of checkpoints that are done or failed
        self._sampled = self._tokens = 0
        self._start: float | None = None
        self._terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=1, disable=not self._terminal, bar_format="{desc} {bar} {percentage:3.0f}%"
        )
        self._next = time.monotonic() + (0.0 if self._terminal else 3.0)
        self.show("loading")

    def update(self, event: Progress) -> None:
        """Count what a worker has answered."""
        if self._start is None:
            self._start = time.monotonic()
        self._answered[event.checkpoint] += event.queries
        self._sampled += event.queries - event.reused
        self._tokens += event.tokens
        self.show(event.checkpoint.name)

    def close_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Count a checkpoint as done, or given up."""
        self._done += 1
        self._answered.pop(checkpoint, None)
        self._closed += self.queries
        self.show(checkpoint.name)

    def write(self, text: str) -> None:
        """Print a line above the progress."""
        self._bar.write(text, file=sys.stderr)

    def close(self) -> None:
        """Finish the line."""
        self._bar.close()

    @property
    def tokens_per_second(self) -> float:
        """Tokens sampled a second, since the first query was answered."""
        return self._tokens / self._seconds if self._seconds > 0 else 0.0

    @property
    def _seconds(self) -> float:
        return 0.0 if self._start is None else time.monotonic() - self._start

    def show(self, now: str) -> None:
        """Print where the run stands, `now` being what it is at."""
        total = self.queries * self._checkpoints
        answered = self._closed + sum(self._answered.values())
        text = f"{self._done}/{self._checkpoints} checkpoints, {now}"
        if self._sampled and self._seconds >= 1:  # before, the rate means nothing
            left = (total - answered) * self._seconds / self._sampled
            text += f", {self.tokens_per_second:,.0f} tokens/s, {_clock(left)} left"
        share = answered / total if total else 0.0
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (BAR_EVERY if self._terminal else LINE_EVERY)
        if self._terminal:
            self._bar.n = min(1.0, share)
            self._bar.set_description_str(text)
        else:
            print(f"{text} ({share:.0%})", file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
