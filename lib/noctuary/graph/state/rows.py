"""Findings of single memories as columns of rows, in batches. No database, no corpus."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any
from zlib import crc32

from noctuary.graph.arrays import ROLES
from noctuary.graph.dictionary import (
    REFUSALS,
    Dictionary,
    Tokens,
    find_matches,
    needs_case,
    refusal,
)
from noctuary.graph.extraction import KINDS, Extraction
from noctuary.graph.model import NO_SPAN
from noctuary.graph.tables import ArrowTable

DICTIONARY_KINDS = frozenset({"title", "heading", "key", "label", "leading", "tag"})
"""Kinds of finding whose names are looked for in other memories."""

NOT_LOOKED_FOR = -1
"""`look` of a finding that gives no dictionary name."""

ANY_CASE, NEEDS_CASE, FIRST_REFUSAL = 0, 1, 2
"""`look` of a finding that gives one; from FIRST_REFUSAL on, the reason why it is refused."""

_WORD_CACHE_SIZE = 1 << 18
"""Word codes remembered: a few tens of MB for not hashing frequent words again."""

_ROLE_CODES = {role: code for code, role in enumerate(ROLES)}
_KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}

_COLUMNS = {
    "memory": ("mid", "memory_id", "key"),
    "found": ("mid", "role", "kind", "name", "start", "stop", "surface"),
    "stated": (
        "mid", "subject", "relation", "object", "start", "stop", "subject_surface",
        "object_surface",
    ),
    "stated_end": ("mid", "name", "start", "stop", "surface"),
    "alias": ("mid", "alias", "canonical", "detail"),
    "matched": ("mid", "name", "start", "stop", "surface"),
    "declined": ("mid", "script", "runs"),
}  # fmt: skip
_OWN = ("memory", "found", "stated", "stated_end", "alias")
_OF_TEXT = ("matched", "declined")


class Columns:
    """Rows of one table of the state, column by column: a fraction of the objects that rows are."""

    def __init__(self, table: str) -> None:
        self._names = _COLUMNS[table]
        self._values: list[list[Any]] = [[] for _ in self._names]

    def add(self, mid: int, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows of one memory, each without the memory's number in front."""
        if not rows:
            return
        mids, *others = self._values
        mids += repeat(mid, len(rows))
        for values, added in zip(others, zip(*rows, strict=True), strict=True):
            values += added

    def column(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return self._values[self._names.index(name)]

    def to_table(self, **codes: Sequence[int]) -> ArrowTable:
        """Return an Arrow table with these rows.

        Args:
            codes: Further columns by name, or what stands in a column instead of what was added.
        """
        import pyarrow as pa

        columns = {**dict(zip(self._names, self._values, strict=True)), **codes}
        return pa.table(
            {name: pa.array(values, type=_arrow_type(name)) for name, values in columns.items()}
        )


class OwnRows:
    """Rows that rest on a memory's own extraction, by table (see `schema`)."""

    def __init__(self) -> None:
        self._of = {table: Columns(table) for table in _OWN}

    def add(self, mid: int, memory_id: str, key: str, content: str, found: Extraction) -> None:
        """Add the rows of one memory."""
        self._of["memory"].add(mid, [(memory_id, key)])
        self._of["found"].add(mid, found.found)
        self._of["stated"].add(mid, found.stated)
        self._of["stated_end"].add(mid, stated_ends(content, found))
        self._of["alias"].add(mid, found.aliases)

    def tables(self) -> dict[str, ArrowTable]:
        """Return the rows as Arrow tables."""
        found = self._of["found"]
        kinds, names, surfaces = map(found.column, ("kind", "name", "surface"))
        codes = {
            "role": [_ROLE_CODES[role] for role in found.column("role")],
            "kind": [_KIND_CODES[kind] for kind in kinds],
            "look": [
                _look(name, surface) if kind in DICTIONARY_KINDS else NOT_LOOKED_FOR
                for kind, name, surface in zip(kinds, names, surfaces, strict=True)
            ],
        }
        return {
            table: columns.to_table(**codes) if table == "found" else columns.to_table()
            for table, columns in self._of.items()
        }


class TextRows:
    """Rows that rest on a memory's text: its dictionary matches and its words."""

    def __init__(self) -> None:
        self._of = {table: Columns(table) for table in _OF_TEXT}
        self._mids: list[int] = []
        self._counts: list[int] = []
        self._words: list[int] = []

    def add_matches(
        self, mid: int, content: str, tokens: Tokens, dictionary: Dictionary, own: frozenset[str]
    ) -> None:
        """Add what the dictionary finds in one text."""
        matches = find_matches(content, dictionary, own, tokens)
        self._of["matched"].add(
            mid, [(name, start, stop, content[start:stop]) for name, start, stop in matches.found]
        )
        self._of["declined"].add(mid, list(matches.declined.items()))

    def add_words(self, mid: int, tokens: Tokens) -> None:
        """Add the words of one text to the index."""
        distinct = set(tokens.folded)
        # A character may fold to several words, and a name is matched word by word.
        distinct |= {part for word in distinct if " " in word for part in word.split(" ")}
        codes = set(map(word_code, distinct))
        self._mids.append(mid)
        self._counts.append(len(codes))
        # The order of a set differs from process to process.
        self._words += sorted(codes)

    def tables(self) -> dict[str, ArrowTable]:
        """Return the rows as Arrow tables, those of the index of words among them."""
        import numpy as np
        import pyarrow as pa

        mids = np.repeat(np.array(self._mids, np.int64), np.array(self._counts, np.int64))
        words = pa.table({"mid": mids, "word": np.array(self._words, np.uint32)})
        return {"word": words, **{table: found.to_table() for table, found in self._of.items()}}


@lru_cache(maxsize=_WORD_CACHE_SIZE)
def word_code(word: str) -> int:
    """Return the 32-bit code of a folded word; two words may share one."""
    return crc32(word.encode("utf-8", "surrogatepass"))


def stated_ends(content: str, found: Extraction) -> list[tuple[str, int, int, str]]:
    """Return name, span and surface of both ends of every statement between two names.

    The span is that of the surface inside the statement, the first for the subject and the last for
    the object; NO_SPAN where it does not stand there as such.
    """
    ends: list[tuple[str, int, int, str]] = []
    for item in found.stated:
        if not joins_names(item.subject, item.object):
            continue
        where = (item.start, item.end) if item.start >= 0 else (0, 0)
        first = content.find(item.subject_surface, *where) if item.subject_surface else NO_SPAN
        last = content.rfind(item.object_surface, *where) if item.object_surface else NO_SPAN
        ends.append(_end(item.subject, first, item.subject_surface))
        ends.append(_end(item.object, last, item.object_surface))
    return ends


def joins_names(subject: str, thing: str) -> bool:
    """Say whether a statement is between two names and not about a memory itself."""
    return bool(subject and thing) and "#" not in (subject[0], thing[0])


def _end(name: str, start: int, surface: str) -> tuple[str, int, int, str]:
    text = surface or name
    return (name, start, start + len(text), text) if start >= 0 else (name, NO_SPAN, NO_SPAN, text)


def _look(name: str, surface: str) -> int:
    reason = refusal(name)
    if reason is not None:
        return FIRST_REFUSAL + REFUSALS.index(reason)
    return NEEDS_CASE if needs_case(name, surface) else ANY_CASE


def _arrow_type(name: str) -> Any:
    import pyarrow as pa

    if name == "mid":
        return pa.int64()
    return pa.int32() if name in _INTEGERS else pa.string()


_INTEGERS = frozenset({"role", "kind", "look", "start", "stop", "runs"})
