"""A snapshot opened: its arrays, rows and texts, and which one serves."""

from __future__ import annotations

import gc
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from noctuary import recall
from noctuary.agents.hooks import fetch_memories
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError, SnapshotMissingError
from noctuary.core.files import remove_tree
from noctuary.core.manifest import (
    FileEntry,
    describe_files,
    read_manifest,
    read_pointer,
    write_manifest,
)
from noctuary.core.store import StorePaths
from noctuary.core.types import DAMAGED_TEXT
from noctuary.graph.walk import FOUND_RELATIONS
from noctuary.recall import api as serving
from noctuary.recall import snapshot_rows
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import expand_from
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import Opened, SnapshotReader, open_serving
from noctuary.recall.snapshot_rows import ROW_COLUMNS, open_published
from noctuary.snapshot.publish import rollback
from tests.support.damage import change_array, drop_array
from tests.support.descriptors import open_files
from tests.support.store import Store, household, memory, new_store, renumber


@pytest.fixture
def directory(empty_store: Store) -> Path:
    return empty_store.candidate(household())


@pytest.fixture
def reader(directory: Path) -> SnapshotReader:
    return SnapshotReader.open(directory)


def test_everything_that_was_packed_is_there_and_cannot_be_written(reader: SnapshotReader) -> None:
    assert (reader.count, reader.id_kind) == (14, "int")
    assert reader.relations == FOUND_RELATIONS
    assert reader.vectors is None
    assert reader.facets["wing"].values == ("home", "work")
    assert reader.facets["user"].codes.tolist() == [-1] * 5 + [0, 1] + [-1] * 7
    assert reader.importance[0] == np.float32(0.9)
    assert reader.graph_edges.indptr.shape == (reader.count + 1,)
    held = [name for name in open_files() if name.startswith(str(reader.directory))]
    assert sorted(Path(name).name for name in held) == [layout.ARRAYS_FILE, layout.ROWS_FILE]
    with pytest.raises(ValueError, match="read-only"):
        reader.created_at_us[0] = 1


def test_terms_come_in_the_order_asked_each_once(reader: SnapshotReader) -> None:
    (door,) = reader.look_up_terms(["door"])
    (key,) = reader.look_up_terms(["key"])
    assert door[1] - door[0] == 4
    assert reader.look_up_terms(["key", "zzz", "door", "key"]) == [key, door]
    assert reader.look_up_terms([]) == []


def test_words_are_asked_for_once_and_only_so_many_are_kept(
    reader: SnapshotReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["door", "zzz", "key"]
    first = reader.look_up_terms(words)
    reader.close()
    assert reader.look_up_terms(words) == first, "from memory, the unknown one too"
    with pytest.raises(sqlite3.ProgrammingError):
        reader.look_up_terms([*words, "blue"])
    opened = SnapshotReader.open(reader.directory)
    monkeypatch.setattr(snapshot_rows, "_KEPT_WORDS", 2)
    for _ in range(2):
        assert opened.look_up_terms(words) == first
        assert [opened.look_up_terms([word]) for word in words] == [first[:1], [], first[1:]]


def test_rows_are_fetched_by_position(reader: SnapshotReader) -> None:
    rows = reader.describe([13, 0])
    assert list(rows) == [13, 0]
    assert rows[0].keys() == {*ROW_COLUMNS, "sources"}
    assert rows[0]["memory_id"] == "101"
    assert rows[0]["content"] == "The spare key hangs behind the blue door."
    assert reader.public_ids([3, 0]) == {0: 101, 3: 104}
    assert reader.positions_of(["104", "nobody", "101"]) == {"104": 3, "101": 0}
    assert reader.describe([]) == {}


def test_a_structural_edge_has_no_concept_name(reader: SnapshotReader) -> None:
    found = [reader.concept_name(concept) is not None for concept in (-1, 10_000, 0)]
    assert found == [False, False, True]


def test_opening_what_is_no_snapshot_is_typed(directory: Path, tmp_path: Path) -> None:
    (directory / layout.ARRAYS_FILE).unlink()
    with pytest.raises(SnapshotCorruptError, match=rf"{layout.ARRAYS_FILE} is missing"):
        SnapshotReader.open(directory)
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(SnapshotCorruptError):
            SnapshotReader.open(path)


def _accept_files(directory: Path) -> None:
    """Let the quick check pass, as it does when damage leaves sizes as they were."""
    manifest = read_manifest(directory)
    found: dict[str, FileEntry] = describe_files(directory)
    manifest.files.clear()
    manifest.files.update(found)
    write_manifest(directory, manifest)


def _overwrite(name: str) -> Callable[[Path], object]:
    return lambda directory: (directory / name).write_bytes(b"\x00" * 4096)


def _run(sql: str) -> Callable[[Path], object]:
    def edit(directory: Path) -> None:
        with closing(sqlite3.connect(directory / layout.ROWS_FILE)) as rows, rows:
            rows.execute(sql)

    return edit


def _without(name: str) -> Callable[[Path], object]:
    return lambda directory: drop_array(directory, name)


def _shortened(name: str) -> Callable[[Path], object]:
    """A facet shorter than the store would put memories into somebody else's scope."""
    return lambda directory: change_array(directory, name, lambda array: array[:3])


@pytest.mark.parametrize(
    "damage",
    [
        _overwrite(layout.ROWS_FILE),
        _overwrite(layout.ARRAYS_FILE),
        _without("importance"),
        _without("graph.indptr"),
        *(_shortened(name) for name in ("importance", "created_at_us", "facet.user",
                                        "posting.scores", "graph.indptr", "graph.targets")),
        _run("DROP TABLE meta"),
        _run("DELETE FROM meta WHERE key = 'relations'"),
        _run("UPDATE meta SET value = 'no json' WHERE key = 'facet_user'"),
        _run("UPDATE meta SET value = '5' WHERE key = 'facet_user'"),
    ],
)  # fmt: skip
def test_opening_damage_is_typed(directory: Path, damage: Callable[[Path], object]) -> None:
    damage(directory)
    _accept_files(directory)
    with pytest.raises(SnapshotCorruptError, match="cannot be opened"):
        SnapshotReader.open(directory)


def test_an_open_reader_survives_the_removal_of_its_files_and_a_closed_one_says_so(
    directory: Path, reader: SnapshotReader
) -> None:
    remove_tree(directory)
    assert reader.describe([0])[0]["memory_id"] == "101"
    assert reader.importance[0] == np.float32(0.9)
    assert len(reader.look_up_terms(["door"])) == 1
    reader.close()
    with pytest.raises(sqlite3.ProgrammingError):
        reader.describe([0])


def night(store: Store, number: int) -> str:
    return store.publish(renumber([memory(f"The boat left in night {number}.")]))


Nights = tuple[Store, list[str]]


@pytest.fixture
def three(empty_store: Store) -> Nights:
    return empty_store, [night(empty_store, n) for n in (1, 2, 3)]


def lose(store: Store, snapshot_id: str) -> None:
    (store.snapshot(snapshot_id) / layout.ARRAYS_FILE).unlink()


def opened(store: Store) -> Opened:
    return open_serving(store.paths)


def test_a_fallback_never_serves_what_was_rolled_back_from(three: Nights) -> None:
    store, names = three
    rollback(store.paths, names[0])
    found = opened(store)
    assert (found.snapshot_id, found.fallback_reason) == (names[0], None)
    rollback(store.paths, names[1])
    lose(store, names[1])
    assert opened(store).snapshot_id == names[0]


def test_a_half_deleted_snapshot_falls_back_to_the_one_before(three: Nights) -> None:
    store, names = three
    lose(store, names[2])
    found = opened(store)
    assert found.snapshot_id == names[1]
    assert layout.ARRAYS_FILE in (found.fallback_reason or "")
    lose(store, names[1])
    assert opened(store).snapshot_id == names[0]
    lose(store, names[0])
    with pytest.raises(SnapshotCorruptError, match=names[2]):
        opened(store)


def test_a_snapshot_under_another_name_is_not_served_for_it(three: Nights) -> None:
    store, names = three
    shutil.rmtree(store.snapshot(names[2]))
    shutil.copytree(store.snapshot(names[0]), store.snapshot(names[2]))
    found = opened(store)
    assert "not the one that was published" in (found.fallback_reason or "")
    assert found.snapshot_id == names[1]


def test_a_lost_or_damaged_pointer_falls_back_to_the_newest(three: Nights) -> None:
    store, names = three
    for content in (b"", b"{", b"\xff", None):
        store.paths.current.unlink()
        if content is not None:
            store.paths.current.write_bytes(content)
        found = opened(store)
        assert (found.snapshot_id, found.fallback_reason is None) == (names[2], False)


def served_after_each(store: Store, bits: Iterable[int]) -> set[tuple[str, bool]]:
    """Return what answers with each bit of the pointer flipped, and whether a warning says so."""
    whole, served = store.paths.current.read_bytes(), set[tuple[str, bool]]()
    for bit in bits:
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        store.paths.current.write_bytes(changed)
        found = opened(store)
        how = (found.snapshot_id, found.fallback_reason is not None)
        if how not in served:
            assert Recaller(store.paths, found.reader, found.snapshot_id).recall("boat").memories
        found.reader.close()
        served.add(how)
    store.paths.current.write_bytes(whole)
    return served


def test_with_a_bit_of_the_pointer_s_name_flipped_the_newest_snapshot_serves_with_a_warning(
    three: Nights,
) -> None:
    store, names = three
    start = store.paths.current.read_bytes().index(names[2].encode())
    bits = range(8 * start, 8 * (start + len("20260101T000000")))
    assert served_after_each(store, bits) == {(names[2], True)}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_with_any_bit_of_the_pointer_flipped_the_newest_snapshot_serves(three: Nights) -> None:
    store, names = three
    bits = range(8 * store.paths.current.stat().st_size)
    assert {name for name, _ in served_after_each(store, bits)} == {names[2]}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_with_any_bit_of_a_rollback_s_pointer_flipped_something_intact_serves(
    three: Nights,
) -> None:
    """What still is JSON about one snapshot goes on serving the one that was chosen."""
    store, names = three
    rollback(store.paths, names[0])
    bits = range(8 * store.paths.current.stat().st_size)
    assert served_after_each(store, bits) == {(names[0], False), (names[0], True), (names[2], True)}


def test_a_pointer_leads_nowhere_but_to_a_published_snapshot(three: Nights) -> None:
    store, names = three
    shutil.copytree(store.snapshot(names[0]), store.root.parent / "elsewhere")
    told = json.loads(store.paths.current.read_text())
    for name in ("/etc", "..", "../../elsewhere", "", ".", "20260101T000000000000-../../../../x"):
        store.paths.current.write_text(json.dumps({**told, "snapshot_id": name, "digest": ""}))
        found = opened(store)
        assert found.snapshot_id == names[2]
        assert found.reader.directory == store.snapshot(names[2])
        with pytest.raises(SnapshotCorruptError, match="cannot be read"):
            read_pointer(store.paths)


def test_a_rollback_mends_a_pointer_whose_name_sorts_before_all(three: Nights) -> None:
    store, names = three
    text = store.paths.current.read_text()
    store.paths.current.write_text(text.replace(names[2], f"1{names[2][1:]}", 1))
    assert rollback(store.paths).snapshot_id == names[2]


def test_a_store_that_never_published_says_so(empty_store: Store) -> None:
    for _ in range(2):
        with pytest.raises(SnapshotMissingError, match="noctuary nightly"):
            opened(empty_store)
        empty_store.paths.snapshots.mkdir(exist_ok=True)


def test_a_snapshot_removed_between_pointer_and_opening_is_looked_for_again(
    three: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publish with retention runs between the two reads; the second look finds the new one."""
    store, names = three
    rollback(store.paths, names[0])
    read = open_published.__globals__["read_pointer"]
    looks: list[str] = []

    def read_then_move(paths: layout.StorePaths) -> object:
        pointer = read(paths)
        looks.append(pointer.snapshot_id)
        if len(looks) == 1:
            rollback(store.paths, names[2])
            shutil.rmtree(store.snapshot(names[0]))
        return pointer

    monkeypatch.setitem(open_published.__globals__, "read_pointer", read_then_move)
    found = opened(store)
    assert looks == [names[0], names[2]]
    assert (found.snapshot_id, found.fallback_reason) == (names[2], None)


PINNED = 3


@pytest.fixture
def stores(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Store]]:
    """Five stores, of which a process may keep three open; the collector breaks no cycle here."""
    monkeypatch.setattr(serving, "STORES_PINNED", PINNED)
    first = new_store(home / "store0")
    first.publish(renumber([memory("The spare key lies on the shelf.")]))
    copies = [Store(StorePaths(home / f"store{n}"), None) for n in range(1, 5)]
    for copy in copies:
        shutil.copytree(first.root, copy.root)
    gc.disable()
    yield [first, *copies]
    gc.enable()


def held(stores: list[Store]) -> list[int]:
    """Return the stores of which some file is open."""
    names = open_files()
    return [n for n, s in enumerate(stores) if any(f.startswith(f"{s.root}/") for f in names)]


def ask(store: Store) -> list[tuple[int | str, float]]:
    found = recall("spare key", store=str(store.root), dry_run=True).memories
    assert found
    return [(m.id, m.relevance) for m in found]


def test_a_process_keeps_the_stores_open_that_were_asked_last(stores: list[Store]) -> None:
    answers = [ask(store) for store in stores]
    assert held(stores) == [2, 3, 4]
    answers += [ask(stores[2]), ask(stores[0])]
    assert held(stores) == [0, 2, 4], "what was asked again stays before what was not"
    assert answers == [answers[0]] * 7, "one that was let go answers as before"


EXPLAINED = RetrievalProfile(explain=True)


def edit_rows(store: Store, sql: str, *values: object) -> None:
    """Change the rows of the serving snapshot as a disk or an intruder would: no size changes."""
    path = store.snapshot(read_pointer(store.paths).snapshot_id) / layout.ROWS_FILE
    path.chmod(0o644)
    with closing(sqlite3.connect(path)) as db:
        db.execute(sql, values)
        db.commit()


def test_a_memory_whose_text_is_not_the_published_one_is_left_out_and_the_next_takes_its_place(
    dense_store: Store,
) -> None:
    before = Recaller.open(dense_store.root).recall("spare key door", 3).memories
    assert before[0].id == 101
    edit_rows(dense_store, "UPDATE memories SET content = replace(content, 'blue', 'grey')")
    result = Recaller.open(dense_store.root).recall("spare key door", 3, profile=EXPLAINED)
    assert len(result.memories) == 3
    assert [m.id for m in result.memories][:2] == [m.id for m in before[1:]]
    (warning,) = [w for w in result.warnings if w.code == "snapshot_damaged"]
    assert "101" in warning.message
    assert "noctuary doctor" in warning.message
    for found in result.memories:
        assert found.score_breakdown is not None
        assert found.score_breakdown["final_score"] == pytest.approx(found.final_score)
    assert b"grey door" not in repr(result).encode()


@pytest.mark.parametrize(
    "change",
    ["content = X'00ff'", "tags = 'x'", "user = 'eve'", "importance = 0.75", "content_hash = ''"],
)
def test_no_field_of_a_memory_can_change_unnoticed(dense_store: Store, change: str) -> None:
    edit_rows(dense_store, f"UPDATE memories SET {change} WHERE memory_id = '101'")
    found = Recaller.open(dense_store.root).recall("spare key door")
    assert 101 not in {m.id for m in found.memories}
    assert "snapshot_damaged" in {w.code for w in found.warnings}


def test_every_path_that_shows_a_text_shows_none_that_was_not_published(dense_store: Store) -> None:
    reader = Recaller.open(dense_store.root).reader
    text = reader.describe([reader.count])[reader.count]["content"]
    summary = reader.summaries.ids[0]
    assert text != DAMAGED_TEXT
    edit_rows(dense_store, "UPDATE memories SET content = substr(content, 2)")
    edit_rows(dense_store, "UPDATE summaries SET text = substr(text, 2)")
    recaller = Recaller.open(dense_store.root)
    whole = expand_from(recaller.reader, recaller.snapshot_id, summary, None)
    shown = [whole.text, *(source.content for source in whole.sources)]
    shown += [row["content"] for row in fetch_memories(recaller.reader, ["101", summary], None)]
    assert set(shown) == {DAMAGED_TEXT}
    assert recaller.recall("spare key door flight").memories == ()
