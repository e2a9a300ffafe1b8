"""The last look at an export, remembered for as long as nothing of it or of the rules changes.

What belongs here: when the look must be taken again. What does not: looking
(`noctuary.corpus.table_scan`), the asset's check.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from noctuary.corpus import table_scan
from noctuary.corpus.table_scan import scan_tables
from noctuary.hashing import hash_text
from noctuary.night.context import MEMORIES, Night
from noctuary.text.sensitivity import read_rules
from noctuary.work.settled import hash_settled
from noctuary.work.stage import Stage, run_stage

EXPORT_SCAN = Stage("export_scan", "1")


def scan_export(night: Night) -> dict[str, Any]:
    """Return what `scan_tables` says of tonight's export, see `TableScan.to_json`.

    Raises:
        OSError: A table cannot be read.
    """
    directory = night.work(MEMORIES).parent
    tables = {path.name: hash_settled(path) for path in sorted(directory.glob("*.parquet"))}

    def body() -> tuple[int, dict[str, Any]]:
        scan = scan_tables(directory)
        return scan.texts, scan.to_json()

    inputs = {"tables": tables, "rules": rules_digest()}
    return run_stage(night.paths.work, EXPORT_SCAN, inputs, body).facts


def rules_digest() -> str:
    """Return the digest of the modules that choose texts and judge them.

    Of their very lines: a version that somebody has to raise would let a new rule wait until the
    export changes.
    """
    return hash_text(Path(table_scan.__file__).read_text("utf-8"), *read_rules())
