"""What nobody has checked for long, and what is past its day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from noctuary import recall, remember
from noctuary.core.store import store_for_source
from noctuary.core.types import UNDATED_US, to_micros
from noctuary.curate.reviews import (
    PERSON_DAYS,
    SYSTEM_DAYS,
    about,
    confirm,
    end,
    list_aged,
    read_row,
    set_reach,
)
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import OUT_OF_SCOPE, RETURNED, Why, explain_memory
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Query, Scope
from noctuary.sources.own_store import OWN_FILE
from tests.support.live import Cache, publish_from
from tests.support.store import new_store

SERVER = "The staging server listens on port 8443."
LISBON = "Nina lives in Lisbon and likes tea."
BEYOND_S = timedelta(seconds=5)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own store with a fact about a system and one about a person."""
    monkeypatch.setenv("NOCTUARY_HOME", str(tmp_path))
    remember(SERVER)
    remember(LISBON)
    return tmp_path / OWN_FILE


def aged(path: Path, days: int, recalls: dict[int, datetime] | None = None) -> list[int]:
    """Return the ids to review some days from now."""
    known = recalls or {}

    def last(ids: Sequence[int]) -> list[int]:
        return [to_micros(known[i]) if i in known else UNDATED_US for i in ids]

    now = datetime.now(UTC) + timedelta(days=days) + BEYOND_S
    return [one.id for one in list_aged(path, now=now, last_recalls=last)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (SERVER, "system"),
        ("We run 3.11 in /srv/mill/ and call `make`.", "system"),
        ("The API key rotates monthly.", "system"),
        (LISBON, "person"),
        ("The spare key hangs behind the blue door.", "person"),
        ("She ran 4.5 km on Monday.", "person"),
        ("Dinner is at seven, the table is set for six.", "person"),
    ],
)
def test_what_a_text_is_about(text: str, kind: str) -> None:
    assert about(text) == kind


def test_facts_about_systems_age_sooner_and_each_kind_of_check_counts(path: Path) -> None:
    assert aged(path, SYSTEM_DAYS - 1) == []
    assert aged(path, SYSTEM_DAYS) == [1]
    assert sorted(aged(path, PERSON_DAYS)) == [1, 2]
    soon = datetime.now(UTC) + timedelta(days=40)
    assert aged(path, SYSTEM_DAYS, {1: soon}) == [], "recalled"
    assert confirm(path, [1], soon) == 1
    assert aged(path, SYSTEM_DAYS) == [], "confirmed"
    assert aged(path, SYSTEM_DAYS + 40) == [1]
    assert confirm(path, [99], soon) == 0


def test_what_was_replaced_is_not_asked_about_and_what_is_said_again_is_checked(path: Path) -> None:
    remember("The staging server listens on port 9443.", supersedes=1)
    assert aged(path, SYSTEM_DAYS) == [3]
    with_older = Cache(path)
    with_older.run("UPDATE memories SET created_at = '2020-01-01', updated_at = '2020-01-01'")
    assert sorted(aged(path, 0)) == [2, 3]
    remember(LISBON)
    assert aged(path, 0) == [3]


def test_what_soon_ends_is_listed_and_what_has_ended_is_not(path: Path) -> None:
    today = datetime.now(UTC).date()
    assert end(path, [2], today + timedelta(days=30), datetime.now(UTC)) == 1
    assert aged(path, 0) == []
    assert aged(path, 20) == [2]
    assert aged(path, 31) == []


def test_a_memory_past_its_day_comes_back_with_as_of_alone(path: Path) -> None:
    def found(query: str, as_of: datetime | None = None) -> set[object]:
        return {memory.id for memory in recall(query, as_of=as_of).memories}

    store, now = new_store(store_for_source(path.parent, path)), datetime.now(UTC)
    publish_from(Cache(path), store)
    lift, home = "is the lift out of order?", "where does Nina live?"
    remember("The lift is out of order.", valid_until=date(2020, 1, 1))
    assert 3 not in found(lift), "live"
    assert 2 in found(home)
    end(path, [2], now, now)
    assert 2 not in found(home), "live, and of the snapshot"
    Cache(path).run("UPDATE memories SET created_at = '2019-06-01T00:00:00' WHERE id = 3")
    publish_from(Cache(path), store)
    assert 2 not in found(home)
    assert 3 not in found(lift)
    assert 3 in found(lift, datetime(2020, 1, 1, 23, tzinfo=UTC)), "its last day is whole"
    assert 3 not in found(lift, datetime(2020, 1, 2, 1, tzinfo=UTC))


def test_why_says_that_a_memory_has_ended_and_names_no_other_filter(path: Path) -> None:
    store = new_store(store_for_source(path.parent, path))
    Cache(path).run(
        "UPDATE memories SET wing = 'home', created_at = '2019-06-01', valid_until = '2020-01-01' "
        "WHERE id = 2"
    )
    publish_from(Cache(path), store)
    recaller = Recaller.open(store.root)

    def why(**scope: Any) -> Why:
        query = Query("where does Nina live?", 5, RetrievalProfile(), scope=Scope(**scope))
        return explain_memory(recaller, query, "2")

    for scope in ({}, {"wing": "home"}, {"as_of": datetime(2021, 1, 1, tzinfo=UTC)}):
        found = why(**scope)
        assert found.stage == OUT_OF_SCOPE, scope
        assert [one["filter"] for one in found.facts["filters"]] == ["valid_until"], scope
        assert "It held until 2020-01-02" in found.sentences[-1]
    assert why(as_of=datetime(2019, 12, 1, tzinfo=UTC)).stage == RETURNED
    assert [one["filter"] for one in why(wing="work").facts["filters"]] == ["wing", "valid_until"]


def test_an_end_is_taken_back_and_reach_is_one_tag(path: Path) -> None:
    now = datetime.now(UTC)
    end(path, [2], now, now)
    assert end(path, [2], None, now) == 1
    Cache(path).run(
        "UPDATE memories SET tags = ' tea ,Reach:Project,,reach:everywhere' WHERE id = 2"
    )
    for tag in ("reach:everywhere", "reach:project", "", None):
        assert set_reach(path, 2, tag, now) == 1
        row = read_row(path, 2)
        assert row is not None
        assert (row["tags"], row["valid_until"]) == (f"tea,{tag}" if tag else "tea", None)
    Cache(path).run("UPDATE memories SET tags = NULL WHERE id = 1")
    assert set_reach(path, 1, "reach:project", now) == 1
    assert set_reach(path, 99, "reach:project", now) == 0
    Cache(path).run("UPDATE memories SET is_sensitive = 1 WHERE id = 1")
    assert read_row(path, 1) is None
    assert read_row(path, 99) is None


def test_nothing_is_made_where_there_is_no_own_store(tmp_path: Path) -> None:
    path = tmp_path / OWN_FILE
    assert confirm(path, [1], datetime.now(UTC)) == 0
    assert not path.exists()
