"""Nights whose summaries an endpoint writes: down, back again, and never asked twice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from noctuary.compact.summaries import Summary, iter_summaries
from noctuary.core.settings import CompactionSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.embed import documents as embedding
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary_assets.compact import cluster_old_turns, summarize_turn_clusters
from noctuary_assets.index import embed_memories
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import ATTEMPTS, SUMMARIES, Night
from tests.support.summary_server import SummaryServer
from tests.support.turns import word_vectors

DIMENSION = 32
FINGERPRINT = EncoderFingerprint(
    model="words", weights_sha256="0" * 64, dimension=DIMENSION, pooling="mean", normalized=True,
    query_prefix="", document_prefix="", max_tokens=256,
)  # fmt: skip
NOBODY = "http://127.0.0.1:9/v1"


class Words:
    """An encoder of words."""

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        yield list(range(len(texts))), word_vectors(texts, DIMENSION)


@dataclass
class Store:
    """A store of two conversations: one of nobody in particular, one of Ana."""

    root: Path

    def run(
        self, url: str, *, include_named_users: bool = False
    ) -> tuple[dict[str, Summary], dict[str, object]]:
        """Run a night; its summaries by session and the notes and facts of the stage."""
        compaction = CompactionSettings(
            cluster_size=8,
            summarizer="llm",
            llm_url=url,
            llm_model="m",
            include_named_users=include_named_users,
        )
        night = Night(
            StorePaths(self.root / "store"),
            self.root / "memories.jsonl",
            settings=Settings()._replace(compaction=compaction),
        )
        night.encoder.sentence = Words()  # type: ignore[assignment]
        night.encoder.fingerprint = FINGERPRINT
        export_memories(night)
        embed_memories(night)
        cluster_old_turns(night)
        result = summarize_turn_clusters(night)
        found = {s.session_id: s for s in iter_summaries(night.work(SUMMARIES))}
        self.outcomes = pq.read_table(night.work(ATTEMPTS))["outcome"].to_pylist()
        return found, {**result.facts, **result.notes}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    # A machine without ONNX Runtime, where the night's encoder embeds itself.
    monkeypatch.setattr(embedding, "toolchain", lambda: None)
    monkeypatch.setattr("noctuary.work.http.FIRST_WAIT_S", 0.0)
    lines = [
        {
            "id": f"{session}{n}",
            "content": f"Ana: turn {n} of {session} tells of the garden and the rain.",
            "category": "turn",
            "session_id": session,
            "user": user,
            "created_at": f"2026-03-01T10:{n:02d}:00Z",
        }
        for session, user in (("open", None), ("diary", "ana"))
        for n in range(12)
    ]
    (tmp_path / "memories.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Store(tmp_path)


def test_a_night_without_its_endpoint_goes_through_and_the_next_one_asks_again(
    store: Store,
) -> None:
    found, told = store.run(NOBODY)
    assert {s.status for s in found.values()} == {"accepted"}
    assert {s.method for s in found.values()} == {"extractive"}
    assert told["by_fallback"] == {"named_user": 1, "unavailable": 1}
    assert sorted(store.outcomes) == ["named_user", "unavailable"]
    with SummaryServer() as server:
        found, told = store.run(server.url)
        assert found["open"].method == "llm"
        assert told["by_fallback"] == {"named_user": 1}
        asked = len(server.asked)
        assert asked == 1
        again, told = store.run(server.url)
        assert again == found
        assert len(server.asked) == asked
        assert "diary" not in server.everything


def test_the_diary_is_shown_where_that_is_switched_on(store: Store) -> None:
    with SummaryServer() as server:
        found, _ = store.run(server.url, include_named_users=True)
        assert found["diary"].method == "llm"
        assert len(server.asked) == 2
