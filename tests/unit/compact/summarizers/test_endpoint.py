"""The summarizer against a real HTTP server that answers, refuses, breaks off and lies."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from noctuary.compact.summaries import summarize_batch
from noctuary.compact.summarizers import (
    MAX_BAD_IN_A_ROW,
    MAX_REQUEST_CHARS,
    Draft,
    EndpointSummarizer,
    Outcome,
    Refusal,
    Request,
)
from noctuary.work.http import Endpoint
from tests.support.clusters import Bag, cluster_text
from tests.support.model_server import Fault, envelope
from tests.support.summary_server import SummaryServer

TURNS = ["Ann: the rent in Lyon is 500", "Bob: too much", "Ann: the cat likes it"]


@pytest.fixture
def server() -> Iterator[SummaryServer]:
    with SummaryServer() as running:
        yield running


def summarizer(server: SummaryServer, **options: Any) -> EndpointSummarizer:
    endpoint = Endpoint(server.url, "writer", timeout_s=options.pop("timeout_s", 5.0))
    return EndpointSummarizer("writer", endpoint, sleep=lambda _: None, **options)


def request(texts: list[str] | None = None, **fields: Any) -> Request:
    texts = TURNS if texts is None else texts
    return Request("c", texts, np.ones((len(texts), 2)), **fields)


def draft(writer: EndpointSummarizer, *requests: Request, density: float = 0.4) -> Draft | Refusal:
    return [writer.write(one, density) for one in requests or [request()]][-1]


def test_a_summary_comes_back_with_the_models_confidence(server: SummaryServer) -> None:
    server.probability = 0.25
    found = draft(summarizer(server))
    assert isinstance(found, Draft)
    assert found.text == TURNS[0]
    assert found.raw_confidence == pytest.approx(0.25)
    (asked,) = server.asked
    assert asked.items == [{"id": "1", "turns": "\n".join(TURNS)}]
    assert "data" in asked.body["messages"][0]["content"]


def test_without_log_probabilities_the_confidence_is_not_known(server: SummaryServer) -> None:
    assert draft(summarizer(server)) == Draft(TURNS[0], None)


def test_an_endpoint_that_refuses_log_probabilities_is_asked_without(
    server: SummaryServer,
) -> None:
    server.faults = [Fault(400)]
    writer = summarizer(server)
    assert isinstance(draft(writer), Draft)
    assert isinstance(draft(writer), Draft)
    assert ["logprobs" in asked.body for asked in server.asked] == [True, False, False]


def test_a_lower_density_asks_for_less(server: SummaryServer) -> None:
    assert isinstance(draft(summarizer(server), density=0.2), Draft)
    assert "at most 3 tokens" in server.asked[0].body["messages"][0]["content"]


def test_earlier_summaries_stand_apart_from_the_turns(server: SummaryServer) -> None:
    draft(summarizer(server), request(context=("They moved.", "They met.")))
    assert server.asked[0].items[0]["earlier"] == "They moved.\nThey met."


def test_each_cluster_is_asked_about_alone(server: SummaryServer) -> None:
    draft(summarizer(server), request(["Ann: a", "Ann: b"]), request(["Bob: c", "Bob: d"]))
    assert [asked.items[0]["turns"] for asked in server.asked] == [
        "Ann: a\nAnn: b",
        "Bob: c\nBob: d",
    ]


def test_turns_of_named_users_are_shown_only_where_that_is_allowed(server: SummaryServer) -> None:
    private = request(["Ann: my diary", "Ann: secret garden"], user="ann")
    refused = draft(summarizer(server), request(), private)
    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.NAMED_USER
    assert len(server.asked) == 1
    assert "diary" not in server.everything
    assert isinstance(draft(summarizer(server, include_named_users=True), private), Draft)
    assert "diary" in server.everything


@pytest.mark.parametrize(
    "turns",
    [
        ["Ann: password: hunter2hunter2", "Bob: ok"],
        ["Ann: the password:", "hunter2hunter2"],
    ],
    ids=["in one turn", "joined"],
)
def test_what_reads_like_a_secret_is_never_sent(server: SummaryServer, turns: list[str]) -> None:
    refused = draft(summarizer(server), request(turns))
    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.SECRET
    assert server.asked == []
    assert "hunter2" not in refused.detail


def test_what_is_too_long_is_never_sent_and_code_is_cut_out(server: SummaryServer) -> None:
    many = request(["word " * 800] * (MAX_REQUEST_CHARS // 4_000 + 1))
    refused = draft(summarizer(server), many)
    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.TOO_LONG
    assert server.asked == []
    fenced = request(["Ann: look\n```\n" + "code\n" * 100 + "```", "Bob: fine"])
    assert isinstance(draft(summarizer(server), fenced), Draft)
    assert "[code left out]" in server.everything
    assert "code\\ncode" not in server.everything


@pytest.mark.parametrize(
    "fault",
    [
        Fault(body=b"<html>"),
        Fault(body=envelope("I will not.")),
        Fault(body=envelope('{"items": [{"id": "1", "summary": "half')),
        Fault(body=envelope('{"items": []}')),
        Fault(body=envelope('{"items": [{"id": "1", "summary": 3}]}')),
        Fault(body=envelope('{"items": [{"id": "1", "summary": "  "}]}')),
        Fault(body=envelope('{"items": [{"id": "2", "summary": "other"}]}')),
        Fault(body=envelope(None)),
        Fault(422),
    ],
    ids=["html", "refusal", "half", "none", "number", "blank", "other id", "null", "422"],
)
def test_an_answer_of_no_use_is_a_refusal_and_the_next_cluster_is_asked_about(
    server: SummaryServer, fault: Fault
) -> None:
    server.faults = [fault, fault] if fault.status == 422 else [fault]
    writer = summarizer(server)
    first, second = draft(writer), draft(writer)
    assert isinstance(first, Refusal)
    assert first.outcome is Outcome.UNUSABLE
    assert isinstance(second, Draft)


def test_an_answer_that_was_cut_off_is_of_no_use(server: SummaryServer) -> None:
    server.finish_reason = "length"
    refused = draft(summarizer(server))
    assert refused == Refusal(Outcome.UNUSABLE, "the answer was cut off")


@pytest.mark.parametrize(
    "fault",
    [Fault(500), Fault(401), Fault(302), Fault(body=b"{}", announced=99), Fault(hang=True)],
    ids=["500", "401", "redirect", "broken off", "timeout"],
)
def test_an_endpoint_that_is_down_is_asked_once_a_night(
    server: SummaryServer, fault: Fault
) -> None:
    server.faults = [fault] * 4
    writer = summarizer(server, timeout_s=0.1)
    first, second = draft(writer), draft(writer)
    assert isinstance(first, Refusal)
    assert first.outcome is Outcome.UNAVAILABLE
    assert second == first
    asked = len(server.asked)
    assert asked in (1, 4)
    assert isinstance(draft(writer), Refusal)
    assert len(server.asked) == asked


def test_nobody_listens(server: SummaryServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    endpoint = Endpoint(f"http://127.0.0.1:{port}", "m")
    writer = EndpointSummarizer("m", endpoint, sleep=lambda _: None)
    refused = draft(writer)
    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.UNAVAILABLE


def test_a_model_that_writes_nothing_but_garbage_is_given_up(server: SummaryServer) -> None:
    server.summarize = lambda item: 7
    writer = summarizer(server)
    found = [draft(writer) for _ in range(MAX_BAD_IN_A_ROW + 3)]
    outcomes = [refusal.outcome for refusal in found if isinstance(refusal, Refusal)]
    assert outcomes == [Outcome.UNUSABLE] * MAX_BAD_IN_A_ROW + [Outcome.UNAVAILABLE] * 3
    assert len(server.asked) == MAX_BAD_IN_A_ROW


@pytest.mark.parametrize(
    ("writes", "fallback"),
    [
        ("Lyon flat move.", ""),
        ("Zelda moved the flat to Lyon.", "facts"),
        ("Lyon flat move, 77 times.", "facts"),
        ("cat", "gate"),
        ("lyon flat " * 40, "not_smaller"),
        (None, "unusable"),
    ],
)
def test_a_night_with_any_endpoint_has_its_summaries(
    server: SummaryServer, writes: str | None, fallback: str
) -> None:
    server.summarize = lambda item: writes
    result = summarize_batch([cluster_text("c", 0, 1, 2, 3)], Bag(), summarizer=summarizer(server))
    (summary,) = result.summaries
    assert summary.status == "accepted"
    assert summary.fallback == fallback
    assert summary.method == ("extractive" if fallback else "llm")
    assert [a.outcome for a in result.attempts] == (
        [] if not fallback else ["not_smaller"] * 2 if fallback == "not_smaller" else [fallback]
    )


def test_the_recipe_names_what_decides_the_text_and_no_address(server: SummaryServer) -> None:
    recipe = summarizer(server).recipe
    assert recipe["model"] == "writer"
    assert "127.0.0.1" not in json.dumps(dict(recipe))
    assert recipe != summarizer(server, include_named_users=True).recipe
