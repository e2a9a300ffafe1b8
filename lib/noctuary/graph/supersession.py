"""Which memories a newer one replaces, and which intervals that closes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.duplicates import (
    REASONS,
    Corpus,
    Link,
    MemoryColumns,
    Moment,
    NearDuplicates,
    NearMemo,
    NearPair,
    find_near_duplicates,
    is_dated,
    moment_of,
    wing_of,
    wings_agree,
)
from noctuary.graph.replacements import explicit_links, links_of_group, value_groups
from noctuary.graph.successors import DAY_US, confidence_of
from noctuary.graph.tables import NO_SPAN, ConceptEdge, Edge, Evidence, Graph, Supersession

# One direct successor per memory, without cycles, and the head of every chain.
#
# Links are chosen strongest source first (REASONS), then newest successor. A link gives way to the
# next best of its older memory where it
#
# - closes a cycle: the one that leads to the oldest memory of the cycle goes against time and is
#   dropped, the others stay;
# - leads, over a memory without a wing, to a head of another wing: what holds for pairs holds for
#   chains.
#
# Linear in the links, but for rounds: each drops at least one link, and few links are ever
# dropped.


_RANK = {reason: rank for rank, reason in enumerate(REASONS)}


class Resolved(NamedTuple):
    """The links that count."""

    chosen: Mapping[int, Link]  # the direct successor's link, by older position
    # last memory of the chain, by position of every older or newer memory
    head_of: Mapping[int, int]
    others: tuple[Link, ...]


def resolve(links: Iterable[Link], memories: MemoryColumns, rejected: Counter[str]) -> Resolved:
    """Choose one successor per memory; the order of the links makes no difference."""
    waiting = _by_older(set(links), memories)
    chosen = {older: candidates.pop() for older, candidates in waiting.items()}
    others: list[Link] = []
    while True:
        dropped, reason = _cycle_closers(chosen, memories), "cycle"
        if not dropped:
            dropped, reason = _scope_breakers(chosen, memories), "chain_scope"
        if not dropped:
            break
        rejected[reason] += len(dropped)
        for older in dropped:
            del chosen[older]
            if waiting[older]:
                chosen[older] = waiting[older].pop()
    for older, candidates in waiting.items():
        others += [link for link in candidates if _says_more(link, chosen[older])]
    return Resolved(chosen, _heads(chosen), tuple(sorted(others, key=_order)))


def _by_older(links: set[Link], memories: MemoryColumns) -> dict[int, list[Link]]:
    """Return the candidates of every older memory, the best one last."""
    found: dict[int, list[Link]] = defaultdict(list)
    for link in sorted(links, key=_order, reverse=True):
        found[link.older].append(link)
    for candidates in found.values():
        candidates.sort(key=lambda link: (-_RANK[link.reason], _moment(memories, link.newer)))
    return dict(sorted(found.items()))


def _says_more(link: Link, chosen: Link) -> bool:
    if link.reason == "near_duplicate":
        return False
    return (link.newer, link.concept_id) != (chosen.newer, chosen.concept_id)


def _order(link: Link) -> tuple[int, int, int, int, str, tuple[int, int, int]]:
    return (
        link.older, _RANK[link.reason], -link.confidence, link.newer, link.concept_id,
        (link.evidence.position, link.evidence.start, link.evidence.end),
    )  # fmt: skip


def _cycle_closers(chosen: Mapping[int, Link], memories: MemoryColumns) -> list[int]:
    """Return, per cycle, the older memory whose link leads to the cycle's oldest memory."""
    done: set[int] = set()
    closers: list[int] = []
    for start in chosen:
        path: dict[int, None] = {}
        here = start
        while here in chosen and here not in done and here not in path:
            path[here] = None
            here = chosen[here].newer
        if here in path:
            walked = list(path)
            cycle = walked[walked.index(here) :]
            closers.append(min(cycle, key=lambda p: _moment(memories, chosen[p].newer)))
        done.update(path)
    return closers


def _scope_breakers(chosen: Mapping[int, Link], memories: MemoryColumns) -> list[int]:
    """Return the memories whose wing differs from one that their chain leads through."""
    wing_ahead: dict[int, str] = {}
    breakers: list[int] = []
    for start in chosen:
        path: list[int] = []
        here = start
        while here in chosen and here not in wing_ahead:
            path.append(here)
            here = chosen[here].newer
        ahead = wing_ahead.setdefault(here, wing_of(memories.sighting(here)))
        for position in reversed(path):
            own = wing_of(memories.sighting(position))
            if not wings_agree(own, ahead):
                breakers.append(position)
                ahead = own
            ahead = wing_ahead[position] = own or ahead
    return breakers


def _heads(chosen: Mapping[int, Link]) -> dict[int, int]:
    heads: dict[int, int] = {}
    for start in chosen:
        path: list[int] = []
        here = start
        while here in chosen and here not in heads:
            path.append(here)
            here = chosen[here].newer
        head = heads.setdefault(here, here)
        heads.update((position, head) for position in path)
    return heads


def _moment(memories: MemoryColumns, position: int) -> Moment:
    return moment_of(memories.sighting(position))


# What supersession ends in the graph: intervals close, nothing is deleted.
#
# A superseded memory does not lose its edges for that. What ends is only
#
# - a concept edge whose every piece of evidence is contradicted: the memory it stands in is
#   superseded by one that states the same subject and relation with another object and does not
#   repeat the old one ("is now" also ends what the subject "is");
# - a memory edge that rests on the object inside such a statement, unless the successor leads to
#   the same memory;
# - for a near duplicate, only a memory edge that the newer memory restates: same concept, relation
#   and target. Its facts are the newer one's too, so no concept edge ends.
#
# Order of turns, and edges of other memories that lead to the superseded one, stay as they are.


CLOSABLE = frozenset({"mentions_subject", "mentions_tag"})
"""Memory edges that rest on what a text says; the order of turns rests on the session."""

ENDED_BY_IS_NOW = frozenset({"is_now", "is_a"})
"""Relations that a different `is_now` of the same subject contradicts. What it has, it may keep."""


class _End(NamedTuple):
    """When something stopped holding, and when the store learned it."""

    valid_to_us: int
    retracted_at_us: int


def close_intervals(graph: Graph, found: Iterable[Supersession]) -> Graph:
    """Return the graph with the intervals closed that the supersessions end.

    The same edges in the same order; closed ones keep their end, so that a second call changes
    nothing.
    """
    successors = _links_by_older(found)
    if not successors:
        return graph
    statements = _Statements(graph.concept_edges)
    ends = [statements.end_of(edge, successors) for edge in graph.concept_edges]
    steps = _Steps(graph.edges)
    return replace(
        graph,
        concept_edges=tuple(
            _closed_concept_edge(edge, end)
            for edge, end in zip(graph.concept_edges, ends, strict=True)
        ),
        edges=tuple(
            _closed_edge(edge, _step_end(edge, successors, statements, steps))
            for edge in graph.edges
        ),
    )


def _links_by_older(found: Iterable[Supersession]) -> Mapping[int, list[Supersession]]:
    successors: dict[int, list[Supersession]] = defaultdict(list)
    for item in found:
        successors[item.older_position].append(item)
    return successors


class _Statements:
    """Which memory states what, by subject and relation."""

    def __init__(self, edges: Iterable[ConceptEdge]) -> None:
        self._objects: dict[tuple[int, str, str], set[str]] = defaultdict(set)
        self._edges_at: dict[int, list[tuple[ConceptEdge, Evidence]]] = defaultdict(list)
        for edge in edges:
            for evidence in edge.evidence:
                key = (evidence.position, edge.src_concept, edge.relation)
                self._objects[key].add(edge.dst_concept)
                self._edges_at[evidence.position].append((edge, evidence))

    def end_of(
        self, edge: ConceptEdge, successors: Mapping[int, list[Supersession]]
    ) -> _End | None:
        """Return when the last of its evidence was contradicted, None where some still stands."""
        ends: list[_End] = []
        for evidence in edge.evidence:
            end = self._contradicted(edge, successors.get(evidence.position, ()))
            if end is None:
                return None
            ends.append(end)
        return _End(max(e.valid_to_us for e in ends), max(e.retracted_at_us for e in ends))

    def under(self, position: int, concept: str, start: int, end: int) -> Iterable[ConceptEdge]:
        """Yield the statements of a memory whose object stands at a span."""
        for edge, evidence in self._edges_at.get(position, ()):
            if edge.dst_concept == concept and evidence.start <= start and end <= evidence.end:
                yield edge

    def contradicts(self, edge: ConceptEdge, item: Supersession) -> bool:
        """Say whether the newer memory states another object for the same subject and relation."""
        if item.reason == "near_duplicate":
            return False
        if item.reason != "explicit" and item.concept_id != edge.src_concept:
            return False
        stated = self._stated(item.newer_position, edge.src_concept, edge.relation)
        if edge.relation in ENDED_BY_IS_NOW:
            stated = stated | self._stated(item.newer_position, edge.src_concept, "is_now")
        return bool(stated) and edge.dst_concept not in stated

    def _stated(self, position: int, subject: str, relation: str) -> set[str]:
        return self._objects.get((position, subject, relation), set())

    def _contradicted(self, edge: ConceptEdge, items: Iterable[Supersession]) -> _End | None:
        ends = [
            _End(item.valid_to_us, item.recorded_at_us)
            for item in items
            if self.contradicts(edge, item)
        ]
        # The first contradiction ended it; later ones only say more.
        return min(ends, default=None)


class _Steps:
    """Which steps every memory offers."""

    def __init__(self, edges: Iterable[Edge]) -> None:
        self._targets = {(e.src_position, e.dst_position) for e in edges}
        self._steps = {(e.src_position, e.dst_position, e.relation, e.concept_id) for e in edges}

    def leads(self, source: int, edge: Edge) -> bool:
        """Say whether a memory leads to the edge's target by any relation."""
        return source == edge.dst_position or (source, edge.dst_position) in self._targets

    def restates(self, source: int, edge: Edge) -> bool:
        """Say whether a memory has the same edge: concept, relation and target."""
        return (source, edge.dst_position, edge.relation, edge.concept_id) in self._steps


def _step_end(
    edge: Edge,
    successors: Mapping[int, list[Supersession]],
    statements: _Statements,
    steps: _Steps,
) -> _End | None:
    if edge.relation not in CLOSABLE or edge.evidence_position != edge.src_position:
        return None
    items = successors.get(edge.src_position, ())
    ends = [
        _End(item.valid_to_us, item.recorded_at_us)
        for item in items
        if _ends_step(edge, item, statements, steps)
    ]
    return min(ends, default=None)


def _ends_step(edge: Edge, item: Supersession, statements: _Statements, steps: _Steps) -> bool:
    newer = item.newer_position
    if item.reason == "near_duplicate":
        return steps.restates(newer, edge)
    if edge.evidence_start == NO_SPAN or steps.leads(newer, edge):
        return False
    resting_on = statements.under(
        edge.src_position, edge.concept_id, edge.evidence_start, edge.evidence_end
    )
    return any(statements.contradicts(statement, item) for statement in resting_on)


def _closed_concept_edge(edge: ConceptEdge, end: _End | None) -> ConceptEdge:
    if end is None or edge.valid_to_us is not None:
        return edge
    return replace(
        edge,
        valid_to_us=max(end.valid_to_us, edge.valid_from_us),
        retracted_at_us=end.retracted_at_us,
    )


def _closed_edge(edge: Edge, end: _End | None) -> Edge:
    if end is None or edge.valid_to_us is not None:
        return edge
    # An edge begins with the later of its two memories, which may be later than what ended it.
    return replace(
        edge,
        valid_to_us=max(end.valid_to_us, edge.valid_from_us),
        retracted_at_us=end.retracted_at_us,
    )


# Which memories a newer one replaces: the four sources together.
#
# Incremental use. Explicit links and values cost one pass over what was extracted, values are
# found group by group (`values.links_of_group`), and choosing is linear in the links: all of that
# is done every night. Only comparing vectors is expensive, and `known_near` takes over what did
# not change.
#
# Turns of a conversation can be replaced by what is said (explicit, is_now, newer value), never
# for being a near duplicate. A memory that is marked as superseded in its source replaces none
# (`noctuary.text.marks`). Undated memories are replaced, and replace, by explicit "#id" links
# alone.


_OF_A_VALUE = 1
"""Most confidence in another value of one sentence: "My friend is Ann" may have two answers."""


class Supersessions(NamedTuple):
    """What was found."""

    found: tuple[Supersession, ...]  # one per superseded memory, sorted by older position
    # further contradictions of the same memories (one moved and changed jobs, told by two newer
    # memories): not for recall, but `close_intervals` needs them. Sorted as above, then by strength
    others: tuple[Supersession, ...]
    # statements and links that came to nothing, by reason, sorted: unknown_id, self, scope,
    # undated, generic, no_target, many_values, cycle, chain_scope
    rejected: Mapping[str, int]
    near_memo: NearMemo
    pairs_asked: int


def find_supersessions(
    corpus: Corpus,
    canonical_of: Mapping[str, str],
    vectors: NDArray[np.float32] | None,
    known_near: NearMemo | None = None,
) -> Supersessions:
    """Return which memories are superseded; the order of the input makes no difference.

    Args:
        corpus: The memories, and what they say.
        canonical_of: Folded names that were merged away, and what stands for them.
        vectors: Unit rows by position, shape (n, d); None leaves near duplicates out.
        known_near: `near_memo` of an earlier call with vectors of the same encoder.
    """
    memories = corpus.columns
    near = NearDuplicates((), {}, 0)
    if vectors is not None:
        _check_rows(vectors, memories)
        near = find_near_duplicates(memories, vectors, known_near)
    rejected: Counter[str] = Counter()
    links = [
        *explicit_links(corpus, canonical_of, rejected),
        *_value_links(corpus, canonical_of, rejected),
        *(_near_link(pair, memories) for pair in near.pairs),
    ]
    links = [link for link in links if not memories.tombstones[link.newer]]
    resolved = resolve(links, memories, rejected)
    chosen = [resolved.chosen[older] for older in sorted(resolved.chosen)]
    heads = resolved.head_of
    return Supersessions(
        tuple(_supersession(link, heads, memories) for link in chosen),
        tuple(_supersession(link, heads, memories) for link in resolved.others),
        dict(sorted(rejected.items())),
        near.memo,
        near.asked,
    )


def _check_rows(vectors: NDArray[np.float32], memories: MemoryColumns) -> None:
    needed = len(memories)
    if vectors.ndim != 2 or len(vectors) < needed:
        raise ValueError(
            f"found vectors of shape {vectors.shape}, expected ({needed}, d): one row per position"
        )


def _value_links(
    corpus: Corpus, canonical_of: Mapping[str, str], rejected: Counter[str]
) -> Iterator[Link]:
    groups = value_groups(corpus.stating, canonical_of, rejected)
    for key in sorted(groups):
        yield from links_of_group(groups[key], corpus.stating, rejected)


def _near_link(pair: NearPair, memories: MemoryColumns) -> Link:
    confidence = confidence_of(pair.similarity, _age_gap_days(pair.older, pair.newer, memories))
    is_same = memories.marks[pair.older] == memories.marks[pair.newer]
    return Link(
        pair.older,
        pair.newer,
        "near_duplicate" if is_same else "newer_value",
        confidence if is_same else min(confidence, _OF_A_VALUE),
        pair.similarity,
        "",
        Evidence(pair.newer, NO_SPAN, NO_SPAN),
    )


def _supersession(link: Link, heads: Mapping[int, int], memories: MemoryColumns) -> Supersession:
    created_at_us = memories.created_at_us
    return Supersession(
        older_position=link.older,
        newer_position=link.newer,
        head_position=heads.get(link.newer, link.newer),
        reason=link.reason,
        confidence=link.confidence,
        similarity=link.similarity,
        age_gap_days=_age_gap_days(link.older, link.newer, memories),
        concept_id=link.concept_id,
        evidence=link.evidence,
        # An explicit link may go against the dates; nothing ends before it began.
        valid_to_us=int(max(created_at_us[link.newer], created_at_us[link.older])),
        recorded_at_us=int(memories.updated_at_us[link.newer]),
    )


def _age_gap_days(older: int, newer: int, memories: MemoryColumns) -> int:
    one, other = memories.sighting(older), memories.sighting(newer)
    if not (is_dated(one) and is_dated(other)):
        return 0
    return max(other.created_at_us - one.created_at_us, 0) // DAY_US
