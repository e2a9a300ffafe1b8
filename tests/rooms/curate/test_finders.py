"""What is proposed for which memories, and what is left alone."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.curate.finders import normalised, read_mark, shingle_pairs
from noctuary.curate.proposals import (
    FIELD_MAX_CHARS,
    Fields,
    Span,
    changed_fields,
    joined_text,
    united,
    why_not_held,
)
from noctuary.graph.tables import Supersession
from noctuary.text.marks import MARK, buried, is_tombstone
from tests.support.proposals import ask, numbered, replaced, text_of, told
from tests.support.store import day_us, memory

LINE = "The harbour master answers on channel 12 from dawn to dusk."


Told = list[tuple[str, str, list[tuple[str, str]]]]
NEAR = {"reason": "near_duplicate", "similarity": 0.9}
LATER = LINE.replace("dawn", "early dawn")


def noop(kind: str, *ids: str) -> tuple[str, str, list[tuple[str, str]]]:
    return ("NOOP", kind, [("looked_at", n) for n in ids])


# Memories, what the night says replaces what, and the proposals.
FOUND: dict[str, tuple[list[MemoryRecord], list[Supersession], Told]] = {
    "equal-memories-leave-the-newest": (
        [memory(LINE, created_at_us=day_us(3)), memory(f"  {LINE}\n", created_at_us=day_us(9)),
         memory(LINE, created_at_us=UNDATED_US)],
        [],
        [("SUPERSEDE", "exact_duplicate",
          [("superseded", "1"), ("kept", "2"), ("superseded", "3")])],
    ),
    "of-one-moment-the-one-with-lines-stays": (
        [memory("- a b\n- c d"), memory("- a b - c d")], [],
        [("SUPERSEDE", "exact_duplicate", [("kept", "1"), ("superseded", "2")])],
    ),
    "a-memory-is-claimed-once": (
        [memory("Port: 1", created_at_us=day_us(1)), memory("Port: 1", created_at_us=day_us(2)),
         memory("Port: 2", created_at_us=day_us(12))],
        [replaced(0, 2), replaced(1, 2)],
        [("SUPERSEDE", "exact_duplicate", [("superseded", "1"), ("kept", "2")]),
         ("SUPERSEDE", "superseded", [("superseded", "2"), ("kept", "3")])],
    ),
    "a-memory-whose-fields-change-is-left-alone-otherwise": (
        [memory("Port: 1", created_at_us=day_us(1), tags="a"),
         memory("Port: 1", created_at_us=day_us(2)), memory("Port: 2", created_at_us=day_us(12))],
        [replaced(1, 2)],
        [("UPDATE", "exact_duplicate", [("superseded", "1"), ("updated", "2")])],
    ),
    "a-successor-of-a-wing-is-not-proposed-for-a-memory-of-none": (
        [memory("Port: 1"), memory("Port: 2", wing="a")], [replaced(0, 1)], [],
    ),
    "a-successor-of-another-wing-is-not-proposed": (
        [memory("Port: 1", wing="b"), memory("Port: 2", wing="a")], [replaced(0, 1)], [],
    ),
    "a-tombstone-is-neither-superseded-again-nor-kept-for-another": (
        [memory(f"{MARK} Port: 1", created_at_us=day_us(1)),
         memory("Port: 1", created_at_us=day_us(2)),
         memory(f"{MARK} Port: 2", created_at_us=day_us(3)),
         memory("Port: 2", created_at_us=day_us(4))],
        [replaced(0, 3), replaced(1, 2)], [],
    ),
    "the-night-cosine-pairs-are-asked-the-same-question": (
        [memory("Maria sails."),
         memory("Maria sails, which she has done since childhood.", created_at_us=day_us(20)),
         memory("Maria rows.", created_at_us=day_us(40))],
        [replaced(0, 1, **NEAR), replaced(1, 2, **NEAR)],
        [("SUPERSEDE", "near_duplicate", [("superseded", "1"), ("kept", "2")]),
         noop("near_duplicate", "2", "3")],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("memories", "said", "proposed"), FOUND.values(), ids=[name.replace(" ", "-") for name in FOUND]
)
def test_these_are_proposed(
    memories: list[MemoryRecord], said: list[Supersession], proposed: Told
) -> None:
    assert told(ask(numbered(*memories), said)) == proposed


def test_the_newest_takes_over_what_only_the_others_have() -> None:
    records = numbered(
        memory(LINE, tags="radio,session:a", importance=0.9),
        memory(LINE, tags="Radio,boats", created_at_us=day_us(2)),
    )
    (found,) = ask(records)
    assert (found.action, found.fields, found.confidence) == ("UPDATE", ("importance",), 1.0)
    assert told([found])[0][2] == [("superseded", "1"), ("updated", "2")]
    (lines,) = ask(numbered(memory("- a b\n- c d"), memory("- a b - c d")))
    assert lines.confidence == 0.97


@pytest.mark.parametrize("field", ["user", "wing", "room"])
def test_equal_memories_of_two_scopes_are_not_duplicates(field: str) -> None:
    records = numbered(memory(LINE, **{field: "a"}), memory(LINE, **{field: "b"}), memory(LINE))
    assert [p for p in ask(records) if p.action != "NOOP"] == []


def test_turns_are_never_proposed_for_anything() -> None:
    turns = [
        memory(text, is_turn=True, session_id="s")
        for text in (LINE, LINE, "x (part 1 of 2): a", "x (part 2 of 2): b", f"{MARK} {LINE}")
    ]
    assert ask(numbered(*turns)) == []
    assert ask(numbered(*turns), [replaced(0, 1)]) == []


def test_a_sure_successor_of_the_same_scope_is_proposed() -> None:
    records = numbered(memory("Port: 1"), memory("Port: 2", created_at_us=day_us(9)))
    (found,) = ask(records, [replaced(0, 1)])
    assert told([found]) == [("SUPERSEDE", "superseded", [("superseded", "1"), ("kept", "2")])]
    assert found.evidence.spans[0] == Span("2", 0, 5)
    (unsure,) = ask(records, [replaced(0, 1, confidence=0)])
    assert (unsure.action, unsure.confidence) == ("NOOP", 0.4)


@pytest.mark.parametrize(
    ("older", "newer", "held"),
    [
        ("User has kids.", "User has kids, two of them.", True),
        ("Maria volunteers at a shelter.", "Maria volunteers at a homeless shelter.", True),
        ("The export method is CSV.", "Export method: CSV", True),
        ("User's son is well", "User's son is very well now.", True),
        ("Port 8080 is open", "Port 8080 is open to all", True),
        ("Port 8080 is open.", "Port 8081 is open.", False),
        ("Port 8080 is open.", "Ports 8080 and 8081 are open.", False),
        ("User likes tea.", "User does not like tea.", False),
        ("User likes tea.", "User doesn't like tea.", False),
        ("User likes tea.", "User no longer likes tea.", False),
        ("User will move to Rome.", "User moves to Rome.", False),
        ("User likes tea.", "User's brother likes tea.", False),
        ("Evan paints with Sam.", "Sam paints with Evan.", False),
        ("Lives in Rome near the river.", "Lives in Rome.", False),
        ("The a of", "The a of it", False),
    ],
)
def test_a_newer_text_holds_an_older_one(older: str, newer: str, held: bool) -> None:
    assert (why_not_held(older, newer) is None) is held


def test_a_newer_memory_that_holds_the_older_supersedes_it() -> None:
    records = numbered(memory(LINE), memory(LATER, created_at_us=day_us(2)))
    (found,) = ask(records, vectors=np.eye(2, 3, dtype=np.float32))
    assert told([found]) == [("SUPERSEDE", "near_duplicate", [("superseded", "1"), ("kept", "2")])]
    assert found.evidence.shingles is not None
    assert found.evidence.shingles >= 0.8
    assert found.evidence.cosine == 0.0
    assert 0.8 <= found.confidence < 1.0


@pytest.mark.parametrize(
    ("newer", "reason"),
    [
        (LINE.replace("12", "14"), "They differ in numbers."),
        (LINE.replace("dawn", "dawn in Lisbon"),
         "They differ in a number, an identifier, a date, a name or a kind of thing."),
    ],
)  # fmt: skip
def test_a_lookalike_is_left_alone_with_the_reason(newer: str, reason: str) -> None:
    (found,) = ask(numbered(memory(LINE), memory(newer, created_at_us=day_us(2))))
    assert (found.action, found.kind) == ("NOOP", "near_duplicate")
    assert found.evidence.reason == reason


def test_shingle_pairs_are_those_of_a_comparison_of_all() -> None:
    from noctuary.graph.canonical import jaccard

    rng = np.random.default_rng(6)
    words = ["".join(rng.choice(list("abcdefghij"), 7)) for _ in range(200)]
    records: list[MemoryRecord] = []
    for _ in range(40):
        base = list(rng.choice(words, 30))
        records.append(memory(" ".join(base)))
        base[int(rng.integers(30))] = "changed"
        records.append(memory(" ".join(base)))
    records = numbered(*records)
    expected = {
        (one.position, other.position)
        for one in records
        for other in records[one.position + 1 :]
        if jaccard(one.content, other.content) >= 0.8
    }
    found = set(shingle_pairs(records))
    assert found <= expected
    assert len(found) >= 0.97 * len(expected) > 10


PORTS = "Deploy port: 8080", "Deploy port: 9090"


@pytest.mark.parametrize(
    ("texts", "one", "two", "found"),
    [
        (PORTS, {}, {}, 1),
        (("Deploy port: 8080", "Deploy port: 8080 now"), {}, {}, 0),
        (("Nina works at Initech.", "Nina works at Hooli."), {}, {}, 1),
        (("Nina has a dog.", "Nina has a cat."), {}, {}, 0),
        # A date settles it, and scopes do not meet.
        (PORTS, {}, {"created_at_us": day_us(2)}, 0),
        (PORTS, {}, {"created_at_us": UNDATED_US}, 1),
        (PORTS, {"created_at_us": UNDATED_US}, {"created_at_us": UNDATED_US}, 1),
        (PORTS, {}, {"user": "mia"}, 0),
        (PORTS, {"wing": "a"}, {"wing": "b"}, 0),
        (PORTS, {"wing": "a"}, {}, 0),
    ],
)
def test_two_values_of_one_moment_contradict_each_other(
    texts: tuple[str, str], one: dict[str, object], two: dict[str, object], found: int
) -> None:
    records = numbered(memory(texts[0], **one), memory(texts[1], **two))
    proposals = [p for p in ask(records) if p.kind == "contradiction"]
    assert [p.action for p in proposals] == ["NOOP"] * found
    for proposal in proposals:
        assert [s.memory_id for s in proposal.evidence.spans] == ["1", "2"]


def test_ids_are_of_contents_alone() -> None:
    records = numbered(memory("Something else."), memory(LINE), memory(LINE))
    moved = numbered(memory(LINE), memory(LINE), memory("Something else."))
    same = [
        m._replace(memory_id=r.memory_id, content_hash=r.content_hash)
        for m, r in zip(moved, (*records[1:], records[0]), strict=True)
    ]
    assert [p.proposal_id for p in ask(records)] == [p.proposal_id for p in ask(same)]
    edited = [r._replace(content_hash="other") for r in records]
    assert [p.proposal_id for p in ask(edited)] != [p.proposal_id for p in ask(records)]


def test_no_text_of_a_memory_is_in_a_proposal() -> None:
    records = numbered(
        *(memory(f"Zanzibar is known for cloves and number {n}.") for n in (1, 1, 2)),
        memory("Zanzibar (part 1 of 2): cloves"),
        memory("Zanzibar (part 2 of 2): spices"),
        memory("Zanzibar port: 8080"),
        memory("Zanzibar port: 9090"),
        memory(f"{MARK} Zanzibar"),
    )
    found = ask(records)
    assert {p.kind for p in found} == {
        "exact_duplicate", "fragments", "near_duplicate", "contradiction",
    }  # fmt: skip
    assert "anzibar" not in str([p.to_json() for p in found])


def test_fields_are_united_in_order_without_repeats_and_scope_tags_of_others() -> None:
    kept = Fields("a, b", "one two", 0.4)
    after = united(kept, [Fields("B,c,session:x,wing:y", "two three", 0.6), Fields("c", "", 0.1)])
    assert after == Fields("a,b,c", "one two three", 0.6)
    assert changed_fields(kept, after) == ("tags", "expanded_keywords", "importance")
    long = Fields("b" * FIELD_MAX_CHARS, "x" * FIELD_MAX_CHARS, 0.4)
    assert united(kept, [kept, long]) == kept, "a field that would be too long stays"
    assert normalised(" a\n\tb\u200b ") == "a b"
    assert normalised("A") != normalised("a")


def test_the_mark_is_set_once() -> None:
    assert buried("x") == "[SUPERSEDED] x"
    assert buried(buried("x")) == buried("x")
    assert is_tombstone(" [superseded]: y")
    assert not is_tombstone("It was [SUPERSEDED] once.")


@pytest.mark.parametrize(
    ("content", "number", "of", "title", "body"),
    [
        ("Part 2 of 3: the rest", 2, 3, "", "the rest"),
        ("Homelab setup (part 1 of 4): the rack", 1, 4, "Homelab setup", "the rack"),
        ("Homelab setup - part 1/4\nthe rack", 1, 4, "Homelab setup", "the rack"),
        ("[3/12] the rest", 3, 12, "", "the rest"),
        ("the rest (2/3)", 2, 3, "", "the rest"),
        ("the rest [Part 2 of 3]", 2, 3, "", "the rest"),
        ("CHUNK 1 of 2 the rest", 1, 2, "", "the rest"),
    ],
)
def test_marks_that_are_read(content: str, number: int, of: int, title: str, body: str) -> None:
    found = read_mark(content)
    assert found is not None
    assert (found.number, found.of, found.title) == (number, of, title)
    assert content[found.start : found.end] == body


@pytest.mark.parametrize(
    "content",
    [
        "We watched part 2 of 3 of the series.",
        "Part 4 of 3: too far",
        "Part 0 of 3: none",
        "Part 1 of 1: whole",
        "Part 1 of 100: a book",
        "The rest of it (24/7) is open.",
        f"{'A long sentence. ' * 9}(part 1 of 2): x",
        "A line.\nAnother.\nPart 1 of 2: below them",
        "Ratio 1/2",
        "",
    ],
)
def test_marks_that_are_none(content: str) -> None:
    assert read_mark(content) is None


def fragments(*texts: str, **fields: object) -> list[MemoryRecord]:
    days = count(1)
    return numbered(
        *(memory(t, **{"created_at_us": day_us(1) + next(days), **fields}) for t in texts)
    )


def test_a_whole_set_is_joined_in_order_word_for_word() -> None:
    records = fragments(
        "Rack (part 2 of 3): two", "Rack (Part 1 of 3): one", "rack (part 3 of 3) 3"
    )
    (found,) = ask(records)
    assert (found.action, found.kind) == ("ADD", "fragments")
    assert {t.role for t in found.targets} == {"superseded"}
    assert joined_text(found.pieces, text_of(records)) == "Rack: one\ntwo\n3"
    assert [s.memory_id for s in found.evidence.spans] == ["2", "1", "3"]


def test_an_incomplete_set_says_what_is_missing() -> None:
    (found,) = ask(fragments("Rack (part 1 of 4): one", "Rack (part 3 of 4): three"))
    assert (found.action, found.kind, found.pieces) == ("NOOP", "fragments", ())
    assert "2, 4 cannot be found" in found.evidence.reason


def test_a_number_that_comes_again_begins_another_text() -> None:
    records = fragments(*(f"Part {n} of 2: {word}" for word in ("old", "new") for n in (1, 2)))
    found = [joined_text(p.pieces, text_of(records)) for p in ask(records)]
    assert found == ["old\nold", "new\nnew"]


ONE, TWO = "Rack (part 1 of 2): one", "Rack (part 2 of 2): two"


@pytest.mark.parametrize(
    ("texts", "of_the_last", "actions"),
    [
        ((ONE, TWO), {}, ["ADD"]),
        ((ONE, TWO), {"user": "x"}, ["NOOP"] * 2),
        ((ONE, TWO), {"wing": "x"}, ["NOOP"] * 2),
        ((ONE, TWO), {"room": "x"}, ["NOOP"] * 2),
        ((ONE, TWO), {"category": "x"}, ["NOOP"] * 2),
        ((ONE, TWO), {"created_at_us": day_us(9)}, ["NOOP"] * 2),  # more than a week apart
        # Untitled parts must be neighbours, and a lone bare fraction is no fragment.
        (("Part 1 of 2: one", "Something between.", "Part 2 of 2: two"), {}, ["NOOP"] * 2),
        (("[1/2] cup of flour",), {}, []),
        (("[1/2] cup", "[2/2] spoon"), {}, ["ADD"]),
    ],
)
def test_parts_of_one_text_are_joined(
    texts: tuple[str, ...], of_the_last: dict[str, object], actions: list[str]
) -> None:
    *others, last = fragments(*texts)
    found = ask(numbered(*others, last._replace(**of_the_last)))
    assert [p.action for p in found] == actions


@pytest.mark.parametrize(
    ("one", "two", "reason"),
    [
        ("x" * 900, "y" * 900, "the store takes 1400"),
        # Like a secret across the seam only: neither part alone.
        ("password:", "hunter2-Zx9!qQ", "read like"),
    ],
)
def test_what_may_not_be_one_row_is_not_joined(one: str, two: str, reason: str) -> None:
    (found,) = ask(fragments(f"Part 1 of 2: {one}", f"Part 2 of 2: {two}"))
    assert (found.action, found.pieces) == ("NOOP", ())
    assert reason in found.evidence.reason
    assert two not in str(found.to_json())
