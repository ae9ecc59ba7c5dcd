"""Shares a budget of rollouts among queries, given how likely each is to be solved."""

from v0_bench.budget.allocate import METHODS, allocate
from v0_bench.budget.utilities import UTILITIES, utility

__all__ = ["METHODS", "UTILITIES", "allocate", "utility"]
