"""What a model answers, and what of it a memory's text supports."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.graph.fold import fold_name
from noctuary.graph.llm import (
    MAX_NAMES,
    MAX_PLACES,
    RELATION_NAMES,
    SYSTEM,
    Grounded,
    RawAnswer,
    decode,
    encode,
    ground,
    map_relation,
    read_answer,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["names", "triples", "malformed", "failed", "subject"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("works_at", ("works_at", False)),
        ("Works at", ("works_at", False)),
        ("is replaced by", ("supersedes", True)),
        ("was fixed by", ("resolved_by", False)),
        ("fixed", ("resolved_by", True)),
        ("employs", ("works_at", True)),
        ("is a", ("is_a", False)),
        ("is now", ("is_now", False)),
        ("is", None),
        ("admires", None),
        ("", None),
        ("работает в", None),
    ],
)
def test_relations_are_mapped_by_a_table(text: str, expected: object) -> None:
    assert map_relation(text) == expected


def test_the_prompt_lists_every_relation_and_each_means_itself() -> None:
    for name in RELATION_NAMES:
        assert name in SYSTEM
        assert map_relation(name) == (name, False)


def test_the_good_entries_of_an_answer_are_kept_and_the_others_counted() -> None:
    row = {
        "names": ["Acme", 7, "", "x" * 201, " "],
        "triples": [
            ["Maria", "works at", "Acme"],
            {"subject": "Maria", "predicate": "likes", "object": "tea"},
            ["Maria", "works at"],
            ["Maria", None, "Acme"],
            "Maria",
        ],
    }
    answer = read_answer(row)
    assert answer is not None
    assert answer.names == ("Acme",)
    assert answer.triples == (("Maria", "works at", "Acme"), ("Maria", "likes", "tea"))
    assert answer.malformed == 7


def test_an_item_with_neither_list_is_no_answer_and_empty_lists_are_one() -> None:
    assert read_answer({"id": "m1"}) is None
    assert read_answer({"names": "Acme", "triples": None}) is None
    assert read_answer({"names": []}) == RawAnswer((), ())
    many = read_answer({"names": ["Acme"] * (MAX_NAMES + 5)})
    assert many is not None
    assert (len(many.names), many.malformed) == (MAX_NAMES, 5)


@given(JSON)
def test_what_is_kept_is_read_back_and_nothing_raises(value: object) -> None:
    answer = read_answer(value) if isinstance(value, dict) else None
    if answer is not None:
        assert decode(encode(answer)) == answer
        ground("a text", answer)
    assert isinstance(decode(json.dumps(value).encode()), RawAnswer | int)


@pytest.mark.parametrize("raw", [None, b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_damage_is_asked_again(raw: bytes | None) -> None:
    assert decode(raw) == 0
    assert decode(encode(2)) == 2


def test_swapped_relations_are_swapped_and_others_name_only() -> None:
    answer = RawAnswer(
        ("Hetzner",), (("Atlas", "was replaced by", "Borealis"), ("Maria", "admires", "Tom"))
    )
    content = "Hetzner: Atlas was replaced by Borealis, which Maria admires, as Tom does"
    found, _, unmapped = ground(content, answer)
    assert unmapped == 1
    ((subject, relation, thing, *_),) = found.stated
    assert (subject, relation, thing) == ("borealis", "supersedes", "atlas")
    assert {f.name for f in found.found} == {"hetzner", "atlas", "borealis", "maria", "tom"}


def check(content: str, *said: str | tuple[str, str]) -> Grounded:
    """Ground names, and pairs of names of which one works at the other."""
    names = tuple(item for item in said if isinstance(item, str))
    triples = tuple((item[0], "works at", item[1]) for item in said if isinstance(item, tuple))
    return ground(content, RawAnswer(names, triples))


def test_a_name_gets_the_span_of_every_place_in_its_spelling_there() -> None:
    content = "ACME hired Maria. Maria's badge says Acme."
    kept = check(content, "acme", "maria").extraction.found
    assert [(f.surface, f.name) for f in kept] == [
        *[("ACME", "acme"), ("Maria", "maria"), ("Maria's", "maria"), ("Acme", "acme")]
    ]
    assert all(content[f.start : f.end] == f.surface for f in kept)


@pytest.mark.parametrize(
    ("surface", "reason"),
    [
        ("Globex", "not_in_text"),
        ("Mar", "not_in_text"),  # a part of a word
        ("Maria hired", "not_in_text"),  # both words, not together
        ("she", "not_a_name"),
        ("2024", "not_a_name"),
        ("#12", "not_a_name"),
        ("", "not_a_name"),
        ("Maria joined Acme in 2024 and she said 12", "too_long"),
    ],
)
def test_what_does_not_stand_there_or_is_no_name_is_dropped_and_counted(
    surface: str, reason: str
) -> None:
    content = "Maria joined Acme in 2024 and she said 12. It hired her."
    found = check(content, surface, (surface, "Acme"))
    assert found.extraction.stated == ()
    assert {f.name for f in found.extraction.found} == {"acme"}
    assert found.dropped == {reason: 2}


def test_a_statement_spans_from_one_end_to_the_other_of_the_closest_places() -> None:
    content = "Maria left. Later, Maria joined Acme. Globex and Acme merged."
    (kept,) = check(content, ("maria", "ACME")).extraction.stated
    assert content[kept.start : kept.end] == "Maria joined Acme"
    assert kept[:3] == ("maria", "works_at", "acme")
    assert kept[5:] == ("Maria", "Acme")


def test_a_statement_needs_two_names_in_two_places() -> None:
    content = "Acme Labs hired Maria"
    assert check(content, ("Acme", "acme")).dropped == {"same_name": 1}
    assert check(content, ("Acme", "Acme Labs")).dropped == {"overlapping": 1}
    assert check(content, ("Maria", "Globex")).dropped == {"not_in_text": 2}, "the name, too"


def test_scripts_without_spaces_are_looked_for_as_written() -> None:
    content = "マリアは東京都に住む。Bob in Москва"
    found = check(content, "東京都", "МОСКВА", "大阪").extraction.found
    assert [f.surface for f in found] == ["東京都", "Москва"]


def test_places_of_a_name_are_bounded() -> None:
    assert len(check("Acme, " * 100, "Acme").extraction.found) == MAX_PLACES
    assert len(check("東京。" * 100, "東京").extraction.found) == MAX_PLACES


TEXTS = st.text(st.sampled_from("abAB½ﬁ's’.-_東京ß é"), max_size=30)


@given(TEXTS, TEXTS, TEXTS)
def test_whatever_is_kept_stands_in_the_text(content: str, left: str, right: str) -> None:
    kept = check(content, left, (left, right)).extraction
    for item in kept.found:
        assert content[item.start : item.end] == item.surface
        assert fold_name(item.surface) == item.name != ""
    for statement in kept.stated:
        evidence = content[statement.start : statement.end]
        assert statement.subject_surface in evidence
        assert statement.object_surface in evidence
        assert fold_name(statement.subject_surface) == statement.subject
