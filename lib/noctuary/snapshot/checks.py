"""The gate: sentences that must hold for a candidate."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import VectorRows
from noctuary.core import store as layout
from noctuary.core.errors import SnapshotCorruptError
from noctuary.core.files import group_arrays, read_array, read_arrays
from noctuary.core.foreign_json import parse_json
from noctuary.core.manifest import Manifest, full_check, read_manifest
from noctuary.core.sqlite import connect_immutable
from noctuary.embed.funnel import PrefixTier
from noctuary.graph.fold import ROLES
from noctuary.graph.sessions import MIN_MEMBERS, SessionArrays
from noctuary.snapshot import content_checks as content
from noctuary.snapshot.arrays import ShareArrays, is_compressed, within
from noctuary.snapshot.content_checks import (
    LISTED_FAULTS,
    Found,
    Judged,
    count_not_unit,
    judged,
    misplaced_terms,
)
from noctuary.snapshot.publish import CheckResult
from noctuary.text.secrets import Scan, find_text_sensitivity

REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Drop:
    """One significant loss of the candidate against the serving snapshot."""

    group: str  # "labelled" or "exact"; with a stratum, behind a colon
    metric: str  # for example "recall@10"
    mean: float  # mean paired difference, below 0
    low: float  # lower end of its interval
    high: float  # upper end, below 0
    n: int  # queries that both snapshots can answer
    p_holm: float  # permutation p, corrected over everything that was tested


@dataclass(frozen=True, slots=True)
class DropReport:
    """Everything that was compared."""

    drops: tuple[Drop, ...] = ()  # the significant losses
    tested: int = 0  # (group or stratum, metric) pairs
    queries: int = 0  # that they rest on
    note: str = ""  # why nothing was compared
    on_drop: str = REFUSE  # or "report" (setting evaluation.on_drop)


# The gate's checks: read-only, by other code than the code that built the snapshot.


_NO_KEY = -1
_MEMORIES = """SELECT ifnull("user", ''), ifnull(wing, ''), ifnull(session_id, ''), created_at_us,
is_turn FROM memories ORDER BY position"""

Longs = NDArray[np.int64]


def every_session_holds_its_memories_in_order(c: Candidate, x: GateContext) -> Judged:
    """Each session contains all memories of one owner, wing and session id, by time, then position.

    Each memory knows its session, its place there, whether it is a turn, and a concept that speaks
    in it, where one does.
    """
    s = SessionArrays(**c.group("sessions"))
    keys, created_at_us, turns = _read_memories(c)
    found: Found = {"sessions": int(s.indptr.size) - 1}
    if not _are_sessions_aligned(s, len(keys)):
        return False, {**found, "fault": "arrays differ"}
    order, sizes = s.order, np.diff(s.indptr)
    of_member = np.repeat(np.arange(sizes.size), sizes)
    codes, places = np.full((2, len(keys)), -1, dtype=np.int64)
    codes[order], places[order] = of_member, np.arange(order.size)
    # A member that is listed twice has but one place.
    repeated = order.size - np.unique(order).size
    own, times = keys[order], created_at_us[order]
    late = (times[1:] < times[:-1]) | ((times[1:] == times[:-1]) & (order[1:] <= order[:-1]))
    found["too_small"] = int((sizes < MIN_MEMBERS).sum())
    found["misplaced"] = repeated + int(((s.codes != codes) | (s.places != places)).sum())
    # Of no session, or of another one than the session's first.
    strange = (own == _NO_KEY) | (own != own[s.indptr[of_member]]) if own.size else own
    found["of_another_session"] = int(strange.sum())
    found["left_out"] = _left_out(s.codes, keys)
    found["out_of_order"] = int(((of_member[1:] == of_member[:-1]) & late).sum())
    found["wrong_turns"] = int(((s.turns > 0) != (turns > 0)).sum() + (~within(s.turns, 102)).sum())
    found["wrong_speakers"] = _wrong_speakers(c, s.speakers)
    return judged(found, "sessions")


def _read_memories(c: Candidate) -> tuple[Longs, Longs, Longs]:
    """Return one number per owner, wing and session id, when each was written, and turns as 1."""
    codes: dict[tuple[str, str, str], int] = {}
    rows = (
        (
            codes.setdefault((owner, wing, session), len(codes)) if session.strip() else _NO_KEY,
            *rest,
        )
        for owner, wing, session, *rest in c.rows.execute(_MEMORIES)
    )
    keys, created_at_us, turns = np.fromiter(rows, dtype=np.dtype((np.int64, 3))).T
    return keys, created_at_us, turns


def _are_sessions_aligned(sessions: SessionArrays, count: int) -> bool:
    """Return whether shapes line up and every member is a memory; the rest relies on it."""
    by_memory = (sessions.codes, sessions.places, sessions.turns, sessions.speakers)
    return (
        all(array.shape == (count,) for array in by_memory)
        and is_compressed(sessions.indptr, sessions.indptr.size - 1, sessions.order)
        and bool(within(sessions.order, count).all())
    )


def _left_out(codes: NDArray[Any], keys: Longs) -> int:
    """Count the memories that share a session with others and are not in the session of these."""
    held = np.flatnonzero(keys != _NO_KEY)
    _, first, which, sizes = np.unique(
        keys[held], return_index=True, return_inverse=True, return_counts=True
    )
    own = codes[held]
    return int(((sizes[which] >= MIN_MEMBERS) & ((own < 0) | (own != own[first][which]))).sum())


def _wrong_speakers(c: Candidate, speakers: NDArray[np.int32]) -> int:
    """Count the memories whose speaker does not speak there, or that have one and name none."""
    mentions = c.group("mentions")
    owners = np.repeat(np.arange(mentions["indptr"].size - 1), np.diff(mentions["indptr"]))
    speaking = mentions["roles"] == ROLES.index("speaker")
    positions, owners = mentions["positions"][speaking].astype(np.int64), owners[speaking]
    silent = np.ones(speakers.size, dtype=np.bool_)
    silent[positions] = False
    named = np.flatnonzero(speakers != -1)
    # One number per pair: a concept's ordinal is below the number of concepts, or it is no pair.
    concepts = max(mentions["indptr"].size - 1, 1)
    known = within(speakers[named], concepts)
    heard = np.isin(named * concepts + speakers[named], positions * concepts + owners)
    return int((~(known & heard)).sum() + (~silent & (speakers == -1)).sum())


def every_share_is_of_an_owned_memory(c: Candidate, x: GateContext) -> Judged:
    """Each share opens a named user's memory to another user, once.

    A snapshot without shares has neither their arrays nor a count of them.
    """
    there = c.group("shares")
    named = c.rows.execute("SELECT value FROM meta WHERE key = ?", [layout.SHARED_WITH]).fetchone()
    counted = c.manifest.counts.get("shares", 0)
    if not there and named is None and counted == 0:
        return True, {"shares": 0, "note": "nobody shares"}
    if len(there) < 2 or named is None:
        return False, {"shares": counted, "fault": "parts are missing"}
    shares = ShareArrays(parse_json(named[0]), **there)
    owners = [owner for (owner,) in c.rows.execute('SELECT "user" FROM memories ORDER BY position')]
    size = int(shares.positions.size)
    if not shares.is_aligned(len(owners)):
        return False, {"shares": size, "fault": "arrays differ"}
    of_nobody = with_the_owner = twice = 0
    for reader, positions in shares.by_reader(len(owners)).items():
        theirs = [owners[p] for p in positions.tolist()]
        of_nobody += sum(not owner for owner in theirs)
        with_the_owner += theirs.count(reader)
        twice += int((np.diff(positions) <= 0).sum())
    found: Found = {
        "shares": size,
        "uncounted": abs(size - counted),
        "unsorted_readers": int(list(shares.readers) != sorted(shares.readers)),
        "of_nobody": of_nobody,
        "with_the_owner": with_the_owner,
        "twice": twice,
    }
    return judged(found, "shares")


# Nothing is repaired, nothing is trusted twice. The same functions feed the Dagster asset checks,
# which display, and the verdict, which protects. Results hold numbers and ids, never content.


_PREFIX_TOLERANCE = 1e-4  # per component: a product against many rows rounds otherwise
_BLOCK_ROWS = 8_192  # vectors looked at together: 12 MB at 384 dimensions
_TIER_SAMPLE = 1_000  # rows compared with their vector; a wrong rotation or order shows in any ten


@dataclass(frozen=True)
class GateContext:
    """Facts of the night that the gate compares with the candidate."""

    source_counts: Mapping[str, int]  # source_rows, exported, quarantined, sensitive of the export
    tier_rows: Mapping[str, int]  # rows per LanceDB tier
    # Tier rows without a memory plus memories without a tier row, per tier.
    tier_faults: Mapping[str, int]
    index_gaps: Mapping[str, int]  # rows that a tier's index misses, where they are too many
    encoder_digest: str | None  # of the encoder that is configured now
    preserve_threshold: float  # Q_align that a shipped summary must reach
    encode: Callable[[Sequence[str]], NDArray[np.float32]]  # texts as documents
    drops: DropReport
    scan: Scan = find_text_sensitivity


@dataclass(frozen=True)
class Candidate:
    """An opened candidate directory."""

    directory: Path
    manifest: Manifest
    rows: sqlite3.Connection

    @cached_property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Its arrays by name, mapped; without the vectors of the memories."""
        return read_arrays(self.directory / layout.ARRAYS_FILE)

    def group(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of a group by field."""
        return group_arrays(self.arrays, name)

    def value(self, sql: str) -> int:
        """Return the single number that a query yields."""
        return int(self.rows.execute(sql).fetchone()[0])

    def count(self, rows: str) -> int:
        """Return how many rows there are: a table or a join, with its conditions."""
        return self.value(f"SELECT COUNT(*) FROM {rows}")


Check = Callable[[Candidate, GateContext], Judged]
"""A sentence about a candidate: its name is the function's."""


def judge_candidate(directory: Path, context: GateContext) -> list[CheckResult]:
    """Run every check of the gate on a candidate; a check that cannot run has failed."""
    try:
        manifest = read_manifest(directory)
        full_check(directory, manifest)
    except SnapshotCorruptError as error:
        return [CheckResult("files_match_the_manifest", False, {"fault": str(error)})]
    results = [CheckResult("files_match_the_manifest", True, {"files": len(manifest.files)})]
    with closing(connect_immutable(directory / layout.ROWS_FILE)) as rows:
        candidate = Candidate(directory, manifest, rows)
        for check in GATE_CHECKS:
            results.append(_run_check(check, candidate, context))
    return results


def _run_check(check: Check, candidate: Candidate, context: GateContext) -> CheckResult:
    """Return a check's result; one that cannot run has failed."""
    try:
        passed, found = check(candidate, context)
    except Exception as error:
        passed, found = False, {"fault": f"{type(error).__name__} while checking"}
    return CheckResult(check.__name__, passed, dict(found))


def counts_are_conserved_from_source_to_snapshot(c: Candidate, x: GateContext) -> Judged:
    """Exported + quarantined + sensitive = source, and the snapshot holds all exported rows."""
    s = x.source_counts
    held = c.count("memories")
    adds_up = s["exported"] + s["quarantined"] + s["sensitive"] == s["source_rows"]
    passed = adds_up and held == s["exported"] == c.manifest.counts["memories"]
    return passed, {**s, "snapshot_rows": held}


def no_sensitive_row_is_anywhere(c: Candidate, x: GateContext) -> Judged:
    """No text of the snapshot looks redacted or like a secret, in any table."""
    found = find_sensitive_texts(c.rows, x.scan)
    return "ids" not in found, found


def find_sensitive_texts(rows: sqlite3.Connection, scan: Scan = find_text_sensitivity) -> Found:
    """Count the rows of each table that look redacted or like a secret; `ids` names the first.

    Field by field: joined in another order than at the export, two harmless fields may read like an
    assignment ("... password:" before the tag "home2024"), and every night would be refused.
    """
    texts = {
        "memories": "SELECT memory_id, content, tags, expanded_keywords FROM memories",
        "summaries": "SELECT summary_id, text, ifnull(facts, '') FROM summaries",
        "concepts": "SELECT concept_id, canonical_name, aliases FROM concepts",
        "concept_names": "SELECT ordinal, name FROM concept_names",
        "merges": "SELECT reason, name, canonical, detail FROM merges",
        # Nearly all are names of their concept, looked at above.
        "links": "SELECT ordinal, name FROM links l WHERE NOT EXISTS (SELECT 1 FROM concept_names n"
        " WHERE n.name = l.name AND n.ordinal = l.ordinal)",
        "link_starts": "SELECT words, word FROM link_starts",
    }
    found: Found = {}
    ids: list[str] = []
    for table, sql in texts.items():
        hits = [
            str(key)
            for key, *fields in rows.execute(sql)
            if any(scan(field) is not None for field in fields)
        ]
        found[table] = len(hits)
        ids += [f"{table}:{key}" for key in hits]
    if ids:
        found["ids"] = ", ".join(ids[:LISTED_FAULTS])
    return found


def every_vector_is_finite_and_unit(c: Candidate, x: GateContext) -> Judged:
    """Every memory has a finite vector of length 1; without an encoder there is none to check."""
    if c.manifest.encoder is None:
        return True, {"rows": 0, "note": "built without an encoder"}
    expected = (c.manifest.counts["memories"], int(c.manifest.encoder["dimension"]))
    vectors = VectorRows(c.directory / layout.VECTORS_FILE)
    if vectors.shape != expected or vectors.dtype != np.float32:
        was = f"{vectors.dtype}{vectors.shape}"
        return False, {"found": was, "expected": f"float32{expected}"}
    starts = range(0, len(vectors), _BLOCK_ROWS)
    bad = sum(count_not_unit(vectors[start : start + _BLOCK_ROWS]) for start in starts)
    return bad == 0, {"rows": expected[0], "not_finite_or_not_unit": bad}


def every_short_tier_row_is_its_memorys_prefix(c: Candidate, x: GateContext) -> Judged:
    """The short tier holds each memory once, in its cell's place, as the prefix of its vector.

    Without a tier, every vector is scanned and there is nothing to check.
    """
    held = c.group("tier")
    if not held:
        return True, {"rows": 0, "note": "no tier: every vector is scanned"}
    vectors, tier = read_array(c.directory / layout.VECTORS_FILE), PrefixTier(**held)
    if not tier.is_aligned(*vectors.shape):
        return False, {"fault": "arrays of different lengths"}
    times = np.bincount(np.clip(tier.positions, 0, len(vectors) - 1), minlength=len(vectors))
    found: Found = {
        "rows": len(vectors),
        "not_finite": _rows_not_finite(tier.vectors),
        "not_once": int((times != 1).sum()),
        "misplaced_cells": int(tier.starts[0] != 0) + int((np.diff(tier.starts) < 0).sum()),
    }
    rows = np.arange(0, len(vectors), -(-len(vectors) // _TIER_SAMPLE))
    expected = np.stack([tier.shorten(vector) for vector in vectors[tier.positions[rows]]])
    off = ~(np.abs(tier.vectors[rows] - expected).max(axis=1) <= _PREFIX_TOLERANCE)
    found["sampled"], found["not_its_prefix"] = len(rows), int(off.sum())
    faults = ("not_finite", "not_once", "misplaced_cells", "not_its_prefix")
    return not any(found[fault] for fault in faults), found


def _rows_not_finite(vectors: NDArray[np.floating[Any]]) -> int:
    blocks = (vectors[i : i + _BLOCK_ROWS] for i in range(0, len(vectors), _BLOCK_ROWS))
    return sum(int((~np.isfinite(block).all(axis=1)).sum()) for block in blocks)


def one_encoder_made_every_vector(c: Candidate, x: GateContext) -> Judged:
    """The snapshot, the query encoder and the configured model have one fingerprint."""
    found = c.manifest.encoder_digest
    told: Found = {"snapshot": str(found), "configured": str(x.encoder_digest)}
    return found == x.encoder_digest, told


def every_tier_row_has_its_memory(c: Candidate, x: GateContext) -> Judged:
    """Each tier holds each memory exactly once."""
    held = c.manifest.counts["memories"] if c.manifest.encoder is not None else 0
    wrong = {name: rows for name, rows in x.tier_rows.items() if rows != held}
    passed = not wrong and not any(x.tier_faults.values())
    return passed, {"memories": held, **x.tier_rows}


def every_index_covers_its_tier(c: Candidate, x: GateContext) -> Judged:
    """An index, where there is one, misses few rows at most."""
    total = sum(x.index_gaps.values())
    return total == 0, {"unindexed_rows": total, **x.index_gaps}


def every_posting_has_its_memory(c: Candidate, x: GateContext) -> Judged:
    """Postings point at memories.

    Term slices cover them exactly, scores are finite and positive.
    """
    positions, scores = c.arrays["posting.positions"], c.arrays["posting.scores"]
    count = c.manifest.counts["memories"]
    found: Found = {
        "postings": int(positions.size),
        "outside": int((~within(positions, count)).sum()),
        "bad_scores": int((~(np.isfinite(scores) & (scores > 0))).sum()),
        "misplaced_terms": misplaced_terms(c.rows, positions.size),
    }
    passed, _ = judged(found, "postings")
    return passed and positions.size == scores.size, found


def recall_has_not_dropped_significantly(c: Candidate, x: GateContext) -> Judged:
    """No group or stratum of queries recalls significantly worse than in the current snapshot.

    Significant: the paired 95 % interval lies below zero and the permutation p, corrected over
    everything that was tested (Holm), is below .05.
    """
    found: Found = {
        "tested": x.drops.tested,
        "queries": x.drops.queries,
        "dropped": len(x.drops.drops),
        "on_drop": x.drops.on_drop,
    }
    if x.drops.note:
        found["note"] = x.drops.note
    for drop in x.drops.drops[:LISTED_FAULTS]:
        found[f"{drop.group} {drop.metric}"] = (
            f"{drop.mean:+.3f} [{drop.low:+.3f}, {drop.high:+.3f}], n {drop.n}, "
            f"Holm p {drop.p_holm:.4f}"
        )
    passed = not x.drops.drops or x.drops.on_drop != REFUSE
    return passed, found


DROP_CHECK = recall_has_not_dropped_significantly.__name__

GATE_CHECKS: tuple[Check, ...] = (
    counts_are_conserved_from_source_to_snapshot,
    no_sensitive_row_is_anywhere,
    every_vector_is_finite_and_unit,
    every_short_tier_row_is_its_memorys_prefix,
    one_encoder_made_every_vector,
    every_tier_row_has_its_memory,
    every_index_covers_its_tier,
    every_posting_has_its_memory,
    content.every_edge_has_evidence,
    content.every_mention_stands_in_its_memory,
    content.every_concept_edge_is_stated_somewhere,
    content.every_supersession_leads_to_a_head,
    content.every_link_leads_to_a_concept,
    content.every_link_is_found_by_its_first_word,
    every_session_holds_its_memories_in_order,
    every_share_is_of_an_owned_memory,
    content.every_summary_names_its_sources,
    content.every_summary_reaches_its_turns_once,
    content.every_summary_is_searched_as_it_reads,
    content.every_summary_preserves_its_sources,
    recall_has_not_dropped_significantly,
)
"""Order of display; all of them run, whatever fails."""
