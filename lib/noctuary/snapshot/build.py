"""Writing a snapshot candidate: the serving pack, its manifest and its digest. Build side.

Everything is written in a fixed order with fixed encodings: equal inputs give equal bytes, hence an
equal digest.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import Cluster
from noctuary.compact.summary import Summary
from noctuary.corpus.evidence import Share
from noctuary.files import fsync_dir, remove_tree, replacement, write_array, write_text
from noctuary.graph.arrays import GraphArrays, MentionArrays, relations_in_use
from noctuary.graph.pack import speaking_concepts, to_mention_arrays
from noctuary.graph.sessions import SessionArrays, build_sessions
from noctuary.graph.tables import GraphTables
from noctuary.lexical.postings import Postings
from noctuary.snapshot import layout
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.manifest import Manifest, compute_digest, describe_files, write_manifest
from noctuary.snapshot.memory_columns import MemoryColumns, read_columns
from noctuary.snapshot.row_file import write_row_file
from noctuary.snapshot.share_arrays import ShareArrays
from noctuary.snapshot.share_pack import pack_shares
from noctuary.snapshot.summary_arrays import SummaryArrays
from noctuary.snapshot.summary_pack import SummaryPack, pack_summaries
from noctuary.types import MemoryRecord
from noctuary.vectors.cascade import PrefixTier


@dataclass(frozen=True)
class PackInputs:
    """Everything that a snapshot holds, as the stages made it.

    Attributes:
        records: Ordered by position from 0; a `RecordFile` is streamed.
        vectors: Unit rows, shape (n, d), or None when there is no encoder or `vectors_file`.
        vectors_file: A `.npy` file of the same, which is copied as it is.
        summaries: Accepted ones only: of turn clusters, and of compaction plans in force.
        summary_vectors: Their unit vectors, aligned, shape (s, d); None without an encoder.
        plan_of: Summary id -> plan id, for the summaries of plans.
        tier: The short tier of the vectors, where the store is large enough for one.
        exits: By dimensions, the best cosine from which a tier may answer alone, or None.
        shares: Who else may read which memory, as the store says.
    """

    records: Sequence[MemoryRecord]
    vectors: NDArray[np.float32] | None
    postings: Postings
    graph: GraphTables
    graph_arrays: GraphArrays
    clusters: Sequence[Cluster]
    summaries: Sequence[Summary]
    summary_vectors: NDArray[np.float32] | None = None
    plan_of: Mapping[str, str] = field(default_factory=dict[str, str])
    tier: PrefixTier | None = None
    exits: Mapping[int, float | None] = field(default_factory=dict[int, "float | None"])
    shares: Sequence[Share] = ()
    vectors_file: Path | None = None


@dataclass(frozen=True)
class Provenance:
    """Where a candidate comes from; see noctuary.snapshot.manifest.Manifest."""

    id_kind: str
    encoder: dict[str, Any] | None
    encoder_digest: str | None
    source: dict[str, Any]
    corpus_digest: str
    settings: dict[str, Any]


def build_candidate(paths: StorePaths, inputs: PackInputs, provenance: Provenance) -> Path:
    """Write a candidate and return its directory, named by its digest.

    An equal one is kept as it is.

    A killed build leaves only a `.building-` directory, which the next build removes.
    """
    paths.candidates.mkdir(parents=True, exist_ok=True)
    for leftover in paths.candidates.glob(".building-*"):
        remove_tree(leftover)
    building = paths.candidates / f".building-{os.getpid()}"
    building.mkdir()
    summaries = pack_summaries(
        inputs.summaries, inputs.summary_vectors, inputs.plan_of, inputs.postings
    )
    shares = pack_shares(inputs.records, inputs.shares)
    columns = read_columns(inputs.records)
    _write_vectors(building / layout.VECTORS_FILE, inputs)
    _write_arrays(building, inputs, columns, summaries, shares)
    write_row_file(
        building / layout.ROWS_FILE,
        records=inputs.records,
        postings=inputs.postings,
        graph=inputs.graph,
        clusters=inputs.clusters,
        summaries=summaries,
        meta=_meta(inputs, columns, summaries, shares),
    )
    manifest = _make_manifest(building, inputs, provenance, columns, shares)
    write_manifest(building, manifest)
    fsync_dir(building)
    final = paths.candidates / manifest.digest[: layout.DIGEST_NAME_CHARS]
    remove_tree(final)
    building.rename(final)
    fsync_dir(paths.candidates)
    return final


def _make_manifest(
    directory: Path,
    inputs: PackInputs,
    provenance: Provenance,
    columns: MemoryColumns,
    shares: ShareArrays | None,
) -> Manifest:
    files = describe_files(directory)
    counts = {
        "memories": len(inputs.records),
        "turns": columns.turns,
        "terms": len(inputs.postings.terms),
        "postings": int(inputs.postings.positions.size),
        "concepts": inputs.graph.concepts.num_rows,
        "mentions": inputs.graph.mentions.num_rows,
        "concept_edges": inputs.graph.concept_edges.num_rows,
        "edges": int(inputs.graph_arrays.targets.size),
        "supersessions": inputs.graph.supersessions.num_rows,
        "clusters": len(inputs.clusters),
        "summaries": len(inputs.summaries),
    }
    if shares is not None:
        counts["shares"] = int(shares.positions.size)
    return Manifest(
        format_version=layout.PACK_FORMAT_VERSION,
        digest=compute_digest(files, counts, provenance.id_kind, provenance.encoder_digest),
        files=files,
        counts=counts,
        id_kind=provenance.id_kind,
        encoder=provenance.encoder,
        encoder_digest=provenance.encoder_digest,
        source=provenance.source,
        corpus_digest=provenance.corpus_digest,
        settings=provenance.settings,
        warnings=[],
        built_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _write_vectors(path: Path, inputs: PackInputs) -> None:
    """Write the vectors of the memories; a file of them is copied by the kernel, page by page."""
    if inputs.vectors_file is not None:
        with replacement(path) as tmp:
            shutil.copyfile(inputs.vectors_file, tmp)
    elif inputs.vectors is not None:
        write_array(path, inputs.vectors)


def _write_arrays(
    directory: Path,
    inputs: PackInputs,
    columns: MemoryColumns,
    summaries: SummaryPack,
    shares: ShareArrays | None,
) -> None:
    arrays: dict[str, NDArray[Any]] = {
        layout.POSTING_POSITIONS_FILE: inputs.postings.positions,
        layout.POSTING_SCORES_FILE: inputs.postings.scores,
        layout.CREATED_AT_FILE: columns.created_at_us,
        layout.IMPORTANCE_FILE: columns.importance,
    }
    if inputs.tier is not None:
        for name, file in layout.TIER_FILES.items():
            arrays[file] = getattr(inputs.tier, name)
        exits = {str(dim): inputs.exits[dim] for dim in sorted(inputs.exits)}
        write_text(directory / layout.TIER_EXITS_FILE, json.dumps(exits) + "\n")
    for column in fields(GraphArrays):
        arrays[layout.graph_file(column.name)] = getattr(inputs.graph_arrays, column.name)
    mentions = to_mention_arrays(inputs.graph)
    for column in fields(MentionArrays):
        arrays[layout.mention_file(column.name)] = getattr(mentions, column.name)
    sessions = build_sessions(inputs.records, speaking_concepts(mentions))
    for column in fields(SessionArrays):
        arrays[layout.session_file(column.name)] = getattr(sessions, column.name)
    for facet, column in columns.facets.items():
        arrays[layout.facet_file(facet)] = column.codes
    arrays.update(_summary_arrays(summaries))
    if shares is not None:
        arrays[layout.SHARE_STARTS_FILE] = shares.indptr
        arrays[layout.SHARE_POSITIONS_FILE] = shares.positions
    for name, array in arrays.items():
        write_array(directory / name, array)


def _summary_arrays(summaries: SummaryPack) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {
        layout.SUMMARY_POSTING_POSITIONS_FILE: summaries.postings.positions,
        layout.SUMMARY_POSTING_SCORES_FILE: summaries.postings.scores,
    }
    if summaries.vectors is not None:
        arrays[layout.SUMMARY_VECTORS_FILE] = summaries.vectors
    for column in fields(SummaryArrays):
        arrays[layout.summary_file(column.name)] = getattr(summaries.arrays, column.name)
    return arrays


def _meta(
    inputs: PackInputs,
    columns: MemoryColumns,
    summaries: SummaryPack,
    shares: ShareArrays | None,
) -> Mapping[str, str]:
    relations = relations_in_use(inputs.graph_arrays.relations)
    values = {
        "relations": json.dumps(list(relations)),
        "summary_plans": json.dumps(summaries.plans),
    }
    for facet, column in columns.facets.items():
        values[f"facet_{facet}"] = json.dumps(column.values, ensure_ascii=False)
    if shares is not None:
        values[layout.SHARED_WITH] = json.dumps(shares.readers, ensure_ascii=False)
    return values
