"""Stages access_statistics and ltp_scores."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from noctuary.core.files import write_text
from noctuary.night.context import ACCESS, MEMORIES, Night, store_profile
from noctuary.night.corpus import CORPUS
from noctuary.recall.profile import RetrievalProfile
from noctuary.sources.corpus import MemoryPage, count_rows, iter_pages
from noctuary.usage.statistics import (
    RETENTION_DAYS,
    AccessStatistics,
    Fold,
    Mark,
    ScanReport,
    ScoringRules,
    Window,
    count_window,
    fold_access_log_on,
    prune_access_log,
    read_folded,
    refresh_scores,
    write_usage,
)
from noctuary.work.stage import Stage, StageResult

# Stage access_statistics.


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


# Stage ltp_scores: every memory's score by use, scanned in batches.


# Its output is the store's usage.sqlite, outside the work directory.
LTP_SCORES = Stage("ltp_scores", "1")


def score_memories(night: Night) -> StageResult:
    """Scan the corpus and write what differs; every night, because windows and decay move on."""
    profile = store_profile(night)
    rules = scoring_rules(profile)
    inputs = {
        "corpus": night.result_of(CORPUS).digest,
        "usage": night.result_of(ACCESS_STATISTICS).facts["usage_digest"],
        "rules": rules.to_json(),
        "paginated_scoring": profile.paginated_scoring,
    }
    reports: list[ScanReport] = []

    def body() -> tuple[int, dict[str, Any]]:
        report = _scan(night, rules, paginated=profile.paginated_scoring)
        reports.append(report)
        return report.total, {
            "memories": report.total,
            "memories_in_use": report.in_use,
            "not_scanned": report.not_scanned,
        }

    result = night.run(LTP_SCORES, inputs, body, always=True, places=[night.paths.usage])
    notes = _notes(reports[0])
    # What is written is in no output file that the stage could compare.
    unchanged = result.reused and notes["ltp_updated"] == 0
    return night.finish(replace(result, reused=unchanged).with_notes(**notes))


def scoring_rules(profile: RetrievalProfile) -> ScoringRules:
    """Return what a profile says about scoring."""
    return ScoringRules(
        batch_size=profile.batch_size,
        max_scan_depth=profile.max_scan_depth,
        max_boost=profile.ltp_max_boost,
        decay_lambda=profile.decay_lambda if profile.decay_enabled else 0.0,
    )


def _scan(night: Night, rules: ScoringRules, *, paginated: bool) -> ScanReport:
    """Scan in batches; with paginated_scoring off as a single one."""
    memories = night.work(MEMORIES)
    total = count_rows(memories)
    size = rules.batch_size if paginated else max(total, 1)

    def read(first: int, stop: int) -> Iterator[MemoryPage]:
        return iter_pages(memories, size, first=first, stop=stop)

    as_of_us = time.time_ns() // 1000
    return refresh_scores(night.paths.usage, total, read, rules, as_of_us=as_of_us)


def _notes(report: ScanReport) -> dict[str, Any]:
    updated = sum(report.updated)
    return {
        "ltp_updated": updated,
        "ltp_skipped_unchanged": report.scanned - updated,
        "warning": report.warning,
        "hook_faults": "; ".join(report.hook_faults) or None,
        "paginated_scoring": report.timings.report(),
        "pagination_state": report.pagination_state(),
        "batches": {"batches": report.batches()},
    }
