from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core import store as layout
from noctuary.core.files import read_arrays
from noctuary.graph.walk import NO_CONCEPT, RELATIONS
from tests.support.damage import Bench, Change, Edit, all_of, array, put, sql

EDGES = "every_edge_has_evidence"
MENTIONS = "every_mention_stands_in_its_memory"
STATED = "every_concept_edge_is_stated_somewhere"
HEADS = "every_supersession_leads_to_a_head"
LINKS = "every_link_leads_to_a_concept"
STARTS = "every_link_is_found_by_its_first_word"
SESSIONS = "every_session_holds_its_memories_in_order"
TURNS = range(8, 14)
"""Positions of the household's only session; its memory 7 belongs to none."""

BAD_CANDIDATES: dict[str, tuple[str, Edit]] = {
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


@pytest.mark.parametrize("case", BAD_CANDIDATES)
def test_a_bad_candidate_fails(bench: Bench, case: str) -> None:
    name, edit = BAD_CANDIDATES[case]
    edit(bench.directory)
    failed = bench.failed()
    assert name in failed
    assert "files_match_the_manifest" not in failed


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
