"""Both findings, nothing of the rules changed."""

from __future__ import annotations

from itertools import permutations

from noctuary.graph.extract import Extraction, Found, Stated, extract
from noctuary.graph.llm import merge_extractions
from noctuary.graph.tables import NO_SPAN, Role


def at(start: int, name: str, role: Role = "mentions", kind: str = "name") -> Found:
    return Found(role, kind, name, start, start + len(name), name)


def says(start: int, subject: str, thing: str) -> Stated:
    return Stated(subject, "is_a", thing, start, start + 9, subject, thing)


def test_nothing_added_is_what_the_rules_found() -> None:
    base = extract("Atlas: Maria moved the backup to Hetzner", tags="ops", is_turn=False)
    assert base.found
    assert merge_extractions(base, Extraction(())) == base
    assert merge_extractions(base, base) == base


def test_the_union_is_in_order_whatever_the_order_of_the_proposals() -> None:
    base = Extraction((at(5, "b"),), (says(5, "b", "c"),))
    more = (at(9, "c"), at(0, "a"), at(20, "b"))
    statements = (says(50, "b", "c"), says(0, "a", "c"))
    results = {
        merge_extractions(base, Extraction(order, tuple(two)))
        for order in permutations(more)
        for two in permutations(statements)
    }
    (merged,) = results
    assert [f.start for f in merged.found] == [0, 5, 9, 20]
    assert [s.start for s in merged.stated] == [0, 5, 50]


def test_where_the_rules_found_the_same_theirs_stays() -> None:
    own = at(5, "acme", kind="identifier")
    wider = Found("mentions", "name", "acme", 5, 11, "acme's")
    base = Extraction((own,), (says(5, "b", "c"),))
    merged = merge_extractions(base, Extraction((wider,), (says(7, "b", "c"),)))
    assert merged == base


def test_what_the_memory_is_about_is_not_also_mentioned() -> None:
    about, speaker = at(0, "atlas", "about", "title"), at(10, "ann", "speaker", "speaker")
    base = Extraction((about, speaker))
    assert merge_extractions(base, Extraction((at(30, "atlas"), at(40, "ann")))) == base
    turned = merge_extractions(base, Extraction((at(30, "atlas", "about"),)))
    assert turned.found[-1] == at(30, "atlas", "about")


def test_a_tag_does_not_stand_for_a_place_in_the_text() -> None:
    tag = Found("author", "tag", "acme", NO_SPAN, NO_SPAN, "acme")
    merged = merge_extractions(Extraction((tag,)), Extraction((at(0, "acme"),)))
    assert merged.found == (tag, at(0, "acme"))
