"""The last look at an export: every text of every table of it, by the scan that rows passed.

What belongs here: reading the finished Parquet files back and saying where something reads like a
secret. What does not: judging rows (`noctuary.corpus.sensitive`), the snapshot
(`noctuary.snapshot.checks`). A mark of the owner cannot be seen here: the tables have no column for
it, because a marked row is in none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.text.sensitivity import find_text_sensitivity

_DIGESTS = frozenset({"content_hash"})
"""Columns that noctuary computed of the others: hexadecimal, and a third of the time to scan."""

PLACES_SHOWN = 10
"""Places that a report names; the count is always whole."""


class Finding(NamedTuple):
    """A text that should not be there; no part of it.

    Attributes:
        table: File name without its ending.
        column: The column.
        row: Its number in the file, from 0.
        reason: As `find_text_sensitivity` names it.
    """

    table: str
    column: str
    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class TableScan:
    """What was looked at and what was found.

    Attributes:
        tables: Files.
        texts: Texts in them, each item of a list by itself.
        findings: In the order of files, columns and rows.
    """

    tables: int
    texts: int
    findings: tuple[Finding, ...]

    def to_json(self) -> dict[str, Any]:
        """Return counts, reasons and the first places; no text."""
        reasons = Counter(finding.reason for finding in self.findings)
        places = [f"{f.table}.{f.column} row {f.row}" for f in self.findings[:PLACES_SHOWN]]
        return {
            "tables": self.tables,
            "texts": self.texts,
            "found": len(self.findings),
            "reasons": dict(sorted(reasons.items())),
            "places": ", ".join(places),
        }


def scan_tables(directory: Path) -> TableScan:
    """Scan every text column of every Parquet file of a directory.

    Args:
        directory: That of an export: memories, turns, quarantine, what the store says about them.

    Raises:
        OSError: A file cannot be read.
    """
    import pyarrow.parquet as pq

    files = sorted(path for path in directory.glob("*.parquet") if not path.name.startswith("."))
    texts, findings = 0, list[Finding]()
    for path in files:
        with pq.ParquetFile(path) as opened:
            first = 0
            for group in range(opened.num_row_groups):
                rows = opened.read_row_group(group)
                for name in [n for n in rows.column_names if n not in _DIGESTS]:
                    held, found = _scan_column(rows.column(name))
                    texts += held
                    findings += [Finding(path.stem, name, first + at, why) for at, why in found]
                first += rows.num_rows
    return TableScan(len(files), texts, tuple(findings))


def _scan_column(column: Any) -> tuple[int, list[tuple[int, str]]]:
    """Return how many texts a column holds, and (row, reason) of those that read like secrets."""
    judged: dict[str, str | None] = {}
    held, found = 0, list[tuple[int, str]]()
    for row, text in _texts_of(column):
        held += 1
        # Categories, users and sessions repeat; contents are held by the column anyway.
        if text not in judged:
            judged[text] = find_text_sensitivity(text)
        if (reason := judged[text]) is not None:
            found.append((row, reason))
    return held, found


def _texts_of(column: Any) -> Iterator[tuple[int, str]]:
    import pyarrow.types as kinds

    kind = column.type
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if not (kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_list(kind)):
        return
    for row, value in enumerate(column.to_pylist()):
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, str):
                yield row, item
