from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.capture.bridge import (
    LocalRow,
    ServerRow,
    bridge_ids,
    cache_path,
    read_bridge,
    read_cache,
    write_bridge,
)
from noctuary.corpus.export import export_corpus
from noctuary.corpus.source import open_source
from noctuary.errors import SourceFormatError, SourceMissingError, StoreError
from noctuary.settings import CaptureSettings
from noctuary.source_name import DatabaseName
from tests.support.claude_memory import make_sqlite

SERVER = [ServerRow("17", "a"), ServerRow("18", "b"), ServerRow("19", "c"), ServerRow("20", "c")]


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([LocalRow(17, 18, "z")], {17: "18"}),  # equal numbers mean nothing, nor an older text
        ([LocalRow(1, None, "a")], {1: "17"}),
        ([LocalRow(1, 99, "a")], {1: "17"}),  # the server lost that id
        ([LocalRow(1, None, "c")], {}),  # two memories say so
        ([LocalRow(1, None, "a"), LocalRow(2, None, "a")], {}),  # two rows do
        ([LocalRow(1, 19, None), LocalRow(2, None, "c")], {1: "19", 2: "20"}),
        ([LocalRow(2, 17, "a"), LocalRow(1, None, "a")], {2: "17"}),  # taken by its id
        ([LocalRow(2, 17, None), LocalRow(1, 17, None)], {1: "17"}),
        ([LocalRow(1, None, None)], {}),
        ([], {}),
    ],
)
def test_rows_are_matched_by_id_then_by_content(
    rows: Sequence[LocalRow], found: Mapping[int, str]
) -> None:
    assert bridge_ids(rows, SERVER) == found


def make_corpus(tmp_path: Path) -> Path:
    contents = ("The first.", "The second.", "The third.")
    server = make_sqlite(tmp_path / "server.db", [{"content": text} for text in contents])
    with open_source(server) as source:
        export_corpus(source, tmp_path / "corpus")
    return tmp_path / "corpus" / "memories.parquet"


def test_a_cache_is_bridged_to_a_corpus(tmp_path: Path) -> None:
    rows = [
        {"id": 11, "content": "The third."},
        {"id": 12, "content": "The first, edited here.", "server_id": 1},
        {"id": 13, "content": "The second.", "is_sensitive": 1},
        {"id": 14, "content": "Nobody else's."},
    ]
    cache = make_sqlite(tmp_path / "cache.db", rows)
    memories, path = make_corpus(tmp_path), tmp_path / "bridge.parquet"
    assert write_bridge(cache, memories, path) == {"local_rows": 4, "bridged": 2}
    assert read_bridge(path) == {"11": "3", "12": "1"}
    first = path.read_bytes()
    write_bridge(cache, memories, path)
    assert path.read_bytes() == first


def test_the_text_of_a_sensitive_row_is_not_read(tmp_path: Path) -> None:
    rows = [{"content": "secret", "is_sensitive": flag} for flag in (1, "true", "no", 2.5, -1)]
    clean = [{"content": "open", "is_sensitive": flag} for flag in (0, None, "0", 0.0)]
    cache = make_sqlite(tmp_path / "cache.db", [*rows, *clean])
    hashes = [row.content_hash for row in read_cache(cache)]
    assert hashes[:5] == [None] * 5
    assert len(set(hashes[5:])) == 1
    assert hashes[5] is not None


def test_a_content_that_is_no_text_matches_nothing(tmp_path: Path) -> None:
    cache = make_sqlite(tmp_path / "cache.db", [{"content": b"\xff\xfe"}])
    assert [row.content_hash for row in read_cache(cache)] == [None]


def test_a_bridge_that_is_not_there_has_no_ends(tmp_path: Path) -> None:
    assert read_bridge(tmp_path / "bridge.parquet") == {}


def test_a_damaged_bridge_is_said(tmp_path: Path) -> None:
    path = tmp_path / "bridge.parquet"
    path.write_bytes(b"no table")
    with pytest.raises(StoreError, match="no table of ids"):
        read_bridge(path)


def test_a_missing_cache_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceMissingError, match=r"capture\.local_cache"):
        read_cache(tmp_path / "cache.db")


def test_a_cache_of_version_1_is_said(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "cache.db")) as db:
        db.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY, content, is_sensitive)")
    with pytest.raises(SourceFormatError, match="version 2"):
        read_cache(tmp_path / "cache.db")


def test_only_a_database_has_a_cache() -> None:
    name = DatabaseName("env:X", "postgresql://h/d", "postgresql://h/d")
    settings = CaptureSettings(local_cache="/a/cache.db")
    assert cache_path(name, settings) == Path("/a/cache.db")
    assert cache_path(name, CaptureSettings()) is None
    assert cache_path(Path("/a/memory.db"), settings) is None
