"""Units of work: one predictor on one pool, protocol and seed. Finished units are kept and reused.

A unit's file carries a key made of everything its numbers depend on (pool, protocol, seed, context
sizes, parameters, weights of the backbone, source code, versions), so an interrupted run resumes
and never mixes inputs.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from threadpoolctl import threadpool_limits

from v0_bench.embeddings.backbones import resolve_backbone
from v0_bench.episode import Episode
from v0_bench.files import atomic_file
from v0_bench.leaderboard.provenance import package_versions
from v0_bench.pool import Pool
from v0_bench.pool.schema import KEYS
from v0_bench.predictors import Predictor, check_values, create_predictor
from v0_bench.protocols import Fold, make_folds

CURVE_SIZES = (16, 32, 64, 128)


@dataclass(frozen=True)
class Unit:
    """What to run: a predictor on a pool under a protocol, with one seed."""

    pool: Pool
    protocol: str
    predictor: str
    seed: int
    context_size: int
    backbone: str

    @property
    def label(self) -> str:
        return f"{self.pool.name}/{self.protocol}/{self.predictor}/seed {self.seed}"

    @property
    def curve_sizes(self) -> tuple[int, ...]:
        """Smaller contexts that are tried too, on the first seed: for AUC against context size."""
        return tuple(s for s in CURVE_SIZES if s < self.context_size) if self.seed == 0 else ()


@dataclass(frozen=True)
class Result:
    """Predictions in the order of the folds' episodes and seconds spent; or why there are none."""

    status: str
    reason: str | None = None
    predictions: np.ndarray | None = None
    curve: np.ndarray | None = None
    """(len(curve_sizes), n): predictions from the first items of each context."""
    fit_seconds: float = float("nan")
    predict_seconds: float = float("nan")


def run_unit(unit: Unit, folder: Path) -> Result:
    """The result of a unit, from its file in `folder` if one with the same key is there.

    A predictor that raises becomes a result with status `error`; it is tried again next time.
    """
    path = folder / f"{_unit_name(unit)}.npz"
    try:
        predictor = create_predictor(unit.predictor, backbone=unit.backbone, seed=unit.seed)
        reason = predictor.why_not_applicable(unit.protocol) or predictor.why_unavailable()
        if reason is not None:
            return Result("not_applicable", reason)
        key = _unit_key(unit, predictor)
        kept = _read_result(path, key)
        if kept is not None:
            return kept
        result = _evaluate(unit, _folds(unit))
    except (Exception, SystemExit) as error:  # its fault is its row; the run goes on
        trace = path.with_suffix(".error.txt")
        with atomic_file(trace) as temporary:
            temporary.write_text(traceback.format_exc(), encoding="utf-8")
        return Result("error", f"{type(error).__name__}: {error}"[:500])
    _write_result(path, key, result)
    return result


def _evaluate(unit: Unit, folds: Sequence[Fold]) -> Result:
    with threadpool_limits(1, user_api="blas"):  # many small systems: more threads only wait
        return _evaluate_alone(unit, folds)


def _evaluate_alone(unit: Unit, folds: Sequence[Fold]) -> Result:
    values: list[np.ndarray] = []
    curve: list[list[np.ndarray]] = [[] for _ in unit.curve_sizes]
    fit_seconds = predict_seconds = 0.0
    for fold in folds:
        predictor = create_predictor(unit.predictor, backbone=unit.backbone, seed=unit.seed)
        for number, stage in enumerate(fold.stages):
            start = time.perf_counter()
            predictor.update(stage.train) if number else predictor.fit(stage.train)
            fitted = time.perf_counter()
            values += _predict(predictor, stage.episodes, unit.context_size)
            predict_seconds += time.perf_counter() - fitted
            fit_seconds += fitted - start
            for part, size in zip(curve, unit.curve_sizes, strict=True):
                part += _predict(predictor, stage.episodes, size)
    return Result(
        "ok",
        None,
        np.concatenate(values),
        np.array([np.concatenate(part) for part in curve]),
        fit_seconds,
        predict_seconds,
    )


def _predict(predictor: Predictor, episodes: Sequence[Episode], size: int) -> list[np.ndarray]:
    pairs = [(episode.context.first(size), episode.queries) for episode in episodes]
    values = predictor.predict_many(pairs)
    return [
        check_values(value, len(queries), predictor.name)
        for value, (_, queries) in zip(values, pairs, strict=True)
    ]


def _folds(unit: Unit) -> list[Fold]:
    return _cached_folds(_Identity(unit.pool), unit.protocol, unit.seed, unit.context_size)


class _Identity:
    """A pool that compares by its contents, so that folds are made once a process.

    The order of the outcomes counts too: episodes point at rows.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def __hash__(self) -> int:
        return hash(self.pool.fingerprint)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Identity) or other.pool.fingerprint != self.pool.fingerprint:
            return False
        key = KEYS["outcomes"]
        return other.pool.outcomes[key].equals(self.pool.outcomes[key])


@lru_cache(maxsize=8)
def _cached_folds(identity: _Identity, protocol: str, seed: int, size: int) -> list[Fold]:
    return make_folds(identity.pool, protocol, seed, size)


def folds_of(pool: Pool, protocol: str, seed: int, context_size: int) -> list[Fold]:
    """The folds that a unit with these settings runs on."""
    return _cached_folds(_Identity(pool), protocol, seed, context_size)


def _unit_name(unit: Unit) -> str:
    """A file name that no two units of a run share and that a person can read."""
    text = "-".join((unit.pool.name, unit.protocol, unit.predictor, f"seed{unit.seed}"))
    readable = re.sub(r"[^\w.-]", "_", text, flags=re.ASCII)[:120]
    digest = hashlib.sha256(f"{text}\0{unit.pool.fingerprint}".encode()).hexdigest()[:8]
    return f"{readable}-{digest}"


def _unit_key(unit: Unit, predictor: Predictor) -> str:
    parameters = predictor.get_params()
    top_level = type(predictor).__module__.partition(".")[0]
    backbone = resolve_backbone(unit.backbone).label if "backbone" in parameters else None
    parts = {
        "pool": unit.pool.fingerprint,
        "pool_name": unit.pool.name,
        "family": sorted(unit.pool.family.items()),
        "protocol": unit.protocol,
        "seed": unit.seed,
        "sizes": [unit.context_size, *unit.curve_sizes],
        "parameters": {name: repr(value) for name, value in sorted(parameters.items())},
        "backbone": backbone,
        "versions": package_versions(),
        "code": [_source_code(n) for n in ("v0_bench", "v0_bench.baselines", top_level)],
    }
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def _source_code(package: str) -> str:
    """sha256 of the files of an imported package or module."""
    module = sys.modules[package]
    files = sorted(
        f for folder in getattr(module, "__path__", ()) for f in Path(folder).rglob("*.py")
    )
    if not files and getattr(module, "__file__", None):
        files = [Path(str(module.__file__))]
    if not files:
        return secrets.token_hex()  # typed at a prompt: never taken for unchanged
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _write_result(path: Path, key: str, result: Result) -> None:
    assert result.predictions is not None
    assert result.curve is not None
    with atomic_file(path) as temporary:
        np.savez(
            temporary,
            key=np.array(key),
            predictions=result.predictions,
            curve=result.curve,
            seconds=np.array([result.fit_seconds, result.predict_seconds]),
        )


def _read_result(path: Path, key: str) -> Result | None:
    if not path.is_file():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            if str(data["key"]) != key:
                return None
            fit_seconds, predict_seconds = data["seconds"].tolist()
            predictions, curve = data["predictions"], data["curve"]
            return Result("ok", None, predictions, curve, fit_seconds, predict_seconds)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):  # not ours or damaged: run again
        return None
