"""V0-Bench: how likely is this policy to solve this query, before a single token is generated?

Names are loaded when first used, so `import v0_bench` is quick and needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from v0_bench.episode import Context, Queries, TrainingOutcomes
    from v0_bench.errors import V0BenchError
    from v0_bench.pool import Pool
    from v0_bench.predictors import (
        Predictor,
        PredictorInfo,
        create_predictor,
        register_predictor,
    )
    from v0_bench.v0.model import V0

_HOME = {
    "Context": "v0_bench.episode",
    "Queries": "v0_bench.episode",
    "V0": "v0_bench.v0.model",
    "TrainingOutcomes": "v0_bench.episode",
    "V0BenchError": "v0_bench.errors",
    "Pool": "v0_bench.pool",
    "Predictor": "v0_bench.predictors",
    "PredictorInfo": "v0_bench.predictors",
    "create_predictor": "v0_bench.predictors",
    "register_predictor": "v0_bench.predictors",
}

__all__ = [
    "V0",
    "Context",
    "Pool",
    "Predictor",
    "PredictorInfo",
    "Queries",
    "TrainingOutcomes",
    "V0BenchError",
    "create_predictor",
    "register_predictor",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
