from __future__ import annotations

import pytest

from noctuary.graph.fold import concept_id
from noctuary.graph.supersession import VALUES_MAX, read_preference, restates
from tests.unit.graph.supersession.conftest import Find, Note, pairs


def works(at: str, day: int | None, **fields: object) -> Note:
    return Note(f"Ana works at {at}", day, says=[("ana", "works_at", at)], **fields)  # pyright: ignore[reportArgumentType]


def test_what_something_is_now_ends_what_it_was(find: Find) -> None:
    result = find(
        Note("Ana is a junior engineer", 1, says=[("ana", "is_a", "junior engineer")]),
        Note("Ana is now a senior engineer", 8, says=[("ana", "is_now", "senior engineer")]),
        Note("Ana is now the lead", 20, says=[("ana", "is_now", "lead")]),
    )
    first, second = result.found
    assert [(s.reason, s.confidence) for s in result.found] == [("is_now", 1), ("is_now", 1)]
    assert (first.newer_position, first.head_position, second.newer_position) == (1, 2, 2)
    assert first.concept_id == concept_id("ana")
    assert first.age_gap_days == 7
    assert first.valid_to_us == 8 * 86_400_000_000
    assert first.recorded_at_us == first.valid_to_us + 1
    assert (first.evidence.start, first.evidence.end) == (0, len("Ana is now a senior engineer"))


def test_only_is_now_ends_a_state(find: Find) -> None:
    result = find(
        Note("Redis is now the cache", 1, says=[("redis", "is_now", "cache")]),
        Note("Redis is a database", 8, says=[("redis", "is_a", "database")]),
    )
    assert result.found == ()


def test_what_something_has_is_ended_with_low_confidence(find: Find) -> None:
    result = find(
        Note("Ana has a dog", 1, says=[("ana", "has", "dog")]),
        Note("Ana is now a cat owner", 8, says=[("ana", "is_now", "cat owner")]),
    )
    assert [(s.reason, s.confidence) for s in result.found] == [("is_now", 0)]


def test_a_newer_value_ends_the_older_at_the_first_difference(find: Find) -> None:
    result = find(works("Acme", 1), works("Beta", 5), works("Gamma", 9))
    assert pairs(result) == [(0, 1), (1, 2)]
    assert {s.head_position for s in result.found} == {2}
    assert {(s.reason, s.confidence) for s in result.found} == {("newer_value", 1)}


def test_the_same_value_confirms(find: Find) -> None:
    assert find(works("Acme", 1), works("Acme", 5), works("Acme Corp", 9)).found == ()
    assert pairs(find(works("Acme", 1), works("Acme", 5), works("Beta", 9))) == [(0, 2), (1, 2)]


def test_a_list_that_holds_the_old_value_ends_nothing(find: Find) -> None:
    both = Note(
        "Ana works at Acme and at Beta",
        9,
        says=[("ana", "works_at", "acme"), ("ana", "works_at", "beta")],
    )
    assert find(works("Acme", 1), both).found == ()


def test_values_of_other_names_for_one_thing_agree(find: Find) -> None:
    one, other = works("IBM", 1), works("Big Blue", 9)
    assert pairs(find(one, other)) == [(0, 1)]
    assert find(one, other, **{"big blue": "ibm"}).found == ()


@pytest.mark.parametrize(("first", "second"), [(None, 5), (1, None), (3, 3), (5, 1)])
def test_only_strictly_later_memories_end_a_value(
    find: Find, first: int | None, second: int | None
) -> None:
    found = pairs(find(works("Acme", first), works("Beta", second)))
    assert found == ([(1, 0)] if (first, second) == (5, 1) else [])


def test_undated_statements_are_counted(find: Find) -> None:
    assert find(works("Acme", None)).rejected == {"undated": 1}


def test_users_and_wings_keep_their_own_values(find: Find) -> None:
    assert find(works("Acme", 1, user="a"), works("Beta", 5, user="b")).found == ()
    assert find(works("Acme", 1, user="a"), works("Beta", 5)).found == ()
    assert find(works("Acme", 1, wing="x"), works("Beta", 5, wing="y")).found == ()
    assert pairs(find(works("Acme", 1, wing="x"), works("Beta", 5))) == [(0, 1)]
    assert pairs(find(works("Acme", 1), works("Beta", 5, wing="y"))) == [(0, 1)]


def test_turns_may_change_a_value(find: Find) -> None:
    turns = [works(at, day, is_turn=True, session_id="s") for at, day in (("A", 1), ("B", 2))]
    assert pairs(find(*turns)) == [(0, 1)]


def test_a_key_has_one_value(find: Find) -> None:
    result = find(
        Note("Deploy key: abc-123", 1),
        Note("Deploy key (prod): def-456", 2),
        Note("deploy key: xyz-789", 3),
        Note("Deploy key: " + "a very long note about how deploy keys are made " * 3, 4),
    )
    (found,) = result.found
    assert (found.older_position, found.newer_position, found.reason) == (0, 2, "newer_value")
    assert found.concept_id == concept_id("deploy key")


def test_a_remark_under_a_key_is_ended_with_low_confidence(find: Find) -> None:
    result = find(
        Note("Redis: only used as a cache", 1),
        Note("Redis: single node", 2),
        Note("Redis: three nodes", 3),
    )
    assert [s.confidence for s in result.found] == [0, 1]


def test_values_without_spaces_are_measured_by_characters(find: Find) -> None:
    short = find(Note("部署密钥：甲乙", 1), Note("部署密钥：丙丁", 5))
    assert [s.confidence for s in short.found] == [1]
    long = find(Note("部署密钥：" + "甲乙" * 20, 1), Note("部署密钥：" + "丙丁" * 20, 5))
    assert long.found == ()


def test_generic_keys_are_no_subjects(find: Find) -> None:
    assert find(Note("Todo: buy milk", 1), Note("Todo: call Ben", 5)).found == ()
    result = find(
        Note("x", 1, says=[("it", "lives_in", "porto")]),
        Note("y", 2, says=[("it", "lives_in", "faro")]),
    )
    assert (result.found, result.rejected) == ((), {"generic": 2})


def test_a_relation_with_many_values_is_a_list(find: Find) -> None:
    some = [Note(f"Standup room: r{day}", day) for day in range(VALUES_MAX)]
    assert len(find(*some).found) == VALUES_MAX - 1
    result = find(*some, Note("Standup room: one more", 99))
    assert (result.found, result.rejected) == ((), {"many_values": VALUES_MAX + 1})


def test_a_text_that_says_much_else_is_superseded_with_low_confidence(find: Find) -> None:
    old = Note(
        "Ana works at Acme. She has two children, plays chess on Sundays and is allergic to nuts.",
        1,
        says=[("ana", "works_at", "Acme")],
    )
    (found,) = find(old, works("Beta", 5)).found
    assert found.confidence == 0


def test_a_memory_with_two_facts_keeps_the_second_contradiction(find: Find) -> None:
    old = Note(
        "Ana works at Acme, lives in Porto",
        1,
        says=[("ana", "works_at", "Acme"), ("ana", "lives_in", "Porto")],
    )
    moved = Note("Ana lives in Faro", 9, says=[("ana", "lives_in", "Faro")])
    result = find(old, works("Beta", 5), moved)
    assert pairs(result) == [(0, 2)]
    assert [(s.older_position, s.newer_position) for s in result.others] == [(0, 1)]


def prefers(text: str, thing: str, day: int) -> Note:
    return Note(text, day, says=[("user", "prefers", thing)])


def test_preferences_contradict_each_other_on_one_topic(find: Find) -> None:
    result = find(
        prefers("Prefers tea over coffee", "tea", 1),
        prefers("Prefers tabs for Python", "tabs", 1),
        prefers("Prefers coffee over tea", "coffee", 5),
        prefers("Prefers spaces for Python", "spaces", 5),
        prefers("Prefers trains", "trains", 9),
    )
    assert pairs(result) == [(0, 2), (1, 3)]


def test_a_guessed_topic_is_of_low_confidence(find: Find) -> None:
    dark = prefers("Prefers dark themes", "dark themes", 1)
    light = prefers("Prefers light themes", "light themes", 5)
    assert [s.confidence for s in find(dark, light).found] == [0]


@pytest.mark.parametrize(
    ("name", "after", "topic"),
    [
        ("tea over coffee", "", "coffee|tea"),
        ("coffee", "rather than tea", "coffee|tea"),
        ("tabs", "for python", "for python"),
        ("tabs", "at work", None),
        ("dark mode", "", "mode"),
        ("tea", "", None),
    ],
)
def test_topics_of_preferences(name: str, after: str, topic: str | None) -> None:
    found = read_preference(name, after)
    assert (None if found is None else found[0]) == topic


def test_denials_are_no_confirmation() -> None:
    assert restates("acme", "acme corp")
    assert not restates("green", "not green")
    assert not restates("acme", "beta")
