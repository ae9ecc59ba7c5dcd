"""Runs a leaderboard: units of work one by one or in parallel, then tables, files and plots."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from v0_bench.embeddings import embed
from v0_bench.errors import V0BenchError
from v0_bench.leaderboard import rows as assemble
from v0_bench.leaderboard.plots import write_plots
from v0_bench.leaderboard.provenance import provenance
from v0_bench.leaderboard.report import SCHEMA_VERSION, write_files
from v0_bench.leaderboard.work import Result, Unit, folds_of, run_unit
from v0_bench.metrics import PREDICTION_COLUMNS, score
from v0_bench.pool import Pool
from v0_bench.predictors import available_predictors, predictor_class
from v0_bench.protocols import Fold, NotApplicable, check_protocol_name, default_protocol


@dataclass(frozen=True)
class Settings:
    """What to run, and where to write it."""

    pools: tuple[Pool, ...]
    predictors: tuple[str, ...]
    protocols: tuple[str, ...]
    """Empty for each pool's default."""
    context_size: int
    seeds: int
    backbone: str
    output: Path
    jobs: int = 1


def choose_predictors(names: str) -> tuple[str, ...]:
    """`default`, `all`, or a comma-separated list of names, checked."""
    known = available_predictors()
    if names == "all":
        return tuple(known)
    if names == "default":
        return tuple(name for name, cls in known.items() if cls.info.default)
    chosen = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    if not chosen:
        raise V0BenchError("no predictor is named; see `v0-bench predictors list`")
    for name in chosen:
        predictor_class(name)
    return chosen


def run(settings: Settings, arguments: Sequence[str] = ()) -> dict[str, Any]:
    """Runs everything that is not there yet, writes all files, returns the document.

    `arguments` is the command line to record. Raises V0BenchError if the output cannot be written.
    """
    for protocol in settings.protocols:
        check_protocol_name(protocol)
    work = _output_folder(settings.output)
    started = time.perf_counter()
    all_rows: list[dict[str, Any]] = []
    predictions: list[pd.DataFrame] = []
    curves: list[dict[str, Any]] = []
    embedding_seconds = 0.0
    for pool in settings.pools:
        for protocol in settings.protocols or (default_protocol(pool),):
            table = _run_table(pool, protocol, settings, work)
            rows, frame = assemble.leaderboard_rows(pool.name, protocol, table.tests, table.results)
            all_rows += rows
            predictions += [frame] if len(frame) else []
            curves += _curve(pool, protocol, table, settings)
            embedding_seconds += table.embedding_seconds
    document = {
        "schema_version": SCHEMA_VERSION,
        "provenance": provenance(
            arguments,
            settings.pools,
            seeds=list(range(settings.seeds)),
            context_size=settings.context_size,
            backbone=settings.backbone,
            seconds={"embedding": embedding_seconds, "total": time.perf_counter() - started},
        ),
        "rows": all_rows,
        "mean_ranks": assemble.mean_ranks(all_rows),
    }
    columns = list(PREDICTION_COLUMNS)
    frame = pd.concat(predictions or [pd.DataFrame(columns=columns)], ignore_index=True)
    write_files(settings.output, document, frame)
    if len(frame):
        write_plots(settings.output, document, frame, pd.DataFrame(curves))
    return document


@dataclass(frozen=True)
class Table:
    """What one pool and protocol gave: test rows by seed, and results by predictor and seed."""

    tests: list[pd.DataFrame]
    results: dict[str, list[Result]]
    embedding_seconds: float = 0.0


def _run_table(pool: Pool, protocol: str, settings: Settings, work: Path) -> Table:
    size, seeds = settings.context_size, range(settings.seeds)
    try:
        folds = [folds_of(pool, protocol, seed, size) for seed in seeds]
    except NotApplicable as error:
        reason = Result("not_applicable", str(error))
        return Table([], {name: [reason] for name in settings.predictors})
    started = time.perf_counter()
    _embed_all(folds, settings)
    embedding_seconds = time.perf_counter() - started
    tests = [assemble.test_rows(pool, protocol, seed, folds[seed]) for seed in seeds]
    return Table(tests, _results(pool, protocol, settings, work), embedding_seconds)


def _embed_all(folds_by_seed: Sequence[Sequence[Fold]], settings: Settings) -> None:
    """Embeds the texts in use before any clock runs, so that predictors find them in the cache."""
    uses = (inspect.signature(predictor_class(name)).parameters for name in settings.predictors)
    if any("backbone" in parameters for parameters in uses):
        texts = {text for folds in folds_by_seed for fold in folds for text in fold.texts()}
        embed(sorted(texts), settings.backbone)


def _results(pool: Pool, protocol: str, settings: Settings, work: Path) -> dict[str, list[Result]]:
    from joblib import Parallel, delayed
    from tqdm import tqdm

    units = [
        Unit(pool, protocol, name, seed, settings.context_size, settings.backbone)
        for seed in range(settings.seeds)
        for name in settings.predictors
    ]
    jobs = (delayed(run_unit)(unit, work) for unit in units)
    done = Parallel(n_jobs=settings.jobs, return_as="generator")(jobs)
    bar = tqdm(done, f"{pool.name} {protocol}", len(units), unit="run", delay=3, leave=False)
    results: dict[str, list[Result]] = {name: [] for name in settings.predictors}
    for unit, result in zip(units, bar, strict=True):
        results[unit.predictor].append(result)
    return results


def _curve(pool: Pool, protocol: str, table: Table, settings: Settings) -> Iterator[dict[str, Any]]:
    """AUC by context size, on the first seed, for every predictor that ran."""
    for name, (result, *_) in table.results.items():
        if result.curve is None:
            continue
        unit = Unit(pool, protocol, name, 0, settings.context_size, settings.backbone)
        sizes = (*unit.curve_sizes, settings.context_size)
        for size, values in zip(sizes, (*result.curve, result.predictions), strict=True):
            auc = score(assemble.with_predictions(table.tests[0], name, values))["auc"]
            place = {"pool": pool.name, "protocol": protocol, "predictor": name}
            yield place | {"context_size": size, "auc": auc}


def _output_folder(output: Path) -> Path:
    """Makes OUTPUT/work, and finds out now, not after an hour, whether it can be written."""
    work = output / "work"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise V0BenchError(f"cannot write to {output}: {error.strerror}") from error
    if not os.access(work, os.W_OK):
        raise V0BenchError(f"cannot write to {output}: permission denied")
    return work
