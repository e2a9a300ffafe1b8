"""The gate's sentences: each has a candidate that fails it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core import store as layout
from noctuary.core.files import read_arrays
from noctuary.graph.walk import NO_CONCEPT, RELATIONS
from noctuary.snapshot.checks import DROP_CHECK, GATE_CHECKS, Drop, DropReport, judge_candidate
from tests.support.damage import Bench, Change, Edit, all_of, array, put, sign, sql
from tests.support.store import Store, gate_context, household

EDGES = "every_edge_has_evidence"
MENTIONS = "every_mention_stands_in_its_memory"
STATED = "every_concept_edge_is_stated_somewhere"
HEADS = "every_supersession_leads_to_a_head"
LINKS = "every_link_leads_to_a_concept"
STARTS = "every_link_is_found_by_its_first_word"
SESSIONS = "every_session_holds_its_memories_in_order"
TURNS = range(8, 14)
"""Positions of the household's only session; its memory 7 belongs to none."""

BAD_GRAPHS: dict[str, tuple[str, Edit]] = {
    "an edge rests on no concept": (EDGES, array("graph.concepts", put(0, 9999))),
    "an edge that is no link rests on none": (
        EDGES, array("graph.concepts", put(0, NO_CONCEPT)),
    ),
    "a link rests on a concept": (
        EDGES, array("graph.relations", put(0, RELATIONS.index("part_of"))),
    ),
    "an edge's evidence ends behind the text": (
        EDGES, array("graph.evidence_ends", put(0, 9999)),
    ),
    "an edge's evidence is empty": (
        EDGES,
        array("graph.evidence_ends", put(0, 0)),
    ),
    "an edge's evidence starts before the text": (
        EDGES, array("graph.evidence_starts", put(0, -2)),
    ),
    "an edge leads nowhere": (EDGES, array("graph.targets", put(0, 99))),
    "an edge is of no relation": (EDGES, array("graph.relations", put(0, 99))),
    "an edge ends before it begins": (EDGES, array("graph.valid_to_us", put(0, 0))),
    "an edge belongs to no memory": (EDGES, array("graph.indptr", put(-1, 99))),
    "an edge has no weight": (EDGES, array("graph.weights", lambda v: v[:-1])),
    "a mention is in no memory": (MENTIONS, array("mentions.positions", put(0, 99))),
    "a mention ends behind the text": (MENTIONS, array("mentions.ends", put(0, 9999))),
    "a mention has an unknown role": (MENTIONS, array("mentions.roles", put(0, 9))),
    "a mention belongs to no concept": (
        MENTIONS, array("mentions.indptr", put(-1, 9999)),
    ),
    "a concept is mentioned nowhere": (
        MENTIONS, array("mentions.indptr", put(1, 0)),
    ),
    "a name leads to no concept": (
        MENTIONS, sql("INSERT INTO concept_names VALUES ('nobody', 9999)"),
    ),
    "a relation leads nowhere": (STATED, sql("UPDATE concept_edges SET dst = 9999")),
    "a relation leads to itself": (STATED, sql("UPDATE concept_edges SET dst = src")),
    "a relation is stated nowhere": (STATED, sql("UPDATE concept_edges SET evidence = '[]'")),
    "a relation is stated by no memory": (
        STATED, sql("UPDATE concept_edges SET evidence = '[[99,0,1]]'"),
    ),
    "a relation is stated behind the text": (
        STATED, sql("UPDATE concept_edges SET evidence = '[[3,0,9999]]'"),
    ),
    "a relation ends before it begins": (
        STATED, sql("UPDATE concept_edges SET valid_to_us = valid_from_us - 1"),
    ),
    "a successor is no memory": (HEADS, sql("UPDATE supersessions SET newer = 99, head = 99")),
    "successors make a circle": (
        HEADS, sql("INSERT INTO supersessions SELECT 2, 0, 2, reason, 0, NULL, 0, NULL, 0, -1, -1, "
        "0, 0 FROM supersessions LIMIT 1"),
    ),
    "the head is not the end": (HEADS, sql("UPDATE supersessions SET head = 1")),
    "a memory has two successors": (
        HEADS, sql("INSERT INTO supersessions SELECT older, 5, 5, reason, 0, NULL, 0, NULL, 0, -1, "
        "-1, 0, 0 FROM supersessions WHERE older = 0"),
    ),
    "a supersession is about no concept": (HEADS, sql("UPDATE supersessions SET concept = 9999")),
    "a supersession's evidence is no text": (
        HEADS, sql("UPDATE supersessions SET evidence_end = 9999, evidence_start = 0"),
    ),
}  # fmt: skip


def session(field: str, change: Change) -> Edit:
    return array(f"sessions.{field}", change)


def swap(first: int, second: int) -> Change:
    def change(values: NDArray[Any]) -> NDArray[Any]:
        values[[first, second]] = values[[second, first]]
        return values

    return change


BAD_LINKS: dict[str, tuple[str, str, Edit]] = {
    "a name links to nothing": (
        LINKS, "of_no_concept", sql("UPDATE links SET ordinal = 9999 WHERE name = 'ana'"),
    ),
    "a name links to less than the first concept": (
        LINKS, "of_no_concept", sql("UPDATE links SET ordinal = -1 WHERE name = 'ana'"),
    ),
    "a name weighs more than one": (
        LINKS, "bad_weights", sql("UPDATE links SET weight = 1.001 WHERE name = 'ana'"),
    ),
    "a name weighs less than nothing": (
        LINKS, "bad_weights", sql("UPDATE links SET weight = -0.001 WHERE name = 'ana'"),
    ),
    "a name's weight is no number": (
        LINKS, "bad_weights", sql("UPDATE links SET weight = 'heavy' WHERE name = 'ana'"),
    ),
    "a name's case rule is unknown": (
        LINKS, "bad_case_rules", sql("UPDATE links SET cased = 2 WHERE name = 'ana'"),
    ),
    "a name's first word is unknown": (
        STARTS, "unreachable", sql("DELETE FROM link_starts WHERE word = 'ana'"),
    ),
    "a name is longer than its first word says": (
        STARTS, "unreachable", sql("UPDATE link_starts SET words = 1 WHERE word = 'atlas'"),
    ),
    "a new name's first word is unknown": (
        STARTS, "unreachable", sql("INSERT INTO links VALUES ('anabel', 0, 0.5, 0)"),
    ),
}  # fmt: skip

BAD_SESSIONS: dict[str, tuple[str, Edit]] = {
    "a memory has no session code": ("fault", session("codes", lambda v: v[:-1])),
    "members end behind the last": ("fault", session("indptr", put(-1, 7))),
    "members begin after the first": ("fault", session("indptr", put(0, 1))),
    "a member is no memory": ("fault", session("order", put(0, 14))),
    "a member is less than the first memory": ("fault", session("order", put(0, -1))),
    "a session has one member": (
        "too_small",
        all_of(
            session("indptr", lambda v: np.array([0, 1, 6], dtype=v.dtype)),
            session("codes", put(slice(9, 14), 1)),
        ),
    ),
    "a memory is in another place": ("misplaced", session("places", swap(8, 9))),
    "a memory of a session has no place": ("misplaced", session("places", put(8, -1))),
    "a memory of no session has a place": ("misplaced", session("places", put(7, 0))),
    "a memory says another session": ("misplaced", session("codes", put(8, 1))),
    "a member is listed twice": ("misplaced", session("order", put(1, 8))),
    "a member is of another owner": (
        "of_another_session", sql("UPDATE memories SET user = 'eve' WHERE position = 9"),
    ),
    "a member is of another wing": (
        "of_another_session", sql("UPDATE memories SET wing = 'work' WHERE position = 9"),
    ),
    "a member is of another session": (
        "of_another_session", sql("UPDATE memories SET session_id = 's2' WHERE position = 9"),
    ),
    "a member is of no session": (
        "of_another_session", sql("UPDATE memories SET session_id = ' ' WHERE position = 9"),
    ),
    "all members are of no session": (
        "of_another_session", sql("UPDATE memories SET session_id = NULL"),
    ),
    "a memory of the session is left out": (
        "left_out", sql("UPDATE memories SET session_id = 's1', wing = 'home' WHERE position = 7"),
    ),
    "a session of two is left out": (
        "left_out", sql("UPDATE memories SET session_id = 's2', wing = 'x' WHERE position < 2"),
    ),
    "one session is two": (
        "left_out",
        all_of(
            session("indptr", lambda v: np.array([0, 2, 6], dtype=v.dtype)),
            session("codes", put(slice(10, 14), 1)),
        ),
    ),
    "an earlier member stands later": (
        "out_of_order", all_of(session("order", swap(2, 3)), session("places", swap(10, 11))),
    ),
    "a higher position of the same time stands first": (
        "out_of_order",
        all_of(
            sql("UPDATE memories SET created_at_us = 5 WHERE position IN (8, 9)"),
            session("order", swap(0, 1)),
            session("places", swap(8, 9)),
        ),
    ),
    "a note is called a turn": ("wrong_turns", session("turns", put(0, 1))),
    "a turn is called a note": ("wrong_turns", session("turns", put(8, 0))),
    "a speaker is no concept": ("wrong_speakers", session("speakers", put(8, 9999))),
    "a speaker speaks elsewhere": ("wrong_speakers", session("speakers", swap(8, 9))),
    "somebody speaks in a note": ("wrong_speakers", session("speakers", put(0, 0))),
    "a turn's speaker is forgotten": ("wrong_speakers", session("speakers", put(8, -1))),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_LINKS)
def test_a_bad_link_fails_and_is_counted(bench: Bench, case: str) -> None:
    name, fault, edit = BAD_LINKS[case]
    edit(bench.directory)
    result = bench.result(name)
    assert (result.passed, result.found[fault]) == (False, 1)


@pytest.mark.parametrize("case", BAD_SESSIONS)
def test_a_bad_session_fails_and_says_why(bench: Bench, case: str) -> None:
    fault, edit = BAD_SESSIONS[case]
    edit(bench.directory)
    result = bench.result(SESSIONS)
    assert not result.passed
    assert result.found[fault]


def test_the_good_candidate_has_what_the_checks_look_at(bench: Bench) -> None:
    counted = {result.name: result.found for result in bench.judge()}
    assert counted[LINKS]["links"] == 3
    assert counted[STARTS]["first_words"] == 3
    assert counted[SESSIONS]["sessions"] == 1
    arrays = read_arrays(bench.directory / layout.ARRAYS_FILE)
    assert arrays["sessions.order"].tolist() == list(TURNS)
    speakers = arrays["sessions.speakers"].tolist()
    assert [speaker == -1 for speaker in speakers] == [p not in TURNS for p in range(14)]


def test_a_scope_or_an_id_of_nothing_is_none(bench: Bench) -> None:
    """An owner that is missing and an empty one are the same, as for the sessions themselves."""
    sql("UPDATE memories SET user = '' WHERE position = 9")(bench.directory)
    sql("UPDATE memories SET session_id = ' ' WHERE position < 2")(bench.directory)
    assert SESSIONS not in bench.failed()


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


BAD_SUMMARIES: dict[str, tuple[str, Edit]] = {
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


BAD = [*BAD_CANDIDATES.items(), *BAD_GRAPHS.items(), *BAD_SUMMARIES.items()]


@pytest.mark.parametrize(("name", "edit"), [bad for _, bad in BAD], ids=[case for case, _ in BAD])
def test_a_bad_candidate_fails(bench: Bench, name: str, edit: Edit) -> None:
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
    shown = {name for _, (name, _) in BAD} | {name for name, _ in BAD_NIGHTS.values()}
    shown |= {name for name, _, _ in BAD_LINKS.values()} | {
        SESSIONS,
        "every_share_is_of_an_owned_memory",
    }
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
