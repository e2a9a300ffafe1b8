"""What a recall reads besides its arguments and its snapshot: everything that changes.

All is asked by memory id or text, never by position, so that an answer can be kept for a replay.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from noctuary.core.store import StorePaths
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.recall.query import Mask
from noctuary.recall.query_encoder import encode_query, encoder_identity
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallWarning
from noctuary.usage.reader import UsageReader

if TYPE_CHECKING:
    from noctuary.compact.archive import ArchiveReader
    from noctuary.core.settings import Settings
    from noctuary.sources.live import LiveState
    from noctuary.usage.query_log import LoggedQuery


class Usage(NamedTuple):
    """How often memories were recalled; int64 arrays of one length, aligned with what was asked."""

    recent: NDArray[np.int64]  # retrievals inside the LTP window; 0 for a memory never recalled
    days: NDArray[np.int64]  # distinct days on which it was recalled, over all time
    last_us: NDArray[np.int64]  # last retrieval in microseconds; UNDATED_US for none

    @staticmethod
    def none(count: int) -> Usage:
        """Return that of memories that were never recalled."""
        zeros = np.zeros(count, dtype=np.int64)
        return Usage(zeros, zeros, np.full(count, UNDATED_US, dtype=np.int64))


class ArchiveState(NamedTuple):
    """What is archived at a moment, at least one plan; states of one key hide alike."""

    key: str
    plans: frozenset[str]
    # Content hashes of a snapshot -> ids of its archived memories to ids of what stands for them.
    hidden_in: Callable[[Callable[[Sequence[str]], Mapping[str, str]]], Mapping[str, str]]

    @staticmethod
    def of(archive: ArchiveReader, moment_us: int | None) -> ArchiveState | None:
        """Return what an archive hides at a moment (None: now), or None without a plan in force."""
        plans = archive.applied_plans_at(moment_us)
        hidden_in = partial(archive.hidden_in, moment_us=moment_us)
        return ArchiveState(f"{archive.digest} {moment_us}", plans, hidden_in) if plans else None


_WIDENING = 8
"""How much further down the list of the most used each look goes: more reads rows that nobody
needs, less asks again and again where others fill its head."""

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
        asked *= _WIDENING


class Inputs(NamedTuple):
    """Everything mutable that a recall may depend on, as it is now.

    Use is told as far as one recall may know it: the access log does not say who asked. A count of
    a memory that several users see would tell each of them how often the others asked for it, so a
    store with named users answers "never used" for it; a count of a private memory tells its owner
    about nobody else.
    """

    paths: StorePaths
    reader: SnapshotReader
    usage: Callable[[], UsageReader]  # one file for the whole recall
    # Memories that nobody but who asks may see, (n,); None where the store names no users.
    private: Callable[[], Mask | None] = lambda: None
    may_warm: bool = False  # whether ONNX Runtime may encode, see `encode_query`
    archived: Callable[[], ArchiveReader | None] = lambda: None  # the newest; None without a file
    look: Callable[[], LiveState | None] = lambda: None  # what the store has beyond the snapshot
    look_s: float = 0.0  # seconds that live rows may be encoded for

    def with_store(self, settings: Settings) -> Inputs:
        """Return the inputs of a recall that people ask for: the store itself among them."""
        if not settings.live.enabled:
            return self

        def look() -> LiveState | None:
            from noctuary.sources.live import look_now

            return look_now(self.paths, self.reader, settings.live, settings.source)

        return self._replace(look=look, look_s=settings.live.deadline_ms / 1000)

    def now_us(self) -> int:
        """Return the clock, microseconds since the epoch."""
        return time.time_ns() // 1000

    def encoder(self) -> dict[str, Any] | None:
        """Return the fingerprint of the encoder on disk; None if it cannot be read."""
        return encoder_identity(self.paths, self.reader.manifest)

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        """Return the unit vector of a query; EncoderError, OSError, ValueError if there is none."""
        manifest = self.reader.manifest
        return encode_query(self.paths, manifest, text, may_warm=self.may_warm, within_ms=within_ms)

    def archive(self) -> ArchiveState | None:
        """Return what is archived, or None where nothing is."""
        archive = self.archived()
        return None if archive is None else ArchiveState.of(archive, None)

    def live(self) -> LiveState | None:
        """Return what the store has beyond the snapshot, or None where that is nothing."""
        return self.look()

    def live_vectors(
        self, rows: Sequence[MemoryRecord], within_ms: float = math.inf
    ) -> Mapping[str, NDArray[np.float32]]:
        """Return unit vectors of live rows by content hash, as many as time allows."""
        from noctuary.recall.query_encoder import encode_rows

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
        found = Usage(*self.usage().counts(memory_ids))
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
        return open_reranker(name).score(query, texts, timeout_ms)


# A cross-encoder behind a hard time limit: reads query and memory together, scores each pair.
#
# sentence-transformers and torch are imported when a reranker is first asked, in a thread of its
# own, and nothing is fetched: local files only. A thread cannot be stopped from outside, so a
# question that was given up ends by itself: between two batches it looks whether anybody waits.
#
# Source: hybrid-recall design A.6 (over the fused top 20 to 30, fallback to the fused order).


_BATCH_PAIRS = 8
"""Pairs per forward pass: fewer give up sooner after a timeout, more save the cost of a call."""

_RETRY_AFTER_S = 30.0
"""A model that could not be loaded is tried again after this long: shorter slows every recall of a
store whose reranker is broken, longer keeps a repaired one unused in a running server."""

_EXIT_PATIENCE_S = 5.0
"""How long a process that ends waits for the batch that is being computed: an interpreter that goes
away under torch's compiled code aborts (measured), a model that hangs must not keep it for ever."""

_making = threading.Lock()


class _Job:
    """One question to a model: what is asked, what came back, and whether anybody still waits."""

    def __init__(self, query: str, texts: Sequence[str]) -> None:
        self.pairs = [(_readable(query), _readable(text)) for text in texts]
        self.done = threading.Event()
        self.given_up = False
        self.computing = False
        self.answer: NDArray[np.float64] | RecallWarning | None = None


class Reranker:
    """One cross-encoder of this process; safe to share between threads, one question at a time."""

    def __init__(self, model: str) -> None:
        self.model = model
        self._turn = threading.Lock()
        self._given_up = False
        self._loaded: Any = None
        self._broken: RecallWarning | None = None
        self._retry_at_s = 0.0
        self._running: set[_Job] = set()
        # Not atexit: that would keep a model that nobody uses any more.
        weakref.finalize(self, _leave, self._running)

    def score(
        self, query: str, texts: Sequence[str], timeout_ms: float
    ) -> NDArray[np.float64] | RecallWarning:
        """Return how well each text answers, (m,), higher is better, or why that is not known.

        While a question that was given up still runs, others are refused at once; while somebody
        waits for one, the next waits too, within its own time.
        """
        if not texts:
            return np.empty(0, dtype=np.float64)
        limit_s = min(max(timeout_ms, 0.0) / 1000, threading.TIMEOUT_MAX)
        until_s = time.monotonic() + limit_s
        if not self._turn.acquire(timeout=0.0 if self._given_up else limit_s):
            return self._late(timeout_ms)
        self._given_up = False
        if self._broken is not None and time.monotonic() < self._retry_at_s:
            self._turn.release()
            return self._broken
        job = _Job(query, texts)
        self._running.add(job)
        # A daemon: a process that has its answer does not stay for a model that is still loading.
        threading.Thread(target=self._work, args=(job,), daemon=True).start()
        job.done.wait(max(until_s - time.monotonic(), 0.0))
        if job.answer is None:
            job.given_up = self._given_up = True
            return self._late(timeout_ms)
        return job.answer

    def _late(self, timeout_ms: float) -> RecallWarning:
        if self._loaded is None:
            return RecallWarning(
                "reranker_loading",
                f"the reranker {self.model} was not loaded within {timeout_ms:g} ms; the fused "
                "order stands. Ask again in a process that stays (noctuary serve)",
            )
        return RecallWarning(
            "reranker_timeout",
            f"the reranker {self.model} did not answer within {timeout_ms:g} ms; the fused order "
            "stands. Raise rerank_timeout_ms, lower rerank_depth or use a smaller model",
        )

    def _work(self, job: _Job) -> None:
        try:
            if self._loaded is None:
                self._loaded, self._broken = _load(self.model), None
            job.answer = self._ask(job)
        except _UnavailableError as error:
            self._broken = job.answer = RecallWarning("reranker_unavailable", str(error))
            self._retry_at_s = time.monotonic() + _RETRY_AFTER_S
        # A model raises whatever its code raises; recall answers without it and says so.
        except Exception as error:
            job.answer = self._failed(f"raised {type(error).__name__}: {str(error)[:200]}")
        finally:
            self._running.discard(job)
            self._turn.release()
            job.done.set()

    def _ask(self, job: _Job) -> NDArray[np.float64] | RecallWarning | None:
        scores: list[float] = []
        job.computing = True
        for start in range(0, len(job.pairs), _BATCH_PAIRS):
            if job.given_up:
                return None
            batch = job.pairs[start : start + _BATCH_PAIRS]
            found = self._loaded.predict(batch, batch_size=_BATCH_PAIRS, show_progress_bar=False)
            part = np.asarray(found, dtype=np.float64)
            if part.shape != (len(batch),):
                shape = f"an array of shape {part.shape} for {len(batch)} pairs"
                return self._failed(f"gave {shape}; expected one score per pair")
            scores += part.tolist()
        answer = np.array(scores)
        if not np.isfinite(answer).all():
            return self._failed("gave a score that is not a finite number")
        return answer

    def _failed(self, what: str) -> RecallWarning:
        rest = "the fused order stands. Choose another model or set reranker to nothing"
        return RecallWarning("reranker_failed", f"the reranker {self.model} {what}; {rest}")


def open_reranker(model: str) -> Reranker:
    """Return this process's reranker of a name or directory; it is loaded when it is asked."""
    # Two threads that ask first would otherwise load the model twice.
    with _making:
        return _make(model)


@lru_cache(maxsize=2)  # one, and its successor while they are being compared
def _make(model: str) -> Reranker:
    return Reranker(model)


def _leave(running: set[_Job]) -> None:
    """Give up what still runs when the process ends, and wait for the batch at hand."""
    for job in tuple(running):
        job.given_up = True
        # Loading is left alone: it takes seconds, and Python ends an import without harm.
        if job.computing:
            job.done.wait(_EXIT_PATIENCE_S)


class _UnavailableError(Exception):
    """The library or the model cannot be loaded."""


def _load(model: str) -> Any:
    try:
        library: Any = import_module("sentence_transformers")
    except ImportError as error:
        raise _UnavailableError(
            f"sentence-transformers cannot be imported ({error}); the fused order stands. Install "
            "noctuary[pipelines] or set reranker to nothing"
        ) from error
    quiet: Any = import_module("transformers.utils.logging")
    bars = quiet.is_progress_bar_enabled()
    quiet.disable_progress_bar()
    try:
        return library.CrossEncoder(model, local_files_only=True)
    # The loader raises whatever its many parts raise.
    except Exception as error:
        raise _UnavailableError(
            f"the reranker {model} cannot be loaded ({type(error).__name__}: {str(error)[:200]}); "
            "the fused order stands. Give the directory of a whole sentence-transformers "
            "cross-encoder, or download it before"
        ) from error
    finally:
        if bars:
            quiet.enable_progress_bar()


def _readable(text: str) -> str:
    # A lone surrogate cannot be handed to a tokenizer: it is not UTF-8 and carries no text.
    return text.encode("utf-8", "replace").decode("utf-8")
