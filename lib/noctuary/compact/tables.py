"""Summaries and rejected candidates as Parquet."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from noctuary.compact.clusters import ROW_GROUP_ROWS, iter_rows, open_table
from noctuary.compact.summaries import (
    NOTHING_KNOWN,
    ArrowSchema,
    BatchResult,
    Known,
    attempt_of,
    attempt_row,
    attempt_schema,
    summary_of,
    summary_row,
    summary_schema,
)
from noctuary.compact.summarizers import Attempt, Summary
from noctuary.core.errors import StoreError
from noctuary.core.files import replacement

_RECIPE_KEY = b"noctuary.recipe"


class _Table:
    """One open file of a `SummaryWriter`: rows are buffered so that batches leave no trace."""

    def __init__(self, path: Path, schema: ArrowSchema) -> None:
        import pyarrow.parquet as pq

        self._schema = schema
        self._rows: list[dict[str, Any]] = []
        self._writer = pq.ParquetWriter(path, schema, compression="zstd")

    def add(self, row: dict[str, Any]) -> None:
        """Append a row."""
        self._rows.append(row)
        if len(self._rows) == ROW_GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        """Write what is left, and the footer."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        self._writer.write_table(pa.Table.from_pylist(self._rows, schema=self._schema))
        self._rows.clear()


class SummaryWriter:
    """Takes batches and puts both tables in place when the `with` block ends well.

    One row group of each is in memory. After an exception both old tables stay.
    """

    def __init__(self, summaries: _Table, attempts: _Table | None) -> None:
        self._summaries = summaries
        self._attempts = attempts

    @staticmethod
    @contextmanager
    def open(
        summaries: Path, attempts: Path | None, *, recipe: str = ""
    ) -> Generator[SummaryWriter]:
        """Open both tables for writing.

        Args:
            summaries: Parquet file of the summaries, declined and trivial ones included.
            attempts: Parquet file of the rejected candidates; None writes none.
            recipe: The `recipe_digest` they are made with; decides whether `read_known` offers them
                again.
        """
        with ExitStack() as files, ExitStack() as tables:
            # Tables are closed before either file is put in place: what fails there keeps both.
            rejected = None
            if attempts is not None:
                tmp = files.enter_context(replacement(attempts))
                rejected = _Table(tmp, _with_recipe(attempt_schema(), recipe))
                tables.callback(rejected.close)
            tmp = files.enter_context(replacement(summaries))
            made = _Table(tmp, _with_recipe(summary_schema(), recipe))
            tables.callback(made.close)
            yield SummaryWriter(made, rejected)

    def add(self, batch: BatchResult) -> None:
        """Append what a batch came to."""
        for summary in batch.summaries:
            self._summaries.add(summary_row(summary))
        if self._attempts is not None:
            for attempt in batch.attempts:
                self._attempts.add(attempt_row(attempt))


def write_summaries(path: Path, summaries: Iterable[Summary], *, recipe: str = "") -> None:
    """Replace the summary table alone; rows keep the given order. See `SummaryWriter.open`."""
    with SummaryWriter.open(path, None, recipe=recipe) as writer:
        for summary in summaries:
            writer.add(BatchResult([summary], [], 0))


def read_summaries(path: Path) -> list[Summary]:
    """Return the whole summary table.

    Raises:
        StoreError: The file is missing or is no summary table.
    """
    return list(iter_summaries(path))


def iter_summaries(path: Path) -> Iterator[Summary]:
    """Yield the summaries of a table in its order; one row group is in memory at a time.

    Raises:
        StoreError: The file is missing or is no summary table.
    """
    return map(summary_of, iter_rows(path, summary_schema()))


def read_attempts(path: Path) -> list[Attempt]:
    """Return every rejected candidate.

    Raises:
        StoreError: The file is missing or is no table of attempts.
    """
    return [attempt_of(row) for row in iter_rows(path, attempt_schema())]


def read_known(summaries: Path, attempts: Path, recipe: str) -> Known:
    """Return what may be used again: all of it, or nothing.

    A missing or damaged file, or one made with another recipe, costs only the work of making its
    rows again.
    """
    try:
        if _recipe_of(summaries) != recipe or _recipe_of(attempts) != recipe:
            return NOTHING_KNOWN
        rejected: dict[str, tuple[Attempt, ...]] = {}
        for attempt in read_attempts(attempts):
            rejected[attempt.cluster_id] = (*rejected.get(attempt.cluster_id, ()), attempt)
        made = {s.cluster_id: s for s in iter_summaries(summaries)}
    except (StoreError, ValueError):
        return NOTHING_KNOWN
    # A text that is not the configured summarizer's has a rejected candidate before it.
    whole = {k: s for k, s in made.items() if not s.fallback or k in rejected}
    return Known(whole, {k: a for k, a in rejected.items() if k in whole})


def _with_recipe(schema: ArrowSchema, recipe: str) -> ArrowSchema:
    return schema.with_metadata({_RECIPE_KEY: recipe.encode()})


def _recipe_of(path: Path) -> str:
    with open_table(path) as file:
        return (file.schema_arrow.metadata or {}).get(_RECIPE_KEY, b"").decode()
