"""The policies that ship with the package: three as they were before reinforcement learning."""

from pathlib import Path

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name

POLICIES = ("micro-llama", "micro-seed", "micro-qwen3")


def step_zero(name: str) -> Path:
    """The folder of a policy's warm-start checkpoint: weights in half precision, tokenizer.

    Raises V0BenchError for a name that is not one of `POLICIES`.
    """
    if name not in POLICIES:
        raise V0BenchError(unknown_name("micro policy", name, POLICIES))
    return Path(__file__).parent / "policies" / name / "step_0"
