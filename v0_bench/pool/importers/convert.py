"""From a source in any known layout to a pool: read, check, and assign families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name
from v0_bench.pool.families import families
from v0_bench.pool.importers.embedllm import read_embedllm
from v0_bench.pool.importers.llmrouterbench import read_llmrouterbench
from v0_bench.pool.importers.lm_eval import read_lm_eval
from v0_bench.pool.importers.long import read_long
from v0_bench.pool.importers.mmlu_pro import read_mmlu_pro
from v0_bench.pool.importers.oneshot_rlvr import read_oneshot_rlvr
from v0_bench.pool.importers.routerbench import read_routerbench
from v0_bench.pool.importers.routerdc import read_routerdc
from v0_bench.pool.importers.tables import Options, Tables, counted
from v0_bench.pool.importers.v0_release import read_v0_release
from v0_bench.pool.pool import Pool

FORMATS: dict[str, Callable[[Path, Options], Tables]] = {
    "long": read_long,
    "v0-release": read_v0_release,
    "lm-eval": read_lm_eval,
    "embedllm": read_embedllm,
    "routerbench": read_routerbench,
    "llmrouterbench": read_llmrouterbench,
    "oneshot-rlvr": read_oneshot_rlvr,
    "routerdc": read_routerdc,
    "mmlu-pro": read_mmlu_pro,
}


@dataclass(frozen=True)
class Imported:
    """A pool made from a source, and what happened on the way, one sentence each."""

    pool: Pool
    notes: tuple[str, ...]


def import_pool(
    path: Path,
    format: str | None = None,
    name: str | None = None,
    *,
    metric: str | None = None,
    policy: str | None = None,
    step: int | None = None,
    licence: str | None = None,
    source: str | None = None,
    citation: str | None = None,
) -> Imported:
    """Reads the folder or file `path` in the layout `format` (guessed if None).

    `metric`, `policy` and `step` belong to lm-eval; `licence`, `source` and `citation` are noted
    in the pool. Raises V0BenchError for an unknown layout and for anything wrong in the files.
    """
    path = Path(path)
    if not path.exists():
        raise V0BenchError(f"{path} does not exist")
    format = format or guess_format(path)
    if format not in FORMATS:
        raise V0BenchError(unknown_name("format", format, FORMATS))
    options = Options(metric, policy, step)
    if format != "lm-eval" and options != Options():
        raise V0BenchError("--metric, --policy and --step are for the format lm-eval alone")
    tables = FORMATS[format](path, options)
    pool = Pool(
        name or path.resolve().name.split(".")[0],
        tables.queries,
        tables.policies,
        tables.outcomes,
        licence=licence,
        source=source,
        citation=citation,
        places=tables.places,
    )
    return Imported(pool, (*tables.notes, *_unused_queries(pool), *_assign_families(pool)))


def guess_format(path: Path) -> str:
    """The layout of a folder or file, told by the names of its files and its columns."""
    if path.is_dir():
        return _guess_folder(path)
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        return "lm-eval"
    if path.suffix == ".csv":
        return "embedllm" if _has_column(path, "prompt_id") else "routerbench"
    if path.suffix == ".parquet":
        return "routerbench"
    return _unclear(path)


def _guess_folder(path: Path) -> str:
    for format, pattern in (
        ("long", "queries.jsonl"),
        ("v0-release", "prompt_dict.json"),
        ("lm-eval", "**/samples_*.jsonl"),
        ("llmrouterbench", "**/*.json"),
        ("routerbench", "**/*.parquet"),
    ):
        if next(path.glob(pattern), None) is not None:
            return format
    table = next(path.glob("**/*.csv"), None)
    return guess_format(table) if table is not None else _unclear(path)


def _has_column(path: Path, column: str) -> bool:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return column in file.readline().strip().replace('"', "").split(",")
    except OSError as error:
        raise V0BenchError(f"cannot read {path}: {error.strerror or error}") from error


def _unclear(path: Path) -> str:
    raise V0BenchError(
        f"cannot tell the format of {path}; pass --format, one of: {', '.join(FORMATS)}"
    )


def _unused_queries(pool: Pool) -> list[str]:
    unused = ~pool.queries["query_id"].isin(pool.outcomes["query_id"].unique())
    count = int(unused.sum())
    return [f"{counted(count, 'query', 'queries')} without any outcome"] if count else []


def _assign_families(pool: Pool) -> list[str]:
    """Sets the pool's families and says which policies were put together by their outcomes."""
    names = pool.policies["policy"].tolist()
    named = pool.policies["family"].astype(object)
    given = dict(zip(names, named.where(named.notna(), None), strict=True))
    assigned = families(pool.outcomes, names, given)
    family = pd.Series([assigned.families[name] for name in names], dtype="str")
    pool.policies = pool.policies.assign(family=family)
    return [
        f"one family: {left} and {right}, whose residual outcomes correlate at {correlation:.2f}"
        for left, right, correlation in assigned.merged
    ]
