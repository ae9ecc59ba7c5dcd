"""What a predictor is, and how one is found by name."""

from v0_bench.predictors.base import Predictor, PredictorInfo
from v0_bench.predictors.check import PredictorError, check_values
from v0_bench.predictors.registry import (
    available_predictors,
    create_predictor,
    predictor_class,
    register_predictor,
)

__all__ = [
    "Predictor",
    "PredictorError",
    "PredictorInfo",
    "available_predictors",
    "check_values",
    "create_predictor",
    "predictor_class",
    "register_predictor",
]
