"""A published store of synthetic memories: vectors, graph and serving pack, without a night.

Nothing is embedded: vectors are clustered, and a question's vector is a noisy copy of a
memory's. The query encoder is a real one, taken from another store.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.engines import make_clustered
from bench.speed.corpus import (
    SESSION_TURNS,
    is_session_block,
    make_corpus,
    make_questions,
    make_records,
)
from noctuary.core.errors import StoreError
from noctuary.core.files import write_array, write_text
from noctuary.core.manifest import read_manifest
from noctuary.core.store import StorePaths, record_night
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.funnel import FUNNEL_MIN_ROWS
from noctuary.embed.lean import read_header
from noctuary.embed.rotation import build_prefix_tier, fit
from noctuary.graph.tables import FILES, NO_SPAN, GraphTables, to_table
from noctuary.graph.walk import OPEN_END_US, RELATIONS, GraphArrays
from noctuary.lexical.build import build_postings
from noctuary.snapshot.pack import PackInputs, Provenance, build_candidate
from noctuary.snapshot.publish import CheckResult, publish_candidate, store_verdict
from noctuary.text.tokens import encode_tokens

QUESTIONS = 200
"""Questions about each store: p95 then rests on ten values."""

QUERY_NOISE = 0.4
"""Length of the noise on a question's vector; its cosine to the memory's is then .93."""

QUESTIONS_FILE = "questions.json"
QUESTION_VECTORS_FILE = "question_vectors.npy"
_KEPT = 2


def build_store(directory: Path, count: int, encoder_from: Path, seed: int = 0) -> dict[str, float]:
    """Write and publish a store of `count` synthetic memories; return the seconds it took.

    Args:
        directory: The store, which must not exist or be empty.
        count: Number of memories.
        encoder_from: A store whose query encoder is used (linked, not copied).
        seed: Equal seeds give equal snapshots.

    Raises:
        StoreError: If that store has no query encoder.
    """
    started = time.perf_counter()
    paths = StorePaths(directory)
    directory.mkdir(parents=True, exist_ok=True)
    fingerprint = _link_encoders(paths, StorePaths(encoder_from))
    inputs = make_inputs(directory, count, fingerprint, seed)
    made_s = time.perf_counter() - started
    provenance = Provenance(
        id_kind="int",
        encoder=fingerprint.to_json(),
        encoder_digest=fingerprint.digest,
        source={"kind": "synthetic", "rows": count, "seed": seed},
        corpus_digest=f"synthetic-{seed}-{count}",
        settings={},
    )
    digest = read_manifest(build_candidate(paths, inputs, provenance)).digest
    store_verdict(paths, digest, [CheckResult("synthetic", True, {"memories": count})])
    publish_candidate(paths, digest, _KEPT)
    record_night(paths)
    return {"made_s": round(made_s, 1), "total_s": round(time.perf_counter() - started, 1)}


def make_inputs(
    directory: Path, count: int, fingerprint: EncoderFingerprint, seed: int
) -> PackInputs:
    """Make all parts of a pack; the questions are written beside it."""
    corpus = make_corpus(count, seed)
    texts, about = make_questions(corpus, QUESTIONS)
    vectors = make_clustered(count, seed)
    write_text(directory / QUESTIONS_FILE, json.dumps(texts))
    write_array(directory / QUESTION_VECTORS_FILE, noisy_copies(vectors[about], seed))
    tier = None
    if count >= FUNNEL_MIN_ROWS:
        tier = build_prefix_tier(vectors, fit(vectors, fingerprint.digest))
    return PackInputs(
        records=make_records(corpus),
        vectors=vectors,
        postings=build_postings(map(encode_tokens, corpus.tokens())),
        graph=GraphTables(**{name: to_table(name, ()) for name in FILES}),
        graph_arrays=make_graph(count, seed),
        clusters=(),
        summaries=(),
        tier=tier,
    )


def noisy_copies(vectors: NDArray[np.float32], seed: int = 0) -> NDArray[np.float32]:
    """Return unit rows near the given unit rows, shape (m, d)."""
    rng = np.random.default_rng([seed, 4])
    noise = rng.standard_normal(vectors.shape).astype(np.float32)
    noise *= np.float32(QUERY_NOISE) / np.linalg.norm(noise, axis=1, keepdims=True)
    near = vectors + noise
    return (near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float32)


def make_graph(count: int, seed: int = 0) -> GraphArrays:
    """Return one edge per memory to a memory that it names, and the turns of conversations.

    Names follow the square of an even draw, so that a few memories are named by many.
    """
    rng = np.random.default_rng([seed, count, 5])
    positions = np.arange(count, dtype=np.int64)
    named = (rng.random(count) ** 2 * count).astype(np.int64)
    block = positions // SESSION_TURNS
    turns = np.array([is_session_block(int(b)) for b in range(int(block[-1]) + 1)])[block]
    follows = turns[:-1] & (block[:-1] == block[1:])
    before = positions[:-1][follows]
    parts = [
        (positions, named, RELATIONS.index("mentions_subject")),
        (before, before + 1, RELATIONS.index("next_turn")),
        (before + 1, before, RELATIONS.index("previous_turn")),
    ]
    return _to_rows(count, parts)


def _to_rows(
    count: int, parts: Sequence[tuple[NDArray[np.int64], NDArray[np.int64], int]]
) -> GraphArrays:
    sources = np.concatenate([p[0] for p in parts])
    targets = np.concatenate([p[1] for p in parts])
    relations = np.concatenate([np.full(len(p[0]), p[2], dtype=np.int8) for p in parts])
    own = sources != targets
    sources, targets, relations = sources[own], targets[own], relations[own]
    order = np.lexsort((targets, relations, sources))
    sources, targets, relations = sources[order], targets[order], relations[order]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(sources, minlength=count))))
    arriving = np.bincount(targets * len(RELATIONS) + relations, minlength=count * len(RELATIONS))
    return GraphArrays(
        indptr=indptr.astype(np.int64),
        targets=targets.astype(np.int32),
        weights=np.ones(len(sources), dtype=np.float32),
        relations=relations,
        concepts=np.full(len(sources), -1, dtype=np.int32),
        in_degrees=arriving[targets * len(RELATIONS) + relations].astype(np.int32),
        valid_from_us=np.zeros(len(sources), dtype=np.int64),
        valid_to_us=np.full(len(sources), OPEN_END_US, dtype=np.int64),
        recorded_at_us=np.zeros(len(sources), dtype=np.int64),
        retracted_at_us=np.full(len(sources), OPEN_END_US, dtype=np.int64),
        evidence_starts=np.full(len(sources), NO_SPAN, dtype=np.int32),
        evidence_ends=np.full(len(sources), NO_SPAN, dtype=np.int32),
    )


def _link_encoders(paths: StorePaths, donor: StorePaths) -> EncoderFingerprint:
    found = sorted(donor.encoders.glob("*/encoder.json"))
    if not found:
        raise StoreError(f"{donor.root} has no query encoder: run a night on it first")
    if not paths.encoders.exists():
        paths.encoders.symlink_to(donor.encoders.resolve(), target_is_directory=True)
    return read_header(found[0].parent).fingerprint
