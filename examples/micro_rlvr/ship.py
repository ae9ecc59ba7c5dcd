"""Put a run into the package: step 0 of each policy in half precision, and its pool if it is there.

python examples/micro_rlvr/ship.py DIR
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from policies import TEACHING
from transformers import AutoModelForCausalLM, AutoTokenizer

from v0_bench.files import atomic_folder
from v0_bench.micro import step_zero
from v0_bench.pool import Pool
from v0_bench.pool.default import PACKAGED_POOL


def ship_step_zero(name: str, folder: Path) -> None:
    """Copy `folder`, a policy's warm-start checkpoint, into the package."""
    target = step_zero(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_folder(target, overwrite=True) as temporary:
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float16).save_pretrained(temporary)
        AutoTokenizer.from_pretrained(folder).save_pretrained(temporary)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the --output of run.py")
    folder = parser.parse_args().folder
    for name in TEACHING:
        ship_step_zero(name, folder / "policies" / name / "step_0")
        print(f"shipped step 0 of {name}")
    if (folder / "pool").is_dir():
        Pool.load(folder / "pool").save(PACKAGED_POOL, overwrite=True)
        print(f"shipped the pool to {PACKAGED_POOL}")
