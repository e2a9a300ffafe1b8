from __future__ import annotations

from noctuary.compact.clusters import cluster_session
from noctuary.core.types import UNDATED_US
from tests.support.turns import HOUR_US, cluster_index, cluster_turns, session_turns, turn


def test_sessions_keep_their_own_tails() -> None:
    records = [turn(i, "a") for i in range(10)] + [turn(i, "b") for i in range(10, 14)]
    clusters = cluster_turns(records)
    assert [c.session_id for c in clusters] == ["a"]
    assert clusters[0].member_positions == tuple(range(6))


def test_turns_are_ordered_by_time_then_position_and_input_order_does_not_matter() -> None:
    same = [turn(i, created_at_us=HOUR_US) for i in (3, 1, 2)]
    early = turn(9, created_at_us=0)
    clusters = cluster_turns([*same, early], protected_tail=0)
    assert clusters[0].member_positions == (9, 1, 2, 3)
    assert clusters == cluster_turns([early, *reversed(same)], protected_tail=0)


def test_a_session_without_times_is_clustered_in_source_order() -> None:
    records = [turn(i, created_at_us=UNDATED_US) for i in (2, 0, 1, 3)]
    clusters = cluster_turns(records, target=2, protected_tail=0)
    assert [c.member_positions for c in clusters] == [(0, 1), (2, 3)]
    assert {c.last_us for c in clusters} == {UNDATED_US}


def test_equal_texts_are_turns_of_their_own() -> None:
    records = [turn(i, content="Ann: yes") for i in range(6)]
    clusters = cluster_turns(records, target=3, protected_tail=0)
    assert [c.member_ids for c in clusters] == [("m0", "m1", "m2"), ("m3", "m4", "m5")]


def test_fewer_turns_than_the_target_are_one_cluster_and_one_is_trivial() -> None:
    (few,) = cluster_turns([turn(i) for i in range(7)])
    assert len(few.member_ids) == 3
    (one,) = cluster_turns([turn(i) for i in range(5)])
    assert one.trivial
    assert cluster_turns([]) == []


def test_ordinals_count_through_the_wings_of_a_session() -> None:
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
        members = {(records[i].user, records[i].wing) for i in cluster.member_positions}
        assert members == {(cluster.user, cluster.wing)}
    assert sorted(i for c in clusters for i in c.member_positions) == list(range(8))
    assert len(clusters) == 4


def test_two_users_with_one_session_id_each_keep_their_own_tail() -> None:
    records = [turn(i, user="u" if i < 5 else "v") for i in range(10)]
    assert [c.member_positions for c in cluster_turns(records)] == [(0,), (5,)]
    nobody = [turn(i, user=None if i < 5 else "v") for i in range(10)]
    assert [c.user for c in cluster_turns(nobody)] == [None, "v"]


def test_an_id_is_stable_over_nights_and_changes_with_an_edit() -> None:
    records = [turn(i) for i in range(30)]
    before = cluster_turns(records)
    moved = [r._replace(position=r.position + 7) for r in records]
    assert [c.cluster_id for c in cluster_turns(moved)] == [c.cluster_id for c in before]
    edited = [records[0]._replace(content_hash="edited"), *records[1:]]
    after = cluster_turns(edited)
    assert after[0].cluster_id != before[0].cluster_id
    assert after[1].cluster_id == before[1].cluster_id
    assert len({c.cluster_id for c in before}) == len(before)


def test_chronological_groups_are_the_formula_turn_by_turn() -> None:
    turns = session_turns([turn(i) for i in range(47)])
    found = cluster_session(turns, 10, protected_tail=0)[0]
    placed = {i: c.ordinal for c in found for i in c.member_positions}
    assert placed == {i: cluster_index(i, 47, 5) for i in range(47)}
    assert {c.strategy for c in found} == {"chronological"}
