"""The gate's sentences about summaries: each has a candidate that fails it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.damage import Bench, Edit, all_of, array, put, sql

SOURCES = "every_summary_names_its_sources"
ONCE = "every_summary_reaches_its_turns_once"
READS = "every_summary_is_searched_as_it_reads"
PRESERVED = "every_summary_preserves_its_sources"


def copied(plan: str) -> Edit:
    """A second summary of the same turns; its arrays and postings are missing."""
    kept = "session_id, text, method, first_us, last_us, source_tokens, summary_tokens, align"
    return sql(
        f"INSERT INTO summaries SELECT 1, 'zz', cluster_id, {kept}, cover, confidence, decay_rate, "
        f"facts, {plan} FROM summaries WHERE ordinal = 0",
        "INSERT INTO summary_sources SELECT 'zz', place, position, memory_id FROM summary_sources",
    )


BAD: dict[str, tuple[str, Edit]] = {
    "a summary has one source": (SOURCES, sql("DELETE FROM summary_sources WHERE place > 0")),
    "a source has another id": (
        SOURCES, sql("UPDATE summary_sources SET memory_id = '999' WHERE place = 0"),
    ),
    "a source is another memory": (
        SOURCES, sql("UPDATE summary_sources SET position = 0 WHERE place = 0"),
    ),
    "a source is named twice": (
        ONCE,
        sql(
            "UPDATE summary_sources SET position = 9, memory_id = (SELECT memory_id FROM memories "
            "WHERE position = 9) WHERE place = 0"
        ),
    ),
    "a turn stands in two summaries": (ONCE, copied("NULL")),
    "a summary mixes wings": (
        ONCE,
        sql("UPDATE memories SET wing = 'work' WHERE position = (SELECT position FROM "
            "summary_sources WHERE place = 0)"),
    ),
    "a summary mixes users": (
        ONCE,
        sql("UPDATE memories SET user = 'ana' WHERE position = (SELECT position FROM "
            "summary_sources WHERE place = 0)"),
    ),
    "a summary has the time of the night": (
        ONCE, sql("UPDATE summaries SET last_us = last_us + 1"),
    ),
    "a summary begins before its turns": (
        ONCE, sql("UPDATE summaries SET first_us = first_us - 1"),
    ),
    "sources stand in another order": (
        ONCE,
        sql(
            "UPDATE summary_sources SET place = 100 - place",
            "UPDATE summary_sources SET place = place - (SELECT MIN(place) FROM summary_sources)",
        ),
    ),
    "a summary is its own parent": (
        ONCE, sql("INSERT INTO summary_parents SELECT summary_id, 0, summary_id FROM summaries"),
    ),
    "parents lead in a circle": (
        ONCE,
        sql("INSERT INTO summary_parents VALUES ('a', 0, 'b'), ('b', 0, 'c'), ('c', 0, 'a')"),
    ),
    "an array has another source": (
        ONCE, array("summary.sources", lambda v: v[::-1].copy()),
    ),
    "an array has another confidence": (
        ONCE, array("summary.confidences", put(0, 0.5)),
    ),
    "an array names a plan": (ONCE, array("summary.plans", put(0, 0))),
    "an array is cut": (ONCE, array("summary.indptr", lambda v: v[:-1])),
    "a plan is not listed": (ONCE, sql("UPDATE summaries SET plan_id = 'p1'")),
    "a posting belongs to no summary": (
        READS, array("summary_posting.positions", put(0, 5)),
    ),
    "a posting has no finite score": (
        READS, array("summary_posting.scores", put(0, np.nan)),
    ),
    "a posting has no score at all": (
        READS, array("summary_posting.scores", lambda v: v[:-1]),
    ),
    "a term is missing": (READS, sql("DELETE FROM summary_terms WHERE start = 0")),
    "a term is another word": (READS, sql("UPDATE summary_terms SET term = 'x' WHERE start = 0")),
    "a vector is not of length 1": (
        READS, array("summary_vectors", lambda v: v * np.float32(2)),
    ),
    "a vector is not finite": (READS, array("summary_vectors", put((0, 0), np.inf))),
    "a vector is missing": (READS, array("summary_vectors", lambda v: v[:-1])),
    "a summary says something else": (
        PRESERVED, sql("UPDATE summaries SET text = 'deploy the release, deploy'"),
    ),
    "a vector is of another text": (
        PRESERVED, array("summary_vectors", lambda v: np.roll(v, 1, axis=1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_candidate_fails(bench: Bench, case: str) -> None:
    name, edit = BAD[case]
    edit(bench.directory)
    failed = bench.failed()
    assert name in failed
    assert "files_match_the_manifest" not in failed


def test_summaries_must_preserve_what_the_night_asks_for(bench: Bench) -> None:
    assert bench.failed(preserve_threshold=1.01) == {PRESERVED}


def test_a_turn_may_stand_in_a_summary_of_turns_and_in_one_of_a_plan(bench: Bench) -> None:
    """The archive hides it from the one; both lead back to it."""
    copied("'p1'")(bench.directory)
    found = _found(bench, ONCE)
    assert found["turns_in_two_summaries"] == 0


def test_a_long_chain_of_parents_is_no_circle(bench: Bench) -> None:
    rows = ", ".join(f"('s{i}', 0, 's{i + 1}')" for i in range(5000))
    all_of(sql(f"INSERT INTO summary_parents VALUES {rows}"))(bench.directory)
    assert _found(bench, ONCE)["parents_in_a_circle"] == 0


def _found(bench: Bench, name: str) -> dict[str, Any]:
    (result,) = (r for r in bench.judge() if r.name == name)
    return dict(result.found)
