"""Group index: vectors and their tiers, the query encoder, postings, what was recalled."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np

from noctuary.core.errors import EncoderError
from noctuary.core.files import (
    hash_file,
    read_array,
    remove_tree,
    replacement,
    write_array,
    write_text,
)
from noctuary.embed.documents import (
    SHARD_ROWS,
    TEXT,
    EmbedTexts,
    fill_vectors,
    keyed_texts,
    lacking_vectors,
    write_vectors,
)
from noctuary.embed.hosted import HOSTED_FILE, HostedModel, hosted_model, write_description
from noctuary.embed.lean_export import export_lean
from noctuary.embed.onnx import known_header, onnx_directory, toolchain
from noctuary.embed.rotation import Rotation, count_bad_rows, fit_or_load
from noctuary.embed.tables import TableHome
from noctuary.embed.tiers import RULES, TierReport, derive_thresholds, sync_tiers, tiers_match
from noctuary.lexical.build import (
    TOKENS_KIND,
    Postings,
    TokenizeMemories,
    build_postings,
    iter_keyed,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.snapshot.content_checks import UNIT_NORM_TOLERANCE
from noctuary.sources.corpus import (
    MemoryPage,
    count_rows,
    iter_batches,
    iter_pages,
    read_column,
)
from noctuary.text.tokens import TOKENIZER_VERSION
from noctuary.usage.statistics import (
    RETENTION_DAYS,
    AccessStatistics,
    Fold,
    Mark,
    ScanReport,
    ScoringRules,
    Window,
    count_window,
    fold_access_log_on,
    prune_access_log,
    read_folded,
    refresh_scores,
    write_usage,
)
from noctuary.work.content import KEY, ContentStore, Filled, fill
from noctuary.work.shards import RecordBatch
from noctuary.work.stage import (
    Stage,
    StageOutput,
    StageResult,
    forget_result,
    load_result,
    run_stage,
)
from noctuary_assets import ingest
from noctuary_assets.ingest import CORPUS
from noctuary_assets.night import (
    ACCESS,
    AGREEMENT_SAMPLE,
    HOSTED,
    MEMORIES,
    POSTING_ARRAYS,
    POSTING_TERMS,
    VECTORS,
    Face,
    Night,
    choose_face,
    face_of,
    face_store,
    store_profile,
)
from noctuary_assets.reporting import judge, report_stage
from noctuary_assets.workers import Workers

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Stages lexical_index, memory_vectors, query_encoder and vector_tiers.


# The vectors of all memories: where tonight's face keeps them, and writing them row by row.


SHARDS_OF_A_NIGHT = 30
"""Shards that a night's memories are cut into, as long as these are not too large or small: a kill
loses one. They are one wave, so that the model is opened once."""

LEAST_SHARD_ROWS = 32
"""A third of a second with the default model on two cores; fewer spend it on files."""


def keyed_batches(memories: Path) -> Iterator[RecordBatch]:
    """Yield `key` and `content` of every memory of a table, in its order.

    Raises:
        StoreError: The table is missing or damaged.
    """
    return map(keyed_texts, iter_batches(memories, [TEXT]))


def fill_store(night: Night, face: Face, store: ContentStore) -> Filled:
    """Embed the memories whose vector the store lacks; each distinct text once.

    ONNX Runtime works through shards. Other encoders take all texts at once: sentence-transformers
    sorts them by length, a hosted model fills its batches.

    Raises:
        EncoderError: The encoder fails; what it gave before is kept.
        StoreError: The memories' table is missing or damaged.
    """
    memories = night.work(MEMORIES)
    if face.is_onnx:
        task = EmbedTexts(onnx_directory(night.paths.encoders, night.fingerprint()))
        total = count_rows(memories)
        return fill(
            store,
            keyed_batches(memories),
            task,
            night.runner(),
            night.shards(task.name),
            night.progress,
            total=total,
            shard_rows=_shard_rows(total),
        )
    batches = iter_batches(memories, [TEXT])
    texts: list[str] = [text for batch in batches for text in batch.column(TEXT).to_pylist()]
    return fill_vectors(
        texts,
        store,
        night.fingerprint(),
        lambda: face.opened(night, texts),
        night.progress,
        batches_per_write=face.batches_per_write,
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
    path, memories = night.work(VECTORS), night.work(MEMORIES)
    rows, dimension = count_rows(memories), night.fingerprint().dimension
    store = face_store(night, face)
    filled = fill_store(night, face, store)
    unusable = write_vectors(path, store, _iter_keys(memories), rows, dimension)
    if unusable and face.is_onnx:
        # Damage that no checksum saw: those texts are embedded once more.
        store.forget(unusable)
        again = fill_store(night, face, store)
        unusable = write_vectors(path, store, _iter_keys(memories), rows, dimension)
        computed = filled.computed + again.computed
        filled = Filled(computed, again.computed + again.reused - computed)
    if unusable:
        path.unlink()
        raise lacking_vectors(len(set(unusable)), night.fingerprint())
    return filled


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
    """Embed the content of every memory; unchanged texts are not embedded again."""
    corpus = night.result_of(CORPUS)
    fingerprint = night.fingerprint()

    def body() -> StageOutput:
        face = tonights_face(night)
        embedded = write_memory_vectors(night, face)
        notes: dict[str, Any] = {
            "texts_embedded": embedded.computed,
            "texts_reused": embedded.reused,
        }
        if face.tag in HOSTED:
            notes.update(night.hosted_encoder().spending.to_notes())
        elif face.tag:
            notes["onnx_min_cosine"] = face.min_cosine
        facts = {
            "dimension": fingerprint.dimension,
            "fingerprint": fingerprint.digest,
            **face.to_facts(),
        }
        return StageOutput(count_rows(night.work(MEMORIES)), facts, notes)

    inputs = {
        "corpus": corpus.digest,
        "fingerprint": fingerprint.digest,
        # Another runtime rounds differently, and may accept a model that this one declined.
        "toolchain": toolchain(),
    }
    return night.finish(night.run(MEMORY_VECTORS, inputs, body))


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

    def body() -> StageOutput:
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
            facts = {
                "encoded_by": ONNX,
                "lean_declined": str(error),
                "min_cosine": face.min_cosine,
            }
            return StageOutput(1, facts)
        facts = {
            "encoded_by": LEAN,
            "min_cosine": round(export.min_cosine, 7),
            "sampled_texts": len(texts),
        }
        return StageOutput(1, facts)

    known = load_result(night.paths.work, QUERY_ENCODER)
    if known is not None:
        is_lean = known.facts.get("encoded_by") == LEAN
        export = onnx_directory(night.paths.encoders, fingerprint)
        if not (directory.is_dir() if is_lean else known_header(export, fingerprint)):
            forget_result(night.paths.work, QUERY_ENCODER)
    inputs = {"fingerprint": fingerprint.digest}
    result = night.run(QUERY_ENCODER, inputs, body, places=(directory,))
    for export in (directory, onnx_directory(night.paths.encoders, fingerprint)):
        share_files(export, night.paths.root.parent)
    return night.finish(result)


def share_files(directory: Path, home: Path) -> None:
    """Keep files of an encoder that another store of this home holds as well once on disk.

    By hard links to the oldest, so that every store stays whole: it can be moved, mended or removed
    without the others. An encoder is written beside its place and renamed, never changed in it.

    Args:
        directory: An encoder of a store; need not exist.
        home: The directory that holds the stores.
    """
    for file in directory.glob("*"):
        for twin in home.glob(f"*/{directory.parent.name}/{directory.name}/{file.name}"):
            with suppress(OSError):  # it goes at this moment, or lies on another disk
                if _is_older(twin.stat(), file.stat()) and hash_file(twin) == hash_file(file):
                    _link(file, twin)


def _is_older(one: os.stat_result, other: os.stat_result) -> bool:
    """Say whether one of two files of equal size is the older one; a file is not older than itself.

    All stores agree on an order, or two would take each other's place every night.
    """
    order = [(found.st_mtime_ns, found.st_ino) for found in (one, other)]
    return one.st_size == other.st_size and order[0] < order[1]


def _link(file: Path, twin: Path) -> None:
    with replacement(file) as tmp:
        tmp.unlink()
        tmp.hardlink_to(twin)


def _describe_hosted(night: Night, model: HostedModel) -> StageResult:
    """Write by which model recall encodes queries, and where it is asked."""
    fingerprint = model.fingerprint()
    directory = night.paths.encoders / fingerprint.digest

    def body() -> StageOutput:
        write_description(directory, model)
        return StageOutput(1, {"hosted": model.title})

    if not (directory / HOSTED_FILE).is_file():
        forget_result(night.paths.work, QUERY_ENCODER)
    inputs = {"fingerprint": fingerprint.digest, "hosted": model.describe()}
    return night.finish(night.run(QUERY_ENCODER, inputs, body, places=(directory,)))


def sync_vector_tiers(night: Night) -> StageResult:
    """Make the LanceDB tables equal to the vectors.

    LanceDB does not fsync: where the last night does not vouch for every file, they are compared
    even when nothing changed.
    """
    vectors_result = night.result_of(MEMORY_VECTORS)
    fingerprint, uri = night.fingerprint(), night.settings.tiers.uri
    dims = (night.settings.tiers.small_dims, night.settings.tiers.medium_dims)

    def body() -> StageOutput:
        vectors = read_array(night.work(VECTORS))
        home = TableHome(night.paths.lance, uri)
        rotation = fit_or_load(
            night.paths.rotations / fingerprint.digest, vectors, fingerprint.digest
        )
        if night.paths.purge_pending.exists():
            # LanceDB keeps the bytes of deleted rows until it compacts; a vector can tell its text.
            home.remove_all()
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
        matches = tiers_match(home, ids)
        if uri:
            # Tables that no night keeps up to date would keep what is forgotten.
            remove_tree(night.paths.lance)
        exits = _exit_thresholds(night, vectors_result.digest, vectors, rotation, dims)
        facts = {
            **_tier_facts(synced),
            "faults": {m.name: m.orphans + m.missing + m.duplicates for m in matches},
            "exits": exits,
            "rotation": rotation.digest,
            "rotation_fitted_on": rotation.fitted_on,
            "rotation_note": rotation.reason or "fitted and frozen",
        }
        return StageOutput(len(ids), facts, _tier_notes(synced))

    inputs = {
        "corpus": night.result_of(CORPUS).digest,
        "vectors": vectors_result.digest,
        "dims": list(dims),
        "uri": uri,
    }
    # Files of an object store are in no ledger.
    held = night.tables_hold and not (uri or night.paths.purge_pending.exists())
    places = (night.paths.lance, night.paths.rotations)
    return night.finish(night.run(VECTOR_TIERS, inputs, body, always=not held, places=places))


def _tier_facts(synced: TierReport) -> dict[str, Any]:
    """Return what the gate and the pack ask of the tables, by table."""
    return {
        "rows": {t.name: t.rows for t in synced.tiers},
        "dims": {t.name: t.dim for t in synced.tiers},
        "index": {t.name: t.index for t in synced.tiers},
        "unindexed_rows": {t.name: t.unindexed_rows for t in synced.tiers},
    }


def _tier_notes(synced: TierReport) -> dict[str, Any]:
    """Return what was done to the tables tonight."""
    tiers = synced.tiers
    return {
        "rows_written": sum(t.inserted + t.updated + t.deleted for t in tiers),
        "rebuilt": {t.name: t.reason for t in tiers if t.action == "rebuilt"},
        # A table that was lost is written anew like one of a first night.
        "created": {t.name: t.reason for t in tiers if t.action == "created"},
        "dropped_tables": ", ".join(synced.dropped),
    }


def _exit_thresholds(
    night: Night,
    vectors_digest: str,
    vectors: NDArray[np.float32],
    rotation: Rotation,
    dims: tuple[int, ...],
) -> dict[str, Any]:
    """Return the exit threshold of each short tier; derived again only from other vectors."""

    def body() -> StageOutput:
        found = derive_thresholds(vectors, rotation, dims)
        facts = {str(dim): threshold.to_json() for dim, threshold in found.items()}
        return StageOutput(len(found), facts)

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

    def body() -> StageOutput:
        tokens = night.content(TOKENS_KIND)
        task, rows = TokenizeMemories(), count_rows(night.work(MEMORIES))
        filled = fill(
            tokens,
            iter_keyed(night.work(MEMORIES)),
            task,
            night.runner(),
            night.shards(task.name),
            night.progress,
        )
        postings = build_postings(_kept_tokens(night, tokens))
        write_text(night.work(POSTING_TERMS), json.dumps(postings.terms, ensure_ascii=False))
        arrays = (postings.starts, postings.positions, postings.scores)
        for name, array in zip(POSTING_ARRAYS, arrays, strict=True):
            write_array(night.work(name), array)
        held = np.zeros(rows, dtype=np.bool_)
        held[postings.positions] = True
        facts = {
            "terms": len(postings.terms),
            "postings": int(postings.positions.size),
            "memories_without_tokens": rows - int(held.sum()),
        }
        return StageOutput(rows, facts, {"texts_tokenized": filled.computed})

    inputs = {"corpus": corpus.digest, "tokenizer": str(TOKENIZER_VERSION)}
    return night.finish(night.run(LEXICAL_INDEX, inputs, body))


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


def _kept_tokens(night: Night, tokens: ContentStore) -> Iterator[bytes]:
    """Yield every memory's tokens, by position."""
    for batch in iter_keyed(night.work(MEMORIES)):
        yield from tokens.take(tokens.find(batch.column(KEY).to_pylist())).to_pylist()


# Stages access_statistics and ltp_scores.


# Stage access_statistics.


# The sums that the next night goes on from. Not an output: losing it costs a full fold of what the
# log still holds, nothing else.
FOLDED = "usage/folded.json"

ACCESS_STATISTICS = Stage("access_statistics", "3", (ACCESS,))

_DAY_US = 86_400_000_000

_IDS_AT_ONCE = 50_000
"""Ids read at once; only their set is kept."""


def fold_accesses(night: Night) -> StageResult:
    """Fold what recall appended since last night, and count what recall may know about use."""
    corpus = night.result_of(CORPUS)

    def body() -> StageOutput:
        ids = {m for p in iter_pages(night.work(MEMORIES), _IDS_AT_ONCE) for m in p.memory_ids}
        fold = fold_access_log_on(read_folded(night.work(FOLDED)), night.paths.access_log, ids)
        # The sums with their mark first, in one file: killed anywhere, no row counts twice, and
        # none is deleted that is not counted.
        write_text(night.work(FOLDED), fold.folded.to_json())
        _write_rows(night, fold.statistics)
        usage = _count_use(night, fold, ids)
        pruned, fault = _prune(night, fold.folded.mark, fold.statistics.fault)
        facts = {
            "retrievals": sum(n for n, _ in fold.statistics.by_memory.values()),
            "orphaned_retrievals": fold.statistics.orphaned,
            "fault": fault,
            **usage,
        }
        notes = {"rows_folded": fold.rows, "rows_pruned": pruned}
        return StageOutput(len(fold.statistics.by_memory), facts, notes)

    # The log is the outside world: it is folded on every night.
    result = night.run(
        ACCESS_STATISTICS,
        {"corpus": corpus.digest},
        body,
        always=True,
        places=[night.paths.usage],
    )
    return night.finish(result)


def _write_rows(night: Night, statistics: AccessStatistics) -> None:
    rows = {
        m: {"retrievals": n, "last_accessed_us": at} for m, (n, at) in statistics.by_memory.items()
    }
    write_text(night.work(ACCESS), json.dumps(rows, sort_keys=True) + "\n")


def _count_use(night: Night, fold: Fold, known: Collection[str]) -> dict[str, Any]:
    """Write usage.sqlite; without a readable log it holds the sums alone."""
    as_of_us = time.time_ns() // 1000
    # Beyond the retention there are no single rows to count.
    window_days = min(store_profile(night).ltp_window_days, RETENTION_DAYS)
    window = Window()
    if fold.statistics.fault is None:
        try:
            window = count_window(
                night.paths.access_log,
                fold.folded.mark,
                known,
                recent_since_us=as_of_us - window_days * _DAY_US,
                pairs_since_us=as_of_us - RETENTION_DAYS * _DAY_US,
            )
        except sqlite3.Error:
            # Removed or replaced since it was folded: the next night counts the new one.
            window = Window()
    digest = write_usage(
        night.paths.usage,
        fold.folded,
        window,
        known,
        window_days=window_days,
        as_of_us=as_of_us,
    )
    return {
        "usage_digest": digest,
        "window_days": window_days,
        "recalled_in_window": len(window.recent),
        "co_retrieved_pairs": len(window.pairs),
        "co_retrieved_pairs_left_out": window.pairs_left_out,
    }


def _prune(night: Night, folded: Mark, fault: str | None) -> tuple[int, str | None]:
    """Delete what is old and folded; a log that could not be read is left alone."""
    if fault is not None:
        return 0, fault
    now_us = time.time_ns() // 1000
    return prune_access_log(night.paths.access_log, folded=folded, now_us=now_us)


# Stage ltp_scores: every memory's score by use, scanned in batches.


# Its output is the store's usage.sqlite, outside the work directory.
LTP_SCORES = Stage("ltp_scores", "1")


def score_memories(night: Night) -> StageResult:
    """Scan the corpus and write what differs; every night, because windows and decay move on."""
    profile = store_profile(night)
    rules = scoring_rules(profile)
    inputs = {
        "corpus": night.result_of(CORPUS).digest,
        "usage": night.result_of(ACCESS_STATISTICS).facts["usage_digest"],
        "rules": rules.to_json(),
        "paginated_scoring": profile.paginated_scoring,
    }

    def body() -> StageOutput:
        report = _scan(night, rules, paginated=profile.paginated_scoring)
        facts = {
            "memories": report.total,
            "memories_in_use": report.in_use,
            "not_scanned": report.not_scanned,
        }
        return StageOutput(report.total, facts, _notes(report))

    result = night.run(LTP_SCORES, inputs, body, always=True, places=[night.paths.usage])
    # What is written is in no output file that the stage could compare.
    unchanged = result.reused and result.notes["ltp_updated"] == 0
    return night.finish(replace(result, reused=unchanged))


def scoring_rules(profile: RetrievalProfile) -> ScoringRules:
    """Return what a profile says about scoring."""
    return ScoringRules(
        batch_size=profile.batch_size,
        max_scan_depth=profile.max_scan_depth,
        max_boost=profile.ltp_max_boost,
        decay_lambda=profile.decay_lambda if profile.decay_enabled else 0.0,
    )


def _scan(night: Night, rules: ScoringRules, *, paginated: bool) -> ScanReport:
    """Scan in batches; with paginated_scoring off as a single one."""
    memories = night.work(MEMORIES)
    total = count_rows(memories)
    size = rules.batch_size if paginated else max(total, 1)

    def read(first: int, stop: int) -> Iterator[MemoryPage]:
        return iter_pages(memories, size, first=first, stop=stop)

    as_of_us = time.time_ns() // 1000
    return refresh_scores(night.paths.usage, total, read, rules, as_of_us=as_of_us)


def _notes(report: ScanReport) -> dict[str, Any]:
    updated = sum(report.updated)
    return {
        "ltp_updated": updated,
        "ltp_skipped_unchanged": report.scanned - updated,
        "warning": report.warning,
        "hook_faults": "; ".join(report.hook_faults) or None,
        "paginated_scoring": report.timings.report(),
        "pagination_state": report.pagination_state(),
        "batches": {"batches": report.batches()},
    }


@dg.asset(
    deps=[ingest.memories],
    kinds={"numpy"},
    code_version=QUERY_ENCODER.version,
)
def query_encoder(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """The same model for the read side, without torch; agreement with the original is measured."""
    return report_stage(night, export_query_encoder(night))


@dg.asset(
    deps=[ingest.memories, query_encoder],
    kinds={"numpy", "onnx"},
    code_version=MEMORY_VECTORS.version,
)
def memory_vectors(night: dg.ResourceParam[Night], workers: Workers) -> dg.MaterializeResult[Any]:
    """One unit vector per memory, memoised by content, encoder and implementation."""
    return report_stage(night, embed_memories(night))


@dg.asset_check(asset=memory_vectors, blocking=True)
def every_memory_vector_is_finite_and_unit(night: dg.ResourceParam[Night]) -> dg.AssetCheckResult:
    """No vector holds NaN or has a length other than 1."""
    vectors = read_array(night.work(VECTORS))
    bad = count_bad_rows(vectors, UNIT_NORM_TOLERANCE)
    return judge(night, MEMORY_VECTORS, bad == 0, {"rows": len(vectors), "bad_rows": bad})


_TIER_CHECKS = {
    "every_tier_holds_every_memory_once": (
        "faults",
        "No tier row lacks its memory and no memory lacks its tier row.",
    ),
    "no_tier_has_unindexed_rows": ("unindexed_rows", "Every index covers every row."),
}


@dg.asset(
    deps=[memory_vectors],
    kinds={"lancedb"},
    code_version=VECTOR_TIERS.version,
    check_specs=[
        dg.AssetCheckSpec(name, asset="vector_tiers", description=said, blocking=True)
        for name, (_, said) in _TIER_CHECKS.items()
    ],
)
def vector_tiers(night: dg.ResourceParam[Night], workers: Workers) -> Iterator[Any]:
    """LanceDB tables of rotated prefixes (64, 256, full).

    A rebuildable projection of memory_vectors.
    """
    result = sync_vector_tiers(night)
    yield report_stage(night, result)
    for name, (fact, _) in _TIER_CHECKS.items():
        found = result.facts[fact]
        yield judge(night, VECTOR_TIERS, not any(found.values()), {fact: found}, check_name=name)


@dg.asset(
    deps=[ingest.memories],
    kinds={"numpy"},
    code_version=LEXICAL_INDEX.version,
)
def lexical_index(night: dg.ResourceParam[Night], workers: Workers) -> dg.MaterializeResult[Any]:
    """BM25 scores of every term in every memory, computed ahead of the query."""
    return report_stage(night, index_memories(night))


@dg.asset(
    deps=[ingest.memories],
    kinds={"sqlite"},
    code_version=ACCESS_STATISTICS.version,
)
def access_statistics(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """Retrievals and last access per memory, folded from the access log.

    With them recall's usage.sqlite: recent retrievals, days, and what was recalled together.
    """
    return report_stage(night, fold_accesses(night))


@dg.asset(
    deps=[ingest.memories, access_statistics],
    kinds={"sqlite"},
    code_version=LTP_SCORES.version,
)
def ltp_scores(night: dg.ResourceParam[Night]) -> dg.MaterializeResult[Any]:
    """LTP multiplier, score in [0, 1] and last access of every memory, scanned in batches."""
    return report_stage(night, score_memories(night))
