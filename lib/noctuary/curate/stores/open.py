"""From what the user calls the source to a store that can be written.

What belongs here: the choice by kind, and which kinds are read-only.
"""

from __future__ import annotations

from pathlib import Path

from noctuary.corpus.source import open_source
from noctuary.corpus.sqlite_source import KIND
from noctuary.curate.stores.base import WritableStore
from noctuary.errors import SourceError
from noctuary.postgres.address import read_address
from noctuary.settings import CorpusSettings
from noctuary.source_name import names_postgres


def open_writable(source: str, settings: CorpusSettings) -> WritableStore:
    """Open a source for writing.

    Args:
        source: A path, `postgresql://...`, or `env:NAME`.
        settings: As of the night that made the proposals.

    Raises:
        SourceError: There is none, it is read-only, or it cannot be opened.
        ConfigError: The address cannot be read.
    """
    if names_postgres(source):
        from noctuary.curate.stores.postgres import PostgresStore

        return PostgresStore(read_address(source), settings)
    with open_source(Path(source)) as opened:
        identity = opened.identity()
    if identity.kind != KIND:
        raise SourceError(
            f"{identity.location} is JSON lines, which noctuary only reads: a row of them cannot "
            "be changed within a transaction. Tidy the database that it was exported from: "
            "--source memory.db, or --source env:NAME with a PostgreSQL address in it."
        )
    from noctuary.curate.stores.sqlite import SqliteStore

    return SqliteStore(Path(identity.location), settings)
