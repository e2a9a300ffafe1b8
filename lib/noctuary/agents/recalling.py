"""A recall that ends in time: from the store's warm server, else in this process.

What belongs here: the deadline of a hook's recall. What does not: the recall itself, and what is
done with its answer (`handling`).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from noctuary.agents.world import Failure

COLD_GRACE_S = 1.5
"""How long after the deadline a cold process may still bring the lexical answer: it has to import
numpy and open the snapshot first. Longer keeps a prompt waiting, shorter leaves slow machines
without memories."""

_ENOUGH_S = 0.005
"""Time that is left at least when a server is asked: an answer takes a millisecond or two."""

TOO_SLOW = Failure("timeout", "there was no answer in time; `noctuary serve` keeps a store warm")


def recall_in_time(
    query: str, asked: Mapping[str, Any], *, store: str | None, until_s: float
) -> tuple[Mapping[str, Any] | Failure, bool]:
    """Return the answer to a query and whether a server gave it.

    Args:
        query: What is asked.
        asked: k, user, wing and session_id, as `noctuary.recall` takes them.
        store: Of which store; None means the configured or only one.
        until_s: The deadline, of `time.monotonic`. At it the answer is what there is: lexical, if
            the vectors have not been looked at. `COLD_GRACE_S` later it is a failure.
    """
    left_s = until_s - time.monotonic()
    if left_s > _ENOUGH_S:
        from noctuary.serve.client import ask

        answer = ask(query, **asked, store=store, deadline_ms=left_s * 1000)
        if answer is not None:
            return answer, True

    def recall_here() -> Mapping[str, Any]:
        from noctuary.recall.api import recall

        left_ms = max(0.0, (until_s - time.monotonic()) * 1000)
        return recall(query, **asked, store=store, deadline_ms=left_ms).to_json()

    return _in_time(recall_here, until_s + COLD_GRACE_S), False


def fetch_in_time(
    memory_ids: Sequence[str], user: str | None, *, store: str | None, until_s: float
) -> Mapping[str, Any] | Failure:
    """Return memories by id in the shape of an answer: store and memories.

    Args:
        memory_ids: As text.
        user: Whose recall it is.
        store: Of which store.
        until_s: The deadline, of `time.monotonic`; `COLD_GRACE_S` later it is a failure.
    """

    def fetch_here() -> Mapping[str, Any] | Failure:
        from noctuary.agents.fetching import fetch_memories
        from noctuary.errors import SnapshotMissingError, StoreError
        from noctuary.recall.serving import find_serving

        try:
            recaller = find_serving(store)[0].recaller
        except (StoreError, OSError, ValueError) as error:
            is_missing = isinstance(error, SnapshotMissingError)
            return Failure("no_snapshot" if is_missing else "store_unreadable", str(error))
        try:
            memories = fetch_memories(recaller.reader, memory_ids, user)
        except Exception as error:
            # Damage below the reach of the quick check raises whatever the step that meets it does.
            return Failure("snapshot_damaged", f"{type(error).__name__} in {recaller.snapshot_id}")
        return {"store": str(recaller.paths.root), "memories": memories, "warnings": []}

    return _in_time(fetch_here, until_s + COLD_GRACE_S)


def _in_time(
    work: Callable[[], Mapping[str, Any] | Failure], until_s: float
) -> Mapping[str, Any] | Failure:
    """Return what some work gives, or a failure where it takes too long: it is left behind then.

    The process ends without waiting for it (`process`), so nothing it holds outlives the hook.
    """
    # One query is too little work for numpy's threads to share: docs/decisions/0007.
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    found: list[Mapping[str, Any] | Failure] = []

    def run() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(Failure("internal", f"{type(error).__name__}: {error}"))

    worker = threading.Thread(target=run, name="noctuary-hook-recall", daemon=True)
    worker.start()
    worker.join(max(0.0, until_s - time.monotonic()))
    return found[0] if found else TOO_SLOW
