from __future__ import annotations

import json
import shutil
from collections.abc import Iterable

import pytest

from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError
from noctuary.core.manifest import read_pointer
from noctuary.recall.engine import Recaller
from noctuary.recall.reader import Opened, open_serving
from noctuary.snapshot.publish import rollback
from tests.support.store import Store, memory, renumber


def night(store: Store, number: int) -> str:
    return store.publish(renumber([memory(f"The boat left in night {number}.")]))


@pytest.fixture
def three(empty_store: Store) -> tuple[Store, list[str]]:
    return empty_store, [night(empty_store, n) for n in (1, 2, 3)]


def lose(store: Store, snapshot_id: str) -> None:
    (store.snapshot(snapshot_id) / layout.ARRAYS_FILE).unlink()


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
    assert layout.ARRAYS_FILE in found.fallback_reason
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


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def served_after_each(store: Store, bits: Iterable[int]) -> set[tuple[str, bool]]:
    """Return what answers with each bit of the pointer flipped, and whether a warning says so."""
    whole, served = store.paths.current.read_bytes(), dict[tuple[str, bool], None]()
    for bit in bits:
        store.paths.current.write_bytes(flipped(whole, bit))
        found = opened(store)
        how = (found.snapshot_id, found.fallback_reason is not None)
        if how not in served:
            assert Recaller(store.paths, found.reader, found.snapshot_id).recall("boat").memories
        found.reader.close()
        served[how] = None
    store.paths.current.write_bytes(whole)
    return set(served)


def test_with_a_bit_of_the_pointer_s_name_flipped_the_newest_snapshot_serves_with_a_warning(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    start = store.paths.current.read_bytes().index(names[2].encode())
    bits = range(8 * start, 8 * (start + len("20260101T000000")))
    assert served_after_each(store, bits) == {(names[2], True)}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_with_any_bit_of_the_pointer_flipped_the_newest_snapshot_serves(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    bits = range(8 * store.paths.current.stat().st_size)
    assert {name for name, _ in served_after_each(store, bits)} == {names[2]}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_with_any_bit_of_a_rollback_s_pointer_flipped_something_intact_serves(
    three: tuple[Store, list[str]],
) -> None:
    """What still is JSON about one snapshot goes on serving the one that was chosen."""
    store, names = three
    rollback(store.paths, names[0])
    bits = range(8 * store.paths.current.stat().st_size)
    assert served_after_each(store, bits) == {(names[0], False), (names[0], True), (names[2], True)}


@pytest.mark.parametrize(
    "name", ["/etc", "..", "../../elsewhere", "", ".", "20260101T000000000000-../../../../x"]
)
def test_a_pointer_leads_nowhere_but_to_a_published_snapshot(
    three: tuple[Store, list[str]], name: str
) -> None:
    store, names = three
    elsewhere = store.root.parent / "elsewhere"
    shutil.copytree(store.snapshot(names[0]), elsewhere)
    told = json.loads(store.paths.current.read_text())
    store.paths.current.write_text(json.dumps({**told, "snapshot_id": name, "digest": ""}))
    found = opened(store)
    assert found.snapshot_id == names[2]
    assert found.reader.directory == store.snapshot(names[2])
    with pytest.raises(SnapshotCorruptError, match="cannot be read"):
        read_pointer(store.paths)


def test_a_rollback_mends_a_pointer_whose_name_sorts_before_all(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    text = store.paths.current.read_text()
    store.paths.current.write_text(text.replace(names[2], f"1{names[2][1:]}", 1))
    assert rollback(store.paths).snapshot_id == names[2]


def test_with_everything_damaged_the_first_fault_is_told(three: tuple[Store, list[str]]) -> None:
    store, names = three
    for name in names:
        lose(store, name)
    with pytest.raises(SnapshotCorruptError, match=names[2]):
        opened(store)


def test_a_store_that_never_published_says_so(empty_store: Store) -> None:
    with pytest.raises(SnapshotMissingError, match="noctuary nightly"):
        opened(empty_store)
    empty_store.paths.snapshots.mkdir()
    with pytest.raises(SnapshotMissingError, match="noctuary nightly"):
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
