"""Only what stands in the text is kept, at the places where it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.graph.extraction import Extraction, Found, Stated
from noctuary.graph.fold import fold_name
from noctuary.graph.model import NO_SPAN, Role
from noctuary.graph.plugins.places import MAX_PLACES, Places
from noctuary.graph.plugins.verify import Verified, verify_extraction


def named(surface: str, start: int = NO_SPAN, end: int = NO_SPAN, role: Role = "mentions") -> Found:
    return Found(role, "name", fold_name(surface), start, end, surface)


def said(subject: str, thing: str) -> Stated:
    return Stated(
        fold_name(subject), "works_at", fold_name(thing), NO_SPAN, NO_SPAN, subject, thing
    )


def check(content: str, *proposed: Found | Stated) -> Verified:
    return verify_extraction(
        content,
        Extraction(
            tuple(item for item in proposed if isinstance(item, Found)),
            tuple(item for item in proposed if isinstance(item, Stated)),
        ),
    )


def test_a_name_gets_the_span_of_every_place_in_its_spelling_there() -> None:
    content = "ACME hired Maria. Maria's badge says Acme."
    kept = check(content, named("acme"), named("maria")).extraction.found
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
    found = check(content, named(surface), said(surface, "Acme"))
    assert found.extraction == Extraction(())
    assert found.dropped == {reason: 2}


def test_a_span_that_lies_is_looked_up_anew_and_a_true_one_is_kept_to() -> None:
    content = "Acme and Acme"
    assert [f.start for f in check(content, named("Acme", 9, 13)).extraction.found] == [9]
    assert [f.start for f in check(content, named("Acme", 4, 8)).extraction.found] == [0, 9]
    assert check(content, named("Globex", 0, 4)).dropped == {"not_in_text": 1}


def test_a_name_that_says_another_than_its_surface_is_folded_anew() -> None:
    liar = Found("mentions", "name", "globex", 0, 4, "Acme")
    (kept,) = check("Acme", liar).extraction.found
    assert kept.name == "acme"


def test_plugins_name_no_authors_and_no_speakers() -> None:
    roles: tuple[Role, ...] = ("author", "speaker", "about")
    found = check("Acme", *(named("Acme", role=role) for role in roles)).extraction.found
    assert [f.role for f in found] == ["about", "mentions"]


def test_a_statement_spans_from_one_end_to_the_other_of_the_closest_places() -> None:
    content = "Maria left. Later, Maria joined Acme. Globex and Acme merged."
    (kept,) = check(content, said("maria", "ACME")).extraction.stated
    assert content[kept.start : kept.end] == "Maria joined Acme"
    assert kept[:3] == ("maria", "works_at", "acme")
    assert kept[5:] == ("Maria", "Acme")


def test_a_statement_needs_two_names_in_two_places() -> None:
    content = "Acme Labs hired Maria"
    assert check(content, said("Acme", "acme")).dropped == {"same_name": 1}
    assert check(content, said("Acme", "Acme Labs")).dropped == {"overlapping": 1}
    assert check(content, said("Maria", "Globex")).dropped == {"not_in_text": 1}


def test_scripts_without_spaces_are_looked_for_as_written() -> None:
    content = "マリアは東京都に住む。Bob in Москва"
    found = check(content, named("東京都"), named("МОСКВА"), named("大阪")).extraction.found
    assert [f.surface for f in found] == ["東京都", "Москва"]


def test_places_of_a_name_are_bounded() -> None:
    assert len(Places("Acme, " * 100).find("Acme")) == MAX_PLACES
    assert len(Places("東京。" * 100).find("東京")) == MAX_PLACES


TEXTS = st.text(st.sampled_from("abAB½ﬁ's’.-_東京ß é"), max_size=30)


@given(TEXTS, TEXTS, TEXTS)
def test_whatever_is_kept_stands_in_the_text(content: str, left: str, right: str) -> None:
    kept = check(content, named(left), said(left, right)).extraction
    for item in kept.found:
        assert content[item.start : item.end] == item.surface
        assert fold_name(item.surface) == item.name != ""
    for statement in kept.stated:
        evidence = content[statement.start : statement.end]
        assert statement.subject_surface in evidence
        assert statement.object_surface in evidence
        assert fold_name(statement.subject_surface) == statement.subject


@given(TEXTS)
def test_verifying_again_changes_nothing(content: str) -> None:
    once = check(content, named("ab"), named("東京"), said("a", "b")).extraction
    assert verify_extraction(content, once).extraction == once
