"""The graph built the plain way, from scratch and memory by memory: what the real one must equal.

Lists, dictionaries and loops only; neither a database nor last night's state.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import NamedTuple, cast

from noctuary.core.types import MemoryRecord
from noctuary.graph import state as hubs
from noctuary.graph.extract import (
    KINDS,
    Dictionary,
    Extraction,
    find_matches,
    is_looked_for,
    needs_case,
)
from noctuary.graph.fold import concept_id, fold_name
from noctuary.graph.state import (
    DF_POWER,
    LEADING_SHORT_CHARS,
    LEADING_WORTH,
    LONG_LEADING_WORTH,
    LOWER_CASE_WORTH,
)
from noctuary.graph.tables import NO_SPAN, Evidence, Merge, Role, StatedRelation
from noctuary.graph.walk import RELATIONS
from tests.support.graph_objects import Concept, ConceptEdge, Edge, Graph, Mention, NameLink

_DICTIONARY_KINDS = frozenset({"title", "heading", "key", "label", "leading", "tag", "placed"})
_KINDS_BY_CASE = frozenset({"title", "key", "leading"})
_SMALL_WORDS = frozenset({
    "a", "al", "an", "and", "at", "by", "da", "de", "del", "der", "di", "du", "el", "en", "et",
    "for", "in", "la", "le", "of", "on", "the", "to", "van", "von", "y",
})  # fmt: skip


class _Held(NamedTuple):
    """One finding of one memory, under its own and under its concept's name."""

    record: MemoryRecord
    name: str
    canonical: str
    role: Role
    kind: str
    start: int
    end: int
    surface: str
    by_match: bool

    @property
    def mention(self) -> Mention:
        key = concept_id(self.canonical)
        return Mention(self.record.position, key, self.role, self.start, self.end, self.surface)


def naive_graph(
    records: Sequence[MemoryRecord],
    extractions: Sequence[Extraction],
    canonical_of: Mapping[str, str] | None = None,
    merges: Sequence[Merge] = (),
    kept_runs: Collection[str] = (),
) -> Graph:
    """Return the graph without supersessions."""
    names = canonical_of or {}
    dictionary = build_dictionary(
        (item.name, item.surface)
        for extraction in extractions
        for item in extraction.found
        if item.kind in _DICTIONARY_KINDS
    )
    held: list[_Held] = []
    for record, extraction in zip(records, extractions, strict=True):
        held += _holdings(record, extraction, dictionary, names, set(kept_runs))
    worths = _worths(held)
    edges = [*_subject_edges(records, held, worths), *_turn_edges(records, names)]
    mentions = {item.mention for item in held}
    return Graph(
        concepts=_concepts(held),
        mentions=tuple(
            sorted(
                mentions,
                key=lambda m: (m.position, m.start, m.end, m.role, m.concept_id, m.surface),
            )
        ),
        edges=tuple(
            sorted(
                edges, key=lambda e: (e.src_position, RELATIONS.index(e.relation), e.dst_position)
            )
        ),
        concept_edges=_concept_edges(records, extractions, names),
        merges=tuple(sorted(merges, key=lambda merge: merge.name)),
        links=_links(held, dictionary, worths, _mention_limit(len(records))),
    )


def build_dictionary(names: Iterable[tuple[str, str]]) -> Dictionary:
    """Make the dictionary of (folded name, surface) pairs, in any order."""
    cased: dict[str, bool] = {}
    for name, surface in names:
        if is_looked_for(name, surface):
            cased[name] = cased.get(name, True) and needs_case(name, surface)
    return Dictionary(cased)


def _holdings(
    record: MemoryRecord,
    extraction: Extraction,
    dictionary: Dictionary,
    names: Mapping[str, str],
    kept_runs: set[str],
) -> Iterator[_Held]:
    held_names: set[str] = set()
    for item in extraction.found:
        if item.kind == "run" and item.name not in kept_runs:
            continue
        held_names.add(item.name)
        yield _Held(
            record, item.name, names.get(item.name, item.name), item.role, item.kind, item.start,
            item.end, item.surface, by_match=False,
        )  # fmt: skip
    own = {item.name for item in extraction.found if item.role in ("about", "speaker")}
    matches = find_matches(record.content, dictionary, own)
    for name, start, end in matches:
        held_names.add(name)
        yield _Held(
            record, name, names.get(name, name), "mentions", "name", start, end,
            record.content[start:end], by_match=True,
        )  # fmt: skip
    for name, surface in sorted(set(_ends(extraction))):
        if name not in held_names:
            yield _Held(
                record, name, names.get(name, name), "mentions", "stated", NO_SPAN, NO_SPAN,
                surface, by_match=False,
            )  # fmt: skip
    session = _session_name(record)
    if session is not None:
        yield _Held(
            record, session, names.get(session, session), "author", "session", NO_SPAN, NO_SPAN,
            record.session_id or "", by_match=False,
        )  # fmt: skip


def _ends(extraction: Extraction) -> Iterator[tuple[str, str]]:
    for item in extraction.stated:
        if _joins_names(item.subject, item.object):
            yield item.subject, item.subject_surface or item.subject
            yield item.object, item.object_surface or item.object


def _joins_names(subject: str, thing: str) -> bool:
    return bool(subject and thing) and not subject.startswith("#") and not thing.startswith("#")


def _concepts(held: Sequence[_Held]) -> tuple[Concept, ...]:
    by_name: dict[str, list[_Held]] = defaultdict(list)
    for item in held:
        by_name[item.canonical].append(item)
    found: list[Concept] = []
    for canonical, items in by_name.items():
        uses = Counter(item.surface for item in items)
        first = {item.surface for item in items if item.name == canonical}
        spelt = sorted(uses, key=lambda s: (s not in first, -uses[s], s))
        found.append(
            Concept(
                concept_id=concept_id(canonical),
                canonical_name=spelt[0],
                kind=min((item.kind for item in items), key=KINDS.index),
                aliases=tuple(sorted(spelt[1:])),
                df=len({item.record.position for item in items}),
            )
        )
    return tuple(sorted(found, key=lambda concept: concept.concept_id))


def _worths(held: Sequence[_Held]) -> dict[str, float]:
    strongest: dict[str, str] = {}
    matches: dict[str, list[str]] = defaultdict(list)
    led: dict[str, list[int]] = defaultdict(list)
    for item in held:
        if item.kind == "leading":
            led[item.canonical].append(len(item.record.content))
        kinds = (item.kind, strongest.get(item.canonical, item.kind))
        strongest[item.canonical] = min(kinds, key=KINDS.index)
        if item.by_match:
            matches[item.canonical].append(item.surface)
    return {name: _worth(kind, matches[name], led[name]) for name, kind in strongest.items()}


def _worth(kind: str, surfaces: Sequence[str], led: Sequence[int]) -> float:
    if kind not in _KINDS_BY_CASE:
        return 1.0
    capitals = [surface for surface in surfaces if _is_capitalised(surface)]
    share = len(capitals) / len(surfaces) if surfaces else 1.0
    shown = LOWER_CASE_WORTH + (1 - LOWER_CASE_WORTH) * share
    if kind != "leading":
        return shown
    return shown * (LEADING_WORTH if min(led) <= LEADING_SHORT_CHARS else LONG_LEADING_WORTH)


def _is_capitalised(surface: str) -> bool:
    """Say whether no word but the small ones begins with a lower-case letter.

    What stands in parentheses does not count.
    """
    surface = re.sub("[(（][^()（）]*[)）]?", " ", surface)
    inner = "".join(char if _is_of_word(char) else " " for char in surface)
    return not any(
        unicodedata.category(word[0]) == "Ll" for word in inner.split() if word not in _SMALL_WORDS
    )


def _is_of_word(char: str) -> bool:
    return unicodedata.category(char)[0] in "LNM" or char in "'\u2019"


def _links(
    held: Sequence[_Held],
    dictionary: Dictionary,
    worths: Mapping[str, float],
    mention_limit: int,
) -> tuple[NameLink, ...]:
    about: dict[str, set[int]] = defaultdict(set)
    matched: dict[str, set[int]] = defaultdict(set)
    for item in held:
        if item.role == "about":
            about[item.canonical].add(item.record.position)
        if item.by_match:
            matched[item.canonical].add(item.record.position)
    speakers = {item.canonical for item in held if item.role == "speaker"}
    found: list[NameLink] = []
    for name, canonical in sorted({(item.name, item.canonical) for item in held}):
        targets, df, speaks = len(about[canonical]), len(matched[canonical]), canonical in speakers
        leads = 0 < targets <= hubs.HUB_SUBJECT_LIMIT and df <= mention_limit
        if not speaks and not (leads and name in dictionary.cased):
            continue
        weight = worths[canonical] / targets / (1 + df) ** DF_POWER if leads else 0.0
        cased = not speaks and dictionary.cased[name]
        found.append(NameLink(name, concept_id(canonical), weight, cased))
    return tuple(found)


def _mention_limit(memories: int) -> int:
    return max(hubs.HUB_MENTION_MIN, int(hubs.HUB_MENTION_FRACTION * memories))


def _subject_edges(
    records: Sequence[MemoryRecord], held: Sequence[_Held], worths: Mapping[str, float]
) -> list[Edge]:
    hub_limit = _mention_limit(len(records))
    holders: dict[str, set[int]] = defaultdict(set)
    for item in held:
        holders[item.canonical].add(item.record.position)
    leading = [(name, None, to) for name, to in _targets(held).items()] + _placed(held)
    named, best = _named(held), dict[tuple[int, int, str], Edge]()
    for name, around, leads_to in leading:
        mentions = named.get(name, set())
        is_hub = len({m.position for m in mentions}) > hub_limit
        if is_hub or len(leads_to) > hubs.HUB_SUBJECT_LIMIT:
            continue
        for mention, (target, relation) in product(mentions, leads_to.items()):
            is_elsewhere = around is not None and mention.position not in holders[around]
            if target == mention.position or is_elsewhere:
                continue
            edge = _edge(
                records[mention.position], records[target], relation,
                worths[name] / len(leads_to), mention.concept_id, (mention.start, mention.end),
            )  # fmt: skip
            key = (edge.src_position, edge.dst_position, edge.relation)
            if key not in best or _preference(edge) < _preference(best[key]):
                best[key] = edge
    return list(best.values())


def _targets(held: Sequence[_Held]) -> Mapping[str, dict[int, str]]:
    targets: dict[str, dict[int, str]] = defaultdict(dict)
    for item in held:
        if item.role == "about":
            targets[item.canonical][item.record.position] = "mentions_subject"
        elif item.kind == "tag":
            targets[item.canonical].setdefault(item.record.position, "mentions_tag")
    return targets


def _placed(held: Sequence[_Held]) -> list[tuple[str, str | None, dict[int, str]]]:
    """Return towns that nothing is about, the state around each, and memories about them there."""
    abouts = [item for item in held if item.role == "about"]
    subjects = {item.canonical for item in abouts}
    canonical = {item.name: item.canonical for item in held}
    found: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for town, whole in product([item for item in held if item.kind == "placed"], abouts):
        same = (town.record.position, town.start) == (whole.record.position, whole.start)
        if same and whole.name.startswith(f"{town.name} ") and town.canonical not in subjects:
            state = canonical.get(whole.name.removeprefix(f"{town.name} "))
            if state is not None:
                found[town.canonical, state][town.record.position] = "mentions_subject"
    return [(town, state, to) for (town, state), to in found.items()]


def _named(held: Sequence[_Held]) -> Mapping[str, set[Mention]]:
    own = {(i.record.position, i.canonical) for i in held if i.role in ("about", "speaker")}
    named: dict[str, set[Mention]] = defaultdict(set)
    for item in held:
        if item.by_match and (item.record.position, item.canonical) not in own:
            named[item.canonical].add(item.mention)
    return named


def _edge(
    source: MemoryRecord,
    target: MemoryRecord,
    relation: str,
    weight: float,
    concept: str,
    span: tuple[int, int],
) -> Edge:
    return Edge(
        src_position=source.position,
        dst_position=target.position,
        relation=relation,
        weight=weight,
        concept_id=concept,
        evidence_position=source.position,
        evidence_start=span[0],
        evidence_end=span[1],
        valid_from_us=max(source.created_at_us, target.created_at_us),
        valid_to_us=None,
        recorded_at_us=source.updated_at_us,
    )


def _preference(edge: Edge) -> tuple[float, int, int, str]:
    return (-edge.weight, edge.evidence_start, edge.evidence_end, edge.concept_id)


def _session_name(record: MemoryRecord) -> str | None:
    return (record.is_turn and record.session_id and fold_name(record.session_id)) or None


def _turn_edges(records: Sequence[MemoryRecord], names: Mapping[str, str]) -> Iterator[Edge]:
    sessions: dict[tuple[str, str, str], list[MemoryRecord]] = defaultdict(list)
    for record in records:
        if _session_name(record) is not None:
            key = (record.user or "", record.wing or "", record.session_id or "")
            sessions[key].append(record)
    for turns in sessions.values():
        name = _session_name(turns[0]) or ""
        concept = concept_id(names.get(name, name))
        for earlier, later in pairwise(sorted(turns, key=lambda t: (t.created_at_us, t.position))):
            span = (NO_SPAN, NO_SPAN)
            yield _edge(earlier, later, "next_turn", 1.0, concept, span)
            yield _edge(later, earlier, "previous_turn", 1.0, concept, span)


def _concept_edges(
    records: Sequence[MemoryRecord], extractions: Sequence[Extraction], names: Mapping[str, str]
) -> tuple[ConceptEdge, ...]:
    told: dict[tuple[str, str, str], set[Evidence]] = defaultdict(set)
    for record, extraction in zip(records, extractions, strict=True):
        for item in extraction.stated:
            ends = (names.get(name, name) for name in (item.subject, item.object))
            subject, thing = (concept_id(name) for name in ends)
            if _joins_names(item.subject, item.object) and subject != thing:
                evidence = Evidence(record.position, item.start, item.end)
                told[subject, item.relation, thing].add(evidence)
    return tuple(_concept_edge(key, told[key], records) for key in sorted(told))


def _concept_edge(
    key: tuple[str, str, str], evidence: set[Evidence], records: Sequence[MemoryRecord]
) -> ConceptEdge:
    tellers = {item.position for item in evidence}
    first = min((records[p] for p in tellers), key=lambda r: (r.created_at_us, r.position))
    return ConceptEdge(
        src_concept=key[0],
        dst_concept=key[2],
        relation=cast("StatedRelation", key[1]),
        weight=1.0 - 1.0 / (1 + len(tellers)),
        evidence=tuple(sorted(evidence, key=lambda e: (e.position, e.start, e.end))),
        valid_from_us=first.created_at_us,
        valid_to_us=None,
        recorded_at_us=first.updated_at_us,
        retracted_at_us=None,
    )
