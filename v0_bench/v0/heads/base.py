"""The contract of an in-context head.

Axes: E episodes, N context items (padded), M queries, F features.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor, nn


class Head(nn.Module, ABC):
    """Context features with their labels, and query features, to logits; value = sigmoid(logit).

    Differentiable to the features of context and queries. In `eval` mode a head is deterministic,
    an episode's logits do not depend on the other episodes of the batch, and every logit is finite,
    also where a context is empty or all its labels are equal.
    """

    n_features: int | None
    """F, the width of the feature vectors it takes; None for any."""

    @abstractmethod
    def encode(self, features: Tensor, labels: Tensor, counts: Tensor, mask: Tensor) -> Any:
        """The encoded context, reusable for any number of queries.

        features: (E, N, F) float32. labels: (E, N) success rates in [0, 1]. counts: (E, N) rollouts
        >= 1 behind each label. mask: (E, N) bool, True where there is an item; what stands
        elsewhere is ignored. N may be 0.
        """

    @abstractmethod
    def logits(self, state: Any, queries: Tensor) -> Tensor:
        """Logits (E, M) of queries (E, M, F) against the encoded contexts of E episodes."""

    def forward(
        self, features: Tensor, labels: Tensor, counts: Tensor, mask: Tensor, queries: Tensor
    ) -> Tensor:
        """`logits` of `encode`: (E, M). A head overrides it where one pass is cheaper."""
        return self.logits(self.encode(features, labels, counts, mask), queries)
