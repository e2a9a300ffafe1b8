from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US, to_micros
from noctuary.graph.fold import ROLES, Name, NameTable, link_query
from noctuary.graph.sessions import MIN_MEMBERS, Posting, SessionArrays
from noctuary.graph.walk import OPEN_END_US, GraphArrays, MentionArrays, RareConcepts
from noctuary.lexical.search import top_positions
from noctuary.recall.engine import Recaller
from noctuary.recall.legs import GraphLeg, GraphRanking, Leg, SnapshotGraph, path_of
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Facet, Mask, Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from tests.support.crowd import USERS, WINGS, WORDS, crowded
from tests.support.lean import write_encoder
from tests.support.store import Store, memory, new_store, renumber

names = st.sampled_from([None, *USERS])
scopes = st.builds(
    Scope,
    wing=st.sampled_from([None, *WINGS, "elsewhere"]),
    room=st.sampled_from([None, "hall", "nowhere"]),
    category=st.sampled_from([None, "fact", "turn"]),
    user=st.sampled_from([None, *USERS, "stranger"]),
    as_of=st.sampled_from([None, *(datetime(2026, 1, d, tzinfo=UTC) for d in (1, 5, 9, 28))]),
)
profiles = st.builds(
    RetrievalProfile,
    fusion=st.sampled_from(["cc", "rrf"]),
    lexical_weight=st.sampled_from([0.0, 0.5]),
    dense_weight=st.sampled_from([0.0, 0.5]),
    graph_weight=st.sampled_from([0.0, 1.0, 5.0]),
    session_weight=st.sampled_from([0.0, 1.0, 3.0]),
    importance_prior=st.sampled_from([0.0, 0.3]),
    exact_match_bonus=st.sampled_from([0.0, 0.2]),
    depth=st.sampled_from([1, 3, 50]),
)
queries = st.lists(st.sampled_from((*WORDS, *USERS)), min_size=1, max_size=3).map(" ".join)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "house"
        store = new_store(root, encoder=write_encoder(root / "encoders"))
        store.publish(crowded())
        yield store


@pytest.fixture(scope="module")
def recaller(store: Store) -> Recaller:
    return Recaller.open(store.root)


@given(query=queries, scope=scopes, profile=profiles, k=st.sampled_from([1, 5, 200]))
def test_no_leg_lets_anything_out_of_scope_through(
    recaller: Recaller, query: str, scope: Scope, profile: RetrievalProfile, k: int
) -> None:
    result = recaller.recall(query, k, profile=profile, scope=scope)
    for found in result.memories:
        assert found.user in (None, scope.user)
        assert scope.wing in (None, found.wing)
        assert scope.room in (None, found.room)
        assert scope.category in (None, found.category)
        if scope.as_of is not None and found.created_at is not None:
            assert found.created_at <= scope.as_of


@given(query=queries, scope=scopes, profile=profiles)
def test_an_explanation_never_names_a_memory_out_of_scope(
    recaller: Recaller, query: str, scope: Scope, profile: RetrievalProfile
) -> None:
    reader = recaller.reader
    mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
    seen = None if mask is None else set(np.flatnonzero(mask).tolist())
    for found in recaller.recall(query, 200, profile=profile, scope=scope).memories:
        if found.graph is not None:
            seed = () if found.graph.seed_id is None else (found.graph.seed_id,)
            named = {str(i) for i in (*seed, *found.graph.evidence)}
            places = set(reader.positions_of(sorted(named)).values())
            assert len(places) == len(named)
            assert seen is None or places <= seen


class Without(SnapshotGraph):
    """The graph of a snapshot after hidden memories were taken out of all its arrays."""

    def __init__(self, reader: SnapshotReader, mask: Mask) -> None:
        super().__init__(reader)
        self._mask = mask
        whole = SnapshotGraph(reader)
        self._steps = edges_between(whole.edges, mask)
        self.mentions = mentions_in(whole.mentions, mask)
        self.rare = rare_in(whole.rare, mask)
        self.sessions = sessions_of(whole.sessions, mask)

    @property
    def edges(self) -> GraphArrays:
        return self._steps

    def names_seen(self, mask: Mask | None) -> NameTable:
        """A name that nothing visible is about and nobody says anything under is none either."""
        rows = np.repeat(np.arange(self.mentions.indptr.size - 1), np.diff(self.mentions.indptr))
        held = {*rows[self.mentions.roles == ROLES.index("about")].tolist()}
        held |= {*self.sessions.speakers.tolist()}
        table = super().names_seen(mask)

        def named(asked: Sequence[str]) -> Mapping[str, Name]:
            return {n: name for n, name in table.names(asked).items() if name.ordinal in held}

        return table._replace(names=named)

    def postings(self, terms: Sequence[str]) -> list[Posting]:
        found = super().postings(terms)
        kept = [(positions, scores, self._mask[positions]) for positions, scores in found]
        return [(positions[shown], scores[shown]) for positions, scores, shown in kept]


def edges_between(edges: GraphArrays, mask: Mask) -> GraphArrays:
    sources = np.repeat(np.arange(mask.size), np.diff(edges.indptr))
    kept = mask[sources] & mask[edges.targets]
    columns = {n: rows for n, rows in edges._asdict().items() if n != "indptr"}
    indptr = np.searchsorted(sources[kept], np.arange(mask.size + 1))
    return edges._replace(indptr=indptr, **{name: rows[kept] for name, rows in columns.items()})


def mentions_in(mentions: MentionArrays, mask: Mask) -> MentionArrays:
    owners = np.repeat(np.arange(mentions.indptr.size - 1), np.diff(mentions.indptr))
    kept = mask[mentions.positions]
    columns = {n: rows for n, rows in mentions._asdict().items() if n != "indptr"}
    indptr = np.searchsorted(owners[kept], np.arange(mentions.indptr.size))
    return mentions._replace(indptr=indptr, **{name: rows[kept] for name, rows in columns.items()})


def rare_in(rare: RareConcepts, mask: Mask) -> RareConcepts:
    """Of visible memories alone; how many others hold a concept is counted over all."""
    owners = np.repeat(np.arange(mask.size), np.diff(rare.indptr))
    kept = mask[owners]
    indptr = np.searchsorted(owners[kept], np.arange(mask.size + 1))
    return RareConcepts(indptr, rare.concepts[kept], rare.others[kept])


def sessions_of(sessions: SessionArrays, mask: Mask) -> SessionArrays:
    ends = sessions.indptr.tolist()
    order: list[int] = sessions.order.tolist()
    shown = [[p for p in order[start:end] if mask[p]] for start, end in pairwise(ends)]
    kept = [members for members in shown if len(members) >= MIN_MEMBERS]
    flat = [p for members in kept for p in members]
    codes, places = (np.full(mask.size, -1, dtype=np.int32) for _ in range(2))
    for code, members in enumerate(kept):
        codes[members] = code
    places[flat] = np.arange(len(flat))
    return SessionArrays(
        codes=codes,
        places=places,
        order=np.array(flat, dtype=np.int32),
        indptr=np.cumsum([0, *map(len, kept)], dtype=np.int64),
        turns=sessions.turns,
        speakers=np.where(mask, sessions.speakers, -1).astype(np.int32),
    )


class Asked(NamedTuple):
    """A question to the graph leg alone.

    Attributes:
        shown: What may be seen.
        base: Base score by position, 0 for what was not found.
        weights: Of the graph and of sessions.
    """

    query: str
    shown: Mask
    base: NDArray[np.float64]
    weights: tuple[float, float]


@st.composite
def asked(draw: st.DrawFn) -> Asked:
    """Somebody's question: others' memories are hidden, and some of what is left."""
    records = crowded()
    user = draw(names)
    own = [r.position for r in records if r.user in (None, user)]
    hidden = draw(st.sets(st.sampled_from(own), max_size=len(own) - 1))
    shown = np.zeros(len(records), dtype=bool)
    shown[sorted({*own} - hidden)] = True
    found = draw(st.sets(st.sampled_from(np.flatnonzero(shown).tolist()), min_size=1, max_size=9))
    base = np.zeros(len(records))
    base[sorted(found)] = [draw(st.integers(1, 64)) / 64 for _ in found]
    weights = draw(st.sampled_from([0.5, 1.0, 5.0])), draw(st.sampled_from([0.5, 1.0, 3.0]))
    return Asked(draw(queries), shown, base, weights)


@given(asked())
@settings(max_examples=300)
def test_to_the_graph_what_is_hidden_is_as_good_as_absent(recaller: Recaller, asked: Asked) -> None:
    """Neither moves nor enters: sessions, links, steps and who speaks, to the bit."""
    pool = np.flatnonzero(asked.base)
    likeness = asked.base.astype(np.float32)
    dense = Leg.of_scores(likeness, top_positions(likeness, likeness.size, asked.shown))

    def ranked(graph: SnapshotGraph, mask: Mask | None) -> GraphRanking | None:
        leg = GraphLeg(graph, mask, *asked.weights)
        links, base = leg.link(asked.query), asked.base
        return leg.rank(asked.query, links, pool, base[pool], lambda p: base[p], dense)

    masked = ranked(SnapshotGraph(recaller.reader), asked.shown)
    absent = ranked(Without(recaller.reader, asked.shown), None)
    assert (masked is None) == (absent is None)
    if masked is None or absent is None:
        return
    assert asked.shown[masked.positions].all()
    assert masked.positions.tolist() == absent.positions.tolist()
    assert masked.scores.tolist() == absent.scores.tolist()
    for position in masked.positions.tolist():
        assert path_of(masked, position) == path_of(absent, position)


def test_an_explanation_shows_no_spelling_of_others(tmp_path: Path) -> None:
    store = new_store(tmp_path / "house")
    theirs = [memory(f"# Zephyr Works\nBen's copy {n}.", user="ben") for n in range(3)]
    store.publish(renumber([memory("# Zephyr-Works\nOpens at nine."), *theirs]))
    (found,) = Recaller.open(store.root).recall("Zephyr-Works", scope=Scope(user="eva")).memories
    assert found.graph is not None
    assert found.graph.concept == "Zephyr-Works"


def test_the_graph_has_something_to_hide(recaller: Recaller) -> None:
    """Guards the property above: sessions, speakers, links and steps of every user are there."""
    graph = SnapshotGraph(recaller.reader)
    owner = recaller.reader.facets["user"].codes
    assert {int(owner[p]) for p in graph.sessions.order.tolist()} == {0, 1, 2}
    assert {int(owner[p]) for p in np.flatnonzero(graph.sessions.speakers >= 0)} == {0, 1, 2}
    links = link_query("Atlas ana ben eva", graph.names_seen(None))
    assert len([link for link in links if graph.speaks(link.ordinal)]) == len(USERS)
    sources = np.repeat(np.arange(owner.size), np.diff(graph.edges.indptr))
    assert (owner[sources] != owner[graph.edges.targets]).any()


@pytest.fixture(scope="module")
def rewritten() -> Iterator[Recaller]:
    """The same store but for what Ana and Ben said: each says lines of the other, out of order."""
    records = crowded()
    theirs = [r.position for r in records if r.is_turn and r.user in ("ana", "ben")]
    said = {p: records[q].content for p, q in zip(theirs, theirs[::2] + theirs[1::2], strict=True)}
    told = [r._replace(content=said.get(r.position, r.content)) for r in records]
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "house"
        store = new_store(root, encoder=write_encoder(root / "encoders"))
        store.publish(told)
        yield Recaller.open(store.root)


@given(
    query=queries,
    user=st.sampled_from([None, "eva"]),
    wing=st.sampled_from([None, *WINGS]),
    profile=profiles,
)
def test_what_others_say_moves_nothing(
    recaller: Recaller,
    rewritten: Recaller,
    query: str,
    user: str | None,
    wing: str | None,
    profile: RetrievalProfile,
) -> None:
    """All counts of words and names are as they were: only who says what, and when, is not."""
    scope = Scope(user=user, wing=wing)
    first, second = (
        one.recall(query, 200, profile=profile, scope=scope).memories
        for one in (recaller, rewritten)
    )
    assert [(m.id, m.final_score, m.graph) for m in first] == [
        (m.id, m.final_score, m.graph) for m in second
    ]


@given(query=queries, leg=st.sampled_from(["lexical", "dense"]), user=names, k=st.integers(1, 9))
def test_what_others_own_takes_nobody_s_place(
    recaller: Recaller, query: str, leg: str, user: str | None, k: int
) -> None:
    """Filtering comes before the cut: the k best are the first k of all, whatever others own."""
    alone = RetrievalProfile(
        lexical_weight=float(leg == "lexical"),
        dense_weight=float(leg == "dense"),
        graph_weight=0.0,
        importance_prior=0.0,
        depth=1,
    )
    scope = Scope(user=user)
    best = recaller.recall(query, k, profile=alone, scope=scope).memories
    everything = recaller.recall(query, 1000, profile=alone, scope=scope).memories
    assert [m.id for m in best] == [m.id for m in everything[:k]]


def test_the_crowd_is_found_by_its_owner_over_every_leg(recaller: Recaller) -> None:
    """Guards the properties above against an empty store: each leg finds something of each user."""
    for user in USERS:
        found = recaller.recall("Atlas cat", 200, scope=Scope(user=user)).memories
        mine = [m for m in found if m.user == user]
        assert any(m.lexical for m in mine)
        assert any(m.dense for m in mine)
        assert any(m.graph for m in mine)


@given(
    st.lists(
        st.tuples(st.sampled_from([-1, 0, 1, 2]), st.integers(-(2**63), OPEN_END_US)), max_size=20
    ),
    names,
    st.datetimes(timezones=st.timezones()),
)
def test_the_mask_equals_a_loop_over_rows(
    rows: list[tuple[int, int]], user: str | None, moment: datetime
) -> None:
    owners = Facet(USERS, np.array([code for code, _ in rows], dtype=np.int32))
    nobody = Facet((), np.full(len(rows), -1, dtype=np.int32))
    facets = {"wing": nobody, "room": nobody, "category": nobody, "user": owners}
    created = np.array([us for _, us in rows], dtype=np.int64)
    mask, _ = build_mask(Scope(user=user, as_of=moment), facets, created)
    assert mask is not None
    for allowed, (code, us) in zip(mask.tolist(), rows, strict=True):
        mine = code == -1 or USERS[code] == user
        assert allowed == (mine and (us == UNDATED_US or us <= to_micros(moment)))
