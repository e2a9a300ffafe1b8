"""What the overlay shows today is what the next night's snapshot holds: random edit scripts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.core.settings import LiveSettings, SourceSettings
from noctuary.core.types import MemoryRecord
from noctuary.recall.api import recall
from noctuary.recall.engine import Recaller
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.live import look_now
from noctuary.sources.source import open_source
from tests.support.live import Cache, make_cache, publish_from
from tests.support.store import Store, new_store

TEXTS = st.sampled_from(
    [
        "The spare key is with the neighbour.",
        "The feline sleeps.",
        "password = hunter2-abcdef",
        "[REDACTED:token]",
        "   ",
        "Vienna by train, wing of the night.",
    ]
)
KEYS = st.integers(1, 8)
EDITS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), TEXTS, st.sampled_from(["", "user:ana", "wing:home"])),
        st.tuples(st.just("edit"), KEYS, TEXTS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("flag"), KEYS, st.sampled_from([0, 1, "yes", "false", None])),
        st.tuples(st.just("touch"), KEYS),
    ),
    min_size=1,
    max_size=8,
)


def apply(cache: Cache, edits: Sequence[tuple[Any, ...]]) -> None:
    for kind, *values in edits:
        if kind == "add":
            cache.add(values[0], tags=values[1])
        elif kind == "edit":
            cache.edit(values[0], content=values[1])
        elif kind == "delete":
            cache.delete(values[0])
        elif kind == "flag":
            cache.edit(values[0], is_sensitive=values[1])
        else:
            cache.edit(values[0], importance=0.25)


def as_exported(cache: Cache, work: Path) -> dict[str, str]:
    with open_source(cache.path) as source:
        export_corpus(source, work)
    return {r.memory_id: r.content_hash for r in read_records(work)}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_the_overlaid_snapshot_is_what_a_fresh_export_holds(
    served: Store, cache: Cache, tmp_path: Path, edits: list[tuple[Any, ...]]
) -> None:
    """By id and content hash, whatever was done to the store."""
    content = cache.path.read_bytes()
    try:
        apply(cache, edits)
        fresh = as_exported(cache, tmp_path / "fresh")
        recaller = Recaller.open(served.root)
        reader, live = recaller.reader, LiveSettings(deadline_ms=60_000)
        state = look_now(served.paths, reader, live, SourceSettings())
        held = reader.content_hashes(reader.memory_ids(range(reader.count)).values())
        reader.close()
        rows: list[MemoryRecord] = [] if state is None else [r.memory for r in state.rows]
        hidden = set() if state is None else set(state.hidden)
        assert not (state and state.faults)
        shown = {i: digest for i, digest in held.items() if i not in hidden}
        assert not shown.keys() & {r.memory_id for r in rows}
        assert {**shown, **{r.memory_id: r.content_hash for r in rows}} == fresh
    finally:
        for name in ("-wal", "-shm"):
            cache.path.with_name(cache.path.name + name).unlink(missing_ok=True)
        cache.path.write_bytes(content)


QUERIES = ("spare key", "feline meals", "atlas migration backup", "vienna train", "boiler valve")


@pytest.mark.slow
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=EDITS)
def test_the_same_memories_match_before_and_after_the_night(
    home: Path, tmp_path: Path, edits: list[tuple[Any, ...]]
) -> None:
    """Statistics move with the night, so orders may differ; who shares a word does not."""
    for leftover in (tmp_path / "memory.db", home / "house"):
        shutil.rmtree(leftover, ignore_errors=True)
        leftover.unlink(missing_ok=True)
    cache = make_cache(tmp_path / "memory.db", wal=False)
    store = new_store(home / "house")
    publish_from(cache, store)
    apply(cache, edits)
    before = {q: _matched(q) for q in QUERIES}
    publish_from(cache, store)
    assert {q: _matched(q) for q in QUERIES} == before


def _matched(query: str) -> set[Any]:
    return {m.id for m in recall(query, 50, user="ana").memories if m.lexical is not None}
