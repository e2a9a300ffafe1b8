"""The file usage.sqlite: its format, its tables and what its rows mean. Names, nothing else.

What belongs here: what the writer (`writing`, `scoring`) and the reader (`reading`) must agree on.
The night replaces the file as a whole; nobody ever writes into the one that readers have open.
"""

from __future__ import annotations

FORMAT = 1
"""`user_version` of the file; bumped when an older reader would misread it."""

SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE access (
    memory_id TEXT PRIMARY KEY, retrievals INTEGER NOT NULL, recent INTEGER NOT NULL,
    days INTEGER NOT NULL, last_us INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX access_by_use ON access (recent DESC, last_us DESC, memory_id) WHERE recent > 0;
CREATE TABLE co_retrieval (
    a TEXT NOT NULL, b TEXT NOT NULL, count INTEGER NOT NULL, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE ltp (
    memory_id TEXT PRIMARY KEY, ltp_multiplier REAL NOT NULL, ltp_score REAL NOT NULL,
    decayed_score REAL NOT NULL, last_accessed_us INTEGER NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {FORMAT};
"""
"""`access` has the memories that were ever returned and still exist, `ltp` all that were scanned,
`co_retrieval` the pairs with a < b by code point."""

WINDOW_DAYS = "window_days"
"""Key in `meta`: `access.recent` counts the retrievals of so many days before `AS_OF_US`."""

AS_OF_US = "as_of_us"
"""Key in `meta`: when the night counted, microseconds since the epoch."""

DIGEST = "digest"
"""Key in `meta`: SHA-256 of window, `access` and `co_retrieval`: equal ones answer alike."""

NOT_SCANNED = "ltp_not_scanned"
"""Key in `meta`: memories that the last scan left out because of max_scan_depth."""

RESUME_AT = "ltp_resume_at"
"""Key in `meta`: position from which the next bounded scan goes on."""

MAX_VARIABLES = 500
"""Ids in one statement; SQLite of before 3.32 allows 999 in all."""
