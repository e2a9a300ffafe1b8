from __future__ import annotations

from dataclasses import replace

import pytest

from mnemon.compact.clusters import (
    PROTECTED_TAIL_TURNS,
    TARGET_CLUSTER_TURNS,
    cluster_count,
    cluster_index,
    cluster_turns,
    partition_sizes,
)
from mnemon.types import UNDATED_US, MemoryRecord

HOUR_US = 3_600_000_000


def turn(position: int, session: str | None = "s", **changes: object) -> MemoryRecord:
    record = MemoryRecord(
        position=position,
        memory_id=f"m{position}",
        content=f"Ann: line {position}",
        category="dialog_turn",
        tags="",
        expanded_keywords="",
        importance=0.5,
        created_at_us=position * HOUR_US,
        updated_at_us=position * HOUR_US,
        session_id=session,
        wing=None,
        room=None,
        user=None,
        is_turn=True,
        content_hash=f"hash-{position}",
    )
    return replace(record, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("turns", "target", "sizes"),
    [
        (0, 20, []),
        (1, 20, [1]),
        (7, 20, [7]),
        (20, 20, [20]),
        (21, 20, [11, 10]),
        (45, 20, [15, 15, 15]),
        (5, 2, [2, 2, 1]),
        (3, 1, [1, 1, 1]),
        (41, 0, [14, 14, 13]),
        (41, -7, [14, 14, 13]),
    ],
)
def test_partition_sizes_follow_the_formula(turns: int, target: int, sizes: list[int]) -> None:
    assert partition_sizes(turns, target) == sizes


def test_the_formula_is_defined_for_no_turns() -> None:
    assert cluster_count(0, 20) == 1
    assert cluster_index(0, 0, 1) == 0
    assert cluster_turns([]) == []


def test_the_newest_turns_of_each_session_stay_raw() -> None:
    records = [turn(i, "a") for i in range(10)] + [turn(i, "b") for i in range(10, 14)]
    clusters = cluster_turns(records)
    assert [c.session_id for c in clusters] == ["a"]
    assert clusters[0].member_positions == tuple(range(10 - PROTECTED_TAIL_TURNS))


def test_turns_are_ordered_by_time_then_position_and_input_order_does_not_matter() -> None:
    same = [turn(i, created_at_us=HOUR_US) for i in (3, 1, 2)]
    early = turn(9, created_at_us=0)
    clusters = cluster_turns([*same, early], protected_tail=0)
    assert clusters[0].member_positions == (9, 1, 2, 3)
    assert clusters == cluster_turns([early, *reversed(same)], protected_tail=0)


def test_a_clusters_time_is_that_of_its_dated_sources() -> None:
    undated = turn(0, created_at_us=UNDATED_US)
    (cluster,) = cluster_turns([undated, turn(1), turn(2)], protected_tail=0)
    assert (cluster.first_us, cluster.last_us) == (HOUR_US, 2 * HOUR_US)
    (only,) = cluster_turns([undated], protected_tail=0)
    assert (only.first_us, only.last_us) == (UNDATED_US, UNDATED_US)


def test_a_single_turn_is_trivial() -> None:
    clusters = cluster_turns([turn(i) for i in range(5)], target=2, protected_tail=0)
    assert [c.trivial for c in clusters] == [False, False, True]
    assert [c.ordinal for c in clusters] == [0, 1, 2]


def test_memories_and_turns_without_a_session_stay_raw() -> None:
    records = [turn(0, is_turn=False), turn(1, session=None), turn(2)]
    clusters = cluster_turns(records, protected_tail=0)
    assert [c.member_ids for c in clusters] == [("m2",)]


def test_a_cluster_never_mixes_users_or_wings() -> None:
    records = [turn(i, user="u" if i % 2 else "v", wing=f"w{i // 4}") for i in range(8)]
    clusters = cluster_turns(records, protected_tail=0)
    for cluster in clusters:
        members = [records[i] for i in cluster.member_positions]
        assert len({(m.user, m.wing) for m in members}) == 1
    assert sorted(i for c in clusters for i in c.member_positions) == list(range(8))
    assert len(clusters) == 4


def test_two_users_with_one_session_id_each_keep_their_own_tail() -> None:
    records = [turn(i, user="u" if i < 5 else "v") for i in range(10)]
    clusters = cluster_turns(records)
    assert [c.member_positions for c in clusters] == [(0,), (5,)]


def test_an_id_is_stable_over_nights_and_changes_with_an_edit() -> None:
    records = [turn(i) for i in range(30)]
    before = cluster_turns(records)
    moved = [replace(r, position=r.position + 7) for r in records]
    assert [c.cluster_id for c in cluster_turns(moved)] == [c.cluster_id for c in before]
    edited = [replace(records[0], content_hash="edited"), *records[1:]]
    after = cluster_turns(edited)
    assert after[0].cluster_id != before[0].cluster_id
    assert after[1].cluster_id == before[1].cluster_id
    assert all(len(c.cluster_id) == 16 for c in before)
    assert len({c.cluster_id for c in before}) == len(before)


def test_the_default_target_is_twenty() -> None:
    assert TARGET_CLUSTER_TURNS == 20
    assert len(cluster_turns([turn(i) for i in range(60)], protected_tail=0)) == 3
