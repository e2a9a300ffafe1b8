"""What hooks named in their journal reaches the night of their store."""

from __future__ import annotations

from pathlib import Path

import pytest

from noctuary.agents.state import HOOKS, JOURNAL, JournalEntry, append_entry
from noctuary.core.settings import HookSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.sources.corpus import read_records
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night
from tests.support.transcripts import ClaudeSession, write_session


@pytest.mark.parametrize("capture", [True, False])
def test_a_session_that_was_compacted_and_never_stopped_is_kept(
    home: Path, tmp_path: Path, capture: bool
) -> None:
    session = ClaudeSession()
    session.user("Which carrier delivers on Saturday?")
    path = tmp_path / "projects" / "-home-me-shop" / "s.jsonl"
    write_session(path, session.lines)
    store, source = home / "store", tmp_path / "memories.jsonl"
    store.mkdir()
    source.write_text('{"id": 1, "content": "memory 1"}\n')
    (home / HOOKS).mkdir()
    entry = JournalEntry(1, "claude", "PreCompact", "s", str(path), 9, store=str(store))
    assert append_entry(home / JOURNAL, entry) is None
    settings = Settings(hook=HookSettings(capture=capture))
    night = Night(StorePaths(store), source, settings)
    export_memories(night)
    texts = [record.content for record in read_records(night.work("corpus/memories.parquet"))]
    assert ("User: Which carrier delivers on Saturday?" in texts) is capture
    assert "memory 1" in texts
