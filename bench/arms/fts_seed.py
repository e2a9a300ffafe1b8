"""SQLite FTS5 baselines: what people run today, kept to be measured against.

"or" is the plain baseline of the evaluation sets: OR of the query's distinct lower-cased words over
the content, bm25, no stems, no stop words. "and_then_or" is the claude-memory local store (research
notes, section 2.4): all four text fields, every word must match, any word if that finds nothing,
rank by a blend of bm25 and importance, LIKE where FTS5 refuses the query.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal

SeedRow = tuple[int, str, str, str, str, float]
"""position, content, category, tags, expanded_keywords, importance."""
SeedMode = Literal["or", "and_then_or"]
Allowed = Callable[[int], bool]
"""Tells whether a position may be found."""


@dataclass(frozen=True, slots=True)
class Blend:
    """How the seed weighs relevance against importance: -bm25 * bm25 + importance * importance.

    bm25 is unbounded and importance lies in [0, 1], so the larger the scores of a query, the less
    importance decides.

    Attributes:
        bm25: Factor on FTS5's bm25, sign turned so that higher is better.
        importance: Factor on the memory's importance.
    """

    bm25: float
    importance: float


RELEVANCE_BLEND = Blend(bm25=0.7, importance=0.3)
"""The seed's default order (sort_by="relevance")."""

IMPORTANCE_BLEND = Blend(bm25=0.4, importance=0.6)
"""The seed's order for sort_by="importance" (research notes, section 2.4)."""

_UNLIMITED = -1  # what SQLite takes for no LIMIT
_WORD = re.compile(r"\w+")
_SCHEMA = """
CREATE TABLE memories(position INTEGER PRIMARY KEY, content TEXT, importance REAL);
CREATE VIRTUAL TABLE plain USING fts5(content, content='');
CREATE VIRTUAL TABLE seed USING fts5(content, category, tags, expanded_keywords, content='');
"""
_PLAIN = (
    "SELECT rowid, -bm25(plain) FROM plain WHERE plain MATCH ? ORDER BY bm25(plain), rowid LIMIT ?"
)
_SEED = """
SELECT position, -bm25(seed) * ? + importance * ? AS blend
FROM seed JOIN memories ON position = seed.rowid
WHERE seed MATCH ? ORDER BY blend DESC, position LIMIT ?
"""
_LIKE = """
SELECT position, importance FROM memories WHERE content LIKE ? ESCAPE '\\'
ORDER BY importance DESC, position LIMIT ?
"""
# FTS5 keeps an index in shadow tables; these two hold what a search reads.
_SHADOWS = {"or": ("plain_data", "plain_docsize"), "and_then_or": ("seed_data", "seed_docsize")}
_BLOCK_COLUMN = {"data": "block", "docsize": "sz"}


class FtsSeed:
    """An in-memory FTS5 index over one corpus."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def build(cls, rows: Iterable[SeedRow]) -> FtsSeed:
        """Index rows (position, content, category, tags, expanded_keywords, importance)."""
        connection = sqlite3.connect(":memory:", check_same_thread=False)
        connection.executescript(_SCHEMA)
        for position, *texts, importance in rows:
            content, category, tags, keywords = map(_storable, texts)
            connection.execute(
                "INSERT INTO memories VALUES (?, ?, ?)", (position, content, importance)
            )
            connection.execute(
                "INSERT INTO plain(rowid, content) VALUES (?, ?)", (position, content)
            )
            connection.execute(
                "INSERT INTO seed(rowid, content, category, tags, expanded_keywords) "
                "VALUES (?, ?, ?, ?, ?)",
                (position, content, category, tags, keywords),
            )
        connection.commit()
        return cls(connection)

    def search(
        self,
        query: str,
        k: int,
        mode: SeedMode = "or",
        blend: Blend = RELEVANCE_BLEND,
        allowed: Allowed | None = None,
    ) -> list[tuple[int, float]]:
        """Return up to k (position, score), best first, ties by position; higher is better.

        Args:
            query: Any text; blank text finds nothing.
            k: How many, nothing below 1.
            mode: Which of the two searches.
            blend: Weights of "and_then_or"; "or" knows no importance.
            allowed: A filter that acts before the limit, and before "every word" gives way to
                "any word", as a condition of the query would; None allows all.
        """
        query = _storable(query)
        if k <= 0:
            return []
        if mode == "or":
            return self._plain(query, k, allowed)
        return self._seed(query, k, blend, allowed)

    def index_bytes(self, mode: SeedMode) -> int:
        """Return the bytes of a mode's full-text index; stored texts are not part of it."""
        total = 0
        for table in _SHADOWS[mode]:
            column = _BLOCK_COLUMN[table.split("_")[1]]
            statement = f"SELECT coalesce(sum(length({column})), 0) FROM {table}"
            total += int(self._connection.execute(statement).fetchone()[0])
        return total

    def close(self) -> None:
        """Free the index."""
        self._connection.close()

    def _plain(self, query: str, k: int, allowed: Allowed | None) -> list[tuple[int, float]]:
        words = dict.fromkeys(_WORD.findall(query.lower()))
        if not words:
            return []
        return self._rows(_PLAIN, (" OR ".join(map(_quoted, words)),), k, allowed)

    def _seed(
        self, query: str, k: int, blend: Blend, allowed: Allowed | None
    ) -> list[tuple[int, float]]:
        words = [_quoted(word) for word in query.split()]
        if not words:
            return []
        weights = (blend.bm25, blend.importance)
        try:
            every = self._rows(_SEED, (*weights, " ".join(words)), k, allowed)
            return every or self._rows(_SEED, (*weights, " OR ".join(words)), k, allowed)
        except sqlite3.OperationalError:
            pattern = re.sub(r"([\\%_])", r"\\\1", query)
            return self._rows(_LIKE, (f"%{pattern}%",), k, allowed)

    def _rows(
        self, statement: str, values: tuple[str | float, ...], k: int, allowed: Allowed | None
    ) -> list[tuple[int, float]]:
        limit = k if allowed is None else _UNLIMITED
        found = self._connection.execute(statement, (*values, limit))
        hits = ((int(position), float(score)) for position, score in found)
        return list(islice((hit for hit in hits if allowed is None or allowed(hit[0])), k))


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def _storable(text: str) -> str:
    """Return the text without lone surrogates, which SQLite cannot bind."""
    return text.encode("utf-8", "replace").decode("utf-8")
