from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.context.documents import REACH_WORDS, SOFT, VARIANT, find_marks, parse_document

GOLDEN = Path(__file__).parents[2] / "golden" / "deontic.tsv"


def golden_rows() -> list[dict[str, str]]:
    with GOLDEN.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def marks_of(cell: str) -> set[str]:
    return set() if cell == "none" else set(cell.split())


def test_there_are_ten_examples_and_each_outcome_is_among_them() -> None:
    outcomes = [row["marks"] for row in golden_rows()]
    assert len(outcomes) == 10
    assert set(outcomes) == {
        "obligation", "permitted", "forbidden", "obligation forbidden", "none",
    }  # fmt: skip


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["case"])
def test_an_example_has_its_marks_and_the_tier_that_follows(row: dict[str, str]) -> None:
    marks = marks_of(row["marks"])
    assert find_marks(row["text"]) == marks
    (node,) = parse_document(row["text"], "AGENTS.md")
    assert (node.kind, node.marks) == ("paragraph", marks)
    assert node.tier == (SOFT if marks else VARIANT)


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("You shall answer in English.", "obligation"),
        ("You shall not answer.", "forbidden"),
        ("You are not required to answer.", "obligation"),
        ("you are required not to answer", "forbidden"),
        ("You can not answer.", "forbidden"),
        ("You can answer.", "none"),
        ("You cannot answer.", "forbidden"),
        ("You should not answer.", "obligation"),
        ("You must or may not.", "obligation forbidden"),
        ("You may, and you must.", "permitted obligation"),
        ("YOU MUST", "obligation"),
        ("You one two must", "obligation"),
        ("You one two three must", "none"),
        ("You one two must not", "forbidden"),
        ("Must you?", "none"),
        ("You mustn't push.", "none"),
        ("You can't push.", "none"),
        ("You're required to push.", "obligation"),
        ("You’ll never push.", "forbidden"),
        ("You’re always strictly required to sign.", "obligation"),
        ("Your dog must sleep.", "none"),
        ("Youth must sleep.", "none"),
        ("you_must run", "none"),
        ("You requires", "none"),
        ("you, – (must)", "obligation"),
        ("you必须must", "obligation"),
        ("Вы must", "none"),
        ("", "none"),
        ("you", "none"),
    ],
)
def test_what_counts_as_a_demand(text: str, marks: str) -> None:
    assert find_marks(text) == marks_of(marks)


@pytest.mark.parametrize(
    ("markdown", "marks"),
    [
        ("You **must** run it.", "obligation"),
        ("You\n**may** run it.", "permitted"),
        ("You\\\nmay run it.", "permitted"),
        ("You `must` run it.", "obligation"),
        ("You<br>must run it.", "obligation"),
        ("You [a](https://one.example/two/three/four) must run it.", "obligation"),
        ("You see [it](https://must.example).", "none"),
        ("Do <!-- you must --> it.", "none"),
        ("You&nbsp;must run it.", "obligation"),
        ("y**o**u must, and you may", "permitted obligation"),
    ],
)
def test_what_a_reader_does_not_see_is_no_word(markdown: str, marks: str) -> None:
    (node,) = parse_document(markdown, "AGENTS.md")
    assert node.marks == marks_of(marks)


@pytest.mark.parametrize("block", ["- {}", "1. {}", "> {}", "# {}", "    {}", "<p>{}</p>"])
def test_only_paragraphs_have_marks(block: str) -> None:
    (node,) = parse_document(block.format("You must run it."), "AGENTS.md")
    assert node.marks == frozenset()


def test_a_paragraph_too_long_to_resolve_still_has_its_marks() -> None:
    (node,) = parse_document("x " * 20_000 + "and you **must** run it", "AGENTS.md")
    assert node.marks == {"obligation"}


WORDS = st.sampled_from(
    ["you", "You", "must", "shall", "required", "should", "may", "can", "cannot", "never", "not",
     "NOT", "dog", "x_1"]
)  # fmt: skip


def naive_marks(words: list[str]) -> set[str]:
    """The rules one by one, as patterns over words between single spaces."""
    text = " ".join(words).lower()
    near = rf"(?<!\S)you(?: \S+){{0,{REACH_WORDS - 1}}} "
    patterns = {
        "obligation": [r"(?:must|shall|required)(?!\S)(?! not(?!\S))", r"should(?!\S)"],
        "permitted": [r"may(?!\S)(?! not(?!\S))"],
        "forbidden": [r"(?:must|shall|required|may|can) not(?!\S)", r"(?:never|cannot)(?!\S)"],
    }
    return {m for m, rules in patterns.items() for rule in rules if re.search(near + rule, text)}


@given(st.lists(WORDS, max_size=14))
def test_the_rules_as_patterns_find_the_same(words: list[str]) -> None:
    assert find_marks(" ".join(words)) == naive_marks(words)


@given(st.text(max_size=80))
def test_any_text_has_marks_or_none(text: str) -> None:
    assert find_marks(text) <= {"obligation", "permitted", "forbidden"}
    assert find_marks(text.replace("you", "they").replace("You", "They").lower()) <= find_marks(
        text.lower()
    )
