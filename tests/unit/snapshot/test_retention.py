from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError
from noctuary.core.manifest import read_pointer
from noctuary.core.store import StorePaths
from noctuary.recall.engine import Recaller
from noctuary.snapshot.publish import (
    apply_retention,
    drop_older_snapshots,
    list_snapshots,
    rollback,
    serving_manifest,
)
from tests.support.store import Store, memory, new_store, renumber


def night(store: Store, number: int) -> str:
    return store.publish(renumber([memory(f"The boat left in night {number}.")]))


def answer(store: Store) -> str:
    return Recaller.open(store.root).recall("boat").memories[0].content


def flip(store: Store, snapshot_id: str, name: str = layout.ROWS_FILE) -> None:
    path = store.snapshot(snapshot_id) / name
    content = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    store = new_store(tmp_path_factory.mktemp("published") / "house")
    return store.root, [night(store, n) for n in (1, 2, 3)]


@pytest.fixture
def three(home: Path, published: tuple[Path, list[str]]) -> tuple[Store, list[str]]:
    root, names = published
    return Store(StorePaths(shutil.copytree(root, home / "house"))), list(names)


def test_retention_keeps_the_newest(empty_store: Store) -> None:
    store = new_store(empty_store.root.with_name("kept"), keep=3)
    names = [night(store, n) for n in range(5)]
    assert list_snapshots(store.paths) == names[2:]


def test_retention_never_removes_the_serving_snapshot_or_the_one_before(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    assert apply_retention(store.paths, 1) == (names[0],)
    assert list_snapshots(store.paths) == names[1:]


def test_after_a_rollback_retention_keeps_what_serves_and_what_served(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    rollback(store.paths, names[0])
    assert apply_retention(store.paths, 2) == (names[1],)
    assert list_snapshots(store.paths) == [names[0], names[2]]


def test_retention_leaves_everything_while_there_is_room(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    assert apply_retention(store.paths, 3) == ()
    assert list_snapshots(store.paths) == names


def test_a_removal_that_was_killed_is_finished_by_the_next(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    doomed = store.root / f".removing-{names[0]}"
    store.snapshot(names[0]).rename(doomed)
    assert list_snapshots(store.paths) == names[1:]
    apply_retention(store.paths, 7)
    assert not doomed.exists()


def test_dropping_older_ones_leaves_only_what_serves(three: tuple[Store, list[str]]) -> None:
    store, names = three
    assert drop_older_snapshots(store.paths) == (names[0], names[1])
    assert list_snapshots(store.paths) == [names[2]]
    assert answer(store).endswith("night 3.")


def test_a_pinned_reader_keeps_answering_after_its_snapshot_was_removed(
    empty_store: Store,
) -> None:
    store = new_store(empty_store.root.with_name("pinned"), keep=2)
    first = night(store, 1)
    pinned = Recaller.open(store.root)
    for number in (2, 3, 4):
        night(store, number)
    assert first not in list_snapshots(store.paths)
    result = pinned.recall("boat")
    assert result.snapshot_id == first
    assert result.memories[0].content.endswith("night 1.")
    assert [w.code for w in result.warnings] == ["dense_unavailable"]


def test_rollback_goes_to_the_one_before_and_then_further(three: tuple[Store, list[str]]) -> None:
    store, names = three
    pointer = rollback(store.paths)
    assert (pointer.snapshot_id, pointer.previous_id, pointer.reason) == (
        names[1],
        names[2],
        "rollback",
    )
    assert read_pointer(store.paths) == pointer
    assert answer(store).endswith("night 2.")
    assert rollback(store.paths).snapshot_id == names[0]
    assert answer(store).endswith("night 1.")
    with pytest.raises(SnapshotMissingError, match="no snapshot older"):
        rollback(store.paths)
    assert answer(store).endswith("night 1.")


def test_rollback_to_a_named_one_may_go_forward(three: tuple[Store, list[str]]) -> None:
    store, names = three
    rollback(store.paths, names[0])
    assert rollback(store.paths, names[2]).snapshot_id == names[2]
    assert answer(store).endswith("night 3.")


def test_rollback_to_an_unknown_name_says_so(three: tuple[Store, list[str]]) -> None:
    store, names = three
    for name in ("20200101T000000000000-abc", "", "..", f"../snapshots/{names[0]}"):
        with pytest.raises(SnapshotMissingError, match="3 found"):
            rollback(store.paths, name)
    assert read_pointer(store.paths).snapshot_id == names[2]


@pytest.mark.parametrize("file", [layout.ROWS_FILE, layout.MANIFEST_FILE, layout.ARRAYS_FILE])
def test_rollback_to_a_damaged_snapshot_refuses(three: tuple[Store, list[str]], file: str) -> None:
    store, names = three
    before = store.paths.current.read_bytes()
    flip(store, names[1], file)
    with pytest.raises(SnapshotCorruptError):
        rollback(store.paths, names[1])
    assert store.paths.current.read_bytes() == before


def test_rollback_repairs_a_lost_pointer(three: tuple[Store, list[str]]) -> None:
    store, names = three
    store.paths.current.write_bytes(b"not json")
    assert rollback(store.paths).snapshot_id == names[2]
    assert read_pointer(store.paths).previous_id is None


def test_rollback_in_an_empty_store_says_so(empty_store: Store) -> None:
    with pytest.raises(SnapshotMissingError):
        rollback(empty_store.paths)
    assert not empty_store.paths.current.exists()


def test_the_serving_manifest_is_none_unless_something_intact_serves(
    three: tuple[Store, list[str]],
) -> None:
    store, names = three
    manifest = serving_manifest(store.paths)
    assert manifest is not None
    assert manifest.digest == read_pointer(store.paths).digest
    # The directory under the pointer's name was swapped for another intact snapshot.
    shutil.rmtree(store.snapshot(names[2]))
    shutil.copytree(store.snapshot(names[1]), store.snapshot(names[2]))
    assert serving_manifest(store.paths) is None
    shutil.rmtree(store.snapshot(names[2]))
    assert serving_manifest(store.paths) is None
    store.paths.current.unlink()
    assert serving_manifest(store.paths) is None
