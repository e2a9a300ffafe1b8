"""The table of proposals: there and back, no text, and what is said of a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from noctuary.compact import clusters as tables
from noctuary.core.errors import StoreError
from noctuary.core.types import UNDATED_US
from noctuary.curate import promotions
from noctuary.curate.promotions import (
    PROMOTIONS,
    SCORES,
    PromotionTable,
    Row,
    list_promotions,
    read_table,
    write_table,
)


def row(turn_id: str, g: float = 0.5, decision: str = "propose", **fields: object) -> Row:
    return {
        "turn_id": turn_id, "content_hash": "h", "user": None, "wing": "w", "session_id": "s",
        "created_at_us": 5, **dict.fromkeys(SCORES, 0.25), "g": g, "marks": ["date", "fact"],
        "neighbours": [{"memory_id": "9", "kind": "durable", "cosine": 0.5}],
        "decision": decision, "reason": "proposed", **fields,
    }  # fmt: skip


ROWS = (
    row("1", user="ana"),
    row("2", 0.1, "leave", reason="below_threshold", marks=[], neighbours=[]),
    row("ü/3", 0.9, wing=None, session_id=None, created_at_us=UNDATED_US),
)


@pytest.mark.parametrize("group_rows", [1, 2, 4_096])
def test_what_is_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_rows: int
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", group_rows)
    path = tmp_path / "a" / "t.parquet"
    path.parent.mkdir()
    counts = write_table(path, iter(ROWS), threshold=0.35, corpus="c0")
    assert counts == {"below_threshold": 1, "proposed": 2}
    assert read_table(path) == PromotionTable(ROWS, True, 0.35, "c0")
    before = path.read_bytes()
    write_table(path, ROWS, threshold=0.35, corpus="c0")
    assert path.read_bytes() == before


def test_an_empty_table_says_whether_it_was_off(tmp_path: Path) -> None:
    write_table(tmp_path / "t", (), is_on=False)
    assert read_table(tmp_path / "t") == PromotionTable((), False, 0.0, "")


def no_records(_: Path) -> tuple[()]:
    return ()


def listed(work: Path, *rows: Row, **asked: Any) -> list[Row]:
    (work / PROMOTIONS).parent.mkdir()
    write_table(work / PROMOTIONS, rows)
    return list_promotions(work, **asked)["promotions"]


def test_proposals_are_the_highest_first_and_of_equal_ones_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promotions, "iter_records", no_records)
    rows = (row("a", 0.5), row("b", 0.7), row("c", 0.5, created_at_us=9), row("d", 1, "leave"))
    assert [r["turn_id"] for r in listed(tmp_path, *rows)] == ["b", "c", "a"]
    every = list_promotions(tmp_path, with_left=True)["promotions"]
    assert [r["turn_id"] for r in every] == ["b", "c", "a", "d"]


def test_a_listed_row_has_every_score_and_no_date_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promotions, "iter_records", no_records)
    (found,) = listed(tmp_path, ROWS[2])
    assert found == {**ROWS[2], "created_at_us": None, "text": None}


def test_a_failed_night_leaves_the_table_of_the_last(tmp_path: Path) -> None:
    write_table(tmp_path / "t", ROWS, corpus="c0")

    def broken() -> object:
        yield ROWS[0]
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_table(tmp_path / "t", broken())  # pyright: ignore[reportArgumentType]
    assert read_table(tmp_path / "t").corpus == "c0"


def test_a_missing_and_a_damaged_table_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run the night"):
        read_table(tmp_path / "t")
    (tmp_path / "t").write_bytes(b"PAR1 no")
    with pytest.raises(StoreError, match="cannot be read as a table"):
        read_table(tmp_path / "t")
