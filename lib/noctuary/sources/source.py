"""What a memory store looks like to a night: the protocol, its nouns, and which kind a path is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeVar

from noctuary.core.errors import SourceError, SourceFormatError, SourceMissingError
from noctuary.core.files import hash_json
from noctuary.core.settings import CONFIG_FILE_NAME, Settings, SourceSettings
from noctuary.core.store import DatabaseName, SourceName, path_of
from noctuary.core.types import NOTHING
from noctuary.sources.histories import find_transcripts, look_at

# What a store says about its own memories: evidence, not truth (a server's model finds concepts).

SUPERSEDES = "supersedes"
PART_OF = "part-of"
SEE_ALSO = "see-also"
RESOLVED_BY = "resolved-by"
# Of memory_links (claude-memory, migration 006); of supersedes the first memory is the newer.
LINK_TYPES = (PART_OF, SUPERSEDES, SEE_ALSO, RESOLVED_BY)


class MemoryLink(NamedTuple):
    """One memory points at another."""

    from_id: str  # The memory that points, as `MemoryRecord.memory_id`
    to_id: str  # The memory that is pointed at
    link_type: str  # One of LINK_TYPES
    created_at_us: int  # When it was made; UNDATED_US where unknown
    user: str | None  # Whose link it is, or None


class KnownConcept(NamedTuple):
    """A concept that the store names."""

    name: str  # Its canonical name
    aliases: tuple[str, ...]  # Other names
    category: str  # The store's own kind, possibly empty


class KnownMention(NamedTuple):
    """A memory that is about a concept, as the store has it."""

    memory_id: str
    concept: str
    relation: str


class KnownEdge(NamedTuple):
    """A relation between two concepts, and the memories that say so."""

    source: str  # Canonical name of the concept it starts from
    target: str  # Canonical name of the concept it leads to
    relation: str  # As the store names it
    weight: int  # The store's own weight, >= 0
    evidence: tuple[str, ...]  # Ids of memories; one without any is of no use and dropped


class Share(NamedTuple):
    """A memory of one user that another may read (memory_shares, and tag_shares spelled out)."""

    memory_id: str
    shared_with: str


Told = TypeVar("Told", MemoryLink, KnownConcept, KnownMention, KnownEdge, Share)
"""What a store says of its memories beside their rows."""

# Why a row was set aside: field names, types, sizes and line numbers, never what the row says.


class QuarantineReason(StrEnum):
    """The one reason for which a row is not a memory; the first that applies."""

    INVALID_JSON = "invalid_json"
    HALF_WRITTEN_LINE = "half_written_line"
    NOT_UTF8 = "not_utf8"
    NOT_AN_OBJECT = "not_an_object"
    LINE_TOO_LONG = "line_too_long"
    BAD_ID = "bad_id"
    DUPLICATE_ID = "duplicate_id"
    DELETED = "deleted"
    MISSING_CONTENT = "missing_content"
    CONTENT_NOT_TEXT = "content_not_text"
    EMPTY_CONTENT = "empty_content"
    CONTENT_TOO_LARGE = "content_too_large"
    BAD_FIELD = "bad_field"
    FIELD_TOO_LARGE = "field_too_large"
    NUL_BYTES = "nul_bytes"
    BAD_UNICODE = "bad_unicode"
    BAD_DATE = "bad_date"
    DATE_OUT_OF_RANGE = "date_out_of_range"
    BAD_IMPORTANCE = "bad_importance"
    INJECTED_BLOCK = "injected_block"
    INJECTED_LINES = "injected_lines"
    BOOKKEEPING = "bookkeeping"
    EXPIRED = "expired"
    TEMPLATE = "template"


class QuarantineRow(NamedTuple):
    """One row that was set aside."""

    locator: str  # Where it is in its source ("id 17", "line 42")
    reason: QuarantineReason  # Why it is not a memory
    detail: str  # Field names, types and sizes; free of any text of the row


IdKind = Literal["int", "str"]


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """What exactly was read."""

    kind: str  # "claude-memory-sqlite", "mempalace-chroma", "jsonl" or that of a database
    location: str  # Absolute path, or address without a password
    schema_version: str  # The store's schema as its kind names it
    id_kind: IdKind  # "int" when ids order by number, "str" when they order by code point
    marker: Mapping[str, int | str]  # Size, digest and the like; equal for the same state
    notes: tuple[str, ...] = ()  # Machine-readable oddities of the store, reported as warnings
    # Of several stores: kind, location, rows and last id of each, by name
    members: Mapping[str, Mapping[str, int | str]] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as the store gave it, before any judgement."""

    locator: str  # Where it is ("id 17", "line 42")
    key: int | str | None  # Its id, of one type within a source; None when it has no usable one
    fields: Mapping[str, object]  # Column or key to value, untyped
    problem: QuarantineReason | None = None  # Why it could not be read as a row at all
    problem_detail: str = ""  # Sizes and types that go with the problem; no text of the row
    unread_text: str = ""  # What was decoded of an unreadable row, for the secret scan alone
    withheld: str | None = None  # Why the store kept its text back: counted as sensitive, no fields
    warnings: tuple[str, ...] = ()  # What its reader could not use, by name; counted if exported


UNREAD_DATE = str(QuarantineReason.BAD_DATE)
"""The warning of a row that is read without a date: it has one that is not understood."""


def memory_row(key: int, mark: object, fields: Mapping[str, object]) -> RawRow:
    """Return a row of a table of memories; of a marked one its id and the mark alone."""
    if mark is not None:
        return RawRow(f"id {key}", key, {}, withheld=str(mark))
    return RawRow(f"id {key}", key, fields)


def true_names(said: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the names of what is so."""
    return tuple(name for name, is_so in said.items() if is_so)


class Source:
    """A memory store, pinned to the state it had when it was opened; `with` closes it."""

    def identity(self) -> SourceIdentity:
        """Return what is being read."""
        raise NotImplementedError

    def count(self) -> int:
        """Return the exact number of rows."""
        raise NotImplementedError

    def rows(self) -> Iterator[RawRow]:
        """Yield every row once in key order, those of one id adjacent; megabytes at a time."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the store; safe to call twice."""
        raise NotImplementedError

    @property
    def own(self) -> Source:
        """Return the memory store itself, of one that turns are joined to."""
        return self

    def told(self, noun: type[Told]) -> Iterable[Told]:
        """Return all links, concepts, mentions, edges or shares that the store says itself."""
        return ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class HeldSource(Source):
    """A small store whose rows were read when it was opened; ids are texts."""

    def __init__(
        self,
        kind: str,
        path: Path,
        rows: Iterable[RawRow],
        notes: tuple[str, ...] = (),
        **marker: int | str,
    ) -> None:
        self._rows = sorted(rows, key=lambda row: str(row.key or ""))
        mark: dict[str, int | str] = {"rows": len(self._rows), **marker}
        self._identity = SourceIdentity(kind, str(path.absolute()), "1", "str", mark, notes)

    def identity(self) -> SourceIdentity:
        """Return path and digest of what was read."""
        return self._identity

    def count(self) -> int:
        """Return the number of rows, unreadable ones included."""
        return len(self._rows)

    def rows(self) -> Iterator[RawRow]:
        """Yield the rows by ascending id."""
        yield from self._rows

    def told(self, noun: type[Told]) -> Iterator[Told]:
        """Yield what was said of the rows when they were read."""
        return (said for said in self._said() if isinstance(said, noun))

    def _said(self) -> Iterable[object]:
        return ()

    def close(self) -> None:
        """Let go of nothing: no file is open."""


SQLITE_MAGIC = b"SQLite format 3\x00"
GZIP_MAGIC = b"\x1f\x8b"
_STORE_NAMES = (
    "corpus.jsonl.gz", "corpus.jsonl", "memory.db", "memory/memory.db", "chroma.sqlite3",
    "palace/chroma.sqlite3", "claude-mem.db",
)  # fmt: skip


def open_source(path: SourceName, settings: SourceSettings | None = None) -> Source:
    """Open a memory store: a SQLite file, a palace, a JSONL file, a folder of one, a database.

    A configuration file is the several stores that it lists.

    Transcripts are none: a night keeps their turns first. SourceError where nothing is there, it is
    no store that noctuary reads, or it is ambiguous.
    """
    # Late: the modules of the kinds import the nouns above.
    from noctuary.sources import exports
    from noctuary.sources.jsonl import JsonlSource
    from noctuary.sources.markdown import MarkdownSource

    if isinstance(path, DatabaseName):
        from noctuary.sources.postgres import PostgresSource

        return PostgresSource(path, settings or SourceSettings())
    if is_several(path):
        from noctuary.sources.several import SeveralSources

        return SeveralSources(path, settings)
    if holds_notes(path):
        return MarkdownSource(path)
    file = find_file(path)
    head = _head(file, _HEADER_BYTES)
    if head.startswith(SQLITE_MAGIC):
        return _open_sqlite(file)
    if exports.is_memory_graph(file):
        return exports.MemoryGraphSource(file)
    if head.startswith(GZIP_MAGIC) or file.suffix in (".jsonl", ".ndjson", ".gz"):
        return JsonlSource(file)
    if file.suffix == ".json":
        return exports.open_json(file)
    if file.suffix in exports.CSV_SUFFIXES:
        return exports.CsvSource(file)
    found = f"{len(head)} bytes" if len(head) < len(SQLITE_MAGIC) else "neither header"
    raise SourceFormatError(
        f"{file} is not a database and not JSON lines: expected a SQLite file (it starts with "
        f"'SQLite format 3'; found {found}) or a file named *.jsonl or *.jsonl.gz. Point "
        f"noctuary at a claude-memory memory.db, at a palace's chroma.sqlite3 or at an exported "
        f"corpus; an encrypted database must be decrypted first. "
        f"{exports.describe_unreadable(file)}".rstrip()
    )


def _open_sqlite(file: Path) -> Source:
    from noctuary.sources.claude_mem import ClaudeMemSource, is_claude_mem
    from noctuary.sources.palace import PalaceSource, is_palace
    from noctuary.sources.sqlite import SqliteSource, tables_in

    tables = tables_in(file)
    if is_claude_mem(tables):
        return ClaudeMemSource(file)
    return PalaceSource(file) if is_palace(file, tables) else SqliteSource(file)


def is_several(source: SourceName) -> bool:
    """Say whether a source is a configuration file, that is, the stores that it lists."""
    return isinstance(source, Path) and source.suffix == Path(CONFIG_FILE_NAME).suffix


def stores_in(folder: Path) -> list[Path]:
    """Return the memory stores that lie in the usual places of a folder; none of a file."""
    return [folder / name for name in _STORE_NAMES if (folder / name).is_file()]


def holds_notes(path: Path) -> bool:
    """Say whether a path is a Markdown note, or a folder of them that holds no other store."""
    from noctuary.sources.markdown import SUFFIX, find_notes

    if path.is_dir():
        return not stores_in(path) and any(True for _ in find_notes(path))
    return path.suffix == SUFFIX and path.is_file()


def find_files(path: Path) -> list[Path]:
    """Return every file that a source at a path is read from; SourceError where there is none."""
    from noctuary.sources.exports import CSV_SUFFIXES, mapping_of
    from noctuary.sources.markdown import find_notes

    if holds_notes(path):
        return list(find_notes(path))
    file = find_file(path)
    is_mapped = file.suffix in CSV_SUFFIXES and mapping_of(file).is_file()
    return [file, mapping_of(file)] if is_mapped else [file]


def find_file(path: Path) -> Path:
    """Return the file of a store, or say why there is none."""
    if not path.exists():
        raise SourceMissingError(
            f"There is no memory store at {path.absolute()}. Check the path; expected a memory.db, "
            f"a palace's chroma.sqlite3, a .jsonl or .jsonl.gz file, or a folder that holds one."
        )
    path = path.absolute()
    if path.is_file():
        return path
    if not path.is_dir():
        raise SourceFormatError(f"{path} is neither a file nor a folder; point noctuary at a file.")
    found = stores_in(path)
    if not found:
        from noctuary.sources.exports import describe_unreadable

        raise SourceMissingError(
            f"The folder {path} holds no memory store: expected one of "
            f"{', '.join(_STORE_NAMES)}, Markdown notes (*.md) or transcripts of an agent "
            f"(*.jsonl). Name the store's file itself if it is called differently. "
            f"{describe_unreadable(path)}".rstrip()
        )
    if len(found) > 1:
        # Picking one silently could index last month's copy.
        raise SourceFormatError(
            f"The folder {path} holds several stores "
            f"({', '.join(str(f.relative_to(path)) for f in found)}); name the one to read."
        )
    return found[0]


# The change marker of a source: a digest that differs once there may be something new to read. It
# may change without a new memory (the night then publishes nothing) but must not miss a commit.

MARKER_CHARS = 32  # of a SHA-256: 128 bits tell any two states of one store apart
_HEADER_BYTES = 100  # of a SQLite file: change counter, size in pages, schema cookie
_WAL_HEADER_BYTES = 32  # holds the salts: a log that begins anew has other ones


def read_marker(source: SourceName, settings: Settings) -> str:
    """Return what changes with the source, or with a configured folder of transcripts."""
    looks: list[Any] = [settings.source.user, _look(source)]
    if transcripts := settings.transcripts.path:
        looks.append(_look_below(Path(transcripts).expanduser()))
    return hash_json(looks)[:MARKER_CHARS]


def _look(path: SourceName) -> list[Any]:
    if isinstance(path, DatabaseName):
        from noctuary.sources.postgres import look_at_database

        return look_at_database(path)
    try:
        if is_several(path):
            return [_look_at(path), *_look_at_members(path)]
        if not path.exists():
            raise SourceMissingError(f"there is no memory store at {path}")
        if path.is_dir():
            stores = stores_in(path) or (find_files(path) if holds_notes(path) else [])
            looks = [[str(store), *_look_at(store)] for store in stores]
            return looks if stores_in(path) else [*looks, *_look_below(path)]
        return [_look_at(file) for file in find_files(path)]
    except PermissionError as error:
        raise SourceError(f"{path} cannot be read ({error.strerror})") from None


def _look_at_members(file: Path) -> Iterator[list[Any]]:
    from noctuary.sources.several import OWN, read_members

    for name, (source, is_transcripts) in read_members(file).items():
        if is_transcripts:
            yield [name, _look_below(path_of(source))]
        elif name != OWN or path_of(source).exists():  # nothing may have been remembered yet
            yield [name, _look(source)]


def _look_at(file: Path) -> list[Any]:
    """Return what tells two states of a file apart; of SQLite its counter and log too."""
    from noctuary.sources.exports import count_expired

    stat, head = file.stat(), _head(file, _HEADER_BYTES)
    look: list[Any] = [file.name, stat.st_ino, stat.st_size, stat.st_mtime_ns]
    look += [count_expired(file)] if file.suffix == ".json" else []
    if not head.startswith(SQLITE_MAGIC):
        return look
    look.append(head.hex())
    log = file.with_name(f"{file.name}-wal")
    with suppress(FileNotFoundError):
        stat = log.stat()
        if stat.st_size:  # an empty one is like none
            look += [stat.st_size, stat.st_mtime_ns, _head(log, _WAL_HEADER_BYTES).hex()]
    return look


def _look_below(root: Path) -> list[Any]:
    """Return name, size and time of every transcript at or below a path; none where it is gone."""
    if root.is_file():
        return [_look_at(root)]
    found: list[Any] = []
    with suppress(OSError):
        for file in find_transcripts(root):
            with suppress(OSError):  # it was deleted while the folder was listed
                found.append([os.path.relpath(file.parent, root), file.name, *look_at(file)[1:]])
    return found


def _head(file: Path, size: int) -> bytes:
    with file.open("rb") as handle:
        return handle.read(size)
