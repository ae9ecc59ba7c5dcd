"""Writes that happen entirely or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from v0_bench.errors import V0BenchError
from v0_bench.files import atomic_file, atomic_folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        assert temporary.parent.samefile(path.parent)
        temporary.write_text(text)


def write_half(path: Path, error: type[BaseException]) -> None:
    path.write_text("half")
    raise error("stop")


def write_folder(path: Path, text: str, overwrite: bool = False) -> None:
    with atomic_folder(path, overwrite) as temporary:
        (temporary / "inside.txt").write_text(text)


def test_a_file_is_made_with_its_folders(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "made.txt", "new")
    assert (tmp_path / "a" / "b" / "made.txt").read_text() == "new"
    assert names(tmp_path / "a" / "b") == ["made.txt"]


def test_a_file_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "made.txt", "old")
    monkeypatch.chdir(tmp_path)
    write(Path("made.txt"), "new")
    assert (tmp_path / "made.txt").read_text() == "new"
    assert names(tmp_path) == ["made.txt"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
def test_a_failure_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    write(tmp_path / "made.txt", "old")
    expected = V0BenchError if error is OSError else error
    with pytest.raises(expected), atomic_file(tmp_path / "made.txt") as temporary:
        write_half(temporary, error)
    assert (tmp_path / "made.txt").read_text() == "old"
    assert names(tmp_path) == ["made.txt"]


def test_a_writer_may_remove_the_temporary_file(tmp_path: Path) -> None:
    with (
        pytest.raises(V0BenchError, match="No such file"),
        atomic_file(tmp_path / "x") as temporary,
    ):
        temporary.unlink()
    assert names(tmp_path) == []


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_umask(tmp_path: Path, mask: int) -> None:
    old = os.umask(mask)
    try:
        write(tmp_path / "file", "x")
        write_folder(tmp_path / "folder", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o777 & ~mask


def test_the_reason_is_in_the_message(tmp_path: Path) -> None:
    write(tmp_path / "file", "x")
    with pytest.raises(V0BenchError, match=r"cannot write .*below\.txt: (Not a dir|File exists)"):
        write(tmp_path / "file" / "below.txt", "y")
    (tmp_path / "folder").mkdir()
    with pytest.raises(V0BenchError, match="folder: Is a directory"):
        write(tmp_path / "folder", "y")
    with pytest.raises(V0BenchError, match="cannot write /proc/none: "):
        write(Path("/proc/none"), "y")
    assert names(tmp_path) == ["file", "folder"]


def test_a_folder_is_made_whole(tmp_path: Path) -> None:
    write_folder(tmp_path / "a" / "made", "new")
    assert (tmp_path / "a" / "made" / "inside.txt").read_text() == "new"
    assert names(tmp_path / "a") == ["made"]


def test_a_folder_is_not_replaced_unless_told(tmp_path: Path) -> None:
    write_folder(tmp_path / "made", "old")
    with pytest.raises(V0BenchError, match="exists already; choose another place or pass"):
        write_folder(tmp_path / "made", "new")
    assert (tmp_path / "made" / "inside.txt").read_text() == "old"
    write_folder(tmp_path / "made", "new", overwrite=True)
    assert (tmp_path / "made" / "inside.txt").read_text() == "new"
    (tmp_path / "file").write_text("old")
    write_folder(tmp_path / "file", "new", overwrite=True)
    assert (tmp_path / "file" / "inside.txt").read_text() == "new"
    assert names(tmp_path) == ["file", "made"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, OSError])
def test_a_failure_leaves_the_old_folder(tmp_path: Path, error: type[BaseException]) -> None:
    write_folder(tmp_path / "made", "old")
    expected = V0BenchError if error is OSError else error
    with pytest.raises(expected), atomic_folder(tmp_path / "made", overwrite=True) as temporary:
        write_half(temporary / "inside.txt", error)
    assert (tmp_path / "made" / "inside.txt").read_text() == "old"
    assert names(tmp_path) == ["made"]


def test_a_failed_swap_puts_the_old_folder_back(tmp_path: Path) -> None:
    write_folder(tmp_path / "made", "old")
    with (
        pytest.raises(V0BenchError, match="No such file"),
        atomic_folder(tmp_path / "made", overwrite=True) as temporary,
    ):
        temporary.rmdir()  # so that it cannot be moved into place
    assert (tmp_path / "made" / "inside.txt").read_text() == "old"
    assert names(tmp_path) == ["made"]
