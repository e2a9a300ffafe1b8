"""Tags: which of them say where a memory lives, and which say what it is about."""

from __future__ import annotations

SCOPE_TAG_PREFIXES = ("wing:", "project:", "room:", "session:", "user:")
"""Tags that say where a memory lives. They are filters; indexed, they would make every memory of a
wing match a query that names the wing, and a user's name would be findable by other users."""


def content_tags(tags: str) -> list[str]:
    """Return the comma-separated tags that describe the content, stripped, without scope tags."""
    stripped = (tag.strip() for tag in tags.split(","))
    return [tag for tag in stripped if tag and not tag.casefold().startswith(SCOPE_TAG_PREFIXES)]
