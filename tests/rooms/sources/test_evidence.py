"""What a store says about its memories leaves it only with exported memories that back it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.core.errors import StoreError
from noctuary.sources.evidence import (
    EVIDENCE_FILES,
    EvidenceCounts,
    find_backed_names,
    read_evidence,
    write_evidence,
)
from noctuary.sources.export import export_corpus
from noctuary.sources.jsonl import JsonlSource
from noctuary.sources.source import KnownConcept, KnownEdge, KnownMention, MemoryLink, Share, Told
from noctuary.sources.turns import CombinedSource
from tests.rooms.sources.conftest import MakeJsonl
from tests.support.store import memory


class Known(NamedTuple):
    concepts: tuple[KnownConcept, ...] = ()
    mentions: tuple[KnownMention, ...] = ()
    edges: tuple[KnownEdge, ...] = ()


def read_known(out: Path) -> Known:
    return Known(
        read_evidence(out, KnownConcept),
        read_evidence(out, KnownMention),
        read_evidence(out, KnownEdge),
    )


TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


class SayingSource(JsonlSource):
    """A file of rows whose owner says more about them."""

    def __init__(self, path: Path, *said: Any) -> None:
        super().__init__(path)
        self._said = said

    def told(self, noun: type[Told]) -> Iterator[Told]:
        """Yield what was said of one kind."""
        yield from (value for value in self._said if isinstance(value, noun))


@dataclass
class Corpus:
    """An exported corpus, and what is said about it."""

    source: Path
    out: Path
    counts: EvidenceCounts = field(default_factory=EvidenceCounts)

    def write(self, *said: Any) -> dict[str, bytes]:
        """Write what is said; the bytes of the tables."""
        with SayingSource(self.source, *said) as source:
            self.counts = write_evidence(source, self.out)
        return self.tables()

    def tables(self) -> dict[str, bytes]:
        return {n: (self.out / n).read_bytes() for n in EVIDENCE_FILES if (self.out / n).exists()}


@pytest.fixture
def corpus(make_jsonl: MakeJsonl, tmp_path: Path) -> Corpus:
    """Rows a to c are exported; s is sensitive, d is deleted."""
    rows: list[Mapping[str, object]] = [
        {"id": "a", "content": "The Harbour-master keeps the key.", "tags": "boat,K8s"},
        {"id": "b", "content": "Kubernetes runs the tide tables."},
        {"id": "c", "content": "港口 数据库 opens at six."},
        {"id": "s", "content": "The vault of the lighthouse.", "is_sensitive": True},
        {"id": "d", "content": "A deleted lagoon.", "deleted_at": "2026-01-01"},
    ]
    path = make_jsonl(rows)
    with JsonlSource(path) as source:
        assert export_corpus(source, tmp_path / "corpus").exported == 3
    return Corpus(path, tmp_path / "corpus")


def link(one: str, other: str, kind: str = "supersedes") -> MemoryLink:
    return MemoryLink(one, other, kind, 5, None)


def test_a_store_that_says_nothing_leaves_no_table(corpus: Corpus) -> None:
    assert corpus.write() == {}
    assert [*corpus.write(link("a", "b"))] == ["links.parquet"]
    assert corpus.write() == {}
    corpus.write(link("a", "b"))
    # Another source in its place, of a kind that never says anything.
    with JsonlSource(corpus.source) as source:
        assert write_evidence(source, corpus.out) == EvidenceCounts()
    assert corpus.tables() == {}
    assert read_evidence(corpus.out, MemoryLink) == read_evidence(corpus.out, Share) == ()
    assert read_known(corpus.out) == Known()


def test_a_link_needs_both_ends_and_a_type_a_share_memory_and_reader(corpus: Corpus) -> None:
    kept = (link("b", "a"), link("b", "a", "part-of"), link("a", "c")._replace(user="zoe"))
    lost = (link("a", "s"), link("s", "a"), link("d", "a"), link("a", "x"), link("a", "a"))
    shares = (Share("b", "zoe"), Share("a", "zoe"), Share("s", "zoe"), Share("a", ""))
    corpus.write(*kept, *lost, kept[0], link("a", "b", "blocks"), *shares, shares[0])
    assert read_evidence(corpus.out, MemoryLink) == (kept[2], kept[1], kept[0])
    assert read_evidence(corpus.out, Share) == (Share("a", "zoe"), Share("b", "zoe"))
    assert corpus.counts == EvidenceCounts(links=3, shares=2, left_out=6 + 2)


def test_a_name_leaves_only_where_a_memory_about_it_says_it(corpus: Corpus) -> None:
    concepts = (
        KnownConcept("harbour master", ("port captain", "the key"), "person"),
        KnownConcept("lighthouse", ("tower",), "place"),  # only the sensitive row says it
        KnownConcept("container scheduler", ("kubernetes", "k8s"), "tool"),
        KnownConcept("lagoon", (), "place"),
        KnownConcept("数据库", ("港口",), ""),
        KnownConcept("tables", (), ""),  # said by b, but nothing says that b is about it
    )
    mentions = (
        KnownMention("a", "harbour master", "about"),
        KnownMention("s", "harbour master", "hides"),
        KnownMention("s", "lighthouse", "about"),
        KnownMention("b", "lighthouse", "about"),
        KnownMention("b", "container scheduler", "uses"),
        KnownMention("d", "lagoon", "about"),
        KnownMention("c", "数据库", "about"),
    )
    edges = (
        KnownEdge("harbour master", "container scheduler", "runs", 2, ("a", "s", "x")),
        KnownEdge("harbour master", "lighthouse", "guards", 1, ("a",)),
        KnownEdge("lighthouse", "harbour master", "hides", 1, ("s",)),
    )
    corpus.write(*concepts, *mentions, *edges)
    known = read_known(corpus.out)
    assert known.concepts == (
        KnownConcept("harbour master", ("the key",), "person"),
        KnownConcept("k8s", ("kubernetes",), "tool"),
        KnownConcept("数据库", ("港口",), ""),
    )
    assert known.mentions == (
        KnownMention("a", "harbour master", "about"),
        KnownMention("b", "k8s", "uses"),
        KnownMention("c", "数据库", "about"),
    )
    assert known.edges == (KnownEdge("harbour master", "k8s", "runs", 2, ("a",)),)
    assert corpus.counts == EvidenceCounts(concepts=3, mentions=3, edges=1, left_out=9)
    for table in corpus.tables().values():
        for hidden in (b"lighthouse", b"lagoon", b"captain", b"scheduler", b"hides"):
            assert hidden not in table


def test_secrets_and_sentences_are_no_names(make_jsonl: MakeJsonl, tmp_path: Path) -> None:
    long = "tide " * 41
    corpus = Corpus(
        make_jsonl([{"id": "a", "content": f"The key hangs. {long}"}]), tmp_path / "out"
    )
    with JsonlSource(corpus.source) as source:
        assert export_corpus(source, corpus.out).exported == 1
    concepts = [KnownConcept(n, (TOKEN,), TOKEN) for n in ("key", long, TOKEN, "", " - ")]
    mentions = [KnownMention("a", concept.name, TOKEN) for concept in concepts]
    edges = [KnownEdge("key", TOKEN, "opens", 1, ("a",)), KnownEdge("key", "key", "is", 1, ("a",))]
    tables = corpus.write(*concepts, *mentions, *edges)
    expected = Known((KnownConcept("key", (), ""),), (KnownMention("a", "key", ""),), ())
    assert read_known(corpus.out) == expected
    assert all(TOKEN.encode() not in table for table in tables.values())


def test_concepts_that_are_left_with_one_name_are_one(corpus: Corpus) -> None:
    concepts = (KnownConcept("x1", ("kubernetes",), "tool"), KnownConcept("kubernetes", (), "t"))
    edges = (
        KnownEdge("x1", "tide", "runs", 1, ("b",)),
        KnownEdge("kubernetes", "tide", "runs", 2, ("b",)),
        KnownEdge("x1", "kubernetes", "is", 1, ("b",)),
    )
    corpus.write(*concepts, KnownConcept("tide", (), ""), *edges)
    known = read_known(corpus.out)
    assert [concept.name for concept in known.concepts] == ["kubernetes", "tide"]
    assert known.edges == (KnownEdge("kubernetes", "tide", "runs", 3, ("b",)),)


def test_equal_evidence_gives_equal_bytes_in_any_order(corpus: Corpus) -> None:
    links = (link("a", "b"), link("b", "c"), link("c", "a"))
    concepts = (KnownConcept("k8s", ("kubernetes", "boat"), ""), KnownConcept("tide", (), ""))
    mentions = tuple(KnownMention(i, n, "r") for i in "ab" for n in ("k8s", "tide"))
    said = (*links, *concepts, *mentions, KnownEdge("k8s", "tide", "r", 1, ("b", "a")))
    first = corpus.write(*said)
    assert corpus.write(KnownEdge("k8s", "tide", "r", 1, ("a", "b")), *said[-2::-1]) == first
    assert len(first) == 4


def test_of_joined_sources_the_store_speaks_and_a_damaged_table_is_said(corpus: Corpus) -> None:
    source = SayingSource(corpus.source, link("a", "b"))
    with CombinedSource(source, JsonlSource(corpus.source)) as joined:
        write_evidence(joined, corpus.out)
    assert read_evidence(corpus.out, MemoryLink) == (link("a", "b"),)
    (corpus.out / "links.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(StoreError, match="not a readable table"):
        read_evidence(corpus.out, MemoryLink)


def test_a_source_that_breaks_keeps_the_tables(corpus: Corpus) -> None:
    before = corpus.write(link("a", "b"))

    class Broken(SayingSource):
        def told(self, noun: type[Told]) -> Iterator[Told]:
            if noun is KnownEdge:
                raise OSError("gone")
            yield from super().told(noun)

    broken = Broken(corpus.source, link("b", "a"))
    with broken, pytest.raises(OSError, match="gone"):
        write_evidence(broken, corpus.out)
    assert corpus.tables() == before


_WORDS = st.lists(st.sampled_from(["tide", "Key", "boat", "é", "x1"]), min_size=1, max_size=3)


@given(
    texts=st.lists(_WORDS, min_size=1, max_size=4),
    names=st.lists(_WORDS, min_size=1, max_size=4),
    about=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3))),
    gap=st.sampled_from([" ", "-", ", ", "\n"]),
)
@settings(max_examples=150)
def test_a_name_is_said_where_its_words_stand_together(
    texts: list[list[str]], names: list[list[str]], about: set[tuple[int, int]], gap: str
) -> None:
    """Against a twin that compares lists of words."""
    concepts = [KnownConcept(n, (), "") for n in sorted({" ".join(name) for name in names})]
    records = [memory(gap.join(text), memory_id=str(i)) for i, text in enumerate(texts)]
    mentions = [
        KnownMention(str(i), concepts[j].name, "r")
        for i, j in about
        if i < len(records) and j < len(concepts)
    ]
    by_memory = {m.memory_id: {n.concept for n in mentions if n[0] == m[0]} for m in mentions}
    found = find_backed_names(concepts, by_memory, [records])
    expected: set[str] = set()
    for mention in mentions:
        said = [word.casefold() for word in texts[int(mention.memory_id)]]
        words = mention.concept.casefold().split()
        if any(said[i : i + len(words)] == words for i in range(len(said))):
            expected.add(mention.concept)
    assert found == {name: [name] for name in expected}
