from __future__ import annotations

from noctuary.core.settings import CorpusSettings
from noctuary.core.types import MemoryRecord
from noctuary.sources.export import Tally, sift
from noctuary.sources.source import QuarantineReason, QuarantineRow, RawRow


def run(*rows: RawRow) -> tuple[list[MemoryRecord], list[QuarantineRow], Tally]:
    aside = list[QuarantineRow]()
    tally = Tally(aside.append)
    records = list(sift(rows, tally, now_us=2_000_000_000_000_000, settings=CorpusSettings()))
    assert tally.total == len(rows)
    assert tally.exported == len(records)
    assert tally.quarantined.total() == len(aside)
    return records, aside, tally


def row(line: int, key: int, content: object = "text", **fields: object) -> RawRow:
    return RawRow(f"line {line}", key, {"id": key, "content": content, **fields})


def broken(line: int, text: str = "?") -> RawRow:
    return RawRow(f"line {line}", None, {}, QuarantineReason.INVALID_JSON, "1 bytes", text)


def test_positions_count_the_exported_rows_only() -> None:
    records, aside, tally = run(row(1, 5), row(2, 6, ""), broken(3), row(4, 7, "x", sensitive=1),
                                row(5, 8))  # fmt: skip
    assert [(r.position, r.memory_id) for r in records] == [(0, "5"), (1, "8")]
    assert [(a.locator, a.reason.value) for a in aside] == [
        ("line 3", "invalid_json"),
        ("line 2", "empty_content"),
    ]
    assert dict(tally.sensitive) == {"flagged": 1}


def test_the_first_of_an_id_wins() -> None:
    records, aside, _ = run(row(1, 5, "first"), row(2, 5, "second"), broken(3), row(4, 5, "third"))
    assert [r.content for r in records] == ["first"]
    assert aside[1:] == [
        QuarantineRow("line 2", QuarantineReason.DUPLICATE_ID, "first at line 1"),
        QuarantineRow("line 4", QuarantineReason.DUPLICATE_ID, "first at line 1"),
    ]


def test_a_first_row_that_is_no_memory_still_claims_its_id() -> None:
    records, aside, _ = run(row(1, 5, ""), row(2, 5, "second"))
    assert records == []
    assert [a.reason.value for a in aside] == ["duplicate_id", "empty_content"]


def test_an_id_that_is_sensitive_once_is_never_exported() -> None:
    for rows in (
        (row(1, 5, "old text"), row(2, 5, "old text", is_sensitive=1), row(3, 6)),
        (row(1, 5, "old text", is_sensitive=1), row(2, 5, "old text"), row(3, 6)),
    ):
        records, aside, tally = run(*rows)
        assert [r.memory_id for r in records] == ["6"]
        assert aside == []
        assert dict(tally.sensitive) == {"flagged": 1, "shares_id_with_sensitive": 1}


def test_sensitivity_is_judged_before_quarantine() -> None:
    _, aside, tally = run(row(1, 5, "", is_sensitive=1), broken(2, '{"is_sensitive": 1, "co'))
    assert aside == []
    assert dict(tally.sensitive) == {"flagged": 2}


def test_warnings_of_exported_rows_are_counted() -> None:
    _, _, tally = run(
        row(1, 1, importance=2), row(2, 2, importance=-1), row(3, 3, "", importance=9)
    )
    assert dict(tally.warnings) == {"importance_clamped": 2}


def test_no_rows() -> None:
    assert run()[0] == []


def test_a_row_that_turned_sensitive_is_counted_once_if_it_was_exported() -> None:
    tally = Tally()
    rows = [row(1, 5, sensitive=1), row(2, 5, sensitive=1), row(3, 6, sensitive=1), row(4, 7)]
    kept = sift(
        rows,
        tally,
        now_us=2_000_000_000_000_000,
        settings=CorpusSettings(),
        previous_ids={"5", "7"},
    )
    assert [record.memory_id for record in kept] == ["7"]
    assert tally.retracted == 1
