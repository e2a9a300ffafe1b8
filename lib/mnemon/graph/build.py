"""From the findings of single memories to one graph: concepts, mentions, edges with evidence.

Belongs here: everything that needs the whole corpus (who else is about it, how often is it named).
Does not belong here: reading a text (`extract`), walking (`walk`), files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from mnemon.graph.arrays import RELATIONS
from mnemon.graph.concepts import Contribution, make_concepts
from mnemon.graph.dictionary import Dictionary, build_dictionary, find_matches
from mnemon.graph.extraction import Extraction
from mnemon.graph.fold import concept_id, fold_name
from mnemon.graph.model import NO_SPAN, Edge, Graph, Mention, Relation
from mnemon.graph.pack import to_arrays
from mnemon.types import MemoryRecord

__all__ = ["build_graph", "to_arrays"]

HUB_MENTION_FRACTION = 0.02
"""A name that more than this share of the memories mention separates nothing and gets no edges."""

HUB_MENTION_MIN = 50
"""... but up to this many mentions are always fine; keeps small stores from losing their names."""

HUB_SUBJECT_LIMIT = 50
"""A name that more memories than this are about (or tagged with) gets no edges: each edge would
weigh less than 1/50, and their number is the product of both counts."""

_DICTIONARY_KINDS = frozenset({"title", "heading", "key", "label", "leading", "tag"})


class _Target(NamedTuple):
    """A memory that a name leads to, and by which relation."""

    position: int
    relation: Relation


def build_graph(records: Sequence[MemoryRecord], extractions: Sequence[Extraction]) -> Graph:
    """Build the graph of a corpus.

    Args:
        records: The memories, ordered by position from 0.
        extractions: Their extractions, in the same order.

    Raises:
        ValueError: The two do not line up, or positions have gaps.
    """
    _check_alignment(records, extractions)
    targets = _targets(extractions)
    dictionary = _subject_dictionary(extractions)
    contributions = list(_contributions(extractions))
    named: dict[str, list[Mention]] = defaultdict(list)
    declined: Counter[str] = Counter()
    for record, extraction in zip(records, extractions, strict=True):
        for mention in _matched(record, extraction, dictionary, declined):
            named[mention.concept_id].append(mention)
            contributions.append(Contribution(mention, "name"))
    contributions += [Contribution(mention, "session") for mention in _session_mentions(records)]
    edges = [*_subject_edges(records, targets, named), *_turn_edges(records)]
    return Graph(
        concepts=make_concepts(contributions),
        mentions=tuple(sorted({c.mention for c in contributions}, key=_mention_order)),
        edges=tuple(sorted(edges, key=_edge_order)),
        skipped_subjects=dict(sorted(dictionary.skipped.items())),
        declined_runs=dict(sorted(declined.items())),
    )


def _check_alignment(records: Sequence[MemoryRecord], extractions: Sequence[Extraction]) -> None:
    if len(records) != len(extractions):
        raise ValueError(
            f"found {len(extractions)} extractions for {len(records)} memories, expected one each"
        )
    for position, record in enumerate(records):
        if record.position != position:
            raise ValueError(
                f"found position {record.position} at index {position}, expected the memories "
                "ordered by position without gaps"
            )


def _targets(extractions: Sequence[Extraction]) -> dict[str, list[_Target]]:
    """For every name, the memories about it; a memory both about and tagged counts as about."""
    targets: dict[str, list[_Target]] = defaultdict(list)
    for position, extraction in enumerate(extractions):
        relations: dict[str, Relation] = {}
        for item in extraction.found:
            if item.role == "about":
                relations[item.name] = "mentions_subject"
            elif item.kind == "tag":
                relations.setdefault(item.name, "mentions_tag")
        for name, relation in relations.items():
            targets[name].append(_Target(position, relation))
    return targets


def _subject_dictionary(extractions: Sequence[Extraction]) -> Dictionary:
    return build_dictionary(
        (item.name, item.surface)
        for extraction in extractions
        for item in extraction.found
        if item.kind in _DICTIONARY_KINDS
    )


def _contributions(extractions: Sequence[Extraction]) -> Iterator[Contribution]:
    for position, extraction in enumerate(extractions):
        for item in extraction.found:
            mention = Mention(
                position, concept_id(item.name), item.role, item.start, item.end, item.surface
            )
            yield Contribution(mention, item.kind)


def _matched(
    record: MemoryRecord, extraction: Extraction, dictionary: Dictionary, declined: Counter[str]
) -> Iterator[Mention]:
    own = {item.name for item in extraction.found if item.role in ("about", "speaker")}
    matches = find_matches(record.content, dictionary, own)
    declined.update(matches.declined)
    for name, start, end in matches.found:
        surface = record.content[start:end]
        yield Mention(record.position, concept_id(name), "mentions", start, end, surface)


def _subject_edges(
    records: Sequence[MemoryRecord],
    targets: dict[str, list[_Target]],
    named: dict[str, list[Mention]],
) -> list[Edge]:
    """One edge per (source, target, relation): the most specific name, the earliest span."""
    by_id = {concept_id(name): found for name, found in targets.items()}
    hub_limit = max(HUB_MENTION_MIN, int(HUB_MENTION_FRACTION * len(records)))
    best: dict[tuple[int, int, Relation], Edge] = {}
    for concept, mentions in sorted(named.items()):
        leads_to = by_id[concept]
        if len({m.position for m in mentions}) > hub_limit or len(leads_to) > HUB_SUBJECT_LIMIT:
            continue
        for mention in mentions:
            for target in leads_to:
                if target.position == mention.position:
                    continue
                edge = _subject_edge(records, mention, target, 1.0 / len(leads_to))
                key = (edge.src_position, edge.dst_position, edge.relation)
                if key not in best or _preference(edge) < _preference(best[key]):
                    best[key] = edge
    return list(best.values())


def _subject_edge(
    records: Sequence[MemoryRecord], mention: Mention, target: _Target, weight: float
) -> Edge:
    source, destination = records[mention.position], records[target.position]
    return Edge(
        src_position=mention.position,
        dst_position=target.position,
        relation=target.relation,
        weight=weight,
        concept_id=mention.concept_id,
        evidence_position=mention.position,
        evidence_start=mention.start,
        evidence_end=mention.end,
        valid_from_us=max(source.created_at_us, destination.created_at_us),
        valid_to_us=None,
        recorded_at_us=source.updated_at_us,
    )


def _preference(edge: Edge) -> tuple[float, int, int, str]:
    return (-edge.weight, edge.evidence_start, edge.evidence_end, edge.concept_id)


def _session_key(record: MemoryRecord) -> tuple[str, str, str] | None:
    # A session id is only unique inside its owner and its wing.
    if not record.is_turn or not record.session_id or not fold_name(record.session_id):
        return None
    return (record.user or "", record.wing or "", record.session_id)


def _session_mentions(records: Sequence[MemoryRecord]) -> list[Mention]:
    found: list[Mention] = []
    for record in records:
        if _session_key(record) is not None and record.session_id is not None:
            concept = concept_id(fold_name(record.session_id))
            found.append(
                Mention(record.position, concept, "author", NO_SPAN, NO_SPAN, record.session_id)
            )
    return found


def _turn_edges(records: Sequence[MemoryRecord]) -> Iterator[Edge]:
    sessions: dict[tuple[str, str, str], list[MemoryRecord]] = defaultdict(list)
    for record in records:
        key = _session_key(record)
        if key is not None:
            sessions[key].append(record)
    for key in sorted(sessions):
        turns = sorted(sessions[key], key=lambda turn: (turn.created_at_us, turn.position))
        for earlier, later in pairwise(turns):
            yield _turn_edge(earlier, later, "next_turn")
            yield _turn_edge(later, earlier, "previous_turn")


def _turn_edge(source: MemoryRecord, target: MemoryRecord, relation: Relation) -> Edge:
    return Edge(
        src_position=source.position,
        dst_position=target.position,
        relation=relation,
        weight=1.0,
        concept_id=concept_id(fold_name(source.session_id or "")),
        evidence_position=source.position,
        evidence_start=NO_SPAN,
        evidence_end=NO_SPAN,
        valid_from_us=max(source.created_at_us, target.created_at_us),
        valid_to_us=None,
        recorded_at_us=source.updated_at_us,
    )


def _mention_order(mention: Mention) -> tuple[int, int, int, str, str, str]:
    return (
        mention.position,
        mention.start,
        mention.end,
        mention.role,
        mention.concept_id,
        mention.surface,
    )


def _edge_order(edge: Edge) -> tuple[int, int, int]:
    return (edge.src_position, RELATIONS.index(edge.relation), edge.dst_position)
