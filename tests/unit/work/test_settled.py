"""A remembered digest stands for a file only while nobody can have touched it."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from noctuary.core.files import hash_file
from noctuary.work import stage as settled
from noctuary.work.stage import hash_settled

OLD_NS = 1_700_000_000_000_000_000


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read, one entry a time."""
    found: list[Path] = []

    def count(path: Path) -> str:
        found.append(path)
        return hash_file(path)

    monkeypatch.setattr(settled, "hash_file", count)
    return found


@pytest.fixture
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as settled at once."""
    monkeypatch.setattr(settled, "SETTLED_NS", 0)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.usefixtures("no_wait")
def test_a_settled_file_is_read_once(tmp_path: Path, hashed: list[Path]) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    assert [hash_settled(path) for _ in range(3)] == [digest("one")] * 3
    assert hashed == [path]


def in_place(path: Path) -> None:
    path.write_text("two")


def in_place_with_its_old_times(path: Path) -> None:
    times = path.stat()
    path.write_text("two")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def by_another_file(path: Path) -> None:
    times = path.stat()
    other = path.with_name("b")
    other.write_text("two")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(path)


@pytest.mark.usefixtures("no_wait")
@pytest.mark.parametrize("change", [in_place, in_place_with_its_old_times, by_another_file])
def test_a_changed_file_is_read_again(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    os.utime(path, ns=(OLD_NS, OLD_NS))
    assert hash_settled(path) == digest("one")
    time.sleep(0.05)  # longer than a tick of the file system's clock
    change(path)
    assert hash_settled(path) == digest("two")


def test_a_file_that_was_just_written_is_read_every_time(
    tmp_path: Path, hashed: list[Path]
) -> None:
    path = tmp_path / "a"
    for text in ("one", "two", "six"):
        path.write_text(text)
        assert hash_settled(path) == digest(text)
    assert len(hashed) == 3


@pytest.mark.usefixtures("no_wait")
def test_a_file_of_the_future_is_read_every_time(tmp_path: Path, hashed: list[Path]) -> None:
    path = tmp_path / "a"
    path.write_text("one")
    ahead_ns = time.time_ns() + 3_600_000_000_000
    os.utime(path, ns=(ahead_ns, ahead_ns))
    assert [hash_settled(path), hash_settled(path)] == [digest("one")] * 2
    assert len(hashed) == 2


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hash_settled(tmp_path / "nothing")
