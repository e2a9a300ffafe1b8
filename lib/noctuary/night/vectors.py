"""Stages lexical_index, memory_vectors, query_encoder and vector_tiers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from noctuary.core.errors import EncoderError
from noctuary.core.files import read_array, remove_tree, write_array, write_array_blocks, write_text
from noctuary.embed.documents import (
    SHARD_ROWS,
    TEXT,
    EmbedTexts,
    fill_memo,
    iter_known,
    keyed_texts,
    memo_kind,
    write_vectors,
)
from noctuary.embed.hosted import HOSTED_FILE, HostedModel, hosted_model, write_description
from noctuary.embed.lean_export import export_lean
from noctuary.embed.onnx import known_header, onnx_directory, toolchain
from noctuary.embed.rotation import Rotation, fit_or_load
from noctuary.embed.tables import TableHome
from noctuary.embed.tiers import RULES, TierReport, derive_thresholds, sync_tiers, tiers_match
from noctuary.lexical.build import (
    TOKENS_KIND,
    Postings,
    TokenizeMemories,
    build_postings,
    iter_keyed,
)
from noctuary.night.context import (
    AGREEMENT_SAMPLE,
    HOSTED,
    LIBRARY,
    MEMORIES,
    POSTING_ARRAYS,
    POSTING_TERMS,
    VECTORS,
    Face,
    Night,
    choose_face,
    face_of,
)
from noctuary.night.corpus import CORPUS
from noctuary.sources.corpus import count_rows, iter_batches, read_column
from noctuary.text.tokens import TOKENIZER_VERSION
from noctuary.work.fragments import KEY, Filled, FragmentStore, RecordBatch, fill
from noctuary.work.stage import Memo, Stage, StageResult, forget_result, load_result, run_stage

if TYPE_CHECKING:
    from numpy.typing import NDArray


# The vectors of all memories: where tonight's face keeps them, and writing them row by row.


SHARDS_OF_A_NIGHT = 30
"""Shards that a night's memories are cut into, as long as these are not too large or small: a kill
loses one. They are one wave, so that the model is opened once."""

LEAST_SHARD_ROWS = 32
"""A third of a second with the default model on two cores; fewer spend it on files."""


def vector_kind(night: Night, face: Face) -> str | None:
    """Return the kind of the fragments that hold a face's vectors of memories.

    None for a face whose vectors the memo keeps: a hosted model's batches are paid for and kept one
    by one, and sentence-transformers takes all texts at once.
    """
    if not face.tag or face.tag in HOSTED:
        return None
    return memo_kind(night.fingerprint(), face.tag)


def keyed_batches(memories: Path) -> Iterator[RecordBatch]:
    """Yield `key` and `content` of every memory of a table, in its order.

    Raises:
        StoreError: The table is missing or damaged.
    """
    return map(keyed_texts, iter_batches(memories, [TEXT]))


def fill_vectors(night: Night, face: Face, batches: Iterable[RecordBatch], total: int) -> Filled:
    """Embed the texts whose vector the face's fragments lack; each distinct text once.

    Args:
        night: The night.
        face: One with a `vector_kind`.
        batches: With `key` and `content`, see `keyed_batches`.
        total: Rows in all batches, for the progress and the shards.

    Raises:
        ValueError: The face keeps no fragments.
        EncoderError: The encoder fails; what it gave before is kept.
    """
    kind = vector_kind(night, face)
    if kind is None:
        raise ValueError(f"{face.tag or LIBRARY} keeps its vectors in the memo")
    task = EmbedTexts(onnx_directory(night.paths.encoders, night.fingerprint()))
    return fill(
        night.fragments(kind),
        batches,
        task,
        night.runner(),
        night.shards(task.name),
        night.progress,
        total=total,
        shard_rows=_shard_rows(total),
    )


def _shard_rows(total: int) -> int:
    """Return how many texts are embedded between two durable writes."""
    return min(max(-(-total // SHARDS_OF_A_NIGHT), LEAST_SHARD_ROWS), SHARD_ROWS)


def sample_texts(path: Path, count: int) -> list[str]:
    """Return at most so many contents of the memories' table, evenly spread, the first one first.

    Args:
        path: The table.
        count: At least 1.

    Raises:
        StoreError: There is no such table, or it is damaged.
    """
    step = max(count_rows(path) // count, 1)
    wanted = range(0, step * count, step)
    texts: list[str] = []
    first = 0
    for batch in iter_batches(path, [TEXT]):
        column = batch.column(TEXT)
        places = range(-first % step, batch.num_rows, step)
        texts += [column[place].as_py() for place in places if first + place in wanted]
        first += batch.num_rows
    return texts


def write_memory_vectors(night: Night, face: Face) -> Filled:
    """Write the vector of every memory, by position; only unknown texts are embedded.

    Returns:
        Distinct texts embedded now, and those whose vector was known.

    Raises:
        EncoderError: The encoder fails; what it gave before is kept.
        StoreError: The memories' table is missing or damaged.
    """
    kind = vector_kind(night, face)
    return _through_memo(night, face) if kind is None else _through_fragments(night, face, kind)


def _through_fragments(night: Night, face: Face, kind: str) -> Filled:
    path, memories = night.work(VECTORS), night.work(MEMORIES)
    rows, dimension = count_rows(memories), night.fingerprint().dimension
    filled = fill_vectors(night, face, keyed_batches(memories), rows)
    store = night.fragments(kind)
    unusable = write_vectors(path, store, _iter_keys(memories), rows, dimension)
    if not unusable:
        return filled
    # Damage that no checksum saw, or a fragment of an older version: those texts are embedded once
    # more.
    store.forget(unusable)
    again = fill_vectors(night, face, keyed_batches(memories), rows)
    store = night.fragments(kind)
    if unusable := write_vectors(path, store, _iter_keys(memories), rows, dimension):
        path.unlink()
        raise EncoderError(
            f"{len(set(unusable))} memories got no finite vector of {dimension} numbers, twice. "
            f"Delete {night.paths.encoders} and run the night again: the model is exported anew."
        )
    computed = filled.computed + again.computed
    return Filled(computed, again.computed + again.reused - computed)


def _through_memo(night: Night, face: Face) -> Filled:
    batches = iter_batches(night.work(MEMORIES), [TEXT])
    texts: list[str] = [text for batch in batches for text in batch.column(TEXT).to_pylist()]
    fingerprint = night.fingerprint()
    with Memo.open(night.paths.memo) as memo:
        filled = fill_memo(
            texts,
            memo,
            fingerprint,
            lambda: face.opened(night, texts),
            night.progress,
            face=face.tag,
            batches_per_write=face.batches_per_write,
        )
        blocks = iter_known(texts, memo, fingerprint, face.tag)
        shape = (len(texts), fingerprint.dimension)
        write_array_blocks(night.work(VECTORS), shape, "<f4", blocks)
    return Filled(filled.computed, filled.reused)


def _iter_keys(memories: Path) -> Iterator[Sequence[bytes]]:
    return (batch.column(KEY).to_pylist() for batch in keyed_batches(memories))


# Stages memory_vectors, query_encoder and vector_tiers.


MEMORY_VECTORS = Stage("memory_vectors", "2", (VECTORS,))
QUERY_ENCODER = Stage("query_encoder", "2")
VECTOR_TIERS = Stage("vector_tiers", "2")
# Within vector_tiers, which runs on every night: what needs no look at the tables is kept.
EXIT_THRESHOLDS = Stage("exit_thresholds", "1")

# Texts on which the exported query encoder must agree with the original; spread over the corpus.
_PARITY_SAMPLE = 16

LEAN, ONNX = "numpy", "ONNX Runtime"
"""What encodes questions on the read side, as the facts of query_encoder say it."""


def embed_memories(night: Night) -> StageResult:
    """Embed the content of every memory; unchanged texts come from the memo."""
    corpus = night.result_of(CORPUS)
    fingerprint = night.fingerprint()
    notes: dict[str, Any] = {"texts_embedded": 0, "texts_reused": 0}

    def body() -> tuple[int, dict[str, Any]]:
        face = tonights_face(night)
        embedded = write_memory_vectors(night, face)
        notes.update(texts_embedded=embedded.computed, texts_reused=embedded.reused)
        if face.tag in HOSTED:
            notes.update(night.hosted_encoder().spending.to_notes())
        elif face.tag:
            notes.update(onnx_min_cosine=face.min_cosine)
        return count_rows(night.work(MEMORIES)), {
            "dimension": fingerprint.dimension,
            "fingerprint": fingerprint.digest,
            **face.to_facts(),
        }

    inputs = {
        "corpus": corpus.digest,
        "fingerprint": fingerprint.digest,
        # Another runtime rounds differently, and may accept a model that this one declined.
        "toolchain": toolchain(),
    }
    result = night.run(MEMORY_VECTORS, inputs, body)
    if result.reused:
        notes["texts_reused"] = result.rows
    return night.finish(result.with_notes(**notes))


def tonights_face(night: Night) -> Face:
    """Return what embeds the memories of the last export; exports a model that is new or was lost.

    Raises:
        EncoderError: The model cannot be loaded.
        StoreError: There is no export yet, or it is damaged.
    """
    return choose_face(night, sample_texts(night.work(MEMORIES), AGREEMENT_SAMPLE))


def chosen_face(night: Night) -> Face:
    """Return which implementation made the memory vectors, so that later stages use it too.

    Raises:
        StoreError: If they were not made yet.
    """
    return face_of(night.result_of(MEMORY_VECTORS).facts)


def export_query_encoder(night: Night) -> StageResult:
    """Export the encoder for the read side, where torch is not imported.

    A model that the lean encoder cannot read is left to its ONNX export; a hosted one is described.
    Before hours of embedding: what is published must be able to encode a question.

    Raises:
        EncoderError: Neither can encode a question as the model does.
    """
    if night.settings.encoder.provider in HOSTED:
        return _describe_hosted(night, hosted_model(night.settings.encoder))
    fingerprint = night.fingerprint()
    directory = night.paths.encoders / fingerprint.digest

    def body() -> tuple[int, dict[str, Any]]:
        face, texts = tonights_face(night), sample_texts(night.work(MEMORIES), _PARITY_SAMPLE)
        try:
            export = export_lean(night.encoder(), directory, texts)
        except EncoderError as error:
            if not face.tag:
                raise EncoderError(
                    f"{night.settings.encoder.model} can embed memories, but nothing could encode "
                    f"a question for it, so nothing was embedded. The numpy encoder: {error} ONNX "
                    f"Runtime: {face.declined} Set encoder.model to another model "
                    "(docs/encoders.md)."
                ) from None
            remove_tree(directory)
            return 1, {
                "encoded_by": ONNX,
                "lean_declined": str(error),
                "min_cosine": face.min_cosine,
            }
        return 1, {
            "encoded_by": LEAN,
            "min_cosine": round(export.min_cosine, 7),
            "sampled_texts": len(texts),
        }

    known = load_result(night.paths.work, QUERY_ENCODER)
    if known is not None:
        is_lean = known.facts.get("encoded_by") == LEAN
        export = onnx_directory(night.paths.encoders, fingerprint)
        if not (directory.is_dir() if is_lean else known_header(export, fingerprint)):
            forget_result(night.paths.work, QUERY_ENCODER)
    inputs = {"fingerprint": fingerprint.digest}
    return night.finish(night.run(QUERY_ENCODER, inputs, body, places=(directory,)))


def _describe_hosted(night: Night, model: HostedModel) -> StageResult:
    """Write by which model recall encodes queries, and where it is asked."""
    fingerprint = model.fingerprint()
    directory = night.paths.encoders / fingerprint.digest

    def body() -> tuple[int, dict[str, Any]]:
        write_description(directory, model)
        return 1, {"hosted": model.title}

    if not (directory / HOSTED_FILE).is_file():
        forget_result(night.paths.work, QUERY_ENCODER)
    inputs = {"fingerprint": fingerprint.digest, "hosted": model.describe()}
    return night.finish(night.run(QUERY_ENCODER, inputs, body, places=(directory,)))


def sync_vector_tiers(night: Night) -> StageResult:
    """Make the LanceDB tables equal to the vectors.

    They are checked on disk even when nothing changed.
    """
    vectors_result = night.result_of(MEMORY_VECTORS)
    fingerprint = night.fingerprint()
    report: list[TierReport] = []

    def body() -> tuple[int, dict[str, Any]]:
        vectors = read_array(night.work(VECTORS))
        home = TableHome(night.paths.lance, night.settings.tiers.uri)
        rotation = fit_or_load(
            night.paths.rotations / fingerprint.digest, vectors, fingerprint.digest
        )
        if night.paths.purge_pending.exists():
            # LanceDB keeps the bytes of deleted rows until it compacts; a vector can tell its text.
            home.remove_all()
        dims = (night.settings.tiers.small_dims, night.settings.tiers.medium_dims)
        ids = read_column(night.work(MEMORIES), "memory_id")
        synced = sync_tiers(
            home,
            ids,
            read_column(night.work(MEMORIES), "content_hash"),
            vectors,
            rotation,
            dims,
            runner=night.runner(),
            progress=night.progress,
        )
        report.append(synced)
        matches = tiers_match(home, ids)
        if night.settings.tiers.uri:
            # Tables that no night keeps up to date would keep what is forgotten.
            remove_tree(night.paths.lance)
        exits = _exit_thresholds(night, vectors_result.digest, vectors, rotation, dims)
        return len(ids), {
            **_tier_facts(synced),
            "faults": {m.name: m.orphans + m.missing + m.duplicates for m in matches},
            "exits": exits,
            "rotation": rotation.digest,
            "rotation_fitted_on": rotation.fitted_on,
            "rotation_note": rotation.reason or "fitted and frozen",
        }

    # LanceDB does not fsync and may have been damaged since: the tables are compared on every
    # night.
    inputs = {"vectors": vectors_result.digest}
    places = (night.paths.lance, night.paths.rotations)
    result = night.run(VECTOR_TIERS, inputs, body, always=True, places=places)
    return night.finish(result.with_notes(**_tier_notes(report)))


def _tier_facts(synced: TierReport) -> dict[str, Any]:
    """Return what the gate and the pack ask of the tables, by table."""
    return {
        "rows": {t.name: t.rows for t in synced.tiers},
        "dims": {t.name: t.dim for t in synced.tiers},
        "index": {t.name: t.index for t in synced.tiers},
        "unindexed_rows": {t.name: t.unindexed_rows for t in synced.tiers},
    }


def _tier_notes(report: Sequence[TierReport]) -> dict[str, Any]:
    """Return what was done to the tables tonight; the report is empty where nothing was."""
    tiers = [tier for synced in report for tier in synced.tiers]
    return {
        "rows_written": sum(t.inserted + t.updated + t.deleted for t in tiers),
        "rebuilt": {t.name: t.reason for t in tiers if t.action == "rebuilt"},
        # A table that was lost is written anew like one of a first night.
        "created": {t.name: t.reason for t in tiers if t.action == "created"},
        "dropped_tables": ", ".join(name for synced in report for name in synced.dropped),
    }


def _exit_thresholds(
    night: Night,
    vectors_digest: str,
    vectors: NDArray[np.float32],
    rotation: Rotation,
    dims: tuple[int, ...],
) -> dict[str, Any]:
    """Return the exit threshold of each short tier; derived again only from other vectors."""

    def body() -> tuple[int, dict[str, Any]]:
        found = derive_thresholds(vectors, rotation, dims)
        return len(found), {str(dim): threshold.to_json() for dim, threshold in found.items()}

    inputs = {
        "vectors": vectors_digest,
        "rotation": rotation.digest,
        "dims": list(dims),
        "rules": dict(RULES),
    }
    return run_stage(night.paths.work, EXIT_THRESHOLDS, inputs, body).facts


# Stage lexical_index: tokens kept per memory, postings rebuilt when the corpus changed.


LEXICAL_INDEX = Stage("lexical_index", "1", (POSTING_TERMS, *POSTING_ARRAYS))


def index_memories(night: Night) -> StageResult:
    """Build the BM25 postings of the corpus."""
    corpus = night.result_of(CORPUS)
    counts = {"computed": 0}

    def body() -> tuple[int, dict[str, Any]]:
        tokens = night.fragments(TOKENS_KIND)
        task, rows = TokenizeMemories(), count_rows(night.work(MEMORIES))
        counts["computed"] = fill(
            tokens,
            iter_keyed(night.work(MEMORIES)),
            task,
            night.runner(),
            night.shards(task.name),
            night.progress,
        ).computed
        postings = build_postings(_kept_tokens(night, tokens))
        write_text(night.work(POSTING_TERMS), json.dumps(postings.terms, ensure_ascii=False))
        arrays = (postings.starts, postings.positions, postings.scores)
        for name, array in zip(POSTING_ARRAYS, arrays, strict=True):
            write_array(night.work(name), array)
        held = np.zeros(rows, dtype=np.bool_)
        held[postings.positions] = True
        return rows, {
            "terms": len(postings.terms),
            "postings": int(postings.positions.size),
            "memories_without_tokens": rows - int(held.sum()),
        }

    result = night.run(
        LEXICAL_INDEX, {"corpus": corpus.digest, "tokenizer": str(TOKENIZER_VERSION)}, body
    )
    return night.finish(result.with_notes(texts_tokenized=counts["computed"]))


def load_postings(night: Night) -> Postings:
    """Read the postings that the stage wrote."""
    starts, positions, scores = (read_array(night.work(name)) for name in POSTING_ARRAYS)
    return Postings(
        terms=json.loads(night.work(POSTING_TERMS).read_text(encoding="utf-8")),
        starts=starts,
        positions=positions,
        scores=scores,
        n_memories=night.result_of(LEXICAL_INDEX).rows,
    )


def _kept_tokens(night: Night, tokens: FragmentStore) -> Iterator[bytes]:
    """Yield every memory's tokens, by position."""
    for batch in iter_keyed(night.work(MEMORIES)):
        yield from tokens.take(tokens.find(batch.column(KEY).to_pylist())).to_pylist()
