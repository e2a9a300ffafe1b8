"""Rows of the store itself in a recall, as if a night had just read them."""

from __future__ import annotations

import gc
import json
import math
import shutil
import sqlite3
import tracemalloc
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.context.render import Line, render_block
from noctuary.core.settings import LiveSettings, Settings, SourceSettings
from noctuary.core.types import MemoryRecord
from noctuary.lexical.build import build_postings, build_postings_beside
from noctuary.recall import api as serving
from noctuary.recall import inputs as live_vectors
from noctuary.recall.api import recall
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
from noctuary.recall.inputs import Inputs
from noctuary.recall.live import held_words, score_rows
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Query, Scope
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.replay import list_packets, replay
from noctuary.recall.result import RecallResult
from noctuary.sources import live as looking
from noctuary.sources.corpus import read_records
from noctuary.sources.export import export_corpus
from noctuary.sources.live import LiveRow, LiveState, look_now, read_state, record_state
from noctuary.sources.open import open_source
from noctuary.text.tokens import document_tokens, encode_tokens
from tests.support.descriptors import open_files
from tests.support.live import Cache, age, make_cache, publish_from
from tests.support.store import Store, household, memory, new_store, renumber
from tests.support.views import codes, said


def ids(result: RecallResult) -> list[Any]:
    return [m.id for m in result.memories]


def live_ids(result: RecallResult) -> list[Any]:
    return [m.id for m in result.memories if m.live]


def plain(result: RecallResult) -> dict[str, Any]:
    value = result.to_json()
    del value["phase_timing_ms"]
    return value


@pytest.fixture(params=["words", "dense"])
def store(request: pytest.FixtureRequest) -> Store:
    return request.getfixturevalue("served" if request.param == "words" else "served_dense")


def test_new_changed_and_deleted_rows_are_seen_at_once(store: Store, cache: Cache) -> None:
    before = recall("spare key")
    # A writer that stores the same row again, with the same stamps.
    cache.run("UPDATE memories SET content = content, server_id = 900 WHERE id = 1")
    assert plain(recall("spare key")) == plain(before)
    new = cache.add("The parcel was moved to the neighbour.", tags="wing:home,room:hall")
    cache.edit(1, content="The spare key lies under the flower pot.")
    cache.delete(8)
    found = recall("parcel neighbour spare key flower pot night train vienna", 20)
    assert "1 new, 1 changed, 1 gone" in said(found, "live_overlay")
    by_id = {m.id: m for m in found.memories}
    assert 8 not in by_id
    assert len(by_id) == len(found.memories)
    assert by_id[1].content.endswith("flower pot.")
    memory = by_id[new]
    assert (memory.live, memory.wing, memory.room) == (True, "home", "hall")
    assert memory.to_json()["live"] is True
    assert memory.lexical is not None
    assert (memory.dense is not None) == (store.encoder is not None)
    by_old_words = recall("blue door")
    assert "blue door" not in " ".join(m.content for m in by_old_words.memories)
    assert "live" not in before.memories[0].to_json()


def test_off_is_off(store: Store, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, order, scores and JSON are those of the snapshot, whatever was written."""
    before = plain(recall("spare key door", explain=True, candidate_trace=True, dry_run=True))
    cache.add("The spare key was moved to the neighbour.")
    cache.delete(3)
    monkeypatch.setenv("NOCTUARY_LIVE_ENABLED", "false")
    after = plain(recall("spare key door", explain=True, candidate_trace=True, dry_run=True))
    assert after == before


def test_a_store_that_nobody_wrote_to_is_not_even_opened(
    served: Store, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "look_into_sqlite", None)
    assert "live_unreachable" not in codes(recall("spare key"))
    cache.add("Something.")
    assert "live_unreachable" in codes(recall("spare key")), "the guard above is real"


SECRET = "hunter2-canary-live"


@pytest.mark.parametrize(
    "fields",
    [
        {"content": f"The vault word is {SECRET}.", "is_sensitive": 1},
        {"content": f"The vault word is {SECRET}.", "is_sensitive": "true"},
        {"content": f"password = {SECRET}"},
        {"content": f"[SENSITIVE: {SECRET}]"},
        {"content": f"[REDACTED:token] {SECRET}"},
    ],
    ids=["flag", "word", "secret", "placeholder", "redacted"],
)
def test_a_sensitive_row_never_comes(store: Store, cache: Cache, fields: Mapping[str, Any]) -> None:
    cache.add(**fields)
    cache.edit(1, **fields)
    asked = recall("vault word password token hunter2 canary", explain=True, candidate_trace=True)
    assert 1 not in ids(asked), "what turned sensitive is hidden at once"
    assert SECRET not in str(asked.to_json())
    assert not live_ids(asked)
    assert "0 new, 0 changed, 1 gone" in said(asked, "live_overlay")


def test_what_recall_injected_is_cut_out(store: Store, cache: Cache) -> None:
    block = render_block([Line("1", "2026-01-05", "The spare key hangs behind the blue door.")])
    echo = cache.add(block)
    mixed = cache.add(f"{block}\nI will paint the fence green.")
    found = recall("spare key blue door fence green", 20)
    assert echo not in ids(found)
    (kept,) = [m for m in found.memories if m.id == mixed]
    assert kept.content.strip() == "I will paint the fence green."


@pytest.mark.parametrize(
    ("scope", "is_seen"),
    [({}, False), ({"user": "ana"}, False), ({"user": "ben"}, True),
     ({"user": "ben", "wing": "work"}, False)],
)  # fmt: skip
def test_a_row_of_a_user_is_denied_by_default(
    store: Store, cache: Cache, scope: dict[str, Any], is_seen: bool
) -> None:
    own = cache.add("Ben hides a spare key under the doormat.", tags="user:ben,wing:home")
    found = recall("spare key", 20, **scope, explain=True, candidate_trace=True)
    assert live_ids(found) == [own] * is_seen
    if not is_seen:
        assert "live_overlay" not in codes(found), "nor does a count tell of it"
        assert "doormat" not in str(found.to_json())


def test_a_row_that_changes_hands_is_its_new_owners(store: Store, cache: Cache) -> None:
    cache.edit(6, content="The door code moved to the blue notebook.", tags="user:ben")
    assert 6 not in ids(recall("door code notebook", user="ana"))
    assert 6 in live_ids(recall("door code notebook", user="ben"))


@pytest.mark.parametrize(
    ("scope", "is_seen"),
    [
        ({"wing": "cellar"}, True), ({"wing": "home"}, False), ({"room": "shelf"}, True),
        ({"category": "wines"}, True), ({"category": "facts"}, False),
        ({"as_of": datetime.now(UTC) + timedelta(days=1)}, True),
        ({"as_of": datetime.now(UTC) - timedelta(days=2)}, False),
    ],
)  # fmt: skip
def test_filters_hold_for_rows(
    store: Store, cache: Cache, scope: dict[str, Any], is_seen: bool
) -> None:
    new = cache.add("The old riesling lies in the rack.", tags="wing:cellar,room:shelf",
                    category="wines")  # fmt: skip
    cache.add("Ben's riesling.", tags="wing:attic,user:ben")
    found = recall("riesling rack", 20, **scope)
    assert (new in ids(found)) == is_seen
    assert not any(code.startswith("unknown_") for code in codes(found))
    assert "unknown_wing" in codes(recall("riesling", wing="attic")), "nobody else's is named"


def test_other_orders_know_live_rows_and_explanations_add_up(store: Store, cache: Cache) -> None:
    new = cache.add("The spare key was moved to the neighbour.", importance=1.0)
    for order in ("importance", "recency"):
        found = recall("spare key", sort_by=order)
        assert ids(found)[0] == new
        assert all(0 <= m.final_score <= 1 for m in found.memories)
    found = recall("spare key neighbour", explain=True, candidate_trace=True, dry_run=True)
    (memory,) = [m for m in found.memories if m.id == new]
    assert memory.score_breakdown is not None
    assert memory.score_breakdown["final_score"] == pytest.approx(memory.final_score)
    assert memory.score_events
    assert new in [row["id"] for row in found.candidates or ()]
    traced = recall("spare key neighbour", 1, candidate_trace=True)
    assert 1 in [row["memory_id"] for row in traced.candidate_trace or ()]


@pytest.mark.parametrize(
    "flags",
    [
        {"fusion": "rrf"},
        {"scorer": "two_pass", "turn_view": "summaries", "coarse_threshold": -1.0},
        {"scorer": "hybrid"},
        {"exact_match_bonus": 0.3},
        {"turn_view": "summaries"},
        {"mmr_enabled": True, "wing_diversity_weight": 0.2, "wing_quota": 1},
        {"supersede_filter_enabled": True, "consolidation_enabled": True},
        {"query_expansion_enabled": True},
        {"graph_weight": 0.0},
        {"time_decay_enabled": True, "ltp_enabled": True, "tagging_enabled": True},
    ],
    ids=lambda flags: str(flags).replace(" ", ""),
)
def test_every_ranking_takes_rows(served_dense: Store, cache: Cache, flags: dict[str, Any]) -> None:
    """Also in a process that searched before: what it has opened knows nothing of live rows."""
    recall("spare key neighbour", profile=flags)
    new = cache.add("The spare key was moved to the neighbour.", tags="wing:attic")
    cache.edit(2, content="The feline eats four times a day.")
    cache.delete(8)
    found = recall("spare key neighbour", profile=flags, explain=True, candidate_trace=True)
    assert not {"snapshot_damaged", "phase_failed"} & set(codes(found)), found.warnings
    assert new in ids(found)
    assert 8 not in ids(found)
    assert all(0 <= m.final_score <= 1 for m in found.memories)


def test_it_is_logged_by_id_and_the_store_is_only_read(served: Store, cache: Cache) -> None:
    new = cache.add("The spare key was moved to the neighbour.")
    before = cache.path.read_bytes()
    recall("neighbour")
    assert cache.path.read_bytes() == before
    # Any reader of a store in WAL mode leaves these two.
    left = {p.name for p in cache.path.parent.iterdir()} - {"memory.db-wal", "memory.db-shm"}
    assert left == {"memory.db"}
    with closing(sqlite3.connect(served.paths.access_log)) as log:
        logged = [row[0] for row in log.execute("SELECT memory_id FROM retrievals")]
    assert str(new) in logged


def _remove(path: Path) -> None:
    path.unlink()
    path.with_name(f"{path.name}-wal").unlink(missing_ok=True)


def _garble(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4000] + b"\0" * 9000)


def _replace(path: Path) -> None:
    _remove(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE other(id INTEGER)")


@pytest.mark.parametrize("harm", [_remove, _garble, _replace])
def test_the_snapshot_answers_where_the_store_cannot(store: Store, cache: Cache, harm: Any) -> None:
    before = recall("spare key")
    with closing(sqlite3.connect(cache.path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
    harm(cache.path)
    found = recall("spare key")
    assert ids(found) == ids(before)
    assert [m.final_score for m in found.memories] == [m.final_score for m in before.memories]
    assert str(cache.path) in said(found, "live_unreachable")
    assert "spare key hangs" not in said(found, "live_unreachable")


def test_a_locked_store_costs_its_deadline_and_no_more(
    store: Store, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "50")
    with closing(sqlite3.connect(cache.path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = DELETE")
        writer.execute("BEGIN EXCLUSIVE")
        found = recall("spare key")
    assert "SQLITE_BUSY" in said(found, "live_unreachable")
    assert found.phase_timing_ms["scope"] < 2_000


def test_more_rows_than_may_be_taken_are_told(
    served: Store, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [cache.add(f"The parcel number {i} came.") for i in range(4)]
    monkeypatch.setenv("NOCTUARY_LIVE_MAX_ROWS", "2")
    found = recall("parcel came", 20)
    assert sorted(live_ids(found)) == keys[-2:]
    assert "newest 2" in said(found, "live_partial")


@pytest.mark.parametrize("text", ["the spare key ", " ", "x", "пароль "])
def test_a_row_that_is_longer_than_a_memory_is_left_to_the_night(
    served: Store, cache: Cache, text: str
) -> None:
    long = text * (8_000_000 // len(text))
    new = cache.add("Another spare key lies in the car.")
    cache.add(long)
    cache.edit(1, content=long)
    tracemalloc.start()
    try:
        found = recall("spare key", 20)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 6_000_000, "less than the text itself"
    assert live_ids(found) == [new]
    assert 1 not in ids(found), "what it said before is outdated"
    assert "too long" in said(found, "live_partial")


def test_a_look_takes_in_so_many_bytes_and_the_newest_first(served: Store, cache: Cache) -> None:
    keys = [cache.add(f"The parcel {i} came. {'word ' * 100_000}") for i in range(8)]
    found = recall("parcel came", 20)
    assert sorted(live_ids(found)) == keys[-4:]
    assert "too many bytes" in said(found, "live_partial")


def test_a_second_look_is_remembered_until_the_store_changes(
    served: Store, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = cache.add("The parcel came.")
    age(cache.path, 10)
    assert live_ids(recall("parcel")) == [new]
    asked: list[int] = []
    real = looking.judge

    def counted(*arguments: Any) -> LiveState:
        asked.append(1)
        return real(*arguments)

    monkeypatch.setattr(looking, "judge", counted)
    assert live_ids(recall("parcel")) == [new]
    assert not asked
    newer = cache.add("Another parcel came.")
    assert set(live_ids(recall("parcel", 20))) == {new, newer}
    assert asked


def test_after_the_next_night_nothing_is_live(store: Store, cache: Cache) -> None:
    new = cache.add("The spare key was moved to the neighbour.")
    cache.delete(8)
    before = recall("spare key neighbour", 20)
    publish_from(cache, store)
    after = recall("spare key neighbour", 20)
    assert "live_overlay" not in codes(after)
    assert new in ids(after)
    assert not live_ids(after)
    assert ids(after)[:2] == ids(before)[:2]


def test_live_rows_keep_no_snapshot_open(
    store: Store, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes with the last recall over it, not when the collector comes by."""
    monkeypatch.setattr(serving, "STORES_PINNED", 0)  # the recall alone holds it
    cache.add("The ferry to Brač leaves from pier four.")
    gc.disable()
    try:
        assert live_ids(recall("ferry pier", store=str(store.root), dry_run=True))
        assert not [name for name in open_files() if name.startswith(f"{store.root}/snapshots/")]
    finally:
        gc.enable()


def test_a_snapshot_of_an_older_version_is_not_overlaid(home: Path, cache: Cache) -> None:
    publish_from(cache, new_store(home / "old"), read_us=None)
    cache.add("The parcel came.")
    found = recall("parcel")
    assert (found.memories, "live_overlay" in codes(found)) == ((), False)


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
        st.tuples(st.just("touch"), KEYS, st.just(0.25)),
    ),
    min_size=1,
    max_size=8,
)


def apply(cache: Cache, edits: Sequence[tuple[Any, ...]]) -> None:
    for kind, *values in edits:
        if kind == "add":
            cache.add(values[0], tags=values[1])
        elif kind == "delete":
            cache.delete(values[0])
        else:
            field = {"edit": "content", "flag": "is_sensitive", "touch": "importance"}[kind]
            cache.edit(values[0], **{field: values[1]})


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


def packet_of(store: Store, query: str, **how: Any) -> dict[str, Any]:
    recall(query, profile={"replay_log": True, **how.pop("flags", {})}, **how)
    return list_packets(store.paths.replays, 1).packets[-1]


@pytest.mark.parametrize(
    "flags", [{}, {"fusion": "rrf"}, {"exact_match_bonus": 0.5}, {"query_expansion_enabled": True}]
)
def test_it_replays_exactly_when_the_store_is_gone(
    served_dense: Store, cache: Cache, flags: dict[str, Any]
) -> None:
    cache.add("The spare key was moved to the neighbour.", tags="wing:home")
    cache.edit(2, content="The feline eats four times a day, says the neighbour.")
    cache.delete(8)
    packet = packet_of(served_dense, "spare key neighbour", flags=flags)
    assert {row["id"] for row in packet["results"]} >= {1, 2, 9}
    cache.path.unlink()
    found = replay(served_dense.paths, packet)
    assert found.differences == ()
    assert found.identical


def test_a_packet_holds_live_rows_without_their_text_and_nothing_where_there_are_none(
    served_dense: Store, cache: Cache
) -> None:
    packet = packet_of(served_dense, "spare key")
    assert not {"live", "live_vectors"} & packet["world"].keys()
    assert replay(served_dense.paths, packet).identical
    cache.add("The zebra sleeps in the conservatory.", expanded_keywords="quagga")
    packet = packet_of(served_dense, "sleeping animal")
    assert not [w for w in ("zebra", "conservatory", "quagga") if w in json.dumps(packet)]
    assert packet["world"]["live"]["rows"]
    content = cache.path.read_bytes()
    cache.path.unlink()
    packet = packet_of(served_dense, "spare key")
    assert "live_unreachable" in packet["warnings"]
    cache.path.write_bytes(content)
    assert replay(served_dense.paths, packet).identical


NEW = "The spare key was moved to the neighbour."


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_vectors, "_kept", {})


@pytest.mark.parametrize("left_ms", [math.inf, 1e6, 0.0, -1.0])
def test_a_row_is_encoded_while_the_recall_has_time(
    served_dense: Store, cache: Cache, monkeypatch: pytest.MonkeyPatch, left_ms: float
) -> None:
    plain = Inputs.live_vectors
    asked: list[float] = []

    def within(self: Inputs, rows: Any, within_ms: float = math.inf) -> object:
        asked.append(within_ms)
        return plain(self, rows, left_ms)

    monkeypatch.setattr(Inputs, "live_vectors", within)
    cache.add(NEW)
    (memory,) = [m for m in recall("spare key neighbour", deadline_ms=60_000).memories if m.live]
    assert (memory.dense is not None) == (left_ms > 0)
    assert len(asked) == 1
    assert 0 < asked[0] < 60_000, "what is left of the recall's deadline"
    monkeypatch.setattr(Inputs, "live_vectors", plain)
    for deadline_ms in (None, 60_000):  # what was encoded once needs no time
        again = recall("spare key neighbour", deadline_ms=deadline_ms).memories[0]
        assert (again.live, again.dense is not None) == (True, True)
    assert live_vectors._kept  # pyright: ignore[reportPrivateUsage]


WORDS = st.sampled_from(["key", "door", "atlas", "cat", "train", "snow", "night"])
WORDED = st.lists(st.lists(WORDS, max_size=12), min_size=1, max_size=12)


def state_of(documents: Sequence[Sequence[str]]) -> LiveState:
    return LiveState(
        tuple(
            LiveRow(memory(" ".join(tokens), memory_id=str(place)), Counter(tokens))
            for place, tokens in enumerate(documents)
        )
    )


@settings(max_examples=60)
@given(corpus=WORDED, rows=WORDED, query=st.lists(WORDS, min_size=1, max_size=4))
def test_a_row_scores_what_its_twin_in_the_snapshot_scores(
    corpus: list[list[str]], rows: list[list[str]], query: list[str]
) -> None:
    """A live row that equals a memory of the snapshot has that memory's score to the last digit."""
    postings = build_postings(map(encode_tokens, [*corpus, ["never"]]))
    mean = float(np.mean([len(document) for document in [*corpus, ["never"]]]))
    frequencies = {
        t: stop - start for t, (start, stop) in zip(query, postings.ranges(query), strict=True)
    }
    found = score_rows(state_of([*corpus, *rows]), query, frequencies, postings.n_memories, mean)
    for position in range(len(corpus)):
        expected = np.float32(0)
        for start, stop in postings.ranges(sorted(set(query))):
            held = postings.positions[start:stop] == position
            expected += postings.scores[start:stop][held].sum(dtype=np.float32)
        assert found[position] == expected
    assert (found >= 0).all()
    assert ((found > 0) == [bool(set(d) & set(query)) for d in [*corpus, *rows]]).all()


def test_a_word_that_the_snapshot_lacks_is_the_rarest() -> None:
    """As in postings that are built beside those of a corpus."""
    corpus = build_postings([b"key\ndoor", b"key\ncat"])
    beside = build_postings_beside([b"owl\nowl"], corpus)
    found = score_rows(state_of([["owl", "owl"]]), ["owl"], {"owl": 0}, 2, 2.0)
    assert found.tolist() == [beside.scores[0]]
    assert found[0] > score_rows(state_of([["key", "key"]]), ["key"], {"key": 2}, 2, 2.0)[0]


def test_the_mean_length_is_read_off_the_postings(empty_store: Store) -> None:
    records = household()
    snapshot = SnapshotReader.open(empty_store.snapshot(empty_store.publish(records)))
    lengths = [
        len(document_tokens(r.content, r.tags, r.expanded_keywords, r.category)) for r in records
    ]
    assert snapshot.mean_length == pytest.approx(np.mean(lengths), rel=1e-4)
    records = renumber([memory("!!!"), memory("???")])
    wordless = SnapshotReader.open(empty_store.snapshot(empty_store.publish(records)))
    assert wordless.mean_length == 1.0
    assert wordless.document_frequencies(["key"]) == {"key": 0}
    for reader in (snapshot, wordless):
        reader.close()


def test_a_recorded_state_ranks_as_before_and_holds_no_text() -> None:
    state = LiveState(state_of([["key", "door", "key"], ["cat"]]).rows, ("3",), (("a", "b"),))
    kept = record_state(state)
    again = read_state(kept)
    assert "key" not in str(kept)
    assert again.hidden == ("3",)
    assert again.faults == (("a", "b"),)
    assert [row.memory.content for row in again.rows] == ["", ""]
    query = ["door", "key"]
    before, after = (score_rows(s, query, {"key": 1, "door": 0}, 5, 2.0) for s in (state, again))
    assert before.tolist() == after.tolist()
    assert (held_words(again, query) == held_words(state, query)).all()
    assert record_state(again) == kept, "recording a replay changes nothing"


def why(store: Store, query: str, memory_id: int, k: int = 5, user: str | None = None) -> Why:
    recaller = Recaller.open(store.root)
    request = Query(query, k, RetrievalProfile(), scope=Scope(user=user), dry_run=True)
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
    assert f"[{new}] is new since the snapshot" in told.sentences[0]
    assert (told.stage, told.facts["live"]) == (RETURNED, "new")
    assert why(served, "spare key blue door", new, k=1).stage == BELOW_LIMIT
    changed = why(served, "atlas", 2)
    assert changed.stage == NOT_FOUND
    assert "[2] is changed since" in changed.sentences[0]
    assert why(served, "night train", 8).stage == GONE
    assert why(served, "spare key", others).stage == UNKNOWN, "others' rows are not told of"
    assert why(served, "spare key", others, user="ben").stage == RETURNED
    assert "live" not in why(served, "spare key", 1).facts
