"""The `Source` protocol of memory stores, and its record types; `open` has the factory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal, NamedTuple, Self, TypeVar

from noctuary.core.types import NOTHING

# Relations that a store keeps: evidence, not truth, because a server's model finds the concepts.

SUPERSEDES = "supersedes"
PART_OF = "part-of"
SEE_ALSO = "see-also"
RESOLVED_BY = "resolved-by"
# Values of memory_links.link_type (claude-memory, migration 006); in `supersedes`, from is newer.
LINK_TYPES = (PART_OF, SUPERSEDES, SEE_ALSO, RESOLVED_BY)


class MemoryLink(NamedTuple):
    """A directed link from one memory to another."""

    from_id: str  # The memory that points, as `MemoryRecord.memory_id`
    to_id: str  # The memory that is pointed at
    link_type: str  # One of LINK_TYPES
    created_at_us: int  # When it was made; UNDATED_US where unknown
    user: str | None  # Owner of the link, or None


class KnownConcept(NamedTuple):
    """A concept that the store has a name for."""

    name: str  # Its canonical name
    aliases: tuple[str, ...]  # Other names
    category: str  # The store's own kind, possibly empty


class KnownMention(NamedTuple):
    """A memory that the store links to a concept."""

    memory_id: str
    concept: str
    relation: str


class KnownEdge(NamedTuple):
    """A relation between two concepts, and the ids of the memories that state it."""

    source: str  # Canonical name of the concept it starts from
    target: str  # Canonical name of the concept it leads to
    relation: str  # As the store names it
    weight: int  # The store's own weight, >= 0
    evidence: tuple[str, ...]  # Ids of memories; one without any is of no use and dropped


class Share(NamedTuple):
    """A memory of one user that another may read (memory_shares; tag_shares are expanded)."""

    memory_id: str
    shared_with: str


Told = TypeVar("Told", MemoryLink, KnownConcept, KnownMention, KnownEdge, Share)
"""Relations that a store keeps next to its rows."""

# Quarantined rows are described by field names, types, sizes and line numbers, never by their text.


class QuarantineReason(StrEnum):
    """Why a row is not a memory; the first reason that applies wins."""

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
    """A quarantined row: its place, the reason, and a detail without any of its text."""

    locator: str  # Where it is in its source ("id 17", "line 42")
    reason: QuarantineReason  # Why it is not a memory
    detail: str  # Field names, types and sizes; free of any text of the row


IdKind = Literal["int", "str"]


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """Kind, location and state of a source that was read."""

    kind: str  # "claude-memory-sqlite", "mempalace-chroma", "jsonl" or that of a database
    location: str  # Absolute path, or address without a password
    schema_version: str  # The store's schema as its kind names it
    id_kind: IdKind  # "int" when ids order by number, "str" when they order by code point
    marker: Mapping[str, int | str]  # Size, digest and the like; equal for the same state
    notes: tuple[str, ...] = ()  # Machine-readable oddities of the store, reported as warnings
    # For a source of several stores: kind, location, rows and last id of each, by name
    members: Mapping[str, Mapping[str, int | str]] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row as read from the store, before validation and the secret scan."""

    locator: str  # Where it is ("id 17", "line 42")
    key: int | str | None  # Its id, of one type within a source; None when it has no usable one
    fields: Mapping[str, object]  # Column or key to value, untyped
    problem: QuarantineReason | None = None  # Why it could not be read as a row at all
    problem_detail: str = ""  # Sizes and types that go with the problem; no text of the row
    unread_text: str = ""  # Decoded parts of an unreadable row, for the secret scan alone
    withheld: str | None = None  # Why the store withheld its text: counted as sensitive, no fields
    warnings: tuple[str, ...] = ()  # Fields that its reader could not use; counted if exported


UNREAD_DATE = str(QuarantineReason.BAD_DATE)
"""Warning: a date could not be parsed, so the row is read without one."""


def memory_row(key: int, mark: object, fields: Mapping[str, object]) -> RawRow:
    """Return the RawRow of a memories table; a row with a mark keeps only its id and the mark."""
    if mark is not None:
        return RawRow(f"id {key}", key, {}, withheld=str(mark))
    return RawRow(f"id {key}", key, fields)


def true_names(flags: Mapping[str, bool]) -> tuple[str, ...]:
    """Return the names whose value is true."""
    return tuple(name for name, is_set in flags.items() if is_set)


class Source:
    """A memory store, pinned to the state it had when opened; a context manager that closes it."""

    def identity(self) -> SourceIdentity:
        """Return the kind, location and state of the store."""
        raise NotImplementedError

    def count(self) -> int:
        """Return the exact number of rows that `rows` yields."""
        raise NotImplementedError

    def rows(self) -> Iterator[RawRow]:
        """Yield every row once in key order, rows of one id adjacent, a few megabytes at a time."""
        raise NotImplementedError

    def rows_of(self, key: str) -> Iterator[RawRow]:
        """Yield the rows of one id, as `rows` does; sources without an index scan all rows."""
        return (row for row in self.rows() if row.key is not None and str(row.key) == key)

    def close(self) -> None:
        """Release the store; safe to call twice."""
        raise NotImplementedError

    @property
    def own(self) -> Source:
        """Return the memory store without the transcript turns joined to it."""
        return self

    def told(self, noun: type[Told]) -> Iterable[Told]:
        """Return the store's links, concepts, mentions, edges or shares, by record type."""
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
        """Return the path and digest of the file that was read."""
        return self._identity

    def count(self) -> int:
        """Return the number of rows, unreadable ones included."""
        return len(self._rows)

    def rows(self) -> Iterator[RawRow]:
        """Yield the rows by ascending id."""
        yield from self._rows

    def told(self, noun: type[Told]) -> Iterator[Told]:
        """Yield the relations of one record type that were found when the rows were read."""
        return (said for said in self._said() if isinstance(said, noun))

    def _said(self) -> Iterable[object]:
        return ()

    def close(self) -> None:
        """Do nothing: no file is open."""
