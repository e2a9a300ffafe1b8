"""The query log: earlier questions and their results, for query expansion only.

It is the one file of a store that holds typed questions: readable by its owner only, written only
while query expansion is on, it deletes old rows, and shows a user only that user's own queries.
Results of an expansion's further questions, and sensitive texts, must not be given to it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noctuary.core import formats
from noctuary.core.sqlite import WAIT_AT_MOST_S, LogFormat, append_rows, open_log
from noctuary.core.types import DAY_US

RETENTION_DAYS = 90  # a query can be found; bounds query_expansion_lookback_days
KEPT_AT_MOST = 5_000  # newest queries kept and compared: some 8 MB at 384 dimensions
PRUNED_EVERY = 64  # appends; less often lets the file exceed its bounds by as many rows
TEXT_CHARS = 2_000  # kept of a query; a longer one is a pasted document, never asked twice
QUERY_LOG = LogFormat(
    noun="the query log",
    version=formats.QUERY_LOG.version,
    schema="""
CREATE TABLE IF NOT EXISTS queries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    text TEXT NOT NULL,
    vector BLOB NOT NULL,
    memory_ids TEXT NOT NULL,
    asked_us INTEGER NOT NULL,
    encoder TEXT NOT NULL,
    user TEXT
);
CREATE INDEX IF NOT EXISTS queries_by_reader ON queries (encoder, user, number);
CREATE INDEX IF NOT EXISTS queries_by_time ON queries (asked_us)
""",
    event="this query",
    insert="INSERT INTO queries (text, vector, memory_ids, asked_us, encoder, user) "
    "VALUES (?, ?, ?, ?, ?, ?)",
    upkeep=f"""
DELETE FROM queries WHERE (SELECT max(number) FROM queries) % {PRUNED_EVERY} = 0 AND (
    asked_us < (SELECT asked_us FROM queries ORDER BY number DESC LIMIT 1)
        - {RETENTION_DAYS * DAY_US}
    OR number <= (SELECT max(number) FROM queries) - {KEPT_AT_MOST}
)
""",
    may_wait=False,
)

LoggedQuery = tuple[str, int, float, tuple[str, ...]]
"""text, asked_us, cosine to today's query in [-1, 1], ids of what it found (best first)."""


_NEWEST_FIRST = """
SELECT text, asked_us, memory_ids, vector FROM queries
WHERE encoder = ? AND user IS ? AND length(vector) = ? ORDER BY number DESC LIMIT ?
"""


def append_query(
    path: Path,
    *,
    text: str,
    vector: NDArray[np.float32],
    memory_ids: Sequence[str],
    encoder_digest: str,
    asked_us: int,
    user: str | None,
) -> str | None:
    """Append one query, its unit vector and what it found without any expansion; forget old ones.

    Retention counts from `asked_us`; `user` is None for a recall without one. Returns what went
    wrong: the query is lost then.
    """
    row = (
        _clean(text[:TEXT_CHARS]),
        np.ascontiguousarray(vector, dtype="<f4").tobytes(),
        json.dumps([_clean(i) for i in memory_ids], ensure_ascii=False),
        asked_us,
        encoder_digest,
        None if user is None else _clean(user),
    )
    return append_rows(path, QUERY_LOG, [row])


def similar_queries(
    path: Path,
    vector: NDArray[np.float32],
    *,
    encoder_digest: str,
    since_us: int,
    limit: int,
    exclude_text: str,
    user: str | None,
) -> tuple[list[LoggedQuery], str | None]:
    """Return the logged queries nearest to a unit vector, most similar first, then newest; a fault.

    Only those of this encoder and user (None: of recalls without one). Queries of the wording
    `exclude_text` (case and spaces aside) are left out; of one wording the newest counts.
    """
    if limit <= 0:
        return [], None
    whose = (encoder_digest, None if user is None else _clean(user))
    try:
        with closing(open_log(path, QUERY_LOG, wait_s=WAIT_AT_MOST_S, or_empty=True)) as log:
            values = (*whose, 4 * vector.size, KEPT_AT_MOST)
            rows = log.execute(_NEWEST_FIRST, values).fetchall()
        return _nearest(rows, vector, since_us, limit, exclude_text), None
    except (sqlite3.Error, OSError, ValueError, TypeError) as error:
        return [], f"past queries cannot be read: {error}"


def _nearest(
    rows: Sequence[tuple[str, int, str, bytes]],
    vector: NDArray[np.float32],
    since_us: int,
    limit: int,
    exclude_text: str,
) -> list[LoggedQuery]:
    """Return those of some rows, newest first, that are nearest to a unit vector."""
    vectors = np.frombuffer(b"".join(blob for *_, blob in rows), dtype="<f4")
    # Row by row, so that a query's cosine does not depend on how many others there are.
    cosines = np.einsum("nd,d->n", vectors.reshape(-1, vector.size), vector.astype(np.float32))
    cosines = np.nan_to_num(cosines.astype(np.float64), nan=-1.0)
    wordings = [_wording(text) for text, *_ in rows]
    newest = {wording: i for i, wording in reversed([*enumerate(wordings)])}
    today = _wording(exclude_text[:TEXT_CHARS])
    found: list[LoggedQuery] = []
    for i in np.argsort(-cosines, kind="stable").tolist():
        text, asked_us, memory_ids, _ = rows[i]
        if wordings[i] == today or newest[wordings[i]] != i or asked_us < since_us:
            continue
        cosine = min(max(float(cosines[i]), -1.0), 1.0)
        found.append((text, asked_us, cosine, tuple(json.loads(memory_ids))))
        if len(found) == limit:
            break
    return found


def _clean(text: str) -> str:
    """Return the text as UTF-8 can hold it: lone surrogates become question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _wording(text: str) -> str:
    return " ".join(text.casefold().split())
