from __future__ import annotations

import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnemon.graph.arrays import OPEN_END_US
from mnemon.recall.engine import Recaller
from mnemon.recall.profile import RetrievalProfile
from mnemon.recall.scope import Facet, Scope, build_mask
from mnemon.types import UNDATED_US, MemoryRecord, to_micros
from tests.support.lean import write_encoder
from tests.support.store import Store, day_us, memory, new_store, renumber, turns

USERS = ("ana", "ben", "eva")
WINGS = ("home", "work")
WORDS = ("cat", "key", "boiler", "invoice", "flight", "doctor", "release", "door", "Atlas")

names = st.sampled_from([None, *USERS])
scopes = st.builds(
    Scope,
    wing=st.sampled_from([None, *WINGS, "elsewhere"]),
    room=st.sampled_from([None, "hall", "nowhere"]),
    category=st.sampled_from([None, "fact", "turn"]),
    user=st.sampled_from([None, *USERS, "stranger"]),
    as_of=st.sampled_from([None, *(datetime(2026, 1, d, tzinfo=UTC) for d in (1, 5, 9, 28))]),
)
profiles = st.builds(
    RetrievalProfile,
    fusion=st.sampled_from(["cc", "rrf"]),
    lexical_weight=st.sampled_from([0.0, 0.5]),
    dense_weight=st.sampled_from([0.0, 0.5]),
    graph_weight=st.sampled_from([0.0, 1.0, 5.0]),
    importance_prior=st.sampled_from([0.0, 0.3]),
    exact_match_bonus=st.sampled_from([0.0, 0.2]),
    depth=st.sampled_from([1, 3, 50]),
)
queries = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


def crowded() -> list[MemoryRecord]:
    """Every word in memories of every user and of nobody, linked by name and by turn."""
    rows: list[MemoryRecord] = []
    for number, word in enumerate(WORDS):
        for user in (None, *USERS):
            wing = WINGS[number % 2]
            rows.append(
                memory(
                    f"Atlas {word}: the {word} of {user or 'the house'} needs a release.",
                    wing=wing,
                    room="hall" if number % 3 else None,
                    user=user,
                    importance=number / 10,
                    created_at_us=UNDATED_US if number == 4 else day_us(number + 1),
                )
            )
    for user in USERS:
        texts = [f"{user}: what about the Atlas {word} and the {word}?" for word in WORDS]
        rows += turns("shared-session", *texts, user=user)
    return renumber(rows)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "house"
        store = new_store(root, encoder=write_encoder(root / "encoders"))
        store.publish(crowded())
        yield store


@pytest.fixture(scope="module")
def recaller(store: Store) -> Recaller:
    return Recaller.open(store.root)


@given(query=queries, scope=scopes, profile=profiles, k=st.sampled_from([1, 5, 200]))
def test_no_leg_lets_anything_out_of_scope_through(
    recaller: Recaller, query: str, scope: Scope, profile: RetrievalProfile, k: int
) -> None:
    result = recaller.recall(query, k, profile=profile, scope=scope)
    for found in result.memories:
        assert found.user in (None, scope.user)
        assert scope.wing in (None, found.wing)
        assert scope.room in (None, found.room)
        assert scope.category in (None, found.category)
        if scope.as_of is not None and found.created_at is not None:
            assert found.created_at <= scope.as_of


@pytest.mark.parametrize("user", [None, *USERS])
@pytest.mark.parametrize("fusion", ["cc", "rrf"])
def test_the_graph_walks_across_users_nowhere(
    recaller: Recaller, user: str | None, fusion: str
) -> None:
    """Every turn names a memory of every user, so each of these walks would cross if it could."""
    walked = RetrievalProfile(fusion=fusion, dense_weight=0.0, graph_weight=5.0)
    for word in WORDS:
        question = f"what about the Atlas {word}"
        found = recaller.recall(question, 200, profile=walked, scope=Scope(user=user)).memories
        assert {m.user for m in found} <= {None, user}


@given(query=queries, scope=scopes, profile=profiles)
def test_an_explanation_never_names_a_seed_out_of_scope(
    recaller: Recaller, query: str, scope: Scope, profile: RetrievalProfile
) -> None:
    owners = {str(r.memory_id): r.user for r in crowded()}
    for found in recaller.recall(query, 200, profile=profile, scope=scope).memories:
        if found.graph is not None:
            assert owners[str(found.graph.seed_id)] in (None, scope.user)


@given(query=queries, leg=st.sampled_from(["lexical", "dense"]), user=names, k=st.integers(1, 9))
def test_what_others_own_takes_nobody_s_place(
    recaller: Recaller, query: str, leg: str, user: str | None, k: int
) -> None:
    """Filtering comes before the cut: the k best are the first k of all, whatever others own."""
    alone = RetrievalProfile(
        lexical_weight=float(leg == "lexical"),
        dense_weight=float(leg == "dense"),
        graph_weight=0.0,
        importance_prior=0.0,
        depth=1,
    )
    scope = Scope(user=user)
    best = recaller.recall(query, k, profile=alone, scope=scope).memories
    everything = recaller.recall(query, 1000, profile=alone, scope=scope).memories
    assert [m.id for m in best] == [m.id for m in everything[:k]]


def test_the_crowd_is_found_by_its_owner_over_every_leg(recaller: Recaller) -> None:
    """Guards the properties above against an empty store: each leg finds something of each user."""
    for user in USERS:
        found = recaller.recall("Atlas cat", 200, scope=Scope(user=user)).memories
        mine = [m for m in found if m.user == user]
        assert any(m.lexical for m in mine)
        assert any(m.dense for m in mine)
        assert any(m.graph for m in mine)


@given(
    st.lists(
        st.tuples(st.sampled_from([-1, 0, 1, 2]), st.integers(-(2**63), OPEN_END_US)), max_size=20
    ),
    names,
    st.datetimes(timezones=st.timezones()),
)
def test_the_mask_equals_a_loop_over_rows(
    rows: list[tuple[int, int]], user: str | None, moment: datetime
) -> None:
    owners = Facet(USERS, np.array([code for code, _ in rows], dtype=np.int32))
    nobody = Facet((), np.full(len(rows), -1, dtype=np.int32))
    facets = {"wing": nobody, "room": nobody, "category": nobody, "user": owners}
    created = np.array([us for _, us in rows], dtype=np.int64)
    mask, _ = build_mask(Scope(user=user, as_of=moment), facets, created)
    assert mask is not None
    for allowed, (code, us) in zip(mask.tolist(), rows, strict=True):
        mine = code == -1 or USERS[code] == user
        assert allowed == (mine and (us == UNDATED_US or us <= to_micros(moment)))
