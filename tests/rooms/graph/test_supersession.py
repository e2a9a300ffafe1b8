"""Which memory replaces which: stated, newer values, near duplicates, deletions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.graph.duplicates import (
    LEAST_RECALL,
    MemoryColumns,
    comparisons,
    find_near_duplicates,
    newest_near_duplicates,
    signatures,
    tables_for,
)
from noctuary.graph.extract import Extraction, Found, Stated, extract
from noctuary.graph.fold import concept_id, fold_name
from noctuary.graph.successors import (
    DAY_US,
    LEAST_SIMILARITY,
    NO_SUCCESSOR,
    SupersessionIndex,
    SupersessionRow,
    differ,
    keys_of,
    marks_of,
)
from noctuary.graph.supersession import (
    VALUES_MAX,
    Supersessions,
    find_supersessions,
    read_preference,
    restates,
)
from noctuary.graph.tables import Evidence, StatedRelation, Supersession
from noctuary.text.marks import MARK
from tests.support.graph_objects import ConceptEdge, Edge, Graph, close_graph
from tests.support.supersession import corpus_of, heads_of

Says = tuple[str, StatedRelation, str]


Vectors = NDArray[np.float32]


class Note:
    """A memory of a test: its text, its day, and what an extractor reads in it."""

    def __init__(
        self,
        content: str,
        day: int | None = 0,
        *,
        says: Sequence[Says] = (),
        about: Sequence[str] = (),
        memory_id: str = "",
        **fields: object,
    ) -> None:
        self.content, self.day, self.says, self.about = content, day, says, about
        self.memory_id, self.fields = memory_id, fields

    def record(self, position: int) -> MemoryRecord:
        created = -(2**63) if self.day is None else self.day * DAY_US
        values: dict[str, object] = {
            "position": position,
            "memory_id": self.memory_id or f"m{position}",
            "content": self.content,
            "category": "",
            "tags": "",
            "expanded_keywords": "",
            "importance": 0.5,
            "created_at_us": created,
            "updated_at_us": created if self.day is None else created + 1,
            "session_id": None,
            "wing": None,
            "room": None,
            "user": None,
            "is_turn": False,
            "content_hash": hashlib.sha256(self.content.encode()).hexdigest(),
        }
        return MemoryRecord(**{**values, **self.fields})  # pyright: ignore[reportArgumentType]

    def extraction(self, record: MemoryRecord) -> Extraction:
        """What the extractor finds, or what the test says instead of its statements."""
        read = extract(record.content, record.tags, is_turn=record.is_turn)
        found = (*read.found, *(self._about(name) for name in self.about))
        return Extraction(found, tuple(self._stated(*said) for said in self.says))

    def _about(self, name: str) -> Found:
        return Found("about", "leading", fold_name(name), 0, len(name), name)

    def _stated(self, subject: str, relation: StatedRelation, thing: str) -> Stated:
        folded = thing if thing.startswith("#") else fold_name(thing)
        end = self.content.find(thing) + len(thing) if thing in self.content else len(self.content)
        return Stated(fold_name(subject), relation, folded, 0, end, subject, thing)


Find = Callable[..., Supersessions]


@pytest.fixture
def find() -> Find:
    """Find the supersessions of notes; positions are their order."""

    def of(*notes: Note, vectors: Vectors | None = None, **canonical_of: str) -> Supersessions:
        records = [note.record(position) for position, note in enumerate(notes)]
        extractions = [n.extraction(r) for n, r in zip(notes, records, strict=True)]
        return find_supersessions(corpus_of(records, extractions), canonical_of, vectors)

    return of


def pairs(result: Supersessions) -> list[tuple[int, int]]:
    return [(s.older_position, s.newer_position) for s in result.found]


def at_angles(*cosines_to_first: float) -> Vectors:
    """Unit rows in a plane: the first is the axis, the others have these cosines to it."""
    cosines = np.array([1.0, *cosines_to_first])
    return np.stack([cosines, np.sqrt(1.0 - cosines**2)], axis=1).astype(np.float32)


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


def test_a_link_by_id_supersedes_that_memory_whatever_the_dates_say(find: Find) -> None:
    old = Note("Deploys go out on Mondays", 9, memory_id="12")
    new = Note("Deploys go out daily. Supersedes #12", 3, says=[("", "supersedes", "#12")])
    (found,) = find(old, new).found
    assert (found.older_position, found.newer_position) == (0, 1)
    assert (found.reason, found.confidence) == ("explicit", 2)
    # Nothing ends before it began, and the gap is not negative.
    assert found.valid_to_us == old.record(0).created_at_us
    assert found.age_gap_days == 0


def test_a_link_by_id_needs_no_dates(find: Find) -> None:
    old = Note("Deploys go out on Mondays", None, memory_id="12")
    new = Note("Supersedes #12", None, says=[("", "supersedes", "#12")])
    assert pairs(find(old, new)) == [(0, 1)]


def test_links_by_id_that_lead_nowhere_are_counted(find: Find) -> None:
    result = find(
        Note("Supersedes #99", 1, says=[("", "supersedes", "#99")]),
        Note("Supersedes #m1", 1, says=[("", "supersedes", "#m1")]),
        Note("Supersedes #m3", 1, says=[("", "supersedes", "#m3")], user="ana"),
        Note("The key of Ben", 0, user="ben"),
    )
    assert result.found == ()
    assert result.rejected == {"scope": 1, "self": 1, "unknown_id": 1}


def test_a_name_means_the_newest_older_memory_about_it(find: Find) -> None:
    result = find(
        Note("slow to start", 1, about=["Jest"]),
        Note("all tests use it", 5, about=["Jest"]),
        Note("Vitest: replaced Jest", 9, says=[("vitest", "supersedes", "jest")]),
        Note("a note of later", 12, about=["Jest"]),
    )
    (found,) = result.found
    assert (found.older_position, found.newer_position, found.confidence) == (1, 2, 1)
    assert found.evidence.position == 2


def test_a_tag_counts_where_no_memory_is_about_the_name(find: Find) -> None:
    tagged = Note("All tests run in it", 1, tags="jest")
    newer = Note("Vitest: replaced Jest", 9, says=[("vitest", "supersedes", "jest")])
    assert pairs(find(tagged, newer)) == [(0, 1)]
    both = find(tagged, Note("Jest: slow", 0), newer)
    assert pairs(both) == [(1, 2)]


def test_who_is_not_about_the_newer_thing_is_believed_less(find: Find) -> None:
    old = Note("Jest: all tests use it", 1)
    aside = Note("Standup: somebody replaced Jest", 9, says=[("vitest", "supersedes", "jest")])
    (found,) = find(old, aside).found
    assert found.confidence == 0


def test_a_memory_may_say_itself_what_replaced_it(find: Find) -> None:
    result = find(
        Note("TSLint: replaced by ESLint", 1, says=[("eslint", "supersedes", "tslint")]),
        Note("strict rules", 5, about=["ESLint"]),
        Note("even stricter rules", 9, about=["ESLint"]),
    )
    (found,) = result.found
    assert (found.older_position, found.newer_position) == (0, 1)
    assert found.evidence.position == 0
    bare = Note("Linting is old. Replaced by ESLint.", 1, says=[("eslint", "supersedes", "#")])
    assert pairs(find(bare, Note("ESLint: strict rules", 5))) == [(0, 1)]


def test_names_are_compared_by_what_stands_for_them(find: Find) -> None:
    old = Note("k8s: three nodes", 1)
    new = Note("Nomad: replaced Kubernetes", 9, says=[("nomad", "supersedes", "kubernetes")])
    assert find(old, new).found == ()
    assert pairs(find(old, new, k8s="kubernetes")) == [(0, 1)]


def test_generic_words_and_undated_memories_name_nothing(find: Find) -> None:
    result = find(
        Note("Decision", 1, about=["decision", "jest"]),
        Note("Replaced the decision", 9, says=[("", "supersedes", "decision")]),
        Note("Replaced it", 9, says=[("", "supersedes", "it")]),
        Note("Replaced Jest", None, says=[("", "supersedes", "jest")]),
        Note("Replaced Mocha", 9, says=[("", "supersedes", "mocha")]),
    )
    assert result.found == ()
    assert result.rejected == {"generic": 2, "no_target": 1, "undated": 1}


def test_a_stronger_source_decides_even_where_a_weaker_one_is_newer(find: Find) -> None:
    old = Note("Ana works at Acme", 1, says=[("ana", "works_at", "acme")])
    explicit = Note("Supersedes #m0", 10, says=[("", "supersedes", "#m0")])
    value = Note("Ana works at Beta", 20, says=[("ana", "works_at", "beta")])
    again = Note("Ana works at Acme still", 40)
    vectors = at_angles(-0.9, 0.0, 0.99)
    result = find(old, explicit, value, again, vectors=vectors)
    assert [(s.newer_position, s.reason) for s in result.found] == [(1, "explicit")]
    without = find(old, value, again, vectors=vectors[[0, 2, 3]])
    assert [(s.newer_position, s.reason) for s in without.found] == [(1, "newer_value")]
    assert [s.reason for s in find(old, again, vectors=vectors[[0, 3]]).found] == ["near_duplicate"]


def test_of_one_source_the_newest_successor_is_the_direct_one(find: Find) -> None:
    result = find(
        Note("old", 1),
        Note("Supersedes #m0", 5, says=[("", "supersedes", "#m0")]),
        Note("Supersedes #m0", 9, says=[("", "supersedes", "#m0")]),
    )
    assert pairs(result) == [(0, 2)]


def test_chains_end_at_the_newest(find: Find) -> None:
    result = find(
        Note("first", 1),
        Note("Supersedes #m0", 5, says=[("", "supersedes", "#m0")]),
        Note("Supersedes #m1", 9, says=[("", "supersedes", "#m1")]),
    )
    assert [(s.older_position, s.head_position) for s in result.found] == [(0, 2), (1, 2)]


def test_of_two_that_supersede_each_other_the_newer_stands(find: Find) -> None:
    result = find(
        Note("Supersedes #m1", 5, says=[("", "supersedes", "#m1")]),
        Note("Supersedes #m0", 9, says=[("", "supersedes", "#m0")]),
    )
    assert pairs(result) == [(0, 1)]
    assert result.rejected == {"cycle": 1}


def test_a_cycle_of_three_loses_the_link_to_its_oldest(find: Find) -> None:
    result = find(
        Note("Supersedes #m2", 1, says=[("", "supersedes", "#m2")]),
        Note("Supersedes #m0", 5, says=[("", "supersedes", "#m0")]),
        Note("Supersedes #m1", 9, says=[("", "supersedes", "#m1")]),
    )
    assert pairs(result) == [(0, 1), (1, 2)]
    assert result.rejected == {"cycle": 1}


def test_a_dropped_link_gives_way_to_the_next_best(find: Find) -> None:
    result = find(
        Note("Ana works at Acme. Supersedes #m1", 1,
             says=[("", "supersedes", "#m1"), ("ana", "works_at", "acme")]),
        Note("Ana works at Beta. Supersedes #m0", 5,
             says=[("", "supersedes", "#m0"), ("ana", "works_at", "beta")]),
        Note("Ana works at Gamma", 9, says=[("ana", "works_at", "gamma")]),
    )  # fmt: skip
    assert [(s.older_position, s.newer_position, s.reason) for s in result.found] == [
        (0, 1, "explicit"),
        (1, 2, "newer_value"),
    ]


def test_a_chain_does_not_lead_from_one_wing_to_another(find: Find) -> None:
    result = find(
        Note("The key is X", 1, wing="x"),
        Note("Supersedes #m0", 5, says=[("", "supersedes", "#m0")]),
        Note("Supersedes #m1", 9, says=[("", "supersedes", "#m1")], wing="y"),
    )
    assert pairs(result) == [(1, 2)]
    assert result.rejected == {"chain_scope": 1}


def deploy(day: int | None, **fields: object) -> Note:
    return Note("Deploys run at nine", day, **fields)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("cosine", "days", "confidence"),
    [
        (0.95, 30, 2),
        (0.95, 29, 1),
        (0.87, 90, 1),
        (0.87, 13, 0),
        (0.87, 7, 0),
        (0.87, 6, None),
        (0.85, 90, None),
    ],
)
def test_grades_of_near_duplicates(
    find: Find, cosine: float, days: int, confidence: int | None
) -> None:
    result = find(deploy(0), deploy(days), vectors=at_angles(cosine))
    assert [s.confidence for s in result.found] == ([] if confidence is None else [confidence])
    for found in result.found:
        assert (found.older_position, found.newer_position) == (0, 1)
        assert (found.reason, found.concept_id, found.age_gap_days) == ("near_duplicate", "", days)
        assert found.similarity == pytest.approx(cosine, abs=1e-5)


def test_the_newest_of_several_is_the_successor(find: Find) -> None:
    result = find(deploy(0), deploy(10), deploy(90), vectors=at_angles(0.9, 0.9))
    assert pairs(result) == [(0, 2), (1, 2)]


def test_scope_dates_and_turns_keep_both(find: Find) -> None:
    same = at_angles(1.0)
    assert find(deploy(0, user="a"), deploy(30, user="b"), vectors=same).found == ()
    assert find(deploy(0, user="a"), deploy(30), vectors=same).found == ()
    assert find(deploy(0, wing="x"), deploy(30, wing="y"), vectors=same).found == ()
    assert find(deploy(None), deploy(30), vectors=same).found == ()
    assert find(deploy(0, is_turn=True), deploy(30, is_turn=True), vectors=same).found == ()
    assert find(deploy(0, is_turn=True), deploy(30), vectors=same).found == ()


def test_a_memory_without_a_wing_may_belong_to_any(find: Find) -> None:
    same = at_angles(1.0)
    assert pairs(find(deploy(0, wing="x"), deploy(30), vectors=same)) == [(0, 1)]
    assert pairs(find(deploy(0), deploy(30, wing="x"), vectors=same)) == [(0, 1)]


def test_a_row_without_a_vector_is_near_nothing(find: Find) -> None:
    assert find(deploy(0), deploy(30), vectors=np.zeros((2, 4), dtype=np.float32)).found == ()


def test_without_vectors_there_are_no_near_duplicates(find: Find) -> None:
    assert find(deploy(0), deploy(30)).found == ()
    with pytest.raises(ValueError, match="one row per position"):
        find(deploy(0), deploy(30), vectors=np.zeros((1, 4), dtype=np.float32))


def crowd(rows: int, dim: int, seed: int) -> Vectors:
    """Random directions, every third one beside an earlier one at a cosine from 0.8 to 1."""
    random = np.random.default_rng(seed)
    vectors = random.standard_normal((rows, dim))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for row in range(2, rows, 3):
        axis = vectors[random.integers(0, row)]
        away = vectors[row] - (vectors[row] @ axis) * axis
        away /= np.linalg.norm(away)
        cosine = random.uniform(0.8, 1.0)
        vectors[row] = cosine * axis + np.sqrt(1 - cosine**2) * away
    return vectors.astype(np.float32)


def test_blocks_find_what_looking_at_every_pair_finds() -> None:
    vectors = crowd(1_500, 24, 1)
    days = np.random.default_rng(2).integers(0, 60, len(vectors))
    records = [deploy(int(day)).record(p) for p, day in enumerate(days)]
    created = days * DAY_US
    (whole,) = comparisons(MemoryColumns.read(records))
    found = {p.older: p.newer for p in newest_near_duplicates(whole, vectors, created)}
    expected: dict[int, int] = {}
    cosines = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    for older in range(len(vectors)):
        near = np.flatnonzero((cosines[older] >= LEAST_SIMILARITY) & (days - days[older] >= 7))
        if len(near):
            expected[older] = max(near.tolist(), key=lambda p: (days[p], p))
    assert len(expected) > 200
    assert found == expected


def test_cells_find_nearly_what_exact_comparison_finds() -> None:
    vectors = crowd(6_000, 48, 3)
    records = [deploy(p % 90).record(p) for p in range(len(vectors))]
    created = np.array([r.created_at_us for r in records], dtype=np.int64)
    (exact,) = comparisons(MemoryColumns.read(records))
    (by_cells,) = comparisons(MemoryColumns.read(records), exact_pairs=0)
    assert (exact.bits, by_cells.bits) == (0, 5)
    truth = set(newest_near_duplicates(exact, vectors, created))
    found = set(newest_near_duplicates(by_cells, vectors, created))
    assert len(truth) > 500
    assert len(found & truth) >= LEAST_RECALL * len(truth)


def test_copies_of_one_text_lead_to_the_newest_without_cells_or_with_them(find: Find) -> None:
    records = [deploy(p).record(p) for p in range(600)]
    vectors = np.repeat(at_angles(1.0)[:1], 600, axis=0)
    created = np.array([r.created_at_us for r in records], dtype=np.int64)
    for exact_pairs in (0, 10**9):
        (whole,) = comparisons(MemoryColumns.read(records), exact_pairs=exact_pairs)
        found = newest_near_duplicates(whole, vectors, created)
        assert [p[:2] for p in found] == [(p, 599) for p in range(593)]


def test_a_cell_depends_on_its_row_alone() -> None:
    vectors = crowd(300, 16, 5)
    cells = signatures(vectors, 6)
    assert cells.shape == (300, tables_for(6))
    np.testing.assert_array_equal(signatures(vectors[::-7], 6), cells[::-7])
    assert len(np.unique(cells[:, 0])) > 30


def test_more_hyperplanes_need_more_sets_of_cells() -> None:
    counts = [tables_for(bits) for bits in range(1, 14)]
    assert counts == sorted(set(counts))


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="only Linux tells")
def test_vectors_that_were_read_do_not_stay_mapped(tmp_path: Path) -> None:
    path, rows = tmp_path / "vectors.npy", 20_000
    np.save(path, np.full((rows, 384), 384**-0.5, dtype=np.float32))
    records = [Note(f"Room {p // 2} is dark", p % 2 * 30).record(p) for p in range(rows)]
    vectors = np.load(path, mmap_mode="r")
    assert len(find_near_duplicates(MemoryColumns.read(records), vectors)) == rows // 2
    told = Path("/proc/self/smaps").read_text(encoding="utf-8")
    _, _, mine = told.partition(str(path))
    assert path.stat().st_size > 30_000_000
    assert 0 <= int(mine.partition("Rss:")[2].split()[0]) < 5_000


def row(older: int, newer: int, valid_to_us: int, confidence: int = 2) -> SupersessionRow:
    return SupersessionRow(older, newer, newer, "explicit", confidence, None, 0, valid_to_us)


CHAIN = SupersessionIndex([row(4, 6, 300, 0), row(1, 4, 200), row(0, 1, 100)])


ALL = np.arange(8)


def heads(index: SupersessionIndex, as_of_us: int | None = None, **rules: object) -> list[int]:
    return heads_of(index, ALL, as_of_us, **rules).tolist()


def test_successors_are_direct() -> None:
    found = CHAIN.successors(np.array([4, 0, 7, 0]))
    assert found.tolist() == [6, 1, NO_SUCCESSOR, 1]


def test_heads_end_the_chain_and_stand_for_themselves() -> None:
    assert heads(CHAIN) == [6, 6, 2, 3, 6, 5, 6, 7]


@pytest.mark.parametrize(
    ("as_of_us", "head"), [(99, 0), (100, 1), (199, 1), (200, 4), (300, 6), (10**15, 6)]
)
def test_a_successor_that_came_later_does_not_count(as_of_us: int, head: int) -> None:
    assert heads(CHAIN, as_of_us)[0] == head


def test_a_successor_without_a_date_always_counts() -> None:
    index = SupersessionIndex([row(0, 1, UNDATED_US)])
    assert heads(index, UNDATED_US + 1)[0] == 1


def test_a_successor_that_the_reader_may_not_see_does_not_exist() -> None:
    visible = np.ones(8, dtype=np.bool_)
    visible[4] = False
    assert heads(CHAIN, visible=visible) == [1, 1, 2, 3, 6, 5, 6, 7]
    assert CHAIN.successors(np.array([1]), visible=visible).tolist() == [NO_SUCCESSOR]


def test_less_sure_links_can_be_left_out() -> None:
    assert heads(CHAIN, least_confidence=1) == [4, 4, 2, 3, 4, 5, 6, 7]


def test_an_empty_index_answers() -> None:
    empty = SupersessionIndex([])
    assert (len(empty), heads(empty)) == (0, ALL.tolist())
    assert empty.successors(ALL).tolist() == [NO_SUCCESSOR] * 8


def test_rows_are_found_by_their_older_memory() -> None:
    found = CHAIN.row_of(1)
    assert found is not None
    assert found.newer == 4
    assert CHAIN.row_of(6) is None
    assert len(CHAIN) == 3


def test_two_rows_of_one_memory_are_refused() -> None:
    with pytest.raises(ValueError, match="one each"):
        SupersessionIndex([row(0, 1, 1), row(0, 2, 2)])


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


def hired(place: str, day: int, mark: str = "") -> Note:
    return Note(f"{mark}Nina works at {place}.", day, says=[("Nina", "works_at", place)])


def test_a_marked_value_ends_nothing_and_the_next_one_does(find: Find) -> None:
    notes = (
        hired("Initech", 0),
        hired("Hooli", 10, f"{MARK} "),
        hired("Globex", 20),
    )
    assert pairs(find(*notes)) == [(0, 2), (1, 2)]
    assert pairs(find(hired("Initech", 0), hired("Hooli", 10), hired("Globex", 20))) == [
        (0, 1), (1, 2),
    ]  # fmt: skip


def test_a_marked_near_duplicate_is_no_successor_of_an_older_one(find: Find) -> None:
    notes = [Note("Deploys run at nine", day) for day in (0, 30, 60)]
    notes[2].content = f"{MARK} {notes[2].content}"
    assert pairs(find(*notes, vectors=at_angles(0.95, 0.95))) == [(0, 1)]


def test_what_a_marked_memory_says_of_another_counts_no_more(find: Find) -> None:
    older = Note("Jest runs the tests.", 0, memory_id="a")
    newer = Note("Vitest runs them.", 9, says=[("", "supersedes", "#a")])
    assert pairs(find(older, newer)) == [(0, 1)]
    newer.content = f"{MARK} {newer.content}"
    assert pairs(find(older, newer)) == []


def states(subject: str, relation: StatedRelation, thing: str, *positions: int) -> ConceptEdge:
    evidence = tuple(Evidence(p, 0, 20) for p in positions)
    return ConceptEdge(
        concept_id(subject), concept_id(thing), relation, 0.5, evidence, 10, None, 11, None
    )


def step(
    source: int, target: int, concept: str, start: int = 5, relation: str = "mentions_subject"
) -> Edge:
    return Edge(
        source, target, relation, 0.5, concept_id(concept), source, start, start + 4, 10, None, 11
    )


def replaced(
    older: int, newer: int, reason: str = "newer_value", about: str = "ana", at: int = 100
) -> Supersession:
    about_id = concept_id(about) if reason in ("is_now", "newer_value") else ""
    where = Evidence(newer, 0, 20)
    return Supersession(older, newer, newer, reason, 1, None, 1, about_id, where, at, at + 1)


def graph(*statements: ConceptEdge, edges: tuple[Edge, ...] = ()) -> Graph:
    return Graph((), (), edges, concept_edges=statements)


def ends(result: Graph) -> list[tuple[int | None, int | None]]:
    return [(e.valid_to_us, e.retracted_at_us) for e in (*result.concept_edges, *result.edges)]


OPEN, CLOSED = (None, None), (100, 101)


def test_same_subject_and_relation_with_another_object_ends() -> None:
    before = graph(
        states("ana", "works_at", "acme", 0),
        states("ana", "works_at", "beta", 1),
        states("ana", "lives_in", "porto", 0),
        states("ben", "works_at", "acme", 0),
    )
    assert ends(close_graph(before, [replaced(0, 1)])) == [CLOSED, OPEN, OPEN, OPEN]


def test_one_standing_piece_of_evidence_keeps_an_edge_open() -> None:
    before = graph(states("ana", "works_at", "acme", 0, 2), states("ana", "works_at", "beta", 1))
    assert ends(close_graph(before, [replaced(0, 1)])) == [OPEN, OPEN]
    both = [replaced(0, 1), replaced(2, 1, at=400)]
    assert ends(close_graph(before, both)) == [(400, 401), OPEN]


def test_what_the_newer_memory_restates_stays() -> None:
    before = graph(states("ana", "works_at", "acme", 0, 1), states("ana", "works_at", "beta", 1))
    assert ends(close_graph(before, [replaced(0, 1)])) == [OPEN, OPEN]


def test_another_subject_in_the_same_two_memories_is_not_drawn_in() -> None:
    before = graph(
        states("ben", "has", "dog", 0),
        states("ben", "has", "cat", 1),
        states("ana", "works_at", "acme", 0),
        states("ana", "works_at", "beta", 1),
    )
    assert ends(close_graph(before, [replaced(0, 1)])) == [OPEN, OPEN, CLOSED, OPEN]
    assert ends(close_graph(before, [replaced(0, 1, "explicit")])) == [
        CLOSED, OPEN, CLOSED, OPEN,
    ]  # fmt: skip


def test_is_now_ends_what_something_is_and_not_what_it_has() -> None:
    before = graph(
        states("ana", "is_a", "junior", 0),
        states("ana", "has", "dog", 0),
        states("ana", "is_now", "senior", 1),
    )
    assert ends(close_graph(before, [replaced(0, 1, "is_now")])) == [CLOSED, OPEN, OPEN]


def test_an_explicit_link_ends_nothing_that_the_newer_does_not_speak_of() -> None:
    before = graph(states("ana", "works_at", "acme", 0), states("ana", "lives_in", "faro", 1))
    assert ends(close_graph(before, [replaced(0, 1, "explicit")])) == [OPEN, OPEN]


def test_near_duplicates_end_only_the_steps_that_the_newer_restates() -> None:
    before = graph(
        states("ana", "works_at", "acme", 0),
        states("ana", "works_at", "beta", 1),
        edges=(
            step(0, 5, "acme"),
            step(0, 6, "porto"),
            step(0, 7, "tag", relation="mentions_tag"),
            step(1, 5, "acme"),
            step(1, 7, "tag"),
        ),
    )
    result = close_graph(before, [replaced(0, 1, "near_duplicate")])
    assert ends(result) == [OPEN, OPEN, CLOSED, OPEN, OPEN, OPEN, OPEN]


STATED = (states("ana", "works_at", "acme", 0), states("ana", "works_at", "beta", 1))


@pytest.mark.parametrize(
    ("edge", "others", "closed"),
    [
        (step(0, 5, "acme"), (), True),
        (step(0, 5, "acme", start=30), (), False),  # named again outside the statement
        (step(0, 5, "ana"), (), False),  # the subject goes on
        (step(0, 5, "acme"), (step(1, 5, "beta"),), False),  # the newer one leads there as well
        (step(0, 1, "acme"), (), False),  # leads to the newer memory itself
        (step(5, 0, "acme"), (), False),  # rests on another memory
        (step(0, 5, "acme", relation="next_turn"), (), False),
    ],
)
def test_a_step_ends_with_the_object_it_rests_on(
    edge: Edge, others: tuple[Edge, ...], closed: bool
) -> None:
    result = close_graph(graph(*STATED, edges=(edge, *others)), [replaced(0, 1)])
    assert result.edges[0].valid_to_us == (100 if closed else None)
    assert result.edges[1:] == others


def test_an_interval_never_ends_before_it_begins() -> None:
    late = replace(step(0, 5, "acme"), valid_from_us=500)
    result = close_graph(graph(*STATED, edges=(late,)), [replaced(0, 1)])
    assert (result.edges[0].valid_to_us, result.edges[0].retracted_at_us) == (500, 101)


def test_what_is_closed_keeps_its_end() -> None:
    before = graph(*STATED, edges=(step(0, 5, "acme"),))
    once = close_graph(before, [replaced(0, 1)])
    assert close_graph(once, [replaced(0, 1, at=900)]) == once


def test_without_supersessions_the_graph_is_the_same() -> None:
    before = graph(*STATED)
    assert close_graph(before, []) == before
