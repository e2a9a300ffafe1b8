"""Group index: vectors and their tiers, the query encoder, postings, what was recalled."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import numpy as np

from noctuary.core.errors import EncoderError
from noctuary.core.files import read_array, remove_tree
from noctuary.embed.default_model import DEFAULT_MODEL
from noctuary.embed.documents import Backend, sample_texts, share_files
from noctuary.embed.hosted import HOSTED_FILE, hosted_model, write_description
from noctuary.embed.lean import read_header
from noctuary.embed.multilingual import MULTILINGUAL_MODEL
from noctuary.embed.onnx import known_header, toolchain
from noctuary.embed.rotation import (
    RULES,
    Rotation,
    count_bad_rows,
    derive_thresholds,
    fit_or_load,
)
from noctuary.embed.tiers import TableHome, sync_tiers, tiers_match
from noctuary.lexical.build import (
    POSTING_FILES,
    TOKENS_KIND,
    Postings,
    TokenizeMemories,
    build_postings,
    choose_words,
    iter_keyed,
    iter_tokens,
    read_postings,
    write_postings,
)
from noctuary.recall.profile import RetrievalProfile
from noctuary.snapshot.content_checks import UNIT_NORM_TOLERANCE
from noctuary.sources.corpus import count_rows, read_column
from noctuary.text.tokens import TOKENIZER_VERSION, Script, dominant_script
from noctuary.usage.reader import LTP_WINDOW_DAYS
from noctuary.usage.statistics import ScoringRules, fold_usage, refresh_scores
from noctuary.work.content import fill
from noctuary.work.stage import (
    Stage,
    StageOutput,
    StageResult,
    forget_result,
    load_result,
    run_stage,
)
from noctuary_assets.ingest import CORPUS
from noctuary_assets.night import MEMORIES, POSTINGS, VECTORS, Night, store_profile
from noctuary_assets.reporting import Workers, judge, report_stage, stage_asset

if TYPE_CHECKING:
    from numpy.typing import NDArray

MEMORY_VECTORS = Stage("memory_vectors", "2", (VECTORS,))
QUERY_ENCODER = Stage("query_encoder", "2")
VECTOR_TIERS = Stage("vector_tiers", "3")
# Within vector_tiers, which runs on every night: what needs no look at the tables is kept.
EXIT_THRESHOLDS = Stage("exit_thresholds", "1")

LEAN, ONNX = "numpy", "ONNX Runtime"  # what encodes questions, as facts of query_encoder say it


@stage_asset(
    MEMORY_VECTORS, deps=["memories", "query_encoder"], kinds={"numpy", "onnx"}, workers=True
)
def embed_memories(night: Night) -> StageResult:
    """One unit vector per memory, memoised by content, encoder and implementation."""
    encoder, memories = night.encoder, night.work(MEMORIES)

    def body() -> StageOutput:
        backend = encoder.choose_backend(sample_texts(memories))
        shards = night.shards(MEMORY_VECTORS.name)
        embedded = encoder.write_memory_vectors(
            night.work(VECTORS), memories, backend, night.runner, shards
        )
        notes: dict[str, Any] = {
            "texts_embedded": embedded.computed,
            "texts_reused": embedded.reused,
        }
        if backend.is_hosted:
            notes.update(encoder.hosted.spending.to_notes())
        elif backend.is_onnx:
            notes["onnx_min_cosine"] = backend.min_cosine
        facts = {
            "dimension": encoder.fingerprint.dimension,
            "fingerprint": encoder.fingerprint.digest,
            **backend.to_facts(),
        }
        if proposal := propose_encoder(encoder.settings.model, sample_texts(memories, LOOKED_AT)):
            facts["warning"] = proposal
        return StageOutput(count_rows(memories), facts, notes)

    inputs = {
        "corpus": night.result_of(CORPUS).digest,
        "fingerprint": encoder.fingerprint.digest,
        # Another runtime rounds differently, and may accept a model that this one declined.
        "toolchain": toolchain(night.settings.encoder.model),
    }
    return night.finish(night.run(MEMORY_VECTORS, inputs, body))


LOOKED_AT = 256  # memories whose scripts are looked at: a share of a fifth is told from a third
FOREIGN_SHARE = 0.2  # of memories, from which on the default model is no good choice


def propose_encoder(model: str, texts: Sequence[str]) -> str | None:
    """Return what to say where the default model was not made for the texts' scripts."""
    scripts = [dominant_script(text) for text in texts]
    foreign = sum(script not in (Script.LATIN, Script.OTHER) for script in scripts)
    if model != DEFAULT_MODEL or foreign < FOREIGN_SHARE * max(len(scripts), 1):
        return None
    return (
        f"{foreign / len(scripts):.0%} of the memories are in scripts that {model} was not made "
        f'for; install noctuary[multilingual] and set encoder.model = "{MULTILINGUAL_MODEL}" '
        "(docs/encoders.md)"
    )


def chosen_backend(night: Night) -> Backend:
    """Return which implementation made the memory vectors, so that later stages use it too."""
    return Backend.from_facts(night.result_of(MEMORY_VECTORS).facts)


@stage_asset(QUERY_ENCODER, deps=["memories"], kinds={"numpy"})
def export_query_encoder(night: Night) -> StageResult:
    """The same model for the read side, without torch, checked against the original."""
    # Before hours of embedding: what is published must be able to encode a question.
    encoder = night.encoder
    directory = night.paths.encoders / encoder.fingerprint.digest
    inputs: dict[str, Any] = {"fingerprint": encoder.fingerprint.digest}
    model = hosted_model(night.settings.encoder) if encoder.is_hosted else None
    known = load_result(night.paths.work, QUERY_ENCODER)
    if model is not None:
        inputs["hosted"] = model.describe()
        is_there = (directory / HOSTED_FILE).is_file()
    elif known is not None and known.facts.get("encoded_by") == ONNX:
        is_there = known_header(encoder.onnx_directory, encoder.fingerprint) is not None
    else:
        is_there = _is_readable(directory)
    if not is_there:
        forget_result(night.paths.work, QUERY_ENCODER)

    def body() -> StageOutput:
        if model is not None:
            write_description(directory, model)
            return StageOutput(1, {"hosted": model.title})
        return StageOutput(1, _export_lean(night, directory))

    result = night.run(QUERY_ENCODER, inputs, body, places=(directory,))
    if model is None:
        for export in (directory, encoder.onnx_directory):
            share_files(export, night.paths.root.parent)
    return night.finish(result)


def _is_readable(directory: Path) -> bool:
    """Say whether there is an exported encoder of this version."""
    with suppress(EncoderError):
        return bool(read_header(directory))
    return False


def _export_lean(night: Night, directory: Path) -> dict[str, Any]:
    """Export to the lean encoder where it can read the model; return the stage's facts."""
    encoder, texts = night.encoder, sample_texts(night.work(MEMORIES))
    backend = encoder.choose_backend(texts)
    try:
        least_cosine = encoder.export_query_encoder(backend, directory, texts)
    except EncoderError as error:
        if not backend.tag:
            raise EncoderError(
                f"{night.settings.encoder.model} can embed memories, but nothing could encode "
                f"a question for it, so nothing was embedded. The numpy encoder: {error} ONNX "
                f"Runtime: {backend.declined} Set encoder.model to another model "
                "(docs/encoders.md)."
            ) from None
        remove_tree(directory)
        return {"encoded_by": ONNX, "lean_declined": str(error), "min_cosine": backend.min_cosine}
    return {"encoded_by": LEAN, "min_cosine": round(least_cosine, 7), "sampled_texts": len(texts)}


def sync_vector_tiers(night: Night) -> StageResult:
    """Make the LanceDB tables equal to the vectors."""
    # LanceDB does not fsync: unless the last night vouches for every file, they are compared.
    vectors_result = night.result_of(MEMORY_VECTORS)
    fingerprint = night.encoder.fingerprint
    dims = (night.settings.tiers.small_dims, night.settings.tiers.medium_dims)

    def body() -> StageOutput:
        vectors = read_array(night.work(VECTORS))
        home = TableHome(night.paths.lance)
        rotation = fit_or_load(
            night.paths.rotations / fingerprint.digest, vectors, fingerprint.digest
        )
        if night.paths.purge_pending.exists():
            # LanceDB keeps the bytes of deleted rows until it compacts; a vector can tell its text.
            remove_tree(night.paths.lance)
        ids = read_column(night.work(MEMORIES), "memory_id")
        synced = sync_tiers(
            home,
            ids,
            read_column(night.work(MEMORIES), "content_hash"),
            vectors,
            rotation,
            dims,
            runner=night.runner,
            progress=night.progress,
        )
        matches = tiers_match(home, ids)
        exits = _exit_thresholds(night, vectors_result.digest, vectors, rotation, dims)
        facts = {
            **synced.to_facts(),
            "faults": {m.name: m.orphans + m.missing + m.duplicates for m in matches},
            "exits": exits,
            "rotation": rotation.digest,
            "rotation_fitted_on": rotation.fitted_on,
            "rotation_note": rotation.reason or "fitted and frozen",
        }
        return StageOutput(len(ids), facts, synced.to_notes())

    inputs = {
        "corpus": night.result_of(CORPUS).digest,
        "vectors": vectors_result.digest,
        "dims": list(dims),
    }
    held = night.tables_hold and not night.paths.purge_pending.exists()
    places = (night.paths.lance, night.paths.rotations)
    return night.finish(night.run(VECTOR_TIERS, inputs, body, always=not held, places=places))


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


LEXICAL_INDEX = Stage("lexical_index", "1", tuple(f"{POSTINGS}/{name}" for name in POSTING_FILES))


@stage_asset(LEXICAL_INDEX, deps=["memories"], kinds={"numpy"}, workers=True)
def index_memories(night: Night) -> StageResult:
    """Precomputed BM25 scores of every term in every memory."""

    def body() -> StageOutput:
        memories, tokens, task = (
            night.work(MEMORIES),
            night.content(TOKENS_KIND),
            TokenizeMemories(),
        )
        rows, shards = count_rows(memories), night.shards(task.name)
        filled = fill(tokens, iter_keyed(memories), task, night.runner, shards, night.progress)
        postings = build_postings(iter_tokens(memories, tokens))
        write_postings(postings, night.work(POSTINGS))
        held = np.zeros(rows, dtype=np.bool_)
        held[postings.positions] = True
        facts = {
            "terms": len(postings.terms),
            "postings": int(postings.positions.size),
            "memories_without_tokens": rows - int(held.sum()),
        }
        return StageOutput(rows, facts, {"texts_tokenized": filled.computed})

    inputs = {"corpus": night.result_of(CORPUS).digest, "tokenizer": str(TOKENIZER_VERSION)}
    return night.finish(night.run(LEXICAL_INDEX, inputs, body))


def kept_postings(night: Night) -> Postings:
    """Return what `lexical_index` has written."""
    return read_postings(night.work(POSTINGS), night.result_of(LEXICAL_INDEX).rows)


def compared_words(night: Night, postings: Postings) -> dict[str, str]:
    """Return, by term, the words that are embedded to find near ones; a provider gets none."""
    are_turns: list[bool] = read_column(night.work(MEMORIES), "is_turn").to_pylist()
    if chosen_backend(night).is_hosted or not any(are_turns):
        return {}  # only turns are searched for near words
    return choose_words(night.work(MEMORIES), postings)


# The sums that the next night goes on from. Not an output: losing it costs a full fold of what the
# log still holds, nothing else.
FOLDED = "usage/folded.json"

# Its output is the store's usage.sqlite, outside the work directory.
ACCESS_STATISTICS = Stage("access_statistics", "4")


@stage_asset(ACCESS_STATISTICS, deps=["memories"], kinds={"sqlite"})
def fold_accesses(night: Night) -> StageResult:
    """Retrievals and last access per memory, folded from the access log.

    With them recall's usage.sqlite: recent retrievals, days, and what was recalled together.
    """
    paths = night.paths

    def body() -> StageOutput:
        known = set(read_column(night.work(MEMORIES), "memory_id").to_pylist())
        folded, now_us = night.work(FOLDED), time.time_ns() // 1000
        return fold_usage(folded, paths.access_log, paths.usage, known, LTP_WINDOW_DAYS, now_us)

    # The log is the outside world: it is folded on every night.
    inputs = {"corpus": night.result_of(CORPUS).digest}
    places = [paths.usage]
    return night.finish(night.run(ACCESS_STATISTICS, inputs, body, always=True, places=places))


# Its output is usage.sqlite too.
LTP_SCORES = Stage("ltp_scores", "1")


@stage_asset(LTP_SCORES, deps=["memories", "access_statistics"], kinds={"sqlite"})
def score_memories(night: Night) -> StageResult:
    """LTP multiplier, score in [0, 1] and last access of every memory, scanned in batches."""
    # What differs is written; every night, because windows and decay move on.
    rules = scoring_rules(store_profile(night))
    inputs = {
        "corpus": night.result_of(CORPUS).digest,
        "usage": night.result_of(ACCESS_STATISTICS).facts["usage_digest"],
        "rules": rules._asdict(),
    }

    def body() -> StageOutput:
        ids, created = (
            read_column(night.work(MEMORIES), n) for n in ("memory_id", "created_at_us")
        )
        report = refresh_scores(
            night.paths.usage,
            ids,
            created.cast("int64").to_numpy(),
            rules,
            as_of_us=time.time_ns() // 1000,
        )
        facts = {
            "memories": report.total,
            "memories_in_use": report.in_use,
            "not_scanned": report.not_scanned,
        }
        return StageOutput(report.total, facts, report.to_notes())

    result = night.run(LTP_SCORES, inputs, body, always=True, places=[night.paths.usage])
    # What is written is in no output file that the stage could compare.
    unchanged = result.reused and result.notes["ltp_updated"] == 0
    return night.finish(replace(result, reused=unchanged))


def scoring_rules(profile: RetrievalProfile) -> ScoringRules:
    """Return what a profile says about scoring."""
    return ScoringRules(
        max_scan_depth=profile.max_scan_depth,
        decay_lambda=profile.decay_lambda if profile.decay_enabled else 0.0,
    )


@dg.asset_check(asset=MEMORY_VECTORS.name, blocking=True)
def every_memory_vector_is_finite_and_unit(night: dg.ResourceParam[Night]) -> dg.AssetCheckResult:
    """No vector holds NaN or has a length other than 1."""
    vectors = read_array(night.work(VECTORS))
    bad = count_bad_rows(vectors, UNIT_NORM_TOLERANCE)
    return judge(night, MEMORY_VECTORS, bad == 0, {"rows": len(vectors), "bad_rows": bad})


_TIER_CHECKS = {
    "every_tier_holds_every_memory_once": (
        "faults",
        "Every tier row has its memory, and every memory its tier row.",
    ),
    "every_index_covers_its_rows": ("index_gaps", "No index misses many rows of its tier."),
}


@dg.asset(
    deps=["memory_vectors"],
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
