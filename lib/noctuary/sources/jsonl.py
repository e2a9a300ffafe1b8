"""Reading an exported corpus: one JSON object a line, plain or gzip."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import SourceError, SourceFormatError
from noctuary.core.foreign_json import parse_json
from noctuary.sources.source import (
    DEFAULT_BATCH_ROWS,
    GZIP_MAGIC,
    IdKind,
    QuarantineReason,
    RawRow,
    Source,
    SourceIdentity,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


# The lines of a JSONL file, plain or gzip, as it was when it was opened.
#
# The meaning of a line is in `noctuary.sources.jsonl`.

MAX_LINE_BYTES = 64 * 2**20
"""Longest line that is held in memory; a longer one is skipped and quarantined with its length."""

_READ_BYTES = 1 << 20
_UTF8_BOM = b"\xef\xbb\xbf"


class _Lines(Protocol):
    def readline(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Line:
    """One non-blank line."""

    number: int  # 1-based line of the (unpacked) file
    # Its bytes without the line end; the first MAX_LINE_BYTES of it when `size_bytes` is more
    data: bytes
    size_bytes: int  # Its whole length
    terminated: bool  # False for a last line without a line end


class PinnedFile:
    """A file kept open at the size it had, so that a writer's appends stay out of every pass."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._handle = path.open("rb")
        except OSError as error:
            raise SourceError(
                f"{path} cannot be opened: {error.strerror}. Check the file's permissions."
            ) from None
        stat = os.fstat(self._handle.fileno())
        self.size_bytes = stat.st_size
        self.mtime_ns = stat.st_mtime_ns
        self.is_gzip = os.pread(self._handle.fileno(), len(GZIP_MAGIC), 0) == GZIP_MAGIC

    def open_raw(self) -> HashingReader:
        """Return an independent reader of the pinned bytes."""
        return HashingReader(self._handle.fileno(), self.size_bytes)

    def close(self) -> None:
        """Close the file; safe to call twice."""
        self._handle.close()


class HashingReader(io.RawIOBase):
    """Reads a pinned range by position and digests what passes."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        super().__init__()
        self._fd = fd
        self._size_bytes = size_bytes
        self._offset = 0
        self._digest = hashlib.sha256()

    def readable(self) -> bool:
        """Say yes."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill the buffer from the current position; 0 at the pinned end."""
        view = memoryview(buffer).cast("B")
        chunk = os.pread(self._fd, min(len(view), self._size_bytes - self._offset), self._offset)
        view[: len(chunk)] = chunk
        self._offset += len(chunk)
        self._digest.update(chunk)
        return len(chunk)

    def hexdigest(self) -> str:
        """Return the SHA-256 of everything read so far."""
        return self._digest.hexdigest()


class LinePass:
    """One pass over the lines of a pinned file; afterwards `sha256` is the whole file's."""

    def __init__(self, file: PinnedFile, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._file = file
        self._max_line_bytes = max_line_bytes
        self.sha256 = ""

    def __iter__(self) -> Iterator[Line]:
        raw = self._file.open_raw()
        buffered = io.BufferedReader(raw, _READ_BYTES)
        stream: _Lines = buffered
        if self._file.is_gzip:
            stream = gzip.GzipFile(fileobj=buffered)
        number = 0
        try:
            for line in _split(stream, self._max_line_bytes):
                number = line.number
                if line.data.strip():
                    yield line
        except EOFError:
            raise self._broken("is cut off", number) from None
        except (zlib.error, gzip.BadGzipFile):
            raise self._broken("is damaged", number) from None
        while buffered.read(_READ_BYTES):
            pass
        self.sha256 = raw.hexdigest()

    def _broken(self, what: str, number: int) -> SourceFormatError:
        return SourceFormatError(
            f"{self._file.path}: the gzip archive {what} after line {number} "
            f"({self._file.size_bytes} bytes on disk). Nothing of it was published, because what "
            f"is missing cannot be told from what was deleted. Copy or export the file again."
        )


def _split(stream: _Lines, max_line_bytes: int) -> Iterator[Line]:
    number = 0
    while data := stream.readline(max_line_bytes + 1):
        number += 1
        size_bytes, tail = len(data), data
        while not tail.endswith(b"\n") and (tail := stream.readline(_READ_BYTES)):
            size_bytes += len(tail)
        ended = tail.endswith(b"\n")
        if number == 1:
            data = data.removeprefix(_UTF8_BOM)
        yield Line(number, data[:max_line_bytes].rstrip(b"\r\n"), size_bytes - ended, ended)


# Reading an exported corpus: one JSON object a line, plain or gzip.
#
# The first pass learns the ids (8 bytes a row for numbers), the digest and whether the file is in
# key order already. If it is not, the rows are delivered in several passes over the file, each
# picking one window of the order: no text of a row is ever put into a temporary file in order to
# sort it.

EXPECTED_KEYS = (
    "id",
    "content",
    "category",
    "tags",
    "expanded_keywords",
    "importance",
    "created_at",
    "session_id",
    "wing",
)

WINDOW_BYTES = 64 * 2**20
"""Line bytes held at once while an unsorted file is put in order: larger needs fewer passes."""

MAX_ID_CHARS = 512
"""Longest text id; longer ones are content in the wrong place."""

_INT64_MAX = 2**63 - 1
_MAX_KEYS_NAMED = 12
_KEY_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")


@dataclass(slots=True)
class _Scan:
    """What the first pass learned; ids and sizes by row."""

    sha256: str = ""
    numbers: array[int] = field(default_factory=lambda: array("q"))
    sizes: array[int] = field(default_factory=lambda: array("q"))
    texts: dict[int, str] = field(default_factory=dict[int, str])
    keyless: set[int] = field(default_factory=set[int])
    objects: int = 0
    recognised: int = 0
    first_keys: tuple[str, ...] = ()

    @property
    def id_kind(self) -> IdKind:
        return "str" if self.texts else "int"


class JsonlSource(Source):
    """A JSONL file, pinned to the bytes it had."""

    def __init__(
        self,
        path: Path,
        *,
        window_bytes: int = WINDOW_BYTES,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        self._file = PinnedFile(path.absolute())
        self._window_bytes = window_bytes
        self._max_line_bytes = max_line_bytes
        self._scanned: _Scan | None = None
        if path.suffix == ".gz" and not self._file.is_gzip:
            self.close()
            raise SourceFormatError(
                f"{path} is named .gz but is no gzip archive ({self._file.size_bytes} bytes, no "
                f"gzip header). Export it again, or rename it to .jsonl if it is plain text."
            )

    def identity(self) -> SourceIdentity:
        """Return path, digest and size of what is read; makes the first pass if none was made."""
        scan = self._scan()
        return SourceIdentity(
            kind="jsonl.gz" if self._file.is_gzip else "jsonl",
            location=str(self._file.path),
            schema_version="1",
            id_kind=scan.id_kind,
            marker={
                "sha256": scan.sha256,
                "size_bytes": self._file.size_bytes,
                "mtime_ns": self._file.mtime_ns,
                "rows": len(scan.sizes),
            },
        )

    def count(self) -> int:
        """Return the number of non-blank lines."""
        return len(self._scan().sizes)

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield the rows by ascending id; one without a usable id stays behind its neighbour."""
        scan = self._scan()
        order = _key_order(scan)
        batch: list[RawRow] = []
        held_bytes = 0
        for line in self._in_file_order() if order is None else self._in_order(order, scan):
            batch.append(_raw_row(line, self._max_line_bytes, scan.id_kind))
            held_bytes += line.size_bytes
            if len(batch) >= size or held_bytes >= self._window_bytes:
                yield batch
                batch, held_bytes = [], 0
        if batch:
            yield batch

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _scan(self) -> _Scan:
        if self._scanned is None:
            scan = _Scan()
            lines = LinePass(self._file, self._max_line_bytes)
            for index, line in enumerate(lines):
                _note_row(scan, index, _raw_row(line, self._max_line_bytes, None))
                scan.sizes.append(line.size_bytes)
            scan.sha256 = lines.sha256
            self._check_recognised(scan)
            self._scanned = scan
        return self._scanned

    def _in_file_order(self) -> Iterator[Line]:
        lines = LinePass(self._file, self._max_line_bytes)
        yield from lines
        self._check_unchanged(lines)

    def _in_order(self, order: NDArray[np.int64], scan: _Scan) -> Iterator[Line]:
        sizes = np.frombuffer(scan.sizes, dtype=np.int64)[order]
        for start, end in _windows(sizes, self._window_bytes):
            place = {int(row): at for at, row in enumerate(order[start:end])}
            held: list[Line | None] = [None] * len(place)
            lines = LinePass(self._file, self._max_line_bytes)
            for index, line in enumerate(lines):
                if (at := place.get(index)) is not None:
                    held[at] = line
            self._check_unchanged(lines)
            yield from (line for line in held if line is not None)

    def _check_unchanged(self, lines: LinePass) -> None:
        if lines.sha256 != self._scan().sha256:
            raise SourceError(
                f"{self._file.path} was rewritten while it was read. Run again when its writer has "
                f"finished; appending to it or replacing it by a rename is safe at any time."
            )

    def _check_recognised(self, scan: _Scan) -> None:
        rows = len(scan.sizes)
        if rows == 0 or scan.recognised:
            return
        if scan.objects == 0:
            raise SourceFormatError(
                f"{self._file.path}: none of its {rows} lines is a JSON object. Expected one "
                f"object a line with at least the keys id and content."
            )
        raise SourceFormatError(
            f"{self._file.path}: unknown schema, no line has both 'id' and 'content'. The first "
            f"object has the keys {', '.join(scan.first_keys) or '(none)'}; expected "
            f"{', '.join(EXPECTED_KEYS)}. Point noctuary at the corpus file, not at its queries."
        )


def _note_row(scan: _Scan, index: int, row: RawRow) -> None:
    if row.problem in (None, QuarantineReason.BAD_ID):
        scan.objects += 1
        scan.recognised += "id" in row.fields and "content" in row.fields
        if not scan.first_keys:
            # Only what looks like a column name: a key may hold anything.
            names = [name for name in row.fields if _KEY_NAME.fullmatch(name)]
            scan.first_keys = tuple(names[:_MAX_KEYS_NAMED])
    if row.key is None:
        scan.keyless.add(index)
    elif isinstance(row.key, str):
        scan.texts[index] = row.key
    scan.numbers.append(row.key if isinstance(row.key, int) else 0)


def _key_order(scan: _Scan) -> NDArray[np.int64] | None:
    """Return row indices in key order, or None where the file is in key order already.

    A row without a key takes the key of the row before it, so that it stays where it was read.
    """
    if scan.id_kind == "int":
        keys: NDArray[Any] = np.frombuffer(scan.numbers, dtype=np.int64)
    else:
        # Objects, not fixed-width strings: one long id must not widen all of them.
        texts = [scan.texts.get(i, str(n)) for i, n in enumerate(scan.numbers)]
        keys = np.array(texts, dtype=object)
    if scan.keyless:
        has_key = np.ones(len(keys), dtype=np.bool_)
        has_key[list(scan.keyless)] = False
        carried = np.maximum.accumulate(np.where(has_key, np.arange(len(keys)), 0))
        if not has_key[0] and has_key.any():
            carried[carried == 0] = int(np.argmax(has_key))
        keys = keys[carried]
    if bool(np.all(keys[:-1] <= keys[1:])):
        return None
    return np.argsort(keys, kind="stable").astype(np.int64)


def _windows(sizes: NDArray[np.int64], window_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut rows into runs of at most `window_bytes`, at least one row each."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        limit = window_bytes + (int(ends[start - 1]) if start else 0)
        end = max(start + 1, int(np.searchsorted(ends, limit, side="right")))
        yield start, end
        start = end


def _raw_row(line: Line, max_line_bytes: int, id_kind: IdKind | None) -> RawRow:
    """Parse a line; with `id_kind` the key is brought to the type that the whole file has."""
    locator = f"line {line.number}"
    if line.size_bytes > max_line_bytes:
        return _unread(locator, line, QuarantineReason.LINE_TOO_LONG)
    try:
        value: object = parse_json(line.data.decode("utf-8"))
    except UnicodeDecodeError:
        return _unread(locator, line, QuarantineReason.NOT_UTF8)
    except ValueError:
        broken = QuarantineReason.INVALID_JSON
        return _unread(
            locator, line, broken if line.terminated else QuarantineReason.HALF_WRITTEN_LINE
        )
    if not isinstance(value, dict):
        return _unread(locator, line, QuarantineReason.NOT_AN_OBJECT)
    fields = cast("dict[str, object]", value)
    key = _usable_id(fields.get("id"))
    if key is None:
        detail = f"id: {type(fields.get('id')).__name__}"
        return RawRow(locator, None, fields, QuarantineReason.BAD_ID, detail)
    return RawRow(locator, str(key) if id_kind == "str" else key, fields)


def _unread(locator: str, line: Line, reason: QuarantineReason) -> RawRow:
    text = line.data.decode("utf-8", "replace")
    return RawRow(locator, None, {}, reason, f"{line.size_bytes} bytes", text)


def _usable_id(value: object) -> int | str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if -_INT64_MAX - 1 <= value <= _INT64_MAX else None
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_ID_CHARS:
        return None
    # Not printable: surrogates cannot be written, control characters break every table and log.
    return value if value.isprintable() else None
