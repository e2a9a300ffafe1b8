"""What a memory store looks like to the export: the protocol, its nouns and the dispatch by path.

What belongs here: what every kind of store has in common. How one kind is read is in its own
module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from noctuary.corpus.quarantine import QuarantineReason
from noctuary.errors import SourceFormatError, SourceMissingError
from noctuary.settings import SourceSettings
from noctuary.source_name import DatabaseName, SourceName

IdKind = Literal["int", "str"]

DEFAULT_BATCH_ROWS = 1_000
"""Rows handed over at once: larger saves calls, smaller saves memory (a row may be a megabyte)."""

BATCH_CHARS = 16 * 2**20
"""A batch of `batch_rows` ends early once its contents reach this: bounds memory when rows are
huge."""

SQLITE_MAGIC = b"SQLite format 3\x00"
GZIP_MAGIC = b"\x1f\x8b"

_DATA_SET_FILES = ("corpus.jsonl.gz", "corpus.jsonl")
_STORE_FILES = ("memory.db", "memory/memory.db", "chroma.sqlite3", "palace/chroma.sqlite3")
_STORE_NAMES = (*_DATA_SET_FILES, *_STORE_FILES)
_JSONL_SUFFIXES = (".jsonl", ".ndjson", ".gz")


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """What exactly was read.

    Attributes:
        kind: "claude-memory-sqlite", "mempalace-chroma", "jsonl", "jsonl.gz" or that of a database.
        location: Absolute path.
        schema_version: The store's schema as its kind names it.
        id_kind: "int" when ids order by number, "str" when they order by code point.
        marker: Size, digest and the like; equal markers mean that the same state was read.
        notes: Machine-readable oddities of the store as a whole, reported as warnings.
    """

    kind: str
    location: str
    schema_version: str
    id_kind: IdKind
    marker: Mapping[str, int | str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as the store gave it, before any judgement.

    Attributes:
        locator: Where it is ("id 17", "line 42").
        key: Its id, of one type within a source; None when it has no usable one.
        fields: Column or key to value, untyped.
        problem: Why the row could not be read as a row at all, or None.
        problem_detail: Sizes and types that go with the problem; no text of the row.
        unread_text: What could be decoded of an unreadable row, for the sensitivity scan alone.
        withheld: Why the store itself kept the text back (its query left sensitive columns out), or
            None; such a row is counted as sensitive under this reason and has no fields.
    """

    locator: str
    key: int | str | None
    fields: Mapping[str, object]
    problem: QuarantineReason | None = None
    problem_detail: str = ""
    unread_text: str = ""
    withheld: str | None = None


class Source(Protocol):
    """A memory store, pinned to the state it had when it was opened."""

    def identity(self) -> SourceIdentity:
        """Return what is being read."""
        ...

    def count(self) -> int:
        """Return the exact number of rows that `batches` will yield."""
        ...

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield every row once in key order, at most `size` at a time.

        Rows of one id are adjacent, but for rows without an id, which lie where they were read.
        """
        ...

    def close(self) -> None:
        """Release the store; safe to call twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Closing:
    """What `with` does for every kind of source: it closes it."""

    def close(self) -> None:
        """Release the store; safe to call twice."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def batch_rows(rows: Iterable[RawRow], size: int) -> Iterator[list[RawRow]]:
    """Yield rows in batches of at most `size`, cut short where contents reach `BATCH_CHARS`."""
    batch: list[RawRow] = []
    held_chars = 0
    for row in rows:
        batch.append(row)
        content = row.fields.get("content")
        held_chars += len(content) if isinstance(content, str) else 0
        if len(batch) >= size or held_chars >= BATCH_CHARS:
            yield batch
            batch, held_chars = [], 0
    if batch:
        yield batch


def open_source(path: SourceName, settings: SourceSettings | None = None) -> Source:
    """Open a memory store: a SQLite file, a palace, a JSONL file, a folder of one, a database.

    Args:
        path: The file, a folder that holds corpus.jsonl.gz, corpus.jsonl, memory.db,
            memory/memory.db, chroma.sqlite3 (a palace) or palace/chroma.sqlite3, or a PostgreSQL
            database.
        settings: Whose rows are read, of a store that several share; None means the defaults.

    Raises:
        SourceMissingError: Nothing is there.
        SourceFormatError: What is there is not a store that noctuary reads, or it is ambiguous.
            Transcripts of agents are none: a night keeps their turns first
            (`noctuary.night.transcripts`).
    """
    # Late: the modules of the kinds import the nouns above.
    from noctuary.corpus.jsonl_source import JsonlSource
    from noctuary.corpus.palace_schema import holds_palace
    from noctuary.corpus.palace_source import PalaceSource
    from noctuary.corpus.sqlite_source import SqliteSource

    if isinstance(path, DatabaseName):
        from noctuary.corpus.postgres_source import PostgresSource

        return PostgresSource(path, settings or SourceSettings())
    file = _locate(path)
    with file.open("rb") as handle:
        head = handle.read(len(SQLITE_MAGIC))
    if head == SQLITE_MAGIC:
        return PalaceSource(file) if holds_palace(file) else SqliteSource(file)
    if head.startswith(GZIP_MAGIC) or file.suffix in _JSONL_SUFFIXES:
        return JsonlSource(file)
    found = f"{len(head)} bytes" if len(head) < len(SQLITE_MAGIC) else "neither header"
    raise SourceFormatError(
        f"{file} is not a database and not JSON lines: expected a SQLite file (it starts with "
        f"'SQLite format 3'; found {found}) or a file named *.jsonl or *.jsonl.gz. Point "
        f"noctuary at a claude-memory memory.db, at a palace's chroma.sqlite3 or at an exported "
        f"corpus; an encrypted database must be decrypted first."
    )


def holds_store(folder: Path) -> bool:
    """Say whether a path is a folder with a memory store in one of its usual places."""
    return folder.is_dir() and bool(stores_in(folder))


def _locate(path: Path) -> Path:
    if not path.exists():
        raise SourceMissingError(
            f"There is no memory store at {path.absolute()}. Check the path; expected a memory.db, "
            f"a palace's chroma.sqlite3, a .jsonl or .jsonl.gz file, or a folder that holds one."
        )
    path = path.absolute()
    if path.is_dir():
        path = _locate_in(path)
    if not path.is_file():
        raise SourceFormatError(f"{path} is neither a file nor a folder; point noctuary at a file.")
    return path


def _locate_in(folder: Path) -> Path:
    found = stores_in(folder)
    if not found:
        raise SourceMissingError(
            f"The folder {folder} holds no memory store: expected one of "
            f"{', '.join(_STORE_NAMES)}, or transcripts of an agent (*.jsonl). Name the store's "
            f"file itself if it is called differently."
        )
    if len(found) > 1:
        # Picking one silently could index last month's copy.
        raise SourceFormatError(
            f"The folder {folder} holds several stores "
            f"({', '.join(str(f.relative_to(folder)) for f in found)}); name the one to read."
        )
    return found[0]


def stores_in(folder: Path) -> list[Path]:
    """Return the memory stores that lie in the usual places of a folder."""
    return [folder / name for name in _STORE_NAMES if (folder / name).is_file()]
