"""`v0-bench rollouts`: sample checkpoints on tasks, resumably, and make a pool of the outcomes."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from v0_bench.pool.pool import Pool
    from v0_bench.rollouts.run import Report, Workers
    from v0_bench.rollouts.settings import Output, Settings
    from v0_bench.rollouts.to_pool import Facts

EXAMPLES = """CHECKPOINTS is a checkpoint, a folder of step_N (or checkpoint-N) folders, a folder of
such folders by policy, or a YAML plan (docs/rollouts.md). A run that was killed goes on where it
stopped: type the same command again.

examples:
  v0-bench rollouts runs/my_policy --tasks v0_gt_math500 --output out
  v0-bench rollouts runs --tasks v0_gt_aime24,v0_gt_aime25 --output out --backend v0-vllm
  v0-bench rollouts runs --tasks v0_gt_math500 --metadata v0_gt_math500=problems.jsonl \\
      --output out --gen-kwargs max_gen_toks=512,temperature=0.6 --jobs 2
  v0-bench rollouts plan.yaml --output out --ray auto --json
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `rollouts`."""
    parser = subparsers.add_parser(
        "rollouts",
        help="sample checkpoints on lm-eval tasks, resumably; gives a pool",
        description="Sample every checkpoint on every query of lm-eval tasks, and make a pool.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("checkpoints", metavar="CHECKPOINTS", type=Path, help="folder, or YAML plan")
    add("--output", metavar="OUT", type=Path, required=True, help="journals, samples, pool")
    add("--tasks", metavar="T,...", help="lm-eval tasks that generate text")
    add("--backend", metavar="NAME", help="v0-hf (default), v0-vllm, or any of lm-eval's")
    add("--model-args", metavar="K=V,...", type=_pairs, help="for the backend: dtype=bfloat16,...")
    add("--gen-kwargs", metavar="K=V,...", type=_pairs, help="over the tasks' sampling options")
    add("--metadata", metavar="TASK=FILE", action="append", type=_pairs, help="local problems")
    add("--limit", metavar="N", type=int, help="only the first N queries of each task")
    add("--seed", metavar="N", type=int, help="of the sampling (default: 0)")
    add("--batch-size", metavar="N", help="rollouts at a time (default: 320 for v0-hf)")
    add("--chunk", metavar="N", type=int, help="queries between writes (64; engines: 512)")
    add("--device", metavar="D", help="cpu, cuda, ... (default: cuda if there is one)")
    add("--no-chat-template", dest="chat_template", action="store_false", default=None)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", metavar="N", type=int, help="processes (default: one a GPU, or 1)")
    where.add_argument(
        "--ray", metavar="ADDRESS", nargs="?", const="auto", help="an existing Ray cluster instead"
    )
    add("--ray-cpus", metavar="N", type=float, default=1.0, help="an actor's, without GPUs (1.0)")
    add("--name", help="name of the pool (default: that of OUT)")
    add("--params-b", metavar="B", type=float, help="billions of parameters (default: counted)")
    add("--price-in", metavar="USD", type=float, help="per million prompt tokens")
    add("--price-out", metavar="USD", type=float, help="per million sampled tokens")
    add("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=_run)


def _pairs(text: str) -> dict[str, Any]:
    """Values as YAML reads them: numbers, true, false, null, [lists], else text."""
    import yaml

    pairs: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise argparse.ArgumentTypeError(f"{part!r} is not of the form NAME=VALUE")
        try:
            pairs[name.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            pairs[name.strip()] = value
    return pairs


def _run(args: argparse.Namespace) -> int:
    from v0_bench.rollouts.plan import TYPES, make_settings, read_plan
    from v0_bench.rollouts.run import locked_output, run
    from v0_bench.rollouts.to_pool import Facts

    plan = read_plan(args.checkpoints)
    given = {name: getattr(args, name) for name in (*TYPES, "tasks")}
    given["metadata"] = _absolute(args.metadata) if args.metadata else None
    settings = make_settings(
        plan.options | {name: value for name, value in given.items() if value is not None}
    )
    over = {name: getattr(args, name) for name in ("params_b", "price_in", "price_out")}
    over = {name: value for name, value in over.items() if value is not None}
    policies = {checkpoint.policy for checkpoint in plan.checkpoints}
    facts = {policy: replace(plan.facts.get(policy, Facts()), **over) for policy in policies}
    with locked_output(args.output.absolute()) as output:
        report = run(plan.checkpoints, _workers(args, settings, output), output)
        pool = _save_pool(output, args.name or args.output.resolve().name, facts, report)
    _print(report, pool, output, args.json)
    return 1 if report.failed else 0


def _absolute(metadata: list[dict[str, Any]]) -> dict[str, Any]:
    """All pairs, with paths that hold wherever a worker runs."""
    pairs = {name: value for given in metadata for name, value in given.items()}
    files = {name for name, value in pairs.items() if Path(str(value)).exists()}
    return pairs | {name: str(Path(str(pairs[name])).absolute()) for name in files}


def _workers(args: argparse.Namespace, settings: Settings, output: Output) -> Workers:
    from v0_bench.errors import V0BenchError

    if args.ray is not None:
        from v0_bench.rollouts.cluster import RayWorkers

        return RayWorkers(settings, output, args.ray, args.ray_cpus)
    from v0_bench.rollouts.local import LocalWorkers

    if args.jobs is not None and args.jobs < 1:
        raise V0BenchError("--jobs must be 1 or more")
    return LocalWorkers(settings, output, args.jobs)


def _save_pool(output: Output, name: str, facts: dict[str, Facts], report: Report) -> Pool | None:
    """The pool of all that is finished in the output; None where nothing is."""
    from v0_bench.rollouts.to_pool import known_facts, make_pool

    known = known_facts(output, facts)
    if not report.done:
        return None
    pool = make_pool(output, name, known)
    pool.save(output.pool, overwrite=True)
    return pool


def _print(report: Report, pool: Pool | None, output: Output, as_json: bool) -> None:
    rows = [
        {
            "checkpoint": done.checkpoint.name,
            "task": task,
            "avg@k": scores.get("avg@k"),
            "mean_tokens": scores.get("mean_tokens"),
            "seconds": round(done.seconds, 2),
        }
        for done in report.done
        for task, scores in done.scores.items()
    ]
    facts = {
        "checkpoints": rows,
        "failed": {item.checkpoint.name: item.reason for item in report.failed},
        "queries": report.queries,
        "reused": report.reused,
        "tokens": report.tokens,
        "tokens_per_second": round(report.tokens_per_second, 1),
        "pool": str(output.pool) if pool else None,
    }
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("checkpoint", "task", "avg@k", "tokens", "seconds", box=None)
    for row in rows:
        numbers = (row["avg@k"], row["mean_tokens"])
        table.add_row(
            str(row["checkpoint"]),
            str(row["task"]),
            *("-" if number is None else f"{number:.3f}" for number in numbers),
            f"{row['seconds']:.1f}",
        )
    Console().print(table)
    print(
        f"{report.queries:,} queries, {report.reused:,} of them from earlier runs; "
        f"{report.tokens:,} tokens sampled, {report.tokens_per_second:,.0f} a second"
    )
    for failed in report.failed:
        print(f"skipped {failed.checkpoint.name}: {failed.reason}")
    if pool is not None:
        print(f"{output.pool}: {pool}")
