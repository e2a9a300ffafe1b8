"""Read an exported corpus: one JSON object a line, plain or gzip.

A first pass records the order of ids; an unsorted file is then read in several passes, one window
of that order each, so that no text is written to a temporary file.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.foreign_json import parse_json
from noctuary.core.locks import read_at
from noctuary.sources.source import (
    IdKind,
    QuarantineReason,
    RawRow,
    Source,
    SourceIdentity,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

GZIP_MAGIC = b"\x1f\x8b"
EXPECTED_KEYS = (
    "id", "content", "category", "tags", "expanded_keywords", "importance", "created_at",
    "session_id", "wing",
)  # fmt: skip

MAX_LINE_BYTES = 64 * 2**20  # held in memory; a longer line is quarantined
WINDOW_BYTES = 64 * 2**20  # of an unsorted file held at once: larger needs fewer passes
MAX_ID_CHARS = 512  # a longer one is content in the wrong field
_READ_BYTES = 1 << 20
_UTF8_BOM = b"\xef\xbb\xbf"
_MAX_KEYS_NAMED = 12
_KEY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")


class FileLine(NamedTuple):
    """One non-blank line of the file, with its number and size."""

    number: int  # 1-based, in the decompressed file
    data: bytes  # Without the line end, cut to MAX_LINE_BYTES
    size_bytes: int  # Its full length
    is_ended: bool  # False for a last line without a newline


@dataclass(slots=True)
class _Scan:
    """The result of the first pass: ids and sizes by row, and the keys found."""

    # Id of each row, or of the row before, so that one without an id keeps its place
    keys: list[int | str | None] = field(default_factory=list[int | str | None])
    sizes: array[int] = field(default_factory=lambda: array("q"))  # By row
    id_kind: IdKind = "int"
    is_recognised: bool = False
    # Key and speaker of rows that look like memories
    speakers: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    first_keys: list[str] | None = None  # Of the first object that has any; None without objects


class JsonlSource(Source):
    """A JSONL file, pinned to its size when opened: later appends are not read."""

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._scanned: _Scan | None = None
        self._sha256 = ""
        try:
            self._handle = self._path.open("rb")
        except OSError as error:
            raise SourceError(
                f"{path} cannot be opened: {error.strerror}. Check the file's permissions."
            ) from None
        self._stat = os.fstat(self._handle.fileno())
        self._is_gzip = read_at(self._handle.fileno(), len(GZIP_MAGIC), 0) == GZIP_MAGIC
        if path.suffix == ".gz" and not self._is_gzip:
            self.close()
            raise SourceFormatError(
                f"{path} is named .gz but is not a gzip archive ({self._stat.st_size} bytes, no "
                f"gzip header). Export it again, or rename it to .jsonl if it is plain text."
            )

    def identity(self) -> SourceIdentity:
        """Return path, digest, size and row count; runs the first pass if needed."""
        scan = self._scan()
        kind = "jsonl.gz" if self._is_gzip else "jsonl"
        size = {"size_bytes": self._stat.st_size, "mtime_ns": self._stat.st_mtime_ns}
        marker = {"sha256": self._sha256, **size, "rows": len(scan.keys)}
        return SourceIdentity(kind, str(self._path), "1", scan.id_kind, marker)

    def count(self) -> int:
        """Return the number of non-blank lines; runs the first pass if needed."""
        return len(self._scan().keys)

    def rows(self) -> Iterator[RawRow]:
        """Yield the rows by ascending id; a row without a usable id follows its predecessor."""
        scan = self._scan()
        order = _key_order(scan)
        for line in self._lines() if order is None else self._in_order(order, scan):
            row = parse_line(line)
            # All keys get the type found for the whole file.
            is_other = scan.id_kind == "str" and isinstance(row.key, int)
            yield replace(row, key=str(row.key)) if is_other else row

    def close(self) -> None:
        """Close the file."""
        self._handle.close()

    def _scan(self) -> _Scan:
        if self._scanned is None:
            scan, last = _Scan(), None
            for line in self._lines():
                row = parse_line(line)
                if row.problem in (None, QuarantineReason.BAD_ID):
                    is_memory = {"id", "content"} <= row.fields.keys()
                    scan.is_recognised |= is_memory
                    scan.speakers |= _speakers_of(row.fields) if is_memory else set()
                    # Only identifiers: a key may hold any text.
                    names = scan.first_keys or filter(_KEY_NAME.fullmatch, row.fields)
                    scan.first_keys = list(islice(names, _MAX_KEYS_NAMED))
                last = last if row.key is None else row.key
                scan.keys.append(last)
                scan.sizes.append(line.size_bytes)
                scan.id_kind = "str" if isinstance(last, str) else scan.id_kind
            first = next((key for key in scan.keys if key is not None), 0)
            scan.keys = [first if key is None else key for key in scan.keys]
            self._check_recognised(scan)
            self._scanned = scan
        return self._scanned

    def _in_order(self, order: NDArray[np.int64], scan: _Scan) -> Iterator[FileLine]:
        """Yield the lines in an order, in passes that each hold at most a window, or one line."""
        ends = np.cumsum(np.frombuffer(scan.sizes, dtype=np.int64)[order])
        start = 0
        while start < len(order):
            limit = WINDOW_BYTES + (int(ends[start - 1]) if start else 0)
            stop = max(start + 1, int(np.searchsorted(ends, limit, side="right")))
            wanted = order[start:stop].tolist()
            chosen = set(wanted)
            held = {index: line for index, line in enumerate(self._lines()) if index in chosen}
            yield from (held[index] for index in wanted)
            start = stop

    def _lines(self) -> Iterator[FileLine]:
        """Make one pass over the non-blank lines, and check that the digest is unchanged."""
        raw = _HashingReader(self._handle.fileno(), self._stat.st_size)
        buffered = io.BufferedReader(raw, _READ_BYTES)
        stream = gzip.GzipFile(fileobj=buffered) if self._is_gzip else buffered
        number = 0
        try:
            while data := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                size_bytes, tail = len(data), data
                while not tail.endswith(b"\n") and (tail := stream.readline(_READ_BYTES)):
                    size_bytes += len(tail)
                is_ended = tail.endswith(b"\n")
                if number == 1:
                    data = data.removeprefix(_UTF8_BOM)
                data = data[:MAX_LINE_BYTES].rstrip(b"\r\n")
                if data.strip():
                    yield FileLine(number, data, size_bytes - is_ended, is_ended)
        except EOFError:
            raise self._broken("is cut off", number) from None
        except (zlib.error, gzip.BadGzipFile):
            raise self._broken("is damaged", number) from None
        while buffered.read(_READ_BYTES):
            pass
        self._sha256 = self._sha256 or raw.digest.hexdigest()
        if self._sha256 != raw.digest.hexdigest():
            raise SourceError(
                f"{self._path} was rewritten while it was read. Run again when its writer has "
                f"finished; appending to it or replacing it by a rename is safe at any time."
            )

    def _broken(self, what: str, number: int) -> SourceFormatError:
        return SourceFormatError(
            f"{self._path}: the gzip archive {what} after line {number} "
            f"({self._stat.st_size} bytes on disk). Nothing of it was published, because what "
            f"is missing cannot be told from what was deleted. Copy or export the file again."
        )

    def _check_recognised(self, scan: _Scan) -> None:
        for key, who in sorted(scan.speakers):
            if who in _ANSWERING and scan.speakers & {(key, one) for one in _ASKING}:
                raise SourceFormatError(
                    f"{self._path} is a conversation and not a corpus: its lines have {key!r} "
                    f"{who!r} and that of a person. Its format is none of the agents' that "
                    f"docs/transcripts.md names, so that its turns were not read. To read its "
                    f"lines as memories, take the key {key!r} out of them."
                )
        if not scan.keys or scan.is_recognised:
            return
        if scan.first_keys is None:
            raise SourceFormatError(
                f"{self._path}: none of its {len(scan.keys)} lines is a JSON object. Expected one "
                f"object a line with at least the keys id and content."
            )
        raise SourceFormatError(
            f"{self._path}: unknown schema, no line has both 'id' and 'content'. The first "
            f"object has the keys {', '.join(scan.first_keys) or '(none)'}; expected "
            f"{', '.join(EXPECTED_KEYS)}. Point noctuary at the corpus file, not at its queries."
        )


# Values that mark a conversation, which has both sides under one key; a corpus does not.
_SPEAKER_KEYS = ("role", "type", "sender", "author", "from", "speaker")
_ASKING = frozenset({"user", "human"})
_ANSWERING = frozenset({"assistant", "gemini", "model", "qwen", "ai", "bot", "agent", "gpt"})


def _speakers_of(fields: Mapping[str, object]) -> set[tuple[str, str]]:
    """Return the (key, speaker) pairs of a row."""
    found = ((key, fields.get(key)) for key in _SPEAKER_KEYS)
    known = _ASKING | _ANSWERING
    return {(k, v.lower()) for k, v in found if isinstance(v, str) and v.lower() in known}


class _HashingReader(io.RawIOBase):
    """Reads a pinned range of a file by position and hashes the bytes read."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._fd = fd
        self._left = range(size_bytes)
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        chunk = read_at(self._fd, min(len(view), len(self._left)), self._left.start)
        view[: len(chunk)] = chunk
        self._left = self._left[len(chunk) :]
        self.digest.update(chunk)
        return len(chunk)


def _key_order(scan: _Scan) -> NDArray[np.int64] | None:
    """Return row indices in key order, or None if the file is already sorted."""
    keys: NDArray[Any] = np.array(scan.keys if scan.id_kind == "int" else [], dtype=np.int64)
    if scan.id_kind == "str":
        # Objects instead of fixed-width strings: one long id must not widen all of them.
        keys = np.array([str(key) for key in scan.keys], dtype=object)
    if bool(np.all(keys[:-1] <= keys[1:])):
        return None
    return np.argsort(keys, kind="stable").astype(np.int64)


def parse_line(line: FileLine) -> RawRow:
    """Parse a line into a RawRow; a row without a usable id keeps its fields."""
    locator, value, broken = f"line {line.number}", None, QuarantineReason.LINE_TOO_LONG
    if line.size_bytes <= MAX_LINE_BYTES:
        broken = QuarantineReason.NOT_AN_OBJECT
        try:
            value = parse_json(line.data.decode("utf-8"))
        except UnicodeDecodeError:
            broken = QuarantineReason.NOT_UTF8
        except ValueError:
            is_cut = not line.is_ended
            broken = QuarantineReason.HALF_WRITTEN_LINE if is_cut else QuarantineReason.INVALID_JSON
    if not isinstance(value, dict):
        text = line.data.decode("utf-8", "replace")
        return RawRow(locator, None, {}, broken, f"{line.size_bytes} bytes", text)
    fields = cast("dict[str, object]", value)
    key = usable_id(fields.get("id"))
    if key is None:
        detail = f"id: {type(fields.get('id')).__name__}"
        return RawRow(locator, None, fields, QuarantineReason.BAD_ID, detail)
    return RawRow(locator, key, fields)


def usable_id(value: object) -> int | str | None:
    """Return a value usable as an id (a 64-bit number or a printable text), else None."""
    if isinstance(value, int):
        is_number = not isinstance(value, bool) and -(2**63) <= value < 2**63
        return value if is_number else None
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_ID_CHARS:
        return None
    # Surrogates cannot be written, and control characters break tables and logs.
    return value if value.isprintable() else None
