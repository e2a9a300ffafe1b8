"""A look into a claude-memory PostgreSQL database: what was written since, by its index.

What belongs here: asking within a deadline. What does not: the queries, the connection and the
rules about users (`noctuary.corpus.postgres_source`, loaded when such a store is looked into).

Tombstones are rows that changed, so soft deletes are seen. Rows that were removed outright are not:
finding them means reading every id (the night does).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from noctuary.live.found import Found, Limits, Since
from noctuary.settings import SourceSettings
from noctuary.source_name import DatabaseName

if TYPE_CHECKING:
    from noctuary.corpus.source import RawRow

KINDS = frozenset({"claude-memory-postgres"})

LATE_COMMIT_S = 120.0
"""As `sqlite_look.LATE_COMMIT_S`; the server stamps a row when its transaction begins."""

_BATCH = 500


def look(name: DatabaseName, settings: SourceSettings, since: Since, limits: Limits) -> Found:
    """Return what a database gained and changed.

    The connection has its own thread: a server that does not answer holds it, and not the recall.

    Args:
        name: The database.
        settings: Whose rows are read.
        since: What the snapshot knows.
        limits: What may be taken.

    Raises:
        TimeoutError: The server did not answer in time.
        NoctuaryError: It refused, or is none any more; never with the address in it.
    """
    told: list[Sequence[RawRow] | Exception] = []

    def ask() -> None:
        try:
            told.append(_changed(name, settings, since, limits.max_rows + 1))
        except Exception as error:  # whatever it is, the recall's own thread says it
            told.append(error)

    thread = threading.Thread(target=ask, name="noctuary-live", daemon=True)
    thread.start()
    thread.join(limits.left_s())
    if not told:
        raise TimeoutError("the database did not answer in time")
    rows = told[0]
    if isinstance(rows, Exception):
        raise rows
    missed = ""
    if len(rows) > limits.max_rows:
        missed = "more rows are new or changed than may be taken in (live.max_rows)"
        rows = rows[-limits.max_rows :] if limits.max_rows else ()
    keyed = [(row.key, row) for row in rows if isinstance(row.key, int)]
    return Found(
        {key: row.fields for key, row in keyed if row.withheld is None},
        tuple(key for key, row in keyed if row.withheld is not None),
        None,
        missed,
    )


def _changed(
    name: DatabaseName, settings: SourceSettings, since: Since, at_most: int
) -> Sequence[RawRow]:
    from noctuary.corpus.postgres_source import PostgresSource

    since_us = since.read_us - int(LATE_COMMIT_S * 1e6)
    with PostgresSource(name, settings) as source:
        batches = source.changed_since(since_us, _BATCH)
        return list(islice((row for batch in batches for row in batch), at_most))
