"""Marks on a tier that is being written: left behind, they say that it cannot be trusted.

What belongs here: the mark's file and its life. What does not: what is done about a marked tier
(noctuary.vectors.tiers writes it again).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from noctuary.files import fsync_dir, write_text

_SUFFIX = ".dirty"
"""Of the mark, beside the table's directory."""

_MARK_TEXT = "being written; whoever finds this later writes the table again\n"


def mark_path(lance_dir: Path, table: str) -> Path:
    """Return where a table's mark lies."""
    return lance_dir / f"{table}{_SUFFIX}"


def is_dirty(lance_dir: Path, table: str) -> bool:
    """Tell whether a write of the table was begun and not finished."""
    return mark_path(lance_dir, table).exists()


@contextmanager
def marked(lance_dir: Path, table: str) -> Generator[None]:
    """Mark a table for as long as it is written; the mark stays where that fails or is killed."""
    path = mark_path(lance_dir, table)
    write_text(path, _MARK_TEXT)
    yield
    path.unlink()
    fsync_dir(lance_dir)
