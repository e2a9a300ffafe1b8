"""The gate's sentences: each has a candidate that fails it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import partial
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


def session(field: str, change: Change) -> Edit:
    return array(f"sessions.{field}", change)


def update(table: str, fields: str, where: str = "TRUE") -> Edit:
    return sql(f"UPDATE {table} SET {fields} WHERE {where}")


stated, succeeding = partial(update, "concept_edges"), partial(update, "supersessions")
link = partial(update, "links", where="name = 'ana'")


def at(position: int, fields: str) -> Edit:
    return update("memories", fields, f"position = {position}")


def swap(first: int, second: int) -> Change:
    def change(values: NDArray[Any]) -> NDArray[Any]:
        values[[first, second]] = values[[second, first]]
        return values

    return change


def test_the_good_candidate_has_what_the_checks_look_at_and_passes_each(bench: Bench) -> None:
    results = bench.judge()
    names = [check.__name__ for check in GATE_CHECKS]
    assert [r.name for r in results] == ["files_match_the_manifest", *names]
    assert all(r.passed for r in results)
    counted = {result.name: result.found for result in results}
    assert counted[LINKS]["links"] == counted[STARTS]["first_words"] == 3
    assert counted[SESSIONS]["sessions"] == 1
    assert (counted[SHORT_TIER]["rows"], counted[SHORT_TIER]["sampled"]) == (14, 14)
    arrays = read_arrays(bench.directory / layout.ARRAYS_FILE)
    assert arrays["sessions.order"].tolist() == list(TURNS)
    speakers = arrays["sessions.speakers"].tolist()
    assert [speaker == -1 for speaker in speakers] == [p not in TURNS for p in range(14)]


def test_a_scope_or_an_id_of_nothing_is_none(bench: Bench) -> None:
    """An owner that is missing and an empty one are the same, as for the sessions themselves."""
    at(9, "user = ''")(bench.directory)
    update("memories", "session_id = ' '", "position < 2")(bench.directory)
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


def test_a_turn_may_stand_in_a_summary_of_turns_and_in_one_of_a_plan(bench: Bench) -> None:
    """The archive hides it from the one; both lead back to it."""
    copied("'p1'")(bench.directory)
    assert bench.result(ONCE).found["turns_in_two_summaries"] == 0


def test_a_long_chain_of_parents_is_no_circle(bench: Bench) -> None:
    rows = ", ".join(f"('s{i}', 0, 's{i + 1}')" for i in range(5000))
    sql(f"INSERT INTO summary_parents VALUES {rows}")(bench.directory)
    assert bench.result(ONCE).found["parents_in_a_circle"] == 0


CANARY = "[REDACTED: vault]"
ALIKE = "reason, 0, NULL, 0, NULL, 0, -1, -1, 0, 0"

COUNTS = "counts_are_conserved_from_source_to_snapshot"
SENSITIVE = "no_sensitive_row_is_anywhere"
UNIT = "every_vector_is_finite_and_unit"
SHORT_TIER = "every_short_tier_row_is_its_memorys_prefix"
ENCODER = "one_encoder_made_every_vector"
TIERS = "every_tier_row_has_its_memory"
INDEXED = "every_index_covers_its_tier"
POSTINGS = "every_posting_has_its_memory"


LOSS = Drop("labelled", "recall@10", -0.2, -0.3, -0.1, 60, 0.001)
COUNTED = {"source_rows": 18, "quarantined": 2, "sensitive": 1}
BAD_NIGHTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a row got lost in the export": (COUNTS, {"source_counts": {**COUNTED, "exported": 14}}),
    "the export counted another number": (COUNTS, {"source_counts": {**COUNTED, "exported": 15}}),
    "the configured model is another": (ENCODER, {"encoder_digest": "0" * 16}),
    "there is no configured model": (ENCODER, {"encoder_digest": None}),
    "a tier row is missing": (TIERS, {"tier_rows": {"64": 14, "full": 13}}),
    "a tier row has no memory": (TIERS, {"tier_faults": {"full": 1}}),
    "a tier row is unindexed": (INDEXED, {"index_gaps": {"64": 0, "full": 1}}),
    "recall got worse": (DROP_CHECK, {"drops": DropReport((LOSS,), tested=4, queries=60)}),
    "summaries must preserve more than they do": (PRESERVED, {"preserve_threshold": 1.01}),
}


BAD: dict[tuple[str, str], dict[str, Edit]] = {
    (COUNTS, ""): {"a memory is missing": sql("DELETE FROM memories WHERE position = 7")},
    (SENSITIVE, ""): {
        "a memory is sensitive": at(7, f"content = content || ' {CANARY}'"),
        "a tag is sensitive": at(7, f"tags = '{CANARY}'"),
        "a keyword is sensitive": at(7, f"expanded_keywords = '{CANARY}'"),
        "a summary is sensitive": sql(f"UPDATE summaries SET text = text || ' {CANARY}'"),
        "a concept's name is sensitive": update(
            "concepts", f"canonical_name = '{CANARY}'", "ordinal = 0"
        ),
        "a concept's alias is sensitive": sql(
            f'''UPDATE concepts SET aliases = '["{CANARY}"]' WHERE ordinal = 0'''
        ),
        "a concept's other name is sensitive": update(
            "concept_names", f"name = '{CANARY}'", "ordinal = 0"
        ),
        "a merged name is sensitive": sql(
            f"INSERT INTO merges VALUES ('{CANARY}', 'x', 'rule', 1, '')"
        ),
        "a name that queries link to is sensitive": sql(
            f"INSERT INTO links VALUES ('{CANARY}', 0, 0.5, 0)"
        ),
        "the first word of a name is sensitive": sql(
            f"INSERT INTO link_starts VALUES ('{CANARY}', 9)"
        ),
    },
    (UNIT, ""): {
        "a vector is too long": array(layout.VECTORS_FILE, put((7, 0), 1.01)),
        "a vector is zero": array(layout.VECTORS_FILE, put(7, 0.0)),
        "a vector is not a number": array(layout.VECTORS_FILE, put((7, 0), np.nan)),
        "a vector is infinite": array(layout.VECTORS_FILE, put((7, 0), np.inf)),
        "a vector is missing": array(layout.VECTORS_FILE, lambda v: v[:-1]),
        "a dimension is missing": array(layout.VECTORS_FILE, lambda v: v[:, 1:]),
        "vectors have another type": array(layout.VECTORS_FILE, lambda v: v.astype(np.float64)),
    },
    (SHORT_TIER, ""): {
        "a tier row is not a number": array("tier.vectors", put((7, 0), np.nan)),
        "a tier row is another memory's": array("tier.vectors", lambda v: np.roll(v, 1, axis=0)),
        "a tier row is missing": array("tier.vectors", lambda v: v[:-1]),
        "a memory is in the tier twice": array("tier.positions", lambda v: np.append(v[:-1], v[0])),
        "a tier row is no memory's": array("tier.positions", put(0, 14)),
        "a cell starts behind its end": array("tier.starts", lambda v: v[[0, 2, 1, 3]]),
        "the first cell leaves rows out": array("tier.starts", put(0, 1)),
        "the tier is of another rotation": array("tier.rotation", lambda v: v[::-1]),
    },
    (POSTINGS, ""): {
        "a posting points behind the end": array("posting.positions", put(0, 14)),
        "a posting points before the start": array("posting.positions", put(0, -1)),
        "a posting scores nothing": array("posting.scores", put(0, 0.0)),
        "a posting's score is not a number": array("posting.scores", put(0, np.nan)),
        "a posting has no score": array("posting.scores", lambda v: v[:-1]),
        "a posting belongs to no term": sql("DELETE FROM terms WHERE start = 0"),
        "terms have their neighbours' postings": sql(
            "UPDATE terms SET start = start + 1, stop = stop + 1"
        ),
        "two terms share a posting and one is left": sql(
            "UPDATE terms SET start = start + 1 WHERE start = 0",
            "UPDATE terms SET stop = stop + 1 WHERE start = (SELECT MIN(stop) FROM terms)",
        ),
    },
    (EDGES, ""): {
        "an edge rests on no concept": array("graph.concepts", put(0, 9999)),
        "an edge that is no link rests on none": array("graph.concepts", put(0, NO_CONCEPT)),
        "a link rests on a concept": array("graph.relations", put(0, RELATIONS.index("part_of"))),
        "an edge's evidence ends behind the text": array("graph.evidence_ends", put(0, 9999)),
        "an edge's evidence is empty": array("graph.evidence_ends", put(0, 0)),
        "an edge's evidence starts before the text": array("graph.evidence_starts", put(0, -2)),
        "an edge leads nowhere": array("graph.targets", put(0, 99)),
        "an edge is of no relation": array("graph.relations", put(0, 99)),
        "an edge ends before it begins": array("graph.valid_to_us", put(0, 0)),
        "an edge belongs to no memory": array("graph.indptr", put(-1, 99)),
        "an edge has no weight": array("graph.weights", lambda v: v[:-1]),
    },
    (MENTIONS, ""): {
        "a mention is in no memory": array("mentions.positions", put(0, 99)),
        "a mention ends behind the text": array("mentions.ends", put(0, 9999)),
        "a mention has an unknown role": array("mentions.roles", put(0, 9)),
        "a mention belongs to no concept": array("mentions.indptr", put(-1, 9999)),
        "a concept is mentioned nowhere": array("mentions.indptr", put(1, 0)),
        "a name leads to no concept": sql("INSERT INTO concept_names VALUES ('nobody', 9999)"),
        "a rare name is counted wrongly": array("rare.others", lambda v: v + 1),
        "rare names do not line up": array("rare.concepts", lambda v: v[:-1]),
        "a phrase counts as a name": sql("UPDATE concepts SET kind = 'run' WHERE kind <> 'run'"),
    },
    (STATED, ""): {
        "a relation leads nowhere": stated("dst = 9999"),
        "a relation leads to itself": stated("dst = src"),
        "a relation is stated nowhere": stated("evidence = '[]'"),
        "a relation has no memory": stated("evidence = '[[99,0,1]]'"),
        "a relation is stated behind the text": stated("evidence = '[[3,0,9999]]'"),
        "a relation ends before it begins": stated("valid_to_us = valid_from_us - 1"),
    },
    (HEADS, ""): {
        "a successor is no memory": succeeding("newer = 99, head = 99"),
        "successors make a circle": sql(
            f"INSERT INTO supersessions SELECT 2, 0, 2, {ALIKE} FROM supersessions LIMIT 1"
        ),
        "the head is not the end": succeeding("head = 1"),
        "a memory has two successors": sql(
            f"INSERT INTO supersessions SELECT 0, 5, 5, {ALIKE} FROM supersessions WHERE older = 0"
        ),
        "a supersession is about no concept": succeeding("concept = 9999"),
        "a supersession's evidence is no text": succeeding(
            "evidence_end = 9999, evidence_start = 0"
        ),
    },
    (LINKS, "of_no_concept"): {
        "a name links to nothing": link("ordinal = 9999"),
        "a name links below the first concept": link("ordinal = -1"),
    },
    (LINKS, "bad_weights"): {
        "a name weighs more than one": link("weight = 1.001"),
        "a name weighs less than nothing": link("weight = -0.001"),
        "a name's weight is no number": link("weight = 'heavy'"),
    },
    (LINKS, "bad_case_rules"): {"a name's case rule is unknown": link("cased = 2")},
    (STARTS, "unreachable"): {
        "a name's first word is unknown": sql("DELETE FROM link_starts WHERE word = 'ana'"),
        "a name is longer than its first word says": update(
            "link_starts", "words = 1", "word = 'atlas'"
        ),
        "a new name's first word is unknown": sql("INSERT INTO links VALUES ('anabel', 0, 0.5, 0)"),
    },
    (SESSIONS, "fault"): {
        "a memory has no session code": session("codes", lambda v: v[:-1]),
        "members end behind the last": session("indptr", put(-1, 7)),
        "members begin after the first": session("indptr", put(0, 1)),
        "a member is no memory": session("order", put(0, 14)),
        "a member is less than the first memory": session("order", put(0, -1)),
    },
    (SESSIONS, "too_small"): {
        "a session has one member": all_of(
            session("indptr", lambda v: np.array([0, 1, 6], v.dtype)),
            session("codes", put(slice(9, 14), 1)),
        )
    },
    (SESSIONS, "misplaced"): {
        "a memory is in another place": session("places", swap(8, 9)),
        "a memory of a session has no place": session("places", put(8, -1)),
        "a memory of no session has a place": session("places", put(7, 0)),
        "a memory says another session": session("codes", put(8, 1)),
        "a member is listed twice": session("order", put(1, 8)),
    },
    (SESSIONS, "of_another_session"): {
        "a member is of another owner": at(9, "user = 'eve'"),
        "a member is of another wing": at(9, "wing = 'work'"),
        "a member is of another session": at(9, "session_id = 's2'"),
        "a member is of no session": at(9, "session_id = ' '"),
        "all members are of no session": sql("UPDATE memories SET session_id = NULL"),
    },
    (SESSIONS, "left_out"): {
        "a memory of the session is left out": at(7, "session_id = 's1', wing = 'home'"),
        "a session of two is left out": update(
            "memories", "session_id = 's2', wing = 'x'", "position < 2"
        ),
        "one session is two": all_of(
            session("indptr", lambda v: np.array([0, 2, 6], v.dtype)),
            session("codes", put(slice(10, 14), 1)),
        ),
    },
    (SESSIONS, "out_of_order"): {
        "an earlier member stands later": all_of(
            session("order", swap(2, 3)), session("places", swap(10, 11))
        ),
        "a higher position of the same time stands first": all_of(
            update("memories", "created_at_us = 5", "position IN (8, 9)"),
            session("order", swap(0, 1)),
            session("places", swap(8, 9)),
        ),
    },
    (SESSIONS, "wrong_turns"): {
        "a note is called a turn": session("turns", put(0, 1)),
        "a turn is called a note": session("turns", put(8, 0)),
    },
    (SESSIONS, "wrong_speakers"): {
        "a speaker is no concept": session("speakers", put(8, 9999)),
        "a speaker speaks elsewhere": session("speakers", swap(8, 9)),
        "somebody speaks in a note": session("speakers", put(0, 0)),
        "a turn's speaker is forgotten": session("speakers", put(8, -1)),
    },
    (SOURCES, ""): {
        "a summary has one source": sql("DELETE FROM summary_sources WHERE place > 0"),
        "a source has another id": update("summary_sources", "memory_id = '999'", "place = 0"),
        "a source is another memory": update("summary_sources", "position = 0", "place = 0"),
    },
    (ONCE, ""): {
        "a source is named twice": sql(
            "UPDATE summary_sources SET position = 9, memory_id = (SELECT memory_id FROM memories "
            "WHERE position = 9) WHERE place = 0"
        ),
        "a turn stands in two summaries": copied("NULL"),
        "a summary mixes wings": at(8, "wing = 'work'"),
        "a summary mixes users": at(8, "user = 'ana'"),
        "a summary has the time of the night": sql("UPDATE summaries SET last_us = last_us + 1"),
        "a summary begins before its turns": sql("UPDATE summaries SET first_us = first_us - 1"),
        "sources stand in another order": sql(
            "UPDATE summary_sources SET place = 100 - place",
            "UPDATE summary_sources SET place = place - (SELECT MIN(place) FROM summary_sources)",
        ),
        "a summary is its own parent": sql(
            "INSERT INTO summary_parents SELECT summary_id, 0, summary_id FROM summaries"
        ),
        "parents lead in a circle": sql(
            "INSERT INTO summary_parents VALUES ('a', 0, 'b'), ('b', 0, 'c'), ('c', 0, 'a')"
        ),
        "an array has another source": array("summary.sources", lambda v: v[::-1].copy()),
        "an array has another confidence": array("summary.confidences", put(0, 0.5)),
        "an array names a plan": array("summary.plans", put(0, 0)),
        "an array is cut": array("summary.indptr", lambda v: v[:-1]),
        "a plan is not listed": sql("UPDATE summaries SET plan_id = 'p1'"),
    },
    (READS, ""): {
        "a posting belongs to no summary": array("summary_posting.positions", put(0, 5)),
        "a posting has no finite score": array("summary_posting.scores", put(0, np.nan)),
        "a posting has no score at all": array("summary_posting.scores", lambda v: v[:-1]),
        "a term is missing": sql("DELETE FROM summary_terms WHERE start = 0"),
        "a term is another word": update("summary_terms", "term = 'x'", "start = 0"),
        "a vector is not of length 1": array("summary_vectors", lambda v: v * np.float32(2)),
        "a vector is not finite": array("summary_vectors", put((0, 0), np.inf)),
        "a summary's vector is missing": array("summary_vectors", lambda v: v[:-1]),
    },
    (PRESERVED, ""): {
        "a summary says something else": sql(
            "UPDATE summaries SET text = 'deploy the release, deploy'"
        ),
        "a vector is of another text": array("summary_vectors", lambda v: np.roll(v, 1, axis=1)),
    },
}

EXACT = ("of_no_concept", "bad_weights", "bad_case_rules", "unreachable")
"""Faults of which each of these candidates has one."""
CASES = {case: (*key, edit) for key, rows in BAD.items() for case, edit in rows.items()}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_candidate_fails_and_says_why(bench: Bench, case: str) -> None:
    name, fault, edit = CASES[case]
    edit(bench.directory)
    results = {result.name: result for result in bench.judge()}
    assert not results[name].passed
    assert results["files_match_the_manifest"].passed
    if fault:
        found = results[name].found[fault]
        assert found == 1 if fault in EXACT else found


@pytest.mark.parametrize("case", BAD_NIGHTS)
def test_a_bad_night_fails_exactly_its_check(bench: Bench, case: str) -> None:
    name, context = BAD_NIGHTS[case]
    assert bench.failed(**context) == {name}


def test_every_check_has_a_candidate_or_a_night_that_fails_it() -> None:
    """Those of shares are in test_pack.py."""
    shown = {name for name, _ in BAD} | {name for name, _ in BAD_NIGHTS.values()}
    expected = {check.__name__ for check in GATE_CHECKS}
    assert shown | {"every_share_is_of_an_owned_memory"} == expected


def test_results_hold_ids_and_never_content(bench: Bench) -> None:
    for case in ("a memory is sensitive", "a summary is sensitive", "a merged name is sensitive"):
        CASES[case][2](bench.directory)
    found = bench.result(SENSITIVE).found
    assert (found["memories"], found["summaries"]) == (1, 1)
    assert "memories:108" in str(found["ids"])
    assert CANARY not in repr(found)


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


def test_files_damaged_or_missing_are_not_looked_into(tmp_path: Path, bench: Bench) -> None:
    path = bench.directory / layout.ARRAYS_FILE
    path.write_bytes(path.read_bytes()[:-1])
    (result,) = bench.judge()
    assert (result.name, result.passed) == ("files_match_the_manifest", False)
    told = gate_context(bench.directory, bench.store.encoder)
    (result,) = judge_candidate(tmp_path / "without-a-manifest", told)
    assert not result.passed


def test_a_check_that_cannot_run_has_failed_and_the_others_still_run(bench: Bench) -> None:
    with closing(sqlite3.connect(bench.directory / layout.ROWS_FILE)) as rows, rows:
        rows.execute("DROP TABLE terms")
    sign(bench.directory)
    results = bench.judge()
    assert len(results) == len(GATE_CHECKS) + 1
    assert {r.name for r in results if not r.passed} == {POSTINGS}


def test_without_an_encoder_vectors_and_tiers_have_nothing_to_hold(empty_store: Store) -> None:
    for records in (household(), []):
        candidate = empty_store.candidate(records)
        assert all(r.passed for r in judge_candidate(candidate, gate_context(candidate)))
    told = gate_context(candidate, tier_rows={"full": 14})
    assert {r.name for r in judge_candidate(candidate, told) if not r.passed} == {TIERS}
