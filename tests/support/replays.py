"""Recalls that are kept for a replay, made as the library makes them."""

from __future__ import annotations

import time
from typing import Any

from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Query, Scope
from noctuary.recall.replay import list_packets, recall_and_log
from noctuary.recall.result import RecallResult
from noctuary.usage.query_log import append_query
from tests.support.store import Store, household, renumber
from tests.support.usage import count_retrievals

KEPT = RetrievalProfile(replay_log=True)
EVERYTHING = RetrievalProfile(
    replay_log=True, time_decay_enabled=True, association_enabled=True, mmr_enabled=True,
    pinned_memory_enabled=True, query_expansion_enabled=True, supersede_filter_enabled=True,
    consolidation_enabled=True,
)  # fmt: skip


def keep(store: Store, query: str, k: int = 5, **changes: Any) -> RecallResult:
    """Recall and keep it, by default with KEPT."""
    recaller = Recaller.open(store.root)
    asked: dict[str, Any] = {"profile": KEPT, **changes}
    return log_recall(recaller, query, k, log_path=store.paths.replays, **asked)


def log_recall(
    recaller: Recaller,
    text: str,
    k: int,
    *,
    profile: RetrievalProfile,
    profile_used: str = "p",
    scope: Scope | None = None,
    sort_by: str = "relevance",
    session_id: str | None = None,
    dry_run: bool = False,
    **how: Any,
) -> RecallResult:
    """Recall by a profile that says `replay_log`."""
    query = Query(text, k, profile, profile_used, scope or Scope(), sort_by, session_id, dry_run)
    return recall_and_log(recaller, query, **{"log_path": None, **how})


def forget_users(store: Store) -> None:
    """Publish the household as one that has no named users: then all use counts for all."""
    store.publish(renumber([record._replace(user=None) for record in household()]))


def last_packet(store: Store) -> dict[str, Any]:
    """Return the packet that was kept last."""
    return list_packets(store.paths.replays, 1).packets[-1]


def use(store: Store, query: str = "flight to Lisbon") -> None:
    """Let the store know of some use: retrievals, pairs, and a query with what it found."""
    count_retrievals(store, [["101", "104"], ["101", "103"], ["104", "103"], ["101"]])
    assert store.encoder is not None
    for user in (None, "ana"):
        fault = append_query(
            store.paths.queries,
            text=query,
            vector=store.encoder.encode_query(query),
            memory_ids=["109", "103"],
            encoder_digest=store.encoder.fingerprint.digest,
            asked_us=time.time_ns() // 1000,
            user=user,
        )
        assert fault is None
