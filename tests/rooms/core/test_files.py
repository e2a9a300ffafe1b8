"""JSON that somebody else wrote: every reader says what is wrong, and none recurses into it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from noctuary.agents.hooks import answer
from noctuary.agents.state import read_json
from noctuary.core.errors import ConfigError, EncoderError, SnapshotCorruptError
from noctuary.core.files import (
    canonical_json,
    fsync_dir,
    fsync_file,
    group_arrays,
    hash_file,
    hash_json,
    hash_text,
    make_private,
    open_to_others,
    read_array,
    read_arrays,
    remove_tree,
    replacement,
    tree_bytes,
    write_array,
    write_array_blocks,
    write_arrays,
    write_text,
)
from noctuary.core.foreign_json import MOST_LEVELS, parse_json
from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.settings import Settings
from noctuary.core.store import MANIFEST_FILE, StorePaths
from noctuary.embed.hosted import HOSTED_FILE, read_description
from noctuary.embed.lean import HEADER_FILE, read_header
from noctuary.recall.result import Calibration
from noctuary.snapshot.publish import read_verdict
from noctuary.sources.palace import _ids  # pyright: ignore[reportPrivateUsage]
from noctuary.sources.transcripts import FileContext, parse_object
from tests.support.descriptors import open_files
from tests.support.hook_worlds import MemoryWorld


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    write_text(path, "old")
    with path.open(encoding="utf-8") as reader:
        with replacement(path) as tmp:
            write_text(tmp, "new")
            assert path.read_text() == "old"
        assert reader.read() == "old", "an open reader keeps the file it opened"
    assert path.read_text() == "new"
    write_text(path, "old")

    def stop_halfway() -> None:
        with replacement(path) as tmp:
            tmp.write_text("half of the n")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_halfway()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


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


@pytest.mark.usefixtures("open_umask")
def test_a_file_is_made_with_its_folders_for_its_owner_alone_whatever_the_umask(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a" / "b" / "text.txt"
    write_text(path, "ключ 🔑")
    assert path.read_text(encoding="utf-8") == "ключ 🔑"
    assert [p.stat().st_mode & 0o777 for p in sorted(tmp_path.rglob("*"))] == [0o700, 0o700, 0o600]


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


@pytest.mark.parametrize("mmap", [True, False])
def test_an_array_cannot_be_changed_and_holds_its_file_where_it_is_mapped(
    tmp_path: Path, mmap: bool
) -> None:
    write_array(tmp_path / "a.npy", np.ones(3, dtype=np.float32))
    array = read_array(tmp_path / "a.npy", mmap=mmap)
    assert isinstance(array, np.memmap) == mmap
    assert (str(tmp_path / "a.npy") in open_files()) == mmap
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 2


ARRAYS = {
    "graph.indptr": np.array([0, 2, 2], dtype=np.int64),
    "graph.targets": np.array([1, 0], dtype=np.int32),
    "graph.relations": np.array([-1, 3, 2], dtype=np.int8),
    "confidences": np.array([0.5], dtype=np.float64),
    "nothing": np.empty((0, 3), dtype=np.float32),
    "vectors": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
}


def test_many_arrays_round_trip_through_one_file_that_safetensors_reads_alike(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.safetensors"
    write_arrays(path, ARRAYS)
    found, theirs = read_arrays(path), load_file(path)
    assert found.keys() == theirs.keys() == ARRAYS.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, ARRAYS[name], strict=True)
        np.testing.assert_array_equal(array, theirs[name], strict=True)
        assert array.flags.aligned
        assert array.flags.c_contiguous
        assert not array.flags.writeable
    assert open_files().count(str(path)) == 1
    assert group_arrays(found, "graph").keys() == {"indptr", "targets", "relations"}
    write_arrays(tmp_path / "b", dict(reversed(ARRAYS.items())))
    assert (tmp_path / "b").read_bytes() == path.read_bytes(), "in whatever order they come"
    save_file({name: np.ascontiguousarray(array) for name, array in ARRAYS.items()}, tmp_path / "c")
    for name, array in read_arrays(tmp_path / "c").items():
        np.testing.assert_array_equal(array, ARRAYS[name], strict=True)


@pytest.mark.parametrize("dtype", [object, np.float16, ">i4", "<U3"])
def test_arrays_of_another_type_are_not_written(tmp_path: Path, dtype: Any) -> None:
    with pytest.raises(KeyError):
        write_arrays(tmp_path / "a", {"a": np.zeros(3, dtype)})
    assert list(tmp_path.iterdir()) == []


HEADER = {"a": {"dtype": "I32", "shape": [2, 2], "data_offsets": [0, 16]}}


@pytest.mark.parametrize(
    "told",
    [
        {"shape": [2, 3]},
        {"shape": [2, -2]},
        {"shape": [-2, -2]},
        {"shape": [2**62, 4]},
        {"shape": [0, 2**70], "data_offsets": [0, 0]},
        {"shape": [4.0]},
        {"shape": ["4"]},
        {"shape": []},
        {"shape": 4},
        {"shape": [1] * 65 + [4]},
        {"dtype": "O"},
        {"dtype": "I64"},
        {"dtype": ["I32"]},
        {"data_offsets": [4, 20]},
        {"data_offsets": [-16, 0]},
        {"data_offsets": [0, 12]},
        {"data_offsets": None},
    ],
)
def test_a_header_that_lies_is_an_error(tmp_path: Path, told: dict[str, Any]) -> None:
    for header in (HEADER, {"a": {**HEADER["a"], **told}}):
        raw = json.dumps(header).encode()
        (tmp_path / "a").write_bytes(len(raw).to_bytes(8, "little") + raw + bytes(16))
        if header is HEADER:
            assert read_arrays(tmp_path / "a")["a"].shape == (2, 2)
    with pytest.raises((ValueError, TypeError, KeyError, OverflowError)):
        read_arrays(tmp_path / "a")


@given(st.data())
def test_a_damaged_file_of_arrays_is_an_error_or_has_other_numbers(data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "a"
        write_arrays(path, ARRAYS)
        whole = bytearray(path.read_bytes())
        place = data.draw(st.integers(0, len(whole) - 1))
        whole[place] = data.draw(st.integers(0, 255))
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))] + data.draw(st.binary()))
        try:
            found = read_arrays(path)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            return
        # Every number is inside the file: a view beyond it would end the process.
        assert sum(array.nbytes for array in found.values()) < path.stat().st_size
        assert all(np.array(array).shape == array.shape for array in found.values())


def test_objects_are_neither_written_nor_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        write_array(tmp_path / "a.npy", np.array([{}], dtype=object))
    assert list(tmp_path.iterdir()) == []
    np.save(tmp_path / "b.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match=r"allow_pickle|Object arrays"):
        read_array(tmp_path / "b.npy", mmap=False)


def test_a_tree_a_file_or_a_link_is_measured_and_removed_and_not_what_a_link_points_at(
    tmp_path: Path,
) -> None:
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "file").write_bytes(b"12345")
    (tmp_path / "file").write_bytes(b"123")
    sizes = [tree_bytes(p) for p in (tmp_path, tmp_path / "file", tmp_path / "nothing")]
    assert sizes == [8, 3, 0]
    for name in ("tree", "file", "nothing"):
        remove_tree(tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "kept").touch()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    remove_tree(tmp_path / "link")
    assert (tmp_path / "real" / "kept").exists()
    assert not (tmp_path / "link").is_symlink()


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
        expected = np.load(path, mmap_mode="r" if mmap else None)
        found = read_array(path, mmap=mmap)
        assert type(found) is type(expected)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.flags.c_contiguous
        assert not found.flags.writeable
        np.testing.assert_array_equal(found, expected)
    write_array(tmp_path / "b.npy", np.asfortranarray(np.load(path)))
    assert (tmp_path / "b.npy").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("kept", [0, 50, 127, 128, 159, -8])
@pytest.mark.parametrize("mmap", [True, False])
def test_a_torn_array_is_an_error(tmp_path: Path, kept: int, mmap: bool) -> None:
    path = tmp_path / "a.npy"
    for count in (20, 20_000):  # one that is read, one that is mapped
        write_array(path, np.arange(count))
        path.write_bytes(path.read_bytes()[:kept])
        with pytest.raises((ValueError, EOFError)):
            read_array(path, mmap=mmap)


anything = st.text(st.characters(exclude_categories=()), max_size=30)


def test_hash_text_is_sha256_over_length_prefixed_parts() -> None:
    raw = (3).to_bytes(8, "big") + b"abc" + (2).to_bytes(8, "big") + "é".encode()
    assert hash_text("abc", "é") == hashlib.sha256(raw).hexdigest()
    assert hash_text() == hashlib.sha256(b"").hexdigest()


@given(st.lists(anything, max_size=4), st.lists(anything, max_size=4))
def test_only_equal_parts_hash_alike(left: list[str], right: list[str]) -> None:
    assert (hash_text(*left) == hash_text(*right)) == (left == right)


def test_canonical_json_sorts_keys_and_keeps_text_as_it_is() -> None:
    assert canonical_json({"b": [1, 2.5, None], "a": {"z": True, "é": "🔑"}}) == (
        '{"a":{"z":true,"é":"🔑"},"b":[1,2.5,null]}'
    )


@given(st.dictionaries(anything, st.one_of(st.integers(), anything, st.none()), max_size=6))
def test_the_order_of_keys_does_not_change_the_hash(value: dict[str, object]) -> None:
    backwards = dict(reversed(list(value.items())))
    assert hash_json(backwards) == hash_json(value)


def test_a_file_is_hashed_by_its_bytes_in_chunks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for size in (0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1):
        content = b"x" * size
        path.write_bytes(content)
        assert hash_file(path) == hashlib.sha256(content).hexdigest()


DEEP = "[" * 100_000 + "]" * 100_000


def nested(levels: int) -> str:
    return '{"a":' * levels + "[1, 2]" + "}" * levels


@given(st.integers(0, 3 * MOST_LEVELS), st.booleans())
def test_what_is_nested_deeper_than_the_limit_is_no_json(levels: int, as_bytes: bool) -> None:
    text = nested(levels)
    given_text = text.encode() if as_bytes else text
    beside = {"text": "[{" * 10_000, "rows": [[] for _ in range(1_000)]}
    assert parse_json(json.dumps(beside)) == beside, "that is not nesting"
    if levels < MOST_LEVELS:
        assert parse_json(given_text) == json.loads(text)
    else:
        with pytest.raises(ValueError, match="nested too deeply"):
            parse_json(given_text)


def file(path: Path, text: str = DEEP) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def in_config(path: Path) -> Any:
    return Settings.load(file(path / "noctuary.toml", f"a = {DEEP}"), environ={})


READERS: dict[str, tuple[Callable[[Path], Any], type[Exception] | None]] = {
    "a pointer": (
        lambda p: read_pointer(StorePaths(file(p / "CURRENT").parent)), SnapshotCorruptError
    ),
    "a manifest": (lambda p: read_manifest(file(p / MANIFEST_FILE).parent), SnapshotCorruptError),
    "an encoder": (lambda p: read_header(file(p / HEADER_FILE).parent), EncoderError),
    "a provider": (lambda p: read_description(file(p / HOSTED_FILE).parent), EncoderError),
    "a calibration": (lambda p: Calibration.parse(DEEP), ValueError),
    "settings": (in_config, ConfigError),
    "a verdict": (lambda p: read_verdict(StorePaths(file(p / "verdicts/x.json").parents[1]), "x"),
                  None),
    "a hook's event": (lambda p: answer(DEEP.encode(), MemoryWorld()) or None, None),
    "a hook's notes": (lambda p: read_json(file(p / "x.json"), 1 << 20)[0], None),
    "a transcript": (lambda p: parse_object(DEEP.encode()), None),
    "a transcript's context": (
        lambda p: None if FileContext.from_json(DEEP) == FileContext() else DEEP, None
    ),
    "a palace's marks": (lambda p: _ids(DEEP) or None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_no_reader_recurses_into_what_is_nested_without_end(tmp_path: Path, name: str) -> None:
    read, raises = READERS[name]
    if raises is None:
        assert read(tmp_path) is None
        return
    with pytest.raises(raises):
        read(tmp_path)
