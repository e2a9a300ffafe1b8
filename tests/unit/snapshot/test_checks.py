from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.core import store as layout
from noctuary.snapshot.checks import DROP_CHECK, GATE_CHECKS, Drop, DropReport, judge_candidate
from tests.support.damage import Bench, Edit, array, put, sign, sql
from tests.support.store import Store, gate_context, household
from tests.unit.snapshot.test_graph_checks import BAD_CANDIDATES as bad_graphs
from tests.unit.snapshot.test_graph_checks import BAD_LINKS as bad_links
from tests.unit.snapshot.test_graph_checks import SESSIONS as bad_sessions
from tests.unit.snapshot.test_shares import CHECK as bad_shares
from tests.unit.snapshot.test_summary_checks import BAD as bad_summaries

CANARY = "[REDACTED: vault]"

COUNTS = "counts_are_conserved_from_source_to_snapshot"
SENSITIVE = "no_sensitive_row_is_anywhere"
UNIT = "every_vector_is_finite_and_unit"
SHORT_TIER = "every_short_tier_row_is_its_memorys_prefix"
ENCODER = "one_encoder_made_every_vector"
TIERS = "every_tier_row_has_its_memory"
INDEXED = "no_tier_row_is_unindexed"
POSTINGS = "every_posting_has_its_memory"

BAD_CANDIDATES: dict[str, tuple[str, Edit]] = {
    "a memory is missing": (COUNTS, sql("DELETE FROM memories WHERE position = 7")),
    "a memory is sensitive": (
        SENSITIVE,
        sql(f"UPDATE memories SET content = content || ' {CANARY}' WHERE position = 7"),
    ),
    "a tag is sensitive": (
        SENSITIVE, sql(f"UPDATE memories SET tags = '{CANARY}' WHERE position = 7"),
    ),
    "a keyword is sensitive": (
        SENSITIVE, sql(f"UPDATE memories SET expanded_keywords = '{CANARY}' WHERE position = 7"),
    ),
    "a summary is sensitive": (
        SENSITIVE, sql(f"UPDATE summaries SET text = text || ' {CANARY}'"),
    ),
    "a concept's name is sensitive": (
        SENSITIVE, sql(f"UPDATE concepts SET canonical_name = '{CANARY}' WHERE ordinal = 0"),
    ),
    "a concept's alias is sensitive": (
        SENSITIVE, sql(f"UPDATE concepts SET aliases = '[\"{CANARY}\"]' WHERE ordinal = 0"),
    ),
    "a concept's other name is sensitive": (
        SENSITIVE, sql(f"UPDATE concept_names SET name = '{CANARY}' WHERE ordinal = 0"),
    ),
    "a merged name is sensitive": (
        SENSITIVE, sql(f"INSERT INTO merges VALUES ('{CANARY}', 'x', 'rule', 1, '')"),
    ),
    "a name that queries link to is sensitive": (
        SENSITIVE, sql(f"INSERT INTO links VALUES ('{CANARY}', 0, 0.5, 0)"),
    ),
    "the first word of a name is sensitive": (
        SENSITIVE, sql(f"INSERT INTO link_starts VALUES ('{CANARY}', 9)"),
    ),
    "a vector is too long": (UNIT, array(layout.VECTORS_FILE, put((7, 0), 1.01))),
    "a vector is zero": (UNIT, array(layout.VECTORS_FILE, put(7, 0.0))),
    "a vector is not a number": (UNIT, array(layout.VECTORS_FILE, put((7, 0), np.nan))),
    "a vector is infinite": (UNIT, array(layout.VECTORS_FILE, put((7, 0), np.inf))),
    "a vector is missing": (UNIT, array(layout.VECTORS_FILE, lambda v: v[:-1])),
    "a dimension is missing": (UNIT, array(layout.VECTORS_FILE, lambda v: v[:, 1:])),
    "vectors have another type": (
        UNIT, array(layout.VECTORS_FILE, lambda v: v.astype(np.float64)),
    ),
    "a tier row is not a number": (
        SHORT_TIER, array("tier.vectors", put((7, 0), np.nan)),
    ),
    "a tier row is another memory's": (
        SHORT_TIER, array("tier.vectors", lambda v: np.roll(v, 1, axis=0)),
    ),
    "a tier row is missing": (SHORT_TIER, array("tier.vectors", lambda v: v[:-1])),
    "a memory is in the tier twice": (
        SHORT_TIER, array("tier.positions", lambda v: np.append(v[:-1], v[0])),
    ),
    "a tier row is no memory's": (SHORT_TIER, array("tier.positions", put(0, 14))),
    "a cell starts behind its end": (
        SHORT_TIER, array("tier.starts", lambda v: v[[0, 2, 1, 3]]),
    ),
    "the first cell leaves rows out": (SHORT_TIER, array("tier.starts", put(0, 1))),
    "the tier is of another rotation": (
        SHORT_TIER, array("tier.rotation", lambda v: v[::-1]),
    ),
    "a posting points behind the end": (
        POSTINGS, array("posting.positions", put(0, 14)),
    ),
    "a posting points before the start": (
        POSTINGS, array("posting.positions", put(0, -1)),
    ),
    "a posting scores nothing": (POSTINGS, array("posting.scores", put(0, 0.0))),
    "a posting's score is not a number": (
        POSTINGS, array("posting.scores", put(0, np.nan)),
    ),
    "a posting has no score": (POSTINGS, array("posting.scores", lambda v: v[:-1])),
    "a posting belongs to no term": (POSTINGS, sql("DELETE FROM terms WHERE start = 0")),
    "every term has its neighbour's postings": (
        POSTINGS, sql("UPDATE terms SET start = start + 1, stop = stop + 1"),
    ),
    "two terms share a posting and one is left": (
        POSTINGS,
        sql(
            "UPDATE terms SET start = start + 1 WHERE start = 0",
            "UPDATE terms SET stop = stop + 1 WHERE start = (SELECT MIN(stop) FROM terms)",
        ),
    ),
}  # fmt: skip

LOSS = Drop("labelled", "recall@10", -0.2, -0.3, -0.1, 60, 0.001)
BAD_NIGHTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a row got lost in the export": (
        COUNTS,
        {"source_counts": {"source_rows": 18, "exported": 14, "quarantined": 2, "sensitive": 1}},
    ),
    "the export counted another number": (
        COUNTS,
        {"source_counts": {"source_rows": 18, "exported": 15, "quarantined": 2, "sensitive": 1}},
    ),
    "the configured model is another": (ENCODER, {"encoder_digest": "0" * 16}),
    "there is no configured model": (ENCODER, {"encoder_digest": None}),
    "a tier row is missing": (TIERS, {"tier_rows": {"64": 14, "full": 13}}),
    "a tier row has no memory": (TIERS, {"tier_faults": {"full": 1}}),
    "a tier row is unindexed": (INDEXED, {"unindexed_rows": {"64": 0, "full": 1}}),
    "recall got worse": (DROP_CHECK, {"drops": DropReport((LOSS,), tested=4, queries=60)}),
}


def test_the_good_candidate_passes_every_check(bench: Bench) -> None:
    results = bench.judge()
    assert [r.name for r in results] == [
        "files_match_the_manifest",
        *(check.__name__ for check in GATE_CHECKS),
    ]
    assert all(r.passed for r in results)


@pytest.mark.parametrize("case", BAD_CANDIDATES)
def test_a_bad_candidate_fails(bench: Bench, case: str) -> None:
    name, edit = BAD_CANDIDATES[case]
    edit(bench.directory)
    failed = bench.failed()
    assert name in failed
    assert "files_match_the_manifest" not in failed


@pytest.mark.parametrize("case", BAD_NIGHTS)
def test_a_bad_night_fails_exactly_its_check(bench: Bench, case: str) -> None:
    name, context = BAD_NIGHTS[case]
    assert bench.failed(**context) == {name}


def test_every_check_has_a_candidate_or_a_night_that_fails_it() -> None:
    """Here or in the tests of the graph's, the summaries' and the shares' checks."""
    shown = {name for name, _ in (*BAD_CANDIDATES.values(), *BAD_NIGHTS.values())}
    shown |= {name for name, _ in (*bad_graphs.values(), *bad_summaries.values())}
    shown |= {name for name, _, _ in bad_links.values()} | {bad_sessions, bad_shares}
    assert shown == {check.__name__ for check in GATE_CHECKS}


def test_the_tier_of_the_good_candidate_was_looked_at(bench: Bench) -> None:
    (result,) = (r for r in bench.judge() if r.name == SHORT_TIER)
    assert (result.found["rows"], result.found["sampled"]) == (14, 14)


def test_results_hold_ids_and_never_content(bench: Bench) -> None:
    for case in ("a memory is sensitive", "a summary is sensitive", "a merged name is sensitive"):
        BAD_CANDIDATES[case][1](bench.directory)
    (result,) = (r for r in bench.judge() if r.name == SENSITIVE)
    assert (result.found["memories"], result.found["summaries"]) == (1, 1)
    assert "memories:108" in str(result.found["ids"])
    assert CANARY not in repr(result.found)


def test_a_drop_that_is_only_reported_passes_and_says_so(bench: Bench) -> None:
    drops = DropReport((LOSS,), tested=4, queries=60, on_drop="report")
    (result,) = (r for r in bench.judge(drops=drops) if r.name == DROP_CHECK)
    assert result.passed
    assert result.found["dropped"] == 1
    assert result.found["labelled recall@10"] == "-0.200 [-0.300, -0.100], n 60, Holm p 0.0010"


def test_two_harmless_fields_do_not_read_as_one_secret(bench: Bench) -> None:
    sql(
        "UPDATE memories SET content = content || ' Ask for the password:', tags = 'home2024',"
        " expanded_keywords = 'xK9fQ2mZ7p' WHERE position = 7"
    )(bench.directory)
    assert SENSITIVE not in bench.failed()


def test_damaged_files_are_not_looked_into(bench: Bench) -> None:
    path = bench.directory / layout.ARRAYS_FILE
    path.write_bytes(path.read_bytes()[:-1])
    (result,) = bench.judge()
    assert (result.name, result.passed) == ("files_match_the_manifest", False)


def test_a_candidate_without_a_manifest_fails(tmp_path: Path, bench: Bench) -> None:
    told = gate_context(bench.directory, bench.store.encoder)
    (result,) = judge_candidate(tmp_path, told)
    assert not result.passed


def test_a_check_that_cannot_run_has_failed_and_the_others_still_run(bench: Bench) -> None:
    with closing(sqlite3.connect(bench.directory / layout.ROWS_FILE)) as rows, rows:
        rows.execute("DROP TABLE terms")
    sign(bench.directory)
    results = bench.judge()
    assert len(results) == len(GATE_CHECKS) + 1
    assert {r.name for r in results if not r.passed} == {POSTINGS}


def test_without_an_encoder_vectors_and_tiers_have_nothing_to_hold(empty_store: Store) -> None:
    candidate = empty_store.candidate(household())
    results = judge_candidate(candidate, gate_context(candidate))
    assert all(r.passed for r in results)
    told = gate_context(candidate, tier_rows={"full": 14})
    assert {r.name for r in judge_candidate(candidate, told) if not r.passed} == {TIERS}


def test_an_empty_candidate_passes(empty_store: Store) -> None:
    candidate = empty_store.candidate([])
    assert all(r.passed for r in judge_candidate(candidate, gate_context(candidate)))
