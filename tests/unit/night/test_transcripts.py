"""The stage corpus_export with transcripts beside a source, or instead of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import SourceEmptyError, SourceMissingError, StoreError
from noctuary.core.manifest import Manifest, Pointer, write_manifest, write_pointer
from noctuary.core.settings import Settings, TranscriptSettings
from noctuary.core.store import PACK_FORMAT_VERSION, StorePaths, path_of
from noctuary.core.types import MemoryRecord
from noctuary.sources.corpus import read_records
from noctuary.sources.export import read_report
from noctuary.sources.ingest import capture_session
from noctuary.work.stage import StageResult
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night
from tests.support.transcripts import (
    ClaudeSession,
    call,
    text,
    write_session,
)

SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def never(_: str) -> None:
    """Find nothing objectionable, as rules of long ago."""


class Nights:
    """A store, a source of two memories and a folder of transcripts."""

    def __init__(self, path: Path, *ids: object) -> None:
        self.transcripts = path / "projects"
        self.session = ClaudeSession()
        self.session.user("Which carrier delivers on Saturday?")
        self.session.assistant(text("Nordpost does."), call("Bash", "t1", command="ls"))
        self.write()
        (path / "store").mkdir()
        settings = Settings(transcripts=TranscriptSettings(path=str(self.transcripts)))
        self.night = Night(StorePaths(path / "store"), path / "memories.jsonl", settings)
        self.fill(*(ids or (1, 2)))

    def fill(self, *ids: object) -> None:
        rows = [{"id": i, "content": f"memory {i}"} for i in ids]
        path_of(self.night.source).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def write(self) -> None:
        write_session(self.transcripts / "-home-me-shop" / "s.jsonl", self.session.lines)

    def pass_one(self, **changes: Any) -> StageResult:
        if changes:
            transcripts = self.night.settings.transcripts._replace(**changes)
            self.night.settings = self.night.settings._replace(transcripts=transcripts)
        return export_memories(self.night)

    def records(self) -> list[MemoryRecord]:
        return read_records(self.night.paths.work / "corpus")


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path)


def test_turns_join_the_source_as_turns(nights: Nights) -> None:
    result = nights.pass_one()
    (ingested,) = result.notes["transcripts"]
    assert (ingested["turns"], ingested["faults"]) == (2, [])
    assert (result.facts["source_rows"], result.facts["turns"]) == (4, 2)
    records = nights.records()
    assert [r.memory_id for r in records if not r.is_turn] == ["1", "2"]
    said = {r.content: r for r in records if r.is_turn}
    prompt = said["User: Which carrier delivers on Saturday?"]
    assert int(prompt.memory_id) < 0
    assert (prompt.category, prompt.session_id, prompt.wing) == (
        "turn",
        nights.session.session,
        "shop",
    )
    assert prompt.user is None
    assert "Assistant: Nordpost does.\n[Bash: ls]" in said


def test_where_ids_are_texts_those_of_turns_are(tmp_path: Path) -> None:
    nights = Nights(tmp_path, "a", "z")
    nights.pass_one()
    ids = [r.memory_id for r in nights.records()]
    assert (ids[0], ids[-1]) == ("a", "z")
    assert all(i.startswith("turn-") for i in ids[1:-1])


def test_ids_stay_night_after_night(nights: Nights) -> None:
    first = nights.pass_one()
    second = nights.pass_one()
    assert second.reused
    assert second.digest == first.digest
    nights.session.user("And on Sunday?")
    nights.write()
    third = nights.pass_one()
    assert (third.notes["added"], third.notes["edited"], third.notes["deleted"]) == (1, 0, 0)


def test_turns_outlive_their_transcripts(nights: Nights) -> None:
    nights.pass_one()
    (nights.transcripts / "-home-me-shop" / "s.jsonl").unlink()
    assert nights.pass_one().reused
    nights.transcripts.joinpath("-home-me-shop").rmdir()
    nights.transcripts.rmdir()
    result = nights.pass_one()
    assert result.reused
    assert "cannot be read" in result.notes["transcripts"][0]["faults"][0]


def test_what_a_hook_captured_joins_without_a_setting(nights: Nights) -> None:
    file = nights.transcripts / "-home-me-shop" / "s.jsonl"
    capture_session(file, nights.night.paths.turns)
    result = nights.pass_one(path="")
    assert result.facts["turns"] == 2
    assert "transcripts" not in result.notes


def test_a_store_without_transcripts_is_as_it_was(nights: Nights) -> None:
    result = nights.pass_one(path="")
    assert result.facts["source_rows"] == 2
    assert not nights.night.paths.turns.exists()
    assert "transcripts" not in result.notes


def test_a_turn_whose_id_the_source_has_counts_as_a_duplicate(nights: Nights) -> None:
    nights.pass_one()
    turn = min(int(r.memory_id) for r in nights.records())
    nights.fill(turn, 1)
    result = nights.pass_one()
    assert result.facts["quarantined_by_reason"] == {"duplicate_id": 1}
    records = {r.memory_id: r.content for r in nights.records()}
    assert records[str(turn)] == f"memory {turn}"
    assert len(records) == 3


def test_a_turn_that_turned_sensitive_is_taken_back(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("sources.transcripts", "sources.ingest", "sources.normalize", "text.secrets"):
        monkeypatch.setattr(f"noctuary.{module}.find_text_sensitivity", never)
    monkeypatch.setattr("noctuary.sources.ingest.read_rules", lambda: ("old rules",))
    nights.session.user(f"use {SECRET}")
    nights.write()
    assert nights.pass_one().facts["turns"] == 3
    monkeypatch.undo()
    result = nights.pass_one()
    assert result.notes["turns_forgotten"] == 1
    assert result.notes["turned_sensitive"] == 1
    assert result.facts["sensitive"] == 1
    assert nights.night.paths.purge_pending.is_file()
    assert not any(SECRET in r.content for r in nights.records())
    files = [f for f in nights.night.paths.root.rglob("*") if f.is_file()]
    assert not any(SECRET.encode() in f.read_bytes() for f in files)


def test_a_source_that_was_emptied_is_refused_in_spite_of_turns(nights: Nights) -> None:
    nights.pass_one()
    _publish(nights.night.paths)
    nights.fill()
    with pytest.raises(SourceEmptyError, match="holds no row any more"):
        nights.pass_one()


def test_a_source_that_never_had_a_row_is_not(nights: Nights) -> None:
    nights.fill()
    nights.pass_one()
    _publish(nights.night.paths)
    assert nights.pass_one().facts["turns"] == 2


def test_a_damaged_file_of_turns_stops_the_night(nights: Nights) -> None:
    nights.night.paths.turns.write_bytes(b"no database" * 500)
    with pytest.raises(StoreError, match=r"turns\.sqlite cannot be used"):
        nights.pass_one()
    with pytest.raises(StoreError, match=r"turns\.sqlite cannot be used"):
        nights.pass_one(path="")


class TestTranscriptsAlone:
    """`noctuary nightly folder-of-transcripts`."""

    @pytest.fixture
    def night(self, nights: Nights) -> Night:
        return Night(nights.night.paths, nights.transcripts)

    def test_they_are_a_source(self, night: Night, nights: Nights) -> None:
        result = export_memories(night)
        assert (result.facts["exported"], result.facts["turns"]) == (2, 2)
        assert all(r.memory_id.startswith("turn-") for r in nights.records())
        identity = read_report(night.paths.work / "corpus").identity
        assert (identity.kind, identity.location) == ("transcripts", str(night.source))

    def test_one_file_is_one_too(self, night: Night) -> None:
        night.source = next(path_of(night.source).rglob("*.jsonl"))
        assert export_memories(night).facts["turns"] == 2

    def test_an_empty_folder_serves_on_where_transcripts_were(self, night: Night) -> None:
        export_memories(night)
        next(path_of(night.source).rglob("*.jsonl")).unlink()
        assert export_memories(night).reused
        fresh = Night(StorePaths(night.paths.root.with_name("fresh")), night.source)
        with pytest.raises(SourceMissingError, match=r"or transcripts of an agent"):
            export_memories(fresh)

    def test_a_store_among_transcripts_is_the_source(self, night: Night) -> None:
        (path_of(night.source) / "corpus.jsonl").write_text('{"id": 1, "content": "a"}\n')
        result = export_memories(night)
        assert (result.facts["exported"], result.facts["turns"]) == (1, 0)

    def test_a_folder_that_is_also_configured_is_read_once(self, night: Night) -> None:
        night.settings = Settings(transcripts=TranscriptSettings(path=str(night.source)))
        result = export_memories(night)
        assert [r["bytes_read"] > 0 for r in result.notes["transcripts"]] == [True]


def _publish(paths: StorePaths) -> None:
    """Let a snapshot of four memories serve, as far as the export looks at it."""
    manifest = Manifest(
        PACK_FORMAT_VERSION,
        "d" * 64,
        {},
        {"memories": 4},
        "int",
        None,
        None,
        {},
        "c",
        {},
        [],
        "now",
    )
    name = f"20260101T030000000000-{'d' * 12}"
    (paths.snapshots / name).mkdir(parents=True)
    write_manifest(paths.snapshots / name, manifest)
    write_pointer(paths, Pointer(name, "d" * 64, "now", None, "publish"))
