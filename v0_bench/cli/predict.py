"""`v0-bench predict`: values of queries for the policy that a context describes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from v0_bench.episode import Context, Queries

EXAMPLES = """Files are JSON lines. A context line holds text and mean_reward, and may hold
n_rollouts (1), query_id, dataset and cost; a query line holds text, and may hold query_id and
dataset. Out come lines {"query_id": ..., "value": ...}, in the order of the queries; a query
without an id gets its place, from 0.

examples:
  v0-bench predict --context context.jsonl --queries queries.jsonl
  v0-bench predict --context context.jsonl --queries queries.jsonl --predictor my_model
  v0-bench predict --context c.jsonl --queries q.jsonl --predictor knn --output values.jsonl
  v0-bench predict --context c.jsonl --queries q.jsonl --predictor additive --pool my_pool
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `predict`."""
    parser = subparsers.add_parser(
        "predict",
        help="success rates of queries, predicted from a context",
        description="Predict how likely a policy, known by a context, is to solve queries.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--context", required=True, metavar="FILE", type=Path, help="what the policy has tried")
    add("--queries", required=True, metavar="FILE", type=Path, help="what it is asked")
    add(
        "--predictor",
        default="v0",
        metavar="NAME|PATH",
        help="a predictor's name, or the folder of a V0 model (default: v0, the packaged model)",
    )
    add("--pool", metavar="PATH|NAME", help="fit the predictor to all outcomes of this pool first")
    add("--backbone", metavar="B", help="of a named predictor (default: its own)")
    add("--device", default="cpu", metavar="D", help="cpu (default), cuda, ...")
    add("--output", metavar="FILE", type=Path, help="file to write (default: standard output)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Predicts and writes."""
    from v0_bench.files import atomic_file

    context, queries = read_context(args.context), read_queries(args.queries)
    values = _predictor(args)(context, queries)
    lines = "".join(
        json.dumps({"query_id": query_id, "value": float(value)}) + "\n"
        for query_id, value in zip(queries.query_ids, values, strict=True)
    )
    if args.output is None:
        sys.stdout.write(lines)
    else:
        with atomic_file(args.output) as path:
            path.write_text(lines, encoding="utf-8")
    return 0


def _predictor(args: argparse.Namespace) -> Callable[[Context, Queries], np.ndarray]:
    from v0_bench.errors import V0BenchError
    from v0_bench.predictors import check_values, create_predictor

    if Path(args.predictor).is_dir() or "/" in args.predictor:
        from v0_bench.v0.model import V0

        if args.pool or args.backbone:
            raise V0BenchError("--pool and --backbone are for predictors given by name")
        return V0.from_pretrained(args.predictor, device=args.device).predict
    predictor = create_predictor(args.predictor, backbone=args.backbone, device=args.device)
    reason = predictor.why_unavailable()
    if reason is not None:
        raise V0BenchError(reason)
    if args.pool:
        from v0_bench.cli.train import all_outcomes
        from v0_bench.pool.default import resolve_pool

        predictor.fit(all_outcomes(resolve_pool(args.pool)))
    return lambda context, queries: check_values(
        predictor.predict(context, queries), len(queries), args.predictor
    )


def read_context(path: Path) -> Context:
    """A context from JSON lines; V0BenchError names file and line of a fault."""
    import numpy as np

    from v0_bench.episode import Context

    rows = _rows(path, required={"text": str, "mean_reward": float})
    for place, row in rows:
        _check(0 <= row["mean_reward"] <= 1, place, "mean_reward must lie in [0, 1]")
        _check(row.get("n_rollouts", 1) >= 1, place, "n_rollouts must be at least 1")
    texts, ids, datasets = _columns(rows)
    return Context(
        texts,
        np.array([row["mean_reward"] for _, row in rows], dtype=float),
        np.array([row.get("n_rollouts", 1) for _, row in rows], dtype=int),
        ids,
        datasets,
        np.array([row.get("cost", np.nan) for _, row in rows], dtype=float),
    )


def read_queries(path: Path) -> Queries:
    """Queries from JSON lines; V0BenchError names file and line of a fault."""
    from v0_bench.episode import Queries

    return Queries(*_columns(_rows(path, required={"text": str})))


OPTIONAL: dict[str, type] = {"n_rollouts": int, "query_id": str, "dataset": str, "cost": float}

Row = tuple[str, dict[str, Any]]


def _rows(path: Path, required: dict[str, type]) -> list[Row]:
    """(place, row) of every line, types checked; a null is as good as absent."""
    from v0_bench.pool.importers.reading import jsonl_rows

    rows = []
    for number, raw in jsonl_rows(path):
        place = f"{path}, line {number}"
        row = {name: value for name, value in raw.items() if value is not None}
        for name, kind in (required | OPTIONAL).items():
            _check(name in row or name not in required, place, f"{name!r} is missing")
            wanted = (int, float) if kind is float else kind
            good = isinstance(row.get(name, kind()), wanted) and not isinstance(row.get(name), bool)
            _check(
                good, place, f"{name} must be of type {kind.__name__}, not {row.get(name)!r:.40}"
            )
        rows.append((place, row))
    return rows


def _check(good: bool, place: str, problem: str) -> None:
    from v0_bench.errors import V0BenchError

    if not good:
        raise V0BenchError(f"{place}: {problem}")


def _columns(rows: list[Row]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Texts, query ids and data sets."""
    return (
        tuple(row["text"] for _, row in rows),
        tuple(row.get("query_id", str(i)) for i, (_, row) in enumerate(rows)),
        tuple(row.get("dataset", "") for _, row in rows),
    )
