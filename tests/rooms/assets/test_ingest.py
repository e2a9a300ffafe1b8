"""The stage corpus_export over a database, night after night."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from noctuary.agents.state import HOOKS, JOURNAL, JournalEntry, append_entry
from noctuary.core.errors import SourceEmptyError, SourceMissingError, StoreError
from noctuary.core.formats import SNAPSHOT
from noctuary.core.manifest import Manifest, Pointer, write_manifest, write_pointer
from noctuary.core.settings import CorpusSettings, HookSettings, Settings, TranscriptSettings
from noctuary.core.store import StorePaths, path_of
from noctuary.core.types import SILENT, MemoryRecord
from noctuary.sources import export as table_scan
from noctuary.sources.corpus import open_table, read_records
from noctuary.sources.echo import RETENTION_DAYS, read_injections
from noctuary.sources.export import read_report, scan_tables
from noctuary.sources.ingest import capture_session
from noctuary.text import secret_forms as seed_words
from noctuary.text import secrets as disguises
from noctuary.text.secrets import Scan
from noctuary.work.stage import StageResult
from noctuary_assets import ingest as export_scan
from noctuary_assets.ingest import export_memories, scan_export
from noctuary_assets.night import MEMORIES, Night
from tests.support.injections import DAY_US, INJECTED_US, memory, put_in_prompt
from tests.support.promotions import Nights
from tests.support.transcripts import ClaudeSession, call, text, write_session

KEPT = {"content": "Nina keeps bees in Ulm.", "category": "facts"}
TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class Scans:
    """A store, and how often its export was looked through."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nights = Nights(root)
        self.nights.write(KEPT)
        self.looks = 0
        monkeypatch.setattr(export_scan, "scan_tables", self._scan)

    def _scan(self, directory: Path, scan: Scan) -> dict[str, Any]:
        self.looks += 1
        return scan_tables(directory, scan)

    def export(self) -> Night:
        night = Night(self.nights.paths, self.nights.source)
        export_memories(night)
        return night


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scans:
    return Scans(tmp_path, monkeypatch)


def test_an_unchanged_export_is_looked_through_again_by_other_rules_only(
    scans: Scans, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = scan_export(scans.export()), scan_export(scans.export())
    assert first == second
    assert (first["found"], first["texts"] > 0, scans.looks) == (0, True, 1)
    scans.nights.write(KEPT, {"content": "Another one.", "category": "facts"})
    assert scan_export(scans.export())["texts"] > first["texts"]
    assert scans.looks == 2
    monkeypatch.setattr(export_scan, "rules_digest", lambda: "of tomorrow")
    scan_export(scans.export())
    assert scans.looks == 3


@pytest.mark.parametrize("which", [disguises, seed_words, table_scan])
def test_rules_are_known_by_their_lines(monkeypatch: pytest.MonkeyPatch, which: ModuleType) -> None:
    before = export_scan.rules_digest()
    lines = Path.read_text

    def edited(path: Path, *encoding: str) -> str:
        return lines(path, *encoding) + ("# a line more" if str(path) == which.__file__ else "")

    monkeypatch.setattr(Path, "read_text", edited)
    assert export_scan.rules_digest() != before


def test_what_was_found_stays_found(scans: Scans) -> None:
    night = scans.export()
    memories = night.work(MEMORIES)
    with open_table(memories.with_name("planted.parquet"), "quarantine.parquet") as add:
        add(("line 1", "bad_field", TOKEN))
    assert [scan_export(night)["found"] for _ in range(2)] == [1, 1]
    assert scans.looks == 1
    assert TOKEN not in "".join(p.read_text() for p in (night.paths.work / "stamps").iterdir())


KEY = "The spare key hangs in the pantry, left of the door."
TRAM = "Line 4 leaves Harbour Square every 12 minutes until midnight."
ORIGINALS = {"1": KEY, "2": TRAM}


@pytest.fixture
def night(tmp_path: Path) -> Night:
    (tmp_path / "store").mkdir()
    return Night(StorePaths(tmp_path / "store"), tmp_path / "memories.jsonl")


def pass_night(night: Night, rows: dict[str, str]) -> StageResult:
    """Let the source hold undated rows, and export it; an empty line more makes it be read."""
    lines = [json.dumps({"id": i, "content": text}) for i, text in rows.items()]
    source = path_of(night.source)
    blank = len(source.read_bytes()) - len(source.read_bytes().rstrip()) if source.exists() else 0
    source.write_text("\n".join(lines) + "\n" * (blank + 1))
    return export_memories(night)


def injected(night: Night) -> None:
    found: list[dict[str, Any]] = [memory(i, text) for i, text in ORIGINALS.items()]
    put_in_prompt(night.paths.root, *found)


def kept(night: Night) -> dict[str, str]:
    return {r.memory_id: r.content for r in read_records(night.paths.work / "corpus")}


def test_echoes_stay_out_night_after_night_and_originals_stay_in(night: Night) -> None:
    plain = pass_night(night, ORIGINALS)
    injected(night)
    same = pass_night(night, ORIGINALS)
    assert (same.reused, same.digest) == (True, plain.digest)
    assert (same.notes["added"], same.notes["deleted"]) == (0, 0)
    rows = {**ORIGINALS, "3": f"- {KEY}\n- {TRAM}", "4": f"{KEY}\n{TRAM}\nAna has it."}
    first = pass_night(night, rows)
    assert first.facts["quarantined_by_reason"] == {"injected_lines": 1}
    assert kept(night) == {**ORIGINALS, "4": "Ana has it."}
    for _ in range(2):
        again = pass_night(night, rows)
        assert (again.reused, again.digest) == (True, first.digest)
        assert again.notes["edited"] == 0
    for edited in ({**ORIGINALS, "1": KEY.replace("pantry", "garage")}, ORIGINALS):
        pass_night(night, edited)
        assert kept(night) == edited


def test_echoes_stay_out_after_the_retention(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    pass_night(night, ORIGINALS)
    injected(night)
    rows = {**ORIGINALS, "3": KEY}
    pass_night(night, rows)
    later_us = INJECTED_US + (RETENTION_DAYS + 1) * DAY_US
    monkeypatch.setattr("noctuary_assets.ingest.time.time_ns", lambda: later_us * 1000)
    assert pass_night(night, rows).notes["injections_pruned"] == 2, "the block and the other line"
    assert pass_night(night, rows).facts["quarantined_by_reason"] == {"injected_lines": 1}
    assert len(read_injections(night.paths.injections).occurrences) == 1
    assert pass_night(night, ORIGINALS).notes["injections_pruned"] == 1


def test_what_a_damaged_record_knew_is_not_known_and_the_night_says_so(night: Night) -> None:
    night.paths.injections.write_bytes(b"x" * 5000)
    result = pass_night(night, ORIGINALS)
    assert kept(night) == ORIGINALS
    assert "injected.sqlite cannot be read" in result.notes["injections_fault"]
    assert "injections_fault" not in result.facts, "facts are equal for equal rows"


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


def was_read(result: StageResult) -> bool:
    return "source_batches" in result.notes


def test_an_unchanged_file_is_not_read_again(night: Night) -> None:
    """Every change that makes it read: tests/rooms/sources/test_source.py."""
    source = path_of(night.source)
    row = json.dumps({"id": 1, "content": KEY})
    source.write_text(f"{row}\n")
    first = export_memories(night)
    assert first.notes["source_batches"]["batches"] == 1
    again = export_memories(night)
    assert (again.reused, again.digest, was_read(again)) == (True, first.digest, False)
    source.write_text(f"{row}\n\n")
    blank = export_memories(night)
    assert (blank.reused, blank.digest, was_read(blank)) == (True, first.digest, True)
    source.write_text("{}\n".format(row.replace("pantry", "garage")))
    assert export_memories(night).notes["edited"] == 1


def test_settings_a_lost_table_and_a_change_while_reading_make_it_read(night: Night) -> None:
    source, before = path_of(night.source), b'{"id": 1, "content": "Bo has the spare key."}\n'
    source.write_bytes(before)
    export_memories(night)
    settings = night.settings
    night.settings = settings._replace(corpus=CorpusSettings(max_content_bytes=5))
    assert export_memories(night).facts["quarantined_by_reason"] == {"content_too_large": 1}
    (night.paths.work / "corpus" / "memories.parquet").unlink()
    assert was_read(export_memories(night))

    class Writer:
        def update(self, task: str, done: int, total: int) -> None:
            source.write_bytes(before + b"\n")

    night.settings, night.progress = settings, Writer()
    export_memories(night)
    source.write_bytes(before)
    night.progress = SILENT
    assert was_read(export_memories(night))
    assert not was_read(export_memories(night))


class TalkNights:
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
def nights(tmp_path: Path) -> TalkNights:
    return TalkNights(tmp_path)


def test_turns_join_the_source_as_turns(nights: TalkNights) -> None:
    result = nights.pass_one()
    (ingested,) = result.notes["transcripts"]
    assert (ingested["turns"], ingested["faults"]) == (2, [])
    assert (result.facts["source_rows"], result.facts["turns"]) == (4, 2)
    records = nights.records()
    assert [r.memory_id for r in records if not r.is_turn] == ["1", "2"]
    said = {r.content: r for r in records if r.is_turn}
    assert "Assistant: Nordpost does.\n[Bash: ls]" in said
    prompt = said["User: Which carrier delivers on Saturday?"]
    assert int(prompt.memory_id) < 0
    told = (prompt.category, prompt.session_id, prompt.wing, prompt.user)
    assert told == ("turn", nights.session.session, "shop", None)


def test_where_ids_are_texts_those_of_turns_are(tmp_path: Path) -> None:
    nights = TalkNights(tmp_path, "a", "z")
    nights.pass_one()
    first, *turns, last = [r.memory_id for r in nights.records()]
    assert (first, last) == ("a", "z")
    assert all(i.startswith("turn-") for i in turns)


def test_turns_keep_their_ids_and_outlive_their_transcripts(nights: TalkNights) -> None:
    first = nights.pass_one()
    second = nights.pass_one()
    assert (second.reused, second.digest) == (True, first.digest)
    nights.session.user("And on Sunday?")
    nights.write()
    third = nights.pass_one()
    assert (third.notes["added"], third.notes["edited"], third.notes["deleted"]) == (1, 0, 0)
    shutil.rmtree(nights.transcripts / "-home-me-shop")
    assert nights.pass_one().reused
    nights.transcripts.rmdir()
    result = nights.pass_one()
    assert result.reused
    assert "cannot be read" in result.notes["transcripts"][0]["faults"][0]


def test_what_a_hook_captured_joins_without_a_setting(nights: TalkNights) -> None:
    result = nights.pass_one(path="")
    assert result.facts["source_rows"] == 2
    assert not nights.night.paths.turns.exists()
    capture_session(nights.transcripts / "-home-me-shop" / "s.jsonl", nights.night.paths.turns)
    captured = nights.pass_one(path="")
    assert captured.facts["turns"] == 2
    assert "transcripts" not in {**result.notes, **captured.notes}


def test_a_turn_whose_id_the_source_has_counts_as_a_duplicate(nights: TalkNights) -> None:
    nights.pass_one()
    turn = min(int(r.memory_id) for r in nights.records())
    nights.fill(turn, 1)
    result = nights.pass_one()
    assert result.facts["quarantined_by_reason"] == {"duplicate_id": 1}
    records = {r.memory_id: r.content for r in nights.records()}
    assert records[str(turn)] == f"memory {turn}"
    assert len(records) == 3


def test_a_turn_that_turned_sensitive_is_taken_back(
    nights: TalkNights, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("transcripts", "ingest", "normalize", "export"):
        monkeypatch.setattr(f"noctuary.sources.{module}.find_text_sensitivity", lambda _: None)  # pyright: ignore[reportUnknownLambdaType]
    for module in ("ingest", "export"):
        monkeypatch.setattr(f"noctuary.sources.{module}.read_rules", lambda: ("old rules",))
    nights.session.user(f"use {TOKEN}")
    nights.write()
    assert nights.pass_one().facts["turns"] == 3
    monkeypatch.undo()
    result = nights.pass_one()
    assert (result.notes["turns_forgotten"], result.notes["turned_sensitive"]) == (1, 1)
    assert result.facts["sensitive"] == 1
    assert nights.night.paths.purge_pending.is_file()
    files = [f for f in nights.night.paths.root.rglob("*") if f.is_file()]
    assert not any(TOKEN.encode() in f.read_bytes() for f in files)
    assert not any(TOKEN in r.content for r in nights.records())


@pytest.mark.parametrize("had_rows", [True, False])
def test_a_source_that_was_emptied_is_refused_in_spite_of_turns_one_that_never_had_a_row_is_not(
    nights: TalkNights, had_rows: bool
) -> None:
    if not had_rows:
        nights.fill()
    nights.pass_one()
    _publish(nights.night.paths)
    nights.fill()
    if had_rows:
        with pytest.raises(SourceEmptyError, match="holds no row any more"):
            nights.pass_one()
    else:
        assert nights.pass_one().facts["turns"] == 2


def test_a_damaged_file_of_turns_stops_the_night(nights: TalkNights) -> None:
    nights.night.paths.turns.write_bytes(b"no database" * 500)
    for changes in ({}, {"path": ""}):
        with pytest.raises(StoreError, match=r"turns\.sqlite cannot be used"):
            nights.pass_one(**changes)


@pytest.fixture
def alone(nights: TalkNights) -> Night:
    """`noctuary nightly folder-of-transcripts`."""
    return Night(nights.night.paths, nights.transcripts)


def test_transcripts_alone_are_a_source(alone: Night, nights: TalkNights) -> None:
    result = export_memories(alone)
    assert (result.facts["exported"], result.facts["turns"]) == (2, 2)
    assert all(r.memory_id.startswith("turn-") for r in nights.records())
    identity = read_report(alone.paths.work / "corpus").identity
    assert (identity.kind, identity.location) == ("transcripts", str(alone.source))
    file = next(path_of(alone.source).rglob("*.jsonl"))
    one = Night(StorePaths(alone.paths.root.with_name("one")), file)
    assert export_memories(one).facts["turns"] == 2
    file.unlink()
    assert export_memories(alone).reused, "it serves on where transcripts were"
    fresh = Night(StorePaths(alone.paths.root.with_name("fresh")), alone.source)
    with pytest.raises(SourceMissingError, match=r"or transcripts of an agent"):
        export_memories(fresh)


def test_a_store_among_transcripts_is_the_source(alone: Night) -> None:
    (path_of(alone.source) / "corpus.jsonl").write_text('{"id": 1, "content": "a"}\n')
    result = export_memories(alone)
    assert (result.facts["exported"], result.facts["turns"]) == (1, 0)


def test_a_folder_that_is_also_configured_is_read_once(alone: Night) -> None:
    alone.settings = Settings(transcripts=TranscriptSettings(path=str(alone.source)))
    result = export_memories(alone)
    assert [r["bytes_read"] > 0 for r in result.notes["transcripts"]] == [True]


def _publish(paths: StorePaths) -> None:
    """Let a snapshot of four memories serve, as far as the export looks at it."""
    digest, counts = "d" * 64, {"memories": 4}
    manifest = Manifest(
        SNAPSHOT.version, digest, {}, counts, "int", None, None, {}, "c", {}, [], "now"
    )
    name = f"20260101T030000000000-{digest[:12]}"
    (paths.snapshots / name).mkdir(parents=True)
    write_manifest(paths.snapshots / name, manifest)
    write_pointer(paths, Pointer(name, digest, "now", None, "publish"))
