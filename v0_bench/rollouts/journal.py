"""`Journal`: the finished queries of a run on disk, so that a restart does not sample them again.

A JSONL file, one line a query: {"key": ..., "rollouts": [{"text", "finish_reason", "tokens"}]}.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import filelock

from v0_bench.errors import V0BenchError
from v0_bench.rollouts.rollout import Rollout

T = TypeVar("T")

_log = logging.getLogger("lm_eval.v0_bench")  # below lm-eval's logger, so that it is shown


def journal_key(prompt: str, generation_kwargs: Mapping[str, Any], repeats: int, model: str) -> str:
    """SHA-256 (hex) of all that decides a query's rollouts.

    `model` names the model and whatever else its samples depend on: a fingerprint of the
    checkpoint (`v0_bench.rollouts.checkpoints.fingerprint`), precision, seed.
    """
    parts = [prompt, dict(generation_kwargs), repeats, model]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class Journal:
    """The journal at `path`, made if absent; open in one process at a time.

    What a kill left of the last line is cut off with a warning. Raises V0BenchError where another
    run holds the journal, a line is damaged otherwise, or the system refuses to read or write.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._lock = filelock.FileLock(f"{self.path}.lock", blocking=False)
        with self._explained():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            self._file = self.path.open("ab")
        try:
            with self._explained():
                self._rollouts = self._read()
        except BaseException:
            self.close()
            raise

    def get(self, key: str) -> list[Rollout] | None:
        """The rollouts of a query; None where it is not finished."""
        return self._rollouts.get(key)

    def put_many(self, finished: Mapping[str, Sequence[Rollout]]) -> None:
        """Append finished queries; they are on disk when this returns."""
        lines = [_line(key, rollouts) for key, rollouts in finished.items()]
        with self._explained():
            self._file.write(b"".join(lines))
            self._file.flush()
            os.fsync(self._file.fileno())
        self._rollouts |= {key: list(rollouts) for key, rollouts in finished.items()}

    def __len__(self) -> int:
        """The number of finished queries."""
        return len(self._rollouts)

    def close(self) -> None:
        """Let another run have the journal."""
        with contextlib.suppress(OSError):  # a full disk: put_many has told it
            self._file.close()
        self._lock.release()

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _read(self) -> dict[str, list[Rollout]]:
        found: dict[str, list[Rollout]] = {}
        whole = 0  # bytes
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    _log.warning(
                        "%s: line %d was cut off, as a killed run leaves it; it is removed, and "
                        "its query sampled again",
                        self.path,
                        number,
                    )
                    self._file.truncate(whole)
                    break
                whole += len(line)
                key, rollouts = self._parsed(line, number)
                found[key] = rollouts
        return found

    def _parsed(self, line: bytes, number: int) -> tuple[str, list[Rollout]]:
        try:
            row = json.loads(line)
            return _typed(row["key"], str), [_rollout(fields) for fields in row["rollouts"]]
        except (ValueError, KeyError, TypeError) as error:
            raise V0BenchError(
                f"{self.path}, line {number} is damaged: remove that line, and its query is "
                "sampled again; or give another journal"
            ) from error

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except filelock.Timeout as error:
            raise V0BenchError(
                f"another run writes to {self.path}: wait for it, or give this run another journal"
            ) from error
        except OSError as error:
            raise V0BenchError(
                f"cannot write {self.path}: {error.strerror or error}; give another journal"
            ) from error


def _rollout(fields: dict[str, Any]) -> Rollout:
    reason, tokens = fields["finish_reason"], fields["tokens"]
    return Rollout(
        _typed(fields["text"], str),
        None if reason is None else _typed(reason, str),
        None if tokens is None else _typed(tokens, int),
    )


def _typed(value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} expected")
    return value


def _line(key: str, rollouts: Sequence[Rollout]) -> bytes:
    row = {
        "key": key,
        "rollouts": [
            {"text": str(r), "finish_reason": r.finish_reason, "tokens": r.tokens} for r in rollouts
        ],
    }
    return json.dumps(row).encode("ascii") + b"\n"
