"""The gate's sentences about the graph. Pure reading, as in `checks`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.foreign_json import parse_json
from noctuary.graph.arrays import LINK_RELATIONS, NO_CONCEPT, RELATIONS, ROLES
from noctuary.graph.model import NO_SPAN
from noctuary.snapshot import layout
from noctuary.snapshot.verdict import CheckResult

if TYPE_CHECKING:
    from noctuary.snapshot.checks import Candidate, GateContext

Bools = NDArray[np.bool_]


def every_edge_has_evidence(c: Candidate, x: GateContext) -> CheckResult:
    """Each edge joins two memories, names a concept, and rests on a span of its source's text.

    Edges between turns rest on the session and have no span; links of the store have neither span
    nor concept. No edge ends before it begins.
    """
    arrays = {name: c.array(layout.graph_file(name)) for name in layout.GRAPH_FIELDS}
    lengths = _content_lengths(c)
    rows, targets = arrays["indptr"], arrays["targets"]
    found: dict[str, int | float | str] = {"edges": int(targets.size)}
    if not _is_aligned(arrays, len(lengths)):
        return CheckResult("every_edge_has_evidence", False, {**found, "fault": "arrays differ"})
    sources = np.repeat(np.arange(len(lengths)), np.diff(rows))
    concepts = c.value("SELECT COUNT(*) FROM concepts")
    links = np.isin(arrays["relations"], [RELATIONS.index(name) for name in LINK_RELATIONS])
    known = np.where(links, arrays["concepts"] == NO_CONCEPT, _within(arrays["concepts"], concepts))
    spans = known & _has_span(sources, arrays["evidence_starts"], arrays["evidence_ends"], lengths)
    joined = _within(targets, len(lengths)) & _within(arrays["relations"], len(RELATIONS))
    ordered = arrays["valid_from_us"] <= arrays["valid_to_us"]
    found["without_evidence"] = int((~spans).sum())
    found["dangling"] = int((~joined | (targets == sources)).sum())
    found["ends_before_it_begins"] = int((~ordered).sum())
    return judged("every_edge_has_evidence", found, "edges")


def every_mention_stands_in_its_memory(c: Candidate, x: GateContext) -> CheckResult:
    """Each mention names a memory, and its span lies inside that memory's text or is none.

    Every concept has a mention, and every name leads to a concept.
    """
    arrays = {name: c.array(layout.mention_file(name)) for name in layout.MENTION_FIELDS}
    lengths, concepts = _content_lengths(c), c.value("SELECT COUNT(*) FROM concepts")
    positions = arrays["positions"]
    found: dict[str, int | float | str] = {"mentions": int(positions.size)}
    if not _is_aligned(arrays, concepts):
        name = "every_mention_stands_in_its_memory"
        return CheckResult(name, False, {**found, "fault": "arrays differ"})
    known = _within(positions, len(lengths))
    held = np.where(known, positions, 0)
    spans = known & _has_span(held, arrays["starts"], arrays["ends"], lengths)
    found["outside"] = int((~(spans & _within(arrays["roles"], len(ROLES)))).sum())
    found["concepts_without_mention"] = int((np.diff(arrays["indptr"]) < 1).sum())
    found["names_of_no_concept"] = c.value(
        "SELECT COUNT(*) FROM concept_names n WHERE NOT EXISTS (SELECT 1 FROM concepts k "
        "WHERE k.ordinal = n.ordinal)"
    )
    return judged("every_mention_stands_in_its_memory", found, "mentions")


def every_concept_edge_is_stated_somewhere(c: Candidate, x: GateContext) -> CheckResult:
    """Each relation between concepts joins two of them and lists where memories state it.

    No relation ends before it begins.
    """
    lengths = _content_lengths(c)
    found: dict[str, int | float | str] = {"concept_edges": 0}
    found["dangling"] = c.value(
        "SELECT COUNT(*) FROM concept_edges e WHERE e.src = e.dst OR (SELECT COUNT(*) FROM "
        "concepts k WHERE k.ordinal IN (e.src, e.dst)) < 2"
    )
    found["ends_before_it_begins"] = c.value(
        "SELECT COUNT(*) FROM concept_edges WHERE valid_to_us < valid_from_us"
    )
    unstated = 0
    for (evidence,) in c.rows.execute("SELECT evidence FROM concept_edges"):
        spans = np.array(parse_json(evidence), dtype=np.int64).reshape(-1, 3)
        positions, starts, ends = spans.T
        known = _within(positions, len(lengths))
        held = np.where(known, positions, 0)
        unstated += not (len(spans) and (known & _has_span(held, starts, ends, lengths)).all())
    found["unstated"] = unstated
    found["concept_edges"] = c.value("SELECT COUNT(*) FROM concept_edges")
    return judged("every_concept_edge_is_stated_somewhere", found, "concept_edges")


def every_supersession_leads_to_a_head(c: Candidate, x: GateContext) -> CheckResult:
    """Each superseded memory has one successor, successors make no circle, and the head ends it.

    Both memories, the evidence's and the concept exist.
    """
    rows = c.rows.execute(
        "SELECT older, newer, head, evidence_position, evidence_start, evidence_end "
        "FROM supersessions ORDER BY older, newer"
    ).fetchall()
    table = np.array(rows, dtype=np.int64).reshape(-1, 6)
    lengths = _content_lengths(c)
    known = _within(table[:, :4], len(lengths)).all(axis=1)
    held = np.where(known, table[:, 3], 0)
    spans = _has_span(held, table[:, 4], table[:, 5], lengths)
    newer_of = {older: newer for older, newer, *_ in rows}
    found: dict[str, int | float | str] = {
        "supersessions": len(rows),
        "dangling": int((~(known & spans)).sum()),
        "of_no_concept": c.value(
            "SELECT COUNT(*) FROM supersessions s WHERE s.concept IS NOT NULL AND NOT EXISTS "
            "(SELECT 1 FROM concepts k WHERE k.ordinal = s.concept)"
        ),
        "two_successors": len(rows) - len(newer_of),
        "other_head": sum(_end_of(older, newer_of) != head for older, _, head, *_ in rows),
    }
    return judged("every_supersession_leads_to_a_head", found, "supersessions")


def every_link_leads_to_a_concept(c: Candidate, x: GateContext) -> CheckResult:
    """Each name that a query may link to names a concept that exists, and weighs 0 to 1."""
    found: dict[str, int | float | str] = {
        "links": c.value("SELECT COUNT(*) FROM links"),
        "of_no_concept": c.value(
            "SELECT COUNT(*) FROM links l WHERE NOT EXISTS "
            "(SELECT 1 FROM concepts k WHERE k.ordinal = l.ordinal)"
        ),
        "bad_weights": c.value(
            "SELECT COUNT(*) FROM links WHERE typeof(weight) <> 'real' "
            "OR weight NOT BETWEEN 0 AND 1"
        ),
        "bad_case_rules": c.value("SELECT COUNT(*) FROM links WHERE cased NOT IN (0, 1)"),
    }
    return judged("every_link_leads_to_a_concept", found, "links")


def every_link_is_found_by_its_first_word(c: Candidate, x: GateContext) -> CheckResult:
    """Each such name's first word is known to begin a name of at least that many words."""
    found: dict[str, int | float | str] = {
        "first_words": c.value("SELECT COUNT(*) FROM link_starts"),
        "unreachable": c.value(
            "SELECT COUNT(*) FROM links l LEFT JOIN link_starts s "
            "ON s.word = substr(l.name, 1, instr(l.name || ' ', ' ') - 1) WHERE s.words IS NULL "
            "OR s.words < length(l.name) - length(replace(l.name, ' ', '')) + 1"
        ),
    }
    return judged("every_link_is_found_by_its_first_word", found, "first_words")


def _end_of(older: int, newer_of: Mapping[int, int]) -> int | None:
    """Return the last of a chain, or None where it runs in a circle."""
    seen: set[int] = set()
    while older in newer_of:
        if older in seen:
            return None
        seen.add(older)
        older = newer_of[older]
    return older


def judged(name: str, found: Mapping[str, int | float | str], counted: str) -> CheckResult:
    """Return the result: everything but the number of what was counted is a fault."""
    return CheckResult(name, not any(found[key] for key in found if key != counted), dict(found))


def _is_aligned(arrays: Mapping[str, NDArray[Any]], rows: int) -> bool:
    """Say whether compressed rows have one start each and columns of one length."""
    indptr = arrays["indptr"]
    if indptr.shape != (rows + 1,) or indptr[0] != 0 or bool((np.diff(indptr) < 0).any()):
        return False
    columns = (array for name, array in arrays.items() if name != "indptr")
    return all(array.shape == (int(indptr[-1]),) for array in columns)


def _within(values: NDArray[Any], count: int) -> Bools:
    return np.asarray((values >= 0) & (values < count))


def _has_span(
    positions: NDArray[Any], starts: NDArray[Any], ends: NDArray[Any], lengths: NDArray[np.int64]
) -> Bools:
    """Say which spans lie inside the text of their memory, or are none."""
    if not len(lengths):
        return np.zeros(len(starts), dtype=np.bool_)
    inside = (starts >= 0) & (starts < ends) & (ends <= lengths[positions])
    return np.asarray(inside | ((starts == NO_SPAN) & (ends == NO_SPAN)))


def _content_lengths(c: Candidate) -> NDArray[np.int64]:
    rows = c.rows.execute("SELECT length(content) FROM memories ORDER BY position")
    return np.fromiter((length for (length,) in rows), dtype=np.int64)
