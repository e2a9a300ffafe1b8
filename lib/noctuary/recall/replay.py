"""Replay: what a recall read is kept in a packet, and a packet can be run again and compared.

Not replayed: deadlines, whose effect depends on the machine's load, and hooks, which change nothing
but may fail.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
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
from noctuary.core.sqlite import LogFormat, append_rows, open_log
from noctuary.core.store import StorePaths, is_snapshot_id
from noctuary.core.types import UNDATED_US, MemoryRecord, from_micros
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import ArchiveState, Inputs, Usage
from noctuary.recall.profile import FIELD_NAMES, RetrievalProfile
from noctuary.recall.query import Query, Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallResult, RecallWarning, plain
from noctuary.usage.reader import UsageReader

if TYPE_CHECKING:
    from noctuary.sources.live import LiveState

# The replay log: one packet per row, bounded in size.
#
# It holds the texts of queries, so only its owner may read it, and nothing is written unless a
# profile says `replay_log`. Appending never raises: a recall is answered whatever the disk does.


MAX_LOG_BYTES = 64 << 20
"""Packets kept, the newest so many bytes of them: some 5,000 recalls. More keeps older ones
replayable, less costs less disk."""


_END = "(SELECT started + size FROM packets ORDER BY number DESC LIMIT 1)"


def log_format(max_bytes: int = MAX_LOG_BYTES) -> LogFormat:
    """Return what the log looks like; `started` counts the bytes of all packets before a row's."""
    return LogFormat(
        noun="the replay log",
        version=1,
        schema="""
CREATE TABLE IF NOT EXISTS packets (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    replay_id TEXT NOT NULL,
    size INTEGER NOT NULL,
    started INTEGER NOT NULL,
    packet TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS packets_by_start ON packets (started)
""",
        event="this recall",
        insert="INSERT INTO packets (replay_id, packet, size, started) "
        f"VALUES (?, ?, ?, coalesce({_END}, 0))",
        upkeep=f"DELETE FROM packets WHERE started < {_END} - {max_bytes}",
        may_wait=False,
    )


REPLAY_LOG = log_format()


class FoundPackets(NamedTuple):
    """Packets of a log, the oldest first."""

    packets: list[dict[str, Any]]
    unreadable: int  # rows that hold none


def append_packet(path: Path, packet: Mapping[str, Any]) -> str | None:
    """Append a packet and drop the oldest beyond the bound; return None, or what went wrong."""
    try:
        text = json.dumps(packet, separators=(",", ":"), allow_nan=False)
    except (ValueError, TypeError) as error:
        return f"this recall was not logged: {error}"
    if len(text) > MAX_LOG_BYTES:
        return (
            f"this recall was not logged: its packet has {len(text):,} bytes, the log at most "
            f"{MAX_LOG_BYTES:,}"
        )
    return append_rows(path, REPLAY_LOG, [(packet["replay_id"], text, len(text))])


def list_packets(path: Path, limit: int) -> FoundPackets:
    """Return the last packets of a log; none where there is no log, StoreError if it is damaged."""
    return _read(path, "ORDER BY number DESC LIMIT ?", [limit])


def find_packet(path: Path, replay_id: str) -> dict[str, Any]:
    """Return the packet whose id begins with a text; StoreError if there is none, or several."""
    found: list[dict[str, Any]] = []
    if replay_id.isascii() and replay_id:
        found = _read(
            path, "WHERE instr(replay_id, ?) = 1 ORDER BY number DESC", [replay_id]
        ).packets
    if not found:
        raise StoreError(
            f"no packet {replay_id!r} in {path}: `noctuary why --replay` lists the last ones; "
            "the oldest are dropped when the log is full"
        )
    if len(found) > 1:
        ids = ", ".join(str(p["replay_id"]) for p in found[:5])
        raise StoreError(f"{len(found)} packets begin with {replay_id!r} ({ids}): give more digits")
    return found[0]


def _read(path: Path, which: str, values: Sequence[Any]) -> FoundPackets:
    try:
        with closing(open_log(path, REPLAY_LOG, or_empty=True)) as log:
            rows = log.execute(f"SELECT packet FROM packets {which}", values).fetchall()
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    packets: list[dict[str, Any]] = []
    for (text,) in reversed(rows):
        try:
            found: Any = parse_json(text)
        except (ValueError, TypeError):
            continue
        if isinstance(found, dict) and "replay_id" in found:
            packets.append(cast("dict[str, Any]", found))
    return FoundPackets(packets, len(rows) - len(packets))


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
    """How the answers of one input are kept."""

    name: str  # where in the record: answers by key there, or the one answer without keys
    unpack: Callable[..., Any]  # (JSON or None where nothing was kept, arguments) -> answer
    pack: Callable[..., Any] | None = None  # (answer, arguments) -> JSON, where `_plain` is not it
    key: Callable[..., str] | None = None  # arguments -> key; None for one answer per recall
    fault: str = ""  # what a fault is kept under, before the key; "" where none is raised


def _plain(answer: Any) -> Any:
    if isinstance(answer, RecallWarning):
        return answer.to_json()
    if isinstance(answer, Mapping):
        fields = cast("Mapping[str, Any]", answer)
        return {key: _plain(value) for key, value in fields.items()}
    if not isinstance(answer, np.ndarray):
        return answer
    array = cast("NDArray[Any]", answer)
    if array.dtype != np.float32:
        return array.tolist()
    return base64.b64encode(np.ascontiguousarray(array, dtype=_VECTOR).tobytes()).decode("ascii")


def _as_it_is(kept: Any, *_: Any) -> Any:
    return kept


def _read_vector(text: str | None, *_: Any, **__: Any) -> NDArray[np.float32]:
    if text is None:
        raise EncoderError("the replay packet holds no vector of this text")
    return np.frombuffer(base64.b64decode(text), dtype=_VECTOR).astype(np.float32)


def _read_vectors(kept: Any, rows: Sequence[MemoryRecord], *_: Any) -> Any:
    hashes = (row.content_hash for row in rows)
    return {key: _read_vector(kept[key]) for key in hashes if kept and key in kept}


def _keep_live(state: LiveState | None) -> Any:
    from noctuary.sources.live import record_state

    return None if state is None else record_state(state)


def _read_live(kept: Any) -> LiveState | None:
    from noctuary.sources.live import read_state

    return None if kept is None else read_state(kept)


def _keep_use(found: Usage | NDArray[np.int64], memory_ids: Sequence[str]) -> dict[str, Any]:
    """Keep three numbers of each memory, or one: what it never has is left out."""
    rows: list[Any] = np.array(found).T.tolist()
    return {m: row for m, row in zip(memory_ids, rows, strict=True) if row not in (0, _NEVER)}


def _read_usage(kept: Any, memory_ids: Sequence[str]) -> Usage:
    rows = np.array([(kept or {}).get(m, _NEVER) for m in memory_ids], dtype=np.int64)
    return Usage(*rows.reshape(len(memory_ids), len(_NEVER)).T)


def _read_counts(kept: Any, memory_ids: Sequence[str]) -> NDArray[np.int64]:
    return np.array([(kept or {}).get(m, 0) for m in memory_ids], dtype=np.int64)


def _keep_past(answer: Any, *_: Any, **__: Any) -> dict[str, Any]:
    found, fault = answer
    return {"found": [[*row[:3], list(row[3])] for row in found], "fault": fault}


def _read_past(kept: Any, *_: Any, **__: Any) -> Any:
    rows, fault = ((), None) if kept is None else (kept["found"], kept["fault"])
    return [(asked, int(us), float(like), tuple(ids)) for asked, us, like, ids in rows], fault


def _read_scores(kept: Any, name: str, *_: Any) -> NDArray[np.float64] | RecallWarning:
    if kept is None:
        message = f"the replay packet holds no scores of {name} for these memories"
        return RecallWarning("reranker_unavailable", message)
    if isinstance(kept, Mapping):
        told = cast("Mapping[str, Any]", kept)
        return RecallWarning(str(told["code"]), str(told["message"]))
    return np.array(kept, dtype=np.float64)


def _read_ids(kept: Any, *_: Any) -> list[str]:
    return list(kept or ())


def _text_key(text: str, *_: Any, **__: Any) -> str:
    return hash_text(text)


def _ids_key(memory_ids: Sequence[str]) -> str:
    return hash_text(*memory_ids)


def _past_key(text: str, *, since_us: int, limit: int, user: str | None) -> str:
    return hash_text(text, str(since_us), str(limit), repr(user))


def _rerank_key(name: str, query: str, texts: Sequence[str], *_: Any) -> str:
    return hash_text(name, query, *texts)


_KEPT: Mapping[str, _Kept] = {
    "encoder": _Kept("encoder", _as_it_is),
    "knows_usage": _Kept("knows_usage", bool),
    "live": _Kept("live", _read_live, _keep_live),
    "query_vector": _Kept("vectors", _read_vector, None, _text_key, "vector "),
    "live_vectors": _Kept("live_vectors", _read_vectors),
    "usage_of": _Kept("usage", _read_usage, _keep_use),
    "most_used": _Kept("most_used", _read_ids, None, str),
    "co_retrieved": _Kept("co_retrieved", _read_counts, _keep_use, _ids_key),
    "past_queries": _Kept("past_queries", _read_past, _keep_past, _past_key, "past "),
    "rerank": _Kept("reranked", _read_scores, None, _rerank_key),
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
        """Return what is archived; the ids of the plans in force say all, a plan never changes."""
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
            told = kept.pack(answer, *asked, **how) if kept.pack else _plain(answer)
            if kept.key:
                self.record[kept.name][key] = told
            elif method == "usage_of":
                self.record[kept.name].update(told)
            elif told is not None:
                self.record[kept.name] = told
            return answer

        return recorded


class RecordedInputs:
    """Answers from a record, through JSON or not; what was never asked then is unknown now."""

    def __init__(self, record: Mapping[str, Any], archive_at: ArchiveAt | None = None) -> None:
        self.record = record
        self.archive_at = archive_at

    def now_us(self) -> int:
        """Return the clock of then."""
        return int(self.record["now_us"])

    def archive(self) -> ArchiveState | None:
        """Return what was archived then; ArchiveLostError where nothing knows it."""
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
"""Bumped when an older version could not re-run the packet, or calls its steps otherwise."""

_ID_BYTES = 6  # of a packet's id, 12 hex digits: two among the some thousands of one log never meet


def recall_and_log(
    recaller: Recaller,
    query: Query,
    *,
    log_path: Path | None,
    inputs: Inputs | None = None,
    deadline_ms: float | None = None,
) -> RecallResult:
    """Recall; where the profile says `replay_log`, keep what a re-run needs.

    `dry_run` and no `log_path` keep the packet out of the log. A log that cannot be written is the
    warning "replay_log".
    """
    if not query.profile.replay_log:
        return recaller.ask(query, inputs, deadline_ms)
    recording = RecordingInputs(inputs or recaller.inputs_now(query.scope.user))
    result = recaller.ask(query, cast("Inputs", recording), deadline_ms)
    packet = _make_packet(recaller, query, result, recording.record)
    fault = None if query.dry_run or log_path is None else append_packet(log_path, packet)
    told = () if fault is None else (RecallWarning("replay_log", fault),)
    return replace(result, warnings=(*result.warnings, *told), replay_packet=packet)


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
        "pagination_state": _scan_told(recaller, query),
        **_outcome_of(result),
        "world": dict(record),
    }


def _outcome_of(result: RecallResult) -> dict[str, Any]:
    """Return what a re-run is compared by: memories, events, the guard's verdict, warnings."""
    return {
        "model_guard_result": result.pipeline["model_guard"],
        "results": [{"id": m.id, "final_score": m.final_score} for m in result.memories],
        "score_events": (result.replay_packet or {}).get("score_events", {}),
        "warnings": [w.code for w in result.warnings],
    }


def _count_wings(reader: SnapshotReader, scope: Scope) -> dict[str, int]:
    """Return the memories per wing that a scope allows; those without a wing are left out."""
    mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
    wings = reader.facets["wing"]
    codes = wings.codes if mask is None else wings.codes[mask]
    counts = np.bincount(codes[codes >= 0], minlength=len(wings.values)).tolist()
    return {wing: count for wing, count in zip(wings.values, counts, strict=True) if count}


def _scan_told(recaller: Recaller, query: Query) -> dict[str, Any]:
    """Return how far the night's last LTP scan came, in the RFC's shape.

    Where there are named users, that would tell how many memories they have: the total is of what
    may be seen, and nothing is said of the scan.
    """
    reader = recaller.reader
    own, _ = build_mask(Scope(user=query.scope.user), reader.facets, reader.created_at_us)
    total, scanned, batches, left = reader.count, 0, 0, 0
    if own is not None:
        total = int(own.sum())
    else:
        usage = UsageReader(recaller.paths.usage)
        usage.close()
        left = usage.not_scanned
        if usage.warning is None:
            scanned, size = max(total - left, 0), query.profile.batch_size
            batches = -(-scanned // size) if query.profile.paginated_scoring else 1
    return {
        "total": total,
        "batches_processed": batches,
        "last_offset": scanned,
        "scan_depth_reached": left > 0,
    }


# Running a packet again and saying what differs, in a person's words.


_NOT_REPLAYED = frozenset({"hook_failed", "replay_log"})

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
        return plain(self)


def replay(paths: StorePaths, packet: Mapping[str, Any]) -> Comparison:
    """Run a packet against its own snapshot, or say that it is gone; StoreError if damaged."""
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
    """Run a packet again and compare, writing nothing; another snapshot is a difference."""
    _require_packet(packet)
    try:
        found = tuple(_differences(packet, _run(recaller, packet)))
    except ArchiveLostError as error:
        return _not_run(packet, str(error))
    # A damaged packet, or a snapshot that is damaged below the reach of the quick check, raises
    # whatever the step that meets it raises.
    except Exception as error:
        raise StoreError(
            f"packet {packet['replay_id']} cannot be run again ({type(error).__name__}: {error}): "
            "it is damaged, or its snapshot is (`noctuary doctor`)"
        ) from error
    return Comparison(not found, found, tuple(_notes(packet)), len(packet["results"]))


def _require_packet(packet: Mapping[str, Any]) -> None:
    found = packet.get("format")
    if found != PACKET_FORMAT:
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
    made_by = packet.get("made_by")
    if made_by != __version__:
        yield f"the packet was made by noctuary {made_by}, this is {__version__}"
    flags = sorted(set(packet["profile"]) ^ set(FIELD_NAMES))
    if flags:
        yield f"flags that only one of the two versions knows: {', '.join(flags)}"


def _differences(packet: Mapping[str, Any], result: RecallResult) -> Iterator[str]:
    now, guard = _outcome_of(result), packet["model_guard_result"]
    if result.snapshot_id != packet["snapshot_id"]:
        yield f"run against snapshot {result.snapshot_id} instead of {packet['snapshot_id']}"
    if now["model_guard_result"] != guard:
        yield f"the model guard said {guard}, now it says {now['model_guard_result']}"
    before, after = (
        {code for code in codes if code not in _NOT_REPLAYED}
        for codes in (packet["warnings"], now["warnings"])
    )
    for code in sorted(before - after):
        yield f"the warning {code} came then and does not now"
    for code in sorted(after - before):
        yield f"the warning {code} comes now and did not then"
    yield from _memory_differences(packet["results"], now["results"])
    yield from _event_differences(packet["score_events"], now["score_events"])


def _memory_differences(then: Rows, now: Rows) -> Iterator[str]:
    before, after = (
        {row["id"]: (place, row["final_score"]) for place, row in enumerate(rows, start=1)}
        for rows in (then, now)
    )
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
    nothing = {"delta": 0.0, "reason": "nothing"}
    for memory_id in (m for m in then if m in now):
        before, after = ({e["phase"]: e for e in told[memory_id]} for told in (then, now))
        for phase in dict.fromkeys([*before, *after]):
            old, new = before.get(phase, nothing), after.get(phase, nothing)
            if old["delta"] != new["delta"]:
                yield f"[{memory_id}] {phase}: {_changed(old['delta'], new['delta'])}"
            elif old["reason"] != new["reason"]:
                said = f"the reason was {old['reason']!r}, now it is {new['reason']!r}"
                yield f"[{memory_id}] {phase}: {said}"


def _changed(old: float, new: float) -> str:
    return f"{old:.6g} then, {new:.6g} now (changed by {new - old:+.3g})"
