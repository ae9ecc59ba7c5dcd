"""The sizes and parts of a V0 model, and the presets `micro` and `paper`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, get_type_hints

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name

HEADS = ("icl", "gp", "tabpfn")


@dataclass(frozen=True)
class V0Config:
    """What a V0 model is made of; the defaults are the preset `micro`.

    A text's features are [hint, components, data set, adapter]: all but the last are the residual
    path, learned from training outcomes (`featuriser.py`); the last come from its token states
    (`adapter.py`).
    """

    backbone: str = "minilm"
    max_tokens: int | None = None
    """Tokens of a text that are read; None for the backbone's own limit."""
    connector: str | None = "residual-query"
    """A name of `connectors.CONNECTORS`; None for no adapter."""
    hidden_size: int | None = None
    """Width of a token state; None until the model is made."""
    n_queries: int = 2
    d_proj: int = 4
    n_heads: int = 2
    bottleneck: int = 32
    dropout: float = 0.1
    axes: int | None = None
    """Principal axes that the connector's features are reduced to, for a head that takes few."""
    head: str = "icl"
    head_weights: str | None = None
    """icl, gp: folder of a pre-trained head, None for the packaged one. tabpfn: path, version or
    published name of a checkpoint, None for `$V0_BENCH_TABPFN` or the paper's version."""
    residual_path: bool = True
    components: int = 8
    dataset_features: int = 16
    landmarks: int = 700
    context_size: int = 256
    """Items of a context in training."""
    context_limit: int = 1024
    """Items of a context that are read at most when predicting."""

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise V0BenchError(unknown_name("head", self.head, HEADS))
        least = {"context_size": 1, "context_limit": 1, "landmarks": 1}
        least |= {"components": 0, "dataset_features": 0}
        for name, low in least.items():
            if getattr(self, name) < low:
                raise V0BenchError(f"{name} must be at least {low}, got {getattr(self, name)}")
        if self.axes is not None and self.axes < 1:
            raise V0BenchError(f"axes must be at least 1, got {self.axes}")
        if self.connector is None and not self.residual_path:
            raise V0BenchError("a V0 model needs a connector or the residual path")

    @property
    def n_residual(self) -> int:
        """Width of the residual path's part of the features.

        Without it the heads `icl` and `gp` still get a hint, of 0; TabPFN gets none.
        """
        if self.residual_path:
            return 1 + self.components + self.dataset_features
        return 0 if self.head == "tabpfn" else 1

    def to_json(self) -> dict[str, Any]:
        """What `from_json` reads."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> V0Config:
        """A configuration from its names and values; V0BenchError where they are none of its."""
        check_values(cls, values)
        return cls(**values)


@dataclass(frozen=True)
class TrainConfig:
    """How the adapter is trained; the defaults follow the paper where it says."""

    steps: int = 1000
    """At most; 0 leaves the adapter out."""
    episodes: int = 2
    """Contexts of a step, over all processes."""
    queries: int = 8
    """Queries of each."""
    learning_rate: float = 2e-4
    weight_decay: float = 0.01
    loss: str = "combined"
    """combined, rank, ce or hard-ce: see `losses.py`."""
    alpha: float = 0.25
    """Share of the ranking loss in `combined`."""
    context_labels: str = "soft"
    """soft, or hard: success rates of a context rounded to 0 or 1."""
    tune_head: bool = False
    validate_every: int = 50
    patience: int = 6
    """Validations without a better one before training stops."""
    validation_episodes: int = 48
    validation_queries: int = 256
    """Of each validation episode, at most."""
    save_minutes: float = 3.0

    def __post_init__(self) -> None:
        choices = {
            "loss": ("combined", "rank", "ce", "hard-ce"),
            "context_labels": ("soft", "hard"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise V0BenchError(unknown_name(name, getattr(self, name), known))
        counts = ("episodes", "queries", "validate_every", "patience", "validation_episodes")
        for name in (*counts, "validation_queries"):
            if getattr(self, name) < 1:
                raise V0BenchError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.steps < 0:
            raise V0BenchError(f"steps must not be negative, got {self.steps}")
        if not 0 <= self.alpha <= 1:
            raise V0BenchError(f"alpha must lie in [0, 1], got {self.alpha}")


PRESETS = {
    "micro": V0Config(),
    "paper": V0Config(
        backbone="Qwen/Qwen3-Embedding-0.6B",
        max_tokens=2048,
        n_queries=168,
        d_proj=6,
        n_heads=3,
        bottleneck=128,
        dropout=0.2,
        head="tabpfn",
        residual_path=False,
    ),
}


def preset(name: str) -> V0Config:
    """The configuration `micro` or `paper`; V0BenchError for another name."""
    if name not in PRESETS:
        raise V0BenchError(unknown_name("preset", name, PRESETS))
    return PRESETS[name]


def check_values(kind: type[V0Config] | type[TrainConfig], values: dict[str, Any]) -> None:
    """Raises V0BenchError for a setting that does not exist, or a value of another type."""
    types = get_type_hints(kind)
    for name, value in values.items():
        if name not in types:
            raise V0BenchError(unknown_name("setting", name, types))
        wanted = types[name] | int if types[name] is float else types[name]
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            told = getattr(types[name], "__name__", types[name])
            raise V0BenchError(f"{name} must be of type {told}, not {value!r}")


def override(
    config: V0Config, settings: TrainConfig, values: dict[str, Any]
) -> tuple[V0Config, TrainConfig]:
    """Both with the named settings changed; V0BenchError as in `check_values`."""
    own = {item.name for item in fields(V0Config)}
    model = {name: value for name, value in values.items() if name in own}
    training = {name: value for name, value in values.items() if name not in own}
    known = own | {item.name for item in fields(TrainConfig)}
    for name in training:
        if name not in known:
            raise V0BenchError(unknown_name("setting", name, known))
    check_values(V0Config, model)
    check_values(TrainConfig, training)
    return replace(config, **model), replace(settings, **training)
