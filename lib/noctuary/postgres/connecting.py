"""Connections to a claude-memory database: pinned, read-only, bounded in time, silent about rows.

What belongs here: opening one, running a statement, and what an error may say. What does not: the
shape of the database (`noctuary.postgres.schema`), statements about rows
(`noctuary.postgres.rows`), writing (`noctuary.curate.stores.postgres`).

Two limits bound every wait. The server's own `statement_timeout` ends a statement that is slow;
the client's ends one whose server, or the way to it, has gone silent. Neither is given as a start
parameter: a pooler (PgBouncer) refuses those, and for the same reason no statement is prepared.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, LiteralString, cast

from noctuary.errors import SourceError
from noctuary.postgres.address import Address
from noctuary.values import dataclass

if TYPE_CHECKING:
    import psycopg

APPLICATION_NAME = "noctuary"
"""What the server's administrator sees in pg_stat_activity."""

_KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
_LOST = ("08", "57P01", "57P02", "57P03", "57P05", "25P03")
_TIMED_OUT = ("57014", "55P03")  # query_canceled by a limit, lock_not_available
_DENIED = "42501"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait.

    Attributes:
        connect_s: Seconds for a connection; libpq takes at least 2. The address may say otherwise.
        statement_ms: Milliseconds for one statement.
        idle_ms: Milliseconds that the server keeps the transaction open while nothing is asked;
            afterwards it must be free to clean up. 0 leaves it to the server's setting.
        grace_ms: Milliseconds after `statement_ms` for which the server's own limit is waited for,
            because it says why; then the connection is cut.
    """

    connect_s: int = 10
    statement_ms: int = 300_000
    idle_ms: int = 1_800_000
    grace_ms: int = 5_000


NIGHTLY = Limits()


class Pinned:
    """One read-only transaction, of the state the database had at the first statement.

    Not for several threads at once. Errors are `SourceError`s that quote no row and no address.
    """

    def __init__(self, address: Address, limits: Limits = NIGHTLY) -> None:
        """Connect and begin.

        Raises:
            SourceError: psycopg is not installed, or nobody answers.
        """
        self.display = address.display
        self._address = address
        self._limits = limits
        self._db = _connect(address, limits)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def rows(
        self, statement: str, values: Mapping[str, object] | None = None
    ) -> list[tuple[Any, ...]]:
        """Run a statement of this project's own and return all its rows.

        Args:
            statement: SQL; values stand in it as %(name)s.
            values: By name.

        Raises:
            SourceError: It failed, took too long, or the connection was lost.
        """
        with self._guarded():
            return self._db.execute(cast("LiteralString", statement), values).fetchall()

    def one(self, statement: str, values: Mapping[str, object] | None = None) -> Any:
        """Return the only value of a statement; as `rows`."""
        return self.rows(statement, values)[0][0]

    def stream(
        self,
        statement: str,
        values: Mapping[str, object] | None = None,
        *,
        size: int = 1_000,
    ) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the rows of a statement by a cursor of the server, at most `size` at once.

        Several may be open at a time. Memory is bounded by `size` rows of whatever width: for
        contents see `noctuary.postgres.rows.read_pages`.
        """
        with self._guarded():
            cursor = self._db.cursor(f"noctuary_{os.urandom(8).hex()}")
            cursor.execute(cast("LiteralString", statement), values)
        try:
            while True:
                with self._guarded():
                    batch = cursor.fetchmany(size)
                if not batch:
                    return
                yield batch
        finally:
            # A transaction that failed has closed it already.
            with suppress(Exception):
                cursor.close()

    def close(self) -> None:
        """End the transaction and the connection; safe to call twice."""
        self._db.close()

    def _begin(self) -> None:
        from psycopg import IsolationLevel

        self._db.isolation_level = IsolationLevel.REPEATABLE_READ
        self._db.read_only = True
        limits = {"statement_timeout": self._limits.statement_ms}
        if self._limits.idle_ms:
            limits["idle_in_transaction_session_timeout"] = self._limits.idle_ms
        encoding = self._db.info.parameter_status("server_encoding")
        shape = {
            # Text of a database without an encoding is bytes; every other the server converts.
            "client_encoding": "SQL_ASCII" if encoding == "SQL_ASCII" else "UTF8",
            "TimeZone": "UTC",
            "DateStyle": "ISO, YMD",
        }
        settings = {name: f"{value}ms" for name, value in limits.items()} | shape
        # One statement, and the first: `now()` is the moment before the state was pinned.
        calls = ", ".join(f"set_config('{name}', %({name})s, true)" for name in settings)
        self.rows(f"SELECT {calls}", settings)

    @contextmanager
    def _guarded(self) -> Generator[None]:
        import psycopg

        with _Deadline(self._db, self._limits.statement_ms + self._limits.grace_ms) as deadline:
            try:
                yield
            except psycopg.Error as error:
                raise self._failed(error, is_late=deadline.is_over) from None

    def _failed(self, error: psycopg.Error, *, is_late: bool) -> SourceError:
        """Return what may be said of an error: the message of one may quote a row."""
        code = error.sqlstate or ""
        if is_late or code in _TIMED_OUT:
            return SourceError(
                f"{self.display} took longer than {self._limits.statement_ms / 1000:g} s for one "
                f"statement ({code or 'no answer'}). Nothing was published; the next run starts "
                f"anew. Look for locks and for load on the server."
            )
        if not code or code.startswith(_LOST) or self._db.closed:
            return SourceError(
                f"The connection to {self.display} was lost ({code or type(error).__name__}). "
                f"Nothing was published; the next run starts anew."
            )
        if code == _DENIED:
            return SourceError(
                f"{self.display} does not let this user read what noctuary needs ({code}): grant "
                f"SELECT on the tables of claude-memory and USAGE on their schema."
            )
        return SourceError(
            f"{self.display} refused a statement ({code}). Nothing was published; check that it is "
            f"a claude-memory database, and report this if it is."
        )


class _Deadline:
    """Cuts a connection off that has not answered in time; libpq alone would wait for ever."""

    def __init__(self, db: psycopg.Connection[Any], after_ms: int) -> None:
        self._db = db
        self.is_over = False
        self._timer = threading.Timer(after_ms / 1000, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> _Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _cut(self) -> None:
        self.is_over = True
        # A copy of the descriptor: the connection closes its own.
        with suppress(Exception), socket.socket(fileno=os.dup(self._db.fileno())) as cut:
            cut.shutdown(socket.SHUT_RDWR)


def _connect(address: Address, limits: Limits) -> psycopg.Connection[tuple[Any, ...]]:
    try:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise SourceError(
            "A PostgreSQL source needs psycopg: install noctuary with the extra 'postgres'."
        ) from None
    defaults = {
        "connect_timeout": limits.connect_s,
        "application_name": APPLICATION_NAME,
        **_KEEPALIVES,
    }
    given = conninfo_to_dict(address.conninfo)
    own = {name: value for name, value in defaults.items() if name not in given}
    try:
        return psycopg.connect(address.conninfo, prepare_threshold=None, **cast("Any", own))
    except psycopg.Error as error:
        raise SourceError(
            f"{address.display} cannot be reached: {address.cleaned(str(error))} Check the address "
            f"and that the server runs."
        ) from None
