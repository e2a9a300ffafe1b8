from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError
from noctuary.core.formats import SNAPSHOT
from noctuary.core.manifest import (
    FileEntry,
    Manifest,
    Pointer,
    compute_digest,
    describe_files,
    full_check,
    quick_check,
    read_manifest,
    read_pointer,
    write_manifest,
    write_pointer,
)
from noctuary.core.store import StorePaths
from tests.support.store import Store, household, new_store

POINTER = Pointer(
    f"20260101T030000000000-{'d' * 12}", "d" * 64, "2026-01-01T03:00:00+00:00", None, "publish"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_store(tmp_path_factory.mktemp("built") / "house").candidate(household())


@pytest.fixture
def candidate(built: Path, empty_store: Store) -> Path:
    return shutil.copytree(built, empty_store.paths.candidates / built.name)


def test_manifest_and_pointer_round_trip(tmp_path: Path) -> None:
    manifest = Manifest(
        format_version=SNAPSHOT.version,
        digest="d" * 64,
        files={"rows.sqlite": FileEntry(10, "ab" * 32)},
        counts={"memories": 3},
        id_kind="int",
        encoder={"model": "使用"},
        encoder_digest="e",
        source={"kind": "jsonl"},
        corpus_digest="c",
        settings={"recall": {"fusion": "cc"}},
        warnings=[("code", "message")],
        built_at="2026-01-01T03:00:00+00:00",
    )
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    paths = StorePaths(tmp_path / "store")
    with pytest.raises(SnapshotMissingError, match="noctuary nightly"):
        read_pointer(paths)
    write_pointer(paths, POINTER)
    assert read_pointer(paths) == POINTER
    assert [p.name for p in paths.root.iterdir()] == ["CURRENT"]


DAMAGED_POINTERS = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"5",
    b'"text"',
    b"\xff\xfe",
    b"{}",
    b'{"snapshot_id": "a"}',
    json.dumps({**{f: getattr(POINTER, f) for f in Pointer._fields}, "more": 1}).encode(),
    json.dumps({**{f: getattr(POINTER, f) for f in Pointer._fields}, "snapshot_id": 5}).encode(),
    json.dumps({**{f: getattr(POINTER, f) for f in Pointer._fields}, "digest": None}).encode(),
]


@pytest.mark.parametrize("content", DAMAGED_POINTERS)
def test_a_damaged_pointer_is_typed(tmp_path: Path, content: bytes) -> None:
    paths = StorePaths(tmp_path)
    paths.current.write_bytes(content)
    with pytest.raises(SnapshotCorruptError, match="rollback"):
        read_pointer(paths)


Change = Callable[[dict[str, object]], object]


def _rewrite(directory: Path, change: Change) -> None:
    path = directory / layout.MANIFEST_FILE
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def _set(**values: object) -> Change:
    return lambda manifest: manifest.update(values)


def _drop(name: str) -> Change:
    return lambda manifest: manifest.pop(name)


@pytest.mark.parametrize(
    "change",
    [
        _set(format_version=99),
        _set(files=None),
        _set(files={"a": {"bytes": 1}}),
        _set(files={"a": 3}),
        _set(unknown_field=1),
        _set(counts=None),
        _set(counts={"memories": "14"}),
        _set(counts={"turns": 6}),
        _set(digest=7),
        _set(encoder="minilm"),
        _drop("digest"),
        _drop("files"),
        _drop("format_version"),
    ],
)
def test_a_damaged_manifest_is_typed(candidate: Path, change: Change) -> None:
    _rewrite(candidate, change)
    with pytest.raises(SnapshotCorruptError):
        read_manifest(candidate)
    _rewrite(candidate, _set(format_version=99))
    with pytest.raises(SnapshotCorruptError, match="format 99"):
        read_manifest(candidate)
    (candidate / layout.MANIFEST_FILE).unlink()
    with pytest.raises(SnapshotCorruptError):
        read_manifest(candidate)


@pytest.mark.parametrize("content", [b"", b"null", b"[1]", b"{", b"\xff"])
def test_a_manifest_that_is_no_object_is_typed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / layout.MANIFEST_FILE).write_bytes(content)
    with pytest.raises(SnapshotCorruptError, match="no readable manifest"):
        read_manifest(tmp_path)


def _every_file(candidate: Path) -> list[str]:
    return [p.name for p in candidate.iterdir() if p.name != layout.MANIFEST_FILE]


def test_the_checks_find_any_file_that_is_missing_cut_flipped_or_too_many(candidate: Path) -> None:
    manifest = read_manifest(candidate)
    assert set(manifest.files) == set(_every_file(candidate))
    quick_check(candidate, manifest)
    for name in _every_file(candidate):
        path = candidate / name
        content = path.read_bytes()
        size, middle = len(content), len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        path.unlink()
        for check in (quick_check, full_check):
            with pytest.raises(SnapshotCorruptError, match=f"{name} is missing"):
                check(candidate, manifest)
        path.write_bytes(content[:-1])
        for check in (quick_check, full_check):
            with pytest.raises(SnapshotCorruptError, match=f"{name} has {size - 1} bytes"):
                check(candidate, manifest)
        path.write_bytes(flipped)
        quick_check(candidate, manifest)
        with pytest.raises(SnapshotCorruptError, match=f"{name} has another checksum"):
            full_check(candidate, manifest)
        path.write_bytes(content)
        full_check(candidate, manifest)
    (candidate / "extra.npy").write_bytes(b"x")
    with pytest.raises(SnapshotCorruptError, match=r"extra\.npy is not in the manifest"):
        full_check(candidate, manifest)


@pytest.mark.parametrize(
    "change",
    [
        {"counts": {"memories": 1}},
        {"id_kind": "str"},
        {"encoder_digest": "other"},
        {"digest": "0" * 64},
    ],
)
def test_the_full_check_finds_a_manifest_that_was_edited(
    candidate: Path, change: dict[str, Any]
) -> None:
    manifest = read_manifest(candidate)._replace(**change)
    with pytest.raises(SnapshotCorruptError, match="digest does not match"):
        full_check(candidate, manifest)


def test_a_fault_names_at_most_ten_files(candidate: Path) -> None:
    manifest = read_manifest(candidate)
    told = {f"file_{n}": FileEntry(1, "ab") for n in range(11)}
    with pytest.raises(SnapshotCorruptError) as caught:
        quick_check(candidate, manifest._replace(files=told))
    assert str(caught.value).count("is missing") == 10


def test_the_digest_depends_on_names_and_checksums_but_not_on_order() -> None:
    one, two = FileEntry(1, "aa"), FileEntry(1, "bb")
    digest = compute_digest({"x": one, "y": two}, {"memories": 1}, "int", None)
    assert compute_digest({"y": two, "x": one}, {"memories": 1}, "int", None) == digest
    assert compute_digest({"x": two, "y": one}, {"memories": 1}, "int", None) != digest
    assert compute_digest({"x": one, "z": two}, {"memories": 1}, "int", None) != digest


def test_described_files_exclude_the_manifest_and_directories(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / layout.MANIFEST_FILE).write_text("{}")
    (tmp_path / "folder").mkdir()
    found = describe_files(tmp_path)
    # SHA-256 of "abc": the first example of FIPS 180-2.
    sha = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert found == {"a": FileEntry(3, sha)}
