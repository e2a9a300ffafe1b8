"""The gate's sentences about summaries. Pure reading, by other code than what built them.

What belongs here: that a summary stands for exactly its memories, leads back to them, and is found
by what it says. What does not: how it was made and judged (noctuary.compact).
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.gate import judge
from noctuary.compact.vector_rows import VectorRows
from noctuary.foreign_json import parse_json
from noctuary.lexical.fields import document_tokens
from noctuary.snapshot import layout
from noctuary.snapshot.graph_checks import judged
from noctuary.snapshot.summary_arrays import OF_TURNS, SummaryArrays
from noctuary.snapshot.verdict import CheckResult

if TYPE_CHECKING:
    from noctuary.snapshot.checks import Candidate, GateContext

_LISTED_FAULTS = 10
"""Ids shown in a result."""

_SAME_TEXT = 0.999
"""Least cosine of a summary's stored vector and its text embedded again: batches round otherwise,
another text is further away than that."""

UNIT_NORM_TOLERANCE = 1e-3
"""float32 rows of a unit-normalising encoder; anything further off was damaged or made by something
else."""

Found = dict[str, int | float | str]


def every_summary_names_its_sources(c: Candidate, x: GateContext) -> CheckResult:
    """Each summary lists at least two turns, each of them in the snapshot under the same id."""
    total = c.value("SELECT COUNT(*) FROM summaries")
    thin = c.value(
        "SELECT COUNT(*) FROM summaries s WHERE (SELECT COUNT(*) FROM summary_sources r"
        " WHERE r.summary_id = s.summary_id) < 2"
    )
    lost = c.value(
        "SELECT COUNT(*) FROM summary_sources r WHERE NOT EXISTS (SELECT 1 FROM memories m"
        " WHERE m.position = r.position AND m.memory_id = r.memory_id)"
    )
    passed = thin == 0 and lost == 0
    return CheckResult(
        "every_summary_names_its_sources",
        passed,
        {"summaries": total, "fewer_than_two_sources": thin, "sources_not_in_snapshot": lost},
    )


def every_summary_reaches_its_turns_once(c: Candidate, x: GateContext) -> CheckResult:
    """Lineage loses nothing and goes round in no circle.

    Each source is named once per summary, in order of time, and stands in one summary of turns at
    most; all belong to one user and one wing; a summary's span is that of its sources and not of
    the night; parents lead to no circle; and recall's arrays say the same as the tables.
    """
    sources = "summary_sources r JOIN memories m ON m.position = r.position"
    found: Found = {
        "summaries": c.value("SELECT COUNT(*) FROM summaries"),
        "sources_named_twice": c.value(
            "SELECT COUNT(*) FROM (SELECT 1 FROM summary_sources GROUP BY summary_id, position "
            "HAVING COUNT(*) > 1)"
        ),
        "turns_in_two_summaries": c.value(
            "SELECT COUNT(*) FROM (SELECT 1 FROM summary_sources r JOIN summaries s "
            "ON s.summary_id = r.summary_id WHERE s.plan_id IS NULL GROUP BY r.position "
            "HAVING COUNT(*) > 1)"
        ),
        "mixed_users_or_wings": c.value(
            f"SELECT COUNT(*) FROM (SELECT 1 FROM {sources} GROUP BY r.summary_id HAVING "
            "COUNT(DISTINCT ifnull(m.user, '') || char(0) || ifnull(m.wing, '')) > 1)"
        ),
        "other_spans": c.value(
            "SELECT COUNT(*) FROM summaries s WHERE s.first_us != (SELECT MIN(m.created_at_us) "
            f"FROM {sources} WHERE r.summary_id = s.summary_id) OR s.last_us != (SELECT "
            f"MAX(m.created_at_us) FROM {sources} WHERE r.summary_id = s.summary_id)"
        ),
        "out_of_order": c.value(
            "SELECT COUNT(*) FROM summary_sources a JOIN summary_sources b ON b.summary_id = "
            "a.summary_id AND b.place = a.place + 1 JOIN memories m ON m.position = a.position "
            "JOIN memories n ON n.position = b.position WHERE m.created_at_us > n.created_at_us"
        ),
        "parents_in_a_circle": _circles(
            c.rows.execute("SELECT summary_id, parent_id FROM summary_parents")
        ),
        "other_arrays": _other_arrays(c),
    }
    return judged("every_summary_reaches_its_turns_once", found, "summaries")


def every_summary_is_searched_as_it_reads(c: Candidate, x: GateContext) -> CheckResult:
    """Each summary is found by the words of its text, and has a finite vector of length 1."""
    name = "every_summary_is_searched_as_it_reads"
    texts = [text for (text,) in c.rows.execute("SELECT text FROM summaries ORDER BY ordinal")]
    positions = c.array(layout.SUMMARY_POSTING_POSITIONS_FILE)
    scores = c.array(layout.SUMMARY_POSTING_SCORES_FILE)
    found: Found = {
        "summaries": len(texts),
        "bad_scores": int((~(np.isfinite(scores) & (scores > 0))).sum()),
        "misplaced_terms": misplaced_terms(c.rows, positions.size, "summary_terms"),
        "other_words": _other_words(c, texts, positions),
    }
    if positions.size != scores.size:
        return CheckResult(name, False, {**found, "fault": "arrays of different lengths"})
    if c.manifest.encoder is not None:
        found["bad_vectors"] = _bad_vectors(c, len(texts))
    return judged(name, found, "summaries")


def every_summary_preserves_its_sources(c: Candidate, x: GateContext) -> CheckResult:
    """Each summary's text, embedded again here, has Q_align >= the threshold with its sources.

    And its stored vector is that of its text (libravdb 5.3).
    """
    name = "every_summary_preserves_its_sources"
    summaries = c.rows.execute("SELECT summary_id, text FROM summaries ORDER BY ordinal").fetchall()
    if not summaries:
        return CheckResult(name, True, {"summaries": 0})
    stored = c.array(layout.SUMMARY_VECTORS_FILE)
    embedded = x.encode([text for _, text in summaries])
    failed: list[str] = []
    lowest, strangers = 1.0, 0
    with VectorRows(c.directory / layout.VECTORS_FILE) as vectors:
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
        found["ids"] = ", ".join(failed[:_LISTED_FAULTS])
    return CheckResult(name, not failed, found)


def misplaced_terms(rows: sqlite3.Connection, postings: int, table: str = "terms") -> int:
    """Return how many term slices do not start where the one before ends, the end included."""
    misplaced, end = 0, 0
    for start, stop in rows.execute(f"SELECT start, stop FROM {table} ORDER BY start, stop"):
        misplaced += start != end or stop <= start
        end = stop
    return misplaced + (end != postings)


def _circles(pairs: Iterable[tuple[str, str]]) -> int:
    """Return how many summaries descend from themselves."""
    parents: dict[str, set[str]] = defaultdict(set)
    for summary, parent in pairs:
        parents[summary].add(parent)
    # Taking away, again and again, whoever has no parent left leaves the circles and what hangs
    # below them; a chain of any length needs no recursion.
    waiting = {summary: set(known) & parents.keys() for summary, known in parents.items()}
    children: dict[str, list[str]] = defaultdict(list)
    for summary, known in waiting.items():
        for parent in known:
            children[parent].append(summary)
    free = [summary for summary, known in waiting.items() if not known]
    while free:
        parent = free.pop()
        del waiting[parent]
        for child in children[parent]:
            waiting[child].discard(parent)
            if not waiting[child]:
                free.append(child)
    return len(waiting)


def _other_arrays(c: Candidate) -> int:
    """Return how many sources, confidences or plans the arrays have otherwise than the tables."""
    arrays = SummaryArrays(
        **{name: c.array(layout.summary_file(name)) for name in layout.SUMMARY_FIELDS}
    )
    rows: list[tuple[Any, ...]] = c.rows.execute(
        "SELECT ordinal, summary_id, confidence, plan_id FROM summaries ORDER BY ordinal"
    ).fetchall()
    if not arrays.is_aligned(c.manifest.counts["memories"]) or arrays.size != len(rows):
        return max(arrays.size, len(rows), 1)
    ids = [row[1] for row in rows]
    plans = sorted({row[3] for row in rows if row[3] is not None})
    wrong = int([row[0] for row in rows] != list(range(len(rows)))) + int(ids != sorted(ids))
    wrong += int(_plans_told(c) != plans)
    held: dict[str, list[int]] = defaultdict(list)
    for summary, position in c.rows.execute(
        "SELECT summary_id, position FROM summary_sources ORDER BY summary_id, place"
    ):
        held[summary].append(position)
    for ordinal, summary, confidence, plan in rows:
        number = OF_TURNS if plan is None else plans.index(plan)
        wrong += arrays.sources_of(ordinal).tolist() != held[summary]
        wrong += int(arrays.plans[ordinal]) != number
        wrong += float(arrays.confidences[ordinal]) != (1.0 if confidence is None else confidence)
    return wrong


def _plans_told(c: Candidate) -> list[str]:
    (told,) = c.rows.execute("SELECT value FROM meta WHERE key = 'summary_plans'").fetchone()
    return parse_json(told)


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
    vectors = c.array(layout.SUMMARY_VECTORS_FILE)
    assert c.manifest.encoder is not None
    if vectors.shape != (count, int(c.manifest.encoder["dimension"])):
        return max(count, 1)
    if vectors.dtype != np.float32:
        return max(count, 1)
    return count_not_unit(vectors)


def count_not_unit(vectors: NDArray[np.floating[Any]]) -> int:
    """Return how many rows are not finite or not of length 1."""
    norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    return int((~(np.abs(norms - 1.0) <= UNIT_NORM_TOLERANCE)).sum())
