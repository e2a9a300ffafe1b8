"""The stage corpus_export night after night, with injections between the nights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.store import StorePaths, path_of
from noctuary.sources.corpus import read_records
from noctuary.sources.echo import RETENTION_DAYS, read_injections
from noctuary.work.stage import StageResult
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import Night
from tests.support.injections import DAY_US, INJECTED_US, memory, put_in_prompt

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


def test_an_injection_without_an_echo_changes_nothing(night: Night) -> None:
    first = pass_night(night, ORIGINALS)
    injected(night)
    second = pass_night(night, ORIGINALS)
    assert second.reused
    assert second.digest == first.digest
    assert (second.notes["added"], second.notes["deleted"]) == (0, 0)


def test_echoes_stay_out_night_after_night_and_originals_stay_in(night: Night) -> None:
    pass_night(night, ORIGINALS)
    injected(night)
    rows = {**ORIGINALS, "3": f"- {KEY}\n- {TRAM}", "4": f"{KEY}\n{TRAM}\nAna has it."}
    first = pass_night(night, rows)
    assert first.facts["quarantined_by_reason"] == {"injected_lines": 1}
    assert kept(night) == {**ORIGINALS, "4": "Ana has it."}
    for _ in range(2):
        again = pass_night(night, rows)
        assert again.reused
        assert again.digest == first.digest
        assert again.notes["edited"] == 0


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


def test_an_edited_original_stays(night: Night) -> None:
    pass_night(night, ORIGINALS)
    injected(night)
    edited = {**ORIGINALS, "1": KEY.replace("pantry", "garage")}
    pass_night(night, edited)
    assert kept(night) == edited
    pass_night(night, ORIGINALS)
    assert kept(night) == ORIGINALS
