"""One step from the best hits along the graph's edges: additive scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.fold import ABOUT, Link

# The graph as arrays, as stored in a snapshot and read by the walk. Numpy only, no building.

# Relations of edges that a store's links make; they rest on no concept (NO_CONCEPT).
LINK_RELATIONS = ("part_of", "see_also", "resolved_by")
# Relations of edges found in the texts of memories.
FOUND_RELATIONS = ("mentions_subject", "mentions_tag", "next_turn", "previous_turn")
# Relation names by code. Append only: published snapshots store the codes.
RELATIONS = (*FOUND_RELATIONS, *LINK_RELATIONS)
NO_CONCEPT = -1  # `concepts` of an edge that a link makes
OPEN_END_US = 2**63 - 1  # `valid_to_us` of an edge that still holds (the largest int64)


class GraphArrays(NamedTuple):
    """Out-edges of every memory in compressed sparse rows, E edges over n positions."""

    indptr: NDArray[np.int64]  # (n+1,); the edges of position p are indptr[p]:indptr[p+1]
    targets: NDArray[np.int32]  # (E,), positions
    weights: NDArray[np.float32]  # (E,), in (0, 1]
    relations: NDArray[np.int8]  # (E,), index into RELATIONS
    # int32 (E,), ordinal of the evidence concept; NO_CONCEPT for LINK_RELATIONS
    concepts: NDArray[np.int32]
    # int32 (E,), number of edges of the same relation that arrive at the target
    in_degrees: NDArray[np.int32]
    valid_from_us: NDArray[np.int64]  # (E,), inclusive
    valid_to_us: NDArray[np.int64]  # (E,), exclusive; OPEN_END_US while the edge holds
    recorded_at_us: NDArray[np.int64]  # (E,), when the store last wrote the evidence
    # int64 (E,), when the store wrote the memory that ended it; OPEN_END_US before that
    retracted_at_us: NDArray[np.int64]
    # int32 (E,), first character of the evidence in the source's content, or -1
    evidence_starts: NDArray[np.int32]
    evidence_ends: NDArray[np.int32]  # (E,), one past its last character, or -1


def relations_in_use(relations: NDArray[np.int8]) -> tuple[str, ...]:
    """Return the names by code as far as edges need them, FOUND_RELATIONS at the least."""
    last = int(relations.max(initial=-1))
    return RELATIONS[: max(len(FOUND_RELATIONS), last + 1)]


class MentionArrays(NamedTuple):
    """Mentions of C concepts, in compressed sparse rows by concept ordinal: M mentions."""

    indptr: NDArray[np.int64]  # (C+1,); the mentions of concept c are indptr[c]:indptr[c+1]
    positions: NDArray[np.int32]  # (M,), memories, ascending within a concept
    roles: NDArray[np.int8]  # (M,), index into ROLES
    # int32 (M,), first character in the content, or -1 for an author field
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]  # (M,), one past the last character, or -1


class RareConcepts(NamedTuple):
    """The rare concepts that each memory holds, in compressed sparse rows over n positions."""

    indptr: NDArray[np.int64]  # (n+1,); those of position p are concepts[indptr[p]:indptr[p+1]]
    concepts: NDArray[np.int32]  # ordinals, ascending inside a memory
    others: NDArray[np.int8]  # how many other memories hold it, 1 to RARE_OTHERS


# Concepts named in the query: memories about them.

# Gain of a memory about a named concept, against a base score of at most 1, for a name that is
# specific and has one such memory; more lifts titles over the topic of the query.
NAMED_WEIGHT = 0.9


class Named(NamedTuple):
    """Memories about concepts named in the query, ordered by position; arrays have length m."""

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]  # float64, > 0
    concepts: NDArray[np.int64]


def name_subjects(
    links: Sequence[Link], mentions: MentionArrays, mask: NDArray[np.bool_] | None = None
) -> Named:
    """Return the memories about the linked concepts: NAMED_WEIGHT * weight, added up per memory."""
    found: dict[int, tuple[float, float, int]] = {}
    weights: dict[int, float] = {}
    for link in links:
        weights[link.ordinal] = max(weights.get(link.ordinal, 0.0), link.weight)
    for ordinal, weight in weights.items():
        gain = NAMED_WEIGHT * weight
        if gain <= 0.0:
            continue
        for position in subjects_of(ordinal, mentions, mask).tolist():
            total, best, concept = found.get(position, (0.0, 0.0, ordinal))
            found[position] = (
                total + gain, max(best, gain), ordinal if gain > best else concept
            )  # fmt: skip
    positions = sorted(found)
    return Named(
        np.array(positions, dtype=np.int64),
        np.array([found[p][0] for p in positions], dtype=np.float64),
        np.array([found[p][2] for p in positions], dtype=np.int64),
    )


def subjects_of(
    ordinal: int, mentions: MentionArrays, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.int64]:
    """Return the visible memories about a concept, ascending."""
    rows = slice(int(mentions.indptr[ordinal]), int(mentions.indptr[ordinal + 1]))
    held = mentions.positions[rows][mentions.roles[rows] == ABOUT].astype(np.int64)
    found = np.array(sorted(set(held.tolist())), dtype=np.int64)
    return found if mask is None else found[mask[found]]


def mention_span(ordinal: int, position: int, mentions: MentionArrays) -> tuple[int, int] | None:
    """Return where a memory's text first names a concept; None where only a field does."""
    rows = slice(int(mentions.indptr[ordinal]), int(mentions.indptr[ordinal + 1]))
    here = (mentions.positions[rows] == position) & (mentions.starts[rows] >= 0)
    places = np.flatnonzero(here)
    if not places.size:
        return None
    first = rows.start + int(places[0])
    return int(mentions.starts[first]), int(mentions.ends[first])


# One step from the best hits along the graph's edges (research/probes.md section 1).

SEED_COUNT = 5  # best hits that are walked from; more reach further and bring more chance arrivals
ETA = 1.0  # scale of all arriving scores against the base score; 0 switches the walk off

# (1 + in-degree) to this power divides an arrival; higher distrusts much-named memories more.
DAMPING_POWER = 0.25
# rank (from 1) to minus this power multiplies a seed's score; higher trusts first hits more.
RANK_DISCOUNT_POWER = 0.5
# Weight of a step per relation. Turns are not walked: neighbours of a turn are matched word by
# word (`conversation`), which a step of one weight cannot. Links of a store weigh like a tag: no
# labelled set has any to measure.
DEFAULT_RELATION_WEIGHTS: Mapping[str, float] = MappingProxyType(
    {
        "mentions_subject": 1.0, "mentions_tag": 0.5,
        "part_of": 0.5, "see_also": 0.5, "resolved_by": 0.5,
    }
)  # fmt: skip


SHARES_CONCEPT = "shares_concept"
"""Relation of an arrival over a concept that seed and target both hold; no edge is of it."""
_SHARES_CONCEPT = -1  # its code in a walk


class Walk(NamedTuple):
    """Targets that the walk reached, ordered by position. All arrays have length m."""

    positions: NDArray[np.int64]
    scores: NDArray[np.float64]  # float64, > 0; to be added to the base score of the target
    seeds: NDArray[np.int64]
    # int8, the relation it took: index into RELATIONS, below 0 for SHARES_CONCEPT
    relations: NDArray[np.int8]
    concepts: NDArray[np.int32]
    asked: NDArray[np.float64]  # how much of what is asked stands beside the evidence, in [0, 1]

    @property
    def is_empty(self) -> bool:
        """Return whether the walk abstained."""
        return self.positions.size == 0

    def relation_at(self, row: int) -> str:
        """Return the name of the relation that a row took."""
        code = int(self.relations[row])
        return SHARES_CONCEPT if code == _SHARES_CONCEPT else RELATIONS[code]

    def beside(self, other: Walk) -> Walk:
        """Return both walks as one: the better arrival of each target, this one's where equal."""
        if other.is_empty:
            return self
        targets = np.concatenate([self.positions, other.positions])
        scores = np.concatenate([self.scores, other.scores])
        best = _best_arrivals(targets, scores)
        return Walk._make(np.concatenate(pair)[best] for pair in zip(self, other, strict=True))


# Of memories (E,) and where in their texts the evidence of edges begins and ends: how much of what
# is asked stands beside it, each in [0, 1].
Asked = Callable[[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]], NDArray[np.float64]]
# How much an edge that the question asks for sets the others of its seed back: a film leads to its
# director, its actors and its sequel alike. More silences edges whose text says it in other words.
ASKED_WEIGHT = 2.0
# Of seeds and targets of edges (E,): how much may arrive, 0 from a seed that the query only found.
Room = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]


def walk(
    seed_positions: NDArray[np.integer],
    seed_scores: NDArray[np.floating],
    arrays: GraphArrays,
    relation_weights: Mapping[str, float] = DEFAULT_RELATION_WEIGHTS,
    mask: NDArray[np.bool_] | None = None,
    *,
    asked: Asked | None = None,
    room: Room | None = None,
    as_of_us: int | None = None,
    seed_count: int = SEED_COUNT,
    eta: float = ETA,
) -> Walk:
    """Push the scores of the best seeds along their out-edges once; keep the best arrival each.

    An arrival is eta * seed score * rank**-0.5 * relation weight * edge weight /
    (1 + in-degree)**0.25, with `asked` times `asked_share`, with `room` also `undamped`. Equal
    arrivals: the better-ranked seed, then the smaller relation code and edge index win. A target
    may be a seed itself. With `as_of_us`, edges that held then.
    """
    by_code = _weights_by_code(relation_weights, eta)
    seeds, pushes = _pushes(seed_positions, seed_scores, mask, seed_count)
    edges, owners = _entries(seeds, arrays.indptr, arrays.targets.size)
    strength = eta * by_code[arrays.relations[edges]]
    usable = (strength > 0.0) & _holds(arrays, edges, as_of_us)
    if mask is not None:
        usable &= mask[arrays.targets[edges]]
    edges, owners, strength = edges[usable], owners[usable], strength[usable]
    damping = (1.0 + arrays.in_degrees[edges].astype(np.float64)) ** -DAMPING_POWER
    arrivals = pushes[owners] * strength * arrays.weights[edges].astype(np.float64) * damping
    beside = np.zeros(edges.size)
    if asked is not None and edges.size:
        spans = arrays.evidence_starts[edges], arrays.evidence_ends[edges]
        beside = asked(seeds[owners], *spans)
        arrivals *= asked_share(owners, beside)
        if room is not None and beside.any():
            limits = room(seeds[owners], arrays.targets[edges].astype(np.int64))
            arrivals = undamped(arrivals, damping, beside, limits)
    # Edges lie in the order of their seeds: of equal arrivals the better seed's is the first.
    best = _best_arrivals(arrays.targets[edges].astype(np.int64), arrivals)
    edges = edges[best]
    return Walk(
        positions=arrays.targets[edges].astype(np.int64),
        scores=arrivals[best],
        seeds=seeds[owners[best]],
        relations=arrays.relations[edges].astype(np.int8),
        concepts=arrays.concepts[edges].astype(np.int32),
        asked=beside[best],
    )


def asked_share(owners: NDArray[np.int64], beside: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rank**(a / 2) * (1 + 2 a) / (1 + 2 b) per edge, from the places of its seeds (E,).

    a is how much of what the question asks stands beside the edge's evidence, b the most of its
    seed's edges. So an edge that is asked for is pushed as from the best seed and the others of
    its seed less, none more than the best seed pushes; where none is asked for, nothing changes.
    """
    most = np.zeros(int(owners.max(initial=-1)) + 1)
    np.maximum.at(most, owners, beside)
    ranks = (owners + 1.0) ** (RANK_DISCOUNT_POWER * beside)
    return ranks * (1.0 + ASKED_WEIGHT * beside) / (1.0 + ASKED_WEIGHT * most[owners])


def undamped(
    arrivals: NDArray[np.float64],
    damping: NDArray[np.float64],
    beside: NDArray[np.float64],
    room: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return max(x, min(x / d**a, room)) per edge: what is asked for is damped by d**(1 - a).

    A director of many films is no less the director of this one. So the many mentions of a target
    count less the more an edge is asked for, as far as nothing passes the seed.
    """
    return np.maximum(arrivals, np.minimum(arrivals * damping**-beside, room))


class QueryWords(NamedTuple):
    """The words of a query that some memory holds, t of them."""

    weights: NDArray[np.float64]  # (t,), idf of each, >= 0
    # Which word occurs at which position, (t, m), of positions (m,).
    holding: Callable[[NDArray[np.int64]], NDArray[np.bool_]]


# A concept that at most so many other memories hold ties two of them together: of more it is a
# topic.
RARE_OTHERS = 19
# On the share of the query that two memories hold together and no single one does. More lifts
# memories that share a name and answer nothing: at 2.4 the first hits of single-hop sets get worse.
BRIDGE_WEIGHT = 1.5
_ROUNDING = 1e-12  # words of equal weight add up differently in another order


def bridge(
    seed_positions: NDArray[np.integer],
    seed_scores: NDArray[np.floating],
    rare: RareConcepts,
    mentions: MentionArrays,
    words: Callable[[], QueryWords],
    sessions: NDArray[np.int32],
    mask: NDArray[np.bool_] | None = None,
) -> Walk:
    """Push the scores of the best seeds to memories that share a rare concept with them.

    An arrival is BRIDGE_WEIGHT * seed score * rank**-0.5 / others**0.25 * how much more of the
    query's words, by idf, seed and target hold together than any one memory looked at holds: where
    one holds all words, nothing needs a second. Members of a session (codes >= 0, by position) are
    left out: they are matched word by word. `words` is called only where a seed may lead somewhere.
    """
    seeds, pushes = _pushes(seed_positions, seed_scores, mask, SEED_COUNT)
    alone = sessions[seeds] < 0
    seeds, pushes = seeds[alone], pushes[alone]
    entries, owners = _entries(seeds, rare.indptr, rare.concepts.size)
    if not entries.size:
        return _NOWHERE
    pushes = pushes[owners] * rare.others[entries].astype(np.float64) ** -DAMPING_POWER
    concepts = rare.concepts[entries].astype(np.int64)
    rows, ways = _entries(concepts, mentions.indptr, mentions.positions.size)
    targets = mentions.positions[rows].astype(np.int64)
    usable = (targets != seeds[owners[ways]]) & (sessions[targets] < 0)
    if mask is not None:
        usable &= mask[targets]
    targets, ways = targets[usable], ways[usable]
    reached, columns = np.unique(targets, return_inverse=True)
    weights, holding = words()
    held = holding(np.concatenate([seeds, reached]))
    shares = weights[:, None] / max(weights.sum(), np.finfo(np.float64).tiny)
    # Added word by word, so that the score of a pair does not depend on the other pairs.
    alone = (shares * held).sum(axis=0)
    together = held[:, : seeds.size, None] | held[:, None, seeds.size :]
    beyond = np.maximum((shares[:, :, None] * together).sum(axis=0) - alone.max(initial=0.0), 0.0)
    arrivals = BRIDGE_WEIGHT * pushes[ways] * beyond[owners[ways], columns]
    best = _best_arrivals(targets, arrivals)
    best = best[arrivals[best] > _ROUNDING]
    return Walk(
        positions=targets[best],
        scores=arrivals[best],
        seeds=seeds[owners[ways[best]]],
        relations=np.full(best.size, _SHARES_CONCEPT, dtype=np.int8),
        concepts=concepts[ways[best]].astype(np.int32),
        asked=np.zeros(best.size),
    )


_NOWHERE = Walk(
    np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64), np.empty(0, np.int8),
    np.empty(0, np.int32), np.empty(0),
)  # fmt: skip


def _pushes(
    positions: NDArray[np.integer],
    scores: NDArray[np.floating],
    mask: NDArray[np.bool_] | None,
    seed_count: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the seeds, best first, and their scores discounted by rank."""
    seeds, found = choose_seeds(positions, scores, mask, seed_count)
    ranks = np.arange(1, seeds.size + 1, dtype=np.float64)
    return seeds, found * ranks**-RANK_DISCOUNT_POWER


def _weights_by_code(relation_weights: Mapping[str, float], eta: float) -> NDArray[np.float64]:
    unknown = sorted(set(relation_weights) - set(RELATIONS))
    if unknown:
        raise ValueError(f"found unknown relations {unknown}, expected some of {list(RELATIONS)}")
    by_code = np.array([relation_weights.get(name, 0.0) for name in RELATIONS], dtype=np.float64)
    factors = np.append(by_code, eta)
    if not np.isfinite(factors).all() or bool((factors < 0.0).any()):
        raise ValueError(
            f"found relation weights {dict(relation_weights)} and eta {eta}, expected finite "
            "numbers >= 0"
        )
    return by_code


def choose_seeds(
    positions: NDArray[np.integer],
    scores: NDArray[np.floating],
    mask: NDArray[np.bool_] | None,
    seed_count: int,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return positions and finite positive scores that are started from, best first, as masked."""
    where = positions.astype(np.int64)
    values = scores.astype(np.float64)
    usable = np.isfinite(values) & (values > 0.0)
    if mask is not None:
        usable &= mask[where]
    where, values = where[usable], values[usable]
    best = np.lexsort((where, -values))[: max(seed_count, 0)]
    return where[best], values[best]


def _entries(
    rows: NDArray[np.int64], indptr: NDArray[np.int64], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the indexes of all entries of some sparse rows, and each entry's place in `rows`."""
    starts = indptr[rows]
    counts = indptr[rows + 1] - starts
    if bool(((starts < 0) | (counts < 0) | (counts > size)).any()):
        # A damaged row would otherwise ask for any amount of memory.
        raise ValueError("found a row outside the graph's arrays: they are damaged")
    owners = np.repeat(np.arange(rows.size, dtype=np.int64), counts)
    before = np.cumsum(counts) - counts
    return np.arange(owners.size, dtype=np.int64) - before[owners] + starts[owners], owners


def _holds(
    arrays: GraphArrays, edges: NDArray[np.int64], as_of_us: int | None
) -> NDArray[np.bool_]:
    ends = arrays.valid_to_us[edges]
    if as_of_us is None:
        return ends == np.iinfo(np.int64).max
    return (arrays.valid_from_us[edges] <= as_of_us) & (as_of_us < ends)


def _best_arrivals(targets: NDArray[np.int64], arrivals: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the index of each target's best arrival, by target; ties go to the first."""
    order = np.lexsort((-arrivals, targets))
    first = np.ones(order.size, dtype=np.bool_)
    first[1:] = targets[order[1:]] != targets[order[:-1]]
    return order[first]
