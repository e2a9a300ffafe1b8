"""Where LanceDB tables lie: this machine's disk, or an object store."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noctuary.core.errors import StoreError
from noctuary.core.files import fsync_dir, remove_tree, write_text
from noctuary.core.types import dataclass


class TablesUnreachableError(StoreError):
    """The object store of the tables does not answer, or refuses."""


@dataclass(frozen=True, slots=True)
class TableHome:
    """A place that holds LanceDB tables, each with a mark beside it while it is written.

    A mark that is left behind says that its table cannot be trusted. LanceDB itself reaches an
    object store, with what the AWS_* variables say.
    """

    directory: Path  # of the marks, and of the tables where there is no URI; made by the first one
    remote: str = ""  # tiers.uri, `s3://bucket/prefix`; the prefix is the tables' alone

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
            return sorted(path.stem for path in self.directory.glob(f"{prefix}*.lance"))
        return sorted(n for n in self.connect().list_tables().tables if n.startswith(prefix))

    def has_table(self, name: str) -> bool:
        """Tell whether anything of a table is there, readable or not."""
        return name in self.list_tables(name)

    def remove_table(self, name: str, *, mark: bool = True) -> None:
        """Remove a table and, unless told not to, its mark; nothing where both are absent."""
        if self.remote:
            self.connect().drop_table(name, ignore_missing=True)
        else:
            remove_tree(self.directory / f"{name}.lance")
        if mark:
            remove_tree(self.mark_path(name))

    def remove_all(self) -> None:
        """Remove every table and mark."""
        if self.remote:
            with self.guarded():
                self.connect().drop_all_tables()
        remove_tree(self.directory)

    def mark_path(self, name: str) -> Path:
        """Return where a table's mark lies."""
        return self.directory / f"{name}.dirty"

    def is_dirty(self, name: str) -> bool:
        """Tell whether a write of the table was begun and not finished."""
        return self.mark_path(name).exists()

    @contextmanager
    def marked(self, name: str) -> Generator[None]:
        """Mark a table while it is written; the mark stays where that fails or is killed."""
        text = "being written; whoever finds this later writes the table again\n"
        write_text(self.mark_path(name), text)
        yield
        self.mark_path(name).unlink()
        fsync_dir(self.directory)

    def require_reachable(self) -> None:
        """Raise TablesUnreachableError where bucket, network or credentials fail; no path does."""
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
        """Raise TablesUnreachableError if something fails inside and the place does not answer now.

        Other errors pass as they are.
        """
        try:
            yield
        except (RuntimeError, OSError, ValueError):
            self.require_reachable()
            raise


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
