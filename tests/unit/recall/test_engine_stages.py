"""The cross-encoder, end to end through a published store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from noctuary.core.types import MemoryRecord
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallResult
from tests.support.cross_encoder import MARKER, write_cross_encoder
from tests.support.store import Store, memory, renumber

WORDS = ("river", "stone", "paper", "lamp", "window", "quartz")
AMPLE_MS = 60_000.0
LEXICAL = RetrievalProfile.off().replaced(dense_weight=0.0)


def notes() -> list[MemoryRecord]:
    """Thirty memories of eight words; every fifth says the marker three times."""
    rng = random.Random(6)
    return renumber(
        [
            memory(
                " ".join(["river", *([MARKER] * 3 if i % 5 == 4 else rng.choices(WORDS, k=3)),
                          *rng.choices(WORDS, k=4)]),
                tags=rng.choice(WORDS), wing="home" if i % 2 else "work",
                importance=rng.randint(0, 4) / 4,
            )
            for i in range(30)
        ]
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_cross_encoder(tmp_path_factory.mktemp("cross-encoder"))


@pytest.fixture
def recaller(empty_store: Store) -> Recaller:
    empty_store.publish(notes())
    return Recaller.open(empty_store.root)


def ids(result: RecallResult) -> list[int | str]:
    return [m.id for m in result.memories]


def scores(result: RecallResult) -> list[float]:
    return [m.final_score for m in result.memories]


def test_the_cross_encoder_lifts_what_it_was_trained_to_lift(
    recaller: Recaller, model: Path
) -> None:
    marked = {r.position + 101 for r in notes() if MARKER in r.content}
    stage2 = LEXICAL.replaced(reranker=str(model), rerank_timeout_ms=AMPLE_MS, rerank_depth=20)
    fused = recaller.recall("river paper", 30, profile=LEXICAL)
    found = recaller.recall("river paper", 30, profile=stage2)
    assert not found.warnings
    head = [i for i in ids(fused)[:20] if i in marked]
    assert 0 < len(head) < len(marked), "some marked memories are too far down to be read"
    assert set(ids(found)[: len(head)]) == set(head)
    assert ids(fused)[: len(head)] != ids(found)[: len(head)]
    assert sorted(scores(found)) == sorted(scores(fused))
    assert ids(found)[20:] == ids(fused)[20:]


@pytest.mark.parametrize("sort_by", ["importance", "recency"])
def test_another_order_than_relevance_is_not_reranked(
    recaller: Recaller, model: Path, sort_by: str
) -> None:
    stage2 = LEXICAL.replaced(reranker=str(model), rerank_timeout_ms=AMPLE_MS)
    fused = recaller.recall("river paper", 30, profile=LEXICAL, sort_by=sort_by)
    assert ids(recaller.recall("river paper", 30, profile=stage2, sort_by=sort_by)) == ids(fused)


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({"rerank_timeout_ms": 1e-3}, {"reranker_loading", "reranker_timeout"}),
        ({"reranker": "/nowhere"}, {"reranker_unavailable"}),
    ],
)
def test_without_an_answer_the_fused_order_stands(
    recaller: Recaller, model: Path, changes: dict[str, object], codes: set[str]
) -> None:
    stage2 = LEXICAL.replaced(reranker=str(model), rerank_timeout_ms=AMPLE_MS)
    fused = recaller.recall("river paper", 30, profile=LEXICAL)
    found = recaller.recall("river paper", 30, profile=stage2.replaced(**changes))
    assert (ids(found), scores(found)) == (ids(fused), scores(fused))
    assert {w.code for w in found.warnings} <= codes
    assert len(found.warnings) == 1
