"""Bootstrap resamples, drawn once and shared by every checkpoint, predictor and seed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MIN_FAMILIES = 6


@dataclass(frozen=True)
class Resample:
    """How often each query group (R, G) and each family (R, F) occurs in each replicate.

    `families` is None under MIN_FAMILIES families: too few to stand for others.
    """

    groups: npt.NDArray[np.uint16]
    families: npt.NDArray[np.uint16] | None


def draw_resample(groups: int, families: int, replicates: int, seed: int) -> Resample:
    """Draw groups, and families if there are enough, with replacement, `replicates` times."""
    group_rng, family_rng = (
        np.random.default_rng(child) for child in np.random.SeedSequence(seed).spawn(2)
    )
    return Resample(
        groups=_multiplicities(groups, replicates, group_rng),
        families=(
            _multiplicities(families, replicates, family_rng) if families >= MIN_FAMILIES else None
        ),
    )


def _multiplicities(size: int, replicates: int, rng: np.random.Generator) -> npt.NDArray[np.uint16]:
    counts = np.empty((replicates, size), dtype=np.uint16)
    for row in counts:
        row[:] = np.bincount(rng.integers(size, size=size), minlength=size)
    return counts
