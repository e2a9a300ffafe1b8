"""An archive.sqlite by hand: plans, what they archive, and when they were in force."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from noctuary.compact.archive import SCHEMA
from noctuary.core.files import hash_json
from noctuary.recall.reader import SnapshotReader

Span = tuple[int, int | None]
"""Applied at, undone at (None: still in force), microseconds since the epoch."""


def write_archive(
    path: Path,
    reader: SnapshotReader,
    plans: Mapping[str, Mapping[str, str]],
    spans: Mapping[str, Sequence[Span]],
) -> None:
    """Put an archive in place.

    Args:
        path: archive.sqlite.
        reader: The snapshot that the plans were made from: content hashes come from it.
        plans: Plan id -> archived memory -> the memory that stands for it.
        spans: Plan id -> when it was in force.
    """
    ids = [i for entries in plans.values() for pair in entries.items() for i in pair]
    hashes = reader.content_hashes(ids)
    fresh = path.with_suffix(".new")
    with closing(sqlite3.connect(fresh)) as db, db:
        db.executescript(SCHEMA)
        for plan, entries in plans.items():
            db.execute("INSERT INTO plans VALUES (?, 's', 0, '{}')", [plan])
            for memory, successor in entries.items():
                row = (plan, memory, hashes[memory], successor, hashes[successor], None, "{}")
                db.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            for applied, undone in spans[plan]:
                db.execute("INSERT INTO applications VALUES (?, ?, ?)", [plan, applied, undone])
        digest = hash_json([[*map(list, spans[p])] for p in sorted(plans)])
        db.execute("INSERT INTO meta VALUES ('digest', ?)", [digest])
    fresh.replace(path)
