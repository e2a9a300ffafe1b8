"""SQLite FTS5 baselines: what people run today, kept to be measured against.

What belongs here: two faithful keyword searches. What does not: anything that recall uses.

"or" is the plain baseline of the evaluation sets: OR of the query's distinct lower-cased words over
the content, bm25, no stems, no stop words. "and_then_or" is the claude-memory local store (research
notes, section 2.4): all four text fields, every word must match, any word if that finds nothing,
rank by a blend of bm25 and importance, LIKE where FTS5 refuses the query.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable
from typing import Literal

SeedRow = tuple[int, str, str, str, str, float]
"""position, content, category, tags, expanded_keywords, importance."""
SeedMode = Literal["or", "and_then_or"]

BM25_WEIGHT = 0.7
IMPORTANCE_WEIGHT = 0.3
"""The seed's blend; bm25 is unbounded, so importance breaks near-ties only."""

_WORD = re.compile(r"\w+")
_SCHEMA = """
CREATE TABLE memories(position INTEGER PRIMARY KEY, content TEXT, importance REAL);
CREATE VIRTUAL TABLE plain USING fts5(content, content='');
CREATE VIRTUAL TABLE seed USING fts5(content, category, tags, expanded_keywords, content='');
"""
_PLAIN = (
    "SELECT rowid, -bm25(plain) FROM plain WHERE plain MATCH ? ORDER BY bm25(plain), rowid LIMIT ?"
)
_SEED = f"""
SELECT position, -bm25(seed) * {BM25_WEIGHT} + importance * {IMPORTANCE_WEIGHT} AS blend
FROM seed JOIN memories ON position = seed.rowid
WHERE seed MATCH ? ORDER BY blend DESC, position LIMIT ?
"""
_LIKE = """
SELECT position, importance FROM memories WHERE content LIKE ? ESCAPE '\\'
ORDER BY importance DESC, position LIMIT ?
"""


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

    def search(self, query: str, k: int, mode: SeedMode = "or") -> list[tuple[int, float]]:
        """Return up to k (position, score), best first, ties by position; higher is better."""
        query = _storable(query)
        if k <= 0:
            return []
        return self._plain(query, k) if mode == "or" else self._seed(query, k)

    def close(self) -> None:
        """Free the index."""
        self._connection.close()

    def _plain(self, query: str, k: int) -> list[tuple[int, float]]:
        words = dict.fromkeys(_WORD.findall(query.lower()))
        return self._rows(_PLAIN, " OR ".join(map(_quoted, words)), k) if words else []

    def _seed(self, query: str, k: int) -> list[tuple[int, float]]:
        words = [_quoted(word) for word in query.split()]
        if not words:
            return []
        try:
            return self._rows(_SEED, " ".join(words), k) or self._rows(_SEED, " OR ".join(words), k)
        except sqlite3.OperationalError:
            pattern = re.sub(r"([\\%_])", r"\\\1", query)
            return self._rows(_LIKE, f"%{pattern}%", k)

    def _rows(self, statement: str, match: str, k: int) -> list[tuple[int, float]]:
        return [
            (int(row[0]), float(row[1])) for row in self._connection.execute(statement, (match, k))
        ]


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def _storable(text: str) -> str:
    """Return the text without lone surrogates, which SQLite cannot bind."""
    return text.encode("utf-8", "replace").decode("utf-8")
