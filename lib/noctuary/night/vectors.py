"""Stages memory_vectors, query_encoder and vector_tiers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from noctuary.corpus.columns import count_rows, read_column
from noctuary.encode.export import export_lean
from noctuary.encode.hosted.model import (
    HOSTED_FILE,
    HostedModel,
    hosted_model,
    write_description,
)
from noctuary.encode.onnx_export import known_header
from noctuary.encode.onnx_format import onnx_directory, toolchain
from noctuary.errors import EncoderError
from noctuary.files import read_array, remove_tree
from noctuary.night.context import MEMORIES, VECTORS, Night
from noctuary.night.corpus import CORPUS
from noctuary.night.embedding import (
    AGREEMENT_SAMPLE,
    HOSTED,
    Face,
    choose_face,
    face_of,
)
from noctuary.night.vector_rows import sample_texts, write_memory_vectors
from noctuary.vectors.lance import TableHome
from noctuary.vectors.rotation import Rotation, fit_or_load
from noctuary.vectors.thresholds import RULES, derive_thresholds
from noctuary.vectors.tiers import TierReport, sync_tiers, tiers_match
from noctuary.work.stage import Stage, StageResult, forget_result, load_result, run_stage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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
