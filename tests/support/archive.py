"""Superseded memories for tests of the archive: rows of a snapshot, and whole stores."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from noctuary.core.store import StorePaths, record_night
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.embed.lean import LeanEncoder
from noctuary.graph.tables import Evidence, Supersession, to_table
from noctuary.snapshot.pack import build_candidate
from noctuary.snapshot.publish import publish_candidate
from noctuary.usage.reader import Usage, UsageReader
from tests.support import usage_file
from tests.support.store import (
    Store,
    day_us,
    memory,
    new_store,
    pack_inputs,
    provenance,
    renumber,
)

NOW_US = day_us(400)
"""When the night of these tests counted: more than a year after the first memories."""

_TABLES = """
CREATE TABLE memories (
    position INTEGER PRIMARY KEY, memory_id TEXT, content TEXT, category TEXT, tags TEXT,
    expanded_keywords TEXT, importance REAL, created_at_us INTEGER, updated_at_us INTEGER,
    session_id TEXT, wing TEXT, room TEXT, user TEXT, is_turn INTEGER, content_hash TEXT,
    origin TEXT, valid_until_us INTEGER);
CREATE TABLE supersessions (
    older INTEGER, newer INTEGER, head INTEGER, reason TEXT, confidence INTEGER, similarity REAL,
    age_gap_days INTEGER);
"""


@dataclass(frozen=True)
class Replaced:
    """One supersession by positions.

    Attributes:
        older: The memory that is out of date.
        newer: Its successor.
        reason: How the night knows.
        confidence: 0 low, 1 medium, 2 high.
        similarity: Cosine, or None.
        days: Whole days between the two.
    """

    older: int
    newer: int
    reason: str = "explicit"
    confidence: int = 2
    similarity: float | None = None
    days: int = 30


def heads(links: Iterable[Replaced]) -> dict[int, int]:
    """Return the last memory of the chain of each older one."""
    newer = {link.older: link.newer for link in links}
    found: dict[int, int] = {}
    for older in newer:
        here = older
        while here in newer:
            here = newer[here]
        found[older] = here
    return found


def write_rows(path: Path, records: Sequence[MemoryRecord], links: Sequence[Replaced]) -> None:
    """Write what a plan reads of a snapshot's rows.sqlite, and nothing else."""
    head_of = heads(links)
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(_TABLES)
        marks = ",".join("?" * len(MemoryRecord._fields))
        db.executemany(f"INSERT INTO memories VALUES ({marks})", map(_row, records))
        db.executemany(
            "INSERT INTO supersessions VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(k.older, k.newer, head_of[k.older], k.reason, k.confidence, k.similarity, k.days)
             for k in sorted(links, key=lambda k: k.older)],
        )  # fmt: skip


def publish(
    store: Store, records: Sequence[MemoryRecord], links: Sequence[Replaced], **changes: Any
) -> str:
    """Publish a snapshot in which memories replace one another; its id."""
    inputs = pack_inputs(records, store.encoder)
    head_of = heads(links)
    rows = [
        Supersession(
            k.older, k.newer, head_of[k.older], k.reason, k.confidence, k.similarity, k.days, "",
            Evidence(k.newer, 0, 1), records[k.newer].created_at_us,
            records[k.newer].updated_at_us,
        )
        for k in sorted(links, key=lambda k: k.older)
    ]  # fmt: skip
    graph = replace(inputs.graph, supersessions=to_table("supersessions", rows))
    inputs = replace(inputs, graph=graph, **changes)
    candidate = build_candidate(store.paths, inputs, provenance(store.encoder))
    digest = store.judge(candidate)
    published = publish_candidate(store.paths, digest, store.keep)
    record_night(store.paths)
    return published.snapshot_id


def count_use(
    store: Store, use: Mapping[str, usage_file.Use] | None = None, *, as_of_us: int = NOW_US
) -> None:
    """Let the night have counted this use, up to a moment."""
    usage_file.write(store.paths.usage, use or {}, as_of_us=as_of_us)


def counts_of(path: Path, use: Mapping[str, usage_file.Use]) -> tuple[Any, int]:
    """Return the lookup of a usage file with this use, and the moment of counting."""
    usage_file.write(path, use, as_of_us=NOW_US)
    reader = UsageReader(path)

    def look_up(memory_ids: Sequence[str]) -> Usage:
        return reader.counts(memory_ids)

    return look_up, NOW_US


def versions() -> tuple[list[MemoryRecord], list[Replaced]]:
    """Return three versions of one fact and what replaced them, a pair, and bystanders.

    Ids from 101: 101, 102, 103 -> 104 (one chain), 105 -> 106, and 107..110 that nothing replaces.
    """
    records = renumber(
        [
            memory("The spare key hangs in the hall.", created_at_us=day_us(1)),
            memory("The spare key hangs in the kitchen.", created_at_us=day_us(40)),
            memory("The spare key hangs in the shed now.", created_at_us=day_us(80)),
            memory("The spare key lies with the neighbour.", created_at_us=day_us(120)),
            memory("The boiler runs at sixty degrees.", wing="home", created_at_us=day_us(3)),
            memory("The boiler runs at fifty degrees.", wing="home", created_at_us=day_us(200)),
            memory("The kitten sleeps on the radiator.", created_at_us=day_us(5)),
            memory("The invoice of the flight is paid.", created_at_us=day_us(6)),
            memory("Nobody knows when this was written.", created_at_us=UNDATED_US),
            memory("The physician asks for a payment.", created_at_us=day_us(7)),
        ]
    )
    return records, [Replaced(0, 1), Replaced(1, 2), Replaced(2, 3), Replaced(4, 5)]


def new_archive_store(root: Path, encoder: LeanEncoder | None) -> Store:
    """Return a store that serves `versions`, whose night has counted no use."""
    store = new_store(root, encoder=encoder)
    publish(store, *versions())
    count_use(store)
    return store


def copy_archive_store(store: Store, root: Path) -> Store:
    """Return a copy of a store whose ledger, access log and snapshots may be changed."""
    shutil.copytree(store.root, root)
    return Store(StorePaths(root), store.encoder, store.keep)


def _row(record: MemoryRecord) -> tuple[Any, ...]:
    return tuple(int(v) if isinstance(v, bool) else v for v in record)
