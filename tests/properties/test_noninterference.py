"""Whether one user's answers tell anything of another user of the same store.

Two real stores: one of what Ana may see, one with memories of a neighbour in between that are made
to get in her way. What is told of the second must hold nothing of the neighbour and, as far as it
does not rest on statistics over all texts, be what is told of the first.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.recall.engine import Recaller
from noctuary.recall.explain import UnknownSummaryError, expand_from
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.result import RecallResult
from tests.support.neighbours import (
    ANA,
    CANARY,
    KINDS,
    NEIGHBOUR,
    TOPICS,
    comparable,
    everything_told,
    joined,
    open_recaller,
    padded,
    visible,
)
from tests.support.replays import EVERYTHING, log_recall
from tests.support.store import renumber

AS_OF = datetime(2026, 3, 1, tzinfo=UTC)
TELLING = EVERYTHING.replaced(explain=True, candidate_trace=True, ltp_enabled=True)
BY_MEANING = TELLING.replaced(
    lexical_weight=0.0, graph_weight=0.0, session_weight=0.0, exact_match_bonus=0.0
)
"""Rests on no count over all texts: neither how rare a word is nor how many hold a name."""

PROFILES = {
    "everything": TELLING,
    "summaries": TELLING.replaced(turn_view="summaries"),
    "rrf": TELLING.replaced(fusion="rrf", dense_weight=0.2),
    "hybrid": TELLING.replaced(scorer="hybrid"),
    "two_pass": TELLING.replaced(scorer="two_pass", coarse_threshold=0.0),
    "by_meaning": BY_MEANING,
}
QUERIES = (
    *(f"the {topic}" for topic in TOPICS[:3]),
    "Atlas Nina",
    "what did ana and Dan say of the flight?",
    "the {3} boiler",
)
NAMING = ("Qzborlun Works", "Qzbatlas", "Qzbnina qzbwing", f"{NEIGHBOUR} qzbtail")

CROWD = [(number * 5, number, number * 7) for number in range(4 * KINDS)]

neighbours = st.lists(
    st.tuples(st.integers(0, 99), st.integers(0, KINDS - 1), st.integers(0, 99)),
    min_size=1,
    max_size=30,
)


class Pair(NamedTuple):
    """The store of what Ana sees, and the one with the neighbour in it."""

    alone: Recaller
    shared: Recaller


def ask(
    recaller: Recaller,
    query: str,
    profile: RetrievalProfile,
    user: str | None = ANA,
    **changes: Any,
) -> RecallResult:
    scope = Scope(user=user, as_of=AS_OF)
    asked: dict[str, Any] = {"profile": profile, **changes}
    return log_recall(recaller, query, 5, scope=scope, **asked)


def told(result: RecallResult) -> Any:
    """Return what two stores can have in common of an answer."""
    plain = json.loads(json.dumps(result.to_json()))
    # When Ana recalled, and asked: two stores were used at two moments.
    for usage in plain["replay_packet"]["world"]["usage"].values():
        usage.pop()
    for past in plain["replay_packet"]["world"]["past_queries"].values():
        for row in past["found"]:
            row[1] = None
    return comparable(plain)


def without_words(answer: Any) -> Any:
    """Leave out what the lexical leg said: `two_pass` and `hybrid` report it and rank without."""
    for memory in answer["memories"]:
        memory["legs"].pop("lexical", None)
    return answer


@pytest.fixture(scope="module")
def alone() -> Iterator[Recaller]:
    with tempfile.TemporaryDirectory() as directory:
        yield open_recaller(Path(directory) / "alone", renumber(visible()))


def beside(added: Sequence[tuple[int, int, int]], root: Path) -> Recaller:
    return open_recaller(root / "shared", joined(added))


@pytest.fixture(scope="module")
def crowded() -> Iterator[Recaller]:
    """The neighbour has every kind of memory, four times, all over the store."""
    with tempfile.TemporaryDirectory() as directory:
        yield beside(CROWD, Path(directory))


@pytest.fixture(scope="module")
def quiet() -> Iterator[Recaller]:
    """Somebody harmless has memories in the crowd's places."""
    with tempfile.TemporaryDirectory() as directory:
        yield open_recaller(Path(directory) / "quiet", padded(CROWD))


@given(neighbours)
@settings(max_examples=3)
def test_what_is_told_by_meaning_is_what_it_is_without_the_neighbour(
    added: list[tuple[int, int, int]],
) -> None:
    """To the last digit: memories, order, scores, steps, drops, counts, use, warnings, packet."""
    tell_the_same(added)


@pytest.mark.slow
@given(neighbours)
@settings(max_examples=60)
def test_what_is_told_by_meaning_is_the_same_beside_many_neighbours(
    added: list[tuple[int, int, int]],
) -> None:
    tell_the_same(added)


def tell_the_same(added: list[tuple[int, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        stores = open_recaller(root / "padded", padded(added)), beside(added, root)
        for query in (*QUERIES, *NAMING):
            for user in (ANA, None):
                one, two = (ask(r, query, BY_MEANING, user) for r in stores)
                assert told(one) == told(two)
                assert query in NAMING or CANARY not in everything_told(two)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("user", [ANA, None])
def test_no_answer_holds_anything_of_the_neighbour(
    crowded: Recaller, name: str, user: str | None
) -> None:
    for query in QUERIES:
        for sort_by in ("relevance", "recency"):
            found = ask(crowded, query, PROFILES[name], user, sort_by=sort_by, dry_run=True)
            assert found.memories
            assert CANARY not in everything_told(found)


@pytest.mark.parametrize("name", PROFILES)
def test_an_answer_has_the_fields_and_counts_that_it_has_without_the_neighbour(
    alone: Recaller, crowded: Recaller, name: str
) -> None:
    for query in QUERIES:
        one, two = (told(ask(r, query, PROFILES[name])) for r in (alone, crowded))
        for field in ("warnings", "phase_timing_ms", "profile"):
            assert one[field] == two[field]
        for field in ("phases_applied", "phases_skipped", "model_guard"):
            assert one["pipeline"][field] == two["pipeline"][field]
        packets = one["replay_packet"], two["replay_packet"]
        for field in ("wing_counts_at_query_time", "pagination_state", "warnings"):
            assert packets[0][field] == packets[1][field]
        for field in ("most_used", "past_queries", "archive", "knows_usage"):
            assert packets[0]["world"][field] == packets[1]["world"][field]


@pytest.mark.parametrize("name", ["hybrid", "two_pass", "by_meaning"])
def test_scorers_that_count_no_words_tell_the_same_beside_a_crowd(
    quiet: Recaller, crowded: Recaller, name: str
) -> None:
    for query in QUERIES:
        one, two = (without_words(told(ask(r, query, PROFILES[name]))) for r in (quiet, crowded))
        assert one == two


@pytest.mark.parametrize("name", ["everything", "summaries"])
@pytest.mark.parametrize("query", NAMING)
def test_a_question_in_the_neighbour_s_words_finds_what_it_finds_without_them(
    alone: Recaller, crowded: Recaller, name: str, query: str
) -> None:
    one, two = (ask(r, query, PROFILES[name]) for r in (alone, crowded))
    assert [m.id for m in one.memories] == [m.id for m in two.memories]
    mine = [{m.id: m.to_json()["legs"] for m in found.memories} for found in (one, two)]
    assert [list(legs) for legs in mine[0].values()] == [list(legs) for legs in mine[1].values()]


def test_a_summary_of_the_neighbour_exists_for_nobody_else(crowded: Recaller) -> None:
    reader = crowded.reader
    owners = reader.facets["user"]
    theirs = [
        reader.summaries.ids[view.position - reader.count]
        for view in reader.summaries.views
        if owners.codes[view.sources[0]] == owners.values.index(NEIGHBOUR)
    ]
    assert theirs, "the crowd's conversation is summarised"
    for summary_id in theirs:
        assert expand_from(reader, "s", summary_id, NEIGHBOUR).sources
        for user in (ANA, None):
            with pytest.raises(UnknownSummaryError) as hidden:
                expand_from(reader, "s", summary_id, user)
            with pytest.raises(UnknownSummaryError) as missing:
                expand_from(reader, "s", "f" * len(summary_id), user)
            said = str(hidden.value).replace(summary_id, "f" * len(summary_id))
            assert said == str(missing.value)


def test_a_summary_never_mixes_users(crowded: Recaller) -> None:
    owners = crowded.reader.facets["user"].codes
    views = crowded.reader.summaries.views
    assert len(views) > 2
    assert all(len({int(owners[p]) for p in view.sources}) == 1 for view in views)


def test_the_neighbour_finds_all_of_it(crowded: Recaller) -> None:
    """Guards the properties above: every kind of memory, name and use is there to be told."""
    found = ask(crowded, "qzbword boiler Atlas", TELLING, NEIGHBOUR, dry_run=True)
    text = everything_told(found)
    assert CANARY in text
    assert '"candidate_trace": [{' in text
    packet = found.replay_packet
    assert packet is not None
    assert any(i.startswith(CANARY) for ids in packet["world"]["most_used"].values() for i in ids)
    past = [row for p in packet["world"]["past_queries"].values() for row in p["found"]]
    assert any(CANARY in str(row[0]) for row in past)
    kinds = {m.graph.relation for m in found.memories if m.graph is not None}
    assert kinds
