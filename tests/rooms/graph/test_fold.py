"""Names in one form, and the names that a query links to."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import pytest

from noctuary.graph.fold import (
    QUERY_MAX_WORDS,
    Link,
    Name,
    NameTable,
    concept_id,
    fold_name,
    link_query,
    unsegmented_script,
    words,
)


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


@pytest.mark.parametrize(
    ("text", "spans", "folded"),
    [
        ("Ask Dana's team.", ["Ask", "Dana's", "team"], ["ask", "dana", "team"]),
        ("我用Kubernetes部署", ["我用", "Kubernetes", "部署"], ["我用", "kubernetes", "部署"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"], ["हिन्दी", "भाषा"]),
    ],
)
def test_words_carry_offsets_that_include_the_possessive(
    text: str, spans: list[str], folded: list[str]
) -> None:
    found = words(text)
    assert [text[w.start : w.end] for w in found] == spans
    assert [w.folded for w in found] == folded


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


ATLAS = ("atlas", "atlas migration", "migration plan", "plan")
YORK = ("new york", "york minster")
MAY = ("may day", "may", "day")


@pytest.mark.parametrize(
    ("names", "cased", "query", "shown"),
    [
        # The longest name wins and uses its words up; what does not go on gives way.
        (ATLAS, "", "the Atlas Migration plan of atlas",
         [(1, "Atlas Migration"), (3, "plan"), (0, "atlas")]),
        (("atlas", "atlas migration plan b"), "", "atlas migration plan c", [(0, "atlas")]),
        (("atlas migration plan", "migration"), "", "atlas migration", [(1, "migration")]),
        (YORK, "", "york minster", [(1, "york minster")]),
        (YORK, "", "new york minster", [(0, "new york")]),
        # A cased name needs a capital or a digit.
        (("will",), "will", "will it rain", []),
        (("will",), "will", "Will said so", [(0, "Will")]),
        (("will",), "will", "WILL", [(0, "WILL")]),
        (("will",), "will", "did wiLl", [(0, "wiLl")]),
        (("k9",), "k9", "ask k9", [(0, "k9")]),
        (MAY, "may day", "may day", [(1, "may"), (2, "day")]),
        (MAY, "may day", "May day", [(1, "May"), (2, "day")]),
        (MAY, "may day", "May Day", [(0, "May Day")]),
        # A possessive is the name and lies in its span; punctuation does not matter.
        (("Nina",), "", "Nina's plan", [(0, "Nina's")]),
        (("Nina",), "", "Nina\u2019s plan", [(0, "Nina\u2019s")]),
        (("Nina",), "", "NINA'S plan", [(0, "NINA'S")]),
        (("billing api v2",), "", "see billing-api, (v2)", [(0, "billing-api, (v2")]),
        # Any script.
        (("Москва",), "", "офис москва?", [(0, "москва")]),
        (("Straße",), "", "die STRASSE entlang", [(0, "STRASSE")]),
        (("José",), "", "ask jose\u0301 now", [(0, "jose\u0301")]),
        (("東京",), "", "where is 東京 ?", [(0, "東京")]),
        (("ﬁx",), "", "the FIX", [(0, "FIX")]),
    ],
)  # fmt: skip
def test_a_query_links_to_the_names_in_it(
    names: tuple[str, ...], cased: str, query: str, shown: list[tuple[int, str]]
) -> None:
    table = _Names(*((name, ordinal) for ordinal, name in enumerate(names)), cased=[cased])
    links = table.links(query)
    assert _shown(query, links) == shown
    assert [link.weight for link in links] == [1.0 / (1 + link.ordinal) for link in links]


def test_exactly_two_look_ups_each_word_and_run_once() -> None:
    names = _Names(("atlas", 0), ("atlas migration", 1), ("plan", 2))
    names.links("atlas migration plan atlas migration no")
    assert [kind for kind, _ in names.asked] == ["longest", "names"]
    assert names.asked[0][1] == ["atlas", "migration", "plan", "no"]
    assert sorted(names.asked[1][1]) == ["atlas", "atlas migration", "plan"]
    assert names.links("who knows anything") == ()
    assert [kind for kind, _ in names.asked[2:]] == ["longest"], "unknown words cost one"
    assert [names.links(query) for query in ("", "   ", "?!", "___")] == [()] * 4
    assert len(names.asked) == 3


def test_words_past_the_bound_are_not_looked_at() -> None:
    names = _Names(("atlas", 0), ("no atlas", 1), ("atlas plan", 2))
    last = "no " * (QUERY_MAX_WORDS - 1) + "atlas plan"
    assert _shown(last, names.links(last)) == [(1, "no atlas")]
    assert _shown("no " + last, names.links("no " + last)) == []
    assert max(len(words) for _, words in names.asked) <= QUERY_MAX_WORDS
