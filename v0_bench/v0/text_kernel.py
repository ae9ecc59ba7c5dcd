"""A kernel on texts, and feature vectors whose inner products are that kernel.

Two texts are alike if they are alike to the backbone at several depths, in their n-grams, in what
they look like, and in their data set. Each of these views ("blocks") has a squared-exponential
kernel as wide as its median distance; their mean is the kernel. Nystroem's method on `landmarks`
training texts gives feature vectors (Williams and Seeger, NIPS 2000).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from v0_bench.embeddings import embed
from v0_bench.predictors.numerics import squared_distances
from v0_bench.v0.surface import surface_features

DATASET_WEIGHT = 0.4
"""Of sharing a data set, relative to the mean of the other blocks."""
SCALE_SAMPLE = 400
ROWS_AT_ONCE = 4096


def text_blocks(texts: Sequence[str], backbone: str) -> list[np.ndarray]:
    """The views of texts, each float32 (n, d): depths of the backbone, n-grams, surface."""
    views = [surface_features(texts), embed(texts, "hash")]
    if backbone != "hash":
        depths = embed(texts, f"{backbone}#depths")
        views += np.split(depths, 4, axis=1)
    return views


@dataclass(frozen=True)
class TextKernel:
    """Feature maps of the kernel; made by `fit_text_kernel`. Arrays are float32, to be small."""

    centres: tuple[np.ndarray, ...]
    scales: tuple[np.ndarray, ...]
    """Per block: what is taken off, and what is divided by, so that the median distance is 1."""
    landmarks: tuple[np.ndarray, ...]
    landmark_datasets: tuple[str, ...]
    whitening: np.ndarray
    """(landmarks, features)."""

    def features(self, blocks: Sequence[np.ndarray], datasets: Sequence[str]) -> np.ndarray:
        """Feature vectors of texts, float32 (n, features)."""
        n = len(datasets)
        parts = [
            self._features(
                [block[start : start + ROWS_AT_ONCE] for block in blocks],
                datasets[start : start + ROWS_AT_ONCE],
            )
            for start in range(0, n, ROWS_AT_ONCE)
        ]
        return np.concatenate([np.empty((0, self.whitening.shape[1]), np.float32), *parts])

    def _features(self, blocks: Sequence[np.ndarray], datasets: Sequence[str]) -> np.ndarray:
        scaled = _scaled(blocks, self.centres, self.scales)
        kernel = _kernel(scaled, self.landmarks, datasets, self.landmark_datasets)
        return (kernel @ self.whitening).astype(np.float32)


def fit_text_kernel(
    blocks: Sequence[np.ndarray], datasets: Sequence[str], landmarks: int, seed: int
) -> TextKernel:
    """The kernel of these texts, with at most `landmarks` of them as landmarks."""
    order = np.random.default_rng(seed).permutation(len(datasets))
    centres, scales = zip(*(_scale(block, order[:SCALE_SAMPLE]) for block in blocks), strict=True)
    chosen = order[:landmarks]
    points = tuple(_scaled([block[chosen] for block in blocks], centres, scales))
    names = tuple(datasets[i] for i in chosen)
    values, vectors = eigh(_kernel(points, points, names, names), driver="evd")
    kept = values > 1e-6 * values[-1]
    whitening = (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32)
    return TextKernel(centres, scales, points, names, whitening)


def _scale(block: np.ndarray, sample: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    centre, spread = block.mean(axis=0), block.std(axis=0)
    # Surface counts have units of their own; a backbone's coordinates share one.
    unit = np.where(spread > 1e-6, spread, 1.0) if block.shape[1] < 32 else np.ones_like(spread)
    rows = (block[sample] - centre) / unit
    distances = squared_distances(rows, rows)
    apart = distances[distances > 1e-9]
    median = float(np.median(apart)) if apart.size else 1.0
    return centre.astype(np.float32), (unit * np.sqrt(median)).astype(np.float32)


def _scaled(
    blocks: Sequence[np.ndarray], centres: Sequence[np.ndarray], scales: Sequence[np.ndarray]
) -> list[np.ndarray]:
    return [(b - c) / s for b, c, s in zip(blocks, centres, scales, strict=True)]


def _kernel(
    rows: Sequence[np.ndarray],
    columns: Sequence[np.ndarray],
    row_datasets: Sequence[str],
    column_datasets: Sequence[str],
) -> np.ndarray:
    kernel = np.zeros((len(row_datasets), len(column_datasets)))
    for a, b in zip(rows, columns, strict=True):
        squares = squared_distances(a, b)
        kernel += np.exp(np.multiply(squares, -0.5, out=squares), out=squares)
    kernel /= len(columns)
    place = {name: i for i, name in enumerate({*row_datasets, *column_datasets})}
    row, column = (np.array([place[n] for n in of]) for of in (row_datasets, column_datasets))
    kernel[row[:, None] == column] += DATASET_WEIGHT
    return kernel
