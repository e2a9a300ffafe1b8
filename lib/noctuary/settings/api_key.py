"""The key of an endpoint, from the variable that a setting names. It is kept and shown nowhere.

What belongs here: reading it. What does not: sending it (noctuary.hosted, noctuary.encode.hosted).
"""

from __future__ import annotations

import os

from noctuary.errors import ConfigError


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


def require_header_text(key: str) -> None:
    """Refuse a key that cannot stand in an HTTP header: an HTTP library would quote it in an error.

    Raises:
        ValueError: If it holds anything but printable ASCII; the text does not hold the key.
    """
    if not (key.isascii() and key.isprintable()):
        raise ValueError("the API key holds characters that cannot stand in an HTTP header")
