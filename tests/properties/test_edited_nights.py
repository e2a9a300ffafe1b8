"""Whatever happens between two nights, the next export is what the store holds."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from noctuary.core.store import DatabaseName, SourceName, StorePaths
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night
from tests.support.claude_memory import make_sqlite
from tests.support.edit_scripts import NIGHTS, CacheStore, Edit, Editor, PostgresStore
from tests.support.postgres import Cluster


def dump_lines(cache: Path, path: Path) -> None:
    """Write the rows of a cache as JSON lines."""
    with closing(sqlite3.connect(cache)) as db:
        db.row_factory = sqlite3.Row
        rows = [dict(row) for row in db.execute("SELECT * FROM memories ORDER BY id")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def export_night(directory: Path, source: SourceName) -> dict[str, bytes]:
    """Run the stage of a night that reads a source; return the tables that it made."""
    paths = StorePaths(directory)
    directory.mkdir(exist_ok=True)
    export_memories(Night(paths, source))
    return {f.name: f.read_bytes() for f in (paths.work / "corpus").glob("*.parquet")}


TABLES = {"memories.parquet", "turns.parquet", "quarantine.parquet"}


@pytest.mark.parametrize("form", ["sqlite", "jsonl"])
@settings(max_examples=3, deadline=None)
@given(nights=NIGHTS)
def test_a_grown_export_of_a_file_is_a_fresh_one(form: str, nights: list[list[Edit]]) -> None:
    """The full read is the diff: whatever was edited how late, the next export is complete."""
    with tempfile.TemporaryDirectory() as name:
        cache = make_sqlite(Path(name) / "memory.db", [], extra_columns=["vault_path TEXT"])
        source = cache if form == "sqlite" else Path(name) / "memories.jsonl"
        editor = Editor(CacheStore(cache))
        for number, edits in enumerate([[], *nights]):
            for edit in edits:
                editor.apply(edit)
            if not editor.store.ids():
                return
            if form == "jsonl":
                dump_lines(cache, source)
            grown = export_night(Path(name) / "grown", source)
            assert grown == export_night(Path(name) / f"fresh-{number}", source)
            assert set(grown) == TABLES


# The server itself is shared by the examples on purpose.
_SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=3, deadline=None, suppress_health_check=_SHARED)
@given(nights=NIGHTS)
def test_a_grown_export_of_a_database_is_a_fresh_one(
    server: Cluster, nights: list[list[Edit]]
) -> None:
    dsn = server.dsn("postgres")
    source = DatabaseName(dsn, dsn, "postgresql://tester@test/postgres")
    with tempfile.TemporaryDirectory() as name, closing(PostgresStore(dsn)) as store:
        editor = Editor(store)
        for number, edits in enumerate([[], *nights]):
            for edit in edits:
                editor.apply(edit)
            if not editor.store.ids():
                return
            grown = export_night(Path(name) / "grown", source)
            assert grown == export_night(Path(name) / f"fresh-{number}", source)
            assert set(grown) >= TABLES
