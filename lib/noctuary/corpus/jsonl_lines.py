"""The lines of a JSONL file, plain or gzip, as it was when it was opened.

What belongs here: bytes to numbered lines. The meaning of a line is in
`noctuary.corpus.jsonl_source`.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from noctuary.corpus.source import GZIP_MAGIC
from noctuary.errors import SourceError, SourceFormatError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_LINE_BYTES = 64 * 2**20
"""Longest line that is held in memory; a longer one is skipped and quarantined with its length."""

_READ_BYTES = 1 << 20
_UTF8_BOM = b"\xef\xbb\xbf"


class _Lines(Protocol):
    def readline(self, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Line:
    """One non-blank line.

    Attributes:
        number: 1-based line of the (unpacked) file.
        data: Its bytes without the line end; the first MAX_LINE_BYTES of it when `size_bytes` is
            more.
        size_bytes: Its whole length.
        terminated: False for a last line without a line end.
    """

    number: int
    data: bytes
    size_bytes: int
    terminated: bool


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
