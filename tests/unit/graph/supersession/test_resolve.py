from __future__ import annotations

from tests.unit.graph.supersession.conftest import Find, Note, at_angles, pairs


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
