"""Where LanceDB tables lie: this machine's disk, or an object store."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from noctuary.core.errors import StoreError
from noctuary.core.files import fsync_dir, remove_tree, write_text
from noctuary.core.types import dataclass

# Marks on a tier that is being written: left behind, they say that it cannot be trusted.


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


# Where LanceDB tables lie: opening the place quietly, listing, removing and marking its tables.


TABLE_SUFFIX = ".lance"
"""Of a table's directory."""


class TablesUnreachableError(StoreError):
    """The object store of the tables does not answer, or refuses."""


@dataclass(frozen=True, slots=True)
class TableHome:
    """A place that holds LanceDB tables, each with a mark while it is written.

    LanceDB itself reaches an object store, with what the AWS_* variables say.

    Attributes:
        directory: Of the marks, and of the tables where there is no URI; made by the first of them.
        remote: The setting tiers.uri, `s3://bucket/prefix`; the prefix is the tables' alone.
    """

    directory: Path
    remote: str = ""

    @property
    def uri(self) -> str:
        """Where the tables lie; holds no secret."""
        return self.remote or str(self.directory)

    def connect(self) -> Any:
        """Return a LanceDB connection."""
        return connect(self.uri)

    def list_tables(self, prefix: str) -> list[str]:
        """Return the names of the tables that start with a prefix, sorted."""
        if not self.remote:
            return list_tables(self.directory, prefix)
        return sorted(n for n in self.connect().list_tables().tables if n.startswith(prefix))

    def has_table(self, name: str) -> bool:
        """Tell whether anything of a table is there, readable or not."""
        return name in self.list_tables(name)

    def remove_table(self, name: str, *, mark: bool = True) -> None:
        """Remove a table and, unless told not to, its mark; nothing where both are absent."""
        if self.remote:
            self.connect().drop_table(name, ignore_missing=True)
        else:
            remove_tree(self.directory / f"{name}{TABLE_SUFFIX}")
        if mark:
            remove_tree(mark_path(self.directory, name))

    def remove_all(self) -> None:
        """Remove every table and mark."""
        if self.remote:
            with self.guarded():
                self.connect().drop_all_tables()
        remove_tree(self.directory)

    def is_dirty(self, name: str) -> bool:
        """Tell whether a write of the table was begun and not finished."""
        return is_dirty(self.directory, name)

    def marked(self, name: str) -> AbstractContextManager[None]:
        """Mark a table while it is written; the mark stays where that fails or is killed."""
        return marked(self.directory, name)

    def require_reachable(self) -> None:
        """Do nothing where the place answers.

        Raises:
            TablesUnreachableError: It does not, or the bucket or the credentials are refused; a
                directory always does.
        """
        if not self.remote:
            return
        try:
            self.connect().list_tables(limit=1)
        except (RuntimeError, OSError, ValueError):
            # What LanceDB says holds the request.
            raise TablesUnreachableError(
                f"the tables at {self.remote} (tiers.uri) cannot be reached; check the bucket, the "
                "network and the AWS_* variables, then run the night again: what serves stays as "
                "it is"
            ) from None

    @contextmanager
    def guarded(self) -> Generator[None]:
        """Say in one sentence that the place was lost; other errors pass as they are.

        Raises:
            TablesUnreachableError: Something failed inside and the place does not answer now.
        """
        try:
            yield
        except (RuntimeError, OSError, ValueError):
            self.require_reachable()
            raise


def as_home(where: Path | TableHome) -> TableHome:
    """Return a home as it is, and a directory as one."""
    return TableHome(where) if isinstance(where, Path) else where


def connect(place: Path | str) -> Any:
    """Return the LanceDB connection of a directory or URI; lancedb is imported here."""
    # LanceDB reads its log level once, when imported; its Rust warnings do not belong on stderr.
    unset = "LANCEDB_LOG" not in os.environ
    os.environ.setdefault("LANCEDB_LOG", "error")
    try:
        import lancedb
    finally:
        if unset:
            del os.environ["LANCEDB_LOG"]
    return lancedb.connect(str(place))


def list_tables(lance_dir: Path, prefix: str) -> list[str]:
    """Return the names of the tables on disk that start with a prefix, sorted."""
    return sorted(path.stem for path in lance_dir.glob(f"{prefix}*{TABLE_SUFFIX}"))
