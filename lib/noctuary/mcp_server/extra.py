"""Whether the SDK of the protocol is installed, in a version that this server runs on.

What belongs here: looking. Standard library only: it is asked where the SDK may be missing.
"""

from __future__ import annotations

from importlib import metadata, util

WANTED = "mcp>=2.1,<3"
"""As the extra `mcp` has it (pyproject.toml)."""

_LEAST = (2, 1)
_BELOW_MAJOR = 3
_REMEDY = f"pip install 'noctuary[mcp]' installs {WANTED}"


def find_sdk_fault() -> str | None:
    """Return why the MCP server cannot run in this environment and what to do; None where it can.

    Nothing is imported: it takes about a millisecond.
    """
    try:
        missing = util.find_spec("mcp") is None
    except ValueError:  # a placeholder stands in sys.modules
        missing = True
    if missing:
        return f"the MCP server needs the package mcp, which is not installed: {_REMEDY}"
    try:
        found = metadata.version("mcp")
    except metadata.PackageNotFoundError:
        return None  # importable without being installed: it may well run
    if not is_supported(found):
        return f"the MCP server needs {WANTED}, found mcp {found}: {_REMEDY}"
    return None


def is_supported(version: str) -> bool:
    """Say whether the server runs on this version of the SDK, e.g. "2.3.0"."""
    parts = version.split(".")
    try:
        major, minor = int(parts[0]), int(parts[1])
    except (IndexError, ValueError):
        return True  # no release number: whoever installed it knows
    return _LEAST <= (major, minor) < (_BELOW_MAJOR, 0)
