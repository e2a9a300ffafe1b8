"""One per cent added, edited, deleted: only that is computed, and the result is a full rebuild's.

Every file of the snapshot and every work artifact must be byte-identical. Only the LanceDB tiers
may differ: their rotation is fitted once per store and then frozen, so the two stores hold the same
vectors in two bases. For them the tolerance is float32 rounding, and it is applied to what each
store derives from the common vectors.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.compact.clusters import iter_clusters
from noctuary.core.files import read_array
from noctuary.core.store import ARRAYS_FILE, ROWS_FILE, VECTORS_FILE
from noctuary.core.types import MemoryRecord
from noctuary.embed.documents import text_key
from noctuary.embed.rotation import load, rotated_prefix
from noctuary.graph.extract import EXTRACTION_KIND, extraction_key
from noctuary.lexical.build import TOKENS_KIND, tokens_key
from noctuary.sources.corpus import read_records
from noctuary.work.content import KEY, MANIFEST_FILE
from noctuary.work.ledger import end_night
from noctuary.work.shards import open_table
from noctuary_assets.night import CLUSTERS, CONTENT, MEMORIES, VECTORS
from tests.e2e.byte_scan import find_texts, pieces
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, Ran, run_night
from tests.e2e.stores import (
    Bench,
    answers,
    checksums,
    editing,
    give_encoder,
    labelled_queries,
    leftovers,
)

CHANGED = 7
"""One per cent of 665, for each kind of change."""

ROUNDING = 2e-6
"""Largest difference between a stored tier value and the one recomputed here: float32 sums of 384
products, in whatever order the matrix library chooses."""

COSINE_ROUNDING = 5e-6
"""The same for a cosine between two rows of the full tier, where a rotation must change nothing."""

TIERS = {"memory_vectors_64": 64, "memory_vectors_256": 256, "memory_vectors_full": 384}

# Threads that wait without spinning: two nights of other people may be running beside this one.
_TWO_THREADS = {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}

# What is only true of one night or one store: costs, what it was asked, which fragments
# hold what, and stamps (they repeat the rotation's digest).
_OF_ONE_STORE = (
    "costs.json", "usage/", "content/", "stamps/", "graph.duckdb", "ledger.json",
)  # fmt: skip


@dataclass(frozen=True)
class Edit:
    """What was done to the source between two nights."""

    added: list[str]
    edited: list[str]
    gone: list[str]


@dataclass(frozen=True)
class Nights:
    """One store that followed an edit, and one built from the edited source alone."""

    grown: Bench
    before: str
    clusters_before: set[str]
    ran: Ran
    rebuilt: Bench
    edit: Edit
    uncommitted: str


@pytest.fixture(scope="module")
def nights(full_night: FirstNight, tmp_path_factory: pytest.TempPathFactory) -> Nights:
    directory = tmp_path_factory.mktemp("incremental")
    grown = full_night.bench.twin(directory / "grown")
    before = grown.serving
    clusters_before = {c.cluster_id for c in iter_clusters(grown.paths.work / CLUSTERS)}
    edit = _edit(grown)
    uncommitted = "A sentence whose transaction never ends while the night reads the store."
    with closing(sqlite3.connect(grown.source)) as writer:
        # The agent is at work meanwhile; what it has not committed does not count.
        writer.execute("BEGIN IMMEDIATE")
        writer.execute(
            "INSERT INTO memories (content, created_at, updated_at) VALUES (?, ?, ?)",
            [uncommitted, "2026-11-16", "2026-11-16"],
        )
        ran = run_night(grown.source, grown.store)
        writer.rollback()
    assert ran.code == DONE, ran.says
    rebuilt = Bench(grown.source, directory / "rebuilt" / "store")
    give_encoder(rebuilt.store, grown)
    again = run_night(rebuilt.source, rebuilt.store, extra=_TWO_THREADS, fresh=True)
    assert again.code == DONE, again.says
    return Nights(grown, before, clusters_before, ran, rebuilt, edit, uncommitted)


def _edit(bench: Bench) -> Edit:
    """Change the source by ordinary SQL, memories and turns alike, spread over the whole store."""
    records = read_records(bench.paths.work / MEMORIES)
    step = len(records) // (2 * CHANGED + 1)
    chosen = [records[step * (i + 1)] for i in range(2 * CHANGED)]
    edited, deleted = chosen[::2], chosen[1::2]
    assert {r.is_turn for r in edited} == {r.is_turn for r in deleted} == {True, False}
    added = [
        f"Note {i} of this week: the spare fuse box key hangs on hook {i + 40}."
        for i in range(CHANGED)
    ]
    with editing(bench.source) as db:
        db.executemany(
            "INSERT INTO memories (content, tags, created_at, updated_at) "
            "VALUES (?, 'wing:household', ?, ?)",
            [
                (text, f"2026-11-16T0{i}:00:00+00:00", f"2026-11-16T0{i}:00:00+00:00")
                for i, text in enumerate(added)
            ],
        )
        db.executemany(
            "UPDATE memories SET content = 'Corrected: ' || substr(content, 1, 20) || ' ' || ? "
            "WHERE id = ?",
            [(f"entry {r.position} was wrong.", int(r.memory_id)) for r in edited],
        )
        db.executemany("DELETE FROM memories WHERE id = ?", [(int(r.memory_id),) for r in deleted])
        new = db.execute(
            f"SELECT content FROM memories WHERE id IN ({','.join(r.memory_id for r in edited)})"
        ).fetchall()
    return Edit(added, [text for (text,) in new], [r.content for r in chosen])


def test_the_night_saw_exactly_the_edit(nights: Nights) -> None:
    notes = nights.ran.stage("corpus_export")["notes"]
    assert notes["added"] == CHANGED
    assert notes["edited"] == CHANGED
    assert notes["deleted"] == CHANGED
    assert notes["unchanged"] == 665 - 2 * CHANGED
    assert nights.grown.serving != nights.before


def test_only_the_changed_texts_were_computed(nights: Nights) -> None:
    new = len({*nights.edit.added, *nights.edit.edited})
    assert new == 2 * CHANGED
    assert nights.ran.note("memory_vectors", "texts_embedded") == new
    assert nights.ran.note("memory_vectors", "texts_reused") == 665 - new
    assert nights.ran.note("lexical_index", "texts_tokenized") == new
    assert nights.ran.note("concept_graph", "memories_extracted") == new
    assert nights.ran.note("vector_tiers", "rows_written") == len(TIERS) * 3 * CHANGED
    assert nights.ran.stage("query_encoder")["reused"]


def test_only_clusters_with_other_turns_were_summarised(nights: Nights) -> None:
    clusters = {c.cluster_id for c in iter_clusters(nights.grown.paths.work / CLUSTERS)}
    other = clusters - nights.clusters_before
    assert 0 < len(other) < len(clusters)
    assert nights.ran.note("summaries", "summaries_made") == len(other)


def test_the_rotation_stays_frozen(nights: Nights) -> None:
    facts = nights.ran.stage("vector_tiers")["facts"]
    assert facts["rotation_fitted_on"] == 665
    assert _rotation(nights.grown).digest == facts["rotation"]
    assert _rotation(nights.rebuilt).digest != facts["rotation"], "or the tolerance below is idle"


def test_every_file_of_the_snapshot_is_that_of_a_full_rebuild(nights: Nights) -> None:
    grown, rebuilt = checksums(nights.grown.snapshot), checksums(nights.rebuilt.snapshot)
    differing = {n for n in grown.keys() | rebuilt.keys() if grown.get(n) != rebuilt.get(n)}
    assert differing <= {"manifest.json"}
    assert {ARRAYS_FILE, ROWS_FILE, VECTORS_FILE} <= grown.keys()
    ours, theirs = nights.grown.manifest.to_json(), nights.rebuilt.manifest.to_json()
    for manifest in (ours, theirs):
        assert manifest["source"].pop("read_us") > 0
    assert {k for k in ours if ours[k] != theirs[k]} <= {"built_at"}


def test_every_work_artifact_is_that_of_a_full_rebuild(nights: Nights) -> None:
    grown, rebuilt = (checksums(b.paths.work) for b in (nights.grown, nights.rebuilt))
    differing = {n for n in grown.keys() | rebuilt.keys() if grown.get(n) != rebuilt.get(n)}
    # Only one of them had a snapshot to compare with.
    expected = {"corpus/report.json", "corpus/read_at", "evaluation/comparison.json"}
    assert {n for n in differing if not n.startswith(_OF_ONE_STORE)} <= expected
    assert "vectors/memories.npy" in grown
    assert _account(nights.grown) == _account(nights.rebuilt)


def test_both_answer_identically(nights: Nights) -> None:
    queries = [q["text"] for q in labelled_queries()] + nights.edit.added
    assert answers(nights.grown, queries) == answers(nights.rebuilt, queries)


def test_the_content_store_holds_the_same_keys_as_those_of_a_full_rebuild(nights: Nights) -> None:
    """Pruning is exact: a deleted text leaves no vector, no tokens, no findings."""
    keys = _kept_keys(nights.grown)
    assert keys == _kept_keys(nights.rebuilt)
    records = read_records(nights.grown.paths.work / MEMORIES)
    wanted = {text_key(r.content).hex() for r in records}
    vectors = {k for kind, k in keys if kind.startswith("vector:")}
    assert wanted <= vectors
    assert {k for kind, k in keys if kind == TOKENS_KIND} == {
        tokens_key(
            r.content, r.tags, r.expanded_keywords, r.category, r.created_at_us, r.is_turn
        ).hex()
        for r in records
    }
    assert {k for kind, k in keys if kind == EXTRACTION_KIND} == {
        extraction_key(r.content, r.tags, r.expanded_keywords, r.is_turn).hex() for r in records
    }
    assert not vectors & {text_key(text).hex() for text in nights.edit.gone}


@pytest.mark.parametrize("tier", TIERS)
def test_each_tier_row_is_its_memory_in_its_own_frozen_basis(tier: str, nights: Nights) -> None:
    vectors = read_array(nights.grown.paths.work / VECTORS)
    keys: list[Any] = []
    for bench in (nights.grown, nights.rebuilt):
        rows = _tier(bench, tier)
        keys.append([(r["memory_id"], r["content_hash"], r["fingerprint"]) for r in rows])
        wanted = rotated_prefix(vectors, _rotation(bench), TIERS[tier])
        assert np.abs(_matrix(rows) - wanted).max() <= ROUNDING
    records = read_records(nights.grown.paths.work / MEMORIES)
    assert keys[0] == keys[1]
    assert [k[:2] for k in keys[0]] == [(r.memory_id, r.content_hash) for r in records]


def test_the_full_tiers_agree_on_every_cosine(nights: Nights) -> None:
    grown, rebuilt = (
        _matrix(_tier(b, "memory_vectors_full")) for b in (nights.grown, nights.rebuilt)
    )
    assert np.abs(grown - rebuilt).max() > 0.1, "two bases"
    assert np.abs(grown @ grown.T - rebuilt @ rebuilt.T).max() <= COSINE_ROUNDING


def test_with_the_same_rotation_the_tiers_are_the_same_rows(nights: Nights, tmp_path: Path) -> None:
    """The basis is the only difference: given the frozen one, a rebuild writes the same rows."""
    twin = nights.rebuilt.twin(tmp_path / "twin")
    shutil.rmtree(twin.paths.rotations)
    shutil.copytree(nights.grown.paths.rotations, twin.paths.rotations)
    # Nothing of noctuary does this: the next night would take it for damage, or look no further.
    (twin.paths.work / "stamps" / "vector_tiers.json").unlink()
    end_night(twin.paths, finished=True)
    ran = run_night(twin.source, twin.store)
    assert ran.report["status"] == "unchanged", ran.says
    assert ran.stage("memory_vectors")["reused"]
    for tier in TIERS:
        ours, theirs = _tier(nights.grown, tier), _tier(twin, tier)
        assert np.abs(_matrix(ours) - _matrix(theirs)).max() <= ROUNDING
        assert [r["memory_id"] for r in ours] == [r["memory_id"] for r in theirs]


def test_what_is_gone_is_in_no_byte_outside_older_snapshots(nights: Nights) -> None:
    older = nights.grown.paths.snapshots / nights.before
    records = read_records(nights.grown.paths.work / MEMORIES)
    kept = "\n".join(r.content for r in records)
    parts = {p for text in nights.edit.gone for p in pieces(text, 24) if p not in kept}
    assert len(parts) >= len(nights.edit.gone)
    assert find_texts(older, parts), "or the test looks for what never was there"
    found = find_texts(nights.grown.store, parts, skip=[older, nights.grown.paths.encoders])
    assert found == []


def test_what_was_not_committed_was_not_read(nights: Nights) -> None:
    assert (
        find_texts(nights.grown.store, [nights.uncommitted], skip=[nights.grown.paths.encoders])
        == []
    )


def test_what_is_gone_is_not_recalled(nights: Nights) -> None:
    for text in nights.edit.gone:
        assert text not in [m.content for m in nights.grown.ask(text).memories]
    for text in nights.edit.added:
        assert nights.grown.ask(text).memories[0].content == text


def test_a_finished_night_leaves_no_scraps(nights: Nights) -> None:
    assert leftovers(nights.grown.store) == []


def _account(bench: Bench) -> dict[str, Any]:
    """The export's report but for the moment at which the source's file was last written."""
    report = json.loads((bench.paths.work / "corpus" / "report.json").read_text())
    del report["identity"]["marker"]["mtime_ns"]
    return report


def _ids(bench: Bench) -> Iterator[str]:
    records: list[MemoryRecord] = read_records(bench.paths.work / MEMORIES)
    return (r.memory_id for r in records)


def _kept_keys(bench: Bench) -> set[tuple[str, str]]:
    """Return kind and key, as hex digits, of what the content store holds."""
    kept = set[tuple[str, str]]()
    for store in (bench.paths.work / CONTENT).iterdir():
        kind: str = json.loads((store / MANIFEST_FILE).read_text())["kind"]
        for path in store.glob("*.arrow"):
            kept |= {(kind, key.hex()) for key in open_table(path)[KEY].to_pylist()}
    return kept


def _rotation(bench: Bench) -> Any:
    (directory,) = bench.paths.rotations.iterdir()
    rotation = load(directory)
    assert rotation is not None
    assert json.loads((directory / "rotation.json").read_text())["digest"] == rotation.digest
    return rotation


def _tier(bench: Bench, name: str) -> list[dict[str, Any]]:
    import lancedb

    rows = lancedb.connect(str(bench.paths.lance)).open_table(name).to_arrow().to_pylist()
    order = {memory_id: place for place, memory_id in enumerate(_ids(bench))}
    assert len(rows) == len(order)
    return sorted(rows, key=lambda row: order[row["memory_id"]])


def _matrix(rows: list[dict[str, Any]]) -> NDArray[np.float32]:
    return np.array([row["vector"] for row in rows], dtype=np.float32)
