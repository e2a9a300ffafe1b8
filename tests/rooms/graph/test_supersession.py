"""Which memory replaces which: stated, newer values, near duplicates, deletions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.types import DAY_US, UNDATED_US, MemoryRecord
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
from tests.support.store import memory
from tests.support.supersession import corpus_of, heads_of

Vectors = NDArray[np.float32]
Links = list[tuple[int, int, str, int]]
"""Older, newer, reason, confidence."""


class Note:
    """A memory of a test: its text, its day, and what is read in it ("ana works_at Acme")."""

    def __init__(
        self, content: str, day: int | None = 0, *says: str, about: str = "", **fields: Any
    ) -> None:
        self.content, self.day, self.about, self.fields = content, day, about.split(), fields
        self.says = [said.split(" ", 2) for said in says]

    def record(self, position: int) -> MemoryRecord:
        created = UNDATED_US if self.day is None else self.day * DAY_US
        updated = created if self.day is None else created + 1
        place = {"position": position, "memory_id": f"m{position}"}
        dates = {"created_at_us": created, "updated_at_us": updated}
        return memory(self.content, **{**place, **dates, **self.fields})

    def extraction(self, record: MemoryRecord) -> Extraction:
        """What the extractor finds, and the statements of the test in the place of its own."""
        read = extract(record.content, record.tags, is_turn=record.is_turn)
        named = [Found("about", "leading", fold_name(n), 0, len(n), n) for n in self.about]
        return Extraction((*read.found, *named), tuple(self._stated(*said) for said in self.says))

    def _stated(self, subject: str, relation: str, thing: str) -> Stated:
        folded = thing if thing.startswith("#") else fold_name(thing)
        end = self.content.find(thing) + len(thing) if thing in self.content else len(self.content)
        return Stated(fold_name(subject), relation, folded, 0, end, subject, thing)  # pyright: ignore[reportArgumentType]


def find(
    *notes: Note, vectors: Vectors | None = None, aliases: Mapping[str, str] | None = None
) -> Supersessions:
    """Find the supersessions of notes; positions are their order."""
    records = [note.record(position) for position, note in enumerate(notes)]
    extractions = [n.extraction(r) for n, r in zip(notes, records, strict=True)]
    return find_supersessions(corpus_of(records, extractions), aliases or {}, vectors)


def links(result: Supersessions) -> Links:
    found = result.found
    return [(s.older_position, s.newer_position, s.reason, s.confidence) for s in found]


def pairs(result: Supersessions) -> list[tuple[int, int]]:
    return [link[:2] for link in links(result)]


def at_angles(*cosines_to_first: float) -> Vectors:
    """Unit rows in a plane: the first is the axis, the others have these cosines to it."""
    cosines = np.array([1.0, *cosines_to_first])
    return np.stack([cosines, np.sqrt(1.0 - cosines**2)], axis=1).astype(np.float32)


def works(at: str, day: int | None, **fields: Any) -> Note:
    return Note(f"Ana works at {at}", day, f"ana works_at {at}", **fields)


def prefers(text: str, thing: str, day: int) -> Note:
    return Note(text, day, f"user prefers {thing}")


def replaces(memory_id: str, day: int | None, **fields: Any) -> Note:
    return Note(f"Supersedes #{memory_id}", day, f" supersedes #{memory_id}", **fields)


VITEST = Note("Vitest: replaced Jest", 9, "vitest supersedes jest")
ROOMS = [Note(f"Standup room: r{day}", day) for day in range(VALUES_MAX)]

STORIES: dict[str, tuple[list[Note], Links, dict[str, int]]] = {
    "what something is now ends what it was": (
        [Note("Ana is a junior engineer", 1, "ana is_a junior engineer"),
         Note("Ana is now a senior engineer", 8, "ana is_now senior engineer"),
         Note("Ana is now the lead", 20, "ana is_now lead")],
        [(0, 1, "is_now", 1), (1, 2, "is_now", 1)], {},
    ),
    "only is_now ends a state": (
        [Note("Redis is now the cache", 1, "redis is_now cache"),
         Note("Redis is a database", 8, "redis is_a database")],
        [], {},
    ),
    "what something has is ended with low confidence": (
        [Note("Ana has a dog", 1, "ana has dog"),
         Note("Ana is now a cat owner", 8, "ana is_now cat owner")],
        [(0, 1, "is_now", 0)], {},
    ),
    "a newer value ends the older at the first difference": (
        [works("Acme", 1), works("Beta", 5), works("Gamma", 9)],
        [(0, 1, "newer_value", 1), (1, 2, "newer_value", 1)], {},
    ),
    "the same value confirms": (
        [works("Acme", 1), works("Acme", 5), works("Acme Corp", 9)], [], {},
    ),
    "what was confirmed ends with the first one that differs": (
        [works("Acme", 1), works("Acme", 5), works("Beta", 9)],
        [(0, 2, "newer_value", 1), (1, 2, "newer_value", 1)], {},
    ),
    "a list that holds the old value ends nothing": (
        [works("Acme", 1),
         Note("Ana works at Acme and at Beta", 9, "ana works_at acme", "ana works_at beta")],
        [], {},
    ),
    "an undated older value": ([works("Acme", None), works("Beta", 5)], [], {"undated": 1}),
    "an undated newer value": ([works("Acme", 1), works("Beta", None)], [], {"undated": 1}),
    "of one moment": ([works("Acme", 3), works("Beta", 3)], [], {}),
    "told in the other order": (
        [works("Acme", 5), works("Beta", 1)], [(1, 0, "newer_value", 1)], {},
    ),
    "values of two users": ([works("Acme", 1, user="a"), works("Beta", 5, user="b")], [], {}),
    "values of a user and of nobody": ([works("Acme", 1, user="a"), works("Beta", 5)], [], {}),
    "values of two wings": ([works("Acme", 1, wing="x"), works("Beta", 5, wing="y")], [], {}),
    "a newer value of no wing": (
        [works("Acme", 1, wing="x"), works("Beta", 5)], [(0, 1, "newer_value", 1)], {},
    ),
    "an older value of no wing": (
        [works("Acme", 1), works("Beta", 5, wing="y")], [(0, 1, "newer_value", 1)], {},
    ),
    "turns may change a value": (
        [works("Acme", 1, is_turn=True, session_id="s"),
         works("Beta", 2, is_turn=True, session_id="s")],
        [(0, 1, "newer_value", 1)], {},
    ),
    "a key has one value, its parenthesis is part of it, and a note under it is none": (
        [Note("Deploy key: abc-123", 1), Note("Deploy key (prod): def-456", 2),
         Note("deploy key: xyz-789", 3),
         Note("Deploy key: " + "a very long note about how deploy keys are made " * 3, 4)],
        [(0, 2, "newer_value", 1)], {},
    ),
    "a remark under a key is ended with low confidence": (
        [Note("Redis: only used as a cache", 1), Note("Redis: single node", 2),
         Note("Redis: three nodes", 3)],
        [(0, 1, "newer_value", 0), (1, 2, "newer_value", 1)], {},
    ),
    "values without spaces are measured by characters": (
        [Note("部署密钥：甲乙", 1), Note("部署密钥：丙丁", 5)], [(0, 1, "newer_value", 1)], {},
    ),
    "long values without spaces are notes": (
        [Note("部署密钥：" + "甲乙" * 20, 1), Note("部署密钥：" + "丙丁" * 20, 5)], [], {},
    ),
    "generic keys are no subjects": (
        [Note("Todo: buy milk", 1), Note("Todo: call Ben", 5)], [], {},
    ),
    "pronouns are no subjects": (
        [Note("x", 1, "it lives_in porto"), Note("y", 2, "it lives_in faro")], [], {"generic": 2},
    ),
    "a key of as many values as may be": (
        ROOMS, [(n, n + 1, "newer_value", 1) for n in range(VALUES_MAX - 1)], {},
    ),
    "a key of one value more is a list": (
        [*ROOMS, Note("Standup room: one more", 99)], [], {"many_values": VALUES_MAX + 1},
    ),
    "a text that says much else is superseded with low confidence": (
        [Note("Ana works at Acme. She has two children, plays chess on Sundays and is allergic to "
              "nuts.", 1, "ana works_at Acme"),
         works("Beta", 5)],
        [(0, 1, "newer_value", 0)], {},
    ),
    "preferences contradict each other on one topic": (
        [prefers("Prefers tea over coffee", "tea", 1),
         prefers("Prefers tabs for Python", "tabs", 1),
         prefers("Prefers coffee over tea", "coffee", 5),
         prefers("Prefers spaces for Python", "spaces", 5),
         prefers("Prefers trains", "trains", 9)],
        [(0, 2, "newer_value", 0), (1, 3, "newer_value", 1)], {},
    ),
    "a guessed topic is of low confidence": (
        [prefers("Prefers dark themes", "dark themes", 1),
         prefers("Prefers light themes", "light themes", 5)],
        [(0, 1, "newer_value", 0)], {},
    ),
    "a link by id needs no dates": (
        [Note("Deploys go out on Mondays", None), replaces("m0", None)],
        [(0, 1, "explicit", 2)], {},
    ),
    "links by id that lead nowhere are counted": (
        [replaces("99", 1), replaces("m1", 1), replaces("m3", 1, user="ana"),
         Note("The key of Ben", 0, user="ben")],
        [], {"scope": 1, "self": 1, "unknown_id": 1},
    ),
    "a name means the newest older memory about it": (
        [Note("slow to start", 1, about="Jest"), Note("all tests use it", 5, about="Jest"),
         VITEST, Note("a note of later", 12, about="Jest")],
        [(1, 2, "explicit", 1)], {},
    ),
    "a tag counts where no memory is about the name": (
        [Note("All tests run in it", 1, tags="jest"), VITEST], [(0, 1, "explicit", 1)], {},
    ),
    "a tag does not count where a memory is about the name": (
        [Note("All tests run in it", 1, tags="jest"), Note("Jest: slow", 0), VITEST],
        [(1, 2, "explicit", 1)], {},
    ),
    "who is not about the newer thing is believed less": (
        [Note("Jest: all tests use it", 1),
         Note("Standup: somebody replaced Jest", 9, "vitest supersedes jest")],
        [(0, 1, "explicit", 0)], {},
    ),
    "a memory may say itself what replaced it: the earliest later one about it": (
        [Note("TSLint: replaced by ESLint", 1, "eslint supersedes tslint"),
         Note("strict rules", 5, about="ESLint"), Note("even stricter rules", 9, about="ESLint")],
        [(0, 1, "explicit", 1)], {},
    ),
    "a memory may leave its own name out": (
        [Note("Linting is old. Replaced by ESLint.", 1, "eslint supersedes #"),
         Note("ESLint: strict rules", 5)],
        [(0, 1, "explicit", 1)], {},
    ),
    "generic words and undated memories name nothing": (
        [Note("Decision", 1, about="decision jest"),
         Note("Replaced the decision", 9, " supersedes decision"),
         Note("Replaced it", 9, " supersedes it"),
         Note("Replaced Jest", None, " supersedes jest"),
         Note("Replaced Mocha", 9, " supersedes mocha")],
        [], {"generic": 2, "no_target": 1, "undated": 1},
    ),
    "of one source the newest successor is the direct one": (
        [Note("old", 1), replaces("m0", 5), replaces("m0", 9)], [(0, 2, "explicit", 2)], {},
    ),
    "of two that supersede each other the newer stands": (
        [replaces("m1", 5), replaces("m0", 9)], [(0, 1, "explicit", 2)], {"cycle": 1},
    ),
    "a cycle of three loses the link to its oldest": (
        [replaces("m2", 1), replaces("m0", 5), replaces("m1", 9)],
        [(0, 1, "explicit", 2), (1, 2, "explicit", 2)], {"cycle": 1},
    ),
    "a dropped link gives way to the next best": (
        [Note("Ana works at Acme. Supersedes #m1", 1, " supersedes #m1", "ana works_at acme"),
         Note("Ana works at Beta. Supersedes #m0", 5, " supersedes #m0", "ana works_at beta"),
         works("gamma", 9)],
        [(0, 1, "explicit", 2), (1, 2, "newer_value", 1)], {"cycle": 1},
    ),
    "a chain does not lead from one wing to another": (
        [Note("The key is X", 1, wing="x"), replaces("m0", 5), replaces("m1", 9, wing="y")],
        [(1, 2, "explicit", 2)], {"chain_scope": 1},
    ),
    "a marked value ends nothing and the next one does": (
        [works("Initech", 0), Note(f"{MARK} Ana works at Hooli", 10, "ana works_at Hooli"),
         works("Globex", 20)],
        [(0, 2, "newer_value", 1), (1, 2, "newer_value", 1)], {},
    ),
    "what a marked memory says of another counts no more": (
        [Note("Jest runs the tests.", 0),
         Note(f"{MARK} Vitest runs them.", 9, " supersedes #m0")],
        [], {},
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("notes", "found", "rejected"),
    STORIES.values(),
    ids=[name.replace(" ", "-") for name in STORIES],
)
def test_a_story_has_these_links(notes: list[Note], found: Links, rejected: dict[str, int]) -> None:
    result = find(*notes)
    assert (links(result), result.rejected) == (found, rejected)


def test_a_link_holds_its_evidence_its_dates_and_the_head_of_its_chain() -> None:
    notes, _, _ = STORIES["what something is now ends what it was"]
    first, second = find(*notes).found
    assert (first.head_position, second.head_position) == (2, 2)
    assert (first.concept_id, first.age_gap_days) == (concept_id("ana"), 7)
    assert first.valid_to_us == 8 * 86_400_000_000
    assert first.recorded_at_us == first.valid_to_us + 1
    assert first.evidence == Evidence(1, 0, len("Ana is now a senior engineer"))
    key, *_ = find(Note("Deploy key: abc-123", 1), Note("deploy key: xyz-789", 3)).found
    assert key.concept_id == concept_id("deploy key")
    said_by_the_older, *_ = find(
        Note("TSLint: replaced by ESLint", 1, "eslint supersedes tslint"),
        Note("strict rules", 5, about="ESLint"),
    ).found
    assert said_by_the_older.evidence.position == 0


def test_a_link_by_id_supersedes_that_memory_whatever_the_dates_say() -> None:
    old = Note("Deploys go out on Mondays", 9, memory_id="12")
    new = Note("Deploys go out daily. Supersedes #12", 3, " supersedes #12")
    (found,) = find(old, new).found
    assert links(find(old, new)) == [(0, 1, "explicit", 2)]
    # Nothing ends before it began, and the gap is not negative.
    assert found.valid_to_us == old.record(0).created_at_us
    assert found.age_gap_days == 0


def test_values_of_other_names_for_one_thing_agree() -> None:
    one, other = works("IBM", 1), works("Big Blue", 9)
    assert pairs(find(one, other)) == [(0, 1)]
    assert find(one, other, aliases={"big blue": "ibm"}).found == ()


def test_names_are_compared_by_what_stands_for_them() -> None:
    old = Note("k8s: three nodes", 1)
    new = Note("Nomad: replaced Kubernetes", 9, "nomad supersedes kubernetes")
    assert find(old, new).found == ()
    assert pairs(find(old, new, aliases={"k8s": "kubernetes"})) == [(0, 1)]


def test_a_memory_with_two_facts_keeps_the_second_contradiction() -> None:
    facts = "ana works_at Acme", "ana lives_in Porto"
    old = Note("Ana works at Acme, lives in Porto", 1, *facts)
    result = find(old, works("Beta", 5), Note("Ana lives in Faro", 9, "ana lives_in Faro"))
    assert pairs(result) == [(0, 2)]
    assert [(s.older_position, s.newer_position) for s in result.others] == [(0, 1)]


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


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [("acme", "acme corp", True), ("green", "not green", False), ("acme", "beta", False)],
)
def test_denials_are_no_confirmation(one: str, other: str, same: bool) -> None:
    assert restates(one, other) is same


def test_a_stronger_source_decides_even_where_a_weaker_one_is_newer() -> None:
    old, explicit, value = works("Acme", 1), replaces("m0", 10), works("Beta", 20)
    again, vectors = Note("Ana works at Acme still", 40), at_angles(-0.9, 0.0, 0.99)
    found = find(old, explicit, value, again, vectors=vectors)
    assert links(found) == [(0, 1, "explicit", 2)]
    without = find(old, value, again, vectors=vectors[[0, 2, 3]])
    assert links(without) == [(0, 1, "newer_value", 1)]
    near = find(old, again, vectors=vectors[[0, 3]])
    assert [s.reason for s in near.found] == ["near_duplicate"]


def deploy(day: int | None, mark: str = "", **fields: Any) -> Note:
    return Note(f"{mark}Deploys run at nine", day, **fields)


@pytest.mark.parametrize(
    ("cosine", "days", "confidence"),
    [(0.95, 30, 2), (0.95, 29, 1), (0.87, 90, 1), (0.87, 13, 0), (0.87, 7, 0), (0.87, 6, None),
     (0.85, 90, None)],
)  # fmt: skip
def test_grades_of_near_duplicates(cosine: float, days: int, confidence: int | None) -> None:
    result = find(deploy(0), deploy(days), vectors=at_angles(cosine))
    wanted = [] if confidence is None else [(0, 1, "near_duplicate", confidence)]
    assert links(result) == wanted
    for found in result.found:
        assert (found.concept_id, found.age_gap_days) == ("", days)
        assert found.similarity == pytest.approx(cosine, abs=1e-5)


NEAR: dict[str, tuple[list[Note], list[float], list[tuple[int, int]]]] = {
    "the newest of several is the successor": (
        [deploy(0), deploy(10), deploy(90)], [0.9, 0.9], [(0, 2), (1, 2)],
    ),
    "two users": ([deploy(0, user="a"), deploy(30, user="b")], [1.0], []),
    "a user and nobody": ([deploy(0, user="a"), deploy(30)], [1.0], []),
    "two wings": ([deploy(0, wing="x"), deploy(30, wing="y")], [1.0], []),
    "a newer one without a wing": ([deploy(0, wing="x"), deploy(30)], [1.0], [(0, 1)]),
    "an older one without a wing": ([deploy(0), deploy(30, wing="x")], [1.0], [(0, 1)]),
    "an undated one": ([deploy(None), deploy(30)], [1.0], []),
    "two turns": ([deploy(0, is_turn=True), deploy(30, is_turn=True)], [1.0], []),
    "a turn": ([deploy(0, is_turn=True), deploy(30)], [1.0], []),
    "a marked one replaces nothing": (
        [deploy(0), deploy(30), deploy(60, f"{MARK} ")], [0.95, 0.95], [(0, 1)],
    ),
    "a lookalike does not hide an older duplicate": (
        [Note("Checked pump 1", 0), Note("Checked pump 1", 30), Note("Checked pump 2", 60)],
        [0.99, 0.99], [(0, 1)],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("notes", "cosines", "expected"), NEAR.values(), ids=[name.replace(" ", "-") for name in NEAR]
)
def test_scope_dates_turns_and_marks_decide_between_near_duplicates(
    notes: list[Note], cosines: list[float], expected: list[tuple[int, int]]
) -> None:
    assert pairs(find(*notes, vectors=at_angles(*cosines))) == expected


def test_without_vectors_there_are_no_near_duplicates() -> None:
    two = deploy(0), deploy(30)
    assert find(*two).found == ()
    assert find(*two, vectors=np.zeros((2, 4), dtype=np.float32)).found == ()
    with pytest.raises(ValueError, match="one row per position"):
        find(*two, vectors=np.zeros((1, 4), dtype=np.float32))


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


def deploys(days: NDArray[np.int64]) -> tuple[MemoryColumns, NDArray[np.int64]]:
    """The columns of a deploy on each of the days, and when they were created."""
    records = [deploy(int(day)).record(p) for p, day in enumerate(days)]
    return MemoryColumns.read(records), days * DAY_US


def test_blocks_find_what_looking_at_every_pair_finds() -> None:
    vectors = crowd(1_500, 24, 1)
    days = np.random.default_rng(2).integers(0, 60, len(vectors))
    columns, created = deploys(days)
    (whole,) = comparisons(columns)
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
    columns, created = deploys(np.arange(len(vectors)) % 90)
    (exact,), (by_cells,) = comparisons(columns), comparisons(columns, exact_pairs=0)
    assert (exact.bits, by_cells.bits) == (0, 5)
    truth = set(newest_near_duplicates(exact, vectors, created))
    found = set(newest_near_duplicates(by_cells, vectors, created))
    assert len(truth) > 500
    assert len(found & truth) >= LEAST_RECALL * len(truth)


@pytest.mark.parametrize("exact_pairs", [0, 10**9])
def test_copies_of_one_text_lead_to_the_newest_without_cells_or_with_them(exact_pairs: int) -> None:
    columns, created = deploys(np.arange(600))
    vectors = np.repeat(at_angles(1.0)[:1], 600, axis=0)
    (whole,) = comparisons(columns, exact_pairs=exact_pairs)
    found = newest_near_duplicates(whole, vectors, created)
    assert [p[:2] for p in found] == [(p, 599) for p in range(593)]


def test_a_cell_depends_on_its_row_alone() -> None:
    vectors = crowd(300, 16, 5)
    cells = signatures(vectors, 6)
    assert cells.shape == (300, tables_for(6))
    np.testing.assert_array_equal(signatures(vectors[::-7], 6), cells[::-7])
    assert len(np.unique(cells[:, 0])) > 30
    counts = [tables_for(bits) for bits in range(1, 14)]
    assert counts == sorted(set(counts)), "more hyperplanes need more sets of cells"


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
NOT_FOUR = ALL != 4


# Rules of the reader, and where each memory ends.
HEADS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "a head ends its chain and stands for itself": ({}, [6, 6, 2, 3, 6, 5, 6, 7]),
    "before the first": ({"as_of_us": 99}, [0, 1, 2, 3, 4, 5, 6, 7]),
    "with the first": ({"as_of_us": 100}, [1, 1, 2, 3, 4, 5, 6, 7]),
    "before the second": ({"as_of_us": 199}, [1, 1, 2, 3, 4, 5, 6, 7]),
    "with the second": ({"as_of_us": 200}, [4, 4, 2, 3, 4, 5, 6, 7]),
    "with the third": ({"as_of_us": 300}, [6, 6, 2, 3, 6, 5, 6, 7]),
    "one that the reader may not see does not exist": (
        {"visible": NOT_FOUR}, [1, 1, 2, 3, 6, 5, 6, 7],
    ),
    "less sure links can be left out": ({"least_confidence": 1}, [4, 4, 2, 3, 4, 5, 6, 7]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("rules", "heads"), HEADS.values(), ids=[name.replace(" ", "-") for name in HEADS]
)
def test_heads_are_found_step_by_step(rules: dict[str, Any], heads: list[int]) -> None:
    assert heads_of(CHAIN, ALL, **rules).tolist() == heads


def test_a_successor_without_a_date_always_counts() -> None:
    index = SupersessionIndex([row(0, 1, UNDATED_US)])
    assert heads_of(index, ALL, UNDATED_US + 1)[0] == 1


def test_successors_are_direct() -> None:
    found = CHAIN.successors(np.array([4, 0, 7, 0]))
    assert found.tolist() == [6, 1, NO_SUCCESSOR, 1]
    assert CHAIN.successors(np.array([1]), visible=NOT_FOUR).tolist() == [NO_SUCCESSOR]
    empty = SupersessionIndex([])
    assert (len(empty), empty.successors(ALL).tolist()) == (0, [NO_SUCCESSOR] * 8)


def test_rows_are_found_by_their_older_memory_which_has_one() -> None:
    assert len(CHAIN) == 3
    assert CHAIN.row_of(1) == row(1, 4, 200)
    assert CHAIN.row_of(6) is None
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
    ("The west pump starts at low tide", "The east pump starts at low tide"),
    ("Dumps of the ledger run in staging at dawn", "Dumps of the ledger run in prod at dawn"),
    ("Spare fuses lie in the upper drawer", "Spare fuses lie in the lower drawer"),
    ("The port lamp needs a new lens", "The starboard lamp needs a new lens"),
    ("Logs of the primary are kept a year", "Logs of the replica are kept a year"),
    ("Read the source bucket with the old key", "Read the target bucket with the old key"),
    ("Mittags wird die linke Kammer geleert", "Mittags wird die rechten Kammer geleert"),
    ("Das nördliche Tor klemmt", "Das südliche Tor klemmt"),
    ("El paquete llega el lunes por correo", "El paquete llega el jueves por correo"),
    ("La porte de gauche grince", "La porte de droite grince"),
    ("Северный склад открыт", "Южный склад открыт"),
    ("钥匙在左边的抽屉", "钥匙在右边的抽屉"),
    ("We feed the hens in winter", "We feed the hens in summer"),
    ("Her mother likes plain yoghurt", "Her father likes plain yoghurt"),
    ("The red bin goes out weekly", "The yellow bin goes out weekly"),
    ("The second gauge reads low", "The last gauge reads low"),
    ("Otter got another winch", "Heron got another winch"),
    ("Open the valve before the test", "Open the valve after the test"),
]
SAME = [
    ("The tram runs north to the depot", "The tram runs to the depot, in the north"),
    ("Logs go to production", "Logs go to prod"),
    ("User has kids.", "User has younger kids."),
    ("Likes hiking", "Enjoys hikes"),
    ("Talked to the bank on May 3rd, 2026", "The bank talk took place (2026-05-03)"),
    ("Paid 1,200 for the boiler", "For the boiler we paid 1200."),
    ("Andrew hikes with Audrey", "Audrey is on a hike with Andrew"),
    ("东湖公园真心不错，环境好", "东湖公园不错，那里环境好"),
]
ANOTHER_VALUE = [
    ("The meeting is on 3 May", "The meeting is now on 5 May."),
    ("The staging port is 8080", "The staging port is 8081"),
    ("The rent is 900 euros.", "The rent is 1,950 euros."),
    ("The appointment is at 10:30 on Tuesday", "The appointment is at 14:00 on Friday"),
    ("Production runs on Postgres 14.2", "Production runs on Postgres 16.3"),
    ("The office is in Berlin", "The office is in Munich"),
    ("Deploys run at nine", "Deploys run at ten"),
    ("The shed is blue", "The shed is now green"),
    ("The billing service is in staging", "The billing service is now in production"),
    ("The manager is Ruth", "The manager is Olaf"),
]
OTHER_SUBJECTS = [
    ("The port of server 3 is 8080", "The port of server 4 is 8080"),
    ("The bug is fixed in PR #12", "The bug is fixed in PR #13"),
    ("Anna is in Berlin", "Carla is in Berlin"),
    ("The rent is 900 euros", "The rent is 900 dollars"),
    ("The inner door is blue", "The outer door is green"),
]


def replaced_by(one: str, other: str, cosine: float) -> list[tuple[str, int]]:
    found = find(Note(one, 0), Note(other, 60), vectors=at_angles(cosine)).found
    return [(s.reason, s.confidence) for s in found]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_texts_that_differ_in_what_they_name_never_replace_one_another(
    one: str, other: str
) -> None:
    assert differ(one, other)
    assert replaced_by(one, other, 0.99) == []


@pytest.mark.parametrize(("one", "other"), SAME)
def test_the_same_said_again_does(one: str, other: str) -> None:
    assert not differ(one, other)
    assert replaced_by(one, other, 0.99) == [("near_duplicate", 2)]


@pytest.mark.parametrize(("old", "new"), ANOTHER_VALUE)
def test_another_value_of_one_sentence_replaces_it(old: str, new: str) -> None:
    assert replaced_by(old, new, 0.95) == [("newer_value", 1)]


@pytest.mark.parametrize(("one", "other"), OTHER_SUBJECTS)
def test_but_not_of_another_subject_or_of_what_happened(one: str, other: str) -> None:
    assert keys_of(one).alike != keys_of(other).alike


@pytest.mark.timeout(20)
def test_a_long_text_without_a_space_is_not_read_over_and_over() -> None:
    text = "字" * 200_000 + "是"
    assert marks_of(text) == frozenset()
    assert marks_of(f"{text}谁") == {f"{text}谁"}


def states(subject: str, relation: StatedRelation, thing: str, *positions: int) -> ConceptEdge:
    one, other = concept_id(subject), concept_id(thing)
    evidence = [Evidence(p, 0, 20) for p in positions]
    return ConceptEdge(one, other, relation, 0.5, tuple(evidence), 10, None, 11, None)


def step(source: int, target: int, concept: str, start: int = 5, relation: str = "") -> Edge:
    where = concept_id(concept), source, start, start + 4
    return Edge(source, target, relation or "mentions_subject", 0.5, *where, 10, None, 11)


def replaced(
    older: int, newer: int, reason: str = "newer_value", about: str = "ana", at: int = 100
) -> Supersession:
    about_id = concept_id(about) if reason in ("is_now", "newer_value") else ""
    where = Evidence(newer, 0, 20)
    return Supersession(older, newer, newer, reason, 1, None, 1, about_id, where, at, at + 1)


def graph(*statements: ConceptEdge, edges: tuple[Edge, ...] = ()) -> Graph:
    return Graph((), (), edges, concept_edges=statements)


ACME, BETA = states("ana", "works_at", "acme", 0), states("ana", "works_at", "beta", 1)
BOTH_SUBJECTS = graph(states("ben", "has", "dog", 0), states("ben", "has", "cat", 1), ACME, BETA)

# A graph, what is superseded, and whether each edge is closed: when, or None.
CLOSED: dict[str, tuple[Graph, list[Supersession], list[int | None]]] = {
    "same subject and relation with another object ends": (
        graph(ACME, BETA, states("ana", "lives_in", "porto", 0), states("ben", "works_at", "x", 0)),
        [replaced(0, 1)], [100, None, None, None],
    ),
    "one standing piece of evidence keeps an edge open": (
        graph(states("ana", "works_at", "acme", 0, 2), BETA), [replaced(0, 1)], [None, None],
    ),
    "an edge ends with its last piece of evidence": (
        graph(states("ana", "works_at", "acme", 0, 2), BETA),
        [replaced(0, 1), replaced(2, 1, at=400)], [400, None],
    ),
    "what the newer memory restates stays": (
        graph(states("ana", "works_at", "acme", 0, 1), BETA), [replaced(0, 1)], [None, None],
    ),
    "another subject in the same two memories is not drawn in": (
        BOTH_SUBJECTS, [replaced(0, 1)], [None, None, 100, None],
    ),
    "an explicit link draws in every subject": (
        BOTH_SUBJECTS, [replaced(0, 1, "explicit")], [100, None, 100, None],
    ),
    "is_now ends what something is and not what it has": (
        graph(states("ana", "is_a", "junior", 0), states("ana", "has", "dog", 0),
              states("ana", "is_now", "senior", 1)),
        [replaced(0, 1, "is_now")], [100, None, None],
    ),
    "an explicit link ends nothing that the newer does not speak of": (
        graph(ACME, states("ana", "lives_in", "faro", 1)),
        [replaced(0, 1, "explicit")], [None, None],
    ),
    "near duplicates end only the steps that the newer restates": (
        graph(ACME, BETA, edges=(
            step(0, 5, "acme"), step(0, 6, "porto"), step(0, 7, "tag", relation="mentions_tag"),
            step(1, 5, "acme"), step(1, 7, "tag"),
        )),
        [replaced(0, 1, "near_duplicate")], [None, None, 100, None, None, None, None],
    ),
    "nothing is superseded": (graph(ACME, BETA), [], [None, None]),
    "a step ends with the object it rests on": (
        graph(ACME, BETA, edges=(step(0, 5, "acme"),)), [replaced(0, 1)], [100, None, 100],
    ),
    "a step that is named again outside the statement": (
        graph(ACME, BETA, edges=(step(0, 5, "acme", 30),)), [replaced(0, 1)], [100, None, None],
    ),
    "the subject goes on": (
        graph(ACME, BETA, edges=(step(0, 5, "ana"),)), [replaced(0, 1)], [100, None, None],
    ),
    "the newer one leads there as well": (
        graph(ACME, BETA, edges=(step(0, 5, "acme"), step(1, 5, "beta"))),
        [replaced(0, 1)], [100, None, None, None],
    ),
    "a step to the newer memory itself": (
        graph(ACME, BETA, edges=(step(0, 1, "acme"),)), [replaced(0, 1)], [100, None, None],
    ),
    "a step that rests on another memory": (
        graph(ACME, BETA, edges=(step(5, 0, "acme"),)), [replaced(0, 1)], [100, None, None],
    ),
    "a step from turn to turn": (
        graph(ACME, BETA, edges=(step(0, 5, "acme", relation="next_turn"),)),
        [replaced(0, 1)], [100, None, None],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("before", "found", "ends"), CLOSED.values(), ids=[name.replace(" ", "-") for name in CLOSED]
)
def test_intervals_close_once_and_nothing_else_changes(
    before: Graph, found: list[Supersession], ends: list[int | None]
) -> None:
    after = close_graph(before, found)
    edges = (*after.concept_edges, *after.edges)
    retracted = [None if at is None else at + 1 for at in ends]
    assert [(e.valid_to_us, e.retracted_at_us) for e in edges] == [
        *zip(ends, retracted, strict=True)
    ]
    opened = [replace(e, valid_to_us=None, retracted_at_us=None) for e in edges]
    assert opened == [*before.concept_edges, *before.edges]
    later = [replace(s, valid_to_us=900, recorded_at_us=901) for s in found]
    closed = [at for at in ends if at is not None]
    assert not closed or close_graph(after, later) == after, "what is closed keeps its end"


def test_an_interval_never_ends_before_it_begins() -> None:
    late = replace(step(0, 5, "acme"), valid_from_us=500)
    result = close_graph(graph(ACME, BETA, edges=(late,)), [replaced(0, 1)])
    assert (result.edges[0].valid_to_us, result.edges[0].retracted_at_us) == (500, 101)
