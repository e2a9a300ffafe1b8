"""Clusters and summaries of several nights: what stays is neither read nor embedded again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.compact import summaries as cluster_task
from noctuary.compact.clusters import GIANT_TURN_CHARS, ClusterText, iter_clusters
from noctuary.compact.summaries import (
    ClusterSources,
    Summary,
    iter_summaries,
    summary_key,
    summary_kind,
)
from noctuary.compact.summarizers import EXTRACTIVE
from noctuary.core.files import remove_tree
from noctuary.core.settings import CompactionSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.embed import documents
from noctuary.embed.documents import Backend, NightEncoder
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.work.content import ContentStore, Filled, fill
from noctuary.work.stage import StageResult
from noctuary_assets import compact
from noctuary_assets.compact import (
    accepted_summaries,
    cluster_old_turns,
    summarize_turn_clusters,
    summary_recipe,
)
from noctuary_assets.index import embed_memories
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import CLUSTERS, CONTENT, SHARDS, SUMMARIES, Night
from noctuary_assets.pack import embed_again
from tests.support.clusters import write_summaries
from tests.support.fake_server import FakeServer
from tests.support.turns import word_vectors

DIMENSION = 32
FINGERPRINT = EncoderFingerprint("words", "0" * 64, DIMENSION, "mean", True, "", "", 256)
SESSIONS = {"a": None, "b": None}


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
    encoder: CountingEncoder = field(default_factory=CountingEncoder)
    settings: CompactionSettings = field(
        default_factory=lambda: CompactionSettings(cluster_size=5, summarizer="extractive")
    )

    def write(
        self, turns: int, sessions: Mapping[str, str | None] = SESSIONS, **changes: dict[str, Any]
    ) -> None:
        """Write sessions of so many turns each, by owner; changes by id."""
        lines = [
            {
                "id": f"{session}{n:03d}",
                "content": f"Ana: turn {n} of {session} is about the garden and the rain.",
                "category": "turn",
                "session_id": session,
                "user": user,
                "created_at": f"2026-03-{1 + n // 60:02d}T10:{n % 60:02d}:00Z",
                **changes.get(f"{session}{n:03d}", {}),
            }
            for session, user in sessions.items()
            for n in range(turns)
        ]
        self.root.mkdir(exist_ok=True)
        source = self.root / "memories.jsonl"
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run(self) -> tuple[Night, StageResult, StageResult]:
        """Run the stages up to the summaries as a new night does."""
        settings = Settings()._replace(compaction=self.settings)
        night = Night(StorePaths(self.root / "store"), self.root / "memories.jsonl", settings)
        night.encoder.sentence = self.encoder  # type: ignore[assignment]
        night.encoder.fingerprint = FINGERPRINT
        export_memories(night)
        embed_memories(night)
        return night, cluster_old_turns(night), summarize_turn_clusters(night)


@pytest.fixture
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    # A machine without ONNX Runtime, where the night's encoder embeds itself.
    monkeypatch.setattr(documents, "toolchain", {}.get)
    return Nights(tmp_path)


def summaries_of(night: Night) -> dict[str, Summary]:
    return {s.cluster_id: s for s in iter_summaries(night.work(SUMMARIES))}


def test_the_facts_say_what_became_of_every_turn(nights: Nights) -> None:
    giant = {"content": "Ana: " + "x" * GIANT_TURN_CHARS}
    future = {"created_at": "2190-01-01T00:00:00Z"}
    question = {"content": "Bo: Will it rain?"}
    nights.write(30, a003=giant, b028=future, a025=question, b025=question)
    night, clusters, summaries = nights.run()
    facts = clusters.facts
    assert (facts["sessions"], facts["turns"]) == (2, 60)
    assert (facts["giant_turns"], facts["future_turns"]) == (1, 1)
    # With b028 set aside the tail of b begins at b025, a question; that of a with its answer.
    assert (facts["protected_turns"], facts["bundled_turns"]) == (9, 1)
    assert facts["clustered_turns"] == 49
    assert facts["cluster_turns"]["max"] <= 5
    members = {m for c in iter_clusters(night.work(CLUSTERS)) for m in c.member_ids}
    assert not members & {"a025", "b025"}
    made = summaries.facts
    assert made["by_status"]["accepted"] == sum(made["by_method"].values())
    assert made["summarised_turns"] == 49
    assert 0 < made["summary_tokens"] < made["source_tokens"]
    saved = 1 - made["summary_tokens"] / made["source_tokens"]
    assert made["tokens_saved_share"] == pytest.approx(saved, abs=1e-4)
    assert 0.65 <= made["q_align"]["min"] <= made["q_align"]["median"] <= 1.0
    assert 0.0 < made["facts_kept_share"] <= 1.0


def test_a_second_night_reads_and_embeds_nothing_again(nights: Nights) -> None:
    """What an edit changes, and that nothing else does: tests/e2e/test_incremental.py."""
    nights.write(30)
    night, before, first = nights.run()
    seen = nights.encoder.seen.copy()
    assert first.notes["summaries_made"] == first.rows
    _, clusters, again = nights.run()
    assert (clusters.reused, again.reused) == (True, True)
    assert nights.encoder.seen == seen
    assert len(accepted_summaries(night)) == first.facts["by_status"]["accepted"]
    nights.settings = nights.settings._replace(cluster_size=7)
    _, other, _ = nights.run()
    assert other.digest != before.digest
    assert {len(c.member_ids) for c in iter_clusters(night.work(CLUSTERS))} == {6, 7}
    assert max(nights.encoder.seen.values()) == 1


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
    assert nights.run()[1].facts["future_turns"] == 1
    assert nights.run()[1].reused
    monkeypatch.setattr(compact.time, "time_ns", lambda: 8_000_000_000_000_000_000)
    _, after, _ = nights.run()
    assert (after.reused, after.facts["future_turns"], after.facts["turns"]) == (False, 0, 60)


def test_a_store_without_turns_has_empty_tables(nights: Nights) -> None:
    nights.write(1, a000={"category": "fact"}, b000={"category": "fact"})
    night, clusters, summaries = nights.run()
    assert (clusters.rows, summaries.rows) == (0, 0)
    assert clusters.facts["cluster_turns"] == {}
    assert summaries.facts["tokens_saved_share"] is None
    assert accepted_summaries(night) == []


def test_only_what_is_certainly_used_again_is_not_read(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped: list[set[str]] = []
    read = cluster_task.iter_cluster_texts

    def noted(sources: ClusterSources, *, skip: set[str]) -> Iterator[list[ClusterText]]:
        skipped.append(skip)
        return read(sources, skip=skip)

    monkeypatch.setattr(cluster_task, "iter_cluster_texts", noted)
    nights.write(30)
    night, _, _ = nights.run()
    clusters = {c.cluster_id: c for c in iter_clusters(night.work(CLUSTERS))}
    lost, *others = clusters
    assert kept_summaries(night).forget([summary_key(clusters[lost])]) == 1
    night.work(SUMMARIES).unlink()
    _, _, second = nights.run()
    assert skipped == [set(), set(others)]
    assert second.notes["summaries_made"] == 1


class Export:
    """Stands where summaries' workers open an ONNX export; embeds as the night's encoder does."""

    seen: list[str]

    @classmethod
    def open(cls, directory: Path, threads: int = 1) -> type[Export]:
        assert threads > 0
        return cls

    @classmethod
    def encode_documents(cls, texts: list[str]) -> NDArray[np.float32]:
        cls.seen += texts
        return word_vectors(texts, DIMENSION)


class MemoryExport(Export):
    """The same for the memories' own texts, and for what this process embeds."""

    seen: list[str]

    @classmethod
    def iter_document_batches(
        cls, texts: list[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        yield list(range(len(texts))), cls.encode_documents(texts)


def backend(tag: str) -> Callable[..., Backend]:
    def chosen(encoder: NightEncoder, texts: Sequence[str]) -> Backend:
        return Backend(tag)

    return chosen


@pytest.fixture
def kept_nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """Nights whose workers embed by an ONNX export, and keep what they made."""
    for module, export in ((cluster_task, Export), (documents, MemoryExport)):
        monkeypatch.setattr(export, "seen", [], raising=False)
        monkeypatch.setattr(module, "OnnxEncoder", export)
    monkeypatch.setattr(NightEncoder, "choose_backend", backend("onnx-words"))
    return Nights(tmp_path)


def tables(night: Night) -> list[bytes]:
    return [night.work(name).read_bytes() for name in (CLUSTERS, SUMMARIES)]


def kept_summaries(night: Night) -> ContentStore:
    return night.content(summary_kind(summary_recipe(night, EXTRACTIVE)))


@pytest.mark.parametrize("summarizer", ["extractive", "sentences"])
@pytest.mark.parametrize("threshold", [0.65, 0.999])
def test_the_tables_are_those_made_in_this_process(
    kept_nights: Nights,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    summarizer: str,
    threshold: float,
) -> None:
    kept_nights.settings = CompactionSettings(
        cluster_size=5, summarizer=summarizer, preserve_threshold=threshold
    )
    kept_nights.write(31)
    night, _, first = kept_nights.run()
    assert Export.seen or summarizer == "sentences"
    monkeypatch.setattr(NightEncoder, "choose_backend", backend(""))
    other = Nights(tmp_path / "other", settings=kept_nights.settings)
    other.write(31)
    expected, _, here = other.run()
    assert tables(night) == tables(expected)
    assert (first.facts, first.notes) == (here.facts, here.notes)
    assert first.notes["summaries_made"] == first.rows


def test_what_a_worker_embedded_is_not_embedded_again(kept_nights: Nights) -> None:
    kept_nights.write(30)
    night, _, _ = kept_nights.run()
    texts = [summary.text for summary in accepted_summaries(night)]
    assert set(texts) & set(Export.seen)
    before = list(MemoryExport.seen)
    vectors = embed_again(night, texts)
    assert MemoryExport.seen == before
    np.testing.assert_array_equal(vectors, word_vectors(texts, DIMENSION))
    assert not [value for value in kept_summaries(night).values() if b'"vector"' in value]


def test_only_new_and_damaged_summaries_are_made_again_to_the_same_bytes(
    kept_nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_nights.write(17)
    kept_nights.run()
    Export.seen.clear()
    kept_nights.write(30)
    night, _, second = kept_nights.run()
    grown = tables(night)
    assert 0 < second.notes["summaries_made"] < second.rows
    assert len(Export.seen) <= second.notes["summaries_made"]
    Export.seen.clear()

    def made_again() -> int:
        night.work(SUMMARIES).unlink()
        again, _, result = kept_nights.run()
        assert tables(again) == grown
        return result.notes["summaries_made"]

    assert (made_again(), Export.seen) == (0, [])
    damaged = kept_summaries(night).fragments[0]
    damaged.path.write_bytes(damaged.path.read_bytes()[:-40])
    assert made_again() == damaged.rows
    remove_tree(night.work(CONTENT))
    assert made_again() == second.rows

    def lose_one(store: ContentStore, *arguments: Any, **options: Any) -> Filled:
        filled = fill(store, *arguments, **options)
        assert store.forget(store.keys()[:1]) == 1
        return filled

    monkeypatch.setattr(cluster_task, "fill", lose_one)
    assert made_again() == 1


def test_a_killed_night_goes_on(kept_nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(path: Path) -> None:
        raise KeyboardInterrupt

    kept_nights.write(30)
    with monkeypatch.context() as patch:
        patch.setattr(cluster_task, "write_summaries", cut_off)
        with pytest.raises(KeyboardInterrupt):
            kept_nights.run()
    embedded = len(Export.seen)
    assert embedded
    night, _, result = kept_nights.run()
    assert result.notes["summaries_made"] == 0
    assert len(Export.seen) == embedded
    assert len(summaries_of(night)) == result.rows > 0


@pytest.mark.parametrize("kind", ["nights", "kept_nights"])
def test_nothing_is_left_of_summaries_that_are_gone_and_no_shards(
    request: pytest.FixtureRequest, kind: str
) -> None:
    nights: Nights = request.getfixturevalue(kind)
    nights.write(30)
    night, _, first = nights.run()
    old = {s.text for s in summaries_of(night).values()}
    assert kept_summaries(night).rows == first.rows
    nights.write(17)
    night, _, second = nights.run()
    left = {s.text for s in summaries_of(night).values()}
    store = kept_summaries(night)
    told = b"".join(path.read_bytes() for path in store.directory.iterdir())
    assert store.rows == second.rows
    assert old - left
    assert all(json.dumps(text).encode() in told for text in left)
    assert not any(text.encode() in told for text in old - left)
    assert not night.work(SHARDS).exists() or not any(night.work(SHARDS).iterdir())


NOBODY = "http://127.0.0.1:9/v1"


def asked(nights: Nights, url: str, **more: Any) -> tuple[dict[str, Summary], dict[str, Any]]:
    """Run a night with a model; its summaries by session, and what the stage says."""
    nights.settings = CompactionSettings(
        cluster_size=8, summarizer="llm", llm_url=url, llm_model="m", **more
    )
    night, _, result = nights.run()
    found = {s.session_id: s for s in summaries_of(night).values()}
    return found, {**result.facts, **result.notes}


@pytest.fixture
def diary(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> Nights:
    """Two conversations: one of nobody in particular, one of Ana."""
    monkeypatch.setattr("noctuary.work.http.FIRST_WAIT_S", 0.0)
    nights.write(12, {"open": None, "diary": "ana"})
    return nights


def test_a_night_without_its_endpoint_goes_through_and_the_next_asks(diary: Nights) -> None:
    found, told = asked(diary, NOBODY)
    assert {(s.status, s.method) for s in found.values()} == {("accepted", "extractive")}
    assert told["by_fallback"] == {"named_user": 1, "unavailable": 1}
    with FakeServer() as server:
        found, told = asked(diary, server.url)
        assert found["open"].method == "llm"
        assert told["by_fallback"] == {"named_user": 1}
        assert len(server.asked) == 1
        assert asked(diary, server.url)[0] == found
        assert len(server.asked) == 1
        assert "diary" not in server.everything
        # Where that is switched on the diary is shown.
        found, _ = asked(diary, server.url, include_named_users=True)
        assert found["diary"].method == "llm"
        assert len(server.asked) > 1
