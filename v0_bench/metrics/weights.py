"""Row weights that follow from how often each query group counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from v0_bench.metrics.rows import Floats, Ints, Rows


@dataclass(frozen=True)
class Weights:
    """R weight vectors: `groups` (R, G) says how often each group counts, `group` (n,) is a row's.

    `take` looks weights up where they are needed instead of keeping a table of rows by replicates:
    the multiplicities are few and stay in the processor's cache.
    """

    group: Ints
    groups: Floats

    @staticmethod
    def once(rows: Rows) -> Weights:
        """One vector of ones: the rows as they are."""
        return Weights(rows.group, np.ones((1, int(rows.group.max()) + 1)))

    @property
    def number(self) -> int:
        """R, the number of weight vectors."""
        return len(self.groups)

    def take(self, index: Ints) -> Floats:
        """Weights of the rows `index`, (R, len(index))."""
        return self.groups.take(self.group[index], axis=1)
