"""The gate's sentences about the graph and about summaries."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import VectorRows
from noctuary.compact.gate import judge
from noctuary.core import store as layout
from noctuary.core.foreign_json import parse_json
from noctuary.graph.fold import ROLES
from noctuary.graph.tables import NO_SPAN
from noctuary.graph.walk import LINK_RELATIONS, NO_CONCEPT, RARE_OTHERS, RELATIONS
from noctuary.snapshot.arrays import OF_TURNS, Mask, SummaryArrays, is_compressed, within
from noctuary.text.tokens import document_tokens

if TYPE_CHECKING:
    from noctuary.snapshot.checks import Candidate, GateContext

Found = dict[str, int | float | str]  # findings of a check: numbers, names, ids
Judged = tuple[bool, Found]  # whether a check passed, and its findings

_NO_CONCEPT = "NOT EXISTS (SELECT 1 FROM concepts k WHERE k.ordinal"


def every_edge_has_evidence(c: Candidate, x: GateContext) -> Judged:
    """Each edge joins two memories, names a concept, and rests on a span of its source's text.

    Edges between turns rest on the session and have no span; links of the store have neither span
    nor concept. No edge ends before it begins.
    """
    arrays = c.group("graph")
    lengths = _content_lengths(c)
    rows, targets = arrays["indptr"], arrays["targets"]
    found: Found = {"edges": int(targets.size)}
    if not _is_aligned(arrays, len(lengths)):
        return False, {**found, "fault": "arrays differ"}
    sources = np.repeat(np.arange(len(lengths)), np.diff(rows))
    concepts = c.count("concepts")
    links = np.isin(arrays["relations"], [RELATIONS.index(name) for name in LINK_RELATIONS])
    known = np.where(links, arrays["concepts"] == NO_CONCEPT, within(arrays["concepts"], concepts))
    spans = known & _has_span(sources, arrays["evidence_starts"], arrays["evidence_ends"], lengths)
    joined = within(targets, len(lengths)) & within(arrays["relations"], len(RELATIONS))
    ordered = arrays["valid_from_us"] <= arrays["valid_to_us"]
    found["without_evidence"] = int((~spans).sum())
    found["dangling"] = int((~joined | (targets == sources)).sum())
    found["ends_before_it_begins"] = int((~ordered).sum())
    return judged(found, "edges")


def every_mention_stands_in_its_memory(c: Candidate, x: GateContext) -> Judged:
    """Each mention names a memory, and its span, if any, is inside that memory's text.

    Every concept has a mention, every name leads to a concept, and every memory lists those of its
    names that are rare.
    """
    arrays, rare = c.group("mentions"), c.group("rare")
    lengths, concepts = _content_lengths(c), c.count("concepts")
    positions = arrays["positions"]
    found: Found = {"mentions": int(positions.size)}
    if not (_is_aligned(arrays, concepts) and _is_aligned(rare, len(lengths))):
        return False, {**found, "fault": "arrays differ"}
    known = within(positions, len(lengths))
    held = np.where(known, positions, 0)
    spans = known & _has_span(held, arrays["starts"], arrays["ends"], lengths)
    found["outside"] = int((~(spans & within(arrays["roles"], len(ROLES)))).sum())
    found["concepts_without_mention"] = int((np.diff(arrays["indptr"]) < 1).sum())
    found["names_of_no_concept"] = c.count(f"concept_names n WHERE {_NO_CONCEPT} = n.ordinal)")
    found["wrongly_rare"] = _wrongly_rare(c, arrays, rare)
    return judged(found, "mentions")


def _wrongly_rare(
    c: Candidate, mentions: Mapping[str, NDArray[Any]], rare: Mapping[str, NDArray[Any]]
) -> int:
    """Count the pairs of memory and rare name that one of both lists lacks or counts otherwise."""
    names = "SELECT ordinal FROM concepts WHERE kind NOT IN ('run', 'stated')"
    expected: set[tuple[int, int, int]] = set()
    for (name,) in c.rows.execute(names):
        start, stop = mentions["indptr"][name : name + 2]
        held = set(mentions["positions"][start:stop].tolist())
        if 1 < len(held) <= RARE_OTHERS + 1:
            expected |= {(position, name, len(held) - 1) for position in held}
    owners = np.repeat(np.arange(rare["indptr"].size - 1), np.diff(rare["indptr"]))
    listed = zip(owners.tolist(), rare["concepts"].tolist(), rare["others"].tolist(), strict=True)
    return len(expected.symmetric_difference(listed))


def every_concept_edge_is_stated_somewhere(c: Candidate, x: GateContext) -> Judged:
    """Each relation between concepts joins two of them and lists where memories state it.

    No relation ends before it begins.
    """
    found: Found = {
        "concept_edges": c.count("concept_edges"),
        "dangling": c.count(
            "concept_edges e WHERE e.src = e.dst OR (SELECT COUNT(*) FROM concepts k "
            "WHERE k.ordinal IN (e.src, e.dst)) < 2"
        ),
        "ends_before_it_begins": c.count("concept_edges WHERE valid_to_us < valid_from_us"),
        "unstated": c.value(
            "WITH spans AS (SELECT e.rowid AS edge, json_extract(s.value, '$[0]') AS position, "
            "json_extract(s.value, '$[1]') AS start, json_extract(s.value, '$[2]') AS stop "
            "FROM concept_edges e LEFT JOIN json_each(e.evidence) s) "
            "SELECT COUNT(DISTINCT edge) FROM spans LEFT JOIN memories USING (position) WHERE ("
            "(0 <= start AND start < stop AND stop <= length(content)) "
            f"OR (start = {NO_SPAN} AND stop = {NO_SPAN} AND content IS NOT NULL)) IS NOT TRUE"
        ),
    }
    return judged(found, "concept_edges")


def every_supersession_leads_to_a_head(c: Candidate, x: GateContext) -> Judged:
    """Each superseded memory has one successor, and each chain ends at its head, without cycles.

    Both memories, the evidence's and the concept exist.
    """
    rows = c.rows.execute(
        "SELECT older, newer, head, evidence_position, evidence_start, evidence_end "
        "FROM supersessions ORDER BY older, newer"
    ).fetchall()
    table = np.array(rows, dtype=np.int64).reshape(-1, 6)
    lengths = _content_lengths(c)
    known = within(table[:, :4], len(lengths)).all(axis=1)
    held = np.where(known, table[:, 3], 0)
    spans = _has_span(held, table[:, 4], table[:, 5], lengths)
    newer_of = {older: newer for older, newer, *_ in rows}
    found: Found = {
        "supersessions": len(rows),
        "dangling": int((~(known & spans)).sum()),
        "of_no_concept": c.count(
            f"supersessions s WHERE s.concept IS NOT NULL AND {_NO_CONCEPT} = s.concept)"
        ),
        "two_successors": len(rows) - len(newer_of),
        "other_head": sum(_end_of(older, newer_of) != head for older, _, head, *_ in rows),
    }
    return judged(found, "supersessions")


def every_link_leads_to_a_concept(c: Candidate, x: GateContext) -> Judged:
    """Each name that a query may link to names an existing concept and weighs 0 to 1."""
    found: Found = {
        "links": c.count("links"),
        "of_no_concept": c.count(f"links l WHERE {_NO_CONCEPT} = l.ordinal)"),
        "bad_weights": c.count(
            "links WHERE typeof(weight) <> 'real' OR weight NOT BETWEEN 0 AND 1"
        ),
        "bad_case_rules": c.count("links WHERE cased NOT IN (0, 1)"),
    }
    return judged(found, "links")


def every_link_is_found_by_its_first_word(c: Candidate, x: GateContext) -> Judged:
    """The first word of each such name is registered for names of that many words or more."""
    found: Found = {
        "first_words": c.count("link_starts"),
        "unreachable": c.count(
            "links l LEFT JOIN link_starts s ON s.word = substr(l.name, 1, instr(l.name || ' ', "
            "' ') - 1) WHERE s.words IS NULL "
            "OR s.words < length(l.name) - length(replace(l.name, ' ', '')) + 1"
        ),
    }
    return judged(found, "first_words")


def _end_of(older: int, newer_of: Mapping[int, int]) -> int | None:
    """Return the last of a chain, or None where it runs in a circle."""
    seen: set[int] = set()
    while older in newer_of:
        if older in seen:
            return None
        seen.add(older)
        older = newer_of[older]
    return older


def judged(found: Found, counted: str) -> Judged:
    """Return the result: any finding other than the number of rows checked is a fault."""
    return not any(found[key] for key in found if key != counted), found


def _is_aligned(arrays: Mapping[str, NDArray[Any]], rows: int) -> bool:
    columns = (array for name, array in arrays.items() if name != "indptr")
    return is_compressed(arrays["indptr"], rows, *columns)


def _has_span(
    positions: NDArray[Any], starts: NDArray[Any], ends: NDArray[Any], lengths: NDArray[np.int64]
) -> Mask:
    """Return which spans are inside the text of their memory, or are empty."""
    if not len(lengths):
        return np.zeros(len(starts), dtype=np.bool_)
    inside = (starts >= 0) & (starts < ends) & (ends <= lengths[positions])
    return np.asarray(inside | ((starts == NO_SPAN) & (ends == NO_SPAN)))


def _content_lengths(c: Candidate) -> NDArray[np.int64]:
    rows = c.rows.execute("SELECT length(content) FROM memories ORDER BY position")
    return np.fromiter((length for (length,) in rows), dtype=np.int64)


LISTED_FAULTS = 10  # ids in a result: enough to start looking, small enough for the event log
# Least cosine of a summary's vector and its text embedded again: batches round otherwise.
_SAME_TEXT = 0.999
UNIT_NORM_TOLERANCE = 1e-3  # of float32 rows; vectors further off are damaged or foreign


def every_summary_names_its_sources(c: Candidate, x: GateContext) -> Judged:
    """Each summary lists at least two turns, each of them in the snapshot under the same id."""
    found: Found = {
        "summaries": c.count("summaries"),
        "fewer_than_two_sources": c.count(
            "summaries s WHERE (SELECT COUNT(*) FROM summary_sources r"
            " WHERE r.summary_id = s.summary_id) < 2"
        ),
        "sources_not_in_snapshot": c.count(
            "summary_sources r WHERE NOT EXISTS (SELECT 1 FROM memories m"
            " WHERE m.position = r.position AND m.memory_id = r.memory_id)"
        ),
    }
    return judged(found, "summaries")


def every_summary_reaches_its_turns_once(c: Candidate, x: GateContext) -> Judged:
    """Lineage is complete and has no cycles.

    Each source is named once per summary, in order of time, and belongs to at most one summary of
    turns; all belong to one user and one wing; a summary's span is that of its sources and not of
    the night; parents form no cycle; and recall's arrays match the tables.
    """
    sources = "summary_sources r JOIN memories m ON m.position = r.position"
    found: Found = {
        "summaries": c.count("summaries"),
        "sources_named_twice": c.count(
            "(SELECT 1 FROM summary_sources GROUP BY summary_id, position HAVING COUNT(*) > 1)"
        ),
        "turns_in_two_summaries": c.count(
            "(SELECT 1 FROM summary_sources r JOIN summaries s USING (summary_id) "
            "WHERE s.plan_id IS NULL GROUP BY r.position HAVING COUNT(*) > 1)"
        ),
        "mixed_users_or_wings": c.count(
            f"(SELECT 1 FROM {sources} GROUP BY r.summary_id HAVING "
            "COUNT(DISTINCT ifnull(m.user, '') || char(0) || ifnull(m.wing, '')) > 1)"
        ),
        "other_spans": c.count(
            "summaries s WHERE (s.first_us, s.last_us) != (SELECT MIN(m.created_at_us), "
            f"MAX(m.created_at_us) FROM {sources} WHERE r.summary_id = s.summary_id)"
        ),
        "out_of_order": c.count(
            "summary_sources a JOIN summary_sources b ON b.summary_id = a.summary_id "
            "AND b.place = a.place + 1 JOIN memories m ON m.position = a.position "
            "JOIN memories n ON n.position = b.position WHERE m.created_at_us > n.created_at_us"
        ),
        "parents_in_a_circle": _circles(
            c.rows.execute("SELECT summary_id, parent_id FROM summary_parents")
        ),
        "other_arrays": _other_arrays(c),
    }
    return judged(found, "summaries")


def every_summary_is_searched_as_it_reads(c: Candidate, x: GateContext) -> Judged:
    """Each summary is indexed by the words of its text and has a finite vector of length 1."""
    texts = [text for (text,) in c.rows.execute("SELECT text FROM summaries ORDER BY ordinal")]
    held = c.group("summary_posting")
    positions, scores = held["positions"], held["scores"]
    found: Found = {
        "summaries": len(texts),
        "bad_scores": int((~(np.isfinite(scores) & (scores > 0))).sum()),
        "misplaced_terms": misplaced_terms(c.rows, positions.size, "summary_terms"),
        "other_words": _other_words(c, texts, positions),
    }
    if positions.size != scores.size:
        return False, {**found, "fault": "arrays of different lengths"}
    if c.manifest.encoder is not None:
        found["bad_vectors"] = _bad_vectors(c, len(texts))
    return judged(found, "summaries")


def every_summary_preserves_its_sources(c: Candidate, x: GateContext) -> Judged:
    """Each summary's text, embedded again, reaches the Q_align threshold with its sources.

    And its stored vector is that of its text (libravdb 5.3).
    """
    summaries = c.rows.execute("SELECT summary_id, text FROM summaries ORDER BY ordinal").fetchall()
    if not summaries:
        return True, {"summaries": 0}
    stored = c.arrays["summary_vectors"]
    embedded = x.encode([text for _, text in summaries])
    failed: list[str] = []
    lowest, strangers = 1.0, 0
    vectors = VectorRows(c.directory / layout.VECTORS_FILE)
    for ordinal, ((summary_id, _), vector) in enumerate(zip(summaries, embedded, strict=True)):
        places = c.rows.execute(
            "SELECT position FROM summary_sources WHERE summary_id = ? ORDER BY place",
            [summary_id],
        )
        members = vectors.take([p for (p,) in places])
        report = judge(vector, members, threshold=x.preserve_threshold)
        lowest = min(lowest, report.align)
        is_own = float(stored[ordinal] @ vector) >= _SAME_TEXT
        strangers += not is_own
        if not (report.passed and is_own):
            failed.append(summary_id)
    found: Found = {
        "summaries": len(summaries),
        "failed": len(failed),
        "vectors_of_another_text": strangers,
        "lowest_q_align": round(lowest, 4),
        "threshold": x.preserve_threshold,
    }
    if failed:
        found["ids"] = ", ".join(failed[:LISTED_FAULTS])
    return not failed, found


def misplaced_terms(rows: sqlite3.Connection, postings: int, table: str = "terms") -> int:
    """Return how many term slices do not start where the one before ends, the end included."""
    misplaced, end = 0, 0
    for start, stop in rows.execute(f"SELECT start, stop FROM {table} ORDER BY start, stop"):
        misplaced += start != end or stop <= start
        end = stop
    return misplaced + (end != postings)


def _circles(pairs: Iterable[tuple[str, str]]) -> int:
    """Return how many summaries descend from themselves, or from one that does."""
    parents: dict[str, set[str]] = defaultdict(set)
    for summary, parent in pairs:
        parents[summary].add(parent)
    order = TopologicalSorter(parents)
    with suppress(CycleError):
        order.prepare()
    placed = 0
    while ready := order.get_ready():
        order.done(*ready)
        placed += len(ready)
    return len(parents.keys() | set[str]().union(*parents.values())) - placed


def _other_arrays(c: Candidate) -> int:
    """Return how many sources, confidences or plans the arrays have otherwise than the tables."""
    arrays = SummaryArrays(**c.group("summary"))
    rows = c.rows.execute(
        "SELECT ordinal, summary_id, ifnull(confidence, 1.0), plan_id FROM summaries"
        " ORDER BY summary_id"
    ).fetchall()
    if not arrays.is_aligned(c.manifest.counts["memories"]) or arrays.size != len(rows):
        return max(arrays.size, len(rows), 1)
    plans = sorted({plan for *_, plan in rows if plan is not None})
    held: dict[str, list[int]] = defaultdict(list)
    for summary, position in c.rows.execute(
        "SELECT summary_id, position FROM summary_sources ORDER BY summary_id, place"
    ):
        held[summary].append(position)
    (told,) = c.rows.execute("SELECT value FROM meta WHERE key = 'summary_plans'").fetchone()
    wrong = int(parse_json(told) != plans)
    for place, (ordinal, summary, confidence, plan) in enumerate(rows):
        number = OF_TURNS if plan is None else plans.index(plan)
        wrong += ordinal != place
        wrong += arrays.sources_of(place).tolist() != held[summary]
        wrong += int(arrays.plans[place]) != number
        wrong += float(arrays.confidences[place]) != confidence
    return wrong


def _other_words(c: Candidate, texts: list[str], positions: NDArray[Any]) -> int:
    """Return how many summaries are indexed under other words than those of their text."""
    held: Mapping[int, set[str]] = defaultdict(set)
    for term, start, stop in c.rows.execute("SELECT term, start, stop FROM summary_terms"):
        for ordinal in positions[start:stop].tolist():
            held[ordinal].add(term)
    outside = sum(ordinal not in range(len(texts)) for ordinal in held)
    said = (set(document_tokens(text, "", "", "")) for text in texts)
    return outside + sum(words != held[ordinal] for ordinal, words in enumerate(said))


def _bad_vectors(c: Candidate, count: int) -> int:
    vectors = c.arrays["summary_vectors"]
    assert c.manifest.encoder is not None
    shape = (count, int(c.manifest.encoder["dimension"]))
    if vectors.shape != shape or vectors.dtype != np.float32:
        return max(count, 1)
    return count_not_unit(vectors)


def count_not_unit(vectors: NDArray[np.floating[Any]]) -> int:
    """Return how many rows are not finite or not of length 1."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    return int((~(np.abs(norms - 1.0) <= UNIT_NORM_TOLERANCE)).sum())
