"""Stage access_statistics."""

from __future__ import annotations

import json
import time
from typing import Any

from mnemon.corpus.export import read_records
from mnemon.files import write_text
from mnemon.night.context import ACCESS, MEMORIES, Night
from mnemon.night.corpus import CORPUS
from mnemon.usage.folding import Mark, read_folded
from mnemon.usage.retention import prune_access_log
from mnemon.usage.statistics import AccessStatistics, fold_access_log_on
from mnemon.work.stage import Stage, StageResult

# The sums that the next night goes on from. Not an output: losing it costs a full fold of what the
# log still holds, nothing else.
FOLDED = "usage/folded.json"

ACCESS_STATISTICS = Stage("access_statistics", "2", (ACCESS,))


def fold_accesses(night: Night) -> StageResult:
    """Fold what recall appended since last night to one row per recalled memory."""
    corpus = night.result_of(CORPUS)
    tonight: dict[str, Any] = {}

    def body() -> tuple[int, dict[str, Any]]:
        ids = [r.memory_id for r in read_records(night.work(MEMORIES))]
        fold = fold_access_log_on(read_folded(night.work(FOLDED)), night.paths.access_log, ids)
        # The sums with their mark first, in one file: killed anywhere, no row counts twice, and
        # none is deleted that is not counted.
        write_text(night.work(FOLDED), fold.folded.to_json())
        _write_rows(night, fold.statistics)
        pruned, fault = _prune(night, fold.folded.mark, fold.statistics.fault)
        tonight.update(rows_folded=fold.rows, rows_pruned=pruned)
        return len(fold.statistics.by_memory), {
            "retrievals": sum(n for n, _ in fold.statistics.by_memory.values()),
            "orphaned_retrievals": fold.statistics.orphaned,
            "fault": fault,
        }

    # The log is the outside world: it is folded on every night.
    result = night.run(ACCESS_STATISTICS, {"corpus": corpus.digest}, body, always=True)
    return night.finish(result.with_notes(**tonight))


def _write_rows(night: Night, statistics: AccessStatistics) -> None:
    rows = {
        m: {"retrievals": n, "last_accessed_us": at} for m, (n, at) in statistics.by_memory.items()
    }
    write_text(night.work(ACCESS), json.dumps(rows, sort_keys=True) + "\n")


def _prune(night: Night, folded: Mark, fault: str | None) -> tuple[int, str | None]:
    """Delete what is old and folded; a log that could not be read is left alone."""
    if fault is not None:
        return 0, fault
    now_us = time.time_ns() // 1000
    return prune_access_log(night.paths.access_log, folded=folded, now_us=now_us)
