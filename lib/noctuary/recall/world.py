"""What a recall reads besides its arguments and its snapshot: the world that changes.

What belongs here: the protocol, and the live world of one store. What does not: recording it for a
replay and answering from such a record (`replaying`).

Everything is asked by memory id or text, never by position, so that an answer can be kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.recall.encoder_identity import encoder_identity
from noctuary.recall.phases.base import Usage
from noctuary.recall.query_encoder import encode_query
from noctuary.recall.result import RecallWarning
from noctuary.snapshot.layout import StorePaths
from noctuary.snapshot.manifest import Manifest
from noctuary.types import MemoryRecord

if TYPE_CHECKING:
    from noctuary.archive.reading import ArchiveReader
    from noctuary.live.state import LiveState
    from noctuary.recall.own_use import Use
    from noctuary.recall.searched import ArchiveState

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
        from noctuary.recall.searched import state_of

        return state_of(reader, None)

    def live(self) -> LiveState | None:
        """Look into the store, where that is wanted."""
        return None if self.overlaying is None else self.overlaying.look()

    def live_vectors(
        self, rows: Sequence[MemoryRecord], within_ms: float = math.inf
    ) -> Mapping[str, NDArray[np.float32]]:
        """Encode what was not encoded before."""
        from noctuary.recall.live_vectors import encode_rows

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
