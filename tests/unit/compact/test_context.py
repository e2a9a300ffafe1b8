from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact.summaries import CONTEXT_TOKENS, SessionContext, summarize_batch
from tests.support.clusters import Bag, cluster_text

ITEM = cluster_text("c", 0, 1, 2, 3)
SUMMARY = summarize_batch([ITEM], Bag()).summaries[0]


def remembered(tokens: list[int]) -> list[int]:

    context = SessionContext()
    for number, size in enumerate(tokens):
        context.remember(replace(SUMMARY, summary_id=str(number), summary_tokens=size))
    return [int(earlier.summary_id) for earlier in context.before(ITEM.cluster)]


@given(st.lists(st.integers(1, 150), max_size=12))
def test_the_newest_that_fit_are_kept_without_gaps(tokens: list[int]) -> None:
    naive: list[int] = []
    for number in reversed(range(len(tokens))):
        if sum(tokens[i] for i in naive) + tokens[number] > CONTEXT_TOKENS:
            break
        naive.insert(0, number)
    assert remembered(tokens) == naive


def test_what_is_not_accepted_is_never_shown() -> None:

    context = SessionContext()
    for status in ("declined", "trivial"):
        context.remember(replace(SUMMARY, status=status))
    assert context.before(ITEM.cluster) == ()


def test_nothing_is_shown_across_users_sessions_and_wings() -> None:
    context = SessionContext()
    context.remember(SUMMARY)
    assert len(context.before(ITEM.cluster)) == 1
    for fields in ({"user": "ann"}, {"wing": "work"}, {"session_id": "t"}):
        assert context.before(cluster_text("c", 0, 1, **fields).cluster) == ()
