"""What a recall reads besides its arguments and its snapshot."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.core.manifest import Manifest
from noctuary.core.store import StorePaths
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.recall.candidates import Usage
from noctuary.recall.query import Mask
from noctuary.recall.query_encoder import encode_query, encoder_identity
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallWarning
from noctuary.usage.reader import Counts

if TYPE_CHECKING:
    from noctuary.compact.archive import ArchiveReader
    from noctuary.core.settings import Settings
    from noctuary.recall.engine import Recaller
    from noctuary.recall.hidden import ArchiveState
    from noctuary.sources.live import LiveState


# Use as one recall may know it: where users share a store, of what nobody else can recall.
#
# The access log does not say who asked. A count of a memory that several users see would tell each
# of them how often the others asked for it, so a store with named users answers "never used" for
# it; a count of a private memory tells its owner about nobody else. A store without named users
# has nothing to leave out, and never asks.


_WIDENING = 8
"""How much further down the list of the most used each look goes: more reads rows that nobody
needs, less asks again and again where others fill its head."""


class Use(Protocol):
    """What a world asks about use; `UsageReader` answers for all users together."""

    @property
    def is_missing(self) -> bool:
        """Say whether nothing is known of any memory."""
        ...

    def counts(self, memory_ids: Sequence[str]) -> Counts:
        """Return recent retrievals, days and the last one, aligned with the ids."""
        ...

    def most_used(self, limit: int) -> list[str]:
        """Return the ids recalled most often, most first."""
        ...

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return how often each was recalled together with the others."""
        ...


class OwnUse(NamedTuple):
    """Implements `Use` for one user.

    Attributes:
        whole: Of all users together.
        reader: The snapshot.
        private: Memories that nobody but this user may see, shape (n,).
    """

    whole: Use
    reader: SnapshotReader
    private: Mask

    @property
    def is_missing(self) -> bool:
        """Say whether nothing is known of any memory."""
        return not bool(self.private.any()) or self.whole.is_missing

    def counts(self, memory_ids: Sequence[str]) -> Counts:
        """Return recent retrievals, days and the last one; none where others may have asked."""
        recent, days, last_us = self.whole.counts(memory_ids)
        others = ~self._is_private(memory_ids)
        recent[others] = days[others] = 0
        last_us[others] = UNDATED_US
        return recent, days, last_us

    def most_used(self, limit: int) -> list[str]:
        """Return the private memories recalled most often, most first."""
        asked = limit
        while True:
            ids = self.whole.most_used(asked)
            kept = np.flatnonzero(self._is_private(ids)).tolist()
            if len(kept) >= limit or len(ids) < asked:
                return [ids[i] for i in kept[:limit]]
            asked *= _WIDENING

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return how often each private memory was recalled together with the other ones."""
        private = self._is_private(memory_ids)
        found = np.zeros(len(memory_ids), dtype=np.int64)
        kept = [memory_ids[i] for i in np.flatnonzero(private).tolist()]
        if kept:
            found[private] = self.whole.co_retrieved(kept)
        return found

    def _is_private(self, memory_ids: Sequence[str]) -> NDArray[np.bool_]:
        places = self.reader.positions_of(memory_ids)
        known = (places.get(memory_id) for memory_id in memory_ids)
        return np.array([p is not None and bool(self.private[p]) for p in known], dtype=np.bool_)


# What a recall reads besides its arguments and its snapshot: the world that changes.
#
# Everything is asked by memory id or text, never by position, so that an answer can be kept.


LoggedQuery = tuple[str, int, float, tuple[str, ...]]
"""text, asked_us, cosine to today's query, ids of what it found (best first)."""


class World(Protocol):
    """Everything mutable that a recall may depend on."""

    def now_us(self) -> int:
        """Return the clock, microseconds since the epoch."""
        ...

    def encoder(self) -> dict[str, Any] | None:
        """Return the fingerprint of the encoder that queries are encoded with; None if unknown."""
        ...

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        """Return the unit vector of a query; a provider is not waited for longer than said.

        Raises:
            EncoderError, OSError, ValueError: If there is none to be had.
        """
        ...

    def archive(self) -> ArchiveState | None:
        """Return what is archived, or None where nothing is."""
        ...

    def live(self) -> LiveState | None:
        """Return what the store has beyond the snapshot, or None where that is nothing."""
        ...

    def live_vectors(
        self, rows: Sequence[MemoryRecord], within_ms: float = math.inf
    ) -> Mapping[str, NDArray[np.float32]]:
        """Return unit vectors of live rows, the most wanted first, by content hash.

        Args:
            rows: The most wanted first.
            within_ms: The recall's own time; only as many are encoded as there is time for.
        """
        ...

    def knows_usage(self) -> bool:
        """Say whether any memory is known to have been recalled; False spares looking up ids."""
        ...

    def usage_of(self, memory_ids: Sequence[str]) -> Usage:
        """Return how often memories were recalled; zeros where nothing is known."""
        ...

    def most_used(self, limit: int) -> list[str]:
        """Return the most often recalled memories of the window, most first."""
        ...

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return, per memory, how often it was recalled together with any of the others."""
        ...

    def past_queries(
        self, text: str, *, since_us: int, limit: int, user: str | None
    ) -> tuple[list[LoggedQuery], str | None]:
        """Return the user's logged queries of other wording, most similar first, and a fault."""
        ...

    def rerank(
        self, name: str, query: str, texts: Sequence[str], timeout_ms: float
    ) -> NDArray[np.float64] | RecallWarning:
        """Return a cross-encoder's scores, or why there are none."""
        ...


def _no_archive() -> None:
    return None


class Overlaying(NamedTuple):
    """Where live rows come from.

    Attributes:
        look: Returns what the store has beyond the snapshot; asked once per recall.
        within_s: Time for encoding what was found, seconds.
    """

    look: Callable[[], LiveState | None]
    within_s: float


class LiveWorld(NamedTuple):
    """The world as it is now.

    Attributes:
        paths: The store.
        manifest: Of the pinned snapshot.
        usage: Returns what the newest usage file of the store may tell who asks.
        may_warm: Whether ONNX Runtime may encode, see `encode_query`.
        archived: Returns the newest archive of the store, opened; None where there is no file.
        overlaying: How the store itself is looked into; None: the snapshot is all there is.
    """

    paths: StorePaths
    manifest: Manifest
    usage: Callable[[], Use]
    may_warm: bool = False
    archived: Callable[[], ArchiveReader | None] = _no_archive
    overlaying: Overlaying | None = None

    def now_us(self) -> int:
        """Return the clock."""
        return time.time_ns() // 1000

    def encoder(self) -> dict[str, Any] | None:
        """Return the fingerprint of the encoder on disk; None if it cannot be read."""
        return encoder_identity(self.paths, self.manifest)

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        """Encode a query."""
        return encode_query(
            self.paths, self.manifest, text, may_warm=self.may_warm, within_ms=within_ms
        )

    def archive(self) -> ArchiveState | None:
        """Ask the archive of the store."""
        reader = self.archived()
        if reader is None:
            return None
        from noctuary.recall.hidden import state_of

        return state_of(reader, None)

    def live(self) -> LiveState | None:
        """Look into the store, where that is wanted."""
        return None if self.overlaying is None else self.overlaying.look()

    def live_vectors(
        self, rows: Sequence[MemoryRecord], within_ms: float = math.inf
    ) -> Mapping[str, NDArray[np.float32]]:
        """Encode what was not encoded before."""
        from noctuary.recall.query_encoder import encode_rows

        within_s = 0.0 if self.overlaying is None else self.overlaying.within_s
        return encode_rows(self.paths, self.manifest, rows, min(within_s, within_ms / 1000))

    def knows_usage(self) -> bool:
        """Say whether a night has counted yet."""
        return not self.usage().is_missing

    def usage_of(self, memory_ids: Sequence[str]) -> Usage:
        """Ask the usage file of the store."""
        return Usage(*self.usage().counts(memory_ids))

    def most_used(self, limit: int) -> list[str]:
        """Ask the usage file of the store."""
        return self.usage().most_used(limit)

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Ask the usage file of the store."""
        return self.usage().co_retrieved(memory_ids)

    def past_queries(
        self, text: str, *, since_us: int, limit: int, user: str | None
    ) -> tuple[list[LoggedQuery], str | None]:
        """Ask the query log of the store."""
        from noctuary.usage.query_log import similar_queries

        digest = self.manifest.encoder_digest
        if digest is None:
            return [], None
        return similar_queries(
            self.paths.queries,
            # Known from the dense leg, or not to be had: a provider is not asked again.
            self.query_vector(text, within_ms=0.0),
            encoder_digest=digest,
            since_us=since_us,
            limit=limit,
            exclude_text=text,
            user=user,
        )

    def rerank(
        self, name: str, query: str, texts: Sequence[str], timeout_ms: float
    ) -> NDArray[np.float64] | RecallWarning:
        """Ask a cross-encoder of this process."""
        from noctuary.recall.reranking import open_reranker

        return open_reranker(name).score(query, texts, timeout_ms)


# The look into the store behind a snapshot, as the world of a recall asks for it.


class ComparedSnapshot:
    """A snapshot as the look into the store asks it."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader

    @property
    def manifest(self) -> Manifest:
        """What it is and what it was made from."""
        return self._reader.manifest

    def content_hashes(self, memory_ids: Iterable[str]) -> dict[str, str]:
        """Return the content hash of every known id (as text)."""
        return self._reader.content_hashes(memory_ids)

    def contents(self, memory_ids: Sequence[str]) -> dict[str, str]:
        """Return the text of every known id (as text)."""
        found = self._reader.look_up("memories", "memory_id", "memory_id, content", memory_ids)
        return {str(memory_id): str(content) for memory_id, content in found}

    def all_memory_ids(self) -> list[str]:
        """Return every id, as text, in any order."""
        # A condition that all rows meet: the ids are read off their index, in no order.
        return [str(i) for (i,) in self._reader.look_up("memories", "'all'", "memory_id", ["all"])]


def world_with_store(recaller: Recaller, settings: Settings, user: str | None) -> World:
    """Return the world of a recall that people ask for: with the store itself in it.

    What must be reproducible (an evaluation, a replay) does without it.
    """
    world = recaller.live_world(user)
    if not settings.live.enabled or not isinstance(world, LiveWorld):
        return world
    return world._replace(overlaying=overlay_from(recaller, settings))


def overlay_from(recaller: Recaller, settings: Settings) -> Overlaying:
    """Return how a recall looks into the store that its snapshot was made of.

    Args:
        recaller: The pinned snapshot.
        settings: `live` says what the look may take, `source` where a database is.
    """

    def look() -> LiveState | None:
        from noctuary.sources.live import look_now

        snapshot = ComparedSnapshot(recaller.reader)
        return look_now(recaller.paths, snapshot, settings.live, settings.source)

    return Overlaying(look, settings.live.deadline_ms / 1000)
