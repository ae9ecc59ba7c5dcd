"""Finds predictors by name: those of `baselines/` and those of installed packages."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import TypeVar

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name
from v0_bench.predictors.base import Predictor

ENTRY_POINT_GROUP = "v0_bench.predictors"
RESERVED = ("backbone", "seed", "device")
_classes: dict[str, type[Predictor]] = {}
P = TypeVar("P", bound=type[Predictor])


def register_predictor(cls: P) -> P:
    """Class decorator: makes the predictor known under its `name`.

    Raises V0BenchError if another class holds the name already.
    """
    held = _classes.get(cls.name)
    if held is not None and (held.__module__, held.__qualname__) != (
        cls.__module__,
        cls.__qualname__,
    ):
        raise V0BenchError(f"predictor name {cls.name!r} is taken by {held.__module__}")
    _classes[cls.name] = cls
    return cls


@cache
def _load_all() -> None:
    import v0_bench.baselines as baselines

    for module in pkgutil.iter_modules(baselines.__path__):
        importlib.import_module(f"{baselines.__name__}.{module.name}")
    for point in entry_points(group=ENTRY_POINT_GROUP):
        try:
            loaded = point.load()
        except Exception as error:  # another package's fault must not take ours down
            warnings.warn(
                f"predictor {point.name!r} of {point.value} did not load: {error!r}", stacklevel=2
            )
            continue
        if inspect.isclass(loaded) and issubclass(loaded, Predictor):
            register_predictor(loaded)


def available_predictors() -> Mapping[str, type[Predictor]]:
    """Every known predictor class by name, in alphabetical order."""
    _load_all()
    return dict(sorted(_classes.items()))


def predictor_class(name: str) -> type[Predictor]:
    """The class registered under a name; V0BenchError with the nearest name if there is none."""
    known = available_predictors()
    if name not in known:
        raise V0BenchError(unknown_name("predictor", name, known))
    return known[name]


def create_predictor(
    name: str, *, backbone: str | None = None, seed: int = 0, device: str = "cpu"
) -> Predictor:
    """A predictor with its default parameters, the reserved ones filled in where it has them."""
    cls = predictor_class(name)
    values = {"backbone": backbone, "seed": seed, "device": device}
    accepted = inspect.signature(cls).parameters
    chosen = {k: v for k, v in values.items() if k in accepted and v is not None}
    return cls(**chosen)
