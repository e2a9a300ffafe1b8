"""What keeps two names apart: a predicate, an example, a line."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from noctuary.graph import guards
from noctuary.graph.fold import fold_name
from noctuary.graph.guards import (
    GUARDS,
    Guard,
    NameStats,
    Traits,
    joined,
    read_traits,
    refusal,
    singular,
    spelling_key,
    stem,
)


def _traits(*surfaces: str, kind: str = "name", df: int = 1) -> Traits:
    return read_traits(NameStats(fold_name(surfaces[0]), kind, surfaces, df))


def _both_ways(guard: Guard, left: Traits, right: Traits) -> bool:
    answers = {guard(left, right), guard(right, left)}
    assert len(answers) == 1, "a guard must not care which name comes first"
    return answers.pop()


@pytest.mark.parametrize(
    ("guard", "left", "right", "forbids"),
    [
        (guards.short_name, "IDs", "ID s", True),
        (guards.short_name, "the UN", "un", True),
        (guards.differing_numbers, "Charles I of England", "Charles II of England", True),
        (guards.differing_numbers, "budget 2023", "budget 2024", True),
        (guards.differing_numbers, "Part One", "Part Two", True),
        (guards.differing_numbers, "Charlie Chaplin", "Charlie Chaplin 2", True),
        (guards.differing_numbers, "room 12", "room 1 2", True),
        (guards.differing_numbers, "first draft", "second draft", True),
        (guards.differing_versions, "Python 3.11", "Python 3.12", True),
        (guards.differing_versions, "payments API beta", "payments API", True),
        (guards.differing_letters, "plan a for launch", "plan b for launch", True),
        (guards.differing_letters, "John F. Kennedy", "John N. Kennedy", True),
        (guards.differing_capitals, "Maria Anna of Bavaria", "Maria Leopoldine of Bavaria", True),
        (guards.differing_capitals, "Scandinavia", "Scandinavian", True),
        (guards.differing_capitals, "Treaty of Paris", "treaty of Versailles", True),
        (guards.differing_capitals, "New South Wales", "South Wales", True),
        (guards.differing_accents, "Từ Dụ", "Từ Dũ", True),
        (guards.spelled_letters, "B.E.A.T.", "beat", True),
        (guards.differing_qualifiers, "Mercury (planet)", "Mercury (element)", True),
        (guards.differing_qualifiers, "Mercury (planet)", "Mercury", True),
        (guards.opposed, "stable builds", "unstable builds", True),
        (guards.opposed, "blocking checks", "non blocking checks", True),
        (guards.opposed, "allowed", "not allowed", True),
        (guards.opposed, "upload limit", "download limit", True),
        (guards.opposed, "no deploys on Friday", "deploys on Friday", True),
        (guards.proper_plural, "Alien", "Aliens", True),
        (guards.judged_by_spelling, "The Killer", "Killer", True),
        (guards.judged_by_spelling, "Alien", "Aliens", True),
        (guards.narrower, "jazz rock", "jazz", True),
        (guards.narrower, "auth service", "auth", True),
        (guards.narrower, "Empress Dowager Du", "Empress Dowager", True),
        (guards.differing_prepositions, "Slave to Love", "Slave of Love", True),
        (guards.reordered_particles, "Zeid bin Ra'ad", "Ra'ad bin Zeid", True),
        (guards.one_word_repeated, "Side by Side by Side", "Side by Side", True),
        (guards.proper_and_common, "The Matrix", "matrix", True),
        (guards.article_of_one_word, "The Predator", "Predator", True),
        (guards.short_name, "tags", "tag s", False),
        (guards.differing_numbers, "Part Two", "part 2", False),
        (guards.differing_numbers, "Rocky II", "Rocky 2", False),
        (guards.differing_numbers, "area 051", "Area51", False),
        (guards.differing_versions, "Python 3.11", "the Python 3.11", False),
        (guards.differing_letters, "API key", "API keys", False),
        (guards.differing_capitals, "error handling guide", "guide to error handling", False),
        (guards.differing_capitals, "Mac Donald", "MacDonald", False),
        (guards.differing_capitals, "Kingdom of Bavaria", "The Bavaria Kingdom", False),
        (guards.differing_accents, "Beyoncé", "Beyonce", False),
        (guards.spelled_letters, "P.T.S.D.", "PTSD", False),
        (guards.spelled_letters, "e-mail", "email", False),
        (guards.opposed, "error handling", "handling of errors", False),
        (guards.opposed, "into", "to", False),
        (guards.proper_plural, "gotcha", "gotchas", False),
        (guards.judged_by_spelling, "error handling", "handling of errors", False),
        (guards.narrower, "travel plan, travel dates", "travel plan: dates", False),
        (guards.narrower, "error guide", "guide to the errors", False),
        (guards.differing_prepositions, "University of Cambridge", "Cambridge University", False),
        (guards.differing_prepositions, "notes on errors", "notes about errors", False),
        (guards.reordered_particles, "Academy Honorary Award", "Honorary Academy Award", False),
        (guards.one_word_repeated, "travel plan, travel dates", "travel plan: dates", False),
        (guards.proper_and_common, "The Hunger Games", "Hunger Games", False),
        (guards.article_of_one_word, "The Beatles", "Beatles", False),
        (guards.article_of_one_word, "the monorepo", "monorepo", False),
    ],
)
def test_a_guard_forbids_or_lets_pass(guard: Guard, left: str, right: str, forbids: bool) -> None:
    assert _both_ways(guard, _traits(left), _traits(right)) is forbids


def test_code_names_may_be_words_where_only_the_spelling_differs() -> None:
    code = _traits("rule_registry", kind="identifier")
    assert not guards.differing_kinds_spelled(code, _traits("RuleRegistry", kind="quoted"))
    assert guards.differing_kinds_spelled(code, _traits("Rule Registry", kind="speaker"))


@pytest.mark.parametrize(
    ("left", "right", "together"),
    [
        ("name", "title", True),
        ("tag", "speaker", True),
        ("identifier", "tag", False),
        ("session", "session", False),
        ("date", "date", False),
        ("name", "date", False),
        ("a kind of tomorrow", "a kind of tomorrow", False),
    ],
)
def test_kinds_decide_who_may_meet(left: str, right: str, together: bool) -> None:
    names = _traits("release notes", kind=left), _traits("notes on releases", kind=right)
    assert _both_ways(guards.differing_kinds, *names) is not together


def test_two_titles_are_two_works_and_a_mention_is_not() -> None:
    title = _traits("The Circle Line", kind="title")
    assert guards.two_titles(title, _traits("Circle Line", kind="title"))
    assert not guards.two_titles(title, _traits("Circle Line", kind="name"))


@pytest.mark.parametrize(
    ("left", "right", "df", "refused"),
    [
        ("Christ Church", "Christchurch", 3, True),
        ("Christ Church", "Christchurch", 2, False),
        ("Project Altay", "ProjectAltay", 9, False),
        ("code review", "codereview", 9, False),
    ],
)
def test_two_steady_spellings_of_proper_names(
    left: str, right: str, df: int, refused: bool
) -> None:
    names = _traits(left, df=df), _traits(right, df=df)
    assert _both_ways(guards.two_established, *names) is refused


@pytest.mark.parametrize(
    ("qualified", "base", "base_df", "refused"),
    [
        ("Rose (film)", "Rose", 1, False),
        ("Rose (film)", "Rose", 2, True),
        ("Santa Rosa (mountain)", "Santa Rosa", 2, True),
    ],
)
def test_a_base_in_wide_use_is_more_than_its_qualified_name(
    qualified: str, base: str, base_df: int, refused: bool
) -> None:
    names = _traits(qualified), _traits(base, df=base_df)
    assert _both_ways(guards.widely_used_base, *names) is refused


def test_case_is_read_over_all_spellings() -> None:
    seen_both = _traits("Error budget", "error budget")
    assert not seen_both.capitals
    assert not seen_both.proper
    assert _traits("Duke of Kent").proper
    assert _traits("GitHub actions").capitals == {"github"}


def test_the_first_guard_that_bites_gives_the_reason() -> None:
    left, right = _traits("Charles I"), _traits("Karl II")
    assert refusal(left, right, "embedding") == "differing_numbers"
    assert refusal(_traits("deploy guide"), _traits("guide to deploys"), "embedding") == ""


GUARD = {"left": "Traits", "right": "Traits", "return": "bool"}


"""How a guard is declared: two names, and whether they must stay two."""


def test_every_guard_is_asked_by_some_stage() -> None:
    asked = {guard for stage in GUARDS.values() for guard in stage}
    own = {
        value
        for name, value in vars(guards).items()
        if not name.startswith("_") and getattr(value, "__annotations__", None) == GUARD
    }
    assert asked == own
    assert len(own) > 20


@pytest.mark.parametrize(
    ("right", "cosine", "unlike"),
    [
        ("exception handling", 0.95, True),
        ("exception handling", 0.96, False),
        ("errors handled", 0.89, True),
        ("errors handled", 0.9, False),
        ("the handling of errors", 0.8, False),
    ],
)
def test_a_swapped_word_needs_nearer_vectors(right: str, cosine: float, unlike: bool) -> None:
    assert guards.unlike_words(_traits("error handling"), _traits(right), cosine) is unlike


@pytest.mark.parametrize(
    ("form", "words"),
    [
        (singular, {"gotchas": "gotcha", "tags": "tag", "dependencies": "dependency",
                    "classes": "class", "branches": "branch", "boxes": "box", "ties": "tie",
                    "redis": "redis", "class": "class", "status": "status", "news": "news",
                    "gas": "gas"}),
        (stem, {"making": "mak", "make": "mak", "planned": "plan", "finds": "find",
                "bring": "bring", "tie": "tie"}),
        # Spellings share a key, and an article alone is a name.
        (spelling_key, {"e mail": spelling_key("email"), "the api keys": spelling_key("api key"),
                        "beyoncé": spelling_key("beyonce"), "the": "the"}),
    ],
)  # fmt: skip
def test_words_have_these_forms(form: Callable[[str], str], words: dict[str, str]) -> None:
    assert {word: form(word) for word in words} == words


def test_accents_go_from_latin_letters_only() -> None:
    assert joined(["từ", "dũ"]) == "tudu"
    assert joined(["чай"]) == "чай"
    assert joined(["ガイド"]) == "ガイド"
