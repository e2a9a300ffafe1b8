"""Which row of a local cache is which memory of its server.

What belongs here: matching the two, and the table of it. What does not: using it
(`noctuary.night.questions`).

A claude-memory cache numbers its rows itself: local id 17 and the server's 17 have nothing in
common (research/peers.md 2.2). A row says its server_id once it was sent; one that does not is
known by its content, where both sides hold that once. Sensitive rows keep their text: SQL leaves it
out, and only a server_id names them.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from noctuary.corpus.records import iter_records
from noctuary.errors import SourceFormatError, SourceMissingError, StoreError
from noctuary.files import replace_with
from noctuary.hashing import hash_text
from noctuary.locate import expand_user
from noctuary.settings import CaptureSettings
from noctuary.source_name import DatabaseName, SourceName

_BUSY_TIMEOUT_S = 30.0
_LOCAL_ROWS = """
    SELECT id, server_id,
           CASE WHEN is_sensitive IS NULL OR is_sensitive = 0 THEN content END
    FROM memories ORDER BY id
"""


class LocalRow(NamedTuple):
    """A row of a local cache.

    Attributes:
        local_id: Its id in the cache.
        server_id: The id its server gave it, or None.
        content_hash: Of its content, or None where that is withheld or no text.
    """

    local_id: int
    server_id: int | None
    content_hash: str | None


class ServerRow(NamedTuple):
    """A memory of the corpus: its id as text, and the hash of its content."""

    memory_id: str
    content_hash: str


def cache_path(source: SourceName, settings: CaptureSettings) -> Path | None:
    """Return the configured local cache of a database, or None; any other source has none."""
    if not isinstance(source, DatabaseName) or not settings.local_cache:
        return None
    return expand_user(settings.local_cache)


def bridge_ids(local_rows: Iterable[LocalRow], server_rows: Iterable[ServerRow]) -> dict[int, str]:
    """Match the rows of a local cache with the memories of its server, one to one.

    By server_id first; a row without one, or whose memory is not there, by its exact content if
    exactly one such row and exactly one memory that is not matched yet hold it. Of several rows
    with one server_id (the cache forbids it) the first has it.

    Args:
        local_rows: Each id once.
        server_rows: Each id once.

    Returns:
        Local id to memory id, by ascending local id.
    """
    servers, locals_ = list(server_rows), sorted(local_rows)
    known = {row.memory_id for row in servers}
    found: dict[int, str] = {}
    taken: set[str] = set()
    for row in locals_:
        memory_id = str(row.server_id)
        if row.server_id is not None and memory_id in known and memory_id not in taken:
            found[row.local_id] = memory_id
            taken.add(memory_id)
    left = [row for row in locals_ if row.local_id not in found and row.content_hash is not None]
    by_content = {r.content_hash: r.memory_id for r in servers if r.memory_id not in taken}
    there = Counter(row.content_hash for row in servers if row.memory_id not in taken)
    here = Counter(row.content_hash for row in left)
    for row in left:
        content = row.content_hash
        if content is not None and here[content] == there[content] == 1:
            found[row.local_id] = by_content[content]
    return dict(sorted(found.items()))


def write_bridge(cache: Path, memories: Path, path: Path) -> dict[str, int]:
    """Match a local cache with an exported corpus and keep the table.

    Args:
        cache: The claude-memory SQLite file; only read.
        memories: memories.parquet.
        path: Where the table goes: columns local_id (int64) and memory_id (text), by local_id;
            equal inputs give equal bytes.

    Returns:
        Counts: `local_rows`, and how many of them are `bridged`.

    Raises:
        SourceError: The cache is missing or no claude-memory store.
        StoreError: There is no corpus.
    """
    local_rows = read_cache(cache)
    found = bridge_ids(local_rows, _server_rows(memories))
    replace_with(path, lambda tmp: _write_table(found, tmp))
    return {"local_rows": len(local_rows), "bridged": len(found)}


def read_bridge(path: Path) -> Mapping[str, str]:
    """Return local id to memory id, both as text; empty where there is no table.

    Raises:
        StoreError: The table cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        return {}
    try:
        table = pq.read_table(path, columns=["local_id", "memory_id"])
    except (pa.ArrowInvalid, KeyError, OSError):
        raise StoreError(f"{path} is no table of ids. Remove it and run a night again.") from None
    columns = (table.column(name).to_pylist() for name in ("local_id", "memory_id"))
    return {str(local_id): str(memory_id) for local_id, memory_id in zip(*columns, strict=True)}


def read_cache(cache: Path) -> list[LocalRow]:
    """Return the rows of a claude-memory cache, without any text.

    Raises:
        SourceMissingError: There is no such file.
        SourceFormatError: It is no claude-memory store.
    """
    if not cache.is_file():
        raise SourceMissingError(
            f"There is no local cache at {cache}. Correct capture.local_cache, or unset it."
        )
    uri = f"{cache.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_S)) as db:
            db.execute("PRAGMA temp_store = 2")  # memory: no text of a row in a temporary file
            db.text_factory = bytes
            return [_local_row(*row) for row in db.execute(_LOCAL_ROWS)]
    except sqlite3.Error as error:
        # Its text may quote the row it failed on.
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        raise SourceFormatError(
            f"{cache} cannot be read as a claude-memory cache of version 2 ({name}): expected a "
            f"table 'memories' with id, server_id, is_sensitive and content."
        ) from None


def _local_row(local_id: int, server_id: object, content: object) -> LocalRow:
    known = server_id if isinstance(server_id, int) else None
    if not isinstance(content, bytes):
        return LocalRow(local_id, known, None)
    try:
        return LocalRow(local_id, known, hash_text(content.decode("utf-8")))
    except UnicodeDecodeError:
        return LocalRow(local_id, known, None)


def _server_rows(memories: Path) -> Iterator[ServerRow]:
    for records in iter_records(memories):
        for record in records:
            yield ServerRow(record.memory_id, hash_text(record.content))


def _write_table(found: Mapping[int, str], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "local_id": pa.array(list(found), pa.int64()),
        "memory_id": pa.array(list(found.values()), pa.string()),
    }
    pq.write_table(pa.table(columns), path, compression="zstd")
