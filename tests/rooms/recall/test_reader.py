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
from noctuary.recall import reader as module
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import expand_from
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import ROW_COLUMNS, Opened, SnapshotReader, open_serving
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


def test_everything_that_was_packed_is_there(reader: SnapshotReader) -> None:
    assert (reader.count, reader.id_kind) == (14, "int")
    assert reader.relations == FOUND_RELATIONS
    assert reader.vectors is None
    assert reader.facets["wing"].values == ("home", "work")
    assert reader.facets["user"].codes.tolist() == [-1] * 5 + [0, 1] + [-1] * 7
    assert reader.importance[0] == np.float32(0.9)
    assert reader.graph_edges.indptr.shape == (reader.count + 1,)


def test_arrays_are_views_of_one_map_and_cannot_be_written(reader: SnapshotReader) -> None:
    held = [name for name in open_files() if name.startswith(str(reader.directory))]
    assert sorted(Path(name).name for name in held) == [layout.ARRAYS_FILE, layout.ROWS_FILE]
    with pytest.raises(ValueError, match="read-only"):
        reader.created_at_us[0] = 1


def test_terms_come_in_the_order_asked_each_once_and_unknown_ones_are_left_out(
    reader: SnapshotReader,
) -> None:
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
    monkeypatch.setattr(module, "_KEPT_WORDS", 2)
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
    assert reader.concept_name(-1) is None
    assert reader.concept_name(10_000) is None
    assert reader.concept_name(0) is not None


def test_opening_finds_a_missing_or_shortened_file(directory: Path) -> None:
    (directory / layout.ARRAYS_FILE).unlink()
    with pytest.raises(SnapshotCorruptError, match=rf"{layout.ARRAYS_FILE} is missing"):
        SnapshotReader.open(directory)


def test_opening_what_is_no_snapshot_is_typed(tmp_path: Path) -> None:
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


def _overwrite(name: str) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        (directory / name).write_bytes(b"\x00" * 4096)

    return edit


def _run(sql: str) -> Callable[[Path], None]:
    def edit(directory: Path) -> None:
        rows = sqlite3.connect(directory / layout.ROWS_FILE)
        rows.execute(sql)
        rows.commit()
        rows.close()

    return edit


def _without(name: str) -> Callable[[Path], None]:
    return lambda directory: drop_array(directory, name)


@pytest.mark.parametrize(
    "damage",
    [
        _overwrite(layout.ROWS_FILE),
        _overwrite(layout.ARRAYS_FILE),
        _without("importance"),
        _without("graph.indptr"),
        _run("DROP TABLE meta"),
        _run("DELETE FROM meta WHERE key = 'relations'"),
        _run("UPDATE meta SET value = 'no json' WHERE key = 'facet_user'"),
        _run("UPDATE meta SET value = '5' WHERE key = 'facet_user'"),
    ],
)
def test_opening_what_cannot_be_read_is_typed(
    directory: Path, damage: Callable[[Path], None]
) -> None:
    damage(directory)
    _accept_files(directory)
    with pytest.raises(SnapshotCorruptError, match="cannot be opened"):
        SnapshotReader.open(directory)


@pytest.mark.parametrize(
    "name",
    [
        "importance",
        "created_at_us",
        "facet.user",
        "posting.scores",
        "graph.indptr",
        "graph.targets",
    ],
)
def test_arrays_of_another_length_are_not_opened(directory: Path, name: str) -> None:
    """A facet shorter than the store would put memories into somebody else's scope."""
    change_array(directory, name, lambda array: array[:3])
    _accept_files(directory)
    with pytest.raises(SnapshotCorruptError):
        SnapshotReader.open(directory)


def test_an_open_reader_survives_the_removal_of_its_files(
    directory: Path, reader: SnapshotReader
) -> None:
    remove_tree(directory)
    assert reader.describe([0])[0]["memory_id"] == "101"
    assert reader.importance[0] == np.float32(0.9)
    assert len(reader.look_up_terms(["door"])) == 1


def test_a_closed_reader_says_so(reader: SnapshotReader) -> None:
    reader.close()
    with pytest.raises(sqlite3.ProgrammingError):
        reader.describe([0])


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


def test_a_snapshot_under_another_name_is_not_served_for_it(three: tuple[Store, list[str]]) -> None:
    store, names = three
    shutil.rmtree(store.snapshot(names[2]))
    shutil.copytree(store.snapshot(names[0]), store.snapshot(names[2]))
    found = opened(store)
    assert found.fallback_reason is not None
    assert "not the one that was published" in found.fallback_reason
    assert found.snapshot_id == names[1]


def test_a_fallback_never_serves_what_was_rolled_back_from(three: tuple[Store, list[str]]) -> None:
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


def ask(store: Store) -> None:
    assert [m.id for m in recall("spare key", store=str(store.root), dry_run=True).memories]


def test_a_process_keeps_the_stores_open_that_were_asked_last(stores: list[Store]) -> None:
    for store in stores:
        ask(store)
    assert held(stores) == [2, 3, 4]
    ask(stores[2])
    ask(stores[0])
    assert held(stores) == [0, 2, 4], "what was asked again stays before what was not"


def test_a_store_that_was_let_go_answers_as_before(stores: list[Store]) -> None:
    answers = [
        [(m.id, m.relevance) for m in recall("spare key", store=str(s.root), dry_run=True).memories]
        for s in [*stores, *stores]
    ]
    assert answers == [answers[0]] * 10
    assert answers[0]


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
