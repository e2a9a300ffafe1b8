from __future__ import annotations

import pytest

from noctuary.compact.clusters import (
    TARGET_CLUSTER_TURNS,
    cluster_count,
    cut_evenly,
    make_cluster,
    partition_sizes,
)
from noctuary.core.types import UNDATED_US
from tests.support.turns import HOUR_US, cluster_index, session_turns, turn


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
    run = session_turns([turn(i) for i in range(turns)])
    parts = cut_evenly(run, target)
    assert [len(part) for part in parts] == sizes
    assert [t for part in parts for t in part] == run


def test_the_formula_is_defined_for_no_turns() -> None:
    assert cluster_count(0, 20) == 1
    assert cluster_index(0, 0, 1) == 0
    assert cut_evenly([]) == []


def test_the_default_target_is_twenty() -> None:
    assert TARGET_CLUSTER_TURNS == 20
    assert partition_sizes(60) == [20, 20, 20]


def test_a_cluster_s_time_is_that_of_its_dated_members() -> None:
    undated, *dated = session_turns([turn(0, created_at_us=UNDATED_US), turn(1), turn(2)])
    cluster = make_cluster([undated, *dated], "chronological", 0)
    assert (cluster.first_us, cluster.last_us) == (HOUR_US, 2 * HOUR_US)
    only = make_cluster([undated], "chronological", 0)
    assert (only.first_us, only.last_us) == (UNDATED_US, UNDATED_US)
    assert only.trivial
    assert not cluster.trivial


def test_a_cluster_says_whose_it_is_and_who_grouped_it() -> None:
    members = session_turns([turn(i, user="u", wing="w") for i in range(2)])
    cluster = make_cluster(members, "plan", 3)
    assert (cluster.user, cluster.wing, cluster.session_id) == ("u", "w", "s")
    assert (cluster.strategy, cluster.ordinal) == ("plan", 3)
    assert cluster.member_ids == ("m0", "m1")
    assert cluster.member_positions == (0, 1)


def test_an_id_depends_on_strategy_session_members_and_their_texts_alone() -> None:
    records = [turn(i) for i in range(3)]
    before = make_cluster(session_turns(records), "chronological", 0).cluster_id
    moved = session_turns([r._replace(position=r.position + 7) for r in records])
    assert make_cluster(moved, "chronological", 5).cluster_id == before
    assert len(before) == 16
    edited = session_turns([records[0]._replace(content_hash="edited"), *records[1:]])
    renamed = session_turns([r._replace(session_id="t") for r in records])
    others = {
        make_cluster(edited, "chronological", 0).cluster_id,
        make_cluster(renamed, "chronological", 0).cluster_id,
        make_cluster(session_turns(records), "plan", 0).cluster_id,
        make_cluster(session_turns(records[:2]), "chronological", 0).cluster_id,
    }
    assert len(others | {before}) == 5
