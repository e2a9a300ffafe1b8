"""Keeping what a recall read: packets, and the worlds that record and repeat it."""

from __future__ import annotations

import base64
import fcntl
import json
import math
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from noctuary import __version__
from noctuary.core.errors import EncoderError, FingerprintMismatchError, StoreError
from noctuary.core.files import hash_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import UNDATED_US, MemoryRecord, from_micros
from noctuary.recall.candidates import Usage
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import LoggedQuery, World
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Request, Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallResult, RecallWarning
from noctuary.usage.reader import UsageReader

if TYPE_CHECKING:
    from noctuary.recall.hidden import ArchiveState
    from noctuary.sources.live import LiveState


# The replay log: one packet per line, appended by any number of processes, bounded in size.
#
# The log holds the texts of queries, so only its owner may read it, and nothing is written unless
# a profile says `replay_log`. Appending never raises: a recall is answered whatever the disk does.


MAX_LOG_BYTES = 64 << 20
"""Size at which the oldest half is dropped: some 5,000 recalls. More keeps older ones replayable,
less costs less disk and a shorter pause for the recall that drops the half."""

WAIT_AT_MOST_S = 1.0
"""How long an append waits for others; a process that drops the oldest half keeps them waiting for
a tenth of a second. Longer stalls a prompt."""

_PAUSE_S = 0.001
"""Between two attempts to get the lock; shorter burns a core."""

_OWNER_ONLY = 0o600
_COPY_BYTES = 1 << 20


class FoundPackets(NamedTuple):
    """Packets of a log.

    Attributes:
        packets: The oldest first.
        unreadable: Lines that are no packet, for example one that a killed process left half
            written.
    """

    packets: list[dict[str, Any]]
    unreadable: int


def append_packet(
    path: Path, packet: Mapping[str, Any], *, max_bytes: int = MAX_LOG_BYTES
) -> str | None:
    """Append a packet as one line; where that would exceed the cap, drop the oldest half first.

    Args:
        path: The log; made if it is not there.
        packet: JSON values only.
        max_bytes: The cap. A packet that is larger by itself is refused.

    Returns:
        None, or what went wrong; the log is then as it was before.
    """
    try:
        line = json.dumps(packet, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"
        if len(line) > max_bytes:
            return f"{path.name}: the packet has {len(line):,} bytes, the log at most {max_bytes:,}"
        with _locked(path) as log:
            _append(log, line, path, max_bytes)
    except (OSError, ValueError, TypeError) as error:
        return f"{path.name} was not written: {error}"
    return None


def list_packets(path: Path, limit: int) -> FoundPackets:
    """Return the last packets of a log; none where there is no log.

    Raises:
        OSError: If the log cannot be read.
    """
    try:
        with path.open("rb") as log:
            return _parsed(deque(log, maxlen=limit))
    except FileNotFoundError:
        return FoundPackets([], 0)


def find_packet(path: Path, replay_id: str) -> dict[str, Any]:
    """Return the packet whose id begins with a text.

    Raises:
        StoreError: If there is no such packet, or several.
        OSError: If the log cannot be read.
    """
    mark = f'"replay_id":"{replay_id}'.encode("ascii", "replace")
    try:
        with path.open("rb") as log:
            lines = [line for line in log if mark in line] if replay_id else []
    except FileNotFoundError:
        lines = []
    # A query's text may hold the mark as well; in the packet it is escaped, here it is compared.
    found = [p for p in _parsed(lines).packets if str(p["replay_id"]).startswith(replay_id)]
    if not found:
        raise StoreError(
            f"no packet {replay_id!r} in {path}: `noctuary replay` lists the last ones; the oldest "
            "are dropped when the log is full"
        )
    if len(found) > 1:
        ids = ", ".join(str(p["replay_id"]) for p in found[:5])
        raise StoreError(f"{len(found)} packets begin with {replay_id!r} ({ids}): give more digits")
    return found[0]


@contextmanager
def _locked(path: Path) -> Generator[int]:
    """Open and lock the log that is at the path now; a rotation may put another one there.

    Raises:
        OSError: If it cannot be opened, is no regular file, or is locked for too long.
    """
    until = time.monotonic() + WAIT_AT_MOST_S
    while True:
        # Not blocking: something that is no file must not hang a recall.
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK
        log = os.open(path, flags, _OWNER_ONLY)
        try:
            opened = os.fstat(log)
            if not stat.S_ISREG(opened.st_mode):
                raise OSError("it is no regular file")
            _lock(log, until)
            if _is_at(path, opened):
                if stat.S_IMODE(opened.st_mode) != _OWNER_ONLY:
                    os.fchmod(log, _OWNER_ONLY)
                yield log
                return
        finally:
            os.close(log)


def _lock(log: int, until: float) -> None:
    while not _try_lock(log):
        if time.monotonic() > until:
            raise OSError("another process has been writing all the time")
        time.sleep(_PAUSE_S)


def _try_lock(log: int) -> bool:
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, opened: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.stat(), opened)
    except FileNotFoundError:
        return False


def _append(log: int, line: bytes, path: Path, max_bytes: int) -> None:
    size = os.fstat(log).st_size
    # A process that was killed in the middle of a line must not spoil the next one.
    if size and os.pread(log, 1, size - 1) != b"\n":
        line = b"\n" + line
    if size + len(line) > max_bytes:
        _rotate(log, size, line, path)
        return
    _write_all(log, size, line)


def _write_all(log: int, size: int, data: bytes) -> None:
    """Append, all or nothing.

    Raises:
        OSError: If the disk is full or a limit is reached; the file then has its old size.
    """
    try:
        written = os.write(log, data)
    except OSError:
        os.ftruncate(log, size)
        raise
    if written < len(data):
        os.ftruncate(log, size)
        raise OSError(f"{written:,} of {len(data):,} bytes fitted")


def _rotate(log: int, size: int, line: bytes, path: Path) -> None:
    """Put a file in place that holds the newer half and the line."""
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    kept = os.open(tmp, flags, _OWNER_ONLY)
    try:
        with open(kept, "wb", buffering=_COPY_BYTES) as target:  # noqa: PTH123 (a descriptor with its mode)
            for part in _newer_half(log, size):
                target.write(part)
            target.write(line.lstrip(b"\n"))
        tmp.replace(path)
    finally:
        tmp.unlink(missing_ok=True)


def _newer_half(log: int, size: int) -> Iterator[bytes]:
    """Yield what follows the first line break at or after the middle, as whole lines."""
    offset, started, last = size // 2, False, b""
    while part := os.pread(log, _COPY_BYTES, offset):
        offset += len(part)
        if not started:
            _, newline, part = part.partition(b"\n")
            started = bool(newline)
        if started and part:
            last = part
            yield part
    if last and not last.endswith(b"\n"):
        yield b"\n"


def _parsed(lines: list[bytes] | deque[bytes]) -> FoundPackets:
    packets: list[dict[str, Any]] = []
    unreadable = 0
    for line in lines:
        try:
            found: Any = parse_json(line)
        except ValueError:
            found = None
        if isinstance(found, dict) and "replay_id" in found:
            packets.append(cast("dict[str, Any]", found))
        else:
            unreadable += 1
    return FoundPackets(packets, unreadable)


# A world that writes down what it answers, and a world that answers from such a record.
#
# A record is plain JSON. Texts that were encoded or reranked are kept as digests only: query
# expansion asks with words of memories, and a reranker reads whole ones. Earlier queries are kept
# as they were asked. Vectors are base64 of little-endian float32 and scores are JSON numbers, so
# every value comes back to the last bit.


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
            from noctuary.sources.live import record_state

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
        from noctuary.sources.live import read_state

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


# The replay packet: everything that a re-run of one recall needs, as JSON values.
#
# Source: RFC 914, phases 10 to 14 ("Replay"); what noctuary adds is under `world` (`worlds`). No
# text of a memory is in a packet, its id is; the query's text is.


PACKET_FORMAT = 2
"""Bumped when an older version could not re-run the packet, or calls its steps otherwise: of format
1 steps are not compared."""

_ID_BYTES = 6
"""Of a packet's id, 12 hex digits: two among the some thousands of one log never meet."""


def recall_and_log(
    recaller: Recaller,
    query: str,
    k: int,
    *,
    log_path: Path | None,
    profile: RetrievalProfile,
    profile_used: str,
    scope: Scope,
    sort_by: str = "relevance",
    deadline_ms: float | None = None,
    session_id: str | None = None,
    dry_run: bool = False,
    world: World | None = None,
) -> RecallResult:
    """Recall; where the profile says `replay_log`, keep what a re-run needs.

    The recall itself is the same either way. The packet is in the result also with `dry_run`, which
    only keeps it out of the log. A log that cannot be written is the warning "replay_log".

    Args:
        recaller: The pinned snapshot.
        query: As in `Recaller.recall`, and so are the others.
        k: How many memories.
        log_path: `StorePaths.replays`; None keeps the packet out of the log.
        profile: How to rank.
        profile_used: What that is called.
        scope: What may be seen.
        sort_by: The order.
        deadline_ms: The recall's deadline.
        session_id: The active conversation.
        dry_run: Write nothing.
        world: What changes besides the snapshot; None means the store's own, as it is now.

    Raises:
        ValueError: As `Recaller.recall`.
    """
    request = Request(query, k, profile, profile_used, scope, sort_by, session_id, dry_run)
    asked = world or recaller.live_world(scope.user)
    recording = RecordingWorld(asked) if profile.replay_log else None
    result = recaller.recall(
        query,
        k,
        profile=profile,
        profile_used=profile_used,
        scope=scope,
        sort_by=sort_by,
        deadline_ms=deadline_ms,
        session_id=session_id,
        dry_run=dry_run,
        world=recording or asked,
    )
    if recording is None:
        return result
    packet = make_packet(
        request,
        result,
        recording.record(),
        count_wings(recaller.reader, scope),
        _scan_told(recaller, scope, profile),
    )
    fault = None if dry_run or log_path is None else append_packet(log_path, packet)
    warnings = result.warnings
    if fault is not None:
        warnings = (*warnings, RecallWarning("replay_log", fault))
    return replace(result, warnings=warnings, replay_packet=packet)


def make_packet(
    request: Request,
    result: RecallResult,
    record: Mapping[str, Any],
    wing_counts: Mapping[str, int],
    pagination: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the packet of one recall.

    Args:
        request: What was asked.
        result: What `Recaller.recall` made of it, with a profile that says `replay_log`.
        record: `RecordingWorld.record` of that recall.
        wing_counts: `count_wings` of its scope.
        pagination: `pagination_state` at that time, as far as it may be told.
    """
    scope = request.scope._asdict()
    if request.scope.as_of is not None:
        scope["as_of"] = request.scope.as_of.isoformat()
    return {
        "format": PACKET_FORMAT,
        "replay_id": os.urandom(_ID_BYTES).hex(),
        "made_at": _moment(int(record["now_us"])),
        "made_by": __version__,
        "query": request.query,
        "k": request.k,
        "sort_by": request.sort_by,
        "scope": scope,
        "session_id": request.session_id,
        "profile": request.profile.to_json(),
        "profile_used": request.profile_used,
        "snapshot_id": result.snapshot_id,
        "wing_counts_at_query_time": dict(wing_counts),
        "pagination_state": dict(pagination),
        **outcome_of(result),
        "world": dict(record),
    }


def outcome_of(result: RecallResult) -> dict[str, Any]:
    """Return what a re-run is compared by: memories, events, the guard's verdict, warnings."""
    told = result.replay_packet or {}
    return {
        "model_guard_result": result.pipeline["model_guard"],
        "results": [{"id": m.id, "final_score": m.final_score} for m in result.memories],
        "score_events": told.get("score_events", {}),
        "warnings": [w.code for w in result.warnings],
    }


def count_wings(reader: SnapshotReader, scope: Scope) -> dict[str, int]:
    """Return the memories per wing that a scope allows; those without a wing are left out."""
    mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
    wings = reader.facets["wing"]
    codes = wings.codes if mask is None else wings.codes[mask]
    counts = np.bincount(codes[codes >= 0], minlength=len(wings.values)).tolist()
    return {wing: count for wing, count in zip(wings.values, counts, strict=True) if count}


def _scan_told(recaller: Recaller, scope: Scope, profile: RetrievalProfile) -> dict[str, Any]:
    """Return `pagination_state` as far as a user may know it.

    Where there are named users, how far the scan of all their memories came would tell how many
    they have: the total is of what may be seen, and nothing is said of the scan.
    """
    reader = recaller.reader
    own, _ = build_mask(Scope(user=scope.user), reader.facets, reader.created_at_us)
    if own is None:
        return pagination_state(recaller.paths.usage, reader.count, profile)
    return {
        "total": int(own.sum()),
        "batches_processed": 0,
        "last_offset": 0,
        "scan_depth_reached": False,
    }


def pagination_state(usage: Path, total: int, profile: RetrievalProfile) -> dict[str, Any]:
    """Return how far the night's last LTP scan came, in the RFC's shape.

    Args:
        usage: `StorePaths.usage`.
        total: Memories in the snapshot.
        profile: Where the size of a batch comes from.
    """
    reader = UsageReader(usage)
    reader.close()
    if reader.warning is not None:
        scanned = batches = 0
    else:
        scanned = max(total - reader.not_scanned, 0)
        batches = -(-scanned // profile.batch_size) if profile.paginated_scoring else 1
    return {
        "total": total,
        "batches_processed": batches,
        "last_offset": scanned,
        "scan_depth_reached": reader.not_scanned > 0,
    }


def _moment(now_us: int) -> str:
    return (from_micros(now_us) or datetime.fromtimestamp(0, UTC)).isoformat()
