from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from noctuary.cli.store import age_hours, describe_snapshots, read_status
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError
from noctuary.core.files import tree_bytes
from noctuary.core.manifest import read_pointer
from tests.support.store import Store, memory, renumber


def test_status_is_what_the_pointer_and_the_manifest_say(dense_store: Store) -> None:
    pointer = read_pointer(dense_store.paths)
    status = read_status(dense_store.paths)
    directory = dense_store.snapshot(pointer.snapshot_id)
    assert status["store"] == str(dense_store.root)
    assert (status["snapshot_id"], status["digest"]) == (pointer.snapshot_id, pointer.digest)
    assert (status["reason"], status["published_at"]) == ("publish", pointer.published_at)
    assert status["counts"]["memories"] == 14
    assert status["encoder"]["model"] == "word-axes"
    assert status["source"]["kind"] == "jsonl"
    assert list(status["wings"].items()) == [("home", 9), ("(none)", 3), ("work", 2)]
    manifest_bytes = (directory / layout.MANIFEST_FILE).stat().st_size
    assert status["snapshot_bytes"] == tree_bytes(directory) - manifest_bytes
    assert status["store_bytes"] == tree_bytes(dense_store.root)


def test_a_store_without_a_snapshot_has_no_status(empty_store: Store) -> None:
    with pytest.raises(SnapshotMissingError):
        read_status(empty_store.paths)
    assert describe_snapshots(empty_store.paths) == []


@pytest.mark.parametrize("name", [layout.ROWS_FILE, layout.MANIFEST_FILE])
def test_a_damaged_snapshot_has_no_status(dense_store: Store, name: str) -> None:
    (dense_store.snapshot(read_pointer(dense_store.paths).snapshot_id) / name).unlink()
    with pytest.raises(SnapshotCorruptError):
        read_status(dense_store.paths)


def test_rows_that_cannot_be_read_are_typed(dense_store: Store) -> None:
    path = dense_store.snapshot(read_pointer(dense_store.paths).snapshot_id) / layout.ROWS_FILE
    path.chmod(0o600)
    path.write_bytes(b"\x00" * path.stat().st_size)
    with pytest.raises(SnapshotCorruptError, match="noctuary doctor"):
        read_status(dense_store.paths)


def test_snapshots_are_described_oldest_first(plain_store: Store) -> None:
    first = read_pointer(plain_store.paths).snapshot_id
    second = plain_store.publish(renumber([memory("boat")]))
    older, newer = describe_snapshots(plain_store.paths)
    assert (older["snapshot_id"], older["serving"], older["memories"]) == (first, False, 14)
    assert (newer["snapshot_id"], newer["serving"], newer["memories"]) == (second, True, 1)
    assert older["intact"]
    assert older["bytes"] > newer["bytes"] > 0


def test_a_damaged_snapshot_is_described_as_such(plain_store: Store) -> None:
    name = read_pointer(plain_store.paths).snapshot_id
    (plain_store.snapshot(name) / layout.ARRAYS_FILE).unlink()
    (row,) = describe_snapshots(plain_store.paths)
    assert (row["snapshot_id"], row["serving"], row["intact"]) == (name, True, False)
    assert layout.ARRAYS_FILE in row["fault"]


def test_without_a_readable_pointer_nothing_serves(plain_store: Store) -> None:
    plain_store.paths.current.write_text("{")
    (row,) = describe_snapshots(plain_store.paths)
    assert not row["serving"]
    assert row["intact"]


def test_age_is_in_hours_and_never_negative() -> None:
    now = datetime.now(UTC)
    assert age_hours((now - timedelta(hours=3)).isoformat()) == pytest.approx(3.0, abs=0.01)
    assert age_hours((now + timedelta(hours=3)).isoformat()) == 0.0
