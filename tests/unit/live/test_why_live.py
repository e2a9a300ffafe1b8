from __future__ import annotations

from noctuary.core.settings import Settings
from noctuary.recall.engine import Recaller
from noctuary.recall.explain import (
    BELOW_LIMIT,
    GONE,
    NOT_FOUND,
    RETURNED,
    UNKNOWN,
    Why,
    explain_memory,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Query, Scope
from tests.support.live import Cache
from tests.support.store import Store


def why(store: Store, query: str, memory_id: int, k: int = 5, user: str | None = None) -> Why:
    recaller = Recaller.open(store.root)
    request = Query(
        query, k, RetrievalProfile(), "default", Scope(user=user), "relevance", None, dry_run=True
    )
    try:
        inputs = recaller.inputs_now(user).with_store(Settings())
        return explain_memory(recaller, request, str(memory_id), inputs)
    finally:
        recaller.reader.close()


def test_every_fate_of_a_live_row_is_told(served: Store, cache: Cache) -> None:
    new = cache.add("The spare key was moved to the neighbour.")
    cache.edit(2, content="The feline eats four times a day.")
    cache.delete(8)
    others = cache.add("Ben hides a spare key.", tags="user:ben")
    told = why(served, "spare key neighbour", new)
    assert told.stage == RETURNED
    assert f"[{new}] is new since the snapshot" in told.sentences[0]
    assert told.facts["live"] == "new"
    below = why(served, "spare key blue door", new, k=1)
    assert below.stage == BELOW_LIMIT
    changed = why(served, "atlas", 2)
    assert changed.stage == NOT_FOUND
    assert "[2] is changed since" in changed.sentences[0]
    assert why(served, "night train", 8).stage == GONE
    assert why(served, "spare key", others).stage == UNKNOWN, "others' rows are not told of"
    assert why(served, "spare key", others, user="ben").stage == RETURNED
    assert "live" not in why(served, "spare key", 1).facts
