"""The five signals of a text: their sums, caps and what they are read from."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.curate.signals import (
    BLANK,
    READ_CHARS,
    actionability,
    conversational_structure,
    declared,
    read_signals,
    specificity,
    structure,
    technical_density,
)

TEXTS = st.text(max_size=400) | st.lists(
    st.sampled_from(
        (
            "I prefer tabs", "```\n", "src/a.py", "ENOENT", "def f():", "on 2026-03-01", "3 years",
            "my boss Ana", "I work at Acme", "git push", "PR #4", "we decided to", "?", "\n", " ",
        )
    )
).map("".join)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("It was 2026-03-01.", "date"),
        ("We meet on March 3", "date"),
        ("born 3 May 1980", "date"),
        ("in May we move", "date"),
        ("since 2019", "date"),
        ("every monday", "date"),
        ("two weeks ago", "date"),
        ("moves in 3 weeks", "date"),
        ("我于2024年4月3日出发。", "date"),
        ("231 invoices", "quantity"),
        ("it is 12.5 kg", "quantity"),
        ("takes 8000 ms", "quantity"),
        ("30% off", "quantity"),
        ("$40 a month", "quantity"),
        ("three kids", "quantity"),
        ("Dr. Weiss called", "person"),
        ("my manager Lorna agrees", "person"),
        ("My dog is called Rex.", "person"),
        ("our neighbour Ömer", "person"),
        ("I prefer tabs over spaces", "preference"),
        ("I don't like olives", "preference"),
        ("I'd rather walk", "preference"),
        ("my favourite tea", "preference"),
        ("Always run the linter first.", "preference"),
        ("Please never push to main", "preference"),
        ("I'm allergic to nuts", "preference"),
        ("Remember that the door sticks", "preference"),
        ("From now on use British spelling", "preference"),
        ("I work at Initech", "fact"),
        ("I've worked as a nurse", "fact"),
        ("I used to live in Lyon", "fact"),
        ("I grew up on a farm", "fact"),
        ("I'm a nurse", "fact"),
        ("I have two brothers", "fact"),
        ("my sister lives there", "fact"),
        ("our staging port is 5433", "fact"),
        ("we use Postgres", "fact"),
    ],
)
def test_what_is_stated_is_found(text: str, mark: str) -> None:
    assert mark in conversational_structure(text).names


@pytest.mark.parametrize(
    "text",
    [
        "I may go. March on! We might, may we? The august crowd. 24/7, 1/2, 3-4.",
        "I am going to do it. I'm sorry, I'm not sure. I am the one. I'm a bit tired.",
        "I have a question. I have to go. I have no idea. I've got a feeling. I have a good idea.",
        "I'd like to know. I like it! I love that. I love how it looks. I like your style.",
        "My point is this. My guess is no. My bad. My question is simple. Our plan is fine.",
        "Never mind. Always good to see you. Always up for it! We never know. Never been better.",
        "It looks like rain, it feels like home, likely so. Dr who? Mr. and Ms. and so on.",
        "Could you please help? Please don't worry. Thanks a lot! Bye! Ok. Yes, please.",
        "the file is 3 and the rest 4; version 2, step 1 of 9, chapter 12",
        "Never give up! See you tomorrow. It is great to be in our community work. Let's go on.",
        "I am so glad to have this outlet to share my stories and hopefully have a say in it.",
    ],
)
def test_small_talk_states_nothing(text: str) -> None:
    assert conversational_structure(text).names == ()


def test_questions_and_code_state_nothing() -> None:
    assert conversational_structure("Do I prefer tabs? Is my favourite tea green?").total == 0
    assert conversational_structure("我喜欢2024年4月吗？").total == 0
    assert conversational_structure("```\nI work at Initech\n```\nok").total == 0
    assert conversational_structure("I work at Initech. Do you?").names == ("fact",)
    assert declared("One. Two? Three!\n```\nFour\n```\nFive").split() == ["One.", "Three!", "Five"]
    assert declared("Dr. Weiss") == "Dr. Weiss"


def test_d_adds_each_kind_once_and_stops_at_one() -> None:
    assert conversational_structure("on Monday and Tuesday").total == pytest.approx(0.3)
    assert conversational_structure("on Monday, 3 kg").total == pytest.approx(0.5)
    text = "My manager Ana and I prefer Mondays; I work at Acme 40 hours."
    assert set(conversational_structure(text).names) == {
        "date", "quantity", "person", "preference", "fact",
    }  # fmt: skip
    assert conversational_structure(text).total == 1.0


def test_t_is_the_sum_of_its_weights_over_one_and_a_half() -> None:
    assert technical_density("see src/main.py").total == pytest.approx(0.4 / 1.5)
    assert technical_density("git push then see src/main.py").total == pytest.approx(0.8 / 1.5)
    assert technical_density("at src/a.py and src/b.py").total == pytest.approx(0.4 / 1.5)
    everything = "```\nTraceback (most recent call last)\n```\nmain() git push src/a.py 0xff GET /x"
    assert technical_density(everything).total == 1.0
    assert technical_density("We went home early.").total == 0.0


def test_p_counts_every_occurrence_per_hundred_tokens() -> None:
    assert specificity("src/a.py").total == pytest.approx(0.4)
    assert specificity("src/a.py src/b.py").total == pytest.approx(0.8)
    assert specificity("src/a.py src/b.py src/c.py").total == 1.0
    # 400 characters are 100 tokens: the divisor starts to count beyond.
    assert specificity("src/a.py".ljust(400, " ")).total == pytest.approx(0.4)
    assert specificity("src/a.py".ljust(800, " ")).total == pytest.approx(0.2)
    # Code points, not bytes: 799 // 4 = 199.
    assert specificity("src/a.py".ljust(799, "…")).total == pytest.approx(0.4 / 1.99)
    assert specificity("ENOENT at commit 9f3c2ab").total == pytest.approx(0.9)


def test_a_and_dt_add_each_kind_once() -> None:
    assert actionability("We decided to use Postgres.").total == pytest.approx(0.5)
    assert actionability("The root cause was a lock; fixed it, set POOL_SIZE=20").total == (
        pytest.approx(0.8)
    )
    assert actionability("deployed and shipped").total == pytest.approx(0.3)
    whole = "ADR-14: decided; root cause found; deployed; RETRIES=3"
    assert actionability(whole).total == 1.0
    assert actionability("Every day we eat; how are things going with you?").total == 0.0
    assert structure("def f(x):").total == pytest.approx(0.4)
    assert structure("import os\nclass Row(NamedTuple):").total == pytest.approx(0.6)
    assert structure("CREATE TABLE x(id)").total == pytest.approx(0.3)
    assert structure('def test_a():\n    """Doc."""\n    assert a == 1').total == pytest.approx(0.8)
    assert structure("A class of its own: the test of time, a table for two.").total == 0.0


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000", "\u00a0"])
def test_a_blank_text_has_no_signal(text: str) -> None:
    assert read_signals(text) == BLANK


def test_only_the_beginning_of_a_long_text_is_read() -> None:
    assert read_signals(" " * READ_CHARS + "I work at Acme") == BLANK
    assert read_signals("I work at Acme " + "x" * 10 * READ_CHARS).marks == ("fact",)


def test_marks_are_sorted_and_named_once() -> None:
    assert read_signals("git push of src/a.py on Monday").marks == (
        "date", "file path", "shell command",
    )  # fmt: skip


@given(TEXTS)
def test_every_signal_lies_between_0_and_1(text: str) -> None:
    found = read_signals(text)
    for value in (found.t, found.d, found.p, found.a, found.dtech):
        assert 0.0 <= value <= 1.0
    assert list(found.marks) == sorted(set(found.marks))
    assert read_signals(text) == found


@given(TEXTS, TEXTS)
def test_saying_more_is_no_less_technical(one: str, other: str) -> None:
    """Presence only adds up: a text on lines of its own keeps what it had."""
    assert technical_density(f"{one}\n{other}").total >= technical_density(f"{one}\n").total


@pytest.mark.parametrize(
    "unit",
    ["a", "a.", "a/", "_", "(", "my ", "I ", "--", "0", "x ", "a_", "`", "never ", "\n", "é"],
)
def test_no_text_takes_long(unit: str) -> None:
    """A pattern with a repetition inside a repetition would take minutes here."""
    text = unit * (READ_CHARS // len(unit))
    started = time.process_time()
    read_signals(text)
    assert time.process_time() - started < 2.0
