from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from noctuary.core.types import content_hash
from noctuary.sources.corpus import read_records
from noctuary.sources.export import ExportReport, export_corpus
from noctuary.sources.injected import hash_exact
from noctuary.sources.source import open_source
from tests.support.injections import guard_of, memory, put_in_prompt

MakeStore = Callable[..., Path]

KEY = "The spare key hangs in the pantry, left of the door."
TRAM = "Line 4 leaves Harbour Square every 12 minutes until midnight."
BEFORE = "2026-03-01T08:00:00+00:00"
AFTER = "2026-12-01T08:00:00+00:00"
INJECTED = [memory(1, KEY), memory(2, TRAM)]


def originals() -> list[dict[str, object]]:
    dates = {"created_at": BEFORE, "updated_at": BEFORE}
    return [{"content": text, **dates} for text in (KEY, TRAM)]


def after(content: str, **fields: object) -> dict[str, object]:
    return {"content": content, "created_at": AFTER, "updated_at": AFTER, **fields}


def turn(content: str) -> dict[str, object]:
    return after(content, category="turn", tags="session:s")


@pytest.fixture
def block(tmp_path: Path) -> str:
    """The block of both memories; from now on they count as injected."""
    return put_in_prompt(tmp_path, *INJECTED).text


def export(
    source: Path, out: Path, store: Path, exported: Mapping[str, bytes] | None = None
) -> ExportReport:
    with open_source(source) as opened:
        report = export_corpus(
            opened, out, now_us=1_800_000_000_000_000, guard=guard_of(store, exported)
        )
    assert report.exported + report.quarantined_rows + report.sensitive_rows == report.source_rows
    return report


def test_the_account_of_a_day_with_recall(
    make_store: MakeStore, tmp_path: Path, block: str
) -> None:
    rows = [
        *originals(),
        turn(f"Mira: {block}\nWhere is the spare key?"),
        turn(f"assistant: It hangs in the pantry. My notes say:\n- {KEY}\nShall I fetch it?"),
        turn(f"Mira: {block}"),
        turn(f"assistant: {KEY}"),
        after(f"- {KEY}\n- {TRAM}"),
        after(f"- {KEY}\n- {TRAM}\nAna has it."),
        after("Ana moved the spare key to the garage."),
        after(KEY, is_sensitive=1),
        after(""),
    ]
    report = export(make_store(rows), tmp_path / "out", tmp_path)
    assert report.quarantined == {"empty_content": 1, "injected_block": 1, "injected_lines": 2}
    assert report.sensitive == {"flagged": 1}
    assert report.warnings == {"injected_block_cut": 1, "injected_lines_cut": 1}
    records = {r.memory_id: r for r in read_records(tmp_path / "out")}
    assert list(records) == ["1", "2", "3", "4", "8", "9"]
    assert [records["1"].content, records["2"].content] == [KEY, TRAM]
    assert records["3"].content == "Mira: \nWhere is the spare key?"
    assert "My notes say" in records["4"].content
    assert records["8"].content == "Ana has it."
    assert all(r.content_hash == content_hash(r) for r in records.values())
    table = pq.read_table(tmp_path / "out" / "quarantine.parquet").to_pylist()
    details = {row["locator"]: row["detail"] for row in table}
    assert details["id 5"] == "content: 1 blocks, 0 lines"
    assert details["id 7"] == "content: 0 blocks, 2 lines"
    speakers = pq.read_table(tmp_path / "out" / "turns.parquet").column("speaker").to_pylist()
    assert speakers == ["Mira", "assistant"]


def test_a_second_night_makes_the_same_bytes(
    make_store: MakeStore, tmp_path: Path, block: str
) -> None:
    rows = [*originals(), after(KEY), after(f"{KEY}\n{TRAM}\nAna has it."), turn(f"{block}\nSo?")]
    source = make_store(rows)
    first = export(source, tmp_path / "out", tmp_path)
    exported = {r.memory_id: hash_exact(r.content) for r in read_records(tmp_path / "out")}
    second = export(source, tmp_path / "out", tmp_path, exported)
    assert second == first
    # Without the work of the night before, as on a new machine.
    assert export(source, tmp_path / "out", tmp_path) == first


def test_what_was_exported_before_the_injection_stays(
    make_store: MakeStore, tmp_path: Path
) -> None:
    rows = [*originals(), after(KEY, created_at=None)]
    source = make_store(rows)
    first = export(source, tmp_path / "out", tmp_path)
    assert first.exported == 3
    exported = {r.memory_id: hash_exact(r.content) for r in read_records(tmp_path / "out")}
    put_in_prompt(tmp_path, *INJECTED)
    assert export(source, tmp_path / "out", tmp_path, exported) == first
    assert export(source, tmp_path / "out", tmp_path).quarantined == {"injected_lines": 1}


def test_a_record_that_concerns_no_row_changes_no_byte(
    make_store: MakeStore, tmp_path: Path
) -> None:
    source = make_store(originals())
    before = export(source, tmp_path / "out", tmp_path)
    put_in_prompt(tmp_path, *INJECTED)
    assert export(source, tmp_path / "out", tmp_path) == before
