from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.store import StorePaths
from noctuary.core.types import UNDATED_US
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs, Usage
from noctuary.recall.reader import SnapshotReader
from noctuary.sources.source import Share
from noctuary.usage.reader import Counts, UsageReader
from tests.support.store import Store, memory, new_store, renumber
from tests.support.usage import count_retrievals

OWNERS = (None, "ana", "ana", "ben", "ben", None, "ana")
IDS = tuple(str(101 + n) for n in range(len(OWNERS)))
SHARED = "103"
"""Of Ana, with Ben."""


class Places:
    """Where memories stand, as a snapshot's reader tells it."""

    def positions_of(self, memory_ids: Sequence[str]) -> dict[str, int]:
        return {i: IDS.index(i) for i in memory_ids if i in IDS}


class Whole:
    """Use of all together, most used first: 107 seven times, 101 once."""

    is_missing = False

    def counts(self, memory_ids: Sequence[str]) -> Counts:
        recent = np.array([int(i) - 100 for i in memory_ids], dtype=np.int64)
        return recent, recent * 2, recent * 3

    def most_used(self, limit: int) -> list[str]:
        return list(IDS[::-1][: max(limit, 0)])

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        others = len(memory_ids) - 1
        return np.array([others for _ in memory_ids], dtype=np.int64)


asked = st.lists(st.sampled_from([*IDS, "999"]), unique=True)
masks = st.lists(st.booleans(), min_size=len(IDS), max_size=len(IDS))


def own(private: Sequence[bool]) -> Inputs:
    mine = np.array(private, dtype=np.bool_)
    use, places = cast(UsageReader, Whole()), cast(SnapshotReader, Places())
    return Inputs(StorePaths(Path()), places, lambda: use, lambda: mine)


@given(asked, masks)
def test_counts_and_pairs_are_those_of_private_memories_alone(
    ids: list[str], private: list[bool]
) -> None:
    kept = {i for i, mine in zip(IDS, private, strict=True) if mine}
    mine = [i for i in ids if i in kept]
    recent, days, last_us = own(private).usage_of(ids)
    assert recent.tolist() == [int(i) - 100 if i in kept else 0 for i in ids]
    assert days.tolist() == [2 * (int(i) - 100) if i in kept else 0 for i in ids]
    assert last_us.tolist() == [3 * (int(i) - 100) if i in kept else UNDATED_US for i in ids]
    together = own(private).co_retrieved(ids).tolist()
    assert together == [len(mine) - 1 if i in kept else 0 for i in ids]


@given(masks, st.integers(0, 9))
def test_what_others_use_most_takes_no_place(private: list[bool], limit: int) -> None:
    expected = [i for i in IDS[::-1] if private[IDS.index(i)]][:limit]
    assert own(private).most_used(limit) == expected


def test_who_has_nothing_private_has_no_use() -> None:
    assert not own([False] * len(IDS)).knows_usage()
    assert own([True, *[False] * (len(IDS) - 1)]).knows_usage()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root: Path = tmp_path_factory.mktemp("use") / "store"
    store = new_store(root)
    records = renumber([memory(f"Note {n}.", user=user) for n, user in enumerate(OWNERS)])
    store.publish(records, shares=[Share(SHARED, "ben")])
    count_retrievals(store, [list(IDS)] * 3)
    return store


def used(world: Inputs) -> list[str]:
    usage: Usage = world.usage_of(IDS)
    found = [i for i, n in zip(IDS, usage.recent.tolist(), strict=True) if n]
    together = world.co_retrieved(IDS).tolist()
    assert found == sorted(world.most_used(len(IDS)))
    # Three recalls together with every other one that counts.
    assert together == [3 * (len(found) - 1) if i in found else 0 for i in IDS]
    assert world.knows_usage() == bool(found)
    return found


@pytest.mark.parametrize(
    ("user", "expected"),
    [("ana", ["102", "107"]), ("ben", ["104", "105"]), ("eva", []), (None, [])],
)
def test_a_recall_knows_the_use_of_what_nobody_else_sees(
    store: Store, user: str | None, expected: list[str]
) -> None:
    assert used(Recaller.open(store.root).inputs_now(user)) == expected


def test_without_named_users_all_use_counts(tmp_path: Path) -> None:
    store = new_store(tmp_path / "store")
    store.publish(renumber([memory(f"Note {n}.") for n in range(len(IDS))]))
    count_retrievals(store, [list(IDS)] * 3)
    assert used(Recaller.open(store.root).inputs_now("ana")) == list(IDS)
