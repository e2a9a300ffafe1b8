"""Where a PostgreSQL source is, checked by libpq, and what of that may be shown: no password.

What belongs here: the address and its secrets. What does not: what a user calls a source
(`noctuary.source_name`), connecting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from noctuary.errors import ConfigError, SourceError
from noctuary.source_name import DatabaseName, name_source

_HIDDEN = "***"
_SHORTEST = 3  # of a secret that is replaced in a message: a shorter one would garble every word


@dataclass(frozen=True, slots=True)
class Address:
    """A database.

    Attributes:
        conninfo: For libpq, password included; not shown by repr.
        display: For people: user, host, port and database.
        secrets: What must not be shown.
    """

    conninfo: str = field(repr=False)
    display: str
    secrets: tuple[str, ...] = field(repr=False)

    def cleaned(self, message: str) -> str:
        """Return a message of libpq's in one line, without the address and its secrets."""
        for secret in (self.conninfo, *self.secrets):
            if len(secret) >= _SHORTEST:
                message = message.replace(secret, _HIDDEN)
        return " ".join(message.split())


def read_address(source: str | DatabaseName, environ: Mapping[str, str] | None = None) -> Address:
    """Return the database that a source names.

    Raises:
        ConfigError: The variable is not set, or it is no address of PostgreSQL.
        SourceError: psycopg is not installed.
    """
    named = name_source(source, environ) if isinstance(source, str) else source
    if not isinstance(named, DatabaseName):
        raise ConfigError(f"{named} is a path; expected postgresql://... or env:NAME")
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise SourceError(
            "A PostgreSQL source needs psycopg: install noctuary with the extra 'postgres'."
        ) from None
    try:
        parts = conninfo_to_dict(named.conninfo)
    except ProgrammingError:
        # Its text quotes the address.
        raise ConfigError(
            "the address of the PostgreSQL source cannot be read; expected "
            "postgresql://USER@HOST:PORT/DATABASE"
        ) from None
    secrets = tuple(str(parts[name]) for name in ("password", "sslpassword") if name in parts)
    return Address(named.conninfo, named.display, secrets)
