"""What was recalled since the night counted: the last look before a plan is carried out.

What belongs here: one question to the access log. What does not: counting (`noctuary.usage`). A
plan cannot ask it: reading a log that recall is writing leaves files beside it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path

from noctuary.errors import StoreError


def recalled_since(access_log: Path, memory_ids: Collection[str], since_us: int) -> list[str]:
    """Return which memories were recalled after a moment, sorted.

    Raises:
        StoreError: There is a log, and it cannot be read: then nobody knows.
    """
    if not access_log.exists():
        return []
    sql = "SELECT DISTINCT memory_id FROM retrievals WHERE retrieved_at_us > ?"
    try:
        uri = f"{access_log.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as log:
            recent = {memory_id for (memory_id,) in log.execute(sql, [since_us])}
    except sqlite3.Error as error:
        raise StoreError(
            f"{access_log.name} cannot be read ({error}), so it is not known what was recalled "
            "since the night: run the night, then try again"
        ) from error
    return sorted(recent & set(memory_ids))
