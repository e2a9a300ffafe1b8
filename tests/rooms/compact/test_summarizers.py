"""The summarizer against a real HTTP server that answers, refuses, breaks off and lies."""

from __future__ import annotations

import base64
import json
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact import summarizers as module
from noctuary.compact.gate import check_facts
from noctuary.compact.summaries import recipe_digest, source_tokens, summarize_batch
from noctuary.compact.summarizers import (
    BLOB_PLACEHOLDER,
    CODE_PLACEHOLDER,
    DATA_URI_PLACEHOLDER,
    EXTRACTIVE,
    MAX_BAD_IN_A_ROW,
    MAX_REQUEST_CHARS,
    Draft,
    EndpointSummarizer,
    Outcome,
    Refusal,
    Request,
    Sentence,
    SentenceSummarizer,
    central_turns,
    choose_sentences,
    cut_sentences,
    open_summarizer,
    sanitize,
)
from noctuary.core.settings import CompactionSettings
from noctuary.text.marks import estimate_tokens
from noctuary.work.http import Endpoint
from tests.support.clusters import Bag, cluster_text
from tests.support.model_server import Fault, envelope
from tests.support.summary_server import SummaryServer


def around(*angles: float) -> np.ndarray:
    radians = np.deg2rad(np.array(angles))
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


def test_the_most_central_turns_are_kept_in_their_order() -> None:
    vectors = around(80, 10, -80, -10, 0)
    assert central_turns(vectors, 0.4) == [1, 4]
    assert central_turns(vectors, 0.6) == [1, 3, 4]
    assert central_turns(vectors, 1.0) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("turns", "kept"), [(1, 1), (2, 1), (5, 2), (6, 3), (20, 8), (35, 14)])
def test_the_number_kept_is_the_rounded_up_share(turns: int, kept: int) -> None:
    assert len(central_turns(np.ones((turns, 3)), 0.4)) == kept


def test_ties_go_to_the_earlier_turn() -> None:
    assert central_turns(np.ones((10, 3)), 0.25) == [0, 1, 2]


def test_zero_vectors_are_least_central_and_break_nothing() -> None:
    vectors = np.vstack([np.zeros((2, 2)), around(5, 0, -5)])
    assert central_turns(vectors, 0.2) == [3]
    assert central_turns(np.zeros((4, 2)), 0.25) == [0]
    assert central_turns(np.zeros((0, 2)), 0.4) == []


def request(texts: list[str], vectors: np.ndarray) -> Request:
    return Request("c", texts, vectors)


def test_a_draft_joins_the_kept_turns() -> None:
    contents = ["first turn", "second", "third turn", "fourth"]
    asked = request(contents, around(0, 90, 1, -90))
    assert EXTRACTIVE.write(asked, 0.4) == Draft("first turn third turn")
    assert EXTRACTIVE.write(asked, 0.25) == Draft("first turn")


def test_turns_without_text_are_refused_and_each_request_is_answered() -> None:
    asked = [request(["", " "], np.ones((2, 2))), request(["a", "b"], np.ones((2, 2)))]
    empty, kept = (EXTRACTIVE.write(one, 0.5) for one in asked)
    assert isinstance(empty, Refusal)
    assert empty.outcome is Outcome.UNUSABLE
    assert kept == Draft("a")


def test_turns_and_vectors_of_different_number_are_refused() -> None:
    with pytest.raises(ValueError, match="2 turns came with 3 vectors"):
        EXTRACTIVE.write(request(["a", "b"], np.ones((3, 2))), 0.4)


def test_the_tokens_of_sources_are_those_of_their_joined_text() -> None:
    assert source_tokens(["abcd", "efg"]) == 2
    assert source_tokens([]) == 0


CHAT = [
    "Ada: Hey Ben! Good to see you again.",
    "Ben: Good to see you too!",
    "Ada: We moved to Lisbon in March. The flat has a red door.",
    "Ben: Wow, that is so great.",
    "Ada: Thanks! Our landlord is called Rui, his number is 555-0142.",
    "Ben: That is so great, wow.",
]
WORDS = ["we", "moved", "Lisbon", "red", "door", "7", "great", "so", "in", "Rui", "猫", "дом"]
texts_of_turns = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(lambda w: " ".join(w) + "."),
    min_size=1,
    max_size=8,
)


def of_texts(texts: list[str]) -> Request:
    return Request("c", texts, np.zeros((len(texts), 4), dtype=np.float32))


def draft(texts: list[str], density: float) -> Draft:
    found = SentenceSummarizer().write(of_texts(texts), density)
    assert isinstance(found, Draft)
    return found


def choose_naively(sentences: list[Sentence], budget: float) -> list[int]:
    """The greedy choice without a queue: every gain counted anew before every choice."""
    said: Counter[str] = Counter()
    chosen: list[int] = []
    left, tokens = list(range(len(sentences))), budget
    while left:
        gains = [(module._gain(sentences[i], said), -i) for i in left]  # pyright: ignore[reportPrivateUsage]
        gain, best = max(gains)
        left.remove(-best)
        if gain <= 0.0:
            break
        if not chosen or sentences[-best].tokens <= tokens:
            chosen.append(-best)
            tokens -= sentences[-best].tokens
            said.update(sentences[-best].worth.keys())
    return sorted(chosen)


def test_what_was_said_once_is_kept_and_small_talk_is_not() -> None:
    text = draft(CHAT, 0.5).text
    assert "Ada: We moved to Lisbon in March." in text
    assert "Rui" in text
    assert "555-0142" in text
    assert "Wow" not in text


def test_sentences_keep_their_order_and_each_turn_names_its_speaker_once() -> None:
    text = draft(CHAT[2:5], 1.0).text
    assert text.index("Lisbon") < text.index("red door") < text.index("Rui")
    assert text.count("Ada:") == 2
    assert "Ada: We moved to Lisbon in March. The flat has a red door." in text


def test_a_lower_density_gives_a_smaller_text() -> None:
    sizes = [estimate_tokens(draft(CHAT, share).text) for share in (0.2, 0.5, 1.0)]
    assert sizes[0] < sizes[1] < sizes[2]


def test_a_name_outweighs_a_word_of_the_same_rarity() -> None:
    chosen = cut_sentences(["we met the vendor there. we met Vandana there."])
    assert choose_sentences(chosen, 0.0) == [1]


def test_what_was_said_before_is_worth_less_the_second_time() -> None:
    texts = ["red door red wall.", "the red door, the red wall.", "a blue gate."]
    assert [cut_sentences(texts)[i].turn for i in choose_sentences(cut_sentences(texts), 12)] == [
        0,
        2,
    ]


@given(texts_of_turns, st.floats(0.0, 60.0))
def test_the_lazy_choice_is_the_naive_one(texts: list[str], budget: float) -> None:
    sentences = cut_sentences(texts)
    assert choose_sentences(sentences, budget) == choose_naively(sentences, budget)


@given(texts_of_turns, st.floats(0.01, 1.0))
def test_a_draft_consists_of_sentences_of_its_turns_and_claims_nothing_else(
    texts: list[str], density: float
) -> None:
    found = SentenceSummarizer().write(of_texts(texts), density)
    if isinstance(found, Refusal):
        return
    for piece in cut_sentences([found.text]):
        assert any(piece.text in text for text in texts)
    report = check_facts(found.text, texts)
    assert (report.introduced, report.contradicted) == ((), ())


@given(texts_of_turns, st.floats(0.05, 1.0))
def test_all_but_the_first_choice_stay_under_the_budget(texts: list[str], density: float) -> None:
    sentences = cut_sentences(texts)
    budget = density * sum(estimate_tokens(text) for text in texts)
    tokens = [sentences[i].tokens for i in choose_sentences(sentences, budget)]
    assert not tokens or sum(tokens) <= budget + max(tokens)


@pytest.mark.parametrize("texts", [["the of and.", "it is."], ["?!", "..."], ["Ada:  "]])
def test_turns_that_say_nothing_give_no_draft(texts: list[str]) -> None:
    found = SentenceSummarizer().write(of_texts(texts), 0.4)
    assert isinstance(found, Refusal)


def test_scripts_without_spaces_are_cut_at_their_own_full_stops() -> None:
    sentences = cut_sentences(["小明：我住在里斯本。门是红色的。"])
    assert [(s.speaker, s.text) for s in sentences] == [
        ("小明", "我住在里斯本。"),
        ("小明", "门是红色的。"),
    ]


def test_one_giant_turn_is_cut_like_any_other() -> None:
    giant = " ".join(f"Word{i} follows word{i + 1} there." for i in range(20_000))
    text = draft([giant, "Bye."], 0.01).text
    assert 0 < estimate_tokens(text) < 0.02 * estimate_tokens(giant)


def fence(*lines: str, mark: str = "```") -> str:
    return "\n".join([f"{mark}python", *lines, mark])


@pytest.mark.parametrize(
    ("block", "is_long"),
    [
        (fence("x = 1"), False),
        (fence(*["x"] * 7), False),
        (fence(*["x"] * 8), True),
        (fence("x = 1; y = 2 " * 18), True),
        (fence("x = 1; y = 2 " * 17), False),
        (fence(*["x"] * 8, mark="~~~"), True),
        ("```\n" + "x\n" * 9, True),
    ],
)
def test_long_fenced_blocks_give_way(block: str, is_long: bool) -> None:
    text = f"Look:\n{block}\ndone"
    assert (CODE_PLACEHOLDER in sanitize(text)) == is_long
    if not is_long:
        assert sanitize(text) == text


def test_what_stands_around_a_block_stays() -> None:
    text = f"before\n{fence(*['x'] * 9)}\nbetween\n{fence('y')}\nbehind"
    assert sanitize(text) == f"before\n{CODE_PLACEHOLDER}\nbetween\n{fence('y')}\nbehind"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("see data:image/png;base64," + "A" * 60, DATA_URI_PLACEHOLDER),
        ("data: 5 rows", "data: 5 rows"),
        ("key " + base64.b64encode(bytes(range(99))).decode(), BLOB_PLACEHOLDER),
        ("sum " + "0f" * 32 + " of the archive which is kept in the vault", BLOB_PLACEHOLDER),
        ("0f" * 32, "0f" * 32),
        ("a plain sentence " * 12, "a plain sentence " * 12),
    ],
)
def test_lines_of_encoded_data_give_way(line: str, shown: str) -> None:
    assert sanitize(f"first\n{line}\nlast") == f"first\n{shown}\nlast"


def test_runs_of_blank_lines_become_one() -> None:
    assert sanitize("a\n\n\n \n\nb\n\nc") == "a\n\nb\n\nc"


PARTS = ["```", "~~~", "x", "data:" + "a" * 70, "0f" * 50, "", " ", "word " * 30]


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=20), max_size=14).map("\n".join))
def test_sanitising_twice_changes_nothing_more(text: str) -> None:
    once = sanitize(text)
    assert sanitize(once) == once


LLM = CompactionSettings(summarizer="llm", llm_url="http://127.0.0.1:9/v1", llm_model="m")


def test_sentences_are_the_default_and_the_extractive_one_can_be_had() -> None:
    assert open_summarizer(CompactionSettings()) == SentenceSummarizer()
    assert open_summarizer(CompactionSettings(summarizer="extractive")) is EXTRACTIVE


def test_the_configured_one_is_opened() -> None:
    assert open_summarizer(LLM).name == "llm"


@pytest.mark.parametrize(
    ("settings", "detail"),
    [
        (LLM._replace(llm_url="ftp://nowhere"), "http://"),
        (LLM._replace(api_key_variable="NOCTUARY_TEST_NO_SUCH_KEY"), "NOCTUARY_TEST_NO_SUCH_KEY"),
    ],
    ids=["address", "key"],
)
def test_what_is_set_up_wrongly_refuses_and_the_night_goes_on(
    settings: CompactionSettings, detail: str
) -> None:
    summarizer = open_summarizer(settings)
    refused = summarizer.write(Request("c", ["a", "b"], np.ones((2, 2))), 0.4)
    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.UNAVAILABLE
    assert detail in refused.detail
    result = summarize_batch([cluster_text("c", 0, 1, 2, 3)], Bag(), summarizer=summarizer)
    assert result.summaries[0].status == "accepted"
    assert result.summaries[0].fallback == "unavailable"


def test_without_its_key_earlier_summaries_are_still_used() -> None:
    wrong = open_summarizer(LLM._replace(api_key_variable="NOCTUARY_TEST_NO_SUCH_KEY"))
    right = open_summarizer(LLM)
    assert recipe_digest("e", summarizer=wrong) == recipe_digest("e", summarizer=right)
    assert wrong.uses_context == right.uses_context


TURNS = ["Ann: the rent in Lyon is 500", "Bob: too much", "Ann: the cat likes it"]


@pytest.fixture
def server() -> Iterator[SummaryServer]:
    with SummaryServer() as running:
        yield running


def summarizer(server: SummaryServer, **options: Any) -> EndpointSummarizer:
    endpoint = Endpoint(server.url, "writer", timeout_s=options.pop("timeout_s", 5.0))
    return EndpointSummarizer("writer", endpoint, sleep=lambda _: None, **options)


def asking(texts: list[str] | None = None, **fields: Any) -> Request:
    texts = TURNS if texts is None else texts
    return Request("c", texts, np.ones((len(texts), 2)), **fields)


def draft_by(
    writer: EndpointSummarizer, *requests: Request, density: float = 0.4
) -> Draft | Refusal:
    return [writer.write(one, density) for one in requests or [asking()]][-1]


def test_a_summary_comes_back_with_the_models_confidence(server: SummaryServer) -> None:
    server.probability = 0.25
    found = draft_by(summarizer(server))
    assert isinstance(found, Draft)
    assert found.text == TURNS[0]
    assert found.raw_confidence == pytest.approx(0.25)
    (asked,) = server.asked
    assert asked.items == [{"id": "1", "turns": "\n".join(TURNS)}]
    assert "data" in asked.body["messages"][0]["content"]


def test_without_log_probabilities_the_confidence_is_not_known(server: SummaryServer) -> None:
    assert draft_by(summarizer(server)) == Draft(TURNS[0], None)


def test_an_endpoint_that_refuses_log_probabilities_is_asked_without(server: SummaryServer) -> None:
    server.faults = [Fault(400)]
    writer = summarizer(server)
    assert isinstance(draft_by(writer), Draft)
    assert isinstance(draft_by(writer), Draft)
    assert ["logprobs" in asked.body for asked in server.asked] == [True, False, False]


def test_a_lower_density_asks_for_less(server: SummaryServer) -> None:
    assert isinstance(draft_by(summarizer(server), density=0.2), Draft)
    assert "at most 3 tokens" in server.asked[0].body["messages"][0]["content"]


def test_earlier_summaries_stand_apart_from_the_turns(server: SummaryServer) -> None:
    draft_by(summarizer(server), asking(context=("They moved.", "They met.")))
    assert server.asked[0].items[0]["earlier"] == "They moved.\nThey met."


def test_each_cluster_is_asked_about_alone(server: SummaryServer) -> None:
    draft_by(summarizer(server), asking(["Ann: a", "Ann: b"]), asking(["Bob: c", "Bob: d"]))
    assert [asked.items[0]["turns"] for asked in server.asked] == [
        "Ann: a\nAnn: b",
        "Bob: c\nBob: d",
    ]


def test_turns_of_named_users_are_shown_only_where_that_is_allowed(server: SummaryServer) -> None:
    private = asking(["Ann: my diary", "Ann: secret garden"], user="ann")
    refused = draft_by(summarizer(server), asking(), private)
    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.NAMED_USER
    assert len(server.asked) == 1
    assert "diary" not in server.everything
    assert isinstance(draft_by(summarizer(server, include_named_users=True), private), Draft)
    assert "diary" in server.everything


@pytest.mark.parametrize(
    "turns",
    [["Ann: password: hunter2hunter2", "Bob: ok"], ["Ann: the password:", "hunter2hunter2"]],
    ids=["in one turn", "joined"],
)
def test_what_reads_like_a_secret_is_never_sent(server: SummaryServer, turns: list[str]) -> None:
    refused = draft_by(summarizer(server), asking(turns))
    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.SECRET
    assert server.asked == []
    assert "hunter2" not in refused.detail


def test_what_is_too_long_is_never_sent_and_code_is_cut_out(server: SummaryServer) -> None:
    many = asking(["word " * 800] * (MAX_REQUEST_CHARS // 4_000 + 1))
    refused = draft_by(summarizer(server), many)
    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.TOO_LONG
    assert server.asked == []
    fenced = asking(["Ann: look\n```\n" + "code\n" * 100 + "```", "Bob: fine"])
    assert isinstance(draft_by(summarizer(server), fenced), Draft)
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
    first, second = draft_by(writer), draft_by(writer)
    assert isinstance(first, Refusal)
    assert first.outcome is Outcome.UNUSABLE
    assert isinstance(second, Draft)


def test_an_answer_that_was_cut_off_is_of_no_use(server: SummaryServer) -> None:
    server.finish_reason = "length"
    refused = draft_by(summarizer(server))
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
    first, second = draft_by(writer), draft_by(writer)
    assert isinstance(first, Refusal)
    assert first.outcome is Outcome.UNAVAILABLE
    assert second == first
    asked = len(server.asked)
    assert asked in (1, 4)
    assert isinstance(draft_by(writer), Refusal)
    assert len(server.asked) == asked


def test_nobody_listens(server: SummaryServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    endpoint = Endpoint(f"http://127.0.0.1:{port}", "m")
    writer = EndpointSummarizer("m", endpoint, sleep=lambda _: None)
    refused = draft_by(writer)
    assert isinstance(refused, Refusal)
    assert refused.outcome is Outcome.UNAVAILABLE


def test_a_model_that_writes_nothing_but_garbage_is_given_up(server: SummaryServer) -> None:
    server.summarize = lambda item: 7
    writer = summarizer(server)
    found = [draft_by(writer) for _ in range(MAX_BAD_IN_A_ROW + 3)]
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
