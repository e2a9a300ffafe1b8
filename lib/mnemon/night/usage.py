"""Stage access_statistics."""

from __future__ import annotations

import json
from typing import Any

from mnemon.corpus.export import read_records
from mnemon.files import write_text
from mnemon.night.context import ACCESS, MEMORIES, Night
from mnemon.night.corpus import CORPUS
from mnemon.usage.statistics import fold_access_log
from mnemon.work.stage import Stage, StageResult

ACCESS_STATISTICS = Stage("access_statistics", "1", (ACCESS,))


def fold_accesses(night: Night) -> StageResult:
    """Fold the access log to one row per recalled memory."""
    corpus = night.result_of(CORPUS)

    def body() -> tuple[int, dict[str, Any]]:
        ids = [r.memory_id for r in read_records(night.work(MEMORIES))]
        statistics = fold_access_log(night.paths.access_log, ids)
        rows = {m: {"retrievals": n, "last_us": at} for m, (n, at) in statistics.by_memory.items()}
        write_text(night.work(ACCESS), json.dumps(rows, sort_keys=True) + "\n")
        return len(rows), {
            "retrievals": sum(n for n, _ in statistics.by_memory.values()),
            "orphaned_retrievals": statistics.orphaned,
            "fault": statistics.fault,
        }

    # The log is the outside world: it is folded on every night.
    return night.finish(night.run(ACCESS_STATISTICS, {"corpus": corpus.digest}, body, always=True))
