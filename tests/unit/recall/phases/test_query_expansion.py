from __future__ import annotations

import pytest

from noctuary.recall import phases
from noctuary.recall.candidates import Candidates, PastQuery
from noctuary.recall.phases import expansion_terms, query_expansion
from noctuary.recall.profile import RetrievalProfile
from tests.support.lookups import (
    DAY_US,
    NOW_US,
    MemoryLookups,
    Stored,
    candidates_of,
    context_of,
    scores_of,
)

ON = RetrievalProfile(query_expansion_enabled=True)


@pytest.fixture(autouse=True)
def two_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "MAX_TERMS", 2)


MEMORIES = [
    Stored("The visa for Cambodia: Phnom Penh embassy.", wing="flights", room="visa"),
    Stored("Embassy opening hours"),
    Stored("schema of the billing service"),
    Stored("The embassy wants two photographs"),
]
QUERY = "documents for the trip"


def asked(
    similarity: float = 0.8, days_ago: float = 1, text: str = "papers for the trip"
) -> PastQuery:
    return PastQuery(text, NOW_US - round(days_ago * DAY_US), similarity, (0, 1))


def house(*queries: PastQuery) -> MemoryLookups:
    return MemoryLookups(
        MEMORIES,
        queries=queries,
        answers={
            f"{QUERY} visa": [(0, 1.0), (2, 0.5)],
            f"{QUERY} embassy": [(3, 0.9), (0, 0.8), (1, 0.6)],
        },
    )


BEFORE = candidates_of((2, 0.9))


def test_words_of_what_similar_queries_found_bring_new_memories() -> None:
    outcome = query_expansion(BEFORE, context_of(house(asked()), ON, query=QUERY))
    after = outcome.candidates
    assert scores_of(after) == pytest.approx({2: 0.9, 0: 0.7, 3: 0.63, 1: 0.42})
    assert dict(zip(after.positions.tolist(), after.expanded.tolist(), strict=True)) == {
        2: False,
        0: True,
        3: True,
        1: True,
    }
    assert outcome.notes == {
        "applied": True,
        "original_query": QUERY,
        "similar_past_queries": 1,
        "expansion_terms": ["visa", "embassy"],
        "expansion_boost": 0.7,
        "results_from_original": 1,
        "results_from_expansion": 3,
    }
    assert outcome.reason_of is not None
    assert outcome.reason_of(3) == "found by asking again with 'embassy': x0.7"
    assert outcome.reason_of(0) == "found by asking again with 'visa': x0.7"


def test_what_the_query_found_itself_keeps_its_score() -> None:
    before = candidates_of((2, 0.9), (0, 0.1))
    after = query_expansion(before, context_of(house(asked()), ON, query=QUERY)).candidates
    assert scores_of(after)[0] == 0.1
    assert not after.expanded[after.positions.tolist().index(0)]


@pytest.mark.parametrize(
    "query",
    [
        asked(similarity=0.64),
        asked(days_ago=61),
        asked(days_ago=-1),
        asked(text=f"  {QUERY.replace(' ', '  ')} "),
    ],
    ids=["unlike", "long ago", "after the moment asked about", "the same wording"],
)
def test_queries_that_say_nothing(query: PastQuery) -> None:
    outcome = query_expansion(BEFORE, context_of(house(query), ON, query=QUERY))
    assert outcome.candidates is BEFORE
    assert outcome.notes["applied"] is False
    assert outcome.notes["similar_past_queries"] == 0


def test_only_the_head_of_a_past_answer_counts() -> None:
    found = PastQuery("papers", NOW_US, 0.9, (2, 2, 2, 2, 2, 0))
    outcome = query_expansion(BEFORE, context_of(house(found), ON, query=QUERY))
    assert outcome.notes["expansion_terms"] == ["schema", "billing"]


def test_a_further_question_is_as_deep_as_the_first() -> None:
    profile = ON.replaced(depth=1)
    shallow = query_expansion(BEFORE, context_of(house(asked()), profile, query=QUERY, k=1))
    assert scores_of(shallow.candidates) == pytest.approx({2: 0.9, 0: 0.7, 3: 0.63})
    deep = query_expansion(BEFORE, context_of(house(asked()), profile, query=QUERY, k=3))
    assert deep.candidates.size == 4


class TestTerms:
    def test_most_frequent_first_then_first_seen(self) -> None:
        texts = ["beta alpha gamma", "gamma alpha", "alpha"]
        assert expansion_terms("x", texts, 3) == ["alpha", "gamma", "beta"]
        assert expansion_terms("x", texts, 1) == ["alpha"]

    def test_no_function_words_no_single_letters_no_words_of_the_query(self) -> None:
        texts = ["It's the flight that I don't want: a b flights Don't его las"]
        assert expansion_terms("Flight", texts, 9) == ["want"]

    def test_forms_of_a_word_count_together_and_the_first_is_asked(self) -> None:
        assert expansion_terms("x", ["release", "boat boat", "releases released"], 2) == [
            "release",
            "boat",
        ]

    def test_a_script_without_spaces_gives_its_n_grams(self) -> None:
        assert expansion_terms("x", ["护照照片", "护照"], 1) == ["护照"]

    def test_marks_belong_to_their_word(self) -> None:
        assert expansion_terms("x", ["हिन्दी"], 3) == ["हिन्दी"]


def test_candidates_stay_sorted_and_distinct() -> None:
    after: Candidates = query_expansion(
        BEFORE, context_of(house(asked(), asked(0.7, 2, "papers")), ON, query=QUERY)
    ).candidates
    assert sorted(set(after.positions.tolist())) == sorted(after.positions.tolist())
    assert after.scores.tolist() == sorted(after.scores.tolist(), reverse=True)
