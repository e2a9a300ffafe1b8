"""What recall learns of the archive: what is in force when, and what a snapshot makes of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact.archive import DIGEST, FORMAT, SCHEMA, Application, ArchiveReader

Row = tuple[str, str, str, str, str]
"""plan, memory, its hash, successor, its hash."""

Time = tuple[str, int, int | None]
"""plan, applied, undone."""


def write(path: Path, entries: Sequence[Row], times: Sequence[Time], digest: str = "d") -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(SCHEMA)
        db.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, NULL, '{}')", entries)
        db.executemany("INSERT INTO applications VALUES (?, ?, ?)", times)
        db.execute("INSERT INTO meta VALUES (?, ?)", [DIGEST, digest])


ENTRIES = [("p", "1", "h1", "2", "h2"), ("p", "3", "h3", "4", "h4"), ("q", "5", "h5", "2", "h2")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "archive.sqlite"


def test_without_a_file_nothing_is_archived_and_nothing_is_wrong(path: Path) -> None:
    reader = ArchiveReader(path)
    assert (reader.is_missing, reader.warning, reader.digest) == (True, None, "")
    assert reader.entries_at(None) == {}
    assert reader.applied_plans_at(None) == frozenset()
    assert not path.exists()


@pytest.mark.parametrize("damage", ["garbage", "empty", "format", "no tables"])
def test_an_unreadable_file_hides_nothing_and_says_so(path: Path, damage: str) -> None:
    write(path, ENTRIES, [("p", 10, None)])
    if damage == "garbage":
        path.write_bytes(b"x" * 4096)
    elif damage == "empty":
        path.write_bytes(b"")
    else:
        with closing(sqlite3.connect(path)) as db, db:
            found = "PRAGMA user_version = 99" if damage == "format" else "DROP TABLE entries"
            db.execute(found)
    reader = ArchiveReader(path)
    assert reader.warning is not None
    assert "archived memories are shown again" in reader.warning
    assert not reader.is_missing
    assert (reader.entries_at(None), reader.applications, reader.digest) == ({}, (), "")


def test_a_plan_holds_from_its_application_until_it_is_undone(path: Path) -> None:
    write(path, ENTRIES, [("p", 10, 20), ("p", 30, None), ("q", 15, 40)])
    reader = ArchiveReader(path)
    found = {t: sorted(reader.applied_plans_at(t)) for t in (9, 10, 15, 19, 20, 29, 30, 39, 40)}
    assert found == {
        9: [], 10: ["p"], 15: ["p", "q"], 19: ["p", "q"], 20: ["q"], 29: ["q"], 30: ["p", "q"],
        39: ["p", "q"], 40: ["p"],
    }  # fmt: skip
    assert reader.applied_plans_at(None) == {"p"}
    assert reader.entries_at(20) == {"5": "h5"}
    assert reader.entries_at(None) == {"1": "h1", "3": "h3"}
    assert reader.entries_at(9) == {}


@given(
    st.lists(st.tuples(st.integers(0, 50), st.none() | st.integers(1, 50)), max_size=6),
    st.integers(-5, 110),
)
def test_a_moment_is_inside_exactly_its_half_open_interval(
    spans: list[tuple[int, int | None]], moment: int
) -> None:
    for applied, lasts in spans:
        undone = None if lasts is None else applied + lasts
        inside = applied <= moment and (undone is None or moment < undone)
        assert Application("p", applied, undone).holds_at(moment) is inside
        assert Application("p", applied, undone).holds_at(None) is (undone is None)


@pytest.mark.parametrize(
    ("snapshot", "hidden"),
    [
        ({"1": "h1", "2": "h2", "3": "h3", "4": "h4"}, {"1": "2", "3": "4"}),
        ({"1": "EDITED", "2": "h2", "3": "h3", "4": "h4"}, {"3": "4"}),
        ({"2": "h2", "3": "h3", "4": "h4"}, {"3": "4"}),
        ({"1": "h1", "3": "h3", "4": "h4"}, {"3": "4"}),
        ({"1": "h1", "2": "EDITED", "3": "h3", "4": "h4"}, {"3": "4"}),
        ({}, {}),
    ],
    ids=["all-there", "edited", "deleted", "successor-deleted", "successor-edited", "nothing"],
)
def test_a_memory_is_hidden_only_while_it_and_its_successor_are_as_they_were(
    path: Path, snapshot: dict[str, str], hidden: Mapping[str, str]
) -> None:
    write(path, ENTRIES, [("p", 10, None)])

    def hashes(ids: Sequence[str]) -> dict[str, str]:
        return {i: snapshot[i] for i in ids if i in snapshot}

    assert ArchiveReader(path).hidden_in(hashes) == hidden


def test_of_two_plans_with_one_memory_the_later_one_counts(path: Path) -> None:
    rows = [*ENTRIES, ("q", "1", "new", "4", "h4")]
    write(path, rows, [("p", 10, None), ("q", 20, None)])
    assert ArchiveReader(path).entries_at(None)["1"] == "new"
    assert ArchiveReader(path).entries_at(15)["1"] == "h1"


def test_a_reader_answers_from_its_file_until_it_is_refreshed(path: Path) -> None:
    write(path, ENTRIES, [("p", 10, None)], "before")
    reader = ArchiveReader(path)
    assert reader.refreshed() is reader
    aside = path.with_name("aside")
    write(aside, ENTRIES, [("p", 10, 20)], "after")
    aside.replace(path)
    assert reader.entries_at(None) == {"1": "h1", "3": "h3"}
    fresh = reader.refreshed()
    assert fresh is not reader
    assert (fresh.entries_at(None), fresh.digest, reader.digest) == ({}, "after", "before")
    path.unlink()
    assert fresh.refreshed().is_missing


def test_reading_leaves_no_file_behind(path: Path) -> None:
    write(path, ENTRIES, [("p", 10, None)])
    ArchiveReader(path)
    assert [p.name for p in path.parent.iterdir()] == ["archive.sqlite"]
    assert FORMAT == 1
