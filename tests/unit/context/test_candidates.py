from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noctuary.context.assemble import (
    Candidate,
    gather,
    of_memory,
    text_coverage,
)
from noctuary.core.types import UNDATED_US
from noctuary.sources.injected import Line
from noctuary.text.tokens import tokenize
from tests.support.contexts import NOW_US, MemorySearch, coverage, memory

texts = st.text("abkey key-ring ключ 鍵鍵 ", max_size=30)


@given(texts, st.lists(texts, max_size=6))
def test_coverage_is_the_share_of_the_querys_words(query: str, found: list[str]) -> None:
    assert text_coverage(tokenize(query), found) == [coverage(query, t) for t in found]


def test_a_memory_keeps_the_stores_numbers() -> None:
    row = memory(17, "the key", age_days=0.0, importance=0.75, wing="home", room="hall")
    made = of_memory(row, 0.5, 0.25)
    assert (made.id, made.source, made.similarity, made.store_score) == ("17", "memory", 0.5, 0.25)
    assert (made.authored, made.created_at_us) == (0.75, NOW_US)
    assert made.line.rendered().startswith("- [17] 2026-05-28 (home/hall): the key")


def test_a_memory_without_a_date_or_score_is_compared_by_words() -> None:
    row = memory(17, "the spare key") | {"created_at": None, "importance": None}
    made = of_memory(row, None, None)
    assert (made.created_at_us, made.authored, made.store_score) == (UNDATED_US, 0.0, None)


def test_a_wording_competes_once_and_the_first_of_it_stays() -> None:
    def own(name: str, text: str) -> Candidate:
        return Candidate(name, "session", text, Line(name, "undated", text))

    found = [of_memory(memory(1, "Two  words"), 0.9, 0.9)]
    made, warnings = gather(
        "words",
        [own("a", "two words"), own("b", "two\nwords"), own("c", "present words")],
        found,
        MemorySearch(),
        frozenset({"present words"}),
    )
    assert [c.id for c in made] == ["a"]
    assert warnings == []
