"""Memories of the dates that a question names rank higher; nothing is ever filtered."""

from __future__ import annotations

import pytest

from noctuary import recall
from noctuary.core.types import UNDATED_US
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallResult
from tests.support.store import Store, day_us, memory, renumber

PLAIN = RetrievalProfile(dense_weight=0.0, explain=True)


@pytest.fixture
def asked(empty_store: Store) -> Store:
    days = [day_us(1), day_us(5), day_us(28), UNDATED_US]
    empty_store.publish(
        renumber(
            [
                memory(f"The pump was repaired, note {n}.", created_at_us=at)
                for n, at in enumerate(days)
            ]
        )
    )
    return empty_store


def answer(store: Store, query: str, **flags: float) -> RecallResult:
    return recall(query, store=store.root, profile=PLAIN.replaced(**flags))


def test_a_date_lifts_what_was_written_then_and_hides_nothing(asked: Store) -> None:
    ids = [m.id for m in answer(asked, "pump repaired").memories]
    found = answer(asked, "pump repaired on 27 January 2026")
    assert found.memories[0].created_at is not None
    assert found.memories[0].created_at.day == 28
    assert sorted(m.id for m in found.memories) == sorted(ids)
    said = [e["reason"] for e in found.memories[0].score_events or () if e["phase"] == "dates"]
    assert said == ["2026-01-28 fits '27 January 2026' (factor 1.500)"]
    assert 0.0 <= found.memories[-1].final_score <= found.memories[0].final_score <= 1.0


def test_no_date_no_phase(asked: Store) -> None:
    notes = answer(asked, "pump repaired").pipeline
    assert "dates" in notes["phases_skipped"]
    assert "scale" in notes["phases_skipped"]
    off = answer(asked, "pump repaired on 27 January 2026", date_boost=0.0).pipeline
    assert "dates" in off["phases_skipped"]


def test_a_date_that_nothing_fits_changes_nothing(asked: Store) -> None:
    query = "pump repaired on 3 March 2031"
    ours = [(m.id, m.final_score) for m in answer(asked, query).memories]
    assert ours == [(m.id, m.final_score) for m in answer(asked, query, date_boost=0.0).memories]
