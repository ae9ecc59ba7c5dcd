"""The V0 model: (context of outcomes, queries) -> probabilities, without a gradient step.

value = sigmoid(w head([hint, components, data set, adapter]) + (1 - w) head([hint])), where hint,
components and data set of a text come from training outcomes (`featuriser.py`), the adapter's
features from its token states, and the interaction weight w in [0, 1] was chosen on validation
policies and queries.

Axes: E episodes, N context items, M queries, F features.
"""

from __future__ import annotations

import hashlib
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from huggingface_hub import ModelCard, ModelHubMixin
from scipy.special import expit
from torch import Tensor, nn

from v0_bench.embeddings import TokenStates, token_states
from v0_bench.embeddings.backbones import resolve_backbone
from v0_bench.embeddings.states import EVERY, Rows
from v0_bench.embeddings.transformer import check_device
from v0_bench.episode import Context, Queries, TrainingOutcomes
from v0_bench.errors import V0BenchError
from v0_bench.v0.adapter import Connector, ConnectorConfig
from v0_bench.v0.config import V0Config
from v0_bench.v0.connectors import make_connector
from v0_bench.v0.featuriser import Featuriser, fit_featuriser
from v0_bench.v0.heads.base import Head
from v0_bench.v0.heads.saved import load_head, packaged_head

TEXTS_AT_ONCE = 64  # whose token states are attended over
QUERIES_AT_ONCE = 2048
EPISODES_AT_ONCE = 16
CACHED_CONTEXTS = {"icl": 64, "gp": 64, "tabpfn": 1}  # TabPFN's are gigabytes

ContextLike = Context | Sequence[tuple[str, float] | tuple[str, float, int]]
QueriesLike = Queries | Sequence[str]


class Logits(NamedTuple):
    """What the head says from all features, and from the hint alone; None where not asked."""

    full: Any
    hint: Any


@dataclass(frozen=True)
class EncodedContext:
    """A context that a model has encoded; new queries against it cost only themselves."""

    context: Context
    version: object
    """Of the model."""
    states: dict[bool, Logits]
    """States of the head, by whether training texts are taken as known."""


class V0(nn.Module, ModelHubMixin):
    """The V0 model of arXiv 2602.03584, with a residual path for what training outcomes tell.

    `V0.from_pretrained("micro")` is the packaged model. `V0(config)` is a new one with a
    pre-trained head; `head` replaces the one that the configuration names. On a CPU the heads
    `icl` and `gp` predict in float64, so that a value does not depend on which others are asked
    for at the same time; else in float32.

    Raises V0BenchError for unknown parts, features too many for the head, or an absent device.
    """

    centre: Tensor
    scale: Tensor
    axes: Tensor | None

    def __init__(
        self,
        config: V0Config,
        *,
        head: Head | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        super().__init__()
        check_device(device)
        self.connector: Connector | None = None
        if config.connector is not None:
            config = replace(config, hidden_size=config.hidden_size or _hidden_size(config, device))
            self.connector = _new_connector(config, seed)
        self.config = config
        self.head = head if head is not None else _pretrained_head(config)
        self.featuriser: Featuriser | None = None
        self._interaction_weight = 1.0
        self.facts: dict[str, Any] = {}
        """What a model card should say: data fingerprints, training."""
        width = self.connector.n_features if self.connector is not None else 0
        axes = config.axes if self.connector is not None else None
        self.register_buffer("axes", torch.eye(width, axes) if axes else None)
        self.register_buffer("centre", torch.zeros(axes or width))
        self.register_buffer("scale", torch.ones(()))
        self._cache: OrderedDict[bytes, EncodedContext] = OrderedDict()
        self._token = object()
        self._check_width()
        self.to(device)
        self.settle()

    @property
    def interaction_weight(self) -> float:
        """w: how much the components and the adapter count against the hint alone."""
        return self._interaction_weight

    @interaction_weight.setter
    def interaction_weight(self, weight: float) -> None:
        if not 0 <= weight <= 1:
            raise V0BenchError(f"the interaction weight must lie in [0, 1], not {weight}")
        self._interaction_weight = weight
        self._forget()

    @property
    def n_features(self) -> int:
        """F, the width of what the head gets of a text."""
        return self.config.n_residual + len(self.centre)

    def settle(self) -> V0:
        """Makes the model ready to predict, after its parts have changed."""
        self._forget()
        self.eval()
        exact = self.config.head != "tabpfn" and self.centre.device.type == "cpu"
        return self.double() if exact else self.float()

    def drop_connector(self) -> None:
        """Leaves the adapter out, for good."""
        self.connector = self.axes = None
        self.centre = self.centre[:0]
        self.config = replace(self.config, connector=None)

    def learn_features(self, train: TrainingOutcomes, seed: int = 0) -> V0:
        """Learns the residual path from training outcomes; forgets what was learned before.

        Too few outcomes leave it empty: hint and components are then 0.
        """
        self.featuriser = None
        if self.config.residual_path:
            backbone = resolve_backbone(self.config.backbone).name  # without its pooling
            config = self.config
            sizes = config.components, config.dataset_features, config.landmarks
            self.featuriser = fit_featuriser(train, backbone, *sizes, seed)
        self._forget()
        return self

    def _forget(self) -> None:
        """Encoded contexts are of no use any more, those that a caller keeps neither."""
        self._cache.clear()
        self._token = object()

    def predict(self, context: ContextLike | EncodedContext, queries: QueriesLike) -> np.ndarray:
        """Values of the queries, float64 (n,) in [0, 1], in their order.

        context: a `Context`, a sequence of (text, success rate) or (text, success rate,
        rollouts), or what `encode` returned. It may be empty. Of one over the limit of the
        configuration, items are drawn, with a warning. queries: `Queries` or texts, in any number;
        an empty text is answered like any other, a long one from the tokens the backbone reads.

        Raises V0BenchError for success rates that are NaN or outside [0, 1], and for texts that
        are not strings.
        """
        encoded = self.encode(context)
        asked = as_queries(queries)
        values = np.empty(len(asked))
        for start in range(0, len(asked), QUERIES_AT_ONCE):
            chunk = slice(start, start + QUERIES_AT_ONCE)
            texts, datasets = asked.texts[chunk], asked.datasets[chunk]
            for seen, places in self._by_knowledge(texts):
                rows = self.features(*_chosen(texts, datasets, places), seen)
                found = self._answer(self._state(encoded, seen), rows[None])
                values[start + places] = expit(self._mixed(found)[0])
        return values

    def predict_many(self, pairs: Sequence[tuple[ContextLike, QueriesLike]]) -> list[np.ndarray]:
        """`predict` for many episodes: each text's features are made once, episodes in batches."""
        return [expit(self._mixed(logits)) for logits in self.logits_many(pairs)]

    def encode(self, context: ContextLike | EncodedContext) -> EncodedContext:
        """A context ready for queries. Recent ones are kept, found again by their contents.

        One that was encoded before the model last changed, or by another, is encoded anew.
        """
        if isinstance(context, EncodedContext):
            if context.version is self._token:
                return context
            context = context.context
        limited = self._limited(as_context(context))
        key = _content_key(limited)
        encoded = self._cache.pop(key, None) or EncodedContext(limited, self._token, {})
        self._cache[key] = encoded
        while len(self._cache) > CACHED_CONTEXTS[self.config.head]:
            self._cache.popitem(last=False)
        self._state(encoded, False)
        return encoded

    @torch.no_grad()
    def logits_many(
        self, pairs: Sequence[tuple[ContextLike, QueriesLike]], both: bool = False
    ) -> list[Logits]:
        """Logits float64 (M,) of each episode; `both` also where the interaction weight is 0 or 1.

        Contexts over the limit are cut as in `predict`.
        """
        episodes = [(self._limited(as_context(c)), as_queries(q)) for c, q in pairs]
        results = [
            Logits(*(np.empty(len(queries)) if needed else None for needed in self._passes(both)))
            for _, queries in episodes
        ]
        problems = [
            _Problem(i, context, queries, seen, places[start : start + QUERIES_AT_ONCE])
            for i, (context, queries) in enumerate(episodes)
            for seen, places in self._by_knowledge(queries.texts)
            for start in range(0, len(places), QUERIES_AT_ONCE)
        ]
        problems.sort(key=lambda problem: len(problem.context))  # like sizes waste no padding
        table = _FeatureTable(self, episodes)
        for start in range(0, len(problems), EPISODES_AT_ONCE):
            batch = problems[start : start + EPISODES_AT_ONCE]
            contexts = [p.context for p in batch]
            shown = [table.rows(p.context.texts, p.context.datasets, p.seen) for p in batch]
            asked = [
                table.rows(*_chosen(p.queries.texts, p.queries.datasets, p.places), p.seen)
                for p in batch
            ]
            state = self._encode(contexts, shown, both)
            found = self._answer(state, nn.utils.rnn.pad_sequence(asked, batch_first=True))
            for i, p in enumerate(batch):
                for part, values in zip(found, results[p.episode], strict=True):
                    if part is not None:
                        values[p.places] = part[i, : len(p.places)]
        return results

    def _by_knowledge(self, texts: Sequence[str]) -> Iterator[tuple[bool, np.ndarray]]:
        """(seen, places) of the texts without and with training outcomes.

        The hint of a text with training outcomes is far better, so such a query is asked against
        a context whose hints are as good.
        """
        knows = self.featuriser.knows(texts) if self.featuriser else np.zeros(len(texts), bool)
        for seen in (False, True):
            places = np.flatnonzero(knows == seen)
            if len(places):
                yield seen, places

    def _passes(self, both: bool = False) -> tuple[bool, bool]:
        return both or self.interaction_weight > 0, both or self.interaction_weight < 1

    def _mixed(self, logits: Logits) -> np.ndarray:
        weight = self.interaction_weight
        if weight in (0, 1):
            return logits.full if weight else logits.hint
        return weight * logits.full + (1 - weight) * logits.hint

    @torch.no_grad()
    def _state(self, encoded: EncodedContext, seen: bool) -> Logits:
        if seen not in encoded.states:
            context = encoded.context
            rows = self.features(context.texts, context.datasets, seen)
            encoded.states[seen] = self._encode([context], [rows])
        return encoded.states[seen]

    def _encode(
        self, contexts: Sequence[Context], rows: Sequence[Tensor], both: bool = False
    ) -> Logits:
        """States of the head for contexts with features (N, F) each."""
        features, labels, counts, mask = padded_contexts(contexts, rows)
        inputs = (features, features[..., :1])
        return Logits(
            *(
                self.head.encode(part, labels, counts, mask) if needed else None
                for part, needed in zip(inputs, self._passes(both), strict=True)
            )
        )

    @torch.no_grad()
    def _answer(self, state: Logits, queries: Tensor) -> Logits:
        """Logits float64 (E, M) of queries (E, M, F)."""
        inputs = (queries, queries[..., :1])
        return Logits(
            *(
                None if part is None else self.head.logits(part, rows).double().cpu().numpy()
                for part, rows in zip(state, inputs, strict=True)
            )
        )

    @torch.no_grad()
    def features(self, texts: Sequence[str], datasets: Sequence[str], seen: bool) -> Tensor:
        """Features (n, F) of texts; `seen`: as in `Featuriser.features`."""
        parts = [torch.from_numpy(self.residual(texts, datasets, seen)).to(self.centre)]
        if self.connector is not None:
            stored = self.token_states(texts)
            order = np.argsort(stored.lengths, kind="stable")  # like lengths waste no padding
            found = parts[0].new_empty(len(texts), len(self.centre))
            for start in range(0, len(texts), TEXTS_AT_ONCE):
                rows = order[start : start + TEXTS_AT_ONCE]
                found[torch.from_numpy(rows)] = self.adapted(stored, rows)
            parts.append(found)
        return torch.cat(parts, dim=1)

    def residual(self, texts: Sequence[str], datasets: Sequence[str], seen: bool) -> np.ndarray:
        """The residual path's features, float32 (n, n_residual); absent ones are 0."""
        rows = np.zeros((len(texts), self.config.n_residual), np.float32)
        if self.featuriser is not None:
            found = self.featuriser.features(texts, datasets, seen)
            rows[:, : found.shape[1]] = found
        return rows

    def adapted(self, stored: TokenStates, rows: Rows = EVERY) -> Tensor:
        """The adapter's features of stored texts, shifted and scaled; differentiable."""
        assert self.connector is not None
        features = self.connector.read(stored, rows).to(self.centre)
        if self.axes is not None:
            features = features @ self.axes
        return (features - self.centre) * self.scale

    def token_states(self, texts: Sequence[str]) -> TokenStates:
        """What the connector reads of texts."""
        config = self.config
        place = str(self.centre.device)
        return token_states(texts, config.backbone, max_tokens=config.max_tokens, device=place)

    @classmethod
    def from_pretrained(  # type: ignore[override]
        cls,
        name: str | Path,
        *,
        device: str = "cpu",
        head_weights: str | None = None,
        **hub: Any,
    ) -> V0:
        """A trained model: `micro` (packaged), a folder of `v0-bench train`, or a hub id.

        head_weights: TabPFN weights, where they are elsewhere than when the model was saved.
        hub: `revision`, `token`, `cache_dir`, `force_download`, `local_files_only`.

        Raises V0BenchError if there is no such model or its files are damaged or foreign.
        """
        from v0_bench.v0.model_file import find_model, load_model

        return load_model(find_model(name, **hub), device, head_weights)

    def _save_pretrained(self, save_directory: Path) -> None:
        from v0_bench.v0.model_file import save_model

        save_model(self, Path(save_directory))

    def generate_model_card(self, *args: Any, **kwargs: Any) -> ModelCard:
        """The README of a saved model: what it is, and the data it has seen."""
        from v0_bench.v0.model_file import model_card

        return model_card(self)

    def _limited(self, context: Context) -> Context:
        limit = self.config.context_limit
        if len(context) <= limit:
            return context
        warnings.warn(
            f"the context has {len(context):,} items, V0 reads {limit:,}: drawn at random, the "
            "same for the same context; raise context_limit to read more",
            stacklevel=3,
        )
        draws = np.array([_draw(text) for text in context.texts], dtype=np.uint64)
        return _items(context, np.sort(np.argsort(draws, kind="stable")[:limit]))

    def _check_width(self) -> None:
        most = self.head.n_features
        if most is not None and self.n_features > most:
            raise V0BenchError(
                f"the head {self.config.head!r} takes up to {most} features a text, this model has "
                f"{self.n_features}: {self.config.n_residual} of the residual path and "
                f"{len(self.centre)} of the connector. Lower components, n_queries, d_proj or axes"
            )


class _Problem(NamedTuple):
    """Some queries of an episode, all seen or all unseen in training."""

    episode: int
    context: Context
    queries: Queries
    seen: bool
    places: np.ndarray


class _FeatureTable:
    """Features of all texts of some episodes, each made once."""

    def __init__(self, model: V0, episodes: Sequence[tuple[Context, Queries]]) -> None:
        self.model = model
        self.places: dict[tuple[str, str], int] = {}
        for part in (part for episode in episodes for part in episode):
            for item in zip(part.texts, part.datasets, strict=True):
                self.places.setdefault(item, len(self.places))
        self.tables: dict[bool, Tensor] = {}

    def rows(self, texts: Sequence[str], datasets: Sequence[str], seen: bool) -> Tensor:
        """Features (n, F)."""
        table = self._table(seen)
        items = [self.places[item] for item in zip(texts, datasets, strict=True)]
        return table[torch.tensor(items, dtype=torch.long, device=table.device)]

    def _table(self, seen: bool) -> Tensor:
        if seen not in self.tables:
            self.tables[seen] = self._make(seen)
        return self.tables[seen]

    def _known(self, items: Sequence[tuple[str, str]]) -> np.ndarray:
        assert self.model.featuriser is not None  # or nothing is seen
        return self.model.featuriser.knows([text for text, _ in items])

    def _make(self, seen: bool) -> Tensor:
        items = list(self.places)
        if seen:  # only the hints of known texts differ
            known = [item for item, k in zip(items, self._known(items), strict=True) if k]
            table = self._table(False).clone()
            hints = self.model.residual(*_columns(known), True)[:, 0]
            table[[self.places[item] for item in known], 0] = torch.from_numpy(hints).to(table)
            return table
        starts = range(0, len(items), QUERIES_AT_ONCE)
        parts = [
            self.model.features(*_columns(items[start : start + QUERIES_AT_ONCE]), seen)
            for start in starts
        ]
        return torch.cat([self.model.centre.new_empty(0, self.model.n_features), *parts])


def padded_contexts(
    contexts: Sequence[Context], rows: Sequence[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Features (E, N, F), success rates, rollout counts and mask (E, N), as a head takes them."""
    features = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    labels = features.new_zeros(features.shape[:2])
    counts = features.new_ones(features.shape[:2])
    sizes = torch.tensor([len(context) for context in contexts], device=features.device)
    for i, context in enumerate(contexts):
        labels[i, : len(context)] = torch.as_tensor(np.array(context.success_rates)).to(features)
        counts[i, : len(context)] = torch.as_tensor(np.array(context.n_rollouts)).to(features)
    places = torch.arange(features.shape[1], device=features.device)
    return features, labels, counts, places < sizes[:, None]


def as_context(context: ContextLike) -> Context:
    """A context from what a user has; V0BenchError says which item is not one."""
    if isinstance(context, Context):
        return context
    if isinstance(context, str) or not isinstance(context, Sequence):
        raise V0BenchError("a context is a Context or a list of (text, success rate[, rollouts])")
    for i, item in enumerate(context):
        if not isinstance(item, Sequence) or isinstance(item, str) or len(item) not in (2, 3):
            raise V0BenchError(f"context item {i} is not (text, success rate[, rollouts])")
        if not isinstance(item[0], str):
            raise V0BenchError(f"text of context item {i} is not a string")
    return Context.from_pairs(context)


def as_queries(queries: QueriesLike) -> Queries:
    """Queries from what a user has; V0BenchError for anything but texts."""
    if isinstance(queries, Queries):
        return queries
    if isinstance(queries, str) or not isinstance(queries, Sequence):
        raise V0BenchError("queries are a Queries or a list of texts")
    for i, text in enumerate(queries):
        if not isinstance(text, str):
            raise V0BenchError(f"query {i} is not a string but {type(text).__name__}")
    return Queries.from_texts(queries)


def _chosen(
    texts: Sequence[str], datasets: Sequence[str], places: np.ndarray
) -> tuple[list[str], list[str]]:
    return [texts[i] for i in places], [datasets[i] for i in places]


def _columns(items: Sequence[tuple[str, str]]) -> tuple[list[str], list[str]]:
    return [text for text, _ in items], [dataset for _, dataset in items]


def _items(context: Context, places: np.ndarray) -> Context:
    texts, ids, datasets = (
        tuple(part[i] for i in places)
        for part in (context.texts, context.query_ids, context.datasets)
    )
    arrays = (context.success_rates, context.n_rollouts, context.costs)
    rates, counts, costs = (np.asarray(array)[places] for array in arrays)
    return Context(texts, rates, counts, ids, datasets, costs, context.policy, context.step)


def _hidden_size(config: V0Config, device: str) -> int:
    return token_states([], config.backbone, max_tokens=config.max_tokens, device=device).dimension


def _new_connector(config: V0Config, seed: int) -> Connector:
    assert config.connector is not None
    assert config.hidden_size is not None
    sizes = ConnectorConfig(
        config.hidden_size,
        config.n_queries,
        config.d_proj,
        config.n_heads,
        config.bottleneck,
        config.dropout,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make_connector(config.connector, sizes)


def _pretrained_head(config: V0Config) -> Head:
    if config.head == "tabpfn":
        from v0_bench.v0.heads.tabpfn import TabPFNHead

        return TabPFNHead(config.head_weights)
    head = load_head(config.head_weights) if config.head_weights else packaged_head(config.head)
    return head.requires_grad_(False)


def _content_key(context: Context) -> bytes:
    digest = hashlib.sha256()
    for texts in (context.texts, context.datasets):
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little") + data)
    digest.update(np.asarray(context.success_rates, dtype=float).tobytes())
    digest.update(np.asarray(context.n_rollouts, dtype=float).tobytes())
    return digest.digest()


def _draw(text: str) -> int:
    """A random number that belongs to a text."""
    data = text.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")
