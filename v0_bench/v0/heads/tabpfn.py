"""TabPFN as an in-context head: its architecture called directly, many episodes in one pass.

The checkpoint is a TabPFN classifier of any version (the paper uses 2.5), loaded by the `tabpfn`
package. Its scikit-learn class is not used: it fits one data set at a time and transforms the
features. With one estimator and no preprocessing both give the same probabilities.

Axes: E episodes of a batch, e episodes of one pass, N context items, n items with a place, M
queries, F features, f features that vary.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from v0_bench.errors import V0BenchError
from v0_bench.v0.heads.base import Head

WEIGHTS_VARIABLE = "V0_BENCH_TABPFN"
"""Environment variable that names the default weights."""
PAPER_VERSION = "v2.5"


class WeightsMissing(V0BenchError):
    """TabPFN's weights are not on this machine; the message says how to get them."""


def find_weights(weights: str | Path | None = None) -> Path:
    """The file of a TabPFN classifier, on this machine; nothing is downloaded.

    `weights` is a path, a version (`v2`, `v2.5`, ...), or a published file name; the last two are
    looked up in tabpfn's own cache folder. None stands for `$V0_BENCH_TABPFN`, else the paper's
    version. Raises WeightsMissing.
    """
    wanted = str(weights or os.environ.get(WEIGHTS_VARIABLE) or PAPER_VERSION)
    path = Path(wanted).expanduser()
    if path.is_file():
        return path
    from tabpfn.constants import ModelVersion  # late: seconds
    from tabpfn.model_loading import get_cache_dir, resolve_model_path

    if wanted in {version.value for version in ModelVersion}:
        path = resolve_model_path(None, "classifier", wanted)[0][0]
    elif path.name == wanted:
        path = get_cache_dir() / wanted
    if path.is_file():
        return path
    raise WeightsMissing(
        f"TabPFN weights {wanted!r} are neither a file nor in tabpfn's cache folder, and nothing "
        f"is downloaded. The paper's are tabpfn-v2.5-classifier-v2.5_default.ckpt from "
        f"https://huggingface.co/Prior-Labs/tabpfn_2_5: accept the licence there (weights of 2.5 "
        f"and later are for non-commercial use; those of v2, Prior-Labs/TabPFN-v2-clf, ask for "
        f"attribution only), and give the file's path as `weights` or in ${WEIGHTS_VARIABLE}."
    )


@dataclass(frozen=True)
class Group:
    """Episodes that share a context size and the features that vary, so that one pass does all."""

    episodes: Tensor
    """(e,) positions in the batch."""
    columns: Tensor
    """(f,) features that vary in the contexts."""
    rows: Tensor
    """(n, e, f) features of the context items."""
    classes: Tensor
    """(n, e) labels 0.0 or 1.0."""
    cache: Any = None
    """Keys and values of the context, in tabpfn's own form; None where gradients are wanted."""


@dataclass(frozen=True)
class EncodedContext:
    """What `TabPFNHead.encode` returns: groups of episodes, and logits where there is no group."""

    fallback: Tensor
    """(E,) logit of the smoothed context mean."""
    groups: tuple[Group, ...]


class TabPFNHead(Head):
    """The logit of success by a TabPFN classifier: (logit 1 - logit 0) / its softmax temperature.

    TabPFN takes classes. Each context item enters `copies` times, copy j = 0, 1, ... as a success
    if its success rate is at least (j + 1/2) / copies: one copy is the paper's threshold at one
    half, more copies keep the rate to the nearest 1 / copies, as rollouts of their own would, at a
    cost in proportion. It has no weights, so rollout counts are not used.

    A context whose copies are all of one class (an empty one too), or in which no feature varies,
    is nothing that TabPFN can classify by. All queries then get the logit of (sum of rates + 1/2) /
    (items + 1), the mean under a Beta(1/2, 1/2) prior: finite, and without a gradient. A feature
    that is constant in the context is left out, whatever the queries hold.

    With gradients enabled, `encode` keeps the context as it is and `logits` passes it through the
    network again; without, it keeps tabpfn's cache of keys and values (which carries no gradient),
    so that queries cost only themselves. The cache of a context of 256 with 1,008 features takes
    1.3 GB in float32 under architecture 2.5. `forward` is one pass without a cache.

    `weights`: see `find_weights`. `tuned` leaves the parameters trainable; the paper freezes them.
    `recompute` keeps only the input of each layer for the backward pass and computes the rest
    again: a third more time for a tenth of the memory (5 against 55 GB in the paper's training
    step). Raises WeightsMissing, and V0BenchError for a file that is not a TabPFN classifier.
    """

    n_features = None

    def __init__(
        self,
        weights: str | Path | None = None,
        *,
        copies: int = 1,
        tuned: bool = False,
        recompute: bool = True,
    ) -> None:
        super().__init__()
        if copies < 1:
            raise V0BenchError(f"copies must be at least 1, not {copies}")
        self.copies = copies
        self.recompute = recompute
        self.model, self.temperature = _load(find_weights(weights))
        self.model.requires_grad_(tuned)

    def encode(
        self, features: Tensor, labels: Tensor, counts: Tensor, mask: Tensor
    ) -> EncodedContext:
        """The contexts as groups; with tabpfn's cache unless gradients are enabled."""
        context = self._group(features, labels, mask)
        if torch.is_grad_enabled():
            return context
        groups = []
        for group in context.groups:
            _, cache = self.model(group.rows, group.classes, return_kv_cache=True)
            groups.append(Group(group.episodes, group.columns, group.rows, group.classes, cache))
        return EncodedContext(context.fallback, tuple(groups))

    def logits(self, state: EncodedContext, queries: Tensor) -> Tensor:
        """Logits (E, M) of queries (E, M, F)."""
        episodes, n_queries, _ = queries.shape
        result = state.fallback[:, None].expand(episodes, n_queries)
        if n_queries == 0:
            return result
        for group in state.groups:
            result = result.index_copy(0, group.episodes, self._classify(group, queries))
        return result

    def forward(
        self, features: Tensor, labels: Tensor, counts: Tensor, mask: Tensor, queries: Tensor
    ) -> Tensor:
        """Logits (E, M) in one pass of contexts and queries together."""
        return self.logits(self._group(features, labels, mask), queries)

    def _group(self, features: Tensor, labels: Tensor, mask: Tensor) -> EncodedContext:
        items = mask.sum(dim=1)
        rates = torch.where(mask, labels, 0).sum(dim=1)
        fallback = torch.logit((rates + 0.5) / (items + 1))
        groups = []
        for episodes, size, columns in self._alike(features.detach(), labels, mask):
            chosen = mask[episodes]
            rows = features[episodes][chosen].view(len(episodes), size, -1)
            classes = self._classes(labels[episodes][chosen]).view(len(episodes), size, -1)
            groups.append(
                Group(
                    episodes,
                    columns,
                    rows[..., columns].transpose(0, 1).repeat_interleave(self.copies, dim=0),
                    classes.permute(1, 2, 0).flatten(0, 1).to(rows.dtype),
                )
            )
        return EncodedContext(fallback, tuple(groups))

    def _alike(
        self, features: Tensor, labels: Tensor, mask: Tensor
    ) -> list[tuple[Tensor, int, Tensor]]:
        """(episodes, context size, columns) of each pass; episodes without one are left out."""
        if mask.shape[1] == 0:
            return []
        first = mask.int().argmax(dim=1)
        first_rows = features[torch.arange(len(features), device=features.device), first]
        varies = ((features != first_rows[:, None]) & mask[..., None]).any(dim=1)
        classes = self._classes(labels) * mask[..., None]
        successes = classes.sum(dim=(1, 2))
        items = mask.sum(dim=1)
        usable = (successes > 0) & (successes < self.copies * items) & varies.any(dim=1)
        found: dict[tuple[int, bytes], list[int]] = {}
        for episode in usable.nonzero().flatten().tolist():
            key = (int(items[episode]), varies[episode].cpu().numpy().tobytes())
            found.setdefault(key, []).append(episode)
        return [
            (
                torch.tensor(episodes, device=features.device),
                size,
                varies[episodes[0]].nonzero().flatten(),
            )
            for (size, _), episodes in found.items()
        ]

    def _classes(self, labels: Tensor) -> Tensor:
        """(..., copies): 1.0 where a copy of the item is a success."""
        thresholds = (torch.arange(self.copies, device=labels.device) + 0.5) / self.copies
        return (labels[..., None] >= thresholds).float()

    def _classify(self, group: Group, queries: Tensor) -> Tensor:
        """Logits (e, M) of a group's queries."""
        rows = queries[group.episodes][..., group.columns].transpose(0, 1)
        if group.cache is not None:
            outputs = self.model(rows, None, kv_cache=group.cache, x_is_test_only=True)
        else:
            from tabpfn.architectures.interface import PerformanceOptions

            recompute = self.recompute and torch.is_grad_enabled()
            outputs = self.model(
                torch.cat([group.rows, rows]),
                group.classes,
                performance_options=PerformanceOptions(force_recompute_layer=recompute),
            )
        return (outputs[..., 1] - outputs[..., 0]).T / self.temperature


def _load(path: Path) -> tuple[torch.nn.Module, float]:
    """The architecture with its weights, and the temperature its outputs are divided by."""
    from tabpfn.model_loading import load_model  # late: seconds

    try:  # tabpfn reads .ckpt by torch.load, whose default is weights_only, or safetensors
        model, _, _, inference = load_model(path=path, estimator_type="classifier")
    except Exception as error:  # a foreign file fails in its own way
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise V0BenchError(
            f"{path} is not a checkpoint of a TabPFN classifier that this version of tabpfn reads: "
            f"{reason}"
        ) from error
    return model, float(inference.SOFTMAX_TEMPERATURE)
