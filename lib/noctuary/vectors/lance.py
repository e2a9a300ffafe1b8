"""Where LanceDB tables lie: opening the place quietly, listing, removing and marking its tables.

What belongs here: the tables' home as a noun (`TableHome`) and the usual one, a directory. What
does not: an object store (noctuary.vectors.object_tables), what the tables hold
(noctuary.vectors.tiers).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Protocol

from noctuary.files import remove_tree
from noctuary.values import dataclass
from noctuary.vectors.dirty import is_dirty, mark_path, marked

TABLE_SUFFIX = ".lance"
"""Of a table's directory."""


class TableHome(Protocol):
    """A place that holds LanceDB tables, each with a mark while it is written."""

    @property
    def uri(self) -> str:
        """A directory or `s3://bucket/prefix`; holds no secret."""
        ...

    def storage_options(self) -> dict[str, str]:
        """Return what LanceDB must be told to reach it; may hold secrets: never log or keep it."""
        ...

    def table_uri(self, name: str) -> str:
        """Return where one table lies."""
        ...

    def connect(self) -> Any:
        """Return a LanceDB connection."""
        ...

    def list_tables(self, prefix: str) -> list[str]:
        """Return the names of the tables that start with a prefix, sorted."""
        ...

    def has_table(self, name: str) -> bool:
        """Tell whether anything of a table is there, readable or not."""
        ...

    def remove_table(self, name: str, *, mark: bool = True) -> None:
        """Remove a table and, unless told not to, its mark; nothing where both are absent."""
        ...

    def remove_all(self) -> None:
        """Remove every table and mark."""
        ...

    def is_dirty(self, name: str) -> bool:
        """Tell whether a write of the table was begun and not finished."""
        ...

    def marked(self, name: str) -> AbstractContextManager[None]:
        """Mark a table while it is written; the mark stays where that fails or is killed."""
        ...

    def require_reachable(self) -> None:
        """Do nothing where the place answers.

        Raises:
            TablesUnreachableError: It does not; a directory always does.
        """
        ...

    def guarded(self) -> AbstractContextManager[None]:
        """Turn what a library raises because the place was lost into TablesUnreachableError."""
        ...


@dataclass(frozen=True, slots=True)
class LocalTables:
    """Tables in a directory.

    Attributes:
        directory: The LanceDB directory; made by the first table.
    """

    directory: Path

    @property
    def uri(self) -> str:
        """The directory."""
        return str(self.directory)

    def storage_options(self) -> dict[str, str]:
        """Return nothing: a directory needs no options."""
        return {}

    def table_uri(self, name: str) -> str:
        """Return the directory of one table."""
        return str(self._path(name))

    def connect(self) -> Any:
        """Return a LanceDB connection."""
        return connect(self.directory)

    def list_tables(self, prefix: str) -> list[str]:
        """Return the names of the tables that start with a prefix, sorted."""
        return list_tables(self.directory, prefix)

    def has_table(self, name: str) -> bool:
        """Tell whether a table's directory is there."""
        return self._path(name).exists()

    def remove_table(self, name: str, *, mark: bool = True) -> None:
        """Remove a table and, unless told not to, its mark."""
        remove_tree(self._path(name))
        if mark:
            remove_tree(mark_path(self.directory, name))

    def remove_all(self) -> None:
        """Remove the directory."""
        remove_tree(self.directory)

    def is_dirty(self, name: str) -> bool:
        """Tell whether a write of the table was begun and not finished."""
        return is_dirty(self.directory, name)

    def marked(self, name: str) -> AbstractContextManager[None]:
        """Mark a table while it is written."""
        return marked(self.directory, name)

    def require_reachable(self) -> None:
        """Do nothing: a directory answers."""

    def guarded(self) -> AbstractContextManager[None]:
        """Do nothing: errors of a directory are told as they are."""
        return nullcontext()

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}{TABLE_SUFFIX}"


def table_home(directory: Path, uri: str = "") -> TableHome:
    """Return where a store's tables lie.

    Args:
        directory: The store's own LanceDB directory.
        uri: The setting tiers.uri, `s3://bucket/prefix`; empty: the directory.
    """
    if not uri:
        return LocalTables(directory)
    from noctuary.vectors.object_tables import ObjectTables

    return ObjectTables(uri)


def as_home(where: Path | TableHome) -> TableHome:
    """Return a home as it is, and a directory as one."""
    return LocalTables(where) if isinstance(where, Path) else where


def connect(place: Path | str, options: Mapping[str, str] | None = None) -> Any:
    """Return the LanceDB connection of a directory or URI; lancedb is imported here.

    Args:
        place: Where the tables lie.
        options: Storage options of an object store.
    """
    # LanceDB reads its log level once, when imported; its Rust warnings do not belong on stderr.
    unset = "LANCEDB_LOG" not in os.environ
    os.environ.setdefault("LANCEDB_LOG", "error")
    try:
        import lancedb
    finally:
        if unset:
            del os.environ["LANCEDB_LOG"]
    if options is None:
        return lancedb.connect(str(place))
    return lancedb.connect(str(place), storage_options=dict(options))


def list_tables(lance_dir: Path, prefix: str) -> list[str]:
    """Return the names of the tables on disk that start with a prefix, sorted."""
    return sorted(path.stem for path in lance_dir.glob(f"{prefix}*{TABLE_SUFFIX}"))
