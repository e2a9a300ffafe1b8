"""Clusters and summaries of several nights: what stays is neither read nor embedded again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from noctuary.compact import summaries as cluster_task
from noctuary.compact import summaries as summarizing
from noctuary.compact.clusters import GIANT_TURN_CHARS, ClusterText, iter_clusters
from noctuary.compact.summaries import (
    BatchResult,
    ClusterSources,
    Summary,
    iter_summaries,
    result_key,
    summary_kind,
)
from noctuary.compact.summarizers import EXTRACTIVE, ExtractiveSummarizer
from noctuary.core.files import remove_tree
from noctuary.core.settings import CompactionSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.embed import documents
from noctuary.embed import documents as embedding
from noctuary.embed.documents import Backend, NightEncoder
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.work.content import ContentStore, Filled, fill
from noctuary.work.stage import StageResult
from noctuary_assets import compact
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
from noctuary_assets.night import ATTEMPTS, CLUSTERS, CONTENT, SHARDS, SUMMARIES, Night
from noctuary_assets.pack import _summary_vectors  # pyright: ignore[reportPrivateUsage]
from tests.support.clusters import write_summaries
from tests.support.summary_server import SummaryServer
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


class Export:
    """Stands where summaries' workers open an ONNX export; embeds as the night's encoder does."""

    seen: list[str]

    @classmethod
    def open(cls, directory: Path, threads: int) -> type[Export]:
        assert threads > 0
        return cls

    @classmethod
    def encode_documents(cls, texts: list[str]) -> NDArray[np.float32]:
        cls.seen += texts
        return word_vectors(texts, DIMENSION)


class MemoryExport(Export):
    """The same for the memories' own texts."""

    seen: list[str]


def onnx(encoder: NightEncoder, texts: Sequence[str]) -> Backend:
    return Backend("onnx-words")


def library(encoder: NightEncoder, texts: Sequence[str]) -> Backend:
    return Backend("")


@pytest.fixture
def kept_nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
    monkeypatch.setattr(Export, "seen", [], raising=False)
    monkeypatch.setattr(cluster_task, "OnnxEncoder", Export)
    monkeypatch.setattr(MemoryExport, "seen", [], raising=False)
    monkeypatch.setattr(documents, "OnnxEncoder", MemoryExport)
    monkeypatch.setattr(NightEncoder, "choose_backend", onnx)
    return Nights(tmp_path, CountingEncoder())


def tables(night: Night) -> list[bytes]:
    return [night.work(name).read_bytes() for name in (SUMMARIES, ATTEMPTS)]


def bytes_of(store: ContentStore) -> bytes:
    return b"".join(path.read_bytes() for path in store.directory.iterdir())


@pytest.mark.parametrize("summarizer", ["extractive", "sentences"])
@pytest.mark.parametrize("threshold", [0.65, 0.999])
def test_the_tables_are_those_made_in_this_process(
    kept_nights: Nights,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    summarizer: str,
    threshold: float,
) -> None:
    kept_nights.settings = type(kept_nights.settings)(
        cluster_size=5, summarizer=summarizer, preserve_threshold=threshold
    )
    kept_nights.write(31)
    night, _, first = kept_nights.run()
    assert Export.seen or summarizer == "sentences"
    monkeypatch.setattr(NightEncoder, "choose_backend", library)
    other = Nights(tmp_path / "other", CountingEncoder(), kept_nights.settings)
    other.root.mkdir()
    other.write(31)
    expected, _, here = other.run()
    assert tables(night) == tables(expected)
    assert first.facts == here.facts
    assert first.notes == here.notes
    assert first.notes["summaries_made"] == first.rows


def test_what_the_pack_and_the_gate_need_is_not_embedded_again(kept_nights: Nights) -> None:
    kept_nights.write(30)
    night, _, _ = kept_nights.run()
    judged = {s.text for s in iter_summaries(night.work(SUMMARIES))} & set(Export.seen)
    assert judged
    kept_nights.encoder.seen.clear()
    vectors = _summary_vectors(night, sorted(judged))
    assert np.array_equal(vectors, word_vectors(sorted(judged), DIMENSION))
    assert not kept_nights.encoder.seen


def test_only_new_clusters_are_summarised_and_old_ones_keep_every_byte(kept_nights: Nights) -> None:
    kept_nights.write(17)
    kept_nights.run()
    Export.seen.clear()
    kept_nights.write(30)
    night, _, second = kept_nights.run()
    grown = tables(night)
    assert 0 < second.notes["summaries_made"] < second.rows
    assert len(Export.seen) <= second.notes["summaries_made"]
    Export.seen.clear()
    night.work(SUMMARIES).unlink()
    again, _, third = kept_nights.run()
    assert (third.notes["summaries_made"], Export.seen) == (0, [])
    assert tables(again) == grown
    remove_tree(night.work(CONTENT))
    night.work(SUMMARIES).unlink()
    again, _, fourth = kept_nights.run()
    assert fourth.notes["summaries_made"] == fourth.rows
    assert tables(again) == grown


def test_a_killed_night_goes_on_with_what_was_made(
    kept_nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(batch: BatchResult) -> None:
        raise KeyboardInterrupt

    def no_tables(*paths: Path) -> AbstractContextManager[Callable[[BatchResult], None]]:
        return nullcontext(cut_off)

    kept_nights.write(30)
    with monkeypatch.context() as patch:
        patch.setattr(compact, "write_tables", no_tables)
        with pytest.raises(KeyboardInterrupt):
            kept_nights.run()
    embedded = len(Export.seen)
    assert embedded
    night, _, result = kept_nights.run()
    assert result.notes["summaries_made"] == 0
    assert len(Export.seen) == embedded
    assert len(list(iter_summaries(night.work(SUMMARIES)))) == result.rows > 0


def test_nothing_is_left_of_summaries_that_are_gone_and_no_shards(kept_nights: Nights) -> None:
    kept_nights.write(30)
    night, _, first = kept_nights.run()
    old = {s.text for s in iter_summaries(night.work(SUMMARIES))}
    store = night.content(summary_kind(summary_recipe(night, EXTRACTIVE)))
    assert store.rows == first.rows
    kept_nights.write(17)
    night, _, second = kept_nights.run()
    texts = {s.text for s in iter_summaries(night.work(SUMMARIES))}
    store = night.content(store.kind)
    assert old - texts
    assert store.rows == second.rows
    assert all(text.encode() in bytes_of(store) for text in texts)
    assert not any(text.encode() in bytes_of(store) for text in old - texts)
    assert not night.work(SHARDS).exists() or not any(night.work(SHARDS).iterdir())


def test_what_damage_took_is_summarised_again(kept_nights: Nights) -> None:
    kept_nights.write(30)
    night, _, first = kept_nights.run()
    before = tables(night)
    store = night.content(summary_kind(summary_recipe(night, EXTRACTIVE)))
    (fragment,) = store.fragments
    fragment.path.write_bytes(fragment.path.read_bytes()[:-40])
    night.work(SUMMARIES).unlink()
    night, _, again = kept_nights.run()
    assert again.notes["summaries_made"] == first.rows
    assert tables(night) == before


def test_a_result_that_is_gone_is_made_again(
    kept_nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_nights.write(30)
    night, _, _ = kept_nights.run()
    expected = tables(night)

    def lose_one(store: ContentStore, *arguments: Any, **options: Any) -> Filled:
        filled = fill(store, *arguments, **options)
        assert store.forget(store.keys()[:1]) == 1
        return filled

    night.work(SUMMARIES).unlink()
    monkeypatch.setattr(cluster_task, "fill", lose_one)
    night, _, again = kept_nights.run()
    assert again.notes["summaries_made"] == 1
    assert tables(night) == expected


WIDTH = 32
ENCODED_BY = EncoderFingerprint(
    model="words", weights_sha256="0" * 64, dimension=WIDTH, pooling="mean", normalized=True,
    query_prefix="", document_prefix="", max_tokens=256,
)  # fmt: skip
NOBODY = "http://127.0.0.1:9/v1"


class Words:
    """An encoder of words."""

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        yield list(range(len(texts))), word_vectors(texts, WIDTH)


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
        night.encoder.fingerprint = ENCODED_BY
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
