"""The file archive.sqlite: its format, its tables and what its rows mean. Names, nothing else.

What belongs here: what the writer (`writing`, `summaries`) and the reader (`reading`) must agree
on. Nobody ever writes into the file that readers have open: a writer puts another in its place.
"""

from __future__ import annotations

FORMAT = 1
"""`user_version` of the file; bumped when an older reader would misread it."""

SCHEMA = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
CREATE TABLE plans (
    plan_id TEXT PRIMARY KEY, snapshot_id TEXT NOT NULL, as_of_us INTEGER NOT NULL,
    rules TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE applications (
    plan_id TEXT NOT NULL, applied_at_us INTEGER NOT NULL, undone_at_us INTEGER,
    PRIMARY KEY (plan_id, applied_at_us)) WITHOUT ROWID;
CREATE TABLE entries (
    plan_id TEXT NOT NULL, memory_id TEXT NOT NULL, content_hash TEXT NOT NULL,
    successor_id TEXT NOT NULL, successor_hash TEXT NOT NULL, summary_id TEXT, trace TEXT NOT NULL,
    PRIMARY KEY (plan_id, memory_id)) WITHOUT ROWID;
CREATE TABLE summaries (
    plan_id TEXT NOT NULL, summary_id TEXT NOT NULL, text TEXT, body TEXT NOT NULL,
    PRIMARY KEY (plan_id, summary_id)) WITHOUT ROWID;
PRAGMA user_version = {FORMAT};
"""
"""A plan is what was decided (it never changes), an application when it held: from `applied_at_us`
on, before `undone_at_us` (NULL: still). A plan that is applied again has another application.
`entries.trace` is the candidate's justification as JSON, without any text of a memory.
`summaries.text` becomes NULL when a source has changed or gone; `body` holds ids and numbers."""

DIGEST = "digest"
"""Key in `meta`: SHA-256 of applications and entries: equal ones hide alike."""
