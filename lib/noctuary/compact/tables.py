"""Summaries and rejected candidates as Parquet."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noctuary.compact.clusters import ROW_GROUP_ROWS, iter_rows, quantiles
from noctuary.compact.summaries import (
    ArrowSchema,
    BatchResult,
    attempt_of,
    attempt_row,
    attempt_schema,
    summary_of,
    summary_row,
    summary_schema,
)
from noctuary.compact.summarizers import Attempt, Summary
from noctuary.core.files import replacement

if TYPE_CHECKING:
    import polars as pl


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
    def open(summaries: Path, attempts: Path | None) -> Generator[SummaryWriter]:
        """Open both tables for writing.

        Args:
            summaries: Parquet file of the summaries, declined and trivial ones included.
            attempts: Parquet file of the rejected candidates; None writes none.
        """
        with ExitStack() as files, ExitStack() as tables:
            # Tables are closed before either file is put in place: what fails there keeps both.
            rejected = None
            if attempts is not None:
                tmp = files.enter_context(replacement(attempts))
                rejected = _Table(tmp, attempt_schema())
                tables.callback(rejected.close)
            tmp = files.enter_context(replacement(summaries))
            made = _Table(tmp, summary_schema())
            tables.callback(made.close)
            yield SummaryWriter(made, rejected)

    def add(self, batch: BatchResult) -> None:
        """Append what a batch came to."""
        for summary in batch.summaries:
            self._summaries.add(summary_row(summary))
        if self._attempts is not None:
            for attempt in batch.attempts:
                self._attempts.add(attempt_row(attempt))


def write_summaries(path: Path, summaries: Iterable[Summary]) -> None:
    """Replace the summary table alone; rows keep the given order. See `SummaryWriter.open`."""
    with SummaryWriter.open(path, None) as writer:
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


_DECIMALS = 4


def summary_facts(summaries: Path, attempts: Path) -> dict[str, Any]:
    """Return what the two tables say as a whole: tokens and facts are those of accepted summaries.

    Args:
        summaries: As `SummaryWriter` wrote it.
        attempts: Likewise, of the rejected candidates.
    """
    import polars as pl

    report = pl.col("facts").str
    made = (
        pl.scan_parquet(summaries)
        .select(
            *("status", "method", "fallback", "gate_align", "gate_cover"),
            *("source_tokens", "summary_tokens"),
            turns=pl.col("source_positions").list.len(),
            kept=report.json_path_match("$.kept").cast(pl.Int64),
            total=report.json_path_match("$.total").cast(pl.Int64),
        )
        .collect()
    )
    accepted = made.filter(pl.col("status") == "accepted")
    before, after, kept, total = (
        int(accepted[name].sum()) for name in ("source_tokens", "summary_tokens", "kept", "total")
    )
    outcomes = pl.scan_parquet(attempts).select("outcome").collect()
    return {
        "by_status": _counts(made["status"]),
        "by_method": _counts(accepted["method"]),
        "by_fallback": _counts(made["fallback"].filter(made["fallback"] != "")),
        "attempts_by_outcome": _counts(outcomes["outcome"]),
        "summarised_turns": int(accepted["turns"].sum()),
        "source_tokens": before,
        "summary_tokens": after,
        "tokens_saved_share": round(1.0 - after / before, _DECIMALS) if before else None,
        "q_align": quantiles(made["gate_align"].drop_nulls().to_list()),
        "q_cover": quantiles(made["gate_cover"].drop_nulls().to_list()),
        "facts_kept": kept,
        "facts_total": total,
        "facts_kept_share": round(kept / total, _DECIMALS) if total else None,
    }


def _counts(values: pl.Series) -> dict[str, int]:
    return dict(values.value_counts().sort(values.name).iter_rows())
