"""Replay: what a recall read is kept in a packet, and a packet can be run again and compared.

Not replayed: deadlines, whose effect depends on the machine's load, and hooks, which change nothing
but may fail.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noctuary import __version__
from noctuary.core.errors import (
    EncoderError,
    FingerprintMismatchError,
    SnapshotCorruptError,
    StoreError,
)
from noctuary.core.files import hash_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.store import StorePaths, is_snapshot_id
from noctuary.core.types import UNDATED_US, MemoryRecord, from_micros
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import ArchiveState, Inputs, Usage
from noctuary.recall.profile import FIELD_NAMES, RetrievalProfile
from noctuary.recall.query import Query, Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallResult, RecallWarning
from noctuary.usage.reader import UsageReader

if TYPE_CHECKING:
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
    """Packets of a log, the oldest first."""

    packets: list[dict[str, Any]]
    unreadable: int  # lines that are none, for example one that a killed process left half written


def append_packet(
    path: Path, packet: Mapping[str, Any], *, max_bytes: int = MAX_LOG_BYTES
) -> str | None:
    """Append a packet as one line; where that would exceed the cap, drop the oldest half first.

    Returns None, or what went wrong; the log is then as it was before.
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
            f"no packet {replay_id!r} in {path}: `noctuary why --replay` lists the last ones; "
            "the oldest are dropped when the log is full"
        )
    if len(found) > 1:
        ids = ", ".join(str(p["replay_id"]) for p in found[:5])
        raise StoreError(f"{len(found)} packets begin with {replay_id!r} ({ids}): give more digits")
    return found[0]


@contextmanager
def _locked(path: Path) -> Generator[int]:
    """Open and lock the log that is at the path now; a rotation may put another one there."""
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
    while True:
        try:
            return fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise OSError("another process has been writing all the time") from None
        time.sleep(_PAUSE_S)


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
    """Append, all or nothing."""
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


# A record of the inputs: one recorder for all of them, and a table of how each answer is kept.
#
# A record is plain JSON. Texts that were encoded or reranked are kept as digests only: query
# expansion asks with words of memories, and a reranker reads whole ones. Earlier queries are kept
# as they were asked. Vectors are base64 of little-endian float32 and scores are JSON numbers, so
# every value comes back to the last bit.


_RAISED: Mapping[str, type[Exception]] = {
    error.__name__: error for error in (FingerprintMismatchError, EncoderError, OSError, ValueError)
}
"""What inputs may raise, the narrower before the wider."""

_VECTOR = np.dtype("<f4")
_NEVER = [0, 0, UNDATED_US]

ArchiveAt = Callable[[int], ArchiveState | None]
"""A moment in microseconds since the epoch -> what was archived then."""


class ArchiveLostError(StoreError):
    """What was archived at the time of a recall cannot be found out any more."""


class _Kept(NamedTuple):
    """How the answers of one input are kept.

    Attributes:
        name: Where in the record; answers by key there, or the one answer without keys.
        pack: (answer, arguments) -> JSON; None leaves it out.
        unpack: (JSON or None where nothing was kept, arguments) -> answer.
        key: Arguments -> key; None for one answer per recall.
        fault: What a fault is kept under, before the key; "" where none is raised.
    """

    name: str
    pack: Callable[..., Any]
    unpack: Callable[..., Any]
    key: Callable[..., str] | None = None
    fault: str = ""


def _pack_vector(vector: NDArray[np.float32], *_: Any, **__: Any) -> str:
    return base64.b64encode(np.ascontiguousarray(vector, dtype=_VECTOR).tobytes()).decode("ascii")


def _unpack_vector(text: str | None, *_: Any, **__: Any) -> NDArray[np.float32]:
    if text is None:
        raise EncoderError("the replay packet holds no vector of this text")
    return np.frombuffer(base64.b64decode(text), dtype=_VECTOR).astype(np.float32)


def _pack_live(state: LiveState | None) -> Any:
    from noctuary.sources.live import record_state

    return None if state is None else record_state(state)


def _unpack_live(kept: Any) -> LiveState | None:
    from noctuary.sources.live import read_state

    return None if kept is None else read_state(kept)


def _unpack_live_vectors(kept: Any, rows: Sequence[MemoryRecord], *_: Any) -> Any:
    hashes = (row.content_hash for row in rows)
    return {key: _unpack_vector(kept[key]) for key in hashes if kept and key in kept}


def _pack_usage(found: Usage, memory_ids: Sequence[str]) -> dict[str, list[int]]:
    rows = zip(memory_ids, *(column.tolist() for column in found), strict=True)
    return {memory_id: numbers for memory_id, *numbers in rows if numbers != _NEVER}


def _unpack_usage(kept: Any, memory_ids: Sequence[str]) -> Usage:
    rows = np.array([(kept or {}).get(m, _NEVER) for m in memory_ids], dtype=np.int64)
    return Usage(*rows.reshape(len(memory_ids), len(_NEVER)).T)


def _pack_pairs(found: NDArray[np.int64], memory_ids: Sequence[str]) -> dict[str, int]:
    return {m: n for m, n in zip(memory_ids, found.tolist(), strict=True) if n}


def _unpack_pairs(kept: Any, memory_ids: Sequence[str]) -> NDArray[np.int64]:
    return np.array([(kept or {}).get(m, 0) for m in memory_ids], dtype=np.int64)


def _pack_past(answer: Any, *_: Any, **__: Any) -> dict[str, Any]:
    found, fault = answer
    return {"found": [[*row[:3], list(row[3])] for row in found], "fault": fault}


def _unpack_past(kept: Any, *_: Any, **__: Any) -> Any:
    rows, fault = ((), None) if kept is None else (kept["found"], kept["fault"])
    return [(asked, int(us), float(like), tuple(ids)) for asked, us, like, ids in rows], fault


def _pack_scores(found: NDArray[np.float64] | RecallWarning, *_: Any) -> Any:
    return found.to_json() if isinstance(found, RecallWarning) else found.tolist()


def _unpack_scores(kept: Any, name: str, *_: Any) -> NDArray[np.float64] | RecallWarning:
    if kept is None:
        message = f"the replay packet holds no scores of {name} for these memories"
        return RecallWarning("reranker_unavailable", message)
    if isinstance(kept, Mapping):
        told = cast("Mapping[str, Any]", kept)
        return RecallWarning(str(told["code"]), str(told["message"]))
    return np.array(kept, dtype=np.float64)


def _as_it_is(value: Any, *_: Any) -> Any:
    return value


def _unpack_ids(kept: Any, *_: Any) -> list[str]:
    return list(kept or ())


def _pack_live_vectors(found: Mapping[str, NDArray[np.float32]], *_: Any) -> dict[str, str]:
    return {key: _pack_vector(vector) for key, vector in found.items()}


def _text_key(text: str, *_: Any, **__: Any) -> str:
    return hash_text(text)


def _ids_key(memory_ids: Sequence[str]) -> str:
    return hash_text(*memory_ids)


def _past_key(text: str, *, since_us: int, limit: int, user: str | None) -> str:
    return hash_text(text, str(since_us), str(limit), repr(user))


def _rerank_key(name: str, query: str, texts: Sequence[str], *_: Any) -> str:
    return hash_text(name, query, *texts)


_KEPT: Mapping[str, _Kept] = {
    "encoder": _Kept("encoder", _as_it_is, _as_it_is),
    "knows_usage": _Kept("knows_usage", _as_it_is, bool),
    "live": _Kept("live", _pack_live, _unpack_live),
    "query_vector": _Kept("vectors", _pack_vector, _unpack_vector, _text_key, "vector "),
    "live_vectors": _Kept("live_vectors", _pack_live_vectors, _unpack_live_vectors),
    "usage_of": _Kept("usage", _pack_usage, _unpack_usage),
    "most_used": _Kept("most_used", _as_it_is, _unpack_ids, str),
    "co_retrieved": _Kept("co_retrieved", _pack_pairs, _unpack_pairs, _ids_key),
    "past_queries": _Kept("past_queries", _pack_past, _unpack_past, _past_key, "past "),
    "rerank": _Kept("reranked", _pack_scores, _unpack_scores, _rerank_key),
}
"""By method of `Inputs`; the clock and the archive are kept by hand."""


class RecordingInputs:
    """Answers as other inputs do and keeps every answer in `record`; one recall, one thread."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self.record: dict[str, Any] = {
            "now_us": inputs.now_us(), "encoder": None, "archive": None, "knows_usage": False,
            "raised": {}, "usage": {}, **{k.name: {} for k in _KEPT.values() if k.key},
        }  # fmt: skip

    def now_us(self) -> int:
        """Return the clock as it was when the recall began."""
        return self.record["now_us"]

    def archive(self) -> ArchiveState | None:
        """Return what is archived; of the plans in force only the ids are kept.

        A plan never changes, and the archive forgets none, so the ids say all.
        """
        state = self._inputs.archive()
        if state is not None:
            kept = {"moment_us": self.now_us(), "plans": sorted(state.plans)}
            self.record["archive"] = kept
        return state

    def __getattr__(self, method: str) -> Any:
        kept, ask = _KEPT[method], getattr(self._inputs, method)

        def recorded(*asked: Any, **how: Any) -> Any:
            key = kept.key(*asked, **how) if kept.key else ""
            try:
                answer = ask(*asked, **how)
            except tuple(_RAISED.values()) as error:
                name = next(n for n, kind in _RAISED.items() if isinstance(error, kind))
                self.record["raised"][kept.fault + key] = [name, str(error)]
                raise
            plain = kept.pack(answer, *asked, **how)
            if kept.key:
                self.record[kept.name][key] = plain
            elif method == "usage_of":
                self.record[kept.name].update(plain)
            elif plain is not None:
                self.record[kept.name] = plain
            return answer

        return recorded


class RecordedInputs:
    """Answers from a record, through JSON or not; what was never asked then is unknown now.

    `archive_at` says what the store's archive holds for a moment; None where it is not at hand.
    """

    def __init__(self, record: Mapping[str, Any], archive_at: ArchiveAt | None = None) -> None:
        self.record = record
        self.archive_at = archive_at

    def now_us(self) -> int:
        """Return the clock of then."""
        return int(self.record["now_us"])

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

    def __getattr__(self, method: str) -> Any:
        kept = _KEPT[method]

        def recorded(*asked: Any, **how: Any) -> Any:
            key = kept.key(*asked, **how) if kept.key else ""
            if kept.fault and kept.fault + key in self.record["raised"]:
                name, message = self.record["raised"][kept.fault + key]
                raise _RAISED[name](message)
            # Packets of before have nothing live.
            is_live = method.startswith("live")
            found: Any = self.record.get(kept.name) if is_live else self.record[kept.name]
            return kept.unpack(found.get(key) if kept.key else found, *asked, **how)

        return recorded


# The replay packet: everything that a re-run of one recall needs, as JSON values.
#
# Source: RFC 914, phases 10 to 14 ("Replay"); what noctuary adds is the record of the inputs, under
# `world`. No text of a memory is in a packet, its id is; the query's text is.


PACKET_FORMAT = 2
"""Bumped when an older version could not re-run the packet, or calls its steps otherwise: of format
1 steps are not compared."""

_ID_BYTES = 6
"""Of a packet's id, 12 hex digits: two among the some thousands of one log never meet."""


def recall_and_log(
    recaller: Recaller,
    query: Query,
    *,
    log_path: Path | None,
    inputs: Inputs | None = None,
    deadline_ms: float | None = None,
) -> RecallResult:
    """Recall; where the profile says `replay_log`, keep what a re-run needs.

    The recall itself is the same either way. The packet is in the result also with `dry_run`, which
    only keeps it out of the log, and so does no `log_path`. A log that cannot be written is the
    warning "replay_log".
    """
    if not query.profile.replay_log:
        return recaller.ask(query, inputs, deadline_ms)
    recording = RecordingInputs(inputs or recaller.inputs_now(query.scope.user))
    result = recaller.ask(query, cast("Inputs", recording), deadline_ms)
    packet = _make_packet(recaller, query, result, recording.record)
    fault = None if query.dry_run or log_path is None else append_packet(log_path, packet)
    warnings = result.warnings
    if fault is not None:
        warnings = (*warnings, RecallWarning("replay_log", fault))
    return replace(result, warnings=warnings, replay_packet=packet)


def _make_packet(
    recaller: Recaller, query: Query, result: RecallResult, record: Mapping[str, Any]
) -> dict[str, Any]:
    scope, made_at = query.scope._asdict(), from_micros(int(record["now_us"]))
    if query.scope.as_of is not None:
        scope["as_of"] = query.scope.as_of.isoformat()
    return {
        "format": PACKET_FORMAT,
        "replay_id": os.urandom(_ID_BYTES).hex(),
        "made_at": (made_at or datetime.fromtimestamp(0, UTC)).isoformat(),
        "made_by": __version__,
        "query": query.text,
        "k": query.k,
        "sort_by": query.sort_by,
        "scope": scope,
        "session_id": query.session_id,
        "profile": query.profile.to_json(),
        "profile_used": query.profile_used,
        "snapshot_id": result.snapshot_id,
        "wing_counts_at_query_time": _count_wings(recaller.reader, query.scope),
        "pagination_state": _scan_told(recaller, query.scope, query.profile),
        **_outcome_of(result),
        "world": dict(record),
    }


def _outcome_of(result: RecallResult) -> dict[str, Any]:
    """Return what a re-run is compared by: memories, events, the guard's verdict, warnings."""
    told = result.replay_packet or {}
    return {
        "model_guard_result": result.pipeline["model_guard"],
        "results": [{"id": m.id, "final_score": m.final_score} for m in result.memories],
        "score_events": told.get("score_events", {}),
        "warnings": [w.code for w in result.warnings],
    }


def _count_wings(reader: SnapshotReader, scope: Scope) -> dict[str, int]:
    """Return the memories per wing that a scope allows; those without a wing are left out."""
    mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
    wings = reader.facets["wing"]
    codes = wings.codes if mask is None else wings.codes[mask]
    counts = np.bincount(codes[codes >= 0], minlength=len(wings.values)).tolist()
    return {wing: count for wing, count in zip(wings.values, counts, strict=True) if count}


def _scan_told(recaller: Recaller, scope: Scope, profile: RetrievalProfile) -> dict[str, Any]:
    """Return how far the night's last LTP scan came, in the RFC's shape, as far as a user may know.

    Where there are named users, how far the scan of all their memories came would tell how many
    they have: the total is of what may be seen, and nothing is said of the scan.
    """
    reader = recaller.reader
    own, _ = build_mask(Scope(user=scope.user), reader.facets, reader.created_at_us)
    total, scanned, batches, left = reader.count, 0, 0, 0
    if own is not None:
        total = int(own.sum())
    else:
        usage = UsageReader(recaller.paths.usage)
        usage.close()
        left = usage.not_scanned
        if usage.warning is None:
            scanned = max(total - left, 0)
            batches = -(-scanned // profile.batch_size) if profile.paginated_scoring else 1
    return {
        "total": total,
        "batches_processed": batches,
        "last_offset": scanned,
        "scan_depth_reached": left > 0,
    }


# Running a packet again and saying what differs, in a person's words.


_NOT_REPLAYED = frozenset({"hook_failed", "replay_log"})
_OWN_STEPS = 1
"""Format whose steps hold a rescaling within the step that called for it."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a re-run came to."""

    identical: bool  # the same memories in the same order, scores, events and warnings
    differences: tuple[str, ...]  # one sentence each; empty where identical
    notes: tuple[str, ...]  # what bears on the comparison without being a difference
    memories: int  # how many the packet holds

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "identical": self.identical,
            "differences": list(self.differences),
            "notes": list(self.notes),
            "memories": self.memories,
        }


def replay(paths: StorePaths, packet: Mapping[str, Any]) -> Comparison:
    """Run a packet again against its own snapshot, whichever one serves now.

    A snapshot that is gone or damaged is the one difference.

    Raises:
        StoreError: If the packet is none that this version can run.
    """
    _require_packet(packet)
    snapshot_id = str(packet["snapshot_id"])
    directory = paths.snapshots / snapshot_id
    if not is_snapshot_id(snapshot_id) or not directory.is_dir():
        return _not_run(
            packet,
            f"snapshot {snapshot_id} is gone, so there is nothing to run this against: only the "
            "last snapshot.keep ones stay (docs/configuration.md), raise it to replay for longer; "
            "ask the same query again with `noctuary recall` for today's answer",
        )
    try:
        reader = SnapshotReader.open(directory)
    except SnapshotCorruptError as error:
        return _not_run(packet, str(error))
    try:
        return rerun(Recaller(paths, reader, snapshot_id), packet)
    finally:
        reader.close()


def rerun(recaller: Recaller, packet: Mapping[str, Any]) -> Comparison:
    """Run a packet again and compare; another snapshot than its own is a difference.

    Nothing is written. StoreError if the packet is none that this version can run.
    """
    _require_packet(packet)
    try:
        result = _run(recaller, packet)
        found = list(_differences(packet, result))
    except ArchiveLostError as error:
        return _not_run(packet, str(error))
    # A damaged packet, or a snapshot that is damaged below the reach of the quick check, raises
    # whatever the step that meets it raises.
    except Exception as error:
        raise StoreError(
            f"packet {packet['replay_id']} cannot be run again ({type(error).__name__}: {error}): "
            "it is damaged, or its snapshot is (`noctuary doctor`)"
        ) from error
    return Comparison(not found, tuple(found), tuple(_notes(packet)), len(packet["results"]))


def _require_packet(packet: Mapping[str, Any]) -> None:
    found = packet.get("format")
    if found not in (_OWN_STEPS, PACKET_FORMAT):
        raise StoreError(
            f"packet {packet.get('replay_id')} has format {found!r}; this noctuary {__version__} "
            f"runs format {PACKET_FORMAT}"
        )
    wanted = ("replay_id", "query", "k", "profile", "snapshot_id", "results", "warnings", "world")
    missing = [name for name in wanted if name not in packet]
    if missing:
        raise StoreError(f"packet {packet.get('replay_id')} is damaged: no {', '.join(missing)}")


def _run(recaller: Recaller, packet: Mapping[str, Any]) -> RecallResult:
    scope = dict(packet["scope"])
    if scope["as_of"] is not None:
        scope["as_of"] = datetime.fromisoformat(scope["as_of"])
    known = {flag: value for flag, value in packet["profile"].items() if flag in FIELD_NAMES}

    def archive_at(moment_us: int) -> ArchiveState | None:
        from noctuary.compact.archive import ArchiveReader

        return ArchiveState.of(ArchiveReader(recaller.paths.archive), moment_us)

    return recaller.recall(
        packet["query"],
        packet["k"],
        profile=RetrievalProfile(**known),
        profile_used=packet["profile_used"],
        scope=Scope(**scope),
        sort_by=packet["sort_by"],
        session_id=packet["session_id"],
        dry_run=True,
        inputs=cast("Inputs", RecordedInputs(packet["world"], archive_at)),
    )


def _not_run(packet: Mapping[str, Any], why: str) -> Comparison:
    return Comparison(False, (why,), tuple(_notes(packet)), len(packet["results"]))


def _notes(packet: Mapping[str, Any]) -> Iterator[str]:
    late = sorted({code for code in packet["warnings"] if code.startswith("deadline_")})
    if late:
        yield (
            f"the recall ran into its deadline then ({', '.join(late)}); deadlines are not "
            "replayed, so the steps that were left out then ran now"
        )
    if packet["format"] == _OWN_STEPS:
        yield "the packet counts a rescaling to the step before it; steps are not compared"
    made_by = packet.get("made_by")
    if made_by != __version__:
        yield f"the packet was made by noctuary {made_by}, this is {__version__}"
    flags = sorted(set(packet["profile"]) ^ set(FIELD_NAMES))
    if flags:
        yield f"flags that only one of the two versions knows: {', '.join(flags)}"


def _differences(packet: Mapping[str, Any], result: RecallResult) -> Iterator[str]:
    now = _outcome_of(result)
    if result.snapshot_id != packet["snapshot_id"]:
        yield f"run against snapshot {result.snapshot_id} instead of {packet['snapshot_id']}"
    if now["model_guard_result"] != packet["model_guard_result"]:
        yield (
            f"the model guard said {packet['model_guard_result']}, now it says "
            f"{now['model_guard_result']}"
        )
    yield from _warning_differences(packet["warnings"], now["warnings"])
    yield from _memory_differences(packet["results"], now["results"])
    if packet["format"] != _OWN_STEPS:
        yield from _event_differences(packet["score_events"], now["score_events"])


def _warning_differences(then: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    before, after = ({code for code in codes if code not in _NOT_REPLAYED} for codes in (then, now))
    for code in sorted(before - after):
        yield f"the warning {code} came then and does not now"
    for code in sorted(after - before):
        yield f"the warning {code} comes now and did not then"


def _memory_differences(then: Rows, now: Rows) -> Iterator[str]:
    before = {row["id"]: (place, row["final_score"]) for place, row in enumerate(then, start=1)}
    after = {row["id"]: (place, row["final_score"]) for place, row in enumerate(now, start=1)}
    for memory_id, (place, score) in before.items():
        if memory_id not in after:
            yield f"[{memory_id}] does not come back; it was at place {place} ({score:.6g})"
            continue
        new_place, new_score = after[memory_id]
        if new_place != place:
            yield f"[{memory_id}] moved from place {place} to place {new_place}"
        if new_score != score:
            yield f"[{memory_id}] has another score: {_changed(score, new_score)}"
    for memory_id, (place, score) in after.items():
        if memory_id not in before:
            yield f"[{memory_id}] is new, at place {place} ({score:.6g})"


def _event_differences(then: Mapping[str, Rows], now: Mapping[str, Rows]) -> Iterator[str]:
    """Compare the events of memories that both have; the others were named already."""
    for memory_id, events in then.items():
        if memory_id not in now:
            continue
        before = {event["phase"]: event for event in events}
        after = {event["phase"]: event for event in now[memory_id]}
        for phase in dict.fromkeys([*before, *after]):
            old = before.get(phase, {"delta": 0.0, "reason": "nothing"})
            new = after.get(phase, {"delta": 0.0, "reason": "nothing"})
            if old["delta"] != new["delta"]:
                yield f"[{memory_id}] {phase}: {_changed(old['delta'], new['delta'])}"
            elif old["reason"] != new["reason"]:
                yield (
                    f"[{memory_id}] {phase}: the reason was {old['reason']!r}, now it is "
                    f"{new['reason']!r}"
                )


def _changed(old: float, new: float) -> str:
    return f"{old:.6g} then, {new:.6g} now (changed by {new - old:+.3g})"
