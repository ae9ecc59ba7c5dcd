"""The token-state store in one process: reading, damage, merging, a folder that is read-only."""

import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from v0_bench.embeddings import embed, state_folder, states, token_states
from v0_bench.embeddings.ngrams import HashedNgrams
from v0_bench.episode import Context, Queries
from v0_bench.errors import V0BenchError

TEXTS = ["What is two times three?", "one", "", "a b c d e f g h i j", "Ünïcode 🙂 x²", "one"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no memory of an earlier one."""
    monkeypatch.setenv("V0_BENCH_CACHE", str(tmp_path / "cache"))
    forget()
    return tmp_path / "cache"


def forget() -> None:
    """What a new process would start with."""
    states._store.cache_clear()


def shard_files(cache: Path) -> list[Path]:
    return sorted(cache.glob("token-states/*/*/[!.]*"))


def nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "load_encoder", None)  # a call would be a TypeError


def word_states(text: str) -> np.ndarray:
    """States of the backbone `hash` once more: the vector of each word, or of a wordless text."""
    words = text.lower().replace("?", "").split() if any(c.isalnum() for c in text) else [text]
    return embed([word for word in words if word != "🙂"], "hash").astype(np.float16)


def test_one_state_a_word_padded_and_masked() -> None:
    stored = token_states(TEXTS, "hash")
    expected = [word_states(text) for text in TEXTS]
    batch = stored.batch()
    assert stored.lengths.tolist() == [len(e) for e in expected] == [5, 1, 1, 10, 2, 1]
    assert (len(stored), stored.dimension) == (6, 256)
    assert batch.states.shape == (6, 10, 256)
    assert (batch.states.dtype, batch.mask.dtype) == (torch.float32, torch.bool)
    for i, each in enumerate(expected):
        n = len(each)
        assert np.array_equal(batch.states[i, :n], each.astype(np.float32))
        assert not batch.states[i, n:].any()
        assert batch.mask[i].tolist() == [True] * n + [False] * (10 - n)
        assert np.array_equal(batch.last[i], each[-1].astype(np.float32))
        assert np.array_equal(stored.arrays([i])[0], each)
    assert torch.equal(stored.last(), batch.last)
    means = np.stack([each.astype(np.float32).mean(0) for each in expected])
    np.testing.assert_allclose(stored.mean(), means, atol=1e-6)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.text(max_size=30), min_size=1, max_size=8), st.data())
def test_a_row_depends_on_its_text_alone(texts: list[str], data: st.DataObject) -> None:
    alone = [token_states([text], "hash").arrays()[0].copy() for text in texts]
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=10))
    for _ in range(2):
        batch = token_states(tuple(texts), "hash").batch(rows)
        for i, row in enumerate(rows):
            assert np.array_equal(batch.states[i][batch.mask[i]], alone[row].astype(np.float32))
        forget()


def test_rows_are_chosen_as_numpy_does() -> None:
    stored = token_states(TEXTS, "hash")
    expected = stored.batch([4, 5]).states
    for rows in (slice(4, None), np.array([4, 5]), [-2, -1], np.arange(6) >= 4):
        assert torch.equal(stored.batch(rows).states, expected)
    with pytest.raises(IndexError):
        stored.batch([6])


def test_nothing_asked_nothing_given() -> None:
    empty = token_states([], "hash")
    assert (len(empty), empty.nbytes, empty.dimension) == (0, 0, 256)
    assert empty.batch().states.shape == (0, 0, 256)
    assert empty.batch().last.shape == empty.mean().shape == (0, 256)
    assert token_states(TEXTS, "hash").batch([]).mask.shape == (0, 0)


def test_max_tokens_keeps_the_first_words_and_is_kept_apart(cache: Path) -> None:
    whole = token_states(TEXTS, "hash")
    short = token_states(TEXTS, "hash", max_tokens=8)
    assert short.lengths.tolist() == [5, 1, 1, 8, 2, 1]
    assert np.array_equal(short.arrays([3])[0], whole.arrays([3])[0][:8])
    assert len(list(cache.glob("token-states/*/*"))) == 2


def test_second_call_reads_the_disk_and_computes_nothing(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = token_states(TEXTS, "hash").batch()
    files = {path: path.stat().st_mtime_ns for path in shard_files(cache)}
    nothing_is_computed(monkeypatch)
    for _ in range(2):
        again = token_states(TEXTS[::-1], "hash").batch()
        assert torch.equal(again.states, first.states.flip(0))
        forget()
    assert {path: path.stat().st_mtime_ns for path in shard_files(cache)} == files


def test_states_are_mapped_not_read(cache: Path) -> None:
    token_states(TEXTS, "hash")
    forget()
    array = token_states(TEXTS, "hash").arrays([0])[0]
    while array.base is not None and not isinstance(array, np.memmap):
        array = array.base
    assert isinstance(array, np.memmap)
    assert Path(str(array.filename)) == shard_files(cache)[0]


def test_bytes_on_disk_are_two_a_dimension_and_token(cache: Path) -> None:
    texts = [f"text {i} " + "word " * 200 for i in range(50)]
    stored = token_states([*texts, texts[0]], "hash")
    size = sum(path.stat().st_size for path in shard_files(cache))
    assert stored.nbytes == 2 * 256 * 202 * 50
    assert stored.nbytes < size < 1.001 * stored.nbytes


def test_queries_and_contexts_read_the_same_store(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = token_states(TEXTS, "hash", max_tokens=9).batch().states
    nothing_is_computed(monkeypatch)
    queries = Queries.from_texts(TEXTS)
    context = Context.from_pairs([(text, 1.0) for text in TEXTS])
    for record in (queries, context, context.first(6)):
        assert torch.equal(record.token_states("hash", max_tokens=9).batch().states, expected)


def test_pickles_as_what_to_open() -> None:
    stored = token_states(["word " * 5000 + str(i) for i in range(10)], "hash")
    copied = pickle.dumps(stored)
    assert len(copied) < 300_000 < stored.nbytes
    assert torch.equal(pickle.loads(copied).batch([3]).states, stored.batch([3]).states)


@pytest.mark.parametrize("damage", ["cut", "states", "index", "header", "empty", "other"])
@pytest.mark.parametrize("moment", ["before it is opened", "while it is open"])
def test_damage_is_noticed_and_mended(cache: Path, damage: str, moment: str) -> None:
    stored = token_states(TEXTS, "hash")
    expected = stored.batch().states
    [path] = shard_files(cache)
    content = bytearray(path.read_bytes())
    header = 8 + int.from_bytes(content[:8], "little")
    at = {"states": header + 1000, "index": header + 3, "header": 1}
    if damage in at:
        content[at[damage]] ^= 0xFF
    wrong = {"cut": bytes(content[:500]), "empty": b"", "other": b"no shard at all"}
    if moment == "before it is opened":
        forget()
        path.write_bytes(wrong.get(damage, bytes(content)))
        with pytest.warns(UserWarning, match="damaged cache file"):
            assert torch.equal(token_states(TEXTS, "hash").batch().states, expected)
    elif damage == "states":
        forget()
        stored = token_states(TEXTS, "hash")
        with path.open("r+b") as file:
            file.write(content)
        with pytest.warns(UserWarning, match="damaged cache file"):
            assert torch.equal(stored.batch().states, expected)
    forget()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(token_states(TEXTS, "hash").batch().states, expected)


def test_stray_files_are_ignored(cache: Path) -> None:
    expected = token_states(TEXTS, "hash").batch().states
    [path] = shard_files(cache)
    (path.parent / ".left-over.safetensors-12-ab").write_bytes(b"half")
    (path.parent / "notes.txt").write_text("mine")
    forget()
    assert torch.equal(token_states(TEXTS, "hash").batch().states, expected)


def test_small_shards_are_merged_and_nothing_is_lost(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_folder, "MERGE_ABOVE", 10)
    many = [f"query number {i}" for i in range(14)]
    kept = [token_states([text], "hash") for text in many]
    expected = np.concatenate([stored.arrays()[0] for stored in kept])
    assert len(shard_files(cache)) == 1 + 3  # the twelfth call found 11 and merged them
    forget()
    token_states([*many, "a new one"], "hash")
    nothing_is_computed(monkeypatch)
    assert np.array_equal(np.concatenate(token_states(many, "hash").arrays()), expected)
    held = [stored.arrays()[0] for stored in kept]  # opened before their files were merged away
    assert np.array_equal(np.concatenate(held), expected)


def test_merging_leaves_large_shards_and_makes_shards_of_bounded_size(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_folder, "MERGE_ABOVE", 5)
    monkeypatch.setattr(state_folder, "SMALL_BYTES", 20 * 512)
    monkeypatch.setattr(state_folder, "SHARD_BYTES", 60 * 512)
    token_states(["long " * 50], "hash")
    [large] = shard_files(cache)
    for i in range(12):
        token_states([f"{i} " + "word " * 14], "hash")
    forget()
    token_states(["one more"], "hash")
    assert large.exists()
    assert len(shard_files(cache)) < 12
    assert all(path.stat().st_size < 80 * 512 for path in shard_files(cache))


def test_shard_merged_away_between_listing_and_opening(cache: Path) -> None:
    """Another process replaces two shards by one at the worst moment."""
    texts = ["one two", "three"]
    expected = [token_states([text], "hash").arrays()[0].copy() for text in texts]
    folder = shard_files(cache)[0].parent
    old = shard_files(cache)
    keys = [states.text_key(text) for text in texts]

    class Raced(state_folder.StateFolder):
        def _open(self, name: str) -> None:
            if old[0].exists():
                state_folder.StateFolder(folder).add(keys, expected)
                for path in old:
                    path.unlink()
            super()._open(name)

    raced = Raced(folder)
    assert raced.unknown(keys) == []
    assert all(np.array_equal(raced.read(k), e) for k, e in zip(keys, expected, strict=True))


def test_folder_that_cannot_be_written_costs_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = token_states(TEXTS, "hash").batch().states
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("V0_BENCH_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="token states are not kept") as caught:
        stored = token_states(TEXTS[:3], "hash"), token_states(TEXTS[3:], "hash")
    assert len(caught) == 1, "warn once"
    assert torch.equal(stored[1].batch().states, expected[3:])
    monkeypatch.setattr(state_folder, "MEMORY_BYTES", 4000)
    with pytest.raises(V0BenchError, match="set V0_BENCH_CACHE to a folder"):
        token_states(["a b c d e f g"], "hash")


def test_store_that_loses_what_is_written_is_an_error_not_a_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_folder.StateFolder, "add", lambda self, keys, states: None)
    with pytest.raises(V0BenchError, match="cannot be read back"):
        token_states(TEXTS, "hash")


def test_ctrl_c_keeps_what_is_done(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(HashedNgrams):
        def token_states(self, texts, layer, max_tokens):
            yield from super().token_states(texts[:3], layer, max_tokens)
            raise KeyboardInterrupt

    monkeypatch.setattr(states, "load_encoder", lambda backbone, device: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        token_states(TEXTS, "hash")
    forget()
    store = state_folder.StateFolder(shard_files(cache)[0].parent)
    keys = [states.text_key(text) for text in dict.fromkeys(TEXTS)]
    assert len(keys) - len(store.unknown(keys)) == 3


def test_threads_share_one_store() -> None:
    texts = [f"query {i} " + "word " * (i % 7) for i in range(40)]

    def read(start: int) -> torch.Tensor:
        return token_states(texts[start : start + 10], "hash").batch().states

    with ThreadPoolExecutor(4) as pool:
        parts = list(pool.map(read, [0, 10, 20, 30] * 5))
    assert all(torch.equal(part, parts[i % 4]) for i, part in enumerate(parts))
    assert torch.equal(parts[2], token_states(texts, "hash").batch(slice(20, 30)).states)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("one text", {}, "token_states needs a list or tuple of texts, got str"),
        (None, {}, "got NoneType"),
        (["a", None], {}, "text 1 is not a string but NoneType"),
        ([b"a"], {}, "text 0 is not a string but bytes"),
        (["a"], {"max_tokens": 0}, "max_tokens must be at least 8, got 0"),
        (["a"], {"layer": 0}, "has only layer -1, not 0"),
        (["a"], {"backbone": "minlm"}, "Did you mean 'minilm'"),
    ],
)
def test_bad_input_is_named(texts, options, message: str, cache: Path) -> None:
    with pytest.raises(V0BenchError, match=message):
        token_states(texts, **{"backbone": "hash", **options})
    assert not shard_files(cache)


@pytest.mark.parametrize("shown", [True, False])
def test_progress_is_plain_lines_on_stderr(
    shown: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("v0_bench.embeddings.progress.PATIENCE", -1.0)
    token_states(TEXTS, "hash", progress=shown)
    out, err = capsys.readouterr()
    assert out == ""
    assert ("token states of hash: 5/5 texts" in err) == shown
