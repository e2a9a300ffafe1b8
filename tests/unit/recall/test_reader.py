from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError
from noctuary.core.files import remove_tree
from noctuary.core.manifest import FileEntry, describe_files, read_manifest, write_manifest
from noctuary.graph.walk import FOUND_RELATIONS
from noctuary.recall import reader as module
from noctuary.recall.reader import ROW_COLUMNS, SnapshotReader
from tests.support.damage import change_array, drop_array
from tests.support.descriptors import open_files
from tests.support.store import Store, household


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
