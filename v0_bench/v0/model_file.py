"""V0 models on disk: a folder with config.json, model.safetensors and README.md.

TabPFN's weights are not copied (their licence is not ours) unless they were tuned: config.json
names them by their SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from huggingface_hub import ModelCard, ModelCardData
from torch import Tensor

from v0_bench.errors import V0BenchError
from v0_bench.files import atomic_file
from v0_bench.nearest import unknown_name
from v0_bench.v0.config import V0Config
from v0_bench.v0.featuriser_file import pack, unpack
from v0_bench.v0.heads.base import Head
from v0_bench.v0.heads.saved import WEIGHTS, new_head

if TYPE_CHECKING:
    from v0_bench.v0.model import V0

PACKAGED = ("micro",)
FORMAT = 1
FEATURISER = "featuriser."
FILES = ("config.json", "model.safetensors")

CARD = """---
{{ card_data }}
---

# A V0 model

How likely is a policy to solve a query, before a token is generated? Made by V0-Bench.

```python
from v0_bench import V0

model = V0.from_pretrained("FOLDER OR HUB ID")
model.predict([("What is 17 + 25?", 0.9, 10)], ["What is 31 + 64?"])
```

Backbone: {{ backbone }}. Head: {{ head }}. {{ data }}

```json
{{ facts }}
```
"""


def find_model(name: str | Path, **hub: Any) -> Path:
    """The folder of a model: packaged, on disk, or downloaded from the hub.

    Raises V0BenchError if there is none.
    """
    if name in PACKAGED:
        folder = WEIGHTS / str(name)
        if not (folder / FILES[0]).is_file():
            raise V0BenchError(
                f"the trained weights of {name!r} are not in this installation ({folder}): train a "
                "model with `v0-bench train`, and give its folder"
            )
        return folder
    path = Path(name).expanduser()
    if path.exists():
        return path
    if not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", str(name)):
        if str(name) == path.name:
            raise V0BenchError(f"{unknown_name('V0 model', str(name), PACKAGED)} Or give a folder.")
        raise V0BenchError(f"there is no folder {name}")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(name), allow_patterns=list(FILES), **hub))
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise V0BenchError(
            f"{name} is neither a folder nor a model the hub could give: {reason}"
        ) from error


def save_model(model: V0, folder: Path) -> None:
    """Writes config.json and model.safetensors."""
    from safetensors.torch import save_file

    config = model.config
    if config.head != "tabpfn":
        config = replace(config, head_weights=None)  # they are in model.safetensors
    document: dict[str, Any] = {
        "format": FORMAT,
        "config": config.to_json(),
        "interaction_weight": model.interaction_weight,
        "facts": model.facts,
    }
    state = model.state_dict()
    if config.head == "tabpfn":
        document["tabpfn_sha256"] = _sha256(_tabpfn_file(config))
        if not model.facts.get("head_tuned"):
            state = {name: t for name, t in state.items() if not name.startswith("head.")}
    else:
        document["head_sizes"] = model.head.config
    tensors = {name: tensor.float().cpu().contiguous() for name, tensor in state.items()}
    if model.featuriser is not None:
        packed, document["featuriser"] = pack(model.featuriser)
        tensors |= {FEATURISER + name: tensor for name, tensor in packed.items()}
    with atomic_file(folder / FILES[1]) as path:
        save_file(tensors, path, {"format": "pt"})
    with atomic_file(folder / FILES[0]) as path:
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def load_model(folder: Path, device: str = "cpu", head_weights: str | None = None) -> V0:
    """The model in a folder, ready to predict; V0BenchError if its files are damaged or foreign."""
    from v0_bench.v0.model import V0

    document, tensors = _read(folder)
    try:
        config = V0Config.from_json(document["config"])
        if head_weights is not None:
            config = replace(config, head_weights=head_weights)
        model = V0(config, head=_empty_head(config, document), device=device)
        packed = {n: t for n, t in tensors.items() if n.startswith(FEATURISER)}
        if packed:
            packed = {name.removeprefix(FEATURISER): t for name, t in packed.items()}
            model.featuriser = unpack(packed, document["featuriser"])
        model.interaction_weight = float(document["interaction_weight"])
        model.facts = dict(document["facts"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise V0BenchError(f"{folder} holds a damaged or foreign model: {error!r}") from error
    weights = {n: t for n, t in tensors.items() if not n.startswith(FEATURISER)}
    _load_weights(model, weights, folder)
    return model.settle()


def model_card(model: V0) -> ModelCard:
    """README.md of a model."""
    data = model.facts.get("data", [])
    told = "; ".join(f"{item['pool']} (fingerprint {item['fingerprint']})" for item in data)
    return ModelCard.from_template(
        card_data=ModelCardData(license="apache-2.0", library_name="v0-bench"),
        template_str=CARD,
        backbone=model.config.backbone,
        head=model.config.head,
        data=f"Trained on: {told}." if told else "It has seen no outcomes.",
        facts=json.dumps(model.facts, indent=1),
    )


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        document = json.loads((folder / FILES[0]).read_text(encoding="utf-8"))
        tensors = load_file(folder / FILES[1])
    except (OSError, ValueError, SafetensorError) as error:
        raise V0BenchError(
            f"{folder} holds no V0 model (config.json and model.safetensors, as `v0-bench train` "
            f"writes them): {error}"
        ) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise V0BenchError(f"{folder / FILES[0]} is not that of a V0 model of format {FORMAT}")
    return document, tensors


def _empty_head(config: V0Config, document: dict[str, Any]) -> Head | None:
    """The head that saved weights go into; None where the model finds it (TabPFN)."""
    if config.head != "tabpfn":
        return new_head(config.head, document["head_sizes"]).requires_grad_(False)
    path = _tabpfn_file(config)
    if _sha256(path) != document["tabpfn_sha256"]:
        raise V0BenchError(
            f"{path} is not the TabPFN checkpoint this model was trained with (SHA-256 "
            f"{document['tabpfn_sha256']}): give that one as head_weights"
        )
    return None


def _load_weights(model: V0, weights: dict[str, Tensor], folder: Path) -> None:
    found = model.load_state_dict(weights, strict=False) if _fits(model, weights) else None
    missing = [] if found is None else list(found.missing_keys)
    if model.config.head == "tabpfn" and not model.facts.get("head_tuned"):
        missing = [name for name in missing if not name.startswith("head.")]
    if found is None or missing or found.unexpected_keys:
        names = [] if found is None else missing + list(found.unexpected_keys)
        which = f": {', '.join(sorted(names)[:10])}" if names else ""
        raise V0BenchError(f"the weights in {folder} do not fit its config.json{which}")


def _fits(model: V0, weights: dict[str, Tensor]) -> bool:
    own = model.state_dict()
    return all(own[name].shape == t.shape for name, t in weights.items() if name in own)


def _tabpfn_file(config: V0Config) -> Path:
    from v0_bench.v0.heads.tabpfn import find_weights

    return find_weights(config.head_weights)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
