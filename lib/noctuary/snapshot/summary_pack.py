"""Accepted summaries as the pack holds them: arrays, postings, vectors, lineage rows. Build side.

What belongs here: bringing summaries into one order and into the forms that recall reads. What does
not: making and judging them (noctuary.compact), writing the files (`build`), reading them
(`summary_arrays`, noctuary.recall.summaries).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.summary import Summary
from noctuary.lexical.fields import document_tokens
from noctuary.lexical.postings import Postings, build_postings_beside
from noctuary.snapshot.summary_arrays import OF_TURNS, SummaryArrays

CATEGORY = "summary"
"""What a summary is called where a memory has its category."""

LINEAGE_SCHEMA = """
CREATE TABLE summaries (
    ordinal INTEGER PRIMARY KEY, summary_id TEXT NOT NULL UNIQUE, cluster_id TEXT NOT NULL,
    session_id TEXT NOT NULL, text TEXT NOT NULL, method TEXT NOT NULL, first_us INTEGER NOT NULL,
    last_us INTEGER NOT NULL, source_tokens INTEGER NOT NULL, summary_tokens INTEGER NOT NULL, align
    REAL, cover REAL, confidence REAL, decay_rate REAL, facts TEXT, plan_id TEXT);
CREATE TABLE summary_sources (
    summary_id TEXT NOT NULL, place INTEGER NOT NULL, position INTEGER NOT NULL, memory_id TEXT NOT
    NULL, PRIMARY KEY (summary_id, place)) WITHOUT ROWID;
CREATE TABLE summary_parents (
    summary_id TEXT NOT NULL, place INTEGER NOT NULL, parent_id TEXT NOT NULL,
    PRIMARY KEY (summary_id, place)) WITHOUT ROWID;
CREATE TABLE summary_terms (
    term TEXT PRIMARY KEY, start INTEGER NOT NULL, stop INTEGER NOT NULL) WITHOUT ROWID;
"""

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class SummaryPack:
    """Summaries in the order of their ids.

    Attributes:
        summaries: In that order.
        plan_of: Summary id -> the compaction plan that it belongs to; others are of turn clusters.
        vectors: Unit rows, shape (s, d), or None without an encoder.
        arrays: What stands for what.
        postings: BM25 postings; positions are ordinals of summaries.
    """

    summaries: Sequence[Summary]
    plan_of: Mapping[str, str]
    vectors: NDArray[np.float32] | None
    arrays: SummaryArrays
    postings: Postings

    @property
    def plans(self) -> list[str]:
        """The plans by number, as `arrays.plans` has them."""
        return sorted(set(self.plan_of.values()))

    def rows(self) -> list[tuple[str, Rows]]:
        """Return the rows of every lineage table."""
        starts = self.postings.starts.tolist()
        return [
            ("summaries", [self._row(i, s) for i, s in enumerate(self.summaries)]),
            ("summary_sources", [row for s in self.summaries for row in _source_rows(s)]),
            ("summary_parents", [
                (s.summary_id, place, parent)
                for s in self.summaries for place, parent in enumerate(s.parent_ids)
            ]),
            ("summary_terms", [
                (term, starts[i], starts[i + 1]) for i, term in enumerate(self.postings.terms)
            ]),
        ]  # fmt: skip

    def _row(self, ordinal: int, s: Summary) -> tuple[Any, ...]:
        gate = s.report
        judged = (gate.align, gate.cover, gate.confidence, gate.decay_rate) if gate else (None,) * 4
        facts = None if s.facts is None else s.facts.to_json()
        return (
            ordinal, s.summary_id, s.cluster_id, s.session_id, s.text, s.method, s.first_us,
            s.last_us, s.source_tokens, s.summary_tokens, *judged, facts,
            self.plan_of.get(s.summary_id),
        )  # fmt: skip


def pack_summaries(
    summaries: Sequence[Summary],
    vectors: NDArray[np.float32] | None,
    plan_of: Mapping[str, str],
    corpus: Postings,
) -> SummaryPack:
    """Return the summaries as the pack holds them, in the order of their ids.

    Args:
        summaries: Accepted ones, each id once.
        vectors: Their unit vectors, aligned, shape (s, d); None without an encoder.
        plan_of: Summary id -> plan id, for those of compaction plans.
        corpus: Postings of the memories: how rare a word is there is how rare it is here.

    Raises:
        ValueError: Not one vector per summary.
    """
    if vectors is not None and len(vectors) != len(summaries):
        raise ValueError(f"found {len(vectors)} vectors for {len(summaries)} summaries")
    order = sorted(range(len(summaries)), key=lambda i: summaries[i].summary_id)
    ordered = [summaries[i] for i in order]
    known = {s.summary_id for s in ordered}
    held = {summary: plan for summary, plan in plan_of.items() if summary in known}
    return SummaryPack(
        ordered,
        held,
        None if vectors is None else np.ascontiguousarray(vectors[order], dtype=np.float32),
        _arrays(ordered, held),
        build_postings_beside((document_tokens(s.text, "", "", CATEGORY) for s in ordered), corpus),
    )


def _arrays(summaries: Sequence[Summary], plan_of: Mapping[str, str]) -> SummaryArrays:
    numbers = {plan: number for number, plan in enumerate(sorted(set(plan_of.values())))}
    lengths = [len(s.source_positions) for s in summaries]
    confidences = [1.0 if s.report is None else s.report.confidence for s in summaries]
    return SummaryArrays(
        indptr=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        sources=np.array([p for s in summaries for p in s.source_positions], dtype=np.int32),
        confidences=np.clip(np.array(confidences, dtype=np.float64), 0.0, 1.0),
        plans=np.array(
            [
                numbers[plan_of[s.summary_id]] if s.summary_id in plan_of else OF_TURNS
                for s in summaries
            ],
            dtype=np.int32,
        ),
    )


def _source_rows(s: Summary) -> Rows:
    pairs = zip(s.source_positions, s.source_ids, strict=True)
    return [(s.summary_id, place, *pair) for place, pair in enumerate(pairs)]
