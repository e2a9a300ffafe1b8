"""The sample memory store: a claude-memory-shaped SQLite file made from hand-written texts.

Everything that varies is frozen in ``data/sample/texts/*.jsonl`` (ids, timestamps, tags) except
``server_id``, which is drawn here with a fixed seed. Nothing reads the clock, so two builds hold
equal rows.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from noctuary.core.files import write_bytes
from noctuary_pipelines import TOP

FOLDER = TOP / "data" / "sample"
QUERIES = FOLDER / "queries.jsonl"  # labelled; a night finds them beside the store it reads

SCHEMA = (FOLDER / "schema.sql").read_text(encoding="utf-8")

_SEED = 20261115


class Row(NamedTuple):
    """One row of ``memories`` plus the labels that stay in the text files (``notes``)."""

    id: int
    content: str
    created_at: str
    updated_at: str
    category: str = "facts"
    tags: str = ""
    expanded_keywords: str = ""
    importance: float = 0.5
    is_sensitive: int = 0
    notes: Sequence[str] = ()


_COLUMNS = Row._fields[:-1]


def load_rows() -> list[Row]:
    """Read every text file and return the rows by id."""
    found: list[Row] = []
    for path in sorted(FOLDER.glob("texts/*.jsonl")):
        # Split on "\n" only: splitlines() would also break at U+2028 and the like.
        for line in filter(None, path.read_text(encoding="utf-8").split("\n")):
            raw = json.loads(line)
            found.append(Row(**{"updated_at": raw["created_at"], **raw}))
    return sorted(found)


def build(out: Path) -> None:
    """Write the sample store to ``out``, replacing an earlier build."""
    rows = load_rows()
    # Which rows were synced, and under which server id.
    rng = random.Random(_SEED)
    synced = [row.id for row in rows if rng.random() < 0.10]
    steps = (1 + int(rng.random() * 9) for _ in synced)
    numbers = [40_000 + number for number in accumulate(steps)]
    server_ids = dict(zip(synced, numbers, strict=True))
    out.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", "-wal", "-shm"):
        Path(f"{out}{suffix}").unlink(missing_ok=True)
    marks = ", ".join("?" * (len(_COLUMNS) + 1))
    insert = f"INSERT INTO memories ({', '.join(_COLUMNS)}, server_id) VALUES ({marks})"
    with closing(sqlite3.connect(out)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.executescript(SCHEMA)
        with db:
            numbered = ((*row[:-1], server_ids.get(row.id)) for row in rows)
            db.executemany(insert, numbered)


def place_sample(directory: Path) -> Path:
    """Return the sample store of a directory, `memory.db`; both are made where they are missing."""
    database = directory / "memory.db"
    if not database.is_file():
        begun = database.with_name("memory.db.begun")
        build(begun)
        # Read first: where a home is the checkout's own data/, the two are one file.
        write_bytes(directory / QUERIES.name, QUERIES.read_bytes())
        begun.replace(database)  # a build that was stopped is no sample
    return database
