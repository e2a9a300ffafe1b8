"""The last look at an export: taken again where the export or the rules changed, never else."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from noctuary.sources import export as table_scan
from noctuary.sources.corpus import open_table
from noctuary.sources.export import scan_tables
from noctuary.text import secret_forms as seed_words
from noctuary.text import secrets as disguises
from noctuary_assets import ingest as export_scan
from noctuary_assets.ingest import export_memories, scan_export
from noctuary_assets.night import MEMORIES, Night
from tests.support.promotions import ENCODER, Nights

KEPT = {"content": "Nina keeps bees in Ulm.", "category": "facts"}
TOKEN = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class Scans:
    """A store, and how often its export was looked through."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nights = Nights(root)
        self.nights.write(KEPT)
        self.looks = 0
        monkeypatch.setattr(export_scan, "scan_tables", self._scan)

    def _scan(self, directory: Path) -> dict[str, Any]:
        self.looks += 1
        return scan_tables(directory)

    def export(self) -> Night:
        night = Night(self.nights.paths, self.nights.source)
        night.encoder.fingerprint = ENCODER
        export_memories(night)
        return night


@pytest.fixture
def scans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scans:
    return Scans(tmp_path, monkeypatch)


def test_an_unchanged_export_is_not_looked_through_again(scans: Scans) -> None:
    first, second = scan_export(scans.export()), scan_export(scans.export())
    assert first == second
    assert (first["found"], first["texts"] > 0, scans.looks) == (0, True, 1)
    scans.nights.write(KEPT, {"content": "Another one.", "category": "facts"})
    assert scan_export(scans.export())["texts"] > first["texts"]
    assert scans.looks == 2


def test_another_rule_looks_again(scans: Scans, monkeypatch: pytest.MonkeyPatch) -> None:
    night = scans.export()
    scan_export(night)
    monkeypatch.setattr(export_scan, "rules_digest", lambda: "of tomorrow")
    scan_export(night)
    assert scans.looks == 2


@pytest.mark.parametrize("which", [disguises, seed_words, table_scan])
def test_the_rules_are_known_by_their_lines(
    monkeypatch: pytest.MonkeyPatch, which: ModuleType
) -> None:
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
