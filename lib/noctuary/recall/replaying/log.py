"""The replay log: one packet per line, appended by any number of processes, bounded in size.

What belongs here: the file. What does not: what is in a packet (`packet`).

The log holds the texts of queries, so only its owner may read it, and nothing is written unless a
profile says `replay_log`. Appending never raises: a recall is answered whatever the disk does.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

from noctuary.errors import StoreError
from noctuary.foreign_json import parse_json

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
