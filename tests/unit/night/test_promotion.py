"""The stage of the promotions: what it hears, again, off, and after a turn became sensitive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from noctuary.curate.promotions import FAULTS, count_faults
from noctuary.curate.promotions import PROMOTIONS as PROPOSALS
from tests.support.promotions import Nights, turn

ROWS = (
    {"content": "Nina keeps bees.", "category": "facts"},
    turn("User: I work at Initech as a nurse, since 2019.", 1),
    turn("Assistant: I work at Initech as well, since 2019.", 2),
    turn("User: ok", 3),
    turn("User: thanks!", 4, user="ana"),
    turn("no label: maybe", 5, session_id=None),
    turn("I have two brothers.", 6),
)


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    found = Nights(tmp_path)
    found.write(*ROWS)
    return found


def test_it_judges_what_a_person_said(nights: Nights) -> None:
    result = nights.run()
    assert result.rows == 3
    assert result.facts == {
        "proposed": 1,
        "by_reason": {"nothing_said": 2, "proposed": 1},
        "not_said_by_a_person": 2,
        "durable_memories": 2,
    }
    first, second, third = nights.table.rows
    assert (first["turn_id"], first["decision"], first["marks"]) == (
        "2",
        "propose",
        ["date", "fact"],
    )
    assert first["g"] == pytest.approx(0.35 + 0.25 * 0.6)
    assert (second["turn_id"], second["reason"], second["g"]) == ("4", "nothing_said", 0.35)
    assert (third["turn_id"], third["user"]) == ("5", "ana")
    assert [n["memory_id"] for n in first["neighbours"]] == ["1", "6"]
    counted = count_faults(nights.paths.work / PROPOSALS)
    assert counted == {"judged": 3, "proposals": 1, **dict.fromkeys(FAULTS, 0)}


def test_an_unchanged_night_does_nothing_and_equal_nights_give_equal_bytes(nights: Nights) -> None:
    table = nights.paths.work / "promotion" / "proposals.parquet"
    nights.run()
    before = table.read_bytes()
    assert nights.run().reused
    table.unlink()
    assert not nights.run().reused
    assert table.read_bytes() == before


def test_another_threshold_vectors_or_text_judge_anew(nights: Nights) -> None:
    nights.run()
    assert nights.run(threshold=0.6).facts["proposed"] == 0
    assert not nights.run(vectors=np.ones((7, 1), dtype=np.float32)).reused
    nights.write(*ROWS[:-1], turn("User: I have two brothers.", 6))
    assert nights.run().rows == 4


def test_what_is_durable_already_is_not_proposed(nights: Nights) -> None:
    same = np.eye(7, dtype=np.float32)
    same[1] = same[0]
    nights.run(vectors=same)
    row = nights.table.rows[0]
    # Of two memories one is alike: H = .5.
    assert row["h"] == 0.5
    assert row["neighbours"][0]["cosine"] == 1.0
    assert row["decision"] == "leave"


def test_switched_off_it_leaves_an_empty_table_and_says_so(nights: Nights) -> None:
    nights.run()
    result = nights.run(enabled=False)
    assert (result.rows, result.facts) == (0, {"note": "off: promotion.enabled is false"})
    assert not nights.table.is_on
    assert nights.table.rows == ()


def test_a_turn_that_turned_sensitive_is_gone(nights: Nights) -> None:
    nights.run()
    nights.write(ROWS[0], {**ROWS[1], "is_sensitive": True}, *ROWS[2:])
    nights.run()
    assert "2" not in {row["turn_id"] for row in nights.table.rows}


def test_the_table_holds_no_text(nights: Nights) -> None:
    nights.run()
    data = (nights.paths.work / "promotion" / "proposals.parquet").read_bytes()
    assert b"Initech" not in data
    assert "Initech" not in str(nights.table)


def test_the_source_is_not_touched(nights: Nights) -> None:
    before = nights.source.read_bytes(), nights.source.stat().st_mtime_ns
    nights.run()
    assert (nights.source.read_bytes(), nights.source.stat().st_mtime_ns) == before


def test_a_store_without_turns_or_memories(nights: Nights) -> None:
    nights.write({"content": "Nina keeps bees.", "category": "facts"})
    assert nights.run().rows == 0
    nights.write(turn("User: I work at Initech."))
    assert nights.run().facts["proposed"] == 1
