"""Clusters and summaries of several nights: what stays is neither read nor embedded again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.compact import summaries as summarizing
from noctuary.compact.clusters import GIANT_TURN_CHARS, ClusterText, iter_clusters
from noctuary.compact.summaries import ClusterSources, iter_summaries, result_key, summary_kind
from noctuary.compact.summarizers import EXTRACTIVE, ExtractiveSummarizer
from noctuary.core.settings import CompactionSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.embed import documents as embedding
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.work.stage import StageResult
from noctuary_assets import compact as compaction
from noctuary_assets.compact import (
    SUMMARY_TABLE,
    accepted_summaries,
    cluster_old_turns,
    summarize_turn_clusters,
    summary_recipe,
)
from noctuary_assets.index import embed_memories
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import ATTEMPTS, CLUSTERS, SUMMARIES, Night
from tests.support.clusters import write_summaries
from tests.support.turns import word_vectors

DIMENSION = 32
FINGERPRINT = EncoderFingerprint(
    model="words",
    weights_sha256="0" * 64,
    dimension=DIMENSION,
    pooling="mean",
    normalized=True,
    query_prefix="",
    document_prefix="",
    max_tokens=256,
)


@dataclass
class CountingEncoder:
    """Embeds by words and remembers what it was given."""

    seen: Counter[str] = field(default_factory=Counter[str])

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        self.seen.update(texts)
        yield list(range(len(texts))), word_vectors(texts, DIMENSION)


@dataclass
class Nights:
    """A store, its source, and an encoder that counts."""

    root: Path
    encoder: CountingEncoder
    settings: CompactionSettings = field(
        default_factory=lambda: CompactionSettings(cluster_size=5, summarizer="extractive")
    )

    def write(self, turns: int, **changes: dict[str, Any]) -> None:
        """Write two sessions of so many turns each; changes by id."""
        lines = [
            {
                "id": f"{session}{n:03d}",
                "content": f"Ana: turn {n} of {session} is about the garden and the rain.",
                "category": "turn",
                "session_id": session,
                "created_at": f"2026-03-{1 + n // 60:02d}T10:{n % 60:02d}:00Z",
            }
            for session in ("a", "b")
            for n in range(turns)
        ]
        for line in lines:
            line.update(changes.get(str(line["id"]), {}))
        source = self.root / "memories.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run(self) -> tuple[Night, StageResult, StageResult]:
        """Run the stages up to the summaries as a new night does."""
        night = Night(
            StorePaths(self.root / "store"),
            self.root / "memories.jsonl",
            settings=Settings()._replace(compaction=self.settings),
        )
        night.encoder.sentence = self.encoder  # type: ignore[assignment]
        night.encoder.fingerprint = FINGERPRINT
        export_memories(night)
        embed_memories(night)
        return night, cluster_old_turns(night), summarize_turn_clusters(night)


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    # A machine without ONNX Runtime, where the night's encoder embeds itself.
    monkeypatch.setattr(embedding, "toolchain", lambda: None)
    return Nights(tmp_path, CountingEncoder())


def test_the_facts_say_what_became_of_every_turn(nights: Nights) -> None:
    giant = {"content": "Ana: " + "x" * GIANT_TURN_CHARS}
    nights.write(
        30,
        a003=giant,
        b028={"created_at": "2190-01-01T00:00:00Z"},
        b025={"content": "Bo: Will it rain?"},
    )
    _, clusters, summaries = nights.run()
    facts = clusters.facts
    assert facts["sessions"] == 2
    assert facts["turns"] == 60
    assert facts["giant_turns"] == 1
    assert facts["future_turns"] == 1
    # With b028 set aside the tail of b begins at b025: a question, which needs nothing before it.
    assert (facts["protected_turns"], facts["bundled_turns"]) == (8, 0)
    assert facts["clustered_turns"] == 50
    assert facts["cluster_turns"]["max"] <= 5
    made = summaries.facts
    assert made["by_status"]["accepted"] == accepted_count(made)
    assert made["summarised_turns"] == 50
    assert 0 < made["summary_tokens"] < made["source_tokens"]
    assert made["tokens_saved_share"] == pytest.approx(
        1 - made["summary_tokens"] / made["source_tokens"], abs=1e-4
    )
    assert 0.65 <= made["q_align"]["min"] <= made["q_align"]["median"] <= 1.0
    assert 0.0 < made["facts_kept_share"] <= 1.0


def accepted_count(facts: dict[str, Any]) -> int:
    return sum(facts["by_method"].values())


def test_the_question_of_the_tail_s_first_answer_is_protected_too(nights: Nights) -> None:
    nights.write(30, a025={"content": "Bo: Will it rain?"})
    night, clusters, _ = nights.run()
    assert clusters.facts["bundled_turns"] == 1
    members = {m for c in iter_clusters(night.work(CLUSTERS)) for m in c.member_ids}
    assert "a025" not in members
    assert "b025" in members


def test_a_second_night_reads_and_embeds_nothing_again(nights: Nights) -> None:
    nights.write(30)
    night, _, first = nights.run()
    seen = nights.encoder.seen.copy()
    assert first.notes["summaries_made"] == first.rows
    assert first.notes["texts_embedded"] > 0
    _, clusters, again = nights.run()
    assert clusters.reused
    assert again.reused
    assert nights.encoder.seen == seen
    assert max(seen.values()) == 1
    assert len(accepted_summaries(night)) == first.facts["by_status"]["accepted"]


def test_only_changed_clusters_are_summarised_again(nights: Nights) -> None:
    nights.write(30)
    night, _, _ = nights.run()
    before = {s.cluster_id: s for s in iter_summaries(night.work(SUMMARIES))}
    nights.write(30, b000={"content": "Ana: turn 0 of b tells of the rain and the garden."})
    _, _, second = nights.run()
    after = {s.cluster_id: s for s in iter_summaries(night.work(SUMMARIES))}
    assert second.notes["summaries_made"] == len(after.keys() - before.keys())
    assert 0 < second.notes["summaries_made"] < len(after)
    assert all(after[c] == before[c] for c in after.keys() & before.keys())
    assert all(c.session_id == "b" for c in after.values() if c.cluster_id not in before)
    assert max(nights.encoder.seen.values()) == 1


def test_tables_grown_over_nights_equal_those_made_at_once(nights: Nights, tmp_path: Path) -> None:
    nights.write(17)
    nights.run()
    nights.write(30)
    night, _, _ = nights.run()
    fresh = Nights(tmp_path / "fresh", CountingEncoder())
    fresh.root.mkdir()
    fresh.write(30)
    other, _, _ = fresh.run()
    for table in (CLUSTERS, SUMMARIES, ATTEMPTS):
        assert night.work(table).read_bytes() == other.work(table).read_bytes()


def test_nothing_is_taken_from_a_table_that_was_changed_since(nights: Nights) -> None:
    nights.write(30)
    night, _, first = nights.run()
    whole, *others = list(iter_summaries(night.work(SUMMARIES)))
    write_summaries(night.work(SUMMARIES), [replace(whole, text="changed"), *others])
    _, _, second = nights.run()
    assert (second.reused, second.notes["summaries_made"]) == (False, 0)
    assert second.digest == first.digest
    assert next(iter_summaries(night.work(SUMMARIES))) == whole


def test_a_turn_from_the_future_is_clustered_once_its_moment_has_passed(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.write(30, a000={"created_at": "2190-01-01T00:00:00Z"})
    _, before, _ = nights.run()
    assert before.facts["future_turns"] == 1
    _, same, _ = nights.run()
    assert same.reused
    monkeypatch.setattr(compaction.time, "time_ns", lambda: 8_000_000_000_000_000_000)
    _, after, _ = nights.run()
    assert not after.reused
    assert after.facts["future_turns"] == 0
    assert after.facts["turns"] == before.facts["turns"]


def test_another_cluster_size_is_another_night_s_work(nights: Nights) -> None:
    nights.write(30)
    night, first, _ = nights.run()
    nights.settings = nights.settings._replace(cluster_size=7)
    _, second, _ = nights.run()
    assert second.digest != first.digest
    assert {len(c.member_ids) for c in iter_clusters(night.work(CLUSTERS))} == {6, 7}
    assert max(nights.encoder.seen.values()) == 1


def test_a_store_without_turns_has_empty_tables(nights: Nights) -> None:
    nights.write(1, a000={"category": "fact"}, b000={"category": "fact"})
    night, clusters, summaries = nights.run()
    assert (clusters.rows, summaries.rows) == (0, 0)
    assert clusters.facts["cluster_turns"] == {}
    assert summaries.facts["tokens_saved_share"] is None
    assert accepted_summaries(night) == []


def test_the_tables_are_the_stage_s_outputs() -> None:
    assert SUMMARY_TABLE.outputs == (SUMMARIES, ATTEMPTS)


def test_only_what_is_certainly_used_again_is_not_read(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped: list[set[str]] = []
    read = summarizing.iter_cluster_texts

    def noted(sources: ClusterSources, *, skip: set[str]) -> Iterator[list[ClusterText]]:
        skipped.append(skip)
        return read(sources, skip=skip)

    monkeypatch.setattr(summarizing, "iter_cluster_texts", noted)
    nights.write(30)
    night, _, first = nights.run()
    clusters = {c.cluster_id: c for c in iter_clusters(night.work(CLUSTERS))}
    lost, *others = clusters
    store = night.content(summary_kind(summary_recipe(night, EXTRACTIVE)))
    assert store.forget([result_key(clusters[lost])]) == 1
    night.work(SUMMARIES).unlink()
    _, _, second = nights.run()
    assert skipped == [set(), set(others)]
    assert second.notes["summaries_made"] == 1

    class Reader(ExtractiveSummarizer):
        """Is shown what came before."""

        uses_context = True

    def open_reader(_: CompactionSettings) -> Reader:
        return Reader()

    monkeypatch.setattr(compaction, "open_summarizer", open_reader)
    made: list[int] = []
    for _ in range(2):
        night.work(SUMMARIES).unlink()
        made.append(nights.run()[2].notes["summaries_made"])
    assert skipped[2:] == [set(), set()]
    assert 0 < made[0] < first.rows, "those that open a session are shown nothing, as before"
    assert made[1] == 0


def test_what_became_of_clusters_that_are_gone_leaves_no_byte(nights: Nights) -> None:
    nights.write(30)
    night, _, _ = nights.run()
    old = {s.text for s in iter_summaries(night.work(SUMMARIES))}
    nights.write(17)
    night, _, result = nights.run()
    left = {s.text for s in iter_summaries(night.work(SUMMARIES))}
    store = night.content(summary_kind(summary_recipe(night, EXTRACTIVE)))
    told = b"".join(path.read_bytes() for path in sorted(store.directory.glob("*")))
    assert store.rows == result.rows
    assert old - left
    assert all(json.dumps(text).encode() in told for text in left)
    assert not any(json.dumps(text).encode() in told for text in old - left)
