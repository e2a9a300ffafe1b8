"""A store of 130,000 memories: every row is counted, every wing is there, every page is scanned.

The issues that asked for it saw "10,000" where there were 122,686, and wings without a trace.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary.cli.store import wing_counts
from noctuary.core.store import ROWS_FILE, StorePaths
from noctuary.core.types import register_hook
from noctuary.recall.profile import RetrievalProfile
from noctuary.sources.corpus import open_duckdb
from noctuary.usage.access_log import append_retrievals
from noctuary.usage.reader import UsageReader
from noctuary.work.stage import StageResult
from noctuary_assets import index as ltp
from noctuary_assets.index import fold_accesses, score_memories
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import MEMORIES, Night
from tests.support.usage_file import rows

pytestmark = pytest.mark.slow

COUNT = 130_000
SMALL = 5
WINGS = {"work": 100_000, "home": COUNT - 100_000 - 20 - SMALL, "garden": 20, "flights": SMALL}
_COLUMNS = (
    "id INTEGER PRIMARY KEY, content TEXT, category TEXT, tags TEXT, expanded_keywords TEXT, "
    "importance REAL, is_sensitive INTEGER, created_at TEXT, updated_at TEXT, wing TEXT"
)
_DATE = "2026-01-01T00:00:00Z"


def write_source(path: Path) -> None:
    """The small wings lie at the very end, where a truncated read never gets."""
    wings = (wing for wing, count in WINGS.items() for _ in range(count))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE memories ({_COLUMNS})")
        db.executemany(
            "INSERT INTO memories VALUES (?, ?, 'fact', '', '', 0.5, 0, ?, ?, ?)",
            ((n, f"note {n}", _DATE, _DATE, wing) for n, wing in enumerate(wings, start=1)),
        )


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Night, StageResult]:
    directory = tmp_path_factory.mktemp("large")
    write_source(directory / "memory.db")
    night = Night(StorePaths(directory / "store"), directory / "memory.db")
    return night, export_memories(night)


@pytest.fixture
def night(exported: tuple[Night, StageResult]) -> Night:
    """A store whose usage is counted and whose scores are not."""
    night, _ = exported
    night.paths.usage.unlink(missing_ok=True)
    fold_accesses(night)
    return night


def scan(night: Night) -> tuple[StageResult, list[dict[str, Any]]]:
    seen: list[dict[str, Any]] = []
    remove = register_hook("post_batch", seen.append)
    try:
        return score_memories(night), seen
    finally:
        remove()


def test_every_row_is_exported_and_every_wing_is_there(exported: tuple[Night, StageResult]) -> None:
    night, result = exported
    assert (result.facts["source_rows"], result.facts["exported"], result.rows) == (COUNT,) * 3
    assert result.notes["source_batches"]["batches"] == COUNT // 1000
    with open_duckdb(night.paths.work) as db:
        found = db.execute(
            "SELECT wing, COUNT(*) FROM read_parquet(?) GROUP BY wing", [str(night.work(MEMORIES))]
        ).fetchall()
    assert dict(found) == WINGS


def test_the_scan_covers_the_whole_store(night: Night) -> None:
    result, seen = scan(night)
    assert sum(context["batch_size"] for context in seen) == COUNT
    assert [context["offset"] for context in seen] == list(range(0, COUNT, 5000))
    assert result.notes["pagination_state"] == {
        "total": COUNT, "batches_processed": 26, "last_offset": COUNT, "scan_depth_reached": False,
    }  # fmt: skip
    assert rows(night.paths.usage, "SELECT COUNT(*) FROM ltp") == [(COUNT,)]
    again, seen = scan(night)
    assert {context["ltp_updates"] for context in seen} == {0}
    assert again.reused
    # The very last row is recalled, in the smallest wing.
    assert append_retrievals(
        night.paths.access_log, snapshot_id="s", memory_ids=[str(COUNT)]
    ) is None  # fmt: skip
    fold_accesses(night)
    result, seen = scan(night)
    assert [context["ltp_updates"] for context in seen] == [0] * 25 + [1]
    assert UsageReader(night.paths.usage).most_used(3) == [str(COUNT)]


def test_a_bounded_scan_says_what_is_left(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    def bounded(_: Night) -> RetrievalProfile:
        return RetrievalProfile(max_scan_depth=50_000)

    monkeypatch.setattr(ltp, "store_profile", bounded)
    result, seen = scan(night)
    assert sum(context["batch_size"] for context in seen) == 50_000
    assert result.facts["not_scanned"] == 80_000
    assert "80,000 were not scanned" in result.notes["warning"]
    assert result.notes["pagination_state"]["scan_depth_reached"]
    assert UsageReader(night.paths.usage).not_scanned == 80_000
    scan(night)
    _, third = scan(night)
    assert [(c["offset"], c["batch_size"]) for c in (third[0], third[-1])] == [
        (100_000, 5000), (15_000, 5000),
    ]  # fmt: skip
    assert rows(night.paths.usage, "SELECT COUNT(*) FROM ltp") == [(COUNT,)]


def test_status_counts_every_wing_of_a_snapshot_s_rows(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshots" / "one"
    snapshot.mkdir(parents=True)
    write_source(snapshot / ROWS_FILE)
    assert wing_counts(snapshot) == WINGS
    assert sum(wing_counts(snapshot).values()) == COUNT
