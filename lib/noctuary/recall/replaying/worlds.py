"""A world that writes down what it answers, and a world that answers from such a record.

What belongs here: the two implementations of `World` and the form of the record. What does not: the
packet around the record (`packet`), the file it is kept in (`log`).

A record is plain JSON. Texts that were encoded or reranked are kept as digests only: query
expansion asks with words of memories, and a reranker reads whole ones. Earlier queries are kept as
they were asked. Vectors are base64 of little-endian float32 and scores are JSON numbers, so every
value comes back to the last bit.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from noctuary.errors import EncoderError, FingerprintMismatchError, StoreError
from noctuary.hashing import hash_text
from noctuary.recall.phases.base import Usage
from noctuary.recall.result import RecallWarning
from noctuary.recall.world import LoggedQuery, World
from noctuary.types import UNDATED_US, MemoryRecord

if TYPE_CHECKING:
    from noctuary.live.state import LiveState
    from noctuary.recall.searched import ArchiveState

_RAISED: Mapping[str, type[Exception]] = {
    error.__name__: error for error in (FingerprintMismatchError, EncoderError, OSError, ValueError)
}
"""What `World.query_vector` may raise, the narrower before the wider."""

_VECTOR = np.dtype("<f4")

ArchiveAt = Callable[[int], "ArchiveState | None"]
"""A moment in microseconds since the epoch -> what was archived then."""

T = TypeVar("T")


class ArchiveLostError(StoreError):
    """What was archived at the time of a recall cannot be found out any more."""


class RecordingWorld:
    """Answers as another world does and keeps every answer; one recall, one thread.

    Attributes:
        world: Who really answers.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._now_us: int | None = None
        self._record: dict[str, Any] = {
            "encoder": None,
            "archive": None,
            "knows_usage": False,
            "vectors": {},
            "usage": {},
            "most_used": {},
            "co_retrieved": {},
            "past_queries": {},
            "reranked": {},
            "raised": {},
        }

    def record(self) -> dict[str, Any]:
        """Return what was answered so far, and the clock in any case."""
        return {"now_us": self.now_us(), **self._record}

    def now_us(self) -> int:
        """Return the clock as it was when it was first asked."""
        if self._now_us is None:
            self._now_us = self.world.now_us()
        return self._now_us

    def encoder(self) -> dict[str, Any] | None:
        """Return the fingerprint of the encoder."""
        self._record["encoder"] = found = self.world.encoder()
        return found

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        """Return the vector of a query."""
        key = hash_text(text)
        vector = self._try(f"vector {key}", lambda: self.world.query_vector(text, within_ms))
        self._record["vectors"][key] = _packed(vector)
        return vector

    def archive(self) -> ArchiveState | None:
        """Return what is archived; of the plans in force only the ids are kept.

        A plan never changes, and the archive forgets none, so the ids say all.
        """
        state = self.world.archive()
        if state is not None:
            self._record["archive"] = {
                "moment_us": self.now_us(),
                "plans": sorted(state.plans),
            }
        return state

    def live(self) -> LiveState | None:
        """Return what the store has beyond the snapshot; kept without the texts of memories."""
        state = self.world.live()
        if state is not None:
            from noctuary.live.state import record_state

            self._record["live"] = record_state(state)
        return state

    def live_vectors(
        self, rows: Sequence[MemoryRecord], within_ms: float = math.inf
    ) -> Mapping[str, NDArray[np.float32]]:
        """Return vectors of live rows."""
        found = self.world.live_vectors(rows, within_ms)
        self._record["live_vectors"] = {key: _packed(v) for key, v in found.items()}
        return found

    def knows_usage(self) -> bool:
        """Say whether a night has counted yet."""
        self._record["knows_usage"] = found = self.world.knows_usage()
        return found

    def usage_of(self, memory_ids: Sequence[str]) -> Usage:
        """Return usage; memories never recalled are not kept."""
        found = self.world.usage_of(memory_ids)
        rows = zip(
            memory_ids,
            found.recent.tolist(),
            found.days.tolist(),
            found.last_us.tolist(),
            strict=True,
        )
        for memory_id, *numbers in rows:
            if numbers != [0, 0, UNDATED_US]:
                self._record["usage"][memory_id] = numbers
        return found

    def most_used(self, limit: int) -> list[str]:
        """Return the most often recalled memories."""
        self._record["most_used"][str(limit)] = found = self.world.most_used(limit)
        return found

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return co-retrievals; zeros are not kept."""
        found = self.world.co_retrieved(memory_ids)
        rows = zip(memory_ids, found.tolist(), strict=True)
        self._record["co_retrieved"][hash_text(*memory_ids)] = {m: n for m, n in rows if n}
        return found

    def past_queries(
        self, text: str, *, since_us: int, limit: int, user: str | None
    ) -> tuple[list[LoggedQuery], str | None]:
        """Return logged queries, and a fault."""
        key = _past_key(text, since_us, limit, user)
        found, fault = self._try(
            f"past {key}",
            lambda: self.world.past_queries(text, since_us=since_us, limit=limit, user=user),
        )
        rows = [[*row[:3], list(row[3])] for row in found]
        self._record["past_queries"][key] = {"found": rows, "fault": fault}
        return found, fault

    def rerank(
        self, name: str, query: str, texts: Sequence[str], timeout_ms: float
    ) -> NDArray[np.float64] | RecallWarning:
        """Return a cross-encoder's scores, or its warning."""
        found = self.world.rerank(name, query, texts, timeout_ms)
        self._record["reranked"][hash_text(name, query, *texts)] = (
            found.to_json() if isinstance(found, RecallWarning) else found.tolist()
        )
        return found

    def _try(self, key: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except tuple(_RAISED.values()) as error:
            name = next(n for n, kind in _RAISED.items() if isinstance(error, kind))
            self._record["raised"][key] = [name, str(error)]
            raise


class RecordedWorld:
    """Answers from a record; what was never asked then is unknown now.

    Attributes:
        record: What `RecordingWorld.record` returned, through JSON or not.
        archive_at: What the store's archive holds for a moment; None where it is not at hand.
    """

    def __init__(self, record: Mapping[str, Any], archive_at: ArchiveAt | None = None) -> None:
        self.record = record
        self.archive_at = archive_at

    def now_us(self) -> int:
        """Return the clock of then."""
        return int(self.record["now_us"])

    def encoder(self) -> dict[str, Any] | None:
        """Return the fingerprint of the encoder of then."""
        return self.record["encoder"]

    def query_vector(self, text: str, within_ms: float = math.inf) -> NDArray[np.float32]:
        """Return the vector of then.

        Raises:
            EncoderError, OSError, ValueError: What was raised then; an EncoderError if this text
                was not asked then.
        """
        key = hash_text(text)
        if key in self.record["vectors"]:
            return _unpacked(self.record["vectors"][key])
        self._raise_as_then(f"vector {key}")
        raise EncoderError("the replay packet holds no vector of this text")

    def archive(self) -> ArchiveState | None:
        """Return what was archived then, whatever was applied or undone since.

        Raises:
            ArchiveLostError: The archive does not know the plans of then.
        """
        kept = self.record.get("archive")
        if kept is None:
            return None
        state = None if self.archive_at is None else self.archive_at(int(kept["moment_us"]))
        if state is None or sorted(state.plans) != kept["plans"]:
            raise ArchiveLostError(
                f"plans {', '.join(kept['plans'])} were in force then, and archive.sqlite does not "
                "say so: it is missing or damaged, or was written in that very moment; ask the "
                "same query again with `noctuary recall` for today's answer"
            )
        return state

    def live(self) -> LiveState | None:
        """Return what the store had beyond the snapshot then; packets of before have nothing."""
        kept = self.record.get("live")
        if kept is None:
            return None
        from noctuary.live.state import read_state

        return read_state(kept)

    def live_vectors(
        self, rows: Sequence[MemoryRecord], within_ms: float = math.inf
    ) -> Mapping[str, NDArray[np.float32]]:
        """Return the vectors of then; time has no part in it."""
        kept = self.record.get("live_vectors", {})
        hashes = (row.content_hash for row in rows)
        return {key: _unpacked(kept[key]) for key in hashes if key in kept}

    def knows_usage(self) -> bool:
        """Say whether a night had counted then."""
        return bool(self.record["knows_usage"])

    def usage_of(self, memory_ids: Sequence[str]) -> Usage:
        """Return usage of then; zeros where nothing was kept."""
        known, never = self.record["usage"], [0, 0, UNDATED_US]
        rows = np.array([known.get(m, never) for m in memory_ids], dtype=np.int64)
        columns = rows.reshape(len(memory_ids), len(never))
        return Usage(columns[:, 0], columns[:, 1], columns[:, 2])

    def most_used(self, limit: int) -> list[str]:
        """Return the most often recalled memories of then."""
        return list(self.record["most_used"].get(str(limit), ()))

    def co_retrieved(self, memory_ids: Sequence[str]) -> NDArray[np.int64]:
        """Return co-retrievals of then; zeros for other memories than then."""
        known = self.record["co_retrieved"].get(hash_text(*memory_ids), {})
        return np.array([known.get(m, 0) for m in memory_ids], dtype=np.int64)

    def past_queries(
        self, text: str, *, since_us: int, limit: int, user: str | None
    ) -> tuple[list[LoggedQuery], str | None]:
        """Return the logged queries of then, and the fault of then."""
        key = _past_key(text, since_us, limit, user)
        self._raise_as_then(f"past {key}")
        kept = self.record["past_queries"].get(key, {"found": (), "fault": None})
        rows = kept["found"]
        found = [(asked, int(us), float(like), tuple(ids)) for asked, us, like, ids in rows]
        return found, kept["fault"]

    def rerank(
        self, name: str, query: str, texts: Sequence[str], timeout_ms: float
    ) -> NDArray[np.float64] | RecallWarning:
        """Return the scores of then; time has no part in it."""
        del timeout_ms
        found = self.record["reranked"].get(hash_text(name, query, *texts))
        if found is None:
            message = f"the replay packet holds no scores of {name} for these memories"
            return RecallWarning("reranker_unavailable", message)
        if isinstance(found, Mapping):
            return RecallWarning(str(found["code"]), str(found["message"]))
        return np.array(found, dtype=np.float64)

    def _raise_as_then(self, key: str) -> None:
        if key in self.record["raised"]:
            name, message = self.record["raised"][key]
            raise _RAISED[name](message)


def _past_key(text: str, since_us: int, limit: int, user: str | None) -> str:
    return hash_text(text, str(since_us), str(limit), repr(user))


def _packed(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(np.ascontiguousarray(vector, dtype=_VECTOR).tobytes()).decode("ascii")


def _unpacked(text: str) -> NDArray[np.float32]:
    return np.frombuffer(base64.b64decode(text), dtype=_VECTOR).astype(np.float32)
