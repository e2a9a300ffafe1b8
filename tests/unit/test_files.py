from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from noctuary.core.files import (
    MAP_FROM_BYTES,
    fsync_dir,
    fsync_file,
    make_private,
    open_to_others,
    read_array,
    remove_tree,
    replace_with,
    tree_bytes,
    write_array,
    write_array_blocks,
    write_text,
)
from tests.support.descriptors import open_files


def test_a_file_is_made_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "text.txt"
    write_text(path, "ключ 🔑")
    assert path.read_text(encoding="utf-8") == "ключ 🔑"
    assert [p.name for p in path.parent.iterdir()] == ["text.txt"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    write_text(path, "old")

    def fail(tmp: Path) -> None:
        tmp.write_text("half of the n")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_with(path, fail)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    write_text(path, "old")
    seen: list[str] = []

    def write(tmp: Path) -> None:
        tmp.write_text("new")
        seen.append(path.read_text())

    replace_with(path, write)
    assert seen == ["old"]
    assert path.read_text() == "new"


def test_an_open_reader_keeps_the_file_it_opened(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    write_text(path, "old")
    with path.open(encoding="utf-8") as reader:
        write_text(path, "new")
        assert reader.read() == "old"


def test_content_then_name_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content is on disk before the rename, the rename before the call returns."""
    events: list[tuple[str, str]] = []
    replace = Path.replace

    def record_fsync(fd: int) -> None:
        events.append(("fsync", Path(f"/proc/self/fd/{fd}").readlink().name))

    def record_replace(self: Path, target: Path) -> Path:
        events.append(("rename", target.name))
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(Path, "replace", record_replace)
    write_text(tmp_path / "text.txt", "new")
    (first, temporary), *others = events
    assert first == "fsync"
    assert temporary.startswith(".text.txt.")
    assert others == [("rename", "text.txt"), ("fsync", tmp_path.name)]
    events.clear()
    fsync_file(tmp_path / "text.txt")
    fsync_dir(tmp_path)
    assert events == [("fsync", "text.txt"), ("fsync", tmp_path.name)]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
        np.zeros((0, 4), dtype=np.float32),
        np.array([-(2**63), 2**63 - 1], dtype=np.int64),
    ],
)
def test_arrays_round_trip_and_equal_ones_are_equal_bytes(
    tmp_path: Path, array: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> None:
    write_array(tmp_path / "a.npy", array)
    write_array(tmp_path / "b.npy", np.array(array, order="C"))
    found = read_array(tmp_path / "a.npy", mmap=False)
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


@pytest.mark.parametrize("cut", [(), (3,), (1, 2, 2, 5), (0, 6)])
def test_rows_written_block_by_block_are_the_same_bytes(
    tmp_path: Path, cut: tuple[int, ...]
) -> None:
    whole = np.arange(18, dtype=np.float32).reshape(6, 3)
    write_array(tmp_path / "whole.npy", whole)
    blocks = np.split(np.asfortranarray(whole), cut)
    write_array_blocks(tmp_path / "blocks.npy", (6, 3), "<f4", blocks)
    assert (tmp_path / "blocks.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.parametrize("blocks", [[(2, 3)], [(2, 3), (5, 3)], [(2, 3), (4, 2)]])
def test_blocks_that_do_not_fit_leave_the_old_file(
    tmp_path: Path, blocks: list[tuple[int, int]]
) -> None:
    write_text(tmp_path / "a.npy", "old")
    given = (np.zeros(shape, dtype=np.float32) for shape in blocks)
    with pytest.raises(ValueError, match="shape"):
        write_array_blocks(tmp_path / "a.npy", (6, 3), "<f4", given)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]
    assert (tmp_path / "a.npy").read_text() == "old"


@pytest.mark.parametrize("size", [3, MAP_FROM_BYTES])
def test_an_array_cannot_be_changed(tmp_path: Path, size: int) -> None:
    write_array(tmp_path / "a.npy", np.ones(size, dtype=np.float32))
    array = read_array(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 2


def test_only_a_large_array_is_mapped_and_holds_its_file(tmp_path: Path) -> None:
    small, large = tmp_path / "small.npy", tmp_path / "large.npy"
    write_array(small, np.ones(3, dtype=np.float32))
    write_array(large, np.ones(MAP_FROM_BYTES, dtype=np.float32))
    arrays = [read_array(small), read_array(large)]
    assert [isinstance(array, np.memmap) for array in arrays] == [False, True]
    assert str(small) not in open_files()
    assert str(large) in open_files()
    assert not isinstance(read_array(large, mmap=False), np.memmap)


def test_objects_are_neither_written_nor_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        write_array(tmp_path / "a.npy", np.array([{}], dtype=object))
    assert list(tmp_path.iterdir()) == []
    np.save(tmp_path / "b.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"allow_pickle|Object arrays"):
        read_array(tmp_path / "b.npy", mmap=False)


def test_trees_files_and_nothing_are_removed(tmp_path: Path) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").touch()
    (tmp_path / "file").touch()
    for name in ("tree", "file", "nothing"):
        remove_tree(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_removed_and_not_what_it_points_at(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "kept").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    remove_tree(tmp_path / "link")
    assert (tmp_path / "real" / "kept").exists()
    assert not (tmp_path / "link").is_symlink()


def test_sizes_add_up(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_bytes(b"123")
    assert tree_bytes(tmp_path) == 8
    assert tree_bytes(tmp_path / "a") == 5
    assert tree_bytes(tmp_path / "nothing") == 0


@pytest.mark.usefixtures("open_umask")
def test_what_is_written_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b" / "text.txt", "key")
    assert [p.stat().st_mode & 0o777 for p in sorted(tmp_path.rglob("*"))] == [0o700, 0o700, 0o600]


def test_others_lose_what_they_may_but_not_of_the_source_and_not_through_links(
    tmp_path: Path,
) -> None:
    store, outside = tmp_path / "store", tmp_path / "outside"
    store.mkdir()
    store.chmod(0o755)
    for path in (outside, store / "text", store / "memory.db", store / "memory.db-wal"):
        path.touch()
        path.chmod(0o664)
    (store / "link").symlink_to(outside)
    assert open_to_others(store, store / "memory.db") == [store, store / "text"]
    assert make_private(store, store / "memory.db") == 2
    assert open_to_others(store, store / "memory.db") == []
    assert (store.stat().st_mode & 0o777, (store / "text").stat().st_mode & 0o777) == (0o700, 0o600)
    assert {p.stat().st_mode & 0o777 for p in (outside, *store.glob("memory.db*"))} == {0o664}


@pytest.mark.parametrize("dtype", ["<i4", "<i8", "<f4", "<f8", "|u1", "|b1", ">i4", "<U3"])
@pytest.mark.parametrize("shape", [(5,), (0,), (0, 3), (3, 0), (40, 700), (2, 2, 2), ()])
def test_an_array_is_read_as_numpy_reads_it(
    tmp_path: Path, dtype: str, shape: tuple[int, ...]
) -> None:
    path = tmp_path / "a.npy"
    write_array(path, np.arange(int(np.prod(shape))).reshape(shape).astype(dtype))
    for mmap in (True, False):
        is_mapped = mmap and path.stat().st_size >= MAP_FROM_BYTES
        expected = np.load(path, mmap_mode="r" if is_mapped else None)
        found = read_array(path, mmap=mmap)
        assert type(found) is type(expected)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.flags.c_contiguous
        assert not found.flags.writeable
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kept", [0, 50, 127, 128, 159, -8])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_torn_array_is_an_error(tmp_path: Path, kept: int, mmap: bool) -> None:
    path = tmp_path / "a.npy"
    for count in (20, 20_000):  # one that is read, one that is mapped
        write_array(path, np.arange(count))
        path.write_bytes(path.read_bytes()[:kept])
        with pytest.raises((ValueError, EOFError)):
            read_array(path, mmap=mmap)
