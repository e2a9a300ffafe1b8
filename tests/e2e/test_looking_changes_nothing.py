"""RFC 914's guarantee: whatever is switched on to look at a recall changes nothing about it."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.types import HOOK_NAMES, register_hook
from noctuary.recall.api import recall
from noctuary.recall.result import RecallResult
from tests.support.lean import write_encoder
from tests.support.store import Store, household, new_store
from tests.support.usage import count_retrievals

QUESTIONS = 200
TEXT = (
    "key door cat kitten feline boiler flight invoice Atlas migration Nina Lisbon morning booked "
    "notebook the a of 鍵 🙂 release doctor money trip 42 Ana Ben"
)
WORDS = TEXT.split()
CHOICES: dict[str, tuple[Any, ...]] = {
    "fusion": ("cc", "rrf"),
    "graph_weight": (0.0, 1.0),
    "scorer": ("fusion", "fusion", "hybrid", "two_pass"),
    "importance_prior": (0.0, 0.3),
    "exact_match_bonus": (0.0, 0.2),
    "ltp_enabled": (True, False),
    "time_decay_enabled": (True, False),
    "tagging_enabled": (True, False),
    "association_enabled": (True, False),
    "mmr_enabled": (True, False),
    "wing_diversity_weight": (0.0, 0.3, 1.0),
    "pinned_memory_enabled": (True, False),
    "query_expansion_enabled": (True, False),
    "supersede_filter_enabled": (True, False),
    "supersede_action": ("filter", "annotate"),
    "consolidation_enabled": (True, False),
    "model_guard": (True, False),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    root = tmp_path_factory.mktemp("looking") / "house"
    store = new_store(root, encoder=write_encoder(root / "encoders"))
    store.publish(household())
    count_retrievals(store, [["101", "103"], ["103", "104"], ["101", "103", "110"]])
    return store


@contextmanager
def watched() -> Generator[list[str]]:
    """Hooks of every kind, each of which writes into what it is told, and one that raises."""
    heard: list[str] = []

    def listen(name: str) -> None:
        def hook(context: dict[str, Any]) -> None:
            heard.append(name)
            context.clear()

        undo.append(register_hook(name, hook))

    def fail(context: dict[str, Any]) -> None:
        raise RuntimeError("a hook of the user's")

    undo: list[Any] = []
    for name in HOOK_NAMES:
        listen(name)
        undo.append(register_hook(name, fail))
    try:
        yield heard
    finally:
        for unregister in undo:
            unregister()


def essence(result: RecallResult) -> list[tuple[Any, ...]]:
    return [
        (m.id, m.final_score, m.relevance, m.lexical, m.dense, m.graph, m.content, m.annotations)
        for m in result.memories
    ]


def test_the_same_memories_order_and_scores_whoever_looks(store: Store, home: Path) -> None:
    chance = random.Random(914)
    heard: set[str] = set()
    answered = 0
    for _ in range(QUESTIONS):
        query = " ".join(chance.choices(WORDS, k=chance.randint(1, 6)))
        flags = {flag: chance.choice(values) for flag, values in CHOICES.items()}
        asked: dict[str, Any] = {
            "k": chance.choice((1, 3, 10, 50)),
            "user": chance.choice((None, "ana", "ben")),
            "sort_by": chance.choice(("relevance", "relevance", "importance", "recency")),
            "store": store.root,
            # A fixed moment: recency would differ between two calls.
            "as_of": chance.choice(
                (datetime(2026, 1, 20, 6, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC))
            ),
            # A written log would be an answer's consequence, not its cause.
            "dry_run": True,
        }
        plain = recall(query, profile=flags, **asked)
        with watched() as calls:
            seen = recall(
                query,
                profile={**flags, "replay_log": True},
                explain=True,
                candidate_trace=True,
                **asked,
            )
        heard.update(calls)
        answered += bool(plain.memories)
        assert essence(plain) == essence(seen), (query, flags, asked)
        codes = {w.code for w in plain.warnings}
        assert {w.code for w in seen.warnings} - {"hook_failed"} == codes
        for memory in seen.memories:
            assert memory.score_breakdown is not None
            total = sum(event["delta"] for event in memory.score_events or ())
            assert total == pytest.approx(memory.final_score, abs=1e-9)
            assert memory.score_breakdown["final_score"] == pytest.approx(total, abs=1e-9)
            assert 0.0 <= memory.final_score <= 1.0
    assert answered > QUESTIONS // 2
    assert heard == {"post_model_guard", "post_cross_wing", "post_score_event"}


def test_a_hook_that_raises_is_reported(store: Store, home: Path) -> None:
    with watched():
        result = recall("key", store=store.root, dry_run=True)
    failed = [w.message for w in result.warnings if w.code == "hook_failed"]
    assert failed
    assert all("RuntimeError: a hook of the user's" in message for message in failed)


def test_nobody_looking_costs_no_explanation(store: Store, home: Path) -> None:
    result = recall("key", store=store.root, dry_run=True)
    assert "score_explainability" not in result.phase_timing_ms
    assert result.candidate_trace is None
    assert result.candidates is None
    assert all(m.score_breakdown is None for m in result.memories)


def test_a_dry_run_explains_every_candidate(store: Store, home: Path) -> None:
    asked: dict[str, Any] = {"store": store.root, "dry_run": True, "explain": True}
    result = recall("door key flight", 2, user="ana", **asked)
    assert result.candidates is not None
    assert len(result.candidates) > len(result.memories) == 2
    assert [row["id"] for row in result.candidates[:2]] == [m.id for m in result.memories]
    assert all("final_score" in row["score_breakdown"] for row in result.candidates)
    logged = recall("door key flight", 2, user="ana", store=store.root, explain=True)
    assert logged.candidates is None
