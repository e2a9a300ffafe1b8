"""Stage access_statistics."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection
from typing import Any

from noctuary.corpus.pages import iter_pages
from noctuary.files import write_text
from noctuary.night.context import ACCESS, MEMORIES, Night
from noctuary.night.corpus import CORPUS
from noctuary.night.profile import store_profile
from noctuary.usage.folding import Mark, read_folded
from noctuary.usage.retention import RETENTION_DAYS, prune_access_log
from noctuary.usage.statistics import AccessStatistics, Fold, fold_access_log_on
from noctuary.usage.window import Window, count_window
from noctuary.usage.writing import write_usage
from noctuary.work.stage import Stage, StageResult

# The sums that the next night goes on from. Not an output: losing it costs a full fold of what the
# log still holds, nothing else.
FOLDED = "usage/folded.json"

ACCESS_STATISTICS = Stage("access_statistics", "3", (ACCESS,))

_DAY_US = 86_400_000_000

_IDS_AT_ONCE = 50_000
"""Ids read at once; only their set is kept."""


def fold_accesses(night: Night) -> StageResult:
    """Fold what recall appended since last night, and count what recall may know about use."""
    corpus = night.result_of(CORPUS)
    tonight: dict[str, Any] = {}

    def body() -> tuple[int, dict[str, Any]]:
        ids = {m for p in iter_pages(night.work(MEMORIES), _IDS_AT_ONCE) for m in p.memory_ids}
        fold = fold_access_log_on(read_folded(night.work(FOLDED)), night.paths.access_log, ids)
        # The sums with their mark first, in one file: killed anywhere, no row counts twice, and
        # none is deleted that is not counted.
        write_text(night.work(FOLDED), fold.folded.to_json())
        _write_rows(night, fold.statistics)
        usage = _count_use(night, fold, ids)
        pruned, fault = _prune(night, fold.folded.mark, fold.statistics.fault)
        tonight.update(rows_folded=fold.rows, rows_pruned=pruned)
        return len(fold.statistics.by_memory), {
            "retrievals": sum(n for n, _ in fold.statistics.by_memory.values()),
            "orphaned_retrievals": fold.statistics.orphaned,
            "fault": fault,
            **usage,
        }

    # The log is the outside world: it is folded on every night.
    result = night.run(
        ACCESS_STATISTICS,
        {"corpus": corpus.digest},
        body,
        always=True,
        places=[night.paths.usage],
    )
    return night.finish(result.with_notes(**tonight))


def _write_rows(night: Night, statistics: AccessStatistics) -> None:
    rows = {
        m: {"retrievals": n, "last_accessed_us": at} for m, (n, at) in statistics.by_memory.items()
    }
    write_text(night.work(ACCESS), json.dumps(rows, sort_keys=True) + "\n")


def _count_use(night: Night, fold: Fold, known: Collection[str]) -> dict[str, Any]:
    """Write usage.sqlite; without a readable log it holds the sums alone."""
    as_of_us = time.time_ns() // 1000
    # Beyond the retention there are no single rows to count.
    window_days = min(store_profile(night).ltp_window_days, RETENTION_DAYS)
    window = Window()
    if fold.statistics.fault is None:
        try:
            window = count_window(
                night.paths.access_log,
                fold.folded.mark,
                known,
                recent_since_us=as_of_us - window_days * _DAY_US,
                pairs_since_us=as_of_us - RETENTION_DAYS * _DAY_US,
            )
        except sqlite3.Error:
            # Removed or replaced since it was folded: the next night counts the new one.
            window = Window()
    digest = write_usage(
        night.paths.usage,
        fold.folded,
        window,
        known,
        window_days=window_days,
        as_of_us=as_of_us,
    )
    return {
        "usage_digest": digest,
        "window_days": window_days,
        "recalled_in_window": len(window.recent),
        "co_retrieved_pairs": len(window.pairs),
        "co_retrieved_pairs_left_out": window.pairs_left_out,
    }


def _prune(night: Night, folded: Mark, fault: str | None) -> tuple[int, str | None]:
    """Delete what is old and folded; a log that could not be read is left alone."""
    if fault is not None:
        return 0, fault
    now_us = time.time_ns() // 1000
    return prune_access_log(night.paths.access_log, folded=folded, now_us=now_us)
