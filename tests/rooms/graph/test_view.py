"""What `noctuary graph` shows of a concept, of all concepts and of merges."""

from __future__ import annotations

import tomllib
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US, Origin
from noctuary.graph.view import (
    LINE_CHARACTERS,
    NEAREST_SHOWN,
    NameBook,
    Shown,
    describe_concept,
    evidence_line,
    kinds_of,
    list_merges,
    top_concepts,
    undo_line,
)
from noctuary.graph.view_paths import concept_lines, merge_lines, top_lines
from noctuary.text.marks import clean, cut, day, iso, pad, width
from tests.support.graph_look import Look, Publish, find
from tests.support.graph_snapshot import ConceptSpec, GraphSpec, RelationSpec, office
from tests.support.store import day_us, memory, renumber

_NINA = """\
Nina  (name, 5 memories)
  also: Ninotchka
  held as: about 3, mentions 2
  merged: "ninotchka" is "nina" (alias 1.00: as Ana calls Nina)

memories (5)
  [104]  2026-03-01  about     «Nina» works at Globex now.
  [103]  2026-01-05  about     «Nina» works at Initech.  (superseded 2026-03-01 by [104])
  [102]  2026-01-04  about     «Nina» leads the Atlas migration; Atlas is part of Platform.
  [106]  2026-03-02  mentions  Офис «Nina»: Москва, рядом с Globex.
  [105]  2026-01-08  mentions  «Ninotchka», as Ana calls Nina, likes Secret Garden.

stated relations (3)
  -> works at  Globex         since 2026-03-01, open; said by [104] [106]
  -> prefers   Secret Garden  since 2026-01-08, open; said by [105]
  -> works at  Initech        2026-01-05 to 2026-03-01, closed by [104]; said by [103]

near (1 of 6)
    1.15  Globex  name, shares 2 of its 3 memories

leads to (2)
  [102]  2026-01-04  from 2 memories  Nina leads the Atlas migration; Atlas is part of Platform.
  [104]  2026-03-01  from 1 memory  Nina works at Globex now."""


def show(look: Look, name: str, limit: int = 10, **scope: object) -> Shown:
    source = look(**scope)
    return describe_concept(source, *find(source, name), limit)


def relations(shown: Shown) -> list[tuple[str, str, bool]]:
    return [(r["relation"], r["other"], r["open"]) for r in shown["relations"]]


def replaced_by(shown: Shown) -> dict[int, int | None]:
    return {m["id"]: m["replaced_by"] for m in shown["memories"]}


def test_a_concept_as_text(look: Look) -> None:
    nina = show(look, "Nina", user="ana")
    nina = {**nina, "neighbours": nina["neighbours"][:1]}
    assert "\n".join(concept_lines(nina)) == _NINA


def test_what_another_user_says_is_not_there(look: Look) -> None:
    nina = show(look, "nina")
    assert nina["concept"]["memories"] == nina["totals"]["memories"] == 4
    assert nina["concept"]["aliases"] == nina["merges"] == []
    assert 105 not in [m["id"] for m in nina["memories"]]
    assert relations(nina) == [("works_at", "Globex", True), ("works_at", "Initech", False)]
    assert "Secret Garden" not in [n["name"] for n in nina["neighbours"]]
    assert nina["steps"][0]["sources"] == 1, "[105] leads there as well"
    ana = show(look, "nina", user="ana")
    assert (ana["concept"]["memories"], ana["concept"]["aliases"]) == (5, ["Ninotchka"])
    assert [m["name"] for m in ana["merges"]] == ["ninotchka"]
    assert ("prefers", "Secret Garden", True) in relations(ana)


def test_a_name_that_only_a_hidden_memory_holds_shows_nothing(publish: Publish) -> None:
    """The canonical name itself comes from Ben's memory: others see the spelling of their own."""
    ben, falcon = memory("Project Kestrel is late.", user="ben"), memory("FALCON is on the list.")
    records = renumber([ben, falcon, memory("No name in here.", tags="falcon two, other")])
    held = (0, "about", "Project Kestrel"), (1, "mentions", "FALCON"), (2, "author", None)
    kestrel = ConceptSpec("Project Kestrel", "name", held, ("FALCON", "falcon two"))
    look = publish(GraphSpec(records, [kestrel]))
    seen = show(look, "falcon")["concept"]
    assert (seen["name"], seen["aliases"], seen["memories"]) == ("FALCON", ["falcon two"], 2)
    assert NameBook(look()).find("Project Kestrel") is None
    assert NameBook(look()).nearest("Project Kestrel") == ()
    assert show(look, "project kestrel", user="ben") == show(look, "falcon", user="ben")


def test_a_relation_before_and_after_it_was_superseded(look: Look) -> None:
    before, last, after = (
        show(look, "nina", as_of_us=at) for at in (day_us(30), day_us(60) - 1, day_us(60))
    )
    assert relations(before) == [("works_at", "Initech", False)], "it held, and we know its end"
    assert relations(last) == relations(before), "the end is exclusive"
    assert relations(after) == [("works_at", "Globex", True)]
    assert before["relations"][0]["closed_by"] == 104
    assert replaced_by(before) == {103: None, 102: None}
    assert replaced_by(after) == {104: None, 103: 104, 102: None}
    assert before["steps"] == []
    assert (before["as_of"], before["concept"]["memories"]) == (iso(day_us(30)), 2)


def test_what_the_store_had_not_written_is_not_known(look: Look) -> None:
    """[104] is dated day 60 and was written on day 62: until then nothing had ended."""
    unknown = show(look, "nina", known_at_us=day_us(61))
    assert relations(unknown) == [("works_at", "Globex", True), ("works_at", "Initech", True)]
    first = unknown["relations"][0]
    assert (first["evidence"], first["weight"]) == ([106], 0.5)
    assert first["valid_from"] == iso(day_us(61))
    assert [s["id"] for s in unknown["steps"]] == [102, 103], "the step was open as well"
    known = show(look, "nina", known_at_us=day_us(62))
    assert relations(known) == relations(show(look, "nina"))
    assert known["relations"][0]["weight"] == pytest.approx(1 - 1 / 3, abs=1e-6)


def test_an_end_that_only_a_hidden_memory_knows_is_none(publish: Publish) -> None:
    records = renumber(
        [
            memory("Nina works at Initech.", created_at_us=day_us(1)),
            memory("Nina works at Globex.", created_at_us=day_us(5), user="ben"),
        ]
    )
    spec = GraphSpec(
        records,
        [
            ConceptSpec("Nina", "name", ((0, "about", "Nina"), (1, "about", "Nina"))),
            ConceptSpec("Initech", "name", ((0, "mentions", "Initech"),)),
        ],
        [RelationSpec("Nina", "works_at", "Initech", (0,), closer=1)],
        supersessions=[(0, 1)],
    )
    look = publish(spec)
    assert relations(show(look, "nina")) == [("works_at", "Initech", True)]
    assert show(look, "nina")["memories"][0]["replaced_by"] is None
    assert relations(show(look, "nina", user="ben")) == [("works_at", "Initech", False)]


def test_a_relation_is_trusted_like_the_least_of_those_that_state_it(publish: Publish) -> None:
    said = (("Initech", Origin.USER), ("Initech", Origin.TOOL), ("Globex", Origin.USER))
    records = renumber(
        [
            memory(f"Nina works at {at}.", created_at_us=day_us(day), origin=origin)
            for day, (at, origin) in enumerate(said, 1)
        ]
    )
    spec = GraphSpec(
        records,
        [
            ConceptSpec("Nina", "name", tuple((n, "about", "Nina") for n in range(3))),
            ConceptSpec("Initech", "name", ((0, "mentions", "Initech"),)),
            ConceptSpec("Globex", "name", ((2, "mentions", "Globex"),)),
        ],
        [
            RelationSpec("Nina", "works_at", "Initech", (0, 1)),
            RelationSpec("Nina", "works_at", "Globex", (2,)),
        ],
    )
    shown = show(publish(spec), "nina")["relations"]
    assert {r["other"]: r["written_by"] for r in shown} == {"Initech": "tool", "Globex": "user"}


def test_relations_are_seen_from_both_ends(look: Look) -> None:
    (inward,) = show(look, "Platform")["relations"]
    assert (inward["direction"], inward["other"]) == ("in", "Atlas migration")
    assert inward["evidence"] == [102]
    (outward,) = show(look, "Atlas")["relations"]
    assert (outward["direction"], outward["other"]) == ("out", "Platform")


def test_evidence_is_marked_in_its_line_and_the_strongest_role_counts(look: Look) -> None:
    def evidence(memory: Shown) -> str:
        return memory["line"][slice(*memory["span"])]

    first, second = show(look, "atlas")["memories"]
    assert (first["line"], evidence(first)) == ("# Atlas migration", "Atlas migration")
    assert (second["role"], evidence(second)) == ("mentions", "Atlas")
    (boiler,) = show(look, "boiler")["memories"]
    assert (boiler["role"], evidence(boiler)) == ("mentions", "boiler")
    assert show(look, "boiler")["concept"]["roles"] == {"mentions": 1, "author": 1}
    platform = {m["id"]: m for m in show(look, "platform")["memories"]}
    assert platform[108]["span"] is None, "an author field has no place in the content"


@pytest.mark.parametrize(
    ("typed", "name"),
    [("  NINA ", "Nina"), ("МОСКВА", "Москва"), ("東京", "東京"),
     ("atlas-migration", "Atlas migration")],
)  # fmt: skip
def test_a_name_is_found_however_it_is_written(look: Look, typed: str, name: str) -> None:
    assert show(look, typed)["concept"]["name"] == name


def test_an_undated_memory_has_always_existed(look: Look) -> None:
    tokyo = show(look, "東京", as_of_us=day_us(1))
    assert tokyo["memories"][0]["created_at"] is None
    assert "undated" in "\n".join(concept_lines(tokyo))
    assert tokyo["memories"][0]["line"] == "東京オフィスは Globex です。"


def test_a_filter_narrows_everything(look: Look) -> None:
    nina = show(look, "nina", wing="work")
    assert (nina["concept"]["memories"], nina["relations"], nina["steps"]) == (1, [], [])
    assert {n["name"] for n in nina["neighbours"]} == {"Atlas migration", "Platform"}


def test_a_limit_cuts_lists_and_no_total(look: Look) -> None:
    nina = show(look, "nina", limit=1)
    assert [len(nina[name]) for name in ("memories", "relations", "neighbours")] == [1, 1, 1]
    assert nina["totals"] == {
        "merges": 0, "memories": 4, "relations": 2, "neighbours": 5, "steps": 2,
    }  # fmt: skip
    assert "memories (1 of 4)" in list(concept_lines(nina))
    none = show(look, "nina", limit=0)
    assert none["totals"] == nina["totals"]


def test_a_concept_alone_has_only_its_memory(look: Look) -> None:
    lines = list(concept_lines(show(look, "lighthouse")))
    assert lines == [
        "Lighthouse  (name, 1 memory)",
        "  held as: about 1",
        "",
        "memories (1)",
        "  [109]  2026-01-11  about     A lonely note about the «Lighthouse».",
    ]


def test_the_order_of_the_input_makes_no_difference(look: Look, publish: Publish) -> None:
    spec = office()
    names = "concepts", "relations", "steps", "merges"
    other = publish(replace(spec, **{name: getattr(spec, name)[::-1] for name in names}))
    for name in ("nina", "atlas", "globex"):
        assert show(other, name, user="ana") == show(look, name, user="ana")


def test_nothing_is_described_that_may_not_be_seen(look: Look) -> None:
    source = look(user="ana")
    book, ordinal = find(source, "Secret Garden")
    assert book.shown(ordinal) == "Secret Garden"
    hidden = look()
    with pytest.raises(ValueError, match="expected one that may be seen"):
        describe_concept(hidden, NameBook(hidden), ordinal, 10)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("globx", "Globex"), ("lobex", "Globex"), ("migration", "Atlas migration"),
     ("Атлас Москва", "Москва"), ("", None), ("!!!", None), ("zzzzzzzzzzzz", None),
     ("\ud800", None)],
)  # fmt: skip
def test_an_unknown_name_has_similar_ones(look: Look, typed: str, expected: str | None) -> None:
    book = NameBook(look())
    assert book.find(typed) is None
    nearest = book.nearest(typed)
    assert nearest == () if expected is None else expected in nearest


def test_hidden_names_are_not_offered(look: Look) -> None:
    assert NameBook(look()).nearest("secret gardn") == ()
    assert NameBook(look()).nearest("ninotchk") == ("Initech",)
    assert NameBook(look(user="ana")).nearest("ninotchk")[0] == "Nina"
    assert NameBook(look(user="ana")).nearest("secret gardn") == ("Secret Garden",)
    assert NameBook(look()).find("ninotchka") is None
    assert NameBook(look(user="ana")).find("ninotchka") is not None


def test_of_two_concepts_the_one_of_that_name_comes_first(publish: Publish) -> None:
    """An alias of a large concept must not hide the small one that is called so."""
    records = renumber([memory("Mercury rises."), memory("Venus, or Mercury."), memory("Venus.")])
    spec = GraphSpec(
        records,
        [
            ConceptSpec("Venus", "name", ((1, "about", "Venus"), (2, "about", "Venus")),
                        ("mercury",)),
            ConceptSpec("Mercury", "name", ((0, "about", "Mercury"),)),
        ],
    )  # fmt: skip
    book = NameBook(publish(spec)())
    found = book.find("mercury")
    assert found is not None
    assert book.shown(found) == "Mercury"


def test_the_offer_is_short(publish: Publish) -> None:
    names = [f"alpha {i}" for i in range(20)]
    records = renumber([memory(f"{name}.") for name in names])
    spec = GraphSpec(
        records,
        [ConceptSpec(name, "name", ((i, "about", name),)) for i, name in enumerate(names)],
    )
    assert len(NameBook(publish(spec)()).nearest("alpha")) == NEAREST_SHOWN


def top(look: Look, limit: int = 3, kind: str | None = None, **scope: object) -> list[Shown]:
    source = look(**scope)
    return top_concepts(source, NameBook(source), limit, kind)


def test_the_most_connected_come_first(look: Look) -> None:
    def counts(rows: list[Shown]) -> list[tuple[object, ...]]:
        return [tuple(row.values()) for row in rows]

    assert list(top(look)[0]) == ["name", "kind", "memories", "relations", "steps"]
    assert counts(top(look)) == [
        ("Nina", "name", 4, 1, 2), ("Atlas migration", "heading", 2, 1, 1),
        ("Globex", "name", 3, 1, 0),
    ]  # fmt: skip
    assert counts(top(look, user="ana"))[0] == ("Nina", "name", 5, 2, 3)
    assert top(look, as_of_us=day_us(30))[0]["memories"] == 2


def test_a_kind_narrows_and_the_kinds_are_those_that_may_be_seen(look: Look) -> None:
    assert [one["name"] for one in top(look, kind="tag")] == ["Platform", "boiler"]
    assert top(look, kind="nothing") == []
    assert kinds_of(look()) == ("heading", "name", "tag")
    assert kinds_of(look(wing="home")) == ("tag",)


def test_the_table_is_aligned(look: Look) -> None:
    lines = list(top_lines(top(look, limit=10)))
    assert lines[0] == "concept          kind     memories  relations     steps"
    assert lines[1] == "Nina             name            4          1         2"
    assert "東京             name            1          0         0" in lines, "Han is two wide"


def test_merges_are_those_of_names_that_may_be_seen_and_an_undo_is_toml(look: Look) -> None:
    def names(**scope: object) -> list[str]:
        source = look(**scope)
        return [merge["name"] for merge in list_merges(source, NameBook(source))]

    assert names() == ["atlas"]
    assert names(user="ana") == ["atlas", "ninotchka"]
    assert names(wing="home") == []
    pair = ['a "quoted" \\ name', "имя"]
    assert tomllib.loads(undo_line(*pair)) == {"never": [pair]}


def test_merges_as_text() -> None:
    merge = {
        "name": "atlas", "canonical": "atlas migration", "reason": "alias", "score": 1.0,
        "detail": "Atlas migration (Atlas)", "undo": 'never = [["atlas", "atlas migration"]]',
    }  # fmt: skip
    assert list(merge_lines([merge], 3, "store/merges.toml")) == [
        '"atlas" is "atlas migration" (alias 1.00: Atlas migration (Atlas))',
        "... and 2 more (--limit)",
        "",
        "to undo one, add its pair to `never` in store/merges.toml; it holds from the next",
        'night on. For the first: never = [["atlas", "atlas migration"]]',
    ]
    assert list(merge_lines([], 0, "merges.toml")) == ["no names were merged"]


def test_a_graph_without_concepts(publish: Publish) -> None:
    source = publish(GraphSpec(renumber([memory("Nothing named.")])))()
    book = NameBook(source)
    assert top_concepts(source, book, 10) == []
    assert kinds_of(source) == ()
    assert list_merges(source, book) == []
    assert (book.find("x"), book.nearest("x")) == (None, ())


ANY_TEXT = st.text(st.characters())  # lone surrogates included


@given(ANY_TEXT)
def test_a_clean_text_is_one_line_that_steers_nothing(text: str) -> None:
    shown = clean(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cs") for c in shown)
    assert not set(shown) & set("\u202e\u2066\n\r\x1b")
    assert clean(shown) == shown
    shown.encode("utf-8")


@given(ANY_TEXT.map(clean), st.integers(1, 30))
def test_a_cut_text_fits(text: str, columns: int) -> None:
    assert width(cut(text, columns)) <= columns
    assert (cut(text, columns) == text) == (width(text) <= columns)
    assert width(pad(cut(text, columns), columns)) == columns


def test_wide_letters_take_two_columns_and_marks_none() -> None:
    assert (width("東京"), width("Москва"), width("e\u0301")) == (4, 6, 1)
    assert cut("東京オフィス", 5) == "東京…"


def test_dates() -> None:
    assert (day(day_us(2)), day(day_us(2) + 90_000_000)) == ("2026-01-02", "2026-01-02 00:01")
    assert (day(UNDATED_US), iso(UNDATED_US)) == ("undated", None)
    assert (day(2**62), iso(2**62), iso(None)) == ("undated", None, None)
    assert iso(day_us(2)) == "2026-01-02T00:00:00+00:00"


@given(ANY_TEXT, st.integers(-1, 300), st.integers(-1, 300))
def test_the_evidence_stands_where_the_line_says(content: str, start: int, end: int) -> None:
    line, span = evidence_line(content, start, end)
    if 0 <= start < end <= len(content):
        assert span is not None
        assert line[slice(*span)] == clean(content[start:end])
    else:
        assert span is None
        assert len(line) <= LINE_CHARACTERS + 1


def test_a_long_line_keeps_what_is_around_the_evidence() -> None:
    content = "first line\n" + "before " * 40 + "HERE" + " after" * 40 + "\nlast line"
    at = content.index("HERE")
    line, span = evidence_line(content, at, at + 4)
    assert span is not None
    assert line[slice(*span)] == "HERE"
    assert line.startswith("…")
    assert line.endswith("…")
    assert "first" not in line
    assert len(line) <= LINE_CHARACTERS + 2
    assert evidence_line("\n  \n# Title\nbody", -1, -1) == ("# Title", None)
