"""Use made by the project's own code: retrievals appended as a recall does, counted as a night."""

from __future__ import annotations

import time
from collections.abc import Sequence

from noctuary.core.manifest import read_pointer
from noctuary.core.sqlite import close_logs
from noctuary.recall.reader import SnapshotReader
from noctuary.usage.access_log import append_retrievals
from noctuary.usage.reader import LTP_WINDOW_DAYS
from noctuary.usage.statistics import Folded, count_window, fold_access_log, write_usage
from tests.support.store import DAY_US, Store


def count_retrievals(store: Store, recalls: Sequence[Sequence[str]]) -> None:
    """Append recalls, each with the ids that it returned, and count them into usage.sqlite."""
    snapshot_id = read_pointer(store.paths).snapshot_id
    for memory_ids in recalls:
        fault = append_retrievals(
            store.paths.access_log, snapshot_id=snapshot_id, memory_ids=memory_ids
        )
        assert fault is None
    close_logs()
    reader = SnapshotReader.open(store.snapshot(snapshot_id))
    known = set(reader.memory_ids(range(reader.count)).values())
    reader.close()
    now_us = time.time_ns() // 1000
    fold = fold_access_log(Folded(), store.paths.access_log, known)
    since_us = now_us - LTP_WINDOW_DAYS * DAY_US
    window = count_window(
        store.paths.access_log,
        fold.folded.mark,
        known,
        recent_since_us=since_us,
        pairs_since_us=since_us,
    )
    write_usage(
        store.paths.usage, fold.folded, window, known,
        window_days=LTP_WINDOW_DAYS, as_of_us=now_us,
    )  # fmt: skip
