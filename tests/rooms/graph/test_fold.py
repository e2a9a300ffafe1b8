"""Names in one form, and the names that a query links to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import pytest

from noctuary.graph.fold import concept_id, fold_name, unsegmented_script, words
from noctuary.graph.walk import QUERY_MAX_WORDS, Link, Name, NameTable, link_query


@pytest.mark.parametrize(
    ("name", "folded"),
    [
        ("Dana Whitfield", "dana whitfield"),
        ("  DANA   whitfield\t", "dana whitfield"),
        ("Dana Whitfield's", "dana whitfield"),
        ("Dana Whitfield’s", "dana whitfield"),
        ("O'Brien", "obrien"),
        ("O’Brien", "obrien"),
        ("J.R.R. Tolkien", "j r r tolkien"),
        ("Boot Hill (film)", "boot hill film"),
        ("snake_case-name", "snake case name"),
        ("ＦＵＬＬ width", "full width"),
        ("Straße", "strasse"),
        ("Cafe\u0301", "café"),
        ("ﬁle", "file"),
        ("½ cup", "1 2 cup"),
        ("—!?", ""),
        ("", ""),
    ],
)
def test_spellings_fold_to_the_canonical_form(name: str, folded: str) -> None:
    assert fold_name(name) == folded


def test_words_carry_offsets_that_include_the_possessive() -> None:
    text = "Ask Dana's team."
    assert [(text[w.start : w.end], w.folded) for w in words(text)] == [
        ("Ask", "ask"),
        ("Dana's", "dana"),
        ("team", "team"),
    ]


def test_a_script_without_spaces_ends_at_a_latin_word() -> None:
    assert [w.folded for w in words("我用Kubernetes部署")] == ["我用", "kubernetes", "部署"]


def test_an_indic_word_keeps_its_vowel_signs() -> None:
    assert [w.folded for w in words("हिन्दी भाषा")] == ["हिन्दी", "भाषा"]


@pytest.mark.parametrize(
    ("word", "script"),
    [
        ("我用", "han"),
        ("カナ", "kana"),
        ("ไทย", "thai"),
        ("हिन्दी", None),
        ("дом", None),
        ("a", None),
    ],
)
def test_only_scripts_without_spaces_are_unsegmented(word: str, script: str | None) -> None:
    assert unsegmented_script(word) == script


def test_a_concept_id_is_the_head_of_the_names_hash() -> None:
    assert concept_id("dana whitfield") == hashlib.sha256(b"dana whitfield").hexdigest()[:16]


class _Names:
    """A table of names in memory that counts how often it is asked."""

    def __init__(self, *names: tuple[str, int], cased: Sequence[str] = ()) -> None:
        self.known = {
            fold_name(name): Name(ordinal, 1.0 / (1 + ordinal), name in cased)
            for name, ordinal in names
        }
        self.asked: list[tuple[str, list[str]]] = []

    def longest(self, words: Sequence[str]) -> Mapping[str, int]:
        self.asked.append(("longest", list(words)))
        sizes: dict[str, int] = {}
        for name in self.known:
            first, size = name.split(" ")[0], len(name.split(" "))
            sizes[first] = max(sizes.get(first, 0), size)
        return {word: sizes[word] for word in words if word in sizes}

    def names(self, names: Sequence[str]) -> Mapping[str, Name]:
        self.asked.append(("names", list(names)))
        return {name: self.known[name] for name in names if name in self.known}

    def links(self, query: str) -> tuple[Link, ...]:
        return link_query(query, NameTable(self.longest, self.names))


def _shown(query: str, links: Sequence[Link]) -> list[tuple[int, str]]:
    return [(link.ordinal, query[link.start : link.end]) for link in links]


def test_the_longest_name_wins_and_uses_its_words_up() -> None:
    names = _Names(("atlas", 0), ("atlas migration", 1), ("migration plan", 2), ("plan", 3))
    query = "the Atlas Migration plan of atlas"
    assert _shown(query, names.links(query)) == [(1, "Atlas Migration"), (3, "plan"), (0, "atlas")]


def test_a_longer_name_that_does_not_go_on_gives_way_to_a_shorter_one() -> None:
    names = _Names(("atlas", 0), ("atlas migration plan b", 1))
    query = "atlas migration plan c"
    assert _shown(query, names.links(query)) == [(0, "atlas")]


def test_a_name_cut_off_by_the_end_of_the_query_is_none() -> None:
    names = _Names(("atlas migration plan", 1), ("migration", 2))
    assert _shown("atlas migration", names.links("atlas migration")) == [(2, "migration")]


def test_words_that_no_name_used_up_may_begin_the_next() -> None:
    names = _Names(("new york", 0), ("york minster", 1))
    assert _shown("york minster", names.links("york minster")) == [(1, "york minster")]
    query = "new york minster"
    assert _shown(query, names.links(query)) == [(0, "new york")]


def test_links_carry_the_weight_of_their_name_and_repeat() -> None:
    links = _Names(("atlas", 3)).links("atlas or Atlas")
    assert links == (Link(3, 0.25, 0, 5), Link(3, 0.25, 9, 14))


@pytest.mark.parametrize(
    ("query", "linked"),
    [("will it rain", []), ("Will said so", ["Will"]), ("WILL", ["WILL"]), ("did wiLl", ["wiLl"])],
)
def test_a_cased_name_needs_a_capital(query: str, linked: list[str]) -> None:
    names = _Names(("will", 0), cased=["will"])
    assert [shown for _, shown in _shown(query, names.links(query))] == linked


def test_a_digit_counts_as_a_capital() -> None:
    names = _Names(("k9", 0), cased=["k9"])
    assert _shown("ask k9", names.links("ask k9")) == [(0, "k9")]


def test_a_refused_case_gives_way_to_a_shorter_name() -> None:
    names = _Names(("may day", 0), ("may", 1), ("day", 2), cased=["may day"])
    assert _shown("may day", names.links("may day")) == [(1, "may"), (2, "day")]
    assert _shown("May day", names.links("May day")) == [(0, "May day")]


@pytest.mark.parametrize("query", ["Nina's plan", "Nina\u2019s plan", "nina plan", "NINA'S plan"])
def test_a_possessive_is_the_name_and_lies_in_its_span(query: str) -> None:
    links = _Names(("Nina", 0)).links(query)
    assert _shown(query, links) == [(0, query.split(" ")[0])]


def test_punctuation_between_words_does_not_matter() -> None:
    query = "see billing-api, (v2)"
    links = _Names(("billing api v2", 4)).links(query)
    assert _shown(query, links) == [(4, "billing-api, (v2")]


@pytest.mark.parametrize(
    ("name", "query", "shown"),
    [
        ("Москва", "офис москва?", "москва"),
        ("Straße", "die STRASSE entlang", "STRASSE"),
        ("José", "ask jose\u0301 now", "jose\u0301"),
        ("東京", "where is 東京 ?", "東京"),
        ("ﬁx", "the FIX", "FIX"),
    ],
)
def test_names_of_any_script_link_with_offsets_into_the_query(
    name: str, query: str, shown: str
) -> None:
    assert _shown(query, _Names((name, 1)).links(query)) == [(1, shown)]


def test_exactly_two_look_ups_each_word_and_run_once() -> None:
    names = _Names(("atlas", 0), ("atlas migration", 1), ("plan", 2))
    names.links("atlas migration plan atlas migration no")
    assert [kind for kind, _ in names.asked] == ["longest", "names"]
    assert names.asked[0][1] == ["atlas", "migration", "plan", "no"]
    assert sorted(names.asked[1][1]) == ["atlas", "atlas migration", "plan"]


def test_without_a_word_nothing_is_looked_up() -> None:
    names = _Names(("atlas", 0))
    for query in ("", "   ", "?!", "___"):
        assert names.links(query) == ()
    assert names.asked == []


def test_unknown_words_link_nothing_and_cost_one_look_up() -> None:
    names = _Names(("atlas", 0))
    assert names.links("who knows anything") == ()
    assert [kind for kind, _ in names.asked] == ["longest"]


def test_words_past_the_bound_are_not_looked_at() -> None:
    names = _Names(("atlas", 0), ("no atlas", 1), ("atlas plan", 2))
    last = "no " * (QUERY_MAX_WORDS - 1) + "atlas plan"
    assert _shown(last, names.links(last)) == [(1, "no atlas")]
    assert _shown("no " + last, names.links("no " + last)) == []
    assert max(len(words) for _, words in names.asked) <= QUERY_MAX_WORDS
