"""The paper's data pool in miniature: three tiny policies, trained and measured on a laptop.

    python examples/micro_rlvr/run.py --output DIR

Stages: warm-start (supervised), grpo (TRL), ground-truth (`v0-bench rollouts`), pool, plots. A run
that was stopped goes on where it was: type the same command again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from grpo import CHECKPOINTS, EVERY
from policies import TEACHING
from pool import make_pool

from v0_bench.cli import main as v0_bench
from v0_bench.pool import Pool

HERE = Path(__file__).parent
STAGES = ("warm-start", "grpo", "ground-truth", "pool", "plots")
PACKAGES = ("torch", "transformers", "trl", "accelerate", "lm_eval", "numpy", "pandas")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--stages", default=",".join(STAGES), help="default: %(default)s")
    parser.add_argument("--policies", default=",".join(TEACHING), help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time, of one thread")
    parser.add_argument(
        "--warm-start-steps", type=int, help="fewer than the policies need: for a quick trial"
    )
    parser.add_argument(
        "--checkpoints", type=int, default=CHECKPOINTS, help="beside step 0 (default: %(default)s)"
    )
    parser.add_argument("--limit", type=int, help="held-out queries to measure (default: all 800)")
    options = parser.parse_args()
    stages, names = options.stages.split(","), options.policies.split(",")
    for given, known in ((stages, STAGES), (names, TEACHING)):
        for name in given:
            if name not in known:
                parser.error(f"{name!r} is not one of {', '.join(known)}")
    for stage in STAGES:
        if stage in stages:
            start = time.time()
            print(f"== {stage}", flush=True)
            run_stage(stage, options, names)
            note(options.output, stage, time.time() - start)


def run_stage(stage: str, options: argparse.Namespace, names: Sequence[str]) -> None:
    """Run one stage for the named policies."""
    folder, policies = options.output, options.output / "policies"
    if stage == "warm-start":
        steps = options.warm_start_steps
        extra = [] if steps is None else ["--steps", str(steps)]
        waiting = [name for name in names if not (policies / name / "step_0").is_dir()]
        in_parallel([script("warm_start.py", policies, n, extra) for n in waiting], options.jobs)
    elif stage == "grpo":
        extra = ["--checkpoints", str(options.checkpoints)]
        last = f"step_{options.checkpoints * EVERY}"
        waiting = [name for name in names if not (policies / name / last).is_dir()]
        in_parallel([script("grpo.py", policies, n, extra) for n in waiting], options.jobs)
    elif stage == "ground-truth":
        limit = [] if options.limit is None else ["--limit", str(options.limit)]
        os.environ["OMP_NUM_THREADS"] = "1"
        status = v0_bench(
            [
                *("rollouts", str(policies), "--output", str(folder / "ground-truth")),
                *("--tasks", "v0_gt_micro", "--jobs", str(options.jobs), *limit),
            ]
        )
        if status:
            sys.exit("the ground truth is not complete; the same command resumes")
    elif stage == "pool":
        pool = make_pool(Pool.load(folder / "ground-truth" / "pool"), policies)
        pool.save(folder / "pool", overwrite=True)
        print(pool)
    else:
        from plots import plot

        plot(Pool.load(folder / "pool"), folder / "plots")
        shutil.copy(folder / "provenance.json", folder / "plots")


def script(file: str, policies: Path, name: str, extra: Sequence[str]) -> list[str]:
    """The command that does one policy's part of a stage."""
    return [sys.executable, str(HERE / file), name, str(policies / name), *extra]


def in_parallel(commands: Sequence[list[str]], jobs: int) -> None:
    """Run the commands, `jobs` at a time and one thread each; stop all where one fails."""
    waiting, running = list(commands), list[subprocess.Popen[bytes]]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                environment = os.environ | {
                    "OMP_NUM_THREADS": "1",
                    "TOKENIZERS_PARALLELISM": "false",
                    "BAR": str(len(commands) - len(waiting)),
                }
                running.append(subprocess.Popen(waiting.pop(0), env=environment))
            time.sleep(0.5)
            for process in [process for process in running if process.poll() is not None]:
                running.remove(process)
                if process.returncode:
                    sys.exit(f"{' '.join(process.args)} failed; the same command resumes")
    finally:
        for process in running:
            process.terminate()


def note(folder: Path, stage: str, seconds: float) -> None:
    """Add what a stage took to `provenance.json`; a stage run in pieces adds up."""
    file = folder / "provenance.json"
    facts = json.loads(file.read_text()) if file.exists() else {"seconds": {}}
    took = facts["seconds"].get(stage, 0.0) + seconds
    facts["seconds"][stage] = round(took, 1)
    facts |= {
        "command": "python examples/micro_rlvr/run.py --output DIR",
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "versions": {name: version(name) for name in PACKAGES},
        "seeds": {name: teaching.seed for name, teaching in TEACHING.items()},
    }
    file.write_text(json.dumps(facts, indent=1) + "\n")
    print(f"== {stage} took {seconds / 60:.1f} min (in all {took / 60:.1f})", flush=True)


if __name__ == "__main__":
    main()
