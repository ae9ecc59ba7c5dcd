"""The micro task: checkable word problems that policies of a million parameters can learn.

`held_out()` and `training_set()` are fixed sets; `draw` and `make_problems` make more. `step_zero`
is where the three policies lie that ship with the package.
"""

from v0_bench.micro.families import FAMILIES, LEVELS
from v0_bench.micro.problems import Problem, draw, held_out, make_problems, training_set
from v0_bench.micro.shipped import POLICIES, step_zero

__all__ = [
    "FAMILIES",
    "LEVELS",
    "POLICIES",
    "Problem",
    "draw",
    "held_out",
    "make_problems",
    "step_zero",
    "training_set",
]
