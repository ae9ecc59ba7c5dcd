"""How a pool is split into what predictors may learn from and what they are tested on."""

from v0_bench.protocols.folds import Fold, Stage
from v0_bench.protocols.leaks import LeakError, check_leaks
from v0_bench.protocols.splits import (
    PROTOCOLS,
    NotApplicable,
    check_protocol_name,
    default_protocol,
    make_folds,
)

__all__ = [
    "PROTOCOLS",
    "Fold",
    "LeakError",
    "NotApplicable",
    "Stage",
    "check_leaks",
    "check_protocol_name",
    "default_protocol",
    "make_folds",
]
