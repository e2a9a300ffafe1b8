"""What a recall reads besides its arguments and its snapshot: everything that changes.

All is asked by memory id or text, never by position, so that an answer can be kept for a replay.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.manifest import Manifest
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


class Usage(NamedTuple):
    """How often memories were recalled; int64 arrays of one length, aligned with what was asked.

    Attributes:
        recent: Retrievals inside the LTP window; 0 for a memory never recalled.
        days: Distinct days on which it was recalled, over all time.
        last_us: Last retrieval in microseconds; UNDATED_US for none.
    """

    recent: NDArray[np.int64]
    days: NDArray[np.int64]
    last_us: NDArray[np.int64]

    @staticmethod
    def none(count: int) -> Usage:
        """Return that of memories that were never recalled."""
        zeros = np.zeros(count, dtype=np.int64)
        return Usage(zeros, zeros, np.full(count, UNDATED_US, dtype=np.int64))


_WIDENING = 8
"""How much further down the list of the most used each look goes: more reads rows that nobody
needs, less asks again and again where others fill its head."""


class Use(NamedTuple):
    """Use as one recall may know it: where users share a store, of what nobody else can recall.

    The access log does not say who asked. A count of a memory that several users see would tell
    each of them how often the others asked for it, so a store with named users answers "never used"
    for it; a count of a private memory tells its owner about nobody else. A store without named
    users has nothing to leave out (`private` is None).
    """

    whole: UsageReader
    reader: SnapshotReader
    private: Mask | None = None  # memories that nobody but this user may see, (n,)

    @property
    def is_missing(self) -> bool:
        """Say whether nothing is known of any memory."""
        return self.whole.is_missing or not (self.private is None or bool(self.private.any()))

    def counts(self, memory_ids: Sequence[str]) -> Usage:
        """Return recent retrievals, days and the last one; none where others may have asked."""
        found = Usage(*self.whole.counts(memory_ids))
        others = ~self._is_private(memory_ids)
        found.recent[others] = found.days[others] = 0
        found.last_us[others] = UNDATED_US
        return found

    def most_used(self, limit: int) -> list[str]:
        """Return the ids recalled most often, most first."""
        asked = limit
        while True:
            ids = self.whole.most_used(asked)
            kept = np.flatnonzero(self._is_private(ids)).tolist()
            if len(kept) >= limit or len(ids) < asked:
                return [ids[i] for i in kept[:limit]]
            asked *= _WIDENING

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return how often each memory was recalled together with the others."""
        private = self._is_private(memory_ids)
        found = np.zeros(len(memory_ids), dtype=np.int64)
        kept = [memory_ids[i] for i in np.flatnonzero(private).tolist()]
        if kept:
            found[private] = self.whole.co_retrieved(kept)
        return found

    def _is_private(self, memory_ids: Sequence[str]) -> NDArray[np.bool_]:
        if self.private is None:
            return np.ones(len(memory_ids), dtype=np.bool_)
        places = self.reader.positions_of(memory_ids)
        known = (places.get(memory_id) for memory_id in memory_ids)
        return np.array([p is not None and bool(self.private[p]) for p in known], dtype=np.bool_)


class ArchiveState(NamedTuple):
    """What is archived at a moment: compaction plans in force, at least one.

    Two states of one key hide alike in one snapshot.
    """

    key: str
    plans: frozenset[str]
    # Content hashes of a snapshot -> ids of its archived memories to ids of what stands for them.
    hidden_in: Callable[[Callable[[Sequence[str]], Mapping[str, str]]], Mapping[str, str]]

    @staticmethod
    def of(archive: ArchiveReader, moment_us: int | None) -> ArchiveState | None:
        """Return what an archive hides at a moment (None: now), or None without a plan in force."""
        plans = archive.applied_plans_at(moment_us)
        if not plans:
            return None
        return ArchiveState(
            f"{archive.digest} {moment_us}",
            plans,
            partial(archive.hidden_in, moment_us=moment_us),
        )


LoggedQuery = tuple[str, int, float, tuple[str, ...]]
"""text, asked_us, cosine to today's query, ids of what it found (best first)."""


class Inputs(NamedTuple):
    """Everything mutable that a recall may depend on, as it is now.

    Attributes:
        use: Returns what the store may tell who asks; one file for the whole recall.
        may_warm: Whether ONNX Runtime may encode, see `encode_query`.
        archived: Returns the newest archive of the store, opened; None where there is no file.
        look: Returns what the store has beyond the snapshot; None: the snapshot is all there is.
        look_s: Seconds that live rows may be encoded for.
    """

    paths: StorePaths
    manifest: Manifest
    use: Callable[[], Use]
    may_warm: bool = False
    archived: Callable[[], ArchiveReader | None] = lambda: None
    look: Callable[[], LiveState | None] = lambda: None
    look_s: float = 0.0

    def with_store(self, reader: SnapshotReader, settings: Settings) -> Inputs:
        """Return the inputs of a recall that people ask for: with the store itself among them.

        What must be reproducible (an evaluation, a replay) does without it.
        """
        if not settings.live.enabled:
            return self

        def look() -> LiveState | None:
            from noctuary.sources.live import look_now

            return look_now(self.paths, reader, settings.live, settings.source)

        return self._replace(look=look, look_s=settings.live.deadline_ms / 1000)

    def now_us(self) -> int:
        """Return the clock, microseconds since the epoch."""
        return time.time_ns() // 1000

    def encoder(self) -> dict[str, Any] | None:
        """Return the fingerprint of the encoder on disk; None if it cannot be read."""
        return encoder_identity(self.paths, self.manifest)

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        """Return the unit vector of a query; a provider is not waited for longer than said.

        Raises:
            EncoderError, OSError, ValueError: If there is none to be had.
        """
        return encode_query(
            self.paths, self.manifest, text, may_warm=self.may_warm, within_ms=within_ms
        )

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
        """Return unit vectors of live rows (the most wanted first) by content hash.

        Only as many are encoded as there is time for.
        """
        from noctuary.recall.query_encoder import encode_rows

        return encode_rows(self.paths, self.manifest, rows, min(self.look_s, within_ms / 1000))

    def knows_usage(self) -> bool:
        """Say whether any memory is known to have been recalled; False spares looking up ids."""
        return not self.use().is_missing

    def usage_of(self, memory_ids: Sequence[str]) -> Usage:
        """Return how often memories were recalled; zeros where nothing is known."""
        return self.use().counts(memory_ids)

    def most_used(self, limit: int) -> list[str]:
        """Return the most often recalled memories of the window, most first."""
        return self.use().most_used(limit)

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return, per memory, how often it was recalled together with any of the others."""
        return self.use().co_retrieved(memory_ids)

    def past_queries(
        self, text: str, *, since_us: int, limit: int, user: str | None
    ) -> tuple[list[LoggedQuery], str | None]:
        """Return the user's logged queries of other wording, most similar first, and a fault."""
        from noctuary.usage.query_log import similar_queries

        digest = self.manifest.encoder_digest
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
        from noctuary.recall.reranking import open_reranker

        return open_reranker(name).score(query, texts, timeout_ms)
