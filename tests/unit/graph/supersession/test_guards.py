from __future__ import annotations

import pytest

from noctuary.graph.successors import differ, keys_of, marks_of
from tests.unit.graph.supersession.conftest import Find, Note, at_angles, pairs

DIFFERENT = [
    ("fixed payments (PR #465)", "fixed search (ticket #542)"),
    ("User paid invoice 12.", "User paid invoice 13."),
    ("Backed up db-heron-01", "Backed up db-teal-02"),
    ("Moved the key to src/app/main.py", "Moved the key to src/app/other.py"),
    ("Talked to the bank on 3 May", "Talked to the bank on 5 May"),
    ("Talked to the bank on Monday", "Talked to the bank on Friday"),
    ("Anna supports the club", "Carla supports the club"),
    ("James shared advice on chess", "John shared advice on chess"),
    ("Nina's sister plays chess", "Mara's sister plays chess"),
    ("Went from Rome to Berlin", "Went from Rome to Paris"),
    ("User has kids.", "User has two kids."),
    ("吴杰明是我的下属，其教育背景是专科。", "吴杰明是我的下属，其兴趣爱好是模型制作。"),
]
SAME = [
    ("User has kids.", "User has younger kids."),
    ("Likes hiking", "Enjoys hikes"),
    ("Talked to the bank on May 3rd, 2026", "The bank talk took place (2026-05-03)"),
    ("Paid 1,200 for the boiler", "For the boiler we paid 1200."),
    ("Andrew hikes with Audrey", "Audrey is on a hike with Andrew"),
    ("东湖公园真心不错，环境好", "东湖公园不错，那里环境好"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_texts_that_differ_in_what_they_name_never_replace_one_another(
    find: Find, one: str, other: str
) -> None:
    assert differ(one, other)
    assert find(Note(one, 0), Note(other, 60), vectors=at_angles(0.99)).found == ()


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_said_again_does(find: Find, one: str, other: str) -> None:
    assert not differ(one, other)
    (found,) = find(Note(one, 0), Note(other, 60), vectors=at_angles(0.99)).found
    assert found.reason == "near_duplicate"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The meeting is on 3 May", "The meeting is now on 5 May."),
        ("The staging port is 8080", "The staging port is 8081"),
        ("The rent is 900 euros.", "The rent is 1,950 euros."),
        ("The appointment is at 10:30 on Tuesday", "The appointment is at 14:00 on Friday"),
        ("Production runs on Postgres 14.2", "Production runs on Postgres 16.3"),
        ("The office is in Berlin", "The office is in Munich"),
        ("Deploys run at nine", "Deploys run at ten"),
    ],
)
def test_another_value_of_one_sentence_replaces_it(find: Find, old: str, new: str) -> None:
    (found,) = find(Note(old, 0), Note(new, 60), vectors=at_angles(0.95)).found
    assert (found.reason, found.confidence) == ("newer_value", 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The port of server 3 is 8080", "The port of server 4 is 8080"),
        ("The bug is fixed in PR #12", "The bug is fixed in PR #13"),
        ("Anna is in Berlin", "Carla is in Berlin"),
        ("The rent is 900 euros", "The rent is 900 dollars"),
    ],
)
def test_but_not_of_another_subject_or_of_what_happened(one: str, other: str) -> None:
    assert keys_of(one).alike != keys_of(other).alike


def test_a_lookalike_does_not_hide_an_older_duplicate(find: Find) -> None:
    notes = [Note(f"Checked pump {n}", day) for day, n in ((0, 1), (30, 1), (60, 2))]
    assert pairs(find(*notes, vectors=at_angles(0.99, 0.99))) == [(0, 1)]


@pytest.mark.timeout(20)
def test_a_long_text_without_a_space_is_not_read_over_and_over() -> None:
    text = "字" * 200_000 + "是"
    assert marks_of(text) == frozenset()
    assert marks_of(f"{text}谁") == {f"{text}谁"}
