"""What holds of proposals whatever the memories are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from noctuary.curate.finders import MAX_PARTS, read_mark
from noctuary.curate.proposals import Fields, united, why_not_held, words_of
from noctuary.text.marks import buried, is_tombstone

WORDS = st.sampled_from(["harbour", "crane", "tide", "noon", "12", "not", "the", "Rome", "x"])

FIELDS = st.builds(
    Fields,
    st.lists(st.sampled_from(["a", "A", "b", "c d"]), max_size=3).map(",".join),
    st.lists(st.sampled_from(["x", "y", "Z"]), max_size=3).map(" ".join),
    st.floats(0, 1),
)


@given(FIELDS, st.lists(FIELDS, max_size=4))
def test_uniting_loses_nothing_and_twice_is_once(kept: Fields, others: list[Fields]) -> None:
    after = united(kept, others)
    for one in others:
        assert {t.casefold() for t in one.tags.split(",")} <= {
            "", *(t.casefold() for t in after.tags.split(","))
        }  # fmt: skip
    assert after.importance == max([kept.importance, *(o.importance for o in others)])
    assert united(after, others) == after


@given(st.text(max_size=80))
def test_a_text_holds_itself_and_reading_never_fails(text: str) -> None:
    assert (why_not_held(text, text) is None) is bool(words_of(text).content)
    mark = read_mark(text)
    if mark is not None:
        assert 1 <= mark.number <= mark.of <= MAX_PARTS
        assert 0 <= mark.start <= mark.end <= len(text)
    assert is_tombstone(buried(text))
    assert buried(text).endswith(text)


@given(st.lists(WORDS, max_size=8), st.lists(WORDS, max_size=8), st.lists(WORDS, max_size=8))
def test_holding_is_transitive(one: list[str], two: list[str], three: list[str]) -> None:
    a, b, c = (" ".join(words) for words in (one, two, three))
    if why_not_held(a, b) is None and why_not_held(b, c) is None:
        assert why_not_held(a, c) is None
