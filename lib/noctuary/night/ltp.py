"""Stage ltp_scores: every memory's score by use, scanned in batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from noctuary.corpus.pages import MemoryPage, count_memories, iter_pages
from noctuary.night.context import MEMORIES, Night
from noctuary.night.corpus import CORPUS
from noctuary.night.profile import store_profile
from noctuary.night.usage import ACCESS_STATISTICS
from noctuary.recall.profile import RetrievalProfile
from noctuary.usage.scoring import ScanReport, ScoringRules, refresh_scores
from noctuary.work.stage import Stage, StageResult

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
    total = count_memories(memories)
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
