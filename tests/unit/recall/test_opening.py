from __future__ import annotations

import shutil

import pytest

from mnemon.errors import SnapshotCorruptError, SnapshotMissingError
from mnemon.recall.opening import Opened, open_serving
from mnemon.snapshot import layout
from mnemon.snapshot.publish import rollback
from tests.support.store import Store, memory, renumber


def night(store: Store, number: int) -> str:
    return store.publish(renumber([memory(f"The boat left in night {number}.")]))


@pytest.fixture
def three(empty_store: Store) -> tuple[Store, list[str]]:
    return empty_store, [night(empty_store, n) for n in (1, 2, 3)]


def lose(store: Store, snapshot_id: str) -> None:
    (store.snapshot(snapshot_id) / layout.IMPORTANCE_FILE).unlink()


def opened(store: Store) -> Opened:
    return open_serving(store.paths)


def test_the_pointer_decides(three: tuple[Store, list[str]]) -> None:
    store, names = three
    rollback(store.paths, names[0])
    found = opened(store)
    assert (found.snapshot_id, found.fallback_reason) == (names[0], None)


def test_a_half_deleted_snapshot_falls_back_to_the_one_before(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    lose(store, names[2])
    found = opened(store)
    assert found.snapshot_id == names[1]
    assert found.fallback_reason is not None
    assert layout.IMPORTANCE_FILE in found.fallback_reason
    lose(store, names[1])
    assert opened(store).snapshot_id == names[0]


def test_a_snapshot_under_another_name_is_not_served_for_it(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    shutil.rmtree(store.snapshot(names[2]))
    shutil.copytree(store.snapshot(names[0]), store.snapshot(names[2]))
    found = opened(store)
    assert found.fallback_reason is not None
    assert "not the one that was published" in found.fallback_reason
    assert found.snapshot_id == names[1]


def test_a_fallback_never_serves_what_was_rolled_back_from(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    rollback(store.paths, names[1])
    lose(store, names[1])
    assert opened(store).snapshot_id == names[0]


@pytest.mark.parametrize("pointer", [None, b"", b"{", b"\xff"])
def test_a_lost_or_damaged_pointer_falls_back_to_the_newest(
    three: tuple[Store, list[str]], pointer: bytes | None
) -> None:
    store, names = three
    store.paths.current.unlink()
    if pointer is not None:
        store.paths.current.write_bytes(pointer)
    found = opened(store)
    assert found.snapshot_id == names[2]
    assert found.fallback_reason is not None


def test_with_everything_damaged_the_first_fault_is_told(three: tuple[Store, list[str]]) -> None:
    store, names = three
    for name in names:
        lose(store, name)
    with pytest.raises(SnapshotCorruptError, match=names[2]):
        opened(store)


def test_a_store_that_never_published_says_so(empty_store: Store) -> None:
    with pytest.raises(SnapshotMissingError, match="make nightly"):
        opened(empty_store)
    empty_store.paths.snapshots.mkdir()
    with pytest.raises(SnapshotMissingError, match="make nightly"):
        opened(empty_store)


def test_a_snapshot_removed_between_pointer_and_opening_is_looked_for_again(
    three: tuple[Store, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publish with retention runs between the two reads; the second look finds the new one."""
    store, names = three
    rollback(store.paths, names[0])
    read = open_serving.__globals__["read_pointer"]
    looks: list[str] = []

    def read_then_move(paths: layout.StorePaths) -> object:
        pointer = read(paths)
        looks.append(pointer.snapshot_id)
        if len(looks) == 1:
            rollback(store.paths, names[2])
            shutil.rmtree(store.snapshot(names[0]))
        return pointer

    monkeypatch.setitem(open_serving.__globals__, "read_pointer", read_then_move)
    found = opened(store)
    assert looks == [names[0], names[2]]
    assert (found.snapshot_id, found.fallback_reason) == (names[2], None)
