"""Addresses of endpoints as settings hold them: what is refused before anything is sent there.

What belongs here: the form of an address. What does not: who answers at it.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def require_web_address(url: str) -> None:
    """Refuse what is no plain http or https address.

    Raises:
        ValueError: The text does not quote the address, which may hold a password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an endpoint's URL starts with http:// or https:// and names a host")
    if not (url.isascii() and url.isprintable()) or " " in url:
        raise ValueError("an endpoint's URL holds characters that a URL cannot have; encode them")
    if parts.username is not None or parts.password is not None:
        raise ValueError("an endpoint's URL holds a user or a password; pass an API key instead")
    try:
        _ = parts.port
    except ValueError as error:
        raise ValueError("an endpoint's URL has a port that is no number up to 65535") from error


def join_path(url: str, path: str) -> str:
    """Return the address of a path below a base URL; its query stays, its fragment goes.

    Args:
        url: The base, with or without a slash at its end.
        path: Starts with a slash.
    """
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path.rstrip("/") + path, fragment=""))
