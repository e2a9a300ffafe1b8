"""Reading the replica of a store as the store itself is read.

What belongs here: kept lines to raw rows, and what is still asked of the store (what it is, its
links, concepts and shares). What does not: bringing the replica up to date
(`noctuary.capture.capturing`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from noctuary.capture.capturing import CaptureReport, FollowedSource, capture
from noctuary.capture.replica_file import explain, read_lines
from noctuary.capture.stored_row import decode_row
from noctuary.corpus.evidence import (
    HasEvidence,
    KnownConcept,
    KnownEdge,
    KnownMention,
    MemoryLink,
    Share,
)
from noctuary.corpus.source import (
    DEFAULT_BATCH_ROWS,
    Closing,
    RawRow,
    Source,
    SourceIdentity,
    batch_rows,
)
from noctuary.errors import StoreError
from noctuary.progress import SILENT, Progress
from noctuary.settings import CaptureSettings


def open_captured(
    source: FollowedSource,
    path: Path,
    settings: CaptureSettings | None = None,
    *,
    user: str = "",
    progress: Progress = SILENT,
) -> ReplicaSource:
    """Bring the replica of a store up to date and open it in the store's place.

    Args:
        source: The store; closed with what is returned, and on failure.
        path: `StorePaths.replica`; the caller holds the store's lock.
        settings: See `noctuary.capture.capturing.capture`.
        user: See there.
        progress: See there.

    Raises:
        SourceError: As `noctuary.capture.capturing.capture`.
        StoreError: Likewise.
    """
    try:
        report = capture(source, path, settings, user=user, progress=progress)
        return ReplicaSource(path, source, report)
    except BaseException:
        source.close()
        raise


class ReplicaSource(Closing):
    """A store whose rows come from its replica; see `noctuary.corpus.source.Source`.

    Sensitive rows are counted under the reason for which their text is not here. Links, concepts
    and shares are asked of the store, in the state that was captured; a store without any has none.

    Attributes:
        report: What the capture before did.
    """

    def __init__(self, path: Path, live: Source, report: CaptureReport) -> None:
        """Open a replica that was just brought to the state of an open source.

        Args:
            path: The file.
            live: The store, closed with this.
            report: What bringing it there took.

        Raises:
            StoreError: The file cannot be read.
        """
        self.report = report
        self._path = path.absolute()
        self._live = live
        try:
            self._db = _pin(self._path)
        except sqlite3.Error as error:
            raise explain(path, error) from None

    def identity(self) -> SourceIdentity:
        """Return what the store is and which state of it was captured."""
        return self._live.identity()

    def count(self) -> int:
        """Return the number of rows."""
        return self.report.rows

    def batches(self, size: int = DEFAULT_BATCH_ROWS) -> Iterator[Sequence[RawRow]]:
        """Yield the rows by ascending id; a batch is cut short when its texts reach the bound."""
        yield from batch_rows(self._rows(), size)

    def close(self) -> None:
        """Close the file and the store."""
        try:
            self._db.close()
        finally:
            self._live.close()

    def links(self) -> Iterator[MemoryLink]:
        """Yield the store's links between memories."""
        if isinstance(self._live, HasEvidence):
            yield from self._live.links()

    def concepts(self) -> Iterator[KnownConcept]:
        """Yield the store's concepts."""
        if isinstance(self._live, HasEvidence):
            yield from self._live.concepts()

    def mentions(self) -> Iterator[KnownMention]:
        """Yield which memory the store says is about which concept."""
        if isinstance(self._live, HasEvidence):
            yield from self._live.mentions()

    def edges(self) -> Iterator[KnownEdge]:
        """Yield the store's relations between concepts."""
        if isinstance(self._live, HasEvidence):
            yield from self._live.edges()

    def shares(self) -> Iterator[Share]:
        """Yield who else may read which memory."""
        if isinstance(self._live, HasEvidence):
            yield from self._live.shares()

    def _rows(self) -> Iterator[RawRow]:
        try:
            for key, line in read_lines(self._db):
                yield decode_row(key, line)
        except sqlite3.Error as error:
            raise explain(self._path, error) from None
        except (ValueError, TypeError, KeyError):
            # Its text may quote the line.
            raise StoreError(
                f"{self._path} holds a line that is no row. Remove the file: it only holds what "
                f"the source holds, and the next night reads that as a whole."
            ) from None


def _pin(path: Path) -> sqlite3.Connection:
    """Open the file and take its read snapshot at once."""
    db = sqlite3.connect(
        f"{path.as_uri()}?mode=ro",
        uri=True,
        isolation_level=None,
        # A pipeline may open the source in one thread and read it in another.
        check_same_thread=False,
    )
    try:
        db.execute("PRAGMA temp_store = 2")  # memory: no text of a row in a temporary file
        db.execute("BEGIN DEFERRED")
        db.execute("SELECT count(*) FROM facts").fetchone()  # the first read takes the snapshot
    except BaseException:
        db.close()
        raise
    return db
