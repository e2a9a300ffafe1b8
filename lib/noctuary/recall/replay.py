"""Running a packet again and saying what differs, in a person's words.

Not replayed: deadlines, whose effect depends on the machine's load, and hooks, which change nothing
but may fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from noctuary import __version__
from noctuary.core.errors import SnapshotCorruptError, StoreError
from noctuary.core.store import StorePaths, is_snapshot_id
from noctuary.recall.engine import Recaller
from noctuary.recall.hidden import ArchiveState, state_of
from noctuary.recall.profile import FIELD_NAMES, RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.replay_log import (
    PACKET_FORMAT,
    ArchiveAt,
    ArchiveLostError,
    RecordedWorld,
    outcome_of,
)
from noctuary.recall.result import RecallResult

_NOT_REPLAYED = frozenset({"hook_failed", "replay_log"})
_DEADLINE = "deadline_"
_OWN_STEPS = 1
"""Format whose steps hold a rescaling within the step that called for it."""

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a re-run came to.

    Attributes:
        identical: The same memories in the same order with the same scores and events, and the same
            warnings.
        differences: One sentence each; empty where identical.
        notes: What bears on the comparison without being a difference.
        memories: How many the packet holds.
    """

    identical: bool
    differences: tuple[str, ...]
    notes: tuple[str, ...]
    memories: int

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
    """Run a packet again and compare. Nothing is written.

    Args:
        recaller: The packet's own snapshot; another one is a difference.
        packet: What `make_packet` returned, through JSON or not.

    Raises:
        StoreError: If the packet is none that this version can run.
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
    return recaller.recall(
        packet["query"],
        packet["k"],
        profile=RetrievalProfile(**known),
        profile_used=packet["profile_used"],
        scope=Scope(**scope),
        sort_by=packet["sort_by"],
        session_id=packet["session_id"],
        dry_run=True,
        world=RecordedWorld(packet["world"], _archive_of(recaller.paths)),
    )


def _archive_of(paths: StorePaths) -> ArchiveAt:
    """Return what reads the store's archive of a moment, opened when it is asked."""

    def archive_at(moment_us: int) -> ArchiveState | None:
        from noctuary.compact.archive import ArchiveReader

        return state_of(ArchiveReader(paths.archive), moment_us)

    return archive_at


def _not_run(packet: Mapping[str, Any], why: str) -> Comparison:
    return Comparison(False, (why,), tuple(_notes(packet)), len(packet["results"]))


def _notes(packet: Mapping[str, Any]) -> Iterator[str]:
    late = sorted({code for code in packet["warnings"] if code.startswith(_DEADLINE)})
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
    now = outcome_of(result)
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
