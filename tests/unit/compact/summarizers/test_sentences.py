from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact import summarizers as module
from noctuary.compact.gate import check_facts
from noctuary.compact.summarizers import (
    Draft,
    Refusal,
    Request,
    Sentence,
    SentenceSummarizer,
    choose_sentences,
    cut_sentences,
    join_sentences,
)
from noctuary.text.marks import estimate_tokens

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


def request(texts: list[str]) -> Request:
    return Request("c", texts, np.zeros((len(texts), 4), dtype=np.float32))


def draft(texts: list[str], density: float) -> Draft:
    found = SentenceSummarizer().write(request(texts), density)
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
    found = SentenceSummarizer().write(request(texts), density)
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
    found = SentenceSummarizer().write(request(texts), 0.4)
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


def test_joining_nothing_is_empty() -> None:
    assert join_sentences([]) == ""
