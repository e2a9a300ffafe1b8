"""What a recall reads besides its arguments and its snapshot: everything that changes.

All is asked by memory id or text, never by position, so that an answer can be kept for a replay.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.manifest import Manifest
from noctuary.core.store import StorePaths
from noctuary.core.types import LIVE_KINDS, UNDATED_US, MemoryRecord
from noctuary.embed.fingerprint import HOSTED_POOLING, EncoderFingerprint, require_same
from noctuary.embed.lean import HEADER_FILE, LeanEncoder, read_header
from noctuary.recall.query import Mask
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallWarning

if TYPE_CHECKING:
    from concurrent.futures import Future

    from noctuary.compact.archive import ArchiveReader
    from noctuary.core.settings import Settings
    from noctuary.embed.hosted import HostedQueryEncoder
    from noctuary.embed.onnx import OnnxEncoder
    from noctuary.sources.live import LiveState
    from noctuary.usage.query_log import LoggedQuery
    from noctuary.usage.reader import Usage, UsageReader

Vector = NDArray[np.float32]


class ArchiveState(NamedTuple):
    """The plans in force at a moment, at least one; states of one key hide the same memories."""

    key: str
    plans: frozenset[str]
    # Content hashes of a snapshot -> ids of its archived memories to ids of their replacements.
    hidden_in: Callable[[Callable[[Sequence[str]], Mapping[str, str]]], Mapping[str, str]]

    @staticmethod
    def of(archive: ArchiveReader, moment_us: int | None) -> ArchiveState | None:
        """Return what an archive hides at a moment (None: now), or None without a plan in force."""
        plans = archive.applied_plans_at(moment_us)
        hidden_in = partial(archive.hidden_in, moment_us=moment_us)
        return ArchiveState(f"{archive.digest} {moment_us}", plans, hidden_in) if plans else None


T = TypeVar("T")


def look_down(
    ask: Callable[[int], list[str]], keep: Callable[[list[str]], list[T]], limit: int
) -> list[T]:
    """Return the first `limit` of a list that are kept, asking for as much of it as that takes."""
    asked = limit
    while True:
        ids = ask(asked)
        kept = keep(ids)
        if len(kept) >= limit or len(ids) < asked:
            return kept[:limit]
        # More reads needless rows, less asks often if others fill the head of the list.
        asked *= 8


class Inputs(NamedTuple):
    """Everything mutable that a recall may depend on, as it is now.

    Usage is limited to what one user may learn: the access log does not say who asked. A count of
    a memory that several users see would tell each of them how often the others asked for it, so a
    store with named users answers "never used" for it; a count of a private memory reveals
    nothing about others.
    """

    paths: StorePaths
    reader: SnapshotReader
    usage: Callable[[], UsageReader]  # one file for the whole recall
    # Memories that only the asking user may see, (n,); None without named users.
    private: Callable[[], Mask | None] = lambda: None
    may_warm: bool = False  # whether the encoder may be packed, see `encode_query`
    archived: Callable[[], ArchiveReader | None] = lambda: None  # the newest; None without a file
    live: Callable[[], LiveState | None] = lambda: None  # what the store has beyond the snapshot
    look_s: float = 0.0  # seconds that live rows may be encoded for

    def with_store(self, settings: Settings) -> Inputs:
        """Return the inputs of a recall that people ask for: the store itself among them."""
        if not settings.live.enabled or self.reader.manifest.source.get("kind") not in LIVE_KINDS:
            return self

        def look() -> LiveState | None:
            from noctuary.sources.live import look_now

            return look_now(self.paths, self.reader, settings.live, settings.source)

        return self._replace(live=look, look_s=settings.live.deadline_ms / 1000)

    def now_us(self) -> int:
        """Return the clock, microseconds since the epoch."""
        return time.time_ns() // 1000

    def encoder(self) -> dict[str, Any] | None:
        """Return the fingerprint of the encoder on disk; None if it cannot be read."""
        return encoder_identity(self.paths, self.reader.manifest)

    def query_vector(self, text: str, within_ms: float = math.inf) -> Vector:
        """Return the unit vector of a query; EncoderError, OSError, ValueError if there is none."""
        manifest = self.reader.manifest
        return encode_query(self.paths, manifest, text, may_warm=self.may_warm, within_ms=within_ms)

    def known_share(self, text: str) -> float:
        """Return the share of a query's tokens in the encoder's vocabulary, in [0, 1].

        1 if unknown: for a provider's model, or without a model.
        """
        if text.isascii():  # every vocabulary has these
            return 1.0
        try:
            return text_encoder(self.paths, self.reader.manifest).known_share(text)
        except (EncoderError, OSError, ValueError):
            return 1.0

    def archive(self) -> ArchiveState | None:
        """Return the archive, or None if nothing is archived."""
        archive = self.archived()
        return None if archive is None else ArchiveState.of(archive, None)

    def live_vectors(
        self, rows: Sequence[MemoryRecord], within_ms: float = math.inf
    ) -> Mapping[str, Vector]:
        """Return unit vectors of live rows by content hash, as many as time allows."""
        within_s = min(self.look_s, within_ms / 1000)
        return encode_rows(self.paths, self.reader.manifest, rows, within_s)

    def knows_usage(self) -> bool:
        """Say whether any memory is known to have been recalled; False spares looking up ids."""
        if self.usage().is_missing:
            return False
        private = self.private()
        return private is None or bool(private.any())

    def usage_of(self, memory_ids: Sequence[str]) -> Usage:
        """Return how often memories were recalled; zeros where others may have asked."""
        found = self.usage().counts(memory_ids)
        others = ~self._is_private(memory_ids)
        found.recent[others] = found.days[others] = 0
        found.last_us[others] = UNDATED_US
        return found

    def most_used(self, limit: int) -> list[str]:
        """Return the most often recalled memories of the window, most first."""

        def own(ids: list[str]) -> list[str]:
            return [i for i, mine in zip(ids, self._is_private(ids).tolist(), strict=True) if mine]

        return look_down(self.usage().most_used, own, limit)

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return, per memory, how often it was recalled together with any of the others."""
        private = self._is_private(memory_ids)
        found = np.zeros(len(memory_ids), dtype=np.int64)
        kept = [memory_ids[i] for i in np.flatnonzero(private).tolist()]
        if kept:
            found[private] = self.usage().co_retrieved(kept)
        return found

    def _is_private(self, memory_ids: Sequence[str]) -> Mask:
        private = self.private()
        if private is None:
            return np.ones(len(memory_ids), dtype=np.bool_)
        places = self.reader.positions_of(memory_ids)
        known = (places.get(memory_id) for memory_id in memory_ids)
        return np.array([p is not None and bool(private[p]) for p in known], dtype=np.bool_)

    def past_queries(
        self, text: str, *, since_us: int, limit: int, user: str | None
    ) -> tuple[list[LoggedQuery], str | None]:
        """Return the user's logged queries of other wording, most similar first, and a fault."""
        from noctuary.usage.query_log import similar_queries

        digest = self.reader.manifest.encoder_digest
        if digest is None:
            return [], None
        # Known from the dense leg, or not to be had: a provider is not asked again.
        vector = self.query_vector(text, within_ms=0.0)
        return similar_queries(
            self.paths.queries, vector, encoder_digest=digest, since_us=since_us, limit=limit,
            exclude_text=text, user=user,
        )  # fmt: skip

    def rerank(
        self, name: str, query: str, texts: Sequence[str], timeout_ms: float
    ) -> NDArray[np.float64] | RecallWarning:
        """Return a cross-encoder's scores, or why there are none."""
        from noctuary.recall.rerank import open_reranker

        return open_reranker(name).score(query, texts, timeout_ms)


# Phase 10: is the query encoder the one that made the vectors? The whole fingerprint is compared
# (name, weights, dimension, pooling, prefixes, normalisation, length limit): two models of one
# dimension give cosines that look plausible and mean nothing.


def encoder_identity(paths: StorePaths, manifest: Manifest) -> dict[str, Any] | None:
    """Return the fingerprint of the encoder on disk; None where there is none that can be read.

    It is in the lean encoder's header, in that of the ONNX export where there is no other, or in
    the file in which the store describes a provider's model.
    """
    if manifest.encoder_digest is None:
        return None
    directory = paths.encoders / manifest.encoder_digest
    try:
        if manifest.encoder is not None and manifest.encoder.get("pooling") == HOSTED_POOLING:
            from noctuary.embed.hosted import read_description

            return read_description(directory).fingerprint().to_json()
        if not directory.is_dir():
            from noctuary.embed.onnx import read_header as read_export

            return read_export(_export(directory)).fingerprint.to_json()
        header = directory / HEADER_FILE
        stat = header.stat()
        return _read(header, stat.st_mtime_ns, stat.st_size, stat.st_ino)
    except (OSError, EncoderError):
        return None


@lru_cache(maxsize=4)  # one, and its successor while a new model is rolled out, of two stores
def _read(header: Path, _mtime_ns: int, _size: int, _inode: int) -> dict[str, Any]:
    return read_header(header.parent).fingerprint.to_json()


class GuardResult(NamedTuple):
    """The verdict of the guard; UNKNOWN if either side has no fingerprint."""

    verdict: Literal["MATCH", "MISMATCH", "UNKNOWN"]
    ingest: Mapping[str, Any] | None  # fingerprint of the encoder that made the vectors
    query: Mapping[str, Any] | None  # of the one that queries are encoded with
    differing: tuple[str, ...] = ()  # names of the fields that differ

    @property
    def models(self) -> dict[str, str]:
        """Return the two models in words."""
        return {"ingest_model": _name(self.ingest), "query_model": _name(self.query)}

    @property
    def message(self) -> str:
        """The differences and the remedy."""
        what = ", ".join(self.differing) or "nothing"
        return (
            f"vectors were made by {_name(self.ingest)}, queries are encoded by "
            f"{_name(self.query)} (different: {what}): run the nightly job again with the model "
            "that you want"
        )

    def hook_context(self) -> dict[str, Any]:
        """Return the RFC's context of post_model_guard."""
        return {"match": self.verdict == "MATCH", **self.models}

    def trace_event(self, *, blocked: bool) -> dict[str, Any]:
        """Return the RFC's candidate-trace event of a mismatch."""
        return {
            "phase": "model_guard",
            "action": "block" if blocked else "warn",
            **self.models,
            "dim_ingest": (self.ingest or {}).get("dimension"),
            "dim_query": (self.query or {}).get("dimension"),
        }


def guard_model(ingest: Mapping[str, Any] | None, query: Mapping[str, Any] | None) -> GuardResult:
    """Compare two fingerprints field by field."""
    if ingest is None or query is None:
        return GuardResult("UNKNOWN", ingest, query)
    names = sorted({*ingest, *query})
    differing = tuple(n for n in names if ingest.get(n) != query.get(n))
    return GuardResult("MISMATCH" if differing else "MATCH", ingest, query, differing)


def _name(fingerprint: Mapping[str, Any] | None) -> str:
    if fingerprint is None:
        return "an unknown model"
    weights = str(fingerprint.get("weights_sha256", ""))[:8]
    return f"{fingerprint.get('model')} ({fingerprint.get('dimension')}, weights {weights})"


# Turning a query into a vector without torch: the store's encoder, opened once per process. The
# lean encoder answers, packed in a process that keeps asking. A model that it cannot read has its
# ONNX export alone, which takes a while to load. Where a provider made the snapshot's vectors, it
# is asked over the network, for as long as the recall may take.

_OPEN_ENCODERS = 2  # one, and its successor while a new model is being rolled out
_CACHED_QUERIES = 2048  # prompts repeat across scopes and evaluation arms; 1.5 KB each
_ONNX_SUFFIX = ".onnx"  # as noctuary.embed.onnx.onnx_directory names it; not worth its import
_WAIT_SHARE = 0.7  # of the time left, as for a provider: the rest is for ranking and the way back
_MOST_REMEMBERED = 32_768  # of a night's questions, 50 MB
_remembered: dict[tuple[Path, str], Vector] = {}
PACK_AFTER = 8  # queries of a process; packing takes as long as ten of them
_asked: dict[Path, int] = {}  # queries that may be packed for, by the encoder's directory
_lock = threading.Lock()


def encode_query(
    paths: StorePaths,
    manifest: Manifest,
    query: str,
    *,
    may_warm: bool = False,
    within_ms: float = math.inf,
) -> Vector:
    """Return the unit vector of a query, by exactly the model that made the snapshot's vectors.

    `may_warm` packs the lean encoder after several queries. Its vectors agree to float32 rounding
    (1e-6), and the moment of the change varies: leave it off for results that must be reproducible
    to the last digit. A provider, or the loading of a model that only ONNX Runtime reads, gets a
    part of `within_ms`. EncoderError if there is no vector in time, or no such model.
    """
    directory, expected = _place(paths, manifest)
    if (known := _remembered.get((directory, query))) is not None:
        return known
    if expected.is_hosted:
        return _hosted(directory, expected).encode_query(query, within_ms)
    if _has_lean(directory):
        return _encode(directory, expected, query, may_warm)
    return _encode_onnx(_onnx(directory, expected, within_ms), query)


def warm_up(paths: StorePaths, manifest: Manifest) -> None:
    """Open and pack the encoder now, for a process that will keep asking."""
    directory, expected = _place(paths, manifest)
    if expected.is_hosted:
        _hosted(directory, expected)
    elif _has_lean(directory):
        _asked[directory] = PACK_AFTER
        _open(directory, expected, may_warm=True)
    else:
        _onnx(directory, expected)


def text_encoder(
    paths: StorePaths, manifest: Manifest, within_ms: float = math.inf
) -> LeanEncoder | OnnxEncoder:
    """Return what encodes other texts here itself; EncoderError where a provider did."""
    directory, expected = _place(paths, manifest)
    if expected.is_hosted:
        raise EncoderError(
            f"{expected.model} encodes over the network; only queries and stored memories are sent "
            "there"
        )
    if _has_lean(directory):
        return _open(directory, expected)
    return _onnx(directory, expected, within_ms)


def remember_queries(
    paths: StorePaths, manifest: Manifest, queries: Sequence[str], vectors: Vector
) -> None:
    """Keep the vectors, shape (n, d), of queries that were encoded elsewhere, many at once."""
    directory, _ = _place(paths, manifest)
    vectors.flags.writeable = False
    with _lock:
        if len(_remembered) + len(queries) > _MOST_REMEMBERED:
            _remembered.clear()
        for query, vector in zip(queries, vectors, strict=True):
            _remembered[directory, query] = vector


def forget_queries() -> None:
    """Drop every cached query vector, so that a benchmark times prompts as if never asked."""
    _remembered.clear()
    _encode.cache_clear()
    _encode_onnx.cache_clear()
    _opened_hosted.cache_clear()


def _place(paths: StorePaths, manifest: Manifest) -> tuple[Path, EncoderFingerprint]:
    if manifest.encoder is None or manifest.encoder_digest is None:
        raise EncoderError("the snapshot was built without vectors that this machine can query")
    directory = paths.encoders / manifest.encoder_digest
    return directory, EncoderFingerprint.from_json(manifest.encoder)


def _hosted(directory: Path, expected: EncoderFingerprint) -> HostedQueryEncoder:
    from noctuary.embed.hosted import HOSTED_FILE

    try:
        # The address may change without the fingerprint: then the night rewrites the file.
        written_ns = (directory / HOSTED_FILE).stat().st_mtime_ns
    except OSError as error:
        raise EncoderError(
            f"cannot read {directory / HOSTED_FILE} ({type(error).__name__}), which says where "
            f"{expected.model} is asked. Run the nightly job again."
        ) from None
    with _lock:
        return _opened_hosted(directory, expected, written_ns)


@lru_cache(maxsize=_OPEN_ENCODERS)
def _opened_hosted(
    directory: Path, expected: EncoderFingerprint, _written_ns: int
) -> HostedQueryEncoder:
    from noctuary.embed.hosted import HostedQueryEncoder, read_description

    model = read_description(directory)
    require_same(expected, model.fingerprint())
    return HostedQueryEncoder(model)


def _read_only(vector: Vector) -> Vector:
    vector.flags.writeable = False
    return vector


@lru_cache(maxsize=_CACHED_QUERIES)
def _encode(directory: Path, expected: EncoderFingerprint, query: str, may_warm: bool) -> Vector:
    return _read_only(_open(directory, expected, may_warm).encode_query(query))


@lru_cache(maxsize=_CACHED_QUERIES)
def _encode_onnx(encoder: OnnxEncoder, query: str) -> Vector:
    return _read_only(encoder.encode_query(query))


def _open(directory: Path, expected: EncoderFingerprint, may_warm: bool = False) -> LeanEncoder:
    # Two threads that open at once would open two encoders.
    with _lock:
        _asked[directory] = times = _asked.get(directory, 0) + may_warm
        return (_packed if times >= PACK_AFTER and may_warm else _opened)(directory, expected)


@lru_cache(maxsize=_OPEN_ENCODERS)
def _opened(directory: Path, expected: EncoderFingerprint) -> LeanEncoder:
    lean = LeanEncoder.open(directory)
    require_same(expected, lean.fingerprint)
    return lean


@lru_cache(maxsize=_OPEN_ENCODERS)
def _packed(directory: Path, expected: EncoderFingerprint) -> LeanEncoder:
    return _opened(directory, expected).packed()


def _export(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}{_ONNX_SUFFIX}")


def _has_lean(directory: Path) -> bool:
    """Say whether the lean encoder answers; without any encoder it raises the right error."""
    return directory.is_dir() or not _export(directory).is_dir()


def _onnx(
    directory: Path, expected: EncoderFingerprint, within_ms: float = math.inf
) -> OnnxEncoder:
    from noctuary.embed.onnx import HEADER_FILE

    export = _export(directory)
    # A new export rewrites the file: a failed one is tried again.
    written_ns = (export / HEADER_FILE).stat().st_mtime_ns
    with _lock:
        opening = _opening(export, expected, written_ns)
    try:
        return opening.result(None if within_ms == math.inf else within_ms / 1000 * _WAIT_SHARE)
    except TimeoutError:
        raise EncoderError(
            f"ONNX Runtime is still loading {expected.model}: `noctuary serve` keeps it loaded"
        ) from None


@lru_cache(maxsize=_OPEN_ENCODERS)
def _opening(export: Path, expected: EncoderFingerprint, _written_ns: int) -> Future[OnnxEncoder]:
    """Begin to open an export: a recall that has no time to wait leaves it to the next one."""
    from concurrent.futures import ThreadPoolExecutor

    from noctuary.embed.onnx import OnnxEncoder

    def work() -> OnnxEncoder:
        # One thread per call: more of them change the last digits with their number.
        encoder = OnnxEncoder.open(export, 1)
        require_same(expected, encoder.fingerprint)
        return encoder

    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(work)
    finally:
        pool.shutdown(wait=False)


KEPT = 4_096
"""Vectors of live rows that a process keeps: twice the rows of the default bound, some 6 MB."""

_kept: dict[tuple[str, str], Vector] = {}


def encode_rows(
    paths: StorePaths, manifest: Manifest, rows: Sequence[MemoryRecord], within_s: float
) -> dict[str, Vector]:
    """Return unit vectors by content hash: all that are known, and new ones while there is time."""
    until_s, last_s, model = time.perf_counter() + within_s, 0.0, manifest.encoder_digest
    if model is None:
        return {}
    found: dict[str, Vector] = {}
    stopped = False
    for row in rows:
        vector, began_s = _kept.get((model, row.content)), time.perf_counter()
        stopped = stopped or began_s + last_s > until_s
        if vector is None and not stopped:
            try:
                vector = text_encoder(paths, manifest).encode_documents([row.content])[0]
            except (EncoderError, OSError, ValueError):
                stopped = True
                continue
            with _lock:
                if len(_kept) >= KEPT:
                    _kept.clear()
                _kept[model, row.content] = vector
            last_s = time.perf_counter() - began_s
        if vector is not None:
            found[row.content_hash] = vector
    return found
