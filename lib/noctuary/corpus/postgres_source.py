"""Reading a claude-memory PostgreSQL database beside its live server.

What belongs here: the database as a source of a night: rows, their account, and what changed since
(for the live look). What does not: statements (`noctuary.postgres.rows`), links and concepts
(`noctuary.corpus.postgres_evidence`).

Everything is read in one read-only transaction of one state, from the first look to `close`. The
text of a row that is marked sensitive never leaves the server.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from noctuary.corpus.postgres_evidence import PostgresEvidence
from noctuary.corpus.quarantine import QuarantineReason
from noctuary.corpus.source import DEFAULT_BATCH_ROWS, Closing, RawRow, SourceIdentity
from noctuary.postgres.address import read_address
from noctuary.postgres.connecting import NIGHTLY, Limits, Pinned
from noctuary.postgres.rows import Row, count_rows, read_keys_since, read_pages
from noctuary.postgres.schema import MEMORIES, read_schema
from noctuary.postgres.users import make_reader, visible_sql
from noctuary.settings import SourceSettings
from noctuary.source_name import DatabaseName

KIND = "claude-memory-postgres"

_MICROS = "(extract(epoch FROM {}) * 1000000)::bigint"


class PostgresSource(PostgresEvidence, Closing):
    """A claude-memory database, pinned to one state.

    See `noctuary.corpus.source.Source` and `noctuary.corpus.evidence.HasEvidence`.
    """

    def __init__(
        self, name: DatabaseName, settings: SourceSettings, limits: Limits = NIGHTLY
    ) -> None:
        """Connect, pin the state and look at its shape.

        Args:
            name: Where it is.
            settings: Whose rows are read.
            limits: How long to wait.

        Raises:
            ConfigError: The address cannot be read.
            SourceError: Nobody answers, or what answers is no claude-memory database that this
                user may read.
        """
        self._pinned = Pinned(read_address(name), limits)
        try:
            schema = read_schema(self._pinned)
            self._reader = make_reader(self._pinned, schema, settings.user)
        except BaseException:
            self.close()
            raise

    def identity(self) -> SourceIdentity:
        """Return address, migration and the marks of the state that is being read.

        The mark `users` says by which rule rows are given to users: `single` where the store knows
        one (its rows are nobody's in particular), `several`, or `user:NAME` where only that
        user's rows are read. Under another rule the same rows differ.
        """
        reader = self._reader
        has_moments = reader.schema.columns["updated_at"].startswith("timestamp")
        # Not of `infinity`: that is no number.
        updated = "m.updated_at) FILTER (WHERE isfinite(m.updated_at)" if has_moments else "NULL"
        last_id, updated_us = self._pinned.rows(
            f"SELECT max(m.id), {_MICROS.format(f'(max({updated}))::timestamptz')} "
            f"FROM {MEMORIES} m WHERE {visible_sql(reader)}",
            {"user": reader.user},
        )[0]
        return SourceIdentity(
            kind=KIND,
            location=self._pinned.display,
            schema_version=reader.schema.version,
            id_kind="int",
            marker={
                "rows": self.count(),
                "last_id": int(last_id or 0),
                "last_updated_us": int(updated_us or 0),
                "users": reader.scope_name,
            },
            notes=reader.schema.notes,
        )

    def count(self) -> int:
        """Return the number of rows, tombstones and withheld ones included."""
        return count_rows(self._pinned, self._reader)

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield the rows by ascending id; a batch is cut short where its texts are large."""
        for page in read_pages(self._pinned, self._reader, size):
            yield [_raw_row(row) for row in page]

    def changed_since(
        self, since_us: int, size: int = DEFAULT_BATCH_ROWS
    ) -> Iterator[Sequence[RawRow]]:
        """Yield the rows with updated_at >= since_us by ascending id, tombstones included.

        A row whose updated_at is NULL is none of them.
        """
        for keys in read_keys_since(self._pinned, self._reader, size, since_us):
            for page in read_pages(self._pinned, self._reader, size, keys):
                yield [_raw_row(row) for row in page]

    def close(self) -> None:
        """End the transaction and the connection."""
        self._pinned.close()


def _raw_row(row: Row) -> RawRow:
    locator = f"id {row.key}"
    if not row.too_large:
        return RawRow(locator, row.key, row.fields, withheld=row.withheld)
    return RawRow(
        locator,
        row.key,
        {},
        problem=QuarantineReason.CONTENT_TOO_LARGE,
        problem_detail=f"row: {row.too_large} bytes of text, not fetched",
    )
