"""Where a PostgreSQL source is, and what of that may be shown: never the password.

What belongs here: reading `postgresql://...` or `env:NAME`. What does not: connecting (`postgres`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from mnemon.errors import ConfigError, SourceError

SCHEMES = ("postgresql://", "postgres://")
VARIABLE = "env:"
"""Begins the name of an environment variable that holds the address: a command line can be read by
every user of the machine."""

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


def names_postgres(source: str) -> bool:
    """Say whether a source is given as an address or a variable that holds one."""
    return source.startswith((*SCHEMES, VARIABLE))


def read_address(source: str, environ: Mapping[str, str] | None = None) -> Address:
    """Return the database that a source names.

    Raises:
        ConfigError: The variable is not set, or it is no address of PostgreSQL.
        SourceError: psycopg is not installed.
    """
    if source.startswith(VARIABLE):
        name = source.removeprefix(VARIABLE)
        source = (os.environ if environ is None else environ).get(name, "").strip()
        if not source.startswith(SCHEMES):
            what = "something else" if source else "nothing"
            raise ConfigError(
                f"the environment variable {name!r} holds {what}; expected postgresql://..."
            )
    try:
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict
    except ImportError:
        raise SourceError(
            "A PostgreSQL source needs psycopg: install mnemon with the extra 'postgres'."
        ) from None
    try:
        parts = conninfo_to_dict(source)
    except ProgrammingError:
        # Its text quotes the address.
        raise ConfigError(
            "the address of the PostgreSQL source cannot be read; expected "
            "postgresql://USER@HOST:PORT/DATABASE"
        ) from None
    return _address(source, {name: str(value) for name, value in parts.items()})


def _address(source: str, parts: Mapping[str, str]) -> Address:
    user = f"{parts['user']}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    display = f"postgresql://{user}{parts.get('host', '')}{port}/{parts.get('dbname', '')}"
    secrets = tuple(parts[name] for name in ("password", "sslpassword") if name in parts)
    return Address(source, display, secrets)
