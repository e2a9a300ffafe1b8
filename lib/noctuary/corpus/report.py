"""What an export did, as numbers: the report beside its tables.

What belongs here: the report's fields, its JSON and the check that the tables beside it are the
ones it tells about. It holds counts and reasons, never a text of a row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from noctuary.corpus.source import SourceIdentity
from noctuary.errors import StoreError
from noctuary.files import write_text
from noctuary.foreign_json import parse_json
from noctuary.hashing import hash_file

REPORT_FILE = "report.json"
REPORT_FORMAT = 1

WARN_SOURCE_EMPTY = "source_empty"
WARN_NOTHING_EXPORTED = "nothing_exported"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """The exact account of one export.

    Attributes:
        identity: What was read.
        source_rows: Rows that the source counts; exported + quarantined + sensitive.
        exported: Rows of memories.parquet.
        quarantined: Reason to rows.
        sensitive: Reason to rows; nothing else is known of them.
        warnings: Name to occurrences: what was bent, and oddities of the source as a whole.
        turns: Rows of turns.parquet.
        retracted: Sensitive rows that the export before still held.
        corpus_digest: SHA-256 over the content hashes in position order; equal for equal corpora.
        files: Name of each table to its SHA-256.
    """

    identity: SourceIdentity
    source_rows: int
    exported: int
    quarantined: Mapping[str, int]
    sensitive: Mapping[str, int]
    warnings: Mapping[str, int]
    turns: int
    retracted: int
    corpus_digest: str
    files: Mapping[str, str]

    @property
    def quarantined_rows(self) -> int:
        """Return how many rows were set aside."""
        return sum(self.quarantined.values())

    @property
    def sensitive_rows(self) -> int:
        """Return how many rows stayed in the store because they are sensitive."""
        return sum(self.sensitive.values())


def write_report(report: ExportReport, out_dir: Path) -> None:
    """Write report.json atomically, as the last file of an export."""
    value = {"format": REPORT_FORMAT, **asdict(report)}
    # ASCII: a path may hold bytes that are no text.
    write_text(out_dir / REPORT_FILE, json.dumps(value, indent=2, sort_keys=True) + "\n")


def read_report(out_dir: Path) -> ExportReport:
    """Read the report of an export and check that the tables beside it are whole and its own.

    Raises:
        StoreError: No report, an unknown format, or a table that is missing or of another export.
    """
    value = _load(out_dir / REPORT_FILE)
    identity = cast("dict[str, Any]", value.pop("identity"))
    identity["notes"] = tuple(identity["notes"])
    report = ExportReport(identity=SourceIdentity(**identity), **value)
    for name, digest in report.files.items():
        path = out_dir / name
        if not path.is_file() or hash_file(path) != digest:
            raise StoreError(
                f"{path} is missing or not the one that {REPORT_FILE} beside it tells about: an "
                f"export was interrupted or a file was changed. Run the export again."
            )
    return report


def _load(path: Path) -> dict[str, Any]:
    try:
        value: object = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StoreError(f"There is no export at {path.parent}: run the export first.") from None
    except ValueError:
        raise StoreError(f"{path} is not readable as JSON. Run the export again.") from None
    fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if fields.pop("format", None) != REPORT_FORMAT:
        raise StoreError(
            f"{path} is not an export report of format {REPORT_FORMAT}. Run the export again."
        )
    return fields
