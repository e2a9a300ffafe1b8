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
from tests.support.fake_server import FakeServer, Fault, envelope


def around(*angles: float) -> np.ndarray:
    radians = np.deg2rad(np.array(angles))
    return np.stack([np.cos(radians), np.sin(radians)], axis=1)


NEAR_ZERO = np.vstack([np.zeros((2, 2)), around(5, 0, -5)])


@pytest.mark.parametrize(
    ("vectors", "density", "kept"),
    [
        (around(80, 10, -80, -10, 0), 0.4, [1, 4]),
        (around(80, 10, -80, -10, 0), 0.6, [1, 3, 4]),
        (around(80, 10, -80, -10, 0), 1.0, [0, 1, 2, 3, 4]),
        (np.ones((10, 3)), 0.25, [0, 1, 2]),  # ties go to the earlier turn
        (np.ones((1, 3)), 0.4, [0]),
        (np.ones((6, 3)), 0.4, [0, 1, 2]),  # the rounded-up share
        (np.ones((20, 3)), 0.4, [*range(8)]),
        (np.ones((35, 3)), 0.4, [*range(14)]),
        (NEAR_ZERO, 0.2, [3]),  # zero vectors are least central
        (np.zeros((4, 2)), 0.25, [0]),
        (np.zeros((0, 2)), 0.4, []),
    ],
)
def test_the_most_central_turns_are_kept_in_their_order(
    vectors: np.ndarray, density: float, kept: list[int]
) -> None:
    assert central_turns(vectors, density) == kept


def test_a_draft_joins_the_kept_turns() -> None:
    asked = Request("c", ["first turn", "second", "third turn", "fourth"], around(0, 90, 1, -90))
    assert EXTRACTIVE.write(asked, 0.4) == Draft("first turn third turn")
    assert EXTRACTIVE.write(asked, 0.25) == Draft("first turn")
    empty = EXTRACTIVE.write(Request("c", ["", " "], np.ones((2, 2))), 0.5)
    assert isinstance(empty, Refusal)
    assert empty.outcome is Outcome.UNUSABLE
    with pytest.raises(ValueError, match="2 turns came with 3 vectors"):
        EXTRACTIVE.write(Request("c", ["a", "b"], np.ones((3, 2))), 0.4)
    assert [source_tokens(texts) for texts in (["abcd", "efg"], [])] == [2, 0]


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
    assert all(word in text for word in ("Ada: We moved to Lisbon in March.", "Rui", "555-0142"))
    assert "Wow" not in text
    sizes = [estimate_tokens(draft(CHAT, share).text) for share in (0.2, 0.5, 1.0)]
    assert sizes[0] < sizes[1] < sizes[2]


@pytest.mark.parametrize(
    ("texts", "budget", "chosen"),
    [
        # A name outweighs a word of the same rarity.
        (["we met the vendor there. we met Vandana there."], 0.0, [1]),
        # What was said before is worth less the second time.
        (["red door red wall.", "the red door, the red wall.", "a blue gate."], 12, [0, 2]),
    ],
)
def test_sentences_are_chosen_by_what_they_add(
    texts: list[str], budget: float, chosen: list[int]
) -> None:
    assert choose_sentences(cut_sentences(texts), budget) == chosen


def test_scripts_without_spaces_are_cut_at_their_own_full_stops() -> None:
    found = [(s.speaker, s.text) for s in cut_sentences(["小明：我住在里斯本。门是红色的。"])]
    assert found == [("小明", "我住在里斯本。"), ("小明", "门是红色的。")]


def test_sentences_keep_their_order_and_each_turn_names_its_speaker_once() -> None:
    text = draft(CHAT[2:5], 1.0).text
    assert text.index("Lisbon") < text.index("red door") < text.index("Rui")
    assert text.count("Ada:") == 2
    assert "Ada: We moved to Lisbon in March. The flat has a red door." in text


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


FENCES = f"before\n{fence(*['x'] * 9)}\nbetween\n{fence('y')}\nbehind"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("see data:image/png;base64," + "A" * 60, DATA_URI_PLACEHOLDER),
        ("data: 5 rows", "data: 5 rows"),
        ("key " + base64.b64encode(bytes(range(99))).decode(), BLOB_PLACEHOLDER),
        ("sum " + "0f" * 32 + " of the archive which is kept in the vault", BLOB_PLACEHOLDER),
        ("0f" * 32, "0f" * 32),
        ("a plain sentence " * 12, "a plain sentence " * 12),
        (FENCES, f"before\n{CODE_PLACEHOLDER}\nbetween\n{fence('y')}\nbehind"),
        ("a\n\n\n \n\nb\n\nc", "a\n\nb\n\nc"),
    ],
)
def test_what_is_no_prose_gives_way(line: str, shown: str) -> None:
    assert sanitize(f"first\n{line}\nlast") == f"first\n{shown}\nlast"


PARTS = ["```", "~~~", "x", "data:" + "a" * 70, "0f" * 50, "", " ", "word " * 30]


@given(st.lists(st.sampled_from(PARTS) | st.text(max_size=20), max_size=14).map("\n".join))
def test_sanitising_twice_changes_nothing_more(text: str) -> None:
    once = sanitize(text)
    assert sanitize(once) == once


LLM = CompactionSettings(summarizer="llm", llm_url="http://127.0.0.1:9/v1", llm_model="m")


def test_sentences_are_the_default_and_the_others_can_be_had() -> None:
    assert open_summarizer(CompactionSettings()) == SentenceSummarizer()
    assert open_summarizer(CompactionSettings(summarizer="extractive")) is EXTRACTIVE
    opened = open_summarizer(LLM)
    assert opened.name == "llm"
    wrong = open_summarizer(LLM._replace(api_key_variable="NOCTUARY_TEST_NO_SUCH_KEY"))
    digests = [recipe_digest("e", summarizer=one) for one in (wrong, opened)]
    assert digests[0] == digests[1], "without its key earlier summaries are still used"
    assert wrong.is_local == opened.is_local


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
    assert result[0].status == "accepted"
    assert result[0].fallback == "unavailable"


TURNS = ["Ann: the rent in Lyon is 500", "Bob: too much", "Ann: the cat likes it"]


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def summarizer(server: FakeServer, **options: Any) -> EndpointSummarizer:
    endpoint = Endpoint(server.url, "writer", timeout_s=options.pop("timeout_s", 5.0))
    return EndpointSummarizer("writer", endpoint, sleep=lambda _: None, **options)


def asking(*texts: str, **fields: Any) -> Request:
    turns = [*(texts or TURNS)]
    return Request("c", turns, np.ones((len(turns), 2)), **fields)


def draft_by(writer: EndpointSummarizer, one: Request | None = None) -> Draft | Refusal:
    return writer.write(one or asking(), 0.4)


def outcome_of(answer: Draft | Refusal) -> Outcome | None:
    return answer.outcome if isinstance(answer, Refusal) else None


def test_a_summary_comes_back_with_the_models_confidence(server: FakeServer) -> None:
    assert draft_by(summarizer(server)) == Draft(TURNS[0], None), "without log probabilities"
    server.probability = 0.25
    found = summarizer(server).write(asking(), 0.2)
    assert isinstance(found, Draft)
    assert (found.text, found.raw_confidence) == (TURNS[0], pytest.approx(0.25))
    first, second = server.asked
    turns = {"id": "1", "turns": "\n".join(TURNS)}
    assert first.items == second.items == [turns]
    assert "data" in first.body["messages"][0]["content"]
    assert "at most 3 tokens" in second.body["messages"][0]["content"], "a lower density"
    recipe = summarizer(server).recipe
    assert recipe["model"] == "writer"
    assert "127.0.0.1" not in json.dumps(dict(recipe))
    assert recipe != summarizer(server, include_named_users=True).recipe


def test_an_endpoint_that_refuses_log_probabilities_is_asked_without(server: FakeServer) -> None:
    server.faults = [Fault(400)]
    writer = summarizer(server)
    assert isinstance(draft_by(writer), Draft)
    assert isinstance(draft_by(writer), Draft)
    assert ["logprobs" in asked.body for asked in server.asked] == [True, False, False]


def test_turns_of_named_users_are_shown_only_where_that_is_allowed(server: FakeServer) -> None:
    private = asking("Ann: my diary", "Ann: secret garden", user="ann")
    assert outcome_of(draft_by(summarizer(server), private)) is Outcome.NAMED_USER
    assert server.asked == []
    assert isinstance(draft_by(summarizer(server, include_named_users=True), private), Draft)
    assert "diary" in server.everything


@pytest.mark.parametrize(
    ("turns", "outcome"),
    [
        (("Ann: password: hunter2hunter2", "Bob: ok"), Outcome.SECRET),
        (("Ann: the password:", "hunter2hunter2"), Outcome.SECRET),
        (("word " * 800,) * (MAX_REQUEST_CHARS // 4_000 + 1), Outcome.TOO_LONG),
    ],
    ids=["in-one-turn", "joined", "too-long"],
)
def test_what_reads_like_a_secret_or_is_too_long_is_never_sent(
    server: FakeServer, turns: tuple[str, ...], outcome: Outcome
) -> None:
    refused = draft_by(summarizer(server), asking(*turns))
    assert isinstance(refused, Refusal)
    assert refused.outcome is outcome
    assert server.asked == []
    assert "hunter2" not in refused.detail


def test_code_is_cut_out(server: FakeServer) -> None:
    fenced = asking("Ann: look\n```\n" + "code\n" * 100 + "```", "Bob: fine")
    assert isinstance(draft_by(summarizer(server), fenced), Draft)
    assert "[code left out]" in server.everything
    assert "code\\ncode" not in server.everything


@pytest.mark.parametrize(
    "fault",
    [
        Fault(body=envelope("I will not.")),
        Fault(body=envelope('{"items": [{"id": "1", "summary": "half')),
        Fault(body=envelope('{"items": []}')),
        Fault(body=envelope('{"items": [{"id": "1", "summary": 3}]}')),
        Fault(body=envelope('{"items": [{"id": "1", "summary": "  "}]}')),
        Fault(body=envelope('{"items": [{"id": "2", "summary": "other"}]}')),
        Fault(body=envelope(None)),
        Fault(422),
    ],
    ids=["refusal", "half", "none", "number", "blank", "other-id", "null", "422"],
)
def test_an_answer_of_no_use_is_a_refusal_and_the_next_cluster_is_asked_about(
    server: FakeServer, fault: Fault
) -> None:
    server.faults = [fault, fault] if fault.status == 422 else [fault]
    writer = summarizer(server)
    found = [outcome_of(draft_by(writer, asking("Ann: a", word))) for word in ("b", "c")]
    assert found == [Outcome.UNUSABLE, None]
    assert server.asked[-1].items[0]["turns"] == "Ann: a\nc", "each cluster alone"
    server.finish_reason = "length"
    cut_off = draft_by(summarizer(server))
    assert cut_off == Refusal(Outcome.UNUSABLE, "the answer was cut off")


@pytest.mark.parametrize(
    "fault",
    [Fault(500), Fault(401), Fault(302), Fault(body=b"{}", announced=99), Fault(hang=True)],
    ids=["500", "401", "redirect", "broken-off", "timeout"],
)
def test_an_endpoint_that_is_down_is_asked_once_a_night(server: FakeServer, fault: Fault) -> None:
    server.faults = [fault] * 4
    writer = summarizer(server, timeout_s=0.1)
    first, second = draft_by(writer), draft_by(writer)
    assert outcome_of(first) is Outcome.UNAVAILABLE
    assert second == first
    asked = len(server.asked)
    assert asked in (1, 4)
    assert draft_by(writer) == first
    assert len(server.asked) == asked


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    endpoint = Endpoint(f"http://127.0.0.1:{port}", "m")
    writer = EndpointSummarizer("m", endpoint, sleep=lambda _: None)
    assert outcome_of(draft_by(writer)) is Outcome.UNAVAILABLE


def test_a_model_that_writes_nothing_but_garbage_is_given_up(server: FakeServer) -> None:
    server.summarize = lambda item: 7
    writer = summarizer(server)
    found = [outcome_of(draft_by(writer)) for _ in range(MAX_BAD_IN_A_ROW + 3)]
    assert found == [Outcome.UNUSABLE] * MAX_BAD_IN_A_ROW + [Outcome.UNAVAILABLE] * 3
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
    server: FakeServer, writes: str | None, fallback: str
) -> None:
    server.summarize = lambda item: writes
    (summary,) = summarize_batch(
        [cluster_text("c", 0, 1, 2, 3)], Bag(), summarizer=summarizer(server)
    )
    assert summary.status == "accepted"
    assert summary.fallback == fallback
    assert summary.method == ("extractive" if fallback else "llm")
