"""Texts as they are sent, and which share a request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.settings import EncoderSettings
from noctuary.embed.hosted import (
    BLANK,
    HostedModel,
    cut_bytes,
    hosted_model,
    plan_requests,
    sent_text,
)

VOYAGE = hosted_model(EncoderSettings("voyage-4", "voyage"))
OPENAI = hosted_model(EncoderSettings("text-embedding-3-small", "openai"))
COHERE = hosted_model(EncoderSettings("embed-english-v3.0", "cohere"))


def size_bytes(text: str) -> int:
    return len(text.encode())


_anything = st.text(st.characters(), max_size=40)


@given(_anything, st.sampled_from([VOYAGE, OPENAI, COHERE]))
def test_a_sent_text_is_storable_and_visible_and_short_ones_are_as_they_were(
    text: str, model: HostedModel
) -> None:
    sent = sent_text(text, model)
    assert sent.encode("utf-8").decode("utf-8") == sent
    assert sent.strip()
    if text.strip() and not any("\ud800" <= c <= "\udfff" for c in text):
        assert sent == text
    assert sent_text(sent, model) == sent


def test_a_blank_text_and_a_lone_surrogate() -> None:
    assert sent_text(" \n\t", VOYAGE) == BLANK
    assert sent_text("", VOYAGE) == BLANK
    assert sent_text("a\ud800b", VOYAGE) == "a?b"


@pytest.mark.parametrize(("model", "limit"), [(VOYAGE, 256_000), (OPENAI, 24_576), (COHERE, 4_096)])
def test_a_text_is_cut_where_the_model_stops_reading(model: HostedModel, limit: int) -> None:
    assert len(sent_text("a" * 400_000, model)) == limit
    assert sent_text("a" * limit, model) == "a" * limit


def test_a_text_never_fills_more_than_a_request() -> None:
    small = replace(VOYAGE, request_tokens=100)
    assert len(sent_text("a" * 400, small)) == 84
    assert list(plan_requests([sent_text("a" * 400, small)] * 2, small)) == [[0], [1]]


@given(st.text(max_size=30), st.integers(0, 40))
def test_a_cut_is_the_longest_start_that_fits(text: str, limit: int) -> None:
    found = cut_bytes(text, limit)
    assert text.startswith(found)
    assert size_bytes(found) <= limit
    if found != text:
        assert size_bytes(text[: len(found) + 1]) > limit


@given(
    st.lists(st.text("aé漢", min_size=1, max_size=60), min_size=1, max_size=120),
    st.integers(200, 900),
    st.sampled_from([VOYAGE, OPENAI, COHERE]),
)
def test_requests_hold_every_text_once_in_order_and_within_both_limits(
    texts: list[str], request_tokens: int, model: HostedModel
) -> None:
    model = replace(model, request_tokens=request_tokens)
    plan = list(plan_requests(texts, model))
    assert [place for places in plan for place in places] == list(range(len(texts)))
    most = 96 if model.provider == "cohere" else 128
    for places, following in zip(plan, [*plan[1:], None], strict=True):
        size = sum(size_bytes(texts[place]) + 16 for place in places)
        assert size <= request_tokens
        assert 1 <= len(places) <= most
        if following is not None:
            beyond = size + size_bytes(texts[following[0]]) + 16
            assert len(places) == most or beyond > request_tokens, (
                "no request is smaller than it must"
            )


def test_a_request_is_as_full_as_the_provider_allows() -> None:
    texts = ["x"] * 300
    assert [len(places) for places in plan_requests(texts, VOYAGE)] == [128, 128, 44]
    assert [len(places) for places in plan_requests(texts, COHERE)] == [96, 96, 96, 12]
    assert list(plan_requests([], VOYAGE)) == []


def test_the_text_that_would_go_beyond_a_request_begins_the_next() -> None:
    small = replace(VOYAGE, request_tokens=100)
    exact, over = ["a" * 34, "b" * 34], ["a" * 34, "b" * 35]
    assert list(plan_requests(exact, small)) == [[0, 1]]
    assert list(plan_requests(over, small)) == [[0], [1]]
