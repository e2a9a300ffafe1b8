"""The settings in force at this moment, read again only when something they come from changed.

What belongs here: the cache. What does not: what settings mean (`noctuary.settings`).
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from noctuary.errors import ConfigError, StoreError
from noctuary.locate import find_home
from noctuary.recall.result import RecallWarning
from noctuary.settings import CONFIG_FILE_NAME, ENV_PREFIX, Settings

_KEPT = 8
"""Settings kept parsed: a process has one home and one configuration, tests have some."""

Stamp = tuple[int, int, int]


def current_settings() -> tuple[Settings, tuple[RecallWarning, ...]]:
    """Return the settings, and a warning where they are bad: the defaults are in force then."""
    try:
        home = find_home()
        # Names first: reading every value of the environment costs a tenth of a recall.
        names = [name for name in os.environ if name.startswith(ENV_PREFIX)]
        environ = tuple(sorted((name, os.environ[name]) for name in names))
        named = os.environ.get("NOCTUARY_CONFIG", "").strip()
        stamp = _stamp(Path(named) if named else home / CONFIG_FILE_NAME)
        return _load(home, environ, stamp), ()
    except (ConfigError, StoreError, OSError) as error:
        return Settings(), (RecallWarning("bad_settings", f"defaults are in force: {error}"),)


@lru_cache(maxsize=_KEPT)
def _load(home: Path, environ: tuple[tuple[str, str], ...], _stamp: Stamp | None) -> Settings:
    return Settings.load(home=home, environ=dict(environ))


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.expanduser().stat()
    except (OSError, RuntimeError, ValueError):
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)
