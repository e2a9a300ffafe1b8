from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from noctuary.compact.communities import (
    LARGEST_SHARE,
    SMALLEST_COMMUNITY,
    WINDOW_TURNS,
    Communities,
    find_communities,
    join_small,
    similarities,
    windows,
)
from noctuary.compact.strategies import cluster_session
from tests.support.turns import session_turns, turn, word_vectors

SUBJECTS = ("garden roses soil spade", "engine piston valve oil", "sonata violin bow score")


def talk(turns: int) -> tuple[list[str], NDArray[np.float32]]:
    """Stretches of six turns about one of three subjects each, which come back."""
    texts = [f"{SUBJECTS[i // 6 % 3]} {'and' if i % 2 else 'but'}" for i in range(turns)]
    return texts, word_vectors(texts)


def test_turns_of_one_subject_meet_though_other_subjects_lie_between() -> None:
    texts, vectors = talk(36)
    turns = session_turns([turn(i) for i in range(36)])
    chosen = Communities(lambda positions: vectors[list(positions)])
    found = cluster_session(turns, chosen, protected_tail=0).clusters
    subjects = [{texts[i].rsplit(" ", 1)[0] for i in c.member_positions} for c in found]
    assert all(len(about) == 1 for about in subjects)
    assert len(found) == 3
    assert sorted(i for c in found for i in c.member_positions) == list(range(36))
    assert {c.strategy for c in found} == {"communities"}
    assert [c.member_positions[0] for c in found] == [0, 6, 12]


def test_groups_are_the_same_in_another_process() -> None:
    """Hash seeds and the state of random generators differ between processes."""
    program = (
        "import numpy as np\n"
        "from noctuary.compact.communities import find_communities, similarities\n"
        "np.random.seed(1); np.random.rand(5)\n"
        "vectors = np.random.default_rng(7).standard_normal((200, 16))\n"
        "print(find_communities(similarities(vectors)).tolist())\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "1"},
    ).stdout
    vectors = np.random.default_rng(7).standard_normal((200, 16))
    assert printed == f"{find_communities(similarities(vectors)).tolist()}\n"


@pytest.mark.parametrize("target", [20, 5, 0])
def test_no_cluster_is_larger_than_twice_the_target(target: int) -> None:
    vectors = word_vectors(["the very same words"] * 130)
    turns = session_turns([turn(i) for i in range(130)])
    groups = Communities(lambda positions: vectors[list(positions)], target).group(turns)
    assert max(map(len, groups)) <= LARGEST_SHARE * (target or 20)
    assert sorted(t.position for group in groups for t in group) == list(range(130))


def test_vectors_that_say_nothing_leave_neighbours_together() -> None:
    turns = session_turns([turn(i) for i in range(40)])
    for vectors in (np.zeros((40, 3)), np.full((40, 3), np.nan)):
        groups = Communities(lambda positions, v=vectors: v[list(positions)]).group(turns)
        assert sorted(t.position for group in groups for t in group) == list(range(40))
        for group in groups:
            positions = [t.position for t in group]
            assert positions == list(range(positions[0], positions[-1] + 1))


def test_windows_of_a_growing_session_stay_where_they_are() -> None:
    assert windows(0) == []
    assert windows(WINDOW_TURNS - 1) == [(0, WINDOW_TURNS - 1)]
    full = (0, WINDOW_TURNS)
    half = WINDOW_TURNS // 2
    assert windows(WINDOW_TURNS + half - 1) == [(0, WINDOW_TURNS + half - 1)]
    assert windows(WINDOW_TURNS + half) == [full, (WINDOW_TURNS, WINDOW_TURNS + half)]
    for turns in (2 * WINDOW_TURNS + half, 3 * WINDOW_TURNS, 4 * WINDOW_TURNS - 1):
        assert windows(turns)[0] == full
        assert windows(turns)[-1][1] == turns


def test_a_small_community_joins_the_most_similar_one_that_has_room() -> None:
    cosines = np.zeros((8, 8))
    cosines[6, :3] = cosines[:3, 6] = 0.4
    cosines[6, 3:6] = cosines[3:6, 6] = 0.7
    labels = np.array([0, 0, 0, 1, 1, 1, 2, 3])
    assert join_small(labels, cosines, 4).tolist() == [0, 0, 0, 1, 1, 1, 1, 3]
    assert join_small(labels, cosines, 3).tolist() == labels.tolist()


_MATRICES = st.integers(0, 24).flatmap(
    lambda n: arrays(np.float64, (n, 3), elements=st.integers(-2, 2).map(float))
)


@given(_MATRICES, st.integers(1, 6))
@hypothesis_settings(max_examples=60)
def test_every_turn_is_in_exactly_one_bounded_chronological_group(
    vectors: NDArray[np.float64], target: int
) -> None:
    turns = session_turns([turn(i) for i in range(len(vectors))])
    strategy = Communities(lambda positions: vectors[list(positions)], target)
    groups = strategy.group(turns)
    assert sorted(t.position for group in groups for t in group) == list(range(len(vectors)))
    for group in groups:
        positions = [t.position for t in group]
        assert positions == sorted(positions)
        assert len(group) <= LARGEST_SHARE * target
    starts = [group[0].position for group in groups]
    assert starts == sorted(starts)
    assert groups == strategy.group(turns)


@given(_MATRICES.filter(lambda m: len(m) >= 2 * SMALLEST_COMMUNITY))
@hypothesis_settings(max_examples=40)
def test_similarities_are_symmetric_and_in_range(vectors: NDArray[np.float64]) -> None:
    cosines = similarities(vectors)
    assert np.array_equal(cosines, cosines.T)
    assert ((cosines >= 0.0) & (cosines <= 1.0)).all()
    assert not cosines.diagonal().any()
