"""Who is heard, and whose memories a turn is compared with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noctuary.compact import clusters as tables
from noctuary.core.errors import StoreError
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.curate import promotions as walk
from noctuary.curate.promotions import (
    BELOW_THRESHOLD,
    NOTHING_SAID,
    PROMOTIONS,
    PROPOSED,
    SCORES,
    SIGNALS_KIND,
    Ints,
    Judged,
    Nearest,
    PromotionTable,
    Row,
    find_candidates,
    judge_turns,
    list_promotions,
    read_statement,
    read_table,
    write_table,
)
from noctuary.curate.signals import BLANK, Signals, said_something
from noctuary.embed.documents import text_key
from noctuary.work.content import ContentStore
from tests.support.promotions import Vectors, naive_walk, unit_rows
from tests.support.store import memory, renumber

USERS = (None, "ana", "ben")


def said(text: str, minute: int = 0, **fields: object) -> MemoryRecord:
    return memory(text, is_turn=True, session_id="s", created_at_us=minute * 60_000_000, **fields)


@pytest.mark.parametrize(
    ("content", "statement"),
    [
        ("User: I work at Acme", "I work at Acme"),
        ("Caroline: hi", "hi"),
        ("Human: x", "x"),
        ("Mira (support): x", "x"),
        ("用户：我住在里昂", "我住在里昂"),
        ("Assistant: I work at Acme", None),
        ("assistant (planner): x", None),
        ("AI: x", None),
        ("Claude: x", None),
        ("Tool result: x", None),
        ("tool_result: x", None),
        ("System: x", None),
        ("I work at Acme", None),
        ("at 12:30 we go", None),
        ("", None),
    ],
)
def test_a_named_person_is_heard_and_nothing_else(content: str, statement: str | None) -> None:
    assert read_statement(content) == statement


def test_turns_are_in_order_of_time_undated_ones_first() -> None:
    undated = memory("A: z", is_turn=True, created_at_us=UNDATED_US)
    records = renumber([said("A: x", 5), said("Ben: y", 3), undated])
    assert [t.position for t in find_candidates([records]).heard[None]] == [2, 1, 0]
    assert find_candidates([records[::-1]]) == find_candidates([records])


def test_signals_of_a_text_that_was_read_are_kept(tmp_path: Path) -> None:
    first = [said("Ana: call me at 14:30 on Friday", 1), said("Ben: see src/app.py", 2)]
    kept = ContentStore(tmp_path, SIGNALS_KIND)
    once = find_candidates([renumber(first)], kept)
    assert once == find_candidates([renumber(first)])
    records = renumber([*first, said("Ana: I moved to Ulm", 3), said("Eva: I moved to Ulm", 4)])
    before = kept.rows
    assert find_candidates([records], kept) == find_candidates([records])
    assert (before, kept.rows) == (2, 4)
    key = text_key(first[0].content)
    kept.put([key], [json.dumps([*BLANK[:5], ["kept"], 0]).encode()])
    (turn, *_) = find_candidates([records], kept).heard[None]
    assert turn.signals.marks == ("kept",), "it is not read again"


def test_what_was_known_and_replaced_is_no_news_and_a_wing_is_no_wall() -> None:
    records = renumber(
        [memory("[SUPERSEDED] Ana works at Acme."), said("Ana: I work at Acme", wing="a"),
         said("Ana: I work at Acme", 1, wing="b")]
    )  # fmt: skip
    judged = [j for _, j in judge_turns(find_candidates([records]), np.ones((3, 1), "f4"), 0.35)]
    assert [j.h for j in judged] == [0.0, 0.0]
    assert [n.position for n in judged[1].repeated] == [1]


def test_memories_are_those_of_the_user_and_of_nobody() -> None:
    records = renumber([memory("x", user=user) for user in (None, "ana", "ben", None)])
    found = find_candidates([records])
    assert found.seen_by(None).tolist() == [0, 3]
    assert found.seen_by("ana").tolist() == [0, 1, 3]
    assert found.seen_by("zoe").tolist() == [0, 3]


def judged_ids(records: Sequence[MemoryRecord], seed: int) -> dict[str, tuple[object, ...]]:
    vectors = unit_rows(len(records), 6, seed, 0.4)
    rows = {r.memory_id: vectors[int(r.memory_id)] for r in records}
    by_position = np.stack([rows[r.memory_id] for r in records])
    names = {r.position: r.memory_id for r in records}
    return {
        heard.turn_id: (
            *judged[1:5],
            *([(n.cosine, names[n.position]) for n in found] for found in judged[5:]),
        )
        for heard, judged in judge_turns(find_candidates([records]), by_position, 0.35)
    }


@given(
    rows=st.lists(st.tuples(st.booleans(), st.sampled_from(USERS)), min_size=1, max_size=30),
    seed=st.integers(0, 99),
)
def test_what_another_user_says_or_keeps_changes_nothing(
    rows: list[tuple[bool, str | None]], seed: int
) -> None:
    """Ben's rows may come, go and say what they like: what is Ana's or nobody's stays the same."""
    everything = [
        said("User: I work at Acme", n, user=user, memory_id=str(n))
        if is_turn
        else memory("x", user=user, memory_id=str(n))
        for n, (is_turn, user) in enumerate(rows)
    ]
    vectors_of_all = renumber(everything)
    whole = judged_ids(vectors_of_all, seed)
    neighbours = {r.memory_id: r.user for r in vectors_of_all}
    for memory_id, values in whole.items():
        allowed = {neighbours[memory_id], None}
        for found in values[-2:]:
            assert isinstance(found, list)
            assert {neighbours[other] for _, other in found} <= allowed


def test_removing_another_user_leaves_the_numbers() -> None:
    rows = [
        said("User: I work at Acme", n, user=USERS[n % 3], memory_id=str(n))
        if n % 2
        else memory("x", user=USERS[n % 3], memory_id=str(n))
        for n in range(24)
    ]
    vectors = unit_rows(24, 6, 5, 0.4)
    whole, without = renumber(rows), renumber([r for r in rows if r.user != "ben"])

    def numbers(records: Sequence[MemoryRecord]) -> dict[str, tuple[float, ...]]:
        own = np.stack([vectors[int(r.memory_id)] for r in records])
        return {
            heard.turn_id: (judged.h, judged.r, judged.gate.g)
            for heard, judged in judge_turns(find_candidates([records]), own, 0.35)
        }

    kept = {k: v for k, v in numbers(whole).items() if USERS[int(k) % 3] != "ben"}
    assert kept == numbers(without)
    assert len(kept) == 8


def row(turn_id: str, g: float = 0.5, decision: str = "propose", **fields: object) -> Row:
    return {
        "turn_id": turn_id, "content_hash": "h", "user": None, "wing": "w", "session_id": "s",
        "created_at_us": 5, **dict.fromkeys(SCORES, 0.25), "g": g, "marks": ["date", "fact"],
        "neighbours": [{"memory_id": "9", "kind": "durable", "cosine": 0.5}],
        "decision": decision, "reason": "proposed", **fields,
    }  # fmt: skip


ROWS = (
    row("1", user="ana"),
    row("2", 0.1, "leave", reason="below_threshold", marks=[], neighbours=[]),
    row("ü/3", 0.9, wing=None, session_id=None, created_at_us=UNDATED_US),
)


@pytest.mark.parametrize("group_rows", [1, 2, 4_096])
def test_what_is_written_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group_rows: int
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", group_rows)
    path = tmp_path / "t.parquet"
    counts = write_table(path, iter(ROWS), threshold=0.35, corpus="c0")
    assert counts == {"below_threshold": 1, "proposed": 2}
    assert read_table(path) == PromotionTable(ROWS, True, 0.35, "c0")
    before = path.read_bytes()
    write_table(path, ROWS, threshold=0.35, corpus="c0")
    assert path.read_bytes() == before
    write_table(path, (), is_on=False)
    assert read_table(path) == PromotionTable((), False, 0.0, "")


def no_records(_: Path) -> tuple[()]:
    return ()


def test_proposals_are_the_highest_first_and_of_equal_ones_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "iter_records", no_records)
    rows = (row("a", 0.5), row("b", 0.7), row("c", 0.5, created_at_us=9), row("d", 1, "leave"))
    (tmp_path / PROMOTIONS).parent.mkdir()
    write_table(tmp_path / PROMOTIONS, (*rows, ROWS[2]))
    listed = list_promotions(tmp_path)["promotions"]
    assert [r["turn_id"] for r in listed] == ["ü/3", "b", "c", "a"]
    assert listed[0] == {**ROWS[2], "created_at_us": None, "text": None}
    every = list_promotions(tmp_path, with_left=True)["promotions"]
    assert [r["turn_id"] for r in every] == ["ü/3", "b", "c", "a", "d"]


def test_a_failed_night_leaves_the_table_of_the_last(tmp_path: Path) -> None:
    write_table(tmp_path / "t", ROWS, corpus="c0")

    def broken() -> object:
        yield ROWS[0]
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_table(tmp_path / "t", broken())  # pyright: ignore[reportArgumentType]
    assert read_table(tmp_path / "t").corpus == "c0"


FACT = Signals(0.0, 0.3, 0.0, 0.0, 0.0, ("fact",))


def judge(
    vectors: Vectors,
    turns: Sequence[int],
    memories: Sequence[int] = (),
    signals: Sequence[Signals] | Signals = FACT,
    threshold: float = 0.35,
) -> list[Judged]:
    said = [signals] * len(turns) if isinstance(signals, Signals) else signals
    rows, durable = (np.asarray(p, dtype=np.int64) for p in (turns, memories))
    return list(walk.walk(rows, said, durable, vectors, threshold))


def same(rows: int, dim: int = 4) -> Vectors:
    """Rows that are all one vector."""
    return np.tile(np.eye(1, dim, dtype=np.float32), (rows, 1))


def test_a_turn_is_not_its_own_neighbour_nor_is_what_comes_later() -> None:
    """The peer indexes a turn before it looks for neighbours: F is .2 at least, always."""
    for judged in judge(np.eye(5, dtype=np.float32), range(5)):
        assert judged.position not in {n.position for n in (*judged.durable, *judged.repeated)}
        assert (judged.r, judged.repeated) == (0.0, ())
    for order in ([0, 1], [1, 0]):
        first, second = judge(same(2), order)
        assert (first.repeated, [n.position for n in second.repeated]) == ((), order[:1])


def test_an_empty_store_does_not_admit_everything() -> None:
    """Without durable memories H is 1 and G .35: at the peer every conversational turn passes."""
    judged = judge(np.eye(6, dtype=np.float32), range(6), signals=BLANK)
    alone = (0.0, 0.0, 0.0, NOTHING_SAID, (), ())
    assert [(j.gate.g, j.h, j.r, *j[4:]) for j in judged] == [alone] * 6
    often = judge(same(12), range(12), signals=BLANK, threshold=0.0)
    assert {j[4:] for j in often} == {alone[3:]}, "thanks, said often"
    mixed = judge(same(9), range(9), range(2), [BLANK] * 8 + [FACT])[-1]
    assert (len(mixed.durable), len(mixed.repeated)) == (2, 8), "what says nothing was still said"


def test_in_an_empty_store_what_says_something_is_let_in_and_durable_from_then_on() -> None:
    first, second, other = judge(np.eye(3, dtype=np.float32)[[0, 0, 1]], range(3))
    assert (first.h, first.reason, first.durable) == (1.0, PROPOSED, ())
    assert [(n.position, n.cosine) for n in second.durable] == [(0, 1.0)]
    assert (second.h, second.reason) == (0.0, BELOW_THRESHOLD)
    assert (other.h, other.reason) == (1.0, PROPOSED)
    assert [n.position for n in other.durable] == [0]


def test_at_most_five_durable_and_ten_repeated_neighbours() -> None:
    judged = judge(same(60), range(20, 60), range(20), threshold=1.0)
    assert len(judged[-1].durable) == 5
    assert len(judged[-1].repeated) == 10
    assert len(judged[3].repeated) == 3


@settings(max_examples=80)
@given(
    turns=st.integers(0, 24),
    memories=st.integers(0, 12),
    seed=st.integers(0, 999),
    spread=st.sampled_from([0.05, 0.15, 0.4, 2.0]),
    threshold=st.sampled_from([0.0, 0.2, 0.35, 0.5]),
    block=st.sampled_from([1, 3, 8, 64]),
    chunk=st.sampled_from([1, 5, 64]),
)
def test_blocks_and_chunks_give_what_a_double_loop_gives(
    turns: int, memories: int, seed: int, spread: float, threshold: float, block: int, chunk: int
) -> None:
    vectors = unit_rows(turns + memories, 6, seed, spread)
    # A third of the numbers are 0: texts without a date, without code.
    drawn = np.random.default_rng(seed).uniform(-0.5, 1, size=(turns, 5)).clip(0).round(3)
    signals = [Signals(*row) for row in drawn.tolist()]
    order = np.random.default_rng(seed).permutation(turns + memories).tolist()
    own, durable = order[:turns], sorted(order[turns:])
    expected = naive_walk(own, signals, durable, vectors, threshold)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "BLOCK_ROWS", block)
        patch.setattr(walk, "CANDIDATE_ROWS", chunk)
        found = judge(vectors, own, durable, signals, threshold)
    assert [j.position for j in found] == own
    for judged, wanted, said in zip(found, expected, signals, strict=True):
        if not said_something(said):
            assert (judged.reason, wanted.is_proposed) == (NOTHING_SAID, False)
            continue
        # A cosine within its sixth digit of a threshold may fall on either side of it.
        if abs(wanted.g - threshold) < 2e-5:
            return
        assert judged.h == pytest.approx(wanted.h, abs=2e-6)
        assert judged.r == pytest.approx(wanted.r, abs=2e-6)
        assert judged.gate.g == pytest.approx(wanted.g, abs=4e-6)
        assert (judged.reason == PROPOSED) is wanted.is_proposed


@given(
    rows=st.integers(1, 30),
    candidates=st.integers(0, 40),
    k=st.integers(1, 12),
    least=st.sampled_from([-1.0, 0.0, 0.8]),
    seed=st.integers(0, 99),
    chunk=st.sampled_from([1, 7, 64]),
)
def test_the_nearest_rows_are_the_nearest(
    rows: int, candidates: int, k: int, least: float, seed: int, chunk: int
) -> None:
    vectors = unit_rows(rows + candidates, 5, seed, 0.6)
    nearest = Nearest(np.arange(rows), vectors, k, least)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "CANDIDATE_ROWS", chunk)
        nearest.offer(np.arange(rows, rows + candidates))
    exact = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    for row in range(rows):
        found = nearest.of(row)
        wanted = np.sort(np.round(exact[row, rows:], 6))[::-1][:k]
        wanted = wanted[wanted >= least]
        assert [n.cosine for n in found] == pytest.approx(wanted.tolist(), abs=2e-6)
        assert [n.cosine for n in found] == sorted((n.cosine for n in found), reverse=True)
        for n in found:
            assert n.cosine == pytest.approx(float(exact[row, n.position]), abs=2e-6)
            assert n.position >= rows
        assert len({n.position for n in found}) == len(found)


CELLS = unit_rows(240, 8, seed=3, spread=0.9)
TURNS, MEMORIES = np.arange(0, 240, 2), np.arange(1, 240, 2)


@pytest.fixture
def small_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of ten rows, always, and blocks that end inside of them."""
    for name, value in {
        "EXACT_PAIRS": 0, "ROWS_PER_CELL": 10, "CANDIDATE_ROWS": 4, "QUERY_ROWS": 3,
        "_ROWS_AT_ONCE": 7,
    }.items():  # fmt: skip
        monkeypatch.setattr(walk, name, value)


def nearest(candidates: Ints, k: int, *, probes: int, earlier_only: bool = False) -> list[set[int]]:
    found = Nearest(TURNS, CELLS, k)
    found.offer(candidates, earlier_only=earlier_only, probes=probes)
    return [{n.position for n in found.of(row)} for row in range(len(TURNS))]


@pytest.mark.usefixtures("small_cells")
def test_probing_every_cell_finds_what_comparing_everything_finds() -> None:
    products = CELLS[TURNS] @ CELLS[MEMORIES].T
    expected = [set(row.tolist()) for row in MEMORIES[np.argsort(-products, axis=1)[:, :5]]]
    assert nearest(MEMORIES, 5, probes=99) == expected


@pytest.mark.usefixtures("small_cells")
def test_a_turn_is_compared_with_the_turns_before_it_only() -> None:
    found = nearest(TURNS, 3, probes=99, earlier_only=True)
    for row, turn in enumerate(TURNS.tolist()):
        before = TURNS[:row]
        assert found[row] == set(before[np.argsort(-(CELLS[before] @ CELLS[turn]))[:3]].tolist())


@pytest.mark.usefixtures("small_cells")
def test_few_probes_find_most_and_miss_some() -> None:
    """The price, and that cells are looked at at all: the nearest ones first."""
    whole = nearest(MEMORIES, 5, probes=99)
    found = [
        sum(len(a & b) for a, b in zip(whole, nearest(MEMORIES, 5, probes=p), strict=True))
        for p in (1, 4)
    ]
    assert len(TURNS) * 5 * 0.3 < found[0] < found[1] < len(TURNS) * 5


@pytest.mark.usefixtures("small_cells")
def test_a_walk_by_cells_judges_as_one_that_compares_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With all cells probed nothing is missed, whichever block or set a row is in."""
    signals = [FACT] * len(TURNS)
    monkeypatch.setattr(walk, "BLOCK_ROWS", 8)
    monkeypatch.setattr(walk, "ALIKE_PROBES", 99)
    found = list(walk.walk(TURNS, signals, MEMORIES[:20], CELLS, 0.30))
    monkeypatch.setattr(walk, "EXACT_PAIRS", 1 << 29)
    expected = list(walk.walk(TURNS, signals, MEMORIES[:20], CELLS, 0.30))
    assert len({judged.reason for judged in expected}) == 2, "some are let in and some are not"
    assert found == expected


def test_a_missing_or_damaged_table_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run the night"):
        read_table(tmp_path / "nothing")
    (tmp_path / "table").write_bytes(b"PAR1 no")
    with pytest.raises(StoreError, match="cannot be read as a table"):
        read_table(tmp_path / "table")
