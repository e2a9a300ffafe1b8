"""The stage access_statistics on a real, small corpus: night after night."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from noctuary.core.store import StorePaths
from noctuary.usage.access_log import append_retrievals
from noctuary_assets.index import FOLDED, fold_accesses
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night


@pytest.fixture
def night(tmp_path: Path) -> Night:
    source = tmp_path / "memories.jsonl"
    rows = [{"id": n, "content": f"The key number {n} hangs in the hall."} for n in (1, 2, 3)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    night = Night(StorePaths(tmp_path / "store"), source)
    export_memories(night)
    return night


def recalled(night: Night, *ids: str) -> None:
    path = night.paths.access_log
    assert append_retrievals(path, snapshot_id="s", memory_ids=ids) is None


def rows_of(night: Night) -> dict[str, tuple[int, int]]:
    """Return retrievals and the last of them by memory, as recall reads them."""
    with closing(sqlite3.connect(night.paths.usage)) as db:
        rows = db.execute("SELECT memory_id, retrievals, last_us FROM access").fetchall()
    return {memory_id: (retrievals, last_us) for memory_id, retrievals, last_us in rows}


def test_each_night_reads_what_is_new_and_keeps_what_was(night: Night) -> None:
    recalled(night, "1", "2", "gone")
    first = fold_accesses(night)
    counted = {name: first.facts[name] for name in ("retrievals", "orphaned_retrievals", "fault")}
    assert counted == {"retrievals": 2, "orphaned_retrievals": 1, "fault": None}
    assert first.notes == {"rows_folded": 3, "rows_pruned": 0}
    assert fold_accesses(night).notes == {"rows_folded": 0, "rows_pruned": 0}
    recalled(night, "1")
    assert fold_accesses(night).notes == {"rows_folded": 1, "rows_pruned": 0}
    assert {m: count for m, (count, _) in rows_of(night).items()} == {"1": 2, "2": 1}


def test_statistics_outlive_their_rows_and_without_the_sums_the_log_is_read_again(
    night: Night,
) -> None:
    recalled(night, "1", "2")
    with closing(sqlite3.connect(night.paths.access_log)) as log, log:
        log.execute("UPDATE retrievals SET retrieved_at_us = 5 WHERE memory_id = '1'")
    assert fold_accesses(night).notes == {"rows_folded": 2, "rows_pruned": 1}
    assert fold_accesses(night).facts["retrievals"] == 2
    assert rows_of(night)["1"] == (1, 5)
    night.work(FOLDED).unlink()
    assert fold_accesses(night).notes == {"rows_folded": 1, "rows_pruned": 0}
    assert list(rows_of(night)) == ["2"]
