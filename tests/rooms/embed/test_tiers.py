"""Which index a tier gets, and that it finds what an exact scan finds."""

from __future__ import annotations

import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pytest
from lancedb.index import HnswSq

from noctuary.embed import tiers
from noctuary.embed.rotation import Rotation, fit, identity, rotate, rotated_prefix
from noctuary.embed.tiers import (
    FULL_TIER,
    TableHome,
    index_spec,
    sync_tiers,
    tier_tables,
    tiers_match,
)
from noctuary.work.shards import IndexSpec
from tests.support.tier_store import DIM, ROWS, Floats, TierStore, clustered, counts, search_tier


def test_tiers_collapse_into_the_full_one_for_small_models() -> None:
    assert list(tier_tables(384)) == ["memory_vectors_64", "memory_vectors_256", FULL_TIER]
    assert tier_tables(100) == {"memory_vectors_64": 64, FULL_TIER: 100}
    assert tier_tables(64) == {FULL_TIER: 64}
    assert tier_tables(384, (64, 64, 0, 256)) == tier_tables(384)


def test_a_first_sync_creates_every_tier(store: TierStore) -> None:
    report = store.sync()
    assert [(t.name, t.dim) for t in report.tiers] == [
        ("memory_vectors_32", 32),
        ("memory_vectors_64", 64),
        (FULL_TIER, DIM),
    ]
    for tier in report.tiers:
        assert tier.action == "created"
        assert counts(tier) == (ROWS, 0, 0)
        assert (tier.index, tier.unindexed_rows, tier.rows) == ("exact", 0, ROWS)
        assert "50000" in tier.reason
        assert "not found" in tier.reason
    store.assert_equal_to_corpus()


def test_a_night_without_change_adds_no_version(store: TierStore) -> None:
    first = store.sync()
    again = store.sync()
    assert {t.action for t in again.tiers} == {"unchanged"}
    assert {counts(t) for t in again.tiers} == {(0, 0, 0)}
    assert [t.version for t in again.tiers] == [t.version for t in first.tiers]


def test_only_changed_rows_are_written(store: TierStore) -> None:
    store.sync()
    store.vectors = store.vectors.copy()
    store.vectors[7] = clustered(1, seed=5)[0]
    store.hashes[7] = "edited"
    store.drop(ROWS - 1)
    store.drop(ROWS - 2)
    store.ids += ["o'new", 'new"2']
    store.hashes += ["n1", "n2"]
    store.vectors = np.vstack([store.vectors, clustered(2, seed=6)])
    report = store.sync()
    assert {t.action for t in report.tiers} == {"synced"}
    assert {counts(t) for t in report.tiers} == {(2, 1, 2)}
    store.assert_equal_to_corpus()
    for gone in (store.ids.index("o'new"), 0):
        store.drop(gone)
        assert [counts(t) for t in store.sync().tiers] == [(0, 0, 1)] * 3
        store.assert_equal_to_corpus()
    rows = len(store.ids)
    store.ids, store.hashes, store.vectors = [], [], store.vectors[:0]
    emptied = store.sync().tiers
    assert {counts(t) for t in emptied} == {(0, 0, rows)}
    assert {t.rows for t in emptied} == {0}
    assert {t.action for t in store.sync().tiers} == {"unchanged"}


def test_tiers_of_other_dimensions_are_removed_with_their_marks(store: TierStore) -> None:
    store.sync()
    store.home.mark_path("memory_vectors_32").write_text("left by a killed night")
    report = store.sync(dims=(64,))
    assert report.dropped == ("memory_vectors_32",)
    assert not store.home.is_dirty("memory_vectors_32")
    assert [m.name for m in tiers_match(store.home, store.ids)] == ["memory_vectors_64", FULL_TIER]


def test_an_empty_store_has_empty_tiers(tmp_path: Path) -> None:
    empty = np.zeros((0, DIM), dtype=np.float32)
    report = sync_tiers(TableHome(tmp_path), [], [], empty, identity(DIM, "e", "no rows"))
    assert [t.rows for t in report.tiers] == [0, 0]
    assert all(match.ok for match in tiers_match(TableHome(tmp_path), []))


def test_many_rows_and_deletions_are_written_in_parts(
    store: TierStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiers, "WRITE_ROWS", 64)
    monkeypatch.setattr(tiers, "MAX_DELETE_IDS", 7)
    store.sync()
    store.assert_equal_to_corpus()
    for _ in range(50):
        store.drop(100)
    store.hashes[:150] = [f"edited{i}" for i in range(150)]
    report = store.sync()
    assert {counts(t) for t in report.tiers} == {(0, 150, 50)}
    store.assert_equal_to_corpus()


@pytest.mark.parametrize("change", ["encoder", "rotation"])
def test_another_encoder_or_rotation_rewrites_every_tier(store: TierStore, change: str) -> None:
    store.sync()
    if change == "encoder":
        store.rotation = fit(store.vectors, "f")
    else:
        store.rotation = identity(DIM, "e", "why")
    report = store.sync()
    assert {t.action for t in report.tiers} == {"rebuilt"}
    assert all("rotation" in t.reason for t in report.tiers)
    store.assert_equal_to_corpus()


def test_a_foreign_table_is_replaced(store: TierStore) -> None:
    import lancedb

    store.lance.mkdir()
    lancedb.connect(str(store.lance)).create_table(FULL_TIER, data=[{"id": 1}])
    states = {t.name: t for t in store.sync().tiers}
    assert states[FULL_TIER].action == "rebuilt"
    assert states["memory_vectors_32"].action == "created"
    store.assert_equal_to_corpus()


def damage_table(table: Path, kind: str) -> None:
    """Leave what a power cut can leave of a LanceDB table, which is never flushed."""
    if kind == "newest manifest empty":
        min((table / "_versions").glob("*.manifest")).write_bytes(b"")
        return
    for path in (table / ("_versions" if kind == "no versions" else "data")).iterdir():
        if kind == "data cut":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        else:
            path.unlink()


@pytest.mark.parametrize("kind", ["newest manifest empty", "data cut", "no data", "no versions"])
def test_a_damaged_tier_is_rebuilt_and_reported(store: TierStore, kind: str) -> None:
    store.sync()
    damage_table(store.lance / f"{FULL_TIER}.lance", kind)
    match = {m.name: m for m in tiers_match(store.home, store.ids)}
    assert match[FULL_TIER].missing == ROWS
    assert match["memory_vectors_32"].ok
    states = {t.name: t for t in store.sync().tiers}
    assert states[FULL_TIER].action == "rebuilt"
    assert "cannot be read" in states[FULL_TIER].reason
    assert counts(states[FULL_TIER]) == (ROWS, 0, 0)
    assert states["memory_vectors_32"].action == "unchanged"
    store.assert_equal_to_corpus()


def test_a_kill_between_tiers_is_completed_by_the_next_sync(
    store: TierStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.sync()
    store.hashes[3] = "edited"

    class KilledError(Exception): ...

    class KillAfterOne:
        def update(self, task: str, done: int, total: int) -> None:
            if done == 1:
                raise KilledError

    with pytest.raises(KilledError):
        store.sync(progress=KillAfterOne())
    report = store.sync()
    assert [t.action for t in report.tiers] == ["unchanged", "synced", "synced"]
    store.assert_equal_to_corpus()


def test_an_id_that_got_in_twice_is_repaired(store: TierStore) -> None:
    import lancedb

    store.sync()
    table = lancedb.connect(str(store.lance)).open_table(FULL_TIER)
    table.add(table.search().limit(1).to_arrow().select(table.schema.names))
    match = {m.name: m for m in tiers_match(store.home, store.ids)}[FULL_TIER]
    assert (match.duplicates, match.ok) == (1, False)
    assert store.sync().tiers[-1].action == "rebuilt"
    assert all(m.ok for m in tiers_match(store.home, store.ids))


def test_match_counts_orphans_and_missing_memories(store: TierStore) -> None:
    (absent,) = tiers_match(store.home, store.ids)
    assert (absent.name, absent.missing, absent.ok) == (FULL_TIER, ROWS, False)
    store.sync()
    assert all(m.ok and m.rows == ROWS for m in tiers_match(store.home, store.ids))
    for match in tiers_match(store.home, [*store.ids[3:], "new"]):
        assert (match.orphans, match.missing, match.duplicates) == (3, 1, 0)
        assert not match.ok


def test_replaced_versions_leave_the_disk(store: TierStore) -> None:
    for night in range(6):
        store.hashes[0] = f"edit-{night}"
        store.sync(keep_versions=timedelta(milliseconds=1))
    versions = store.lance / f"{FULL_TIER}.lance" / "_versions"
    assert len(list(versions.glob("*.manifest"))) <= 2


def test_a_large_tier_gets_an_index_that_covers_every_row(store: TierStore) -> None:
    report = store.sync(index_min_rows=ROWS)
    assert {(t.index, t.unindexed_rows) for t in report.tiers} == {("IVF_SQ", 0)}
    store.ids += [f"n{i}" for i in range(40)]
    store.hashes += [f"n{i}" for i in range(40)]
    store.vectors = np.vstack([store.vectors, clustered(40, seed=9)])
    report = store.sync(index_min_rows=ROWS)
    assert {(t.index, t.unindexed_rows) for t in report.tiers} == {("IVF_SQ", 0)}
    assert {t.rows for t in report.tiers} == {ROWS + 40}
    query = store.vectors[-1]
    hits = search_tier(store.home, DIM, rotate(query, store.rotation), 5)
    assert hits[0].memory_id == "n39"
    # The index itself answers on another scale; the refined search must not.
    cosines = [float(store.vectors[store.ids.index(h.memory_id)] @ query) for h in hits]
    np.testing.assert_allclose([h.cosine for h in hits], cosines, atol=1e-5)
    again = store.sync(index_min_rows=ROWS)
    assert [t.version for t in again.tiers] == [t.version for t in report.tiers]


def test_a_few_new_rows_are_found_beside_the_index(store: TierStore) -> None:
    before = {t.name: t.version for t in store.sync(index_min_rows=ROWS).tiers}
    store.ids.append("new")
    store.hashes.append("new")
    store.vectors = np.vstack([store.vectors, clustered(1, seed=9)])
    report = store.sync(index_min_rows=ROWS)
    assert {(t.index, t.unindexed_rows, t.index_gap) for t in report.tiers} == {("IVF_SQ", 1, 0)}
    assert {t.name: t.version - 1 for t in report.tiers} == before, "nothing else was written"
    hits = search_tier(store.home, DIM, rotate(store.vectors[-1], store.rotation), 1)
    assert hits[0].memory_id == "new"
    # An edited row leaves its old bytes, which go, and with them the rows beside the index.
    store.hashes[0] = "edited"
    assert {t.unindexed_rows for t in store.sync(index_min_rows=ROWS).tiers} == {0}
    assert {t.index for t in store.sync().tiers} == {"exact"}


def test_search_equals_brute_force_in_every_tier(store: TierStore) -> None:
    store.sync()
    queries = clustered(20, seed=4)
    for dim in (32, 64, DIM):
        stored = rotated_prefix(store.vectors, store.rotation, dim)
        for query in queries:
            cosines = stored @ rotated_prefix(query, store.rotation, dim)
            best = np.argsort(-cosines, kind="stable")[:10]
            hits = search_tier(store.home, dim, rotate(query, store.rotation), 10)
            np.testing.assert_allclose([h.cosine for h in hits], cosines[best], atol=1e-5)
            assert [h.memory_id for h in hits] == [f"m{i}" for i in best]


def test_equal_vectors_come_in_order_of_their_ids_and_zero_is_never_found(tmp_path: Path) -> None:
    vectors = np.zeros((4, DIM), dtype=np.float32)
    vectors[:3, 0] = 1.0
    rotation = identity(DIM, "e", "small")
    sync_tiers(TableHome(tmp_path), list("dcba"), list("1234"), vectors, rotation)
    hits = search_tier(TableHome(tmp_path), DIM, vectors[0], 10)
    assert [h.memory_id for h in hits] == ["b", "c", "d"]
    assert search_tier(TableHome(tmp_path), DIM, vectors[3], 10) == []


def funnel_recall(
    vectors: Floats, queries: Floats, rotation: Rotation, lance: Path, pool: int
) -> float:
    """Recall@10 against exact search of: short tier -> pool -> rescoring at full dimension."""
    found = 0
    for query in queries:
        truth = np.argsort(-(vectors @ query), kind="stable")[:10]
        hits = search_tier(TableHome(lance), 64, rotate(query, rotation), pool)
        kept = np.array(sorted(int(hit.memory_id) for hit in hits))
        best = kept[np.argsort(-(vectors[kept] @ query), kind="stable")[:10]]
        found += len(set(best.tolist()) & set(truth.tolist()))
    return found / (10 * len(queries))


def test_the_funnel_finds_the_true_neighbours_of_synthetic_vectors(tmp_path: Path) -> None:
    vectors = clustered(3000, dim=384, seed=1)
    rotation = fit(vectors, "e")
    ids = [str(i) for i in range(len(vectors))]
    sync_tiers(TableHome(tmp_path / "rotated"), ids, ids, vectors, rotation)
    queries = clustered(30, dim=384, seed=1)
    rotated = funnel_recall(vectors, queries, rotation, tmp_path / "rotated", 100)
    raw = identity(384, "e", "raw prefix")
    sync_tiers(TableHome(tmp_path / "raw"), ids, ids, vectors, raw)
    assert rotated >= 0.97
    assert rotated > funnel_recall(vectors, queries, raw, tmp_path / "raw", 100)


def test_inputs_that_do_not_fit_are_refused(store: TierStore) -> None:
    with pytest.raises(ValueError, match="do not fit"):
        sync_tiers(store.home, ["a"], ["h"], store.vectors, store.rotation)
    with pytest.raises(ValueError, match="do not fit"):
        sync_tiers(store.home, ["a"], ["h"], np.ones((1, 5)), store.rotation)
    store.ids[1] = store.ids[0]
    with pytest.raises(ValueError, match="1 memory ids repeat"):
        store.sync()
    assert not store.lance.exists()


def test_the_log_level_of_the_caller_is_left_alone(
    store: TierStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LANCEDB_LOG", raising=False)
    store.sync()
    assert "LANCEDB_LOG" not in os.environ


def test_a_lost_tier_is_backfilled_and_no_other_is_touched(store: TierStore) -> None:
    first = store.sync()
    shutil.rmtree(store.lance / "memory_vectors_64.lance")
    report = store.sync()
    assert [t.action for t in report.tiers] == ["unchanged", "created", "unchanged"]
    (_, backfilled, _) = report.tiers
    assert counts(backfilled) == (ROWS, 0, 0)
    assert "not found" in backfilled.reason
    versions = [t.version for t in report.tiers]
    assert (versions[0], versions[2]) == (first.tiers[0].version, first.tiers[2].version)
    store.assert_equal_to_corpus()


def test_a_tier_that_a_night_left_half_written_is_rebuilt(store: TierStore) -> None:
    store.sync()
    store.home.mark_path("memory_vectors_64").write_text("left by a killed night")
    report = store.sync()
    assert [t.action for t in report.tiers] == ["unchanged", "rebuilt", "unchanged"]
    assert "was being written" in report.tiers[1].reason
    assert {t.action for t in store.sync().tiers} == {"unchanged"}, "the mark is gone"
    store.assert_equal_to_corpus()


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["_create", "_apply", "settle_index"])
def test_a_write_that_fails_leaves_its_mark_and_the_next_night_repairs_it(
    store: TierStore, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    if step != "_create":
        store.sync()
        store.hashes[3] = "edited"
    real = vars(tiers)[step]

    def full_disk(*arguments: Any, **named: Any) -> Any:
        real(*arguments, **named)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(tiers, step, full_disk)
        with pytest.raises(type(error)):
            store.sync()
    assert store.home.is_dirty("memory_vectors_32")
    assert not store.home.is_dirty(FULL_TIER), "it was not begun"
    first, *others = store.sync().tiers
    assert first.action == "rebuilt"
    assert "was being written" in first.reason
    assert {t.action for t in others} == {"created" if step == "_create" else "synced"}
    assert not store.home.is_dirty("memory_vectors_32")
    store.assert_equal_to_corpus()


def test_a_night_without_change_writes_no_mark(
    store: TierStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.sync()

    def never(*_: Any) -> None:
        raise AssertionError("nothing is written")

    monkeypatch.setattr(TableHome, "marked", never)
    assert {t.action for t in store.sync().tiers} == {"unchanged"}


def test_long_vectors_get_codes_and_short_ones_a_byte_a_dimension() -> None:
    assert index_spec(384, 1_000_000) == IndexSpec("IVF_RQ", 15, bits=2)
    assert index_spec(256, 65_535) == IndexSpec("IVF_RQ", 1, bits=2)
    assert index_spec(255, 10) == IndexSpec("IVF_SQ", 1)
    assert index_spec(64, 131_072) == IndexSpec("IVF_SQ", 2)
    assert index_spec(300, 1).kind == "IVF_SQ", "codes fill whole bytes"


def test_a_tier_of_codes_finds_the_true_neighbours(store: TierStore) -> None:
    large = TierStore(store.lance, clustered(1_500, dim=256, seed=3))
    report = large.sync(dims=(), index_min_rows=100)
    assert [(t.name, t.index, t.unindexed_rows) for t in report.tiers] == [(FULL_TIER, "IVF_RQ", 0)]
    found = 0
    for query in clustered(20, dim=256, seed=3):
        truth = set(np.argsort(-(large.vectors @ query), kind="stable")[:10].tolist())
        hits = search_tier(large.home, 256, rotate(query, large.rotation), 10)
        found += len(truth & {int(hit.memory_id[1:]) for hit in hits})
    assert found >= 0.95 * 200


def test_an_index_of_an_earlier_version_is_replaced(store: TierStore) -> None:
    store.sync()
    table = lancedb.connect(str(store.lance)).open_table(FULL_TIER)
    table.create_index("vector", config=HnswSq("cosine", num_partitions=1))
    state = store.sync(index_min_rows=ROWS).tiers[-1]
    assert (state.index, state.unindexed_rows, state.rows) == ("IVF_SQ", 0, ROWS)
    version = state.version
    again = store.sync(index_min_rows=ROWS).tiers[-1]
    assert (again.index, again.version, again.action) == ("IVF_SQ", version, "unchanged")
    hits = search_tier(store.home, DIM, rotate(store.vectors[3], store.rotation), 1)
    assert hits[0].memory_id == "m3"
