"""Whole nights over what a real OpenCode kept, beside its writer."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.driver import DONE, run_night
from tests.e2e.stores import Bench
from tests.support.agents import place


@pytest.mark.slow
def test_nights_over_a_database_of_opencode_take_what_is_new_once(tmp_path: Path) -> None:
    source = place(tmp_path / "opencode", "opencode-1.18.33.json") / "opencode.db"
    bench = Bench(source, tmp_path / "store")
    with closing(sqlite3.connect(source)) as writer:
        ran = run_night(source, bench.store)
        assert ran.code == DONE, ran.says
        assert bench.manifest.counts["memories"] == 22
        found = bench.ask("who does the buoy belong to?").memories
        assert any("QUEUEDWORD the buoy belongs to Nils." in memory.content for memory in found)
        assert not any("SUMMARYWORD" in memory.content for memory in found)

        session = writer.execute("SELECT id FROM session ORDER BY time_created").fetchone()[0]
        at_ms = 1_795_990_000_000
        message = json.dumps({"role": "user", "time": {"created": at_ms}})
        part = json.dumps({"type": "text", "text": "The lighthouse is painted by Signe Lund."})
        with writer:
            writer.execute("INSERT INTO message VALUES ('msg_9', ?, 1, 1, ?)", (session, message))
            writer.execute(
                "INSERT INTO part VALUES ('prt_9', 'msg_9', ?, 1, 1, ?)", (session, part)
            )
            writer.execute("UPDATE session SET time_updated = ? WHERE id = ?", (at_ms, session))
        ran = run_night(source, bench.store)
        assert ran.code == DONE, ran.says
    assert bench.manifest.counts["memories"] == 23
    assert "Signe Lund" in bench.ask("who paints the lighthouse?").memories[0].content
