"""Replay: keep everything that a recall read in a packet, run a packet again and compare.

Deadlines, whose effect depends on load, and hooks, which change nothing, are not replayed.
"""

from __future__ import annotations

import base64
import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noctuary import __version__
from noctuary.core import formats
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
from noctuary.core.types import UNDATED_US, from_micros
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import ArchiveState, Inputs
from noctuary.recall.profile import FIELD_NAMES, RetrievalProfile
from noctuary.recall.query import Query, Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import RecallResult, RecallWarning, plain
from noctuary.sources.live import read_state, record_state
from noctuary.usage.reader import BATCH_ROWS, Usage, UsageReader

# The replay log: one packet per row, bounded in size. It contains the texts of queries, so only its
# owner may read it, and it is written only if the profile sets `replay_log`. Appending never
# raises, so that a full disk does not fail a recall.

MAX_LOG_BYTES = 64 << 20  # of the newest packets, some 5,000 recalls

_END = "(SELECT started + size FROM packets ORDER BY number DESC LIMIT 1)"


def log_format(max_bytes: int = MAX_LOG_BYTES) -> LogFormat:
    """Return the format of the log; `started` is the size of all earlier packets in bytes."""
    return LogFormat(
        noun="the replay log",
        version=formats.REPLAY_LOG.version,
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
    """Packets of a log, oldest first."""

    packets: list[dict[str, Any]]
    unreadable: int  # rows that are not a packet


def append_packet(path: Path, packet: Mapping[str, Any]) -> str | None:
    """Append a packet, drop the oldest beyond the bound; return None, or the error as text."""
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
    """Return the last packets of a log, none if it is missing; StoreError if it is damaged."""
    return _read(path, "ORDER BY number DESC LIMIT ?", [limit])


def find_packet(path: Path, replay_id: str) -> dict[str, Any]:
    """Return the packet whose id starts with a prefix; StoreError if there is none, or several."""
    found: list[dict[str, Any]] = []
    if replay_id.isascii() and replay_id:
        which = "WHERE instr(replay_id, ?) = 1 ORDER BY number DESC"
        found = _read(path, which, [replay_id]).packets
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


# The record of the inputs is plain JSON. Texts that were encoded or reranked are kept as digests
# only, because they contain words of memories; earlier queries are kept as text. Vectors are base64
# of little-endian float32 and scores are JSON numbers, so every value is restored exactly.

_RAISED: Mapping[str, type[Exception]] = {
    error.__name__: error for error in (FingerprintMismatchError, EncoderError, OSError, ValueError)
}  # errors that inputs may raise, subclasses first
_VECTOR = np.dtype("<f4")
_NEVER = [0, 0, UNDATED_US]


class ArchiveLostError(StoreError):
    """The state of the archive at the time of a recall cannot be restored."""


def _to_json(answer: Any, _: Any = None) -> Any:
    if isinstance(answer, RecallWarning):
        return answer.to_json()
    if isinstance(answer, Mapping):
        return {key: _to_json(value) for key, value in cast("Mapping[str, Any]", answer).items()}
    if not isinstance(answer, np.ndarray):
        return plain(answer)
    array = cast("NDArray[Any]", answer)
    if array.dtype != np.float32:
        return array.tolist()
    return base64.b64encode(np.ascontiguousarray(array, dtype=_VECTOR).tobytes()).decode("ascii")


def _write_counts(answer: Any, asked: Sequence[Any]) -> dict[str, Any]:
    """Return one number or three by memory, without those of memories that were never recalled."""
    rows: list[Any] = np.array(answer).T.tolist()
    return {m: row for m, row in zip(asked[0], rows, strict=True) if row not in (0, _NEVER)}


def _read_counts(kept: Any, asked: Sequence[Any], never: Any = 0) -> NDArray[np.int64]:
    return np.array([(kept or {}).get(m, never) for m in asked[0]], dtype=np.int64)


def _read_usage(kept: Any, asked: Sequence[Any]) -> Usage:
    return Usage(*_read_counts(kept, asked, _NEVER).reshape(-1, len(_NEVER)).T)


def _read_vector(text: Any, _: Any) -> NDArray[np.float32]:
    if text is None:
        raise EncoderError("the replay packet holds no vector of this text")
    return np.frombuffer(base64.b64decode(text), dtype=_VECTOR).astype(np.float32)


def _read_vectors(kept: Any, asked: Sequence[Any]) -> Any:
    hashes = (row.content_hash for row in asked[0])
    return {key: _read_vector(kept[key], None) for key in hashes if kept and key in kept}


def _write_past(answer: Any, _: Any) -> Any:
    return {"found": plain([tuple(row) for row in answer[0]]), "fault": answer[1]}


def _read_past(kept: Any, _: Any) -> Any:
    rows, fault = ((), None) if kept is None else (kept["found"], kept["fault"])
    return [(text, int(us), float(like), tuple(ids)) for text, us, like, ids in rows], fault


def _read_scores(kept: Any, asked: Sequence[Any]) -> NDArray[np.float64] | RecallWarning:
    if kept is None:
        message = f"the replay packet holds no scores of {asked[0]} for these memories"
        return RecallWarning("reranker_unavailable", message)
    if isinstance(kept, Mapping):
        return RecallWarning(**cast("Mapping[str, str]", kept))
    return np.array(kept, dtype=np.float64)


_Convert = Callable[[Any, Sequence[Any]], Any]

_KEPT: Mapping[str, tuple[str, str | None, _Convert, _Convert]] = {
    "encoder": ("encoder", None, lambda kept, _: kept, _to_json),
    "knows_usage": ("knows_usage", None, lambda kept, _: bool(kept), _to_json),
    "live": ("live", None, lambda kept, _: kept and read_state(kept),
             lambda state, _: state and record_state(state)),
    "live_vectors": ("live_vectors", None, _read_vectors, _to_json),
    "usage_of": ("usage", None, _read_usage, _write_counts),
    "query_vector": ("vectors", "vector ", _read_vector, _to_json),
    "known_share": ("known_share", "", lambda kept, _: 1.0 if kept is None else kept, _to_json),
    "most_used": ("most_used", "", lambda kept, _: kept or [], _to_json),
    "co_retrieved": ("co_retrieved", "", _read_counts, _write_counts),
    "past_queries": ("past_queries", "past ", _read_past, _write_past),
    "rerank": ("reranked", "", _read_scores, _to_json),
}  # fmt: skip
"""By method of `Inputs`: its entry in the record; the prefix of errors where a recall calls it more
than once and every answer has a key, else None; how an answer is read from JSON (None where nothing
was kept) and the arguments; how it is written. The clock and the archive are kept by hand."""


def _key(method: str, asked: Sequence[Any], how: Mapping[str, Any]) -> str:
    """Return the key of one answer; how long it may take (a float) is not part of it."""
    if method == "most_used":
        return str(asked[0])
    texts: list[str] = []
    for value in asked:
        if not isinstance(value, float):
            texts += [value] if isinstance(value, str) else value
    return hash_text(*texts, *(repr(v) for v in how.values() if not isinstance(v, float)))


class RecordingInputs:
    """Passes calls on to other inputs and keeps the answers in `record`; one recall, one thread."""

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self.record: dict[str, Any] = {
            "now_us": inputs.now_us(), "encoder": None, "archive": None, "knows_usage": False,
            "raised": {}, "usage": {},
        }  # fmt: skip
        self.record |= {name: {} for name, errors, *_ in _KEPT.values() if errors is not None}

    def now_us(self) -> int:
        """Return the time at which the recall began."""
        return self.record["now_us"]

    def archive(self) -> ArchiveState | None:
        """Return the archive; the ids of its plans are enough, because a plan never changes."""
        state = self._inputs.archive()
        if state is not None:
            kept = {"moment_us": self.now_us(), "plans": sorted(state.plans)}
            self.record["archive"] = kept
        return state

    def __getattr__(self, method: str) -> Any:
        (name, errors, _, write), ask = _KEPT[method], getattr(self._inputs, method)

        def recorded(*asked: Any, **how: Any) -> Any:
            key = "" if errors is None else _key(method, asked, how)
            try:
                answer = ask(*asked, **how)
            except tuple(_RAISED.values()) as error:
                kind = next(n for n, kind in _RAISED.items() if isinstance(error, kind))
                self.record["raised"][(errors or "") + key] = [kind, str(error)]
                raise
            written = write(answer, asked)
            if errors is not None:
                self.record[name][key] = written
            elif method == "usage_of":
                self.record[name].update(written)
            elif written is not None:
                self.record[name] = written
            return answer

        return recorded


class RecordedInputs:
    """Answers from a record; calls that were not recorded get the answer for unknown."""

    def __init__(self, record: Mapping[str, Any], archive: Path | None = None) -> None:
        """Take a record, and the path of the archive that knows its own past."""
        self.record, self._path = record, archive

    def now_us(self) -> int:
        """Return the time of the recorded recall."""
        return int(self.record["now_us"])

    def archive(self) -> ArchiveState | None:
        """Return the archive as it was; ArchiveLostError where it has changed since."""
        kept = self.record.get("archive")
        if kept is None:
            return None
        from noctuary.compact.archive import ArchiveReader

        reader = None if self._path is None else ArchiveReader(self._path)
        state = reader and ArchiveState.of(reader, int(kept["moment_us"]))
        if state is None or sorted(state.plans) != kept["plans"]:
            raise ArchiveLostError(
                f"plans {', '.join(kept['plans'])} were in force then, and archive.sqlite does not "
                "say so: it is missing or damaged, or was written in that very moment; ask the "
                "same query again with `noctuary recall` for today's answer"
            )
        return state

    def __getattr__(self, method: str) -> Any:
        name, errors, read, _ = _KEPT[method]

        def recorded(*asked: Any, **how: Any) -> Any:
            if errors is None:
                return read(self.record.get(name), asked)
            key = _key(method, asked, how)
            if errors and errors + key in self.record["raised"]:
                kind, message = self.record["raised"][errors + key]
                raise _RAISED[kind](message)
            return read(self.record[name].get(key), asked)

        return recorded


# The replay packet: everything that a re-run of one recall needs, as JSON values, with ids but no
# texts of memories. The fields are those of RFC 914, phases 10 to 14 ("Replay"), and `world`, the
# record of the inputs.

PACKET_FORMAT = formats.REPLAY_PACKET.version
"""Bumped when an older version could not re-run the packet, or names its steps differently."""


def recall_and_log(
    recaller: Recaller,
    query: Query,
    *,
    log_path: Path | None,
    inputs: Inputs | None = None,
    deadline_ms: float | None = None,
) -> RecallResult:
    """Recall by a profile that sets `replay_log`, and log a packet.

    With `dry_run`, or without `log_path`, the packet is only in the result. A log that cannot be
    written gives the warning "replay_log".
    """
    recording = RecordingInputs(inputs or recaller.inputs_now(query.scope.user))
    result = recaller.ask(query, cast("Inputs", recording), deadline_ms)
    packet = _make_packet(recaller, query, result, recording.record)
    fault = None if query.dry_run or log_path is None else append_packet(log_path, packet)
    told = () if fault is None else (RecallWarning("replay_log", fault),)
    return result._replace(warnings=(*result.warnings, *told), replay_packet=packet)


def _make_packet(
    recaller: Recaller, query: Query, result: RecallResult, record: Mapping[str, Any]
) -> dict[str, Any]:
    made_at = from_micros(int(record["now_us"])) or datetime.fromtimestamp(0, UTC)
    return {
        "format": PACKET_FORMAT,
        "replay_id": os.urandom(6).hex(),  # unique among some thousands
        "made_at": made_at.isoformat(),
        "made_by": __version__,
        "query": query.text,
        "k": query.k,
        "sort_by": query.sort_by,
        # A packet without `person` is one that every noctuary of this format reads.
        "scope": {n: plain(v) for n, v in query.scope._asdict().items() if n != "person" or v},
        "session_id": query.session_id,
        "profile": query.profile.to_json(),
        "profile_used": query.profile_used,
        "snapshot_id": result.snapshot_id,
        "wing_counts_at_query_time": _count_wings(recaller.reader, query.scope),
        "pagination_state": _scan_progress(recaller, query),
        **_outcome_of(result),
        "world": dict(record),
    }


def _outcome_of(result: RecallResult) -> dict[str, Any]:
    """Return the parts that are compared: memories, events, the guard's verdict, warnings."""
    return {
        "model_guard_result": result.pipeline["model_guard"],
        "results": [{"id": m.id, "final_score": m.final_score} for m in result.memories],
        "score_events": (result.replay_packet or {}).get("score_events", {}),
        "warnings": [w.code for w in result.warnings],
    }


def _count_wings(reader: SnapshotReader, scope: Scope) -> dict[str, int]:
    """Count the memories per wing that a scope allows, without those of no wing."""
    mask, _ = build_mask(scope, reader.facets, reader.created_at_us)
    wings = reader.facets["wing"]
    codes = wings.codes if mask is None else wings.codes[mask]
    counts = np.bincount(codes[codes >= 0], minlength=len(wings.values)).tolist()
    return {wing: count for wing, count in zip(wings.values, counts, strict=True) if count}


def _scan_progress(recaller: Recaller, query: Query) -> dict[str, Any]:
    """Return the progress of the night's last LTP scan, in the RFC's shape.

    In a store with named users that would reveal how many memories others have: the total counts
    visible memories only, and the scan is left out.
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
            scanned = max(total - left, 0)
            batches = -(-scanned // BATCH_ROWS)
    return {
        "total": total,
        "batches_processed": batches,
        "last_offset": scanned,
        "scan_depth_reached": left > 0,
    }


# Running a packet again and describing the differences.

_NOT_REPLAYED = frozenset({"hook_failed", "replay_log"})

Rows = Sequence[Mapping[str, Any]]


class Comparison(NamedTuple):
    """The outcome of a re-run."""

    identical: bool  # the same memories in the same order, scores, events and warnings
    differences: tuple[str, ...]  # one sentence each; empty where identical
    notes: tuple[str, ...]  # context that is not a difference
    memories: int  # how many the packet holds

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return plain(self)


def replay(paths: StorePaths, packet: Mapping[str, Any]) -> Comparison:
    """Run a packet against its own snapshot and compare; StoreError if it is damaged."""
    _require_packet(packet)
    snapshot_id = str(packet["snapshot_id"])
    directory = paths.snapshots / snapshot_id
    if not is_snapshot_id(snapshot_id) or not directory.is_dir():
        return _compared(
            packet,
            f"snapshot {snapshot_id} is gone, so there is nothing to run this against: only the "
            "last snapshot.keep ones stay (docs/configuration.md), raise it to replay for longer; "
            "ask the same query again with `noctuary recall` for today's answer",
        )
    try:
        reader = SnapshotReader.open(directory)
    except SnapshotCorruptError as error:
        return _compared(packet, str(error))
    try:
        return rerun(Recaller(paths, reader, snapshot_id), packet)
    finally:
        reader.close()


def rerun(recaller: Recaller, packet: Mapping[str, Any]) -> Comparison:
    """Run a packet again and compare, writing nothing; another snapshot is a difference."""
    _require_packet(packet)
    try:
        return _compared(packet, *_differences(packet, _run(recaller, packet)))
    except ArchiveLostError as error:
        return _compared(packet, str(error))
    # A damaged packet or snapshot may raise anything.
    except Exception as error:
        raise StoreError(
            f"packet {packet['replay_id']} cannot be run again ({type(error).__name__}: {error}): "
            "it is damaged, or its snapshot is (`noctuary doctor`)"
        ) from error


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
    return recaller.recall(
        packet["query"],
        packet["k"],
        profile=RetrievalProfile(**known),
        profile_used=packet["profile_used"],
        scope=Scope(**scope),
        sort_by=packet["sort_by"],
        session_id=packet["session_id"],
        dry_run=True,
        inputs=cast("Inputs", RecordedInputs(packet["world"], recaller.paths.archive)),
    )


def _compared(packet: Mapping[str, Any], *found: str) -> Comparison:
    return Comparison(not found, found, tuple(_notes(packet)), len(packet["results"]))


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
    before, after = (set(codes) - _NOT_REPLAYED for codes in (packet["warnings"], now["warnings"]))
    yield from (f"the warning {c} came then and does not now" for c in sorted(before - after))
    yield from (f"the warning {c} comes now and did not then" for c in sorted(after - before))
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
    """Compare the events of memories that both have; the others are differences already."""
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
