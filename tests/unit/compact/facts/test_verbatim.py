from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact.gate import find_verbatim, is_made_of_sentences
from noctuary.compact.summarizers import Refusal, Request, SentenceSummarizer

SOURCES = ["Ann: the rent is 500", "Bob: no way!", "the rent is 500", "Bob: no"]
texts = st.lists(st.text(alphabet="ab .!", min_size=1, max_size=8), min_size=1, max_size=6)


def test_joined_turns_are_found_whole() -> None:
    parts = find_verbatim("Ann: the rent is 500 Bob: no way!", SOURCES)
    assert parts.quoted == (0, 1)
    assert parts.written == ()


@pytest.mark.parametrize(
    "summary",
    [
        "It is false that the rent is 500",
        "the rent is 500 no more",
        "the rent is 5000",
        "Bob: nothing",
    ],
)
def test_a_turn_inside_of_another_sentence_is_not_quoted(summary: str) -> None:
    parts = find_verbatim(summary, SOURCES)
    assert parts.quoted == ()
    assert parts.written == (summary,)


def test_what_is_written_before_and_behind_a_turn_is_left() -> None:
    parts = find_verbatim("They argued. Bob: no way! So it stays.", SOURCES)
    assert parts.quoted == (1,)
    assert [part.strip() for part in parts.written] == ["They argued.", "So it stays."]


@given(texts, st.data())
def test_every_joined_choice_of_turns_is_verbatim(sources: list[str], data: st.DataObject) -> None:
    sources = [source for source in sources if source.strip()]
    kept = [source for source in sources if data.draw(st.booleans())]
    assert find_verbatim(" ".join(kept), sources).written == ()


SPOKEN = ["Ann: We moved. The rent is 500! Is it?", "Bob: No way. I pay 3.5 k", "猫在家。狗在外。"]


@pytest.mark.parametrize(
    ("summary", "is_verbatim"),
    [
        ("Ann: We moved. Is it? Bob: No way.", True),
        ("Ann: The rent is 500! Bob: I pay 3.5 k", True),
        ("Bob: I pay 3.5 k 猫在家。狗在外。", True),
        ("", True),
        ("Bob: We moved.", False),
        ("We moved.", False),
        ("Ann: It is false. The rent is 500!", False),
        ("Ann: The rent is 500! no more", False),
        ("Ann: The rent is 5000!", False),
        ("Bob: I pay 3.5 kg", False),
    ],
)
def test_whole_sentences_under_their_speakers_are_verbatim(summary: str, is_verbatim: bool) -> None:
    assert is_made_of_sentences(summary, SPOKEN) == is_verbatim


@given(texts)
def test_what_the_sentence_summarizer_writes_is_verbatim(sources: list[str]) -> None:
    request = Request("c", sources, np.ones((len(sources), 1)))
    draft = SentenceSummarizer().write(request, 0.5)
    assert isinstance(draft, Refusal) or is_made_of_sentences(draft.text, sources)
