from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from noctuary.core import store as layout
from noctuary.core.files import read_array, read_arrays
from noctuary.core.manifest import full_check, read_manifest
from noctuary.core.store import MANIFEST_FILE, StorePaths
from noctuary.embed.lean import LeanEncoder
from noctuary.graph.fold import concept_id, fold_name
from noctuary.graph.sessions import SessionArrays
from noctuary.graph.tables import Evidence, Merge, Supersession, to_table
from noctuary.graph.walk import FOUND_RELATIONS
from noctuary.snapshot.pack import PackInputs, build_candidate, read_columns
from noctuary.sources.corpus import MEMORIES_FILE, RecordFile, column_batches, column_names
from tests.support.graph_objects import ConceptEdge, to_graph, to_tables
from tests.support.lean import write_encoder
from tests.support.store import household, memory, pack_inputs, provenance, renumber

ROOT = Path(__file__).resolve().parents[3]
SOME_US = 1_700_000_000_000_000


@pytest.fixture
def encoder(tmp_path: Path) -> LeanEncoder:
    return write_encoder(tmp_path / "encoders")


def built(root: Path, inputs: PackInputs, encoder: LeanEncoder | None = None) -> Path:
    return build_candidate(StorePaths(root), inputs, provenance(encoder))


def file_bytes(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.name != MANIFEST_FILE}


def test_equal_inputs_give_equal_bytes_and_one_digest(tmp_path: Path, encoder: LeanEncoder) -> None:
    first = built(tmp_path / "a", pack_inputs(household(), encoder), encoder)
    second = built(tmp_path / "b", pack_inputs(household(), encoder), encoder)
    assert file_bytes(first) == file_bytes(second)
    assert set(file_bytes(first)) == {layout.ROWS_FILE, layout.ARRAYS_FILE, layout.VECTORS_FILE}
    arrays = {f"sessions.{name}" for name in SessionArrays._fields}
    assert arrays < set(read_arrays(first / layout.ARRAYS_FILE))
    assert first.name == second.name
    left, right = read_manifest(first), read_manifest(second)
    assert left._replace(built_at="") == right._replace(built_at="")


def test_another_process_with_another_hash_seed_gives_the_same_digest(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from noctuary.core.manifest import read_manifest
from tests.support.lean import write_encoder
from tests.support.store import household, new_store
root = Path(sys.argv[1])
store = new_store(root, encoder=write_encoder(root / "encoders"))
print(read_manifest(store.candidate(household())).digest)
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / seed)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_a_candidate_is_named_by_its_digest_and_whole(tmp_path: Path) -> None:
    directory = built(tmp_path, pack_inputs(household()))
    manifest = read_manifest(directory)
    assert directory == tmp_path / "candidates" / manifest.digest[:16]
    full_check(directory, manifest)


def test_building_again_replaces_the_equal_candidate_and_a_killed_build(tmp_path: Path) -> None:
    candidates = StorePaths(tmp_path).candidates
    (candidates / ".building-123").mkdir(parents=True)
    (candidates / ".building-123" / "rows.sqlite").write_bytes(b"half")
    first = built(tmp_path, pack_inputs(household()))
    (first / "stray").write_text("left by somebody")
    assert built(tmp_path, pack_inputs(household())) == first
    assert [p.name for p in candidates.iterdir()] == [first.name]
    full_check(first, read_manifest(first))


def changed(inputs: PackInputs, **fields: Any) -> PackInputs:
    """The same pack with one record changed, derived artifacts untouched."""
    records = list(inputs.records)
    records[0] = records[0]._replace(**fields)
    return replace(inputs, records=records)


@pytest.mark.parametrize(
    "fields",
    [
        {"memory_id": "999"},
        {"content": "The spare key hangs behind the blue door!"},
        {"category": "decision"},
        {"tags": "key"},
        {"expanded_keywords": "lock"},
        {"importance": 0.91},
        {"created_at_us": SOME_US},
        {"updated_at_us": SOME_US},
        {"session_id": "s9"},
        {"wing": "work"},
        {"room": None},
        {"user": "ana"},
        {"is_turn": True},
        {"content_hash": "other"},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_every_field_of_a_record_is_in_the_digest(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    inputs = pack_inputs(household())
    plain = built(tmp_path / "a", inputs)
    assert built(tmp_path / "b", changed(inputs, **fields)).name != plain.name


def _one_vector_moved(inputs: PackInputs) -> PackInputs:
    assert inputs.vectors is not None
    vectors = inputs.vectors.copy()
    vectors[3, 0] = np.nextafter(vectors[3, 0], np.float32(2))
    return replace(inputs, vectors=vectors)


def _one_posting_changed(inputs: PackInputs) -> PackInputs:
    scores = inputs.postings.scores.copy()
    scores[0] = np.nextafter(scores[0], np.float32(9))
    return replace(inputs, postings=replace(inputs.postings, scores=scores))


def _one_statement_more(inputs: PackInputs) -> PackInputs:
    first, second = inputs.graph.concepts["concept_id"].to_pylist()[:2]
    edge = ConceptEdge(first, second, "is_a", 0.5, (Evidence(0, 0, 3),), 0, None, 0, None)
    table = to_table("concept_edges", [edge])
    return replace(inputs, graph=replace(inputs.graph, concept_edges=table))


def _one_supersession_more(inputs: PackInputs) -> PackInputs:
    found = Supersession(0, 1, 1, "is_now", 2, None, 1, "", Evidence(1, 0, 3), 0, 0)
    table = to_table("supersessions", [found])
    return replace(inputs, graph=replace(inputs.graph, supersessions=table))


def _one_merge_more(inputs: PackInputs) -> PackInputs:
    canonical = fold_name(inputs.graph.concepts["canonical_name"].to_pylist()[0])
    table = to_table("merges", [Merge("other", canonical, "rule", 1.0, "same in merges.toml")])
    return replace(inputs, graph=replace(inputs.graph, merges=table))


def _one_link_dropped(inputs: PackInputs) -> PackInputs:
    return replace(inputs, graph=replace(inputs.graph, links=inputs.graph.links.slice(1)))


def _one_link_weighed(inputs: PackInputs) -> PackInputs:
    first, *others = to_graph(inputs.graph).links
    table = to_table("links", [replace(first, weight=0.123), *others])
    return replace(inputs, graph=replace(inputs.graph, links=table))


def _one_edge_closed(inputs: PackInputs) -> PackInputs:
    ends = inputs.graph_arrays.valid_to_us.copy()
    ends[0] = SOME_US
    return replace(inputs, graph_arrays=inputs.graph_arrays._replace(valid_to_us=ends))


def _one_alias_more(inputs: PackInputs) -> PackInputs:
    graph = to_graph(inputs.graph)
    first, *others = graph.concepts
    named = replace(first, aliases=(*first.aliases, "alias"))
    return replace(inputs, graph=to_tables(replace(graph, concepts=(named, *others))))


def _one_mention_dropped(inputs: PackInputs) -> PackInputs:
    return replace(inputs, graph=replace(inputs.graph, mentions=inputs.graph.mentions.slice(1)))


def _summary_reworded(inputs: PackInputs) -> PackInputs:
    return replace(inputs, summaries=[replace(inputs.summaries[0], text="another text")])


def _cluster_dropped(inputs: PackInputs) -> PackInputs:
    return replace(inputs, clusters=inputs.clusters[1:])


@pytest.mark.parametrize(
    "change",
    [
        _one_vector_moved, _one_posting_changed, _one_edge_closed,
        _one_alias_more, _one_mention_dropped, _one_statement_more, _one_supersession_more,
        _one_merge_more, _one_link_dropped, _one_link_weighed, _summary_reworded, _cluster_dropped,
    ],
)  # fmt: skip
def test_every_artifact_is_in_the_digest(
    tmp_path: Path, encoder: LeanEncoder, change: Callable[[PackInputs], PackInputs]
) -> None:
    inputs = pack_inputs(household(), encoder)
    plain = built(tmp_path / "a", inputs, encoder)
    assert built(tmp_path / "b", change(inputs), encoder).name != plain.name


def test_id_kind_and_encoder_are_in_the_digest_and_time_is_not(tmp_path: Path) -> None:
    inputs = pack_inputs(household())
    paths = StorePaths(tmp_path)
    plain = build_candidate(paths, inputs, provenance()).name
    assert build_candidate(paths, inputs, provenance(id_kind="str")).name != plain
    assert build_candidate(paths, inputs, provenance(encoder_digest="ab")).name != plain
    assert build_candidate(paths, inputs, provenance(settings={"x": {"y": 1}})).name == plain


def test_what_is_packed_can_be_read_back(tmp_path: Path, encoder: LeanEncoder) -> None:
    inputs = pack_inputs(household(), encoder)
    directory = built(tmp_path, inputs, encoder)
    with closing(sqlite3.connect(directory / layout.ROWS_FILE)) as rows:
        stored = rows.execute("SELECT * FROM memories ORDER BY position").fetchall()
        spans = rows.execute("SELECT term, stop - start FROM terms ORDER BY term").fetchall()
        names = dict(rows.execute("SELECT name, ordinal FROM concept_names"))
        ids = dict(rows.execute("SELECT ordinal, concept_id FROM concepts"))
        (sources,) = rows.execute("SELECT group_concat(memory_id) FROM summary_sources").fetchone()
        meta = dict(rows.execute("SELECT key, value FROM meta"))
    record = inputs.records[0]
    assert stored[0] == (
        0, "101", record.content, "fact", "key, wing:home", "", 0.9, record.created_at_us,
        record.updated_at_us, None, "home", "hall", None, 0, record.content_hash,
    )  # fmt: skip
    assert [row[1] for row in stored] == [r.memory_id for r in inputs.records]
    assert [term for term, _ in spans] == inputs.postings.terms
    assert [size for _, size in spans] == np.diff(inputs.postings.starts).tolist()
    assert ids[names["atlas migration"]] == concept_id("atlas migration")
    assert sources == "109,110,111,112"
    assert json.loads(meta["relations"]) == list(FOUND_RELATIONS)
    assert json.loads(meta["facet_wing"]) == ["home", "work"]
    assert np.array_equal(read_array(directory / layout.VECTORS_FILE), inputs.vectors)  # pyright: ignore[reportArgumentType]


def test_facet_codes_point_at_the_sorted_values_and_nothing_is_minus_one(tmp_path: Path) -> None:
    records = renumber(
        [memory("a", wing="work"), memory("b"), memory("c", wing="home"), memory("d", wing="")]
    )
    directory = built(tmp_path, pack_inputs(records))
    assert list(read_columns(records).facets["wing"].values) == ["home", "work"]
    assert read_arrays(directory / layout.ARRAYS_FILE)["facet.wing"].tolist() == [1, -1, 0, -1]


def test_counts_say_what_is_held(tmp_path: Path, encoder: LeanEncoder) -> None:
    inputs = pack_inputs(household(), encoder)
    counts = read_manifest(built(tmp_path, inputs, encoder)).counts
    assert counts == {
        "memories": 14,
        "turns": 6,
        "terms": len(inputs.postings.terms),
        "postings": inputs.postings.positions.size,
        "concepts": inputs.graph.concepts.num_rows,
        "mentions": inputs.graph.mentions.num_rows,
        "concept_edges": inputs.graph.concept_edges.num_rows,
        "edges": inputs.graph.edges.num_rows,
        "supersessions": 0,
        "clusters": 1,
        "summaries": 1,
    }


def test_without_an_encoder_there_is_no_vector_file(tmp_path: Path) -> None:
    directory = built(tmp_path, pack_inputs(household()))
    assert not (directory / layout.VECTORS_FILE).exists()
    assert layout.VECTORS_FILE not in read_manifest(directory).files


def test_an_empty_corpus_packs(tmp_path: Path) -> None:
    directory = built(tmp_path, pack_inputs([]))
    manifest = read_manifest(directory)
    full_check(directory, manifest)
    assert set(manifest.counts.values()) == {0}


def test_a_copied_candidate_is_as_good_as_the_original(tmp_path: Path) -> None:
    directory = built(tmp_path / "a", pack_inputs(household()))
    copy = tmp_path / "copy"
    shutil.copytree(directory, copy)
    full_check(copy, read_manifest(copy))


def test_a_file_of_vectors_gives_the_same_pack(tmp_path: Path, encoder: LeanEncoder) -> None:
    inputs = pack_inputs(household(), encoder)
    assert inputs.vectors is not None
    file = tmp_path / "memories.npy"
    np.save(file, inputs.vectors)
    held = built(tmp_path / "a", inputs, encoder)
    copied = built(tmp_path / "b", replace(inputs, vectors=None, vectors_file=file), encoder)
    assert file_bytes(copied) == file_bytes(held)
    assert not (copied / layout.VECTORS_FILE).samefile(file)


def test_records_on_disk_give_the_same_pack(tmp_path: Path) -> None:
    inputs = pack_inputs(household())
    file = tmp_path / MEMORIES_FILE
    (rows,) = column_batches(inputs.records, column_names(MEMORIES_FILE))
    pq.write_table(pa.Table.from_batches([rows]), file, row_group_size=5)  # pyright: ignore[reportUnknownMemberType]
    streamed = replace(inputs, records=RecordFile(file))
    held = built(tmp_path / "a", inputs)
    assert file_bytes(built(tmp_path / "b", streamed)) == file_bytes(held)
