"""The micro task: checkable word problems that policies of a million parameters can learn.

`held_out()` and `training_set()` are fixed sets; `draw` and `make_problems` make more.
"""

from v0_bench.micro.families import FAMILIES, LEVELS
from v0_bench.micro.problems import Problem, draw, held_out, make_problems, training_set

__all__ = [
    "FAMILIES",
    "LEVELS",
    "Problem",
    "draw",
    "held_out",
    "make_problems",
    "training_set",
]
