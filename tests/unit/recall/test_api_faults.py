from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core import store as layout
from noctuary.core.manifest import read_pointer
from noctuary.recall.api import recall
from noctuary.recall.result import RecallResult
from tests.support.damage import change_array
from tests.support.store import Store, household, memory, new_store, renumber

QUERIES = ("spare key", "Nina leads", "flight", "door code")


def codes(result: RecallResult) -> list[str]:
    return [w.code for w in result.warnings]


def message(result: RecallResult, code: str) -> str:
    return next(w.message for w in result.warnings if w.code == code)


def serving(store: Store) -> Path:
    return store.snapshot(read_pointer(store.paths).snapshot_id)


def test_an_empty_home_says_what_to_run(home: Path) -> None:
    result = recall("key")
    assert result.memories == ()
    assert codes(result) == ["no_snapshot"]
    assert "noctuary nightly" in message(result, "no_snapshot")
    assert result.phase_timing_ms["total"] >= 0


def test_a_home_that_does_not_exist_is_an_empty_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_HOME", str(home / "nowhere"))
    assert codes(recall("key")) == ["no_snapshot"]
    assert not (home / "nowhere").exists()


@pytest.mark.parametrize("value", ["~nobody-of-that-name/x", "relative/home", "/dev/null", "/"])
def test_any_home_is_answered(home: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("NOCTUARY_HOME", value)
    result = recall("key")
    assert result.memories == ()
    assert codes(result)[-1] in {"no_snapshot", "store_unreadable"}


@pytest.mark.parametrize("name", ["nowhere", "/no/such/store", "../x", "", ".", "/dev/null"])
def test_a_store_that_is_not_there_is_answered(home: Path, name: str) -> None:
    result = recall("key", store=name)
    assert result.memories == ()
    assert codes(result)[-1] in {"no_snapshot", "store_unreadable"}


def test_a_store_that_never_published_is_answered(empty_store: Store) -> None:
    assert codes(recall("key", store=empty_store.root)) == ["no_snapshot"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\x00" * 64, b"\xff", b'{"snapshot_id": 5}'],
)
def test_a_corrupt_pointer_falls_back_to_what_is_published(
    dense_store: Store, content: bytes
) -> None:
    dense_store.paths.current.write_bytes(content)
    result = recall("spare key")
    assert result.memories[0].id == 101
    assert "snapshot_fallback" in codes(result)


def test_a_pointer_with_a_number_for_a_name_falls_back(dense_store: Store) -> None:
    pointer = dense_store.paths.current
    pointer.write_text(pointer.read_text().replace('"publish"', "7"))
    assert "snapshot_fallback" in codes(recall("spare key"))


def test_a_pointer_that_is_a_directory_is_answered(dense_store: Store) -> None:
    dense_store.paths.current.unlink()
    dense_store.paths.current.mkdir()
    assert recall("spare key", store=dense_store.root).memories[0].id == 101


def test_a_half_deleted_snapshot_falls_back_to_the_older(dense_store: Store) -> None:
    older = read_pointer(dense_store.paths).snapshot_id
    dense_store.publish(renumber([memory("Another spare key.")], 900))
    (serving(dense_store) / layout.ROWS_FILE).unlink()
    result = recall("spare key")
    assert (result.snapshot_id, result.memories[0].id) == (older, 101)
    assert layout.ROWS_FILE in message(result, "snapshot_fallback")
    assert "snapshot_fallback" in codes(recall("spare key"))


@pytest.mark.parametrize("damage", ["empty", "gone", "all gone"])
def test_with_everything_damaged_the_answer_is_a_warning(dense_store: Store, damage: str) -> None:
    dense_store.publish(renumber([memory("Another spare key.")], 900))
    for directory in dense_store.paths.snapshots.iterdir():
        if damage == "empty":
            shutil.rmtree(directory)
            directory.mkdir()
        elif damage == "gone":
            (directory / layout.MANIFEST_FILE).unlink()
        else:
            shutil.rmtree(directory)
    result = recall("spare key")
    assert result.memories == ()
    assert codes(result) == ["store_unreadable"]
    assert "noctuary" in message(result, "store_unreadable")


def _flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x55
    path.chmod(0o644)
    path.write_bytes(content)


@pytest.mark.parametrize("file", [layout.ROWS_FILE, layout.MANIFEST_FILE, "CURRENT"])
def test_flipped_bytes_anywhere_in_a_file_never_reach_the_caller_as_an_exception(
    home: Path, dense_store: Store, file: str
) -> None:
    """Sizes stay, so the quick check sees nothing; what opens must still answer or warn."""
    directory = serving(dense_store)
    target = dense_store.paths.current if file == "CURRENT" else directory / file
    original, stamp = target.read_bytes(), target.stat().st_mtime_ns
    step = max(len(original) // 60, 1)
    outcomes: set[bool] = set()
    for number, offset in enumerate(range(0, len(original), step)):
        _flip(target, offset)
        # Another stamp of the pointer, so that the snapshot is opened afresh.
        os.utime(dense_store.paths.current, ns=(number + 1, number + 1))
        for query in QUERIES:
            result = recall(query, user="ana", dry_run=True)
            assert isinstance(result, RecallResult)
            outcomes.add(bool(result.memories))
        target.write_bytes(original)
    os.utime(target, ns=(stamp, stamp))
    assert True in outcomes


def _places(content: bytes, name: str) -> list[int]:
    """Return where to flip: in a header (lengths, types that do not fit), or in the values."""
    if name == layout.VECTORS_FILE:
        return [*range(0, 128, 8), *range(128, len(content), max((len(content) - 128) // 20, 1))]
    begin = 8 + int.from_bytes(content[:8], "little")
    if name == "header":
        return [*range(8), *range(8, begin, begin // 60)]
    start, end = json.loads(content[8:begin])[name]["data_offsets"]
    return [*range(begin + start, begin + end, max((end - start) // 20, 1))]


@pytest.mark.parametrize(
    "name",
    [
        layout.VECTORS_FILE,
        "header",
        "posting.positions",
        "posting.scores",
        "created_at_us",
        "importance",
        "facet.user",
        "graph.indptr",
        "graph.targets",
        "graph.relations",
        "graph.concepts",
    ],
)
def test_flipped_bytes_in_an_array_never_reach_the_caller_as_an_exception(
    dense_store: Store, name: str
) -> None:
    target = serving(dense_store) / (name if name == layout.VECTORS_FILE else layout.ARRAYS_FILE)
    original = target.read_bytes()
    for number, offset in enumerate(_places(original, name)):
        _flip(target, offset)
        os.utime(dense_store.paths.current, ns=(number + 1, number + 1))
        for query in QUERIES:
            result = recall(query, user="ana", dry_run=True)
            assert all(0.0 <= m.final_score <= 1.0 for m in result.memories)
        target.write_bytes(original)


def _with_odd_numbers(values: NDArray[Any]) -> NDArray[Any]:
    values.reshape(-1)[:5] = [np.nan, np.inf, -np.inf, -3.0, 1e30]
    return values


@pytest.mark.parametrize("sort_by", ["relevance", "importance", "recency"])
def test_scores_stay_in_range_whatever_the_arrays_hold(dense_store: Store, sort_by: str) -> None:
    directory = serving(dense_store)
    for name in ("importance", "posting.scores", layout.VECTORS_FILE):
        change_array(directory, name, _with_odd_numbers)
    os.utime(dense_store.paths.current, ns=(1, 1))
    with np.errstate(all="ignore"):
        for query in QUERIES:
            result = recall(query, 14, sort_by=sort_by, user="ana", dry_run=True)
            assert all(0.0 <= m.final_score <= 1.0 for m in result.memories)
            assert all(0.0 <= m.relevance <= 1.0 for m in result.memories)


def test_damage_below_the_quick_check_is_a_warning_that_names_the_snapshot(
    dense_store: Store,
) -> None:
    path = serving(dense_store) / layout.ROWS_FILE
    path.chmod(0o644)
    with closing(sqlite3.connect(path)) as rows, rows:
        rows.execute("UPDATE memories SET memory_id = 'not a number' WHERE position = 0")
    result = recall("spare key", wing="home")
    assert result.memories == ()
    assert serving(dense_store).name in message(result, "snapshot_damaged")


def test_bad_settings_leave_the_defaults_in_force(
    dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_RECALL_FUSION", "sum")
    result = recall("spare key")
    assert result.memories[0].id == 101
    assert result.profile["fusion"] == "cc"
    assert "recall.fusion" in message(result, "bad_settings")


@pytest.mark.parametrize("content", ["[recall", "recall = 1", "[recal]\nfusion = 'cc'", "\x00"])
def test_a_bad_settings_file_is_a_warning(home: Path, dense_store: Store, content: str) -> None:
    (home / "noctuary.toml").write_text(content)
    result = recall("spare key")
    assert result.memories[0].id == 101
    assert "bad_settings" in codes(result)


def test_a_settings_file_that_is_not_there_is_a_warning(
    home: Path, dense_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (home / "nothing.toml", home):
        monkeypatch.setenv("NOCTUARY_CONFIG", str(path))
        assert "bad_settings" in codes(recall("spare key"))


def test_a_warning_of_the_build_is_not_lost(home: Path) -> None:
    store = new_store(home / "house")
    store.publish(household())
    assert "dense_unavailable" in codes(recall("spare key"))
