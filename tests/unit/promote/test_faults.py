"""The check beside the asset sees what it is for, and counts as a plain loop over rows does."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import StoreError
from noctuary.curate.promotions import (
    FAULTS,
    LEAVE,
    PROPOSE,
    SCORES,
    Row,
    count_faults,
    write_table,
)

THRESHOLD = 0.35
GOOD: Row = {
    "turn_id": "t1", "content_hash": "c", "user": None, "wing": None, "session_id": "s",
    "created_at_us": 1, **dict.fromkeys(SCORES, 0.5), "marks": ["date"],
    "neighbours": [{"memory_id": "m1", "kind": "durable", "cosine": 0.5}],
    "decision": PROPOSE, "reason": "proposed",
}  # fmt: skip


def near(memory_id: str, kind: str, cosine: float) -> dict[str, object]:
    return {"memory_id": memory_id, "kind": kind, "cosine": cosine}


def naive(rows: list[Row]) -> dict[str, int]:
    """Count row by row."""
    proposed = [row for row in rows if row["decision"] == PROPOSE]
    numbers = [row[name] for row in rows for name in SCORES]
    return {
        "judged": len(rows),
        "proposals": len(proposed),
        "below_threshold": sum(not row["g"] >= THRESHOLD for row in proposed),
        "without_marks": sum(not row["marks"] for row in proposed),
        "out_of_range": sum(not 0.0 <= number <= 1.0 for number in numbers),
        "own_neighbours": sum(
            row["turn_id"] in {n["memory_id"] for n in row["neighbours"]} for row in rows
        ),
    }


def counted(directory: Path, rows: list[Row]) -> dict[str, int]:
    write_table(directory / "table.parquet", rows, threshold=THRESHOLD, corpus="c0")
    return count_faults(directory / "table.parquet")


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        ({**GOOD, "g": 0.1}, "below_threshold"),
        ({**GOOD, "marks": []}, "without_marks"),
        ({**GOOD, "t": 1.5}, "out_of_range"),
        ({**GOOD, "t": math.nan}, "out_of_range"),
        ({**GOOD, "neighbours": [near("t1", "repeated", 0.9)] * 2}, "own_neighbours"),
    ],
)
def test_every_broken_rule_is_counted(tmp_path: Path, bad: Row, fault: str) -> None:
    found = counted(tmp_path, [GOOD, bad, GOOD])
    assert found == {"judged": 3, "proposals": 3, **dict.fromkeys(FAULTS, 0), fault: 1}


def test_what_is_left_needs_no_threshold_and_no_marks(tmp_path: Path) -> None:
    left = {**GOOD, "decision": LEAVE, "marks": [], "g": 0.0}
    assert counted(tmp_path, [left]) == {"judged": 1, "proposals": 0, **dict.fromkeys(FAULTS, 0)}
    assert counted(tmp_path, []) == {"judged": 0, "proposals": 0, **dict.fromkeys(FAULTS, 0)}


rows = st.fixed_dictionaries(
    {
        **{name: st.just(value) for name, value in GOOD.items()},
        "turn_id": st.sampled_from(["a", "b"]),
        **dict.fromkeys(SCORES, st.sampled_from([-0.1, 0.0, 0.34, 0.35, 1.0, 1.1, math.nan])),
        "marks": st.lists(st.just("date"), max_size=2),
        "neighbours": st.lists(
            st.builds(near, st.sampled_from("abc"), st.just("durable"), st.just(0.1)), max_size=3
        ),
        "decision": st.sampled_from([PROPOSE, LEAVE]),
    }
)


@given(table=st.lists(rows, max_size=12))
def test_columns_count_as_rows_do(
    tmp_path_factory: pytest.TempPathFactory, table: list[Row]
) -> None:
    assert counted(tmp_path_factory.mktemp("table"), table) == naive(table)


def test_a_missing_or_damaged_table_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run the night"):
        count_faults(tmp_path / "nothing")
    (tmp_path / "table").write_bytes(b"PAR1 no")
    with pytest.raises(StoreError, match="cannot be read as a table"):
        count_faults(tmp_path / "table")
