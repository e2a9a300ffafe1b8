from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.graph.extract import (
    Extraction,
    Found,
    Stated,
    decode_extraction,
    encode_extraction,
    extract,
)
from noctuary.graph.llm import (
    LINK_RELATIONS,
    RELATION_NAMES,
    findings_told,
    merge_extractions,
)
from noctuary.graph.tables import NO_SPAN
from noctuary.sources.source import LINK_TYPES, KnownConcept, KnownEdge, KnownMention, MemoryLink


def told(**given: object) -> dict[str, Extraction]:
    parts = [given.get(name, ()) for name in ("links", "concepts", "mentions", "edges")]
    return findings_told(*parts)  # pyright: ignore[reportArgumentType]


def said(subject: str, relation: str, thing: str, *surfaces: str) -> Stated:
    ends = surfaces or (subject, thing)
    return Stated(subject, relation, thing, NO_SPAN, NO_SPAN, *ends)  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize(
    ("link_type", "relation"),
    [("supersedes", "supersedes"), ("part-of", "part_of"), ("see-also", "has"),
     ("resolved-by", "resolved_by")],
)  # fmt: skip
def test_a_link_is_a_statement_of_the_memory_that_points(link_type: str, relation: str) -> None:
    found = told(links=[MemoryLink("7", "3", link_type, 0, None)])
    assert found == {"7": Extraction((), (said("", relation, "#3"),))}
    assert set(LINK_RELATIONS) == set(LINK_TYPES)


def test_a_mention_is_a_tag_with_the_concepts_aliases() -> None:
    found = told(
        concepts=[KnownConcept("Kubernetes", ("K8s", "kubernetes", " "), "tool"),
                  KnownConcept("Unused", ("U",), "")],
        mentions=[KnownMention("7", "Kubernetes", "about"), KnownMention("7", "--", "about")],
    )  # fmt: skip
    names = ("k8s", "K8s"), ("kubernetes", "Kubernetes"), ("kubernetes", "kubernetes")
    tags = tuple(Found("author", "tag", name, NO_SPAN, NO_SPAN, as_is) for name, as_is in names)
    aliases = (("k8s", "kubernetes", "the store's own alias"),)
    assert found == {"7": Extraction(tags, (), aliases)}


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        ("depends_on", ("atlas", "depends_on", "redis")),
        ("Depends-On", ("atlas", "depends_on", "redis")),
        ("required_by", ("redis", "depends_on", "atlas")),
        ("orbits", ("atlas", "related_to", "redis")),
        ("", ("atlas", "related_to", "redis")),
    ],
)
def test_an_edge_is_a_statement_of_every_memory_behind_it(
    relation: str, expected: tuple[str, str, str]
) -> None:
    found = told(edges=[KnownEdge("Atlas", "Redis", relation, 5, ("3", "7"))])
    assert set(found) == {"3", "7"}
    assert [s[:3] for s in found["3"].stated] == [expected]
    assert found["3"] == found["7"]
    assert all(s.start == NO_SPAN for s in found["3"].stated)


@pytest.mark.parametrize("ends", [("Atlas", "atlas"), ("", "Redis"), ("Redis", "!!")])
def test_an_edge_without_two_names_says_nothing(ends: tuple[str, str]) -> None:
    assert told(edges=[KnownEdge(*ends, "has", 1, ("3",))]) == {}


def test_a_model_is_not_asked_for_what_only_stores_say() -> None:
    assert "related_to" not in RELATION_NAMES
    assert "resolved_by" in RELATION_NAMES


_NAMES = st.sampled_from(["Atlas", "Redis", "K8s", "atlas", "Große Stadt", "", "#3"])
_IDS = st.sampled_from(["1", "2", "drawer_ü"])
_LINKS = st.builds(
    MemoryLink, _IDS, _IDS, st.sampled_from(LINK_TYPES), st.just(0), st.none()
)  # fmt: skip
_CONCEPTS = st.builds(KnownConcept, _NAMES, st.lists(_NAMES, max_size=3).map(tuple), st.just(""))
_MENTIONS = st.builds(KnownMention, _IDS, _NAMES, st.just("about"))
_EDGES = st.builds(
    KnownEdge, _NAMES, _NAMES, st.sampled_from(["has", "uses"]), st.just(1),
    st.lists(_IDS, max_size=2).map(tuple),
)  # fmt: skip


@given(
    st.lists(_LINKS, max_size=4), st.lists(_CONCEPTS, max_size=4), st.lists(_MENTIONS, max_size=4),
    st.lists(_EDGES, max_size=4), st.randoms(),
)  # fmt: skip
def test_the_order_makes_no_difference_and_a_texts_own_findings_stay(
    links: list[MemoryLink],
    concepts: list[KnownConcept],
    mentions: list[KnownMention],
    edges: list[KnownEdge],
    random: object,
) -> None:
    concepts = list({concept.name: concept for concept in concepts}.values())
    found = findings_told(links, concepts, mentions, edges)
    for items in (links, concepts, mentions, edges):
        random.shuffle(items)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    assert findings_told(links, concepts, mentions, edges) == found
    base = extract("Atlas: depends on Redis; supersedes #2.", "K8s")
    base = replace(base, aliases=(("at", "atlas", "said by the text"),))
    for item in found.values():
        both = merge_extractions(base, item)
        assert set(base.found) <= set(both.found)
        assert set(base.stated) <= set(both.stated)
        assert set(base.aliases) <= set(both.aliases)
        assert [s for s in both.stated if s.start != NO_SPAN] == list(base.stated)
        assert decode_extraction(encode_extraction(both)) == both
