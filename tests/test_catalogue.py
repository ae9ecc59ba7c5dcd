"""The catalogue: what it lists, what it refuses, and that its hashes are those of real files."""

import hashlib
from pathlib import Path

import pytest

from v0_bench.errors import V0BenchError
from v0_bench.pool.catalogue import catalogue
from v0_bench.pool.fetch import find_entry
from v0_bench.pool.importers import FORMATS

REQUIRED = {
    "v0-release",
    "oneshot-rlvr",
    "zeroeval",
    "livecodebench",
    "mmlu-pro",
    "embedllm",
    "routerbench",
    "llmrouterbench",
}
GOOD = """
[mine]
title = "Mine"
licence = "MIT"
citation = "Nobody, 2026"
homepage = "https://example.org"
format = "long"
base = "https://example.org/data/"
files = [{ path = "a b/queries.jsonl", sha256 = "%s", bytes = 3 }, { path = "outcomes.jsonl" }]
""" % ("0" * 64)


def write(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "more.toml"
    file.write_text(text, encoding="utf-8")
    monkeypatch.setenv("V0_BENCH_CATALOGUE", str(file))


def test_every_required_source_is_described_and_readable() -> None:
    entries = catalogue()
    assert set(entries) >= REQUIRED
    for entry in entries.values():
        assert entry.title
        assert entry.licence
        assert entry.citation
        assert entry.homepage.startswith("https://")
        assert entry.format in FORMATS
        assert (entry.status == "manual") == (not entry.files)
        if entry.status == "manual":
            assert entry.format == "long"
            assert entry.note


def test_pinned_addresses_name_a_full_commit() -> None:
    for entry in catalogue().values():
        for file in entry.files:
            if file.sha256:
                commit = file.url.split("/")[5]
                assert len(commit) == 40
                assert int(commit, 16)
                assert file.bytes


def test_hashes_of_the_official_sample_are_those_of_its_files(shared: Path) -> None:
    for file in catalogue()["v0-release"].files:
        content = (shared / "pools" / "v0_release" / file.path).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file.sha256
        assert len(content) == file.bytes


def test_status_and_size() -> None:
    entries = catalogue()
    assert entries["v0-release"].status == "pinned"
    assert entries["v0-release"].bytes == 1_305_624
    assert entries["embedllm"].status == "unpinned"
    assert entries["embedllm"].bytes is None
    assert entries["zeroeval"].status == "manual"


def test_a_second_file_adds_and_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, GOOD + GOOD.replace("[mine]", "[zeroeval]"), monkeypatch)
    entries = catalogue()
    assert set(entries) >= REQUIRED | {"mine"}
    assert entries["zeroeval"].title == "Mine"
    assert entries["mine"].status == "unpinned"
    assert entries["mine"].files[0].url == "https://example.org/data/a%20b/queries.jsonl"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[mine]", '["../mine"]', "lower-case"),
        ('licence = "MIT"', "licence = 3", "licence must be text"),
        ('licence = "MIT"', "", "licence must be text"),
        ('licence = "MIT"', 'license = "MIT"', "unknown key 'license'"),
        ("https://example.org/data/", "file:///etc/", "not an http or https folder"),
        ("https://example.org/data/", "ftp://example.org/", "not an http or https folder"),
        ("https://example.org/data/", "https://example.org/data", "ending in /"),
        ("a b/queries.jsonl", "../queries.jsonl", "below the source folder"),
        ("a b/queries.jsonl", "a/../../queries.jsonl", "below the source folder"),
        ("a b/queries.jsonl", "/etc/passwd", "below the source folder"),
        ("a b/queries.jsonl", "C:/windows", "below the source folder"),
        ("a b/queries.jsonl", "outcomes.jsonl", "same path"),
        ("0" * 64, "xyz", "not a sha256"),
        ("[mine]", "[mine", "cannot be read"),
    ],
)
def test_bad_entries_are_refused(
    old: str, new: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, GOOD.replace(old, new), monkeypatch)
    with pytest.raises(V0BenchError, match=message):
        catalogue()


def test_missing_second_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("V0_BENCH_CATALOGUE", str(tmp_path / "absent.toml"))
    with pytest.raises(V0BenchError, match=r"absent\.toml cannot be read"):
        catalogue()


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(V0BenchError, match="did you mean 'mmlu-pro'"):
        find_entry("mmlu_pro")
