"""What a user calls a memory store: a path, or the address of a PostgreSQL database.

What belongs here: telling the two apart, and what of an address may be shown (never its password).
Standard library only: the read side resolves stores by it. What does not: connecting
(`noctuary.postgres`), opening (`noctuary.corpus.source`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from noctuary.errors import ConfigError
from noctuary.values import dataclass

SCHEMES = ("postgresql://", "postgres://")
VARIABLE = "env:"
"""Begins the name of an environment variable that holds the address: a command line can be read by
every user of the machine."""


@dataclass(frozen=True, slots=True)
class DatabaseName:
    """A PostgreSQL database.

    Attributes:
        spec: As it was named: `postgresql://...` or `env:NAME`; not shown by repr.
        conninfo: The address itself, password included; not shown by repr.
        display: For people, and what its store is named after: user, host, port and database.
    """

    spec: str = field(repr=False)
    conninfo: str = field(repr=False)
    display: str

    def __str__(self) -> str:
        return self.display


SourceName = Path | DatabaseName


def names_postgres(source: str) -> bool:
    """Say whether a source is given as an address or a variable that holds one."""
    return source.startswith((*SCHEMES, VARIABLE))


def name_source(named: str | Path, environ: Mapping[str, str] | None = None) -> SourceName:
    """Return what a text or a path names.

    Args:
        named: A path, `postgresql://...` or `env:NAME`.
        environ: The environment; None means the process's own.

    Raises:
        ConfigError: The variable is not set, or it holds no address of PostgreSQL.
    """
    if isinstance(named, Path) or not names_postgres(named):
        return Path(named)
    conninfo = named
    if named.startswith(VARIABLE):
        name = named.removeprefix(VARIABLE)
        conninfo = (os.environ if environ is None else environ).get(name, "").strip()
        if not conninfo.startswith(SCHEMES):
            what = "something else" if conninfo else "nothing"
            raise ConfigError(
                f"the environment variable {name!r} holds {what}; expected postgresql://..."
            )
    return DatabaseName(named, conninfo, _display(conninfo))


def _display(conninfo: str) -> str:
    try:
        parts = urlsplit(conninfo)
    except ValueError:
        # Its text quotes the address.
        raise ConfigError(
            "the address of the PostgreSQL source cannot be read; expected "
            "postgresql://USER@HOST:PORT/DATABASE"
        ) from None
    said = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    login, _, place = parts.netloc.rpartition("@")
    user = said.get("user") or unquote(login.partition(":")[0])
    # Several hosts may stand there, each with its port.
    host = said.get("host") or unquote(place)
    database = said.get("dbname") or unquote(parts.path.lstrip("/"))
    at, port = f"{user}@" if user else "", f":{said['port']}" if "port" in said else ""
    return f"postgresql://{at}{host}{port}/{database}"


def path_of(source: SourceName) -> Path:
    """Return the path of a source that is one.

    Raises:
        ConfigError: It is a database.
    """
    if isinstance(source, DatabaseName):
        raise ConfigError(f"{source} is a database; expected a path")
    return source
