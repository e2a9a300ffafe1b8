"""What changed between two exports, by id and content hash: the numbers of the nightly message."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from noctuary.corpus.engine import open_duckdb
from noctuary.corpus.tables import MEMORIES_FILE
from noctuary.errors import StoreError

_COMPARE = """
    SELECT count(*) FILTER (WHERE old.memory_id IS NULL),
           count(*) FILTER (WHERE old.content_hash <> new.content_hash),
           count(*) FILTER (WHERE new.memory_id IS NULL),
           count(*) FILTER (WHERE old.content_hash = new.content_hash)
    FROM (SELECT memory_id, content_hash FROM read_parquet(?)) AS old
    FULL OUTER JOIN (SELECT memory_id, content_hash FROM read_parquet(?)) AS new
      ON old.memory_id = new.memory_id
"""


@dataclass(frozen=True, slots=True)
class CorpusDiff:
    """Counts of memories by what became of them.

    Attributes:
        added: In the new export only.
        edited: In both, with different fields.
        deleted: In the old export only (deleted, quarantined or sensitive by now).
        unchanged: In both, with equal fields.
    """

    added: int
    edited: int
    deleted: int
    unchanged: int

    @property
    def is_empty(self) -> bool:
        """Tell whether the two exports hold the same memories."""
        return not (self.added or self.edited or self.deleted)


def diff_corpora(previous: Path | None, current: Path) -> CorpusDiff:
    """Compare two exports.

    Args:
        previous: memories.parquet of the earlier export or its directory; None for the first night.
        current: The same of the later one.

    Raises:
        StoreError: One of the files is not there.
    """
    new = _memories_file(current)
    if previous is None:
        import pyarrow.parquet as pq

        return CorpusDiff(pq.read_metadata(new).num_rows, 0, 0, 0)
    old = _memories_file(previous)
    with tempfile.TemporaryDirectory() as spill, open_duckdb(Path(spill)) as db:
        row = db.execute(_COMPARE, [str(old), str(new)]).fetchone()
    assert row is not None  # an aggregate always gives one row
    return CorpusDiff(*(int(value) for value in row))


def _memories_file(path: Path) -> Path:
    file = path / MEMORIES_FILE if path.is_dir() else path
    if not file.is_file():
        raise StoreError(f"There is no corpus at {file}: run the export first.")
    return file
