"""The key of an endpoint, from the variable that a setting names. It is kept and shown nowhere."""

from __future__ import annotations

import os

from mnemon.errors import ConfigError


def read_api_key(variable: str, setting: str) -> str | None:
    """Return the key, or None where no variable is named.

    Args:
        variable: Name of an environment variable; empty: no key.
        setting: The setting that names it, for the error.

    Raises:
        ConfigError: If the variable is not set.
    """
    if not variable:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f"{setting} names {variable}, which is not set in the environment")
    return key
