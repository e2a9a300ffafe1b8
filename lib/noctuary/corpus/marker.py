"""The change marker of a source: a digest that differs once there may be something new to read.

What belongs here: the cheapest look at every kind of store; no text of a memory is read. What does
not: when a night is asked for (`pipelines.sensors`), reading what changed
(`noctuary.corpus.source`).

A marker may change without a new memory (a checkpoint, a counter of the store's own): the night
that follows finds nothing new and publishes nothing. The other way round it must not miss a commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from noctuary.corpus.source import SQLITE_MAGIC, stores_in
from noctuary.errors import SourceError, SourceMissingError
from noctuary.hashing import hash_json
from noctuary.settings import Settings
from noctuary.source_name import DatabaseName, SourceName

MARKER_CHARS = 32
"""Of a SHA-256: 128 bits tell any two states of one store apart."""

_HEADER_BYTES = 100  # of a SQLite file: change counter, size in pages, schema cookie
_WAL_HEADER_BYTES = 32  # holds the salts: a log that begins anew has other ones

_CONNECT_S = 5
_STATEMENT_MS = 10_000
"""What a sensor waits for a database: a look that takes longer is one that failed."""

_TABLES = ("memories", "memory_shares", "tag_shares", "memory_links", "concepts", "concept_edges",
           "memory_concepts")  # fmt: skip
_NEWEST = "SELECT max(id), max(updated_at)::text FROM memories"
_COUNTED = """
SELECT schemaname, relname, n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables
WHERE relname = ANY(%(tables)s) ORDER BY schemaname, relname
"""

Look = list[Any]
"""What was seen: names, numbers and bytes as hex."""


def read_marker(source: SourceName, settings: Settings) -> str:
    """Return what changes when the source, or a configured folder of transcripts, changes.

    A file costs a `stat` and its first bytes, a folder of transcripts a `stat` per file, a database
    one query on its indexes and counters.

    Args:
        source: The memory store.
        settings: Whose rows are read (`source.user`), and where transcripts are
            (`transcripts.path`).

    Returns:
        Hexadecimal, `MARKER_CHARS` long, without any text of the store.

    Raises:
        SourceMissingError: There is nothing at the source's path.
        SourceError: It cannot be looked at.
    """
    looks: Look = [settings.source.user]
    if isinstance(source, DatabaseName):
        looks.append(_look_at_database(source))
    else:
        looks.append(_look(source))
    transcripts = settings.transcripts.path
    if transcripts:
        looks.append(list(_look_below(Path(transcripts).expanduser())))
    return hash_json(looks)[:MARKER_CHARS]


def _look(path: Path) -> Look:
    try:
        if not path.exists():
            raise SourceMissingError(f"there is no memory store at {path}")
        if not path.is_dir():
            return _look_at(path)
        stores = stores_in(path)
        if stores:
            return [_look_at(store) for store in stores]
        return list(_look_below(path))
    except PermissionError as error:
        raise SourceError(f"{path} cannot be looked at ({error.strerror})") from None


def _look_at(file: Path) -> Look:
    """Return what tells two states of one file apart.

    The time of a file moves in steps of milliseconds. In a SQLite file the change counter tells
    commits within one step apart; its write-ahead log grows, or begins anew with other salts.
    """
    stat = file.stat()
    look: Look = [file.name, stat.st_ino, stat.st_size, stat.st_mtime_ns]
    with file.open("rb") as handle:
        head = handle.read(_HEADER_BYTES)
    if head.startswith(SQLITE_MAGIC):
        look += [head.hex(), *_look_at_log(file.with_name(f"{file.name}-wal"))]
    return look


def _look_at_log(log: Path) -> Look:
    """Return the state of a write-ahead log; an empty one is like none."""
    try:
        stat = log.stat()
        if not stat.st_size:
            return []
        with log.open("rb") as handle:
            return [stat.st_size, stat.st_mtime_ns, handle.read(_WAL_HEADER_BYTES).hex()]
    except FileNotFoundError:
        return []


def _look_at_database(source: DatabaseName) -> Look:
    """Return newest id, newest time, and what PostgreSQL counts of the tables that a night reads.

    Deleting a row moves neither id nor time: the counters tell it. They come about a second after
    the commit, count what was rolled back as well, and begin anew after a crash of the server.
    """
    from noctuary.postgres.address import read_address
    from noctuary.postgres.connecting import Limits, Pinned

    database = Pinned(read_address(source), Limits(_CONNECT_S, _STATEMENT_MS))
    try:
        newest = database.rows(_NEWEST)
        counted = database.rows(_COUNTED, {"tables": list(_TABLES)})
    finally:
        database.close()
    return [list(row) for row in (*newest, *counted)]


def _look_below(root: Path) -> Iterator[Look]:
    """Yield name, size and time of every transcript at or below a path; none where it is gone."""
    for folder, below, names in os.walk(root):
        below.sort()
        for name in sorted(names):
            if name.endswith(".jsonl"):
                try:
                    stat = Path(folder, name).stat()
                except OSError:
                    continue  # it was deleted while the folder was listed
                place = os.path.relpath(folder, root)
                yield [place, name, stat.st_ino, stat.st_size, stat.st_mtime_ns]
    if root.is_file():
        yield _look_at(root)
