"""What to sample: a folder of checkpoints, or a YAML plan that names policies and options."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml

from v0_bench.errors import V0BenchError
from v0_bench.nearest import unknown_name
from v0_bench.rollouts.checkpoints import Checkpoint, find_checkpoints
from v0_bench.rollouts.settings import Settings
from v0_bench.rollouts.to_pool import Facts

TYPES: dict[str, type] = {
    "backend": str,
    "model_args": dict,
    "gen_kwargs": dict,
    "metadata": dict,
    "limit": int,
    "seed": int,
    "chat_template": bool,
    "batch_size": str,
    "chunk": int,
    "device": str,
}


@dataclass(frozen=True)
class Plan:
    """The checkpoints, what is known of their policies, and options, tasks among them."""

    checkpoints: list[Checkpoint]
    facts: dict[str, Facts] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def read_plan(path: Path) -> Plan:
    """The plan in a YAML file, or that of a folder; raises V0BenchError saying what is wrong.

    Paths in a YAML file are relative to it.
    """
    if path.suffix not in (".yaml", ".yml"):
        return Plan(find_checkpoints(path))
    plan = _mapping(_load(path), f"{path}", ("policies", "tasks", "options"))
    policies = plan.get("policies")
    if not isinstance(policies, list) or not policies:
        raise V0BenchError(f"{path}: policies must be a list of mappings with name and path")
    checkpoints: list[Checkpoint] = []
    facts: dict[str, Facts] = {}
    for number, entry in enumerate(policies, 1):
        place = f"{path}, policy {number}"
        allowed = ("name", "path", *(item.name for item in fields(Facts)))
        policy = _mapping(entry, place, allowed)
        found = _checkpoints(policy, path.parent, place)
        checkpoints += found
        facts |= dict.fromkeys((checkpoint.policy for checkpoint in found), _facts(policy, place))
    options = dict(_mapping(plan.get("options", {}), f"{path}, options", TYPES))
    if "tasks" in plan:
        options["tasks"] = plan["tasks"]
    return Plan(checkpoints, facts, options)


def make_settings(given: Mapping[str, Any]) -> Settings:
    """Settings from options by name; raises V0BenchError for one of a wrong type."""
    options = {name: value for name, value in given.items() if value is not None}
    tasks = options.pop("tasks", None)
    if isinstance(tasks, str):
        tasks = [name.strip() for name in tasks.split(",")]
    if not isinstance(tasks, list) or not tasks or not all(isinstance(t, str) for t in tasks):
        raise V0BenchError("no task to sample: pass --tasks v0_gt_aime24,..., or list tasks: [...]")
    checked = {name: _checked(name, value) for name, value in options.items()}
    return Settings(tuple(tasks), **checked)


def _checked(name: str, value: Any) -> Any:
    """The value of an option if it is of the right type; `batch_size` may be a number."""
    wanted = TYPES[name]
    if name == "batch_size" and isinstance(value, int):
        value = str(value)
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise V0BenchError(f"option {name}: {value!r} is not of type {wanted.__name__}")
    if name in ("limit", "chunk") and int(str(value)) < 1:
        raise V0BenchError(f"option {name} must be 1 or more, not {value}")
    return value


def _checkpoints(policy: Mapping[str, Any], folder: Path, place: str) -> list[Checkpoint]:
    name, paths = policy.get("name"), policy.get("path")
    if name is not None and not isinstance(name, str):
        raise V0BenchError(f"{place}: name must be text")
    paths = [paths] if isinstance(paths, str) else paths
    if not isinstance(paths, list) or not paths or not all(isinstance(p, str) for p in paths):
        raise V0BenchError(f"{place}: path must be a path, or a list of paths")
    found: list[Checkpoint] = []
    for path in paths:
        if not (folder / path).exists() and path.count("/") == 1 and path[:1] not in "./~":
            found.append(Checkpoint(name or path, None, path))  # a name on the hub
        else:
            found += find_checkpoints(folder / path, name)
    return found


def _facts(policy: Mapping[str, Any], place: str) -> Facts:
    numbers = {}
    for item in fields(Facts):
        value = policy.get(item.name)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value < float("inf")):
            raise V0BenchError(f"{place}: {item.name} must be a number, 0 or more, not {value!r}")
        numbers[item.name] = None if value is None else float(value)
    return Facts(**numbers)


def _load(path: Path) -> object:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise V0BenchError(f"cannot read {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise V0BenchError(f"{path} is not YAML: {error}") from error


def _mapping(value: object, place: str, allowed: Collection[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise V0BenchError(f"{place}: a mapping was expected, with {', '.join(allowed)}")
    for key in value:
        if key not in allowed:
            raise V0BenchError(f"{place}: {unknown_name('key', str(key), allowed)}")
    return value
