"""The projection of stored token states, straight from half precision on disk.

Padding the states of a training step to float32 (B, L, D) costs more memory and time than all that
follows: 528 prompts of up to 256 MiniLM tokens are 208 MB. Here a few thousand tokens at a time are
widened, projected and dropped, and read again for the gradient of the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

CHUNK_TOKENS = 4096  # at D = 384, 6 MB in float32: about a processor cache


def project_stored(arrays: Sequence[np.ndarray], linear: nn.Linear) -> tuple[Tensor, Tensor]:
    """Projected states (B, L, P), zero on padding, and their mask (B, L).

    arrays: states float16 (tokens, D) of B texts. Differentiable in the weights of `linear`; the
    states, being those of a frozen backbone, have no gradient.
    """
    lengths = torch.tensor([len(array) for array in arrays], dtype=torch.long)
    longest = int(lengths.max()) if arrays else 0
    mask_BL = (torch.arange(longest) < lengths[:, None]).to(linear.weight.device)
    projected_TP = _Projection.apply(linear.weight, arrays) + linear.bias
    padded_BLP = projected_TP.new_zeros(*mask_BL.shape, linear.out_features)
    return padded_BLP.index_put((mask_BL,), projected_TP), mask_BL


class _Projection(torch.autograd.Function):
    """weight (P, D), states of B texts -> (T, P), all tokens one after the other."""

    @staticmethod
    def forward(ctx: Any, weight_PD: Tensor, arrays: Sequence[np.ndarray]) -> Tensor:
        ctx.arrays, ctx.weight = arrays, weight_PD
        blocks = [chunk_TD @ weight_PD.T for chunk_TD in _chunks(arrays, weight_PD)]
        return torch.cat([weight_PD.new_empty(0, len(weight_PD)), *blocks])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_TP: Tensor) -> tuple[Tensor, None]:
        grad_PD, start = torch.zeros_like(ctx.weight), 0
        for chunk_TD in _chunks(ctx.arrays, grad_TP):
            grad_PD += grad_TP[start : start + len(chunk_TD)].T @ chunk_TD
            start += len(chunk_TD)
        return grad_PD, None


def _chunks(arrays: Sequence[np.ndarray], like: Tensor) -> Iterator[Tensor]:
    """The states of whole texts, a chunk at a time, in the type and on the device of `like`."""
    chunk: list[Tensor] = []
    tokens = 0
    for i, array in enumerate(arrays):
        chunk.append(torch.from_numpy(array))
        tokens += len(array)
        if tokens >= CHUNK_TOKENS or i == len(arrays) - 1:
            yield torch.cat(chunk).to(like)
            chunk, tokens = [], 0
