"""Summaries as a task: the same as without it, whatever shard a cluster is in."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.compact import summaries as cluster_task
from noctuary.compact.clusters import Cluster, ClusterText
from noctuary.compact.summaries import (
    BatchResult,
    SummarizeClusters,
    SummarySettings,
    cluster_rows,
    read_settled,
    result_key,
    summarize_batch,
    write_settled,
)
from noctuary.compact.summarizers import EXTRACTIVE, SentenceSummarizer, Summarizer
from noctuary.core.files import hash_text
from noctuary.work.content import KEY, VALUE
from noctuary.work.shards import RecordBatch

DIM = 8
SETTINGS = SummarySettings(threshold=0.5)
TURNS = (
    "Ana: the boiler was serviced on 3 May. It needs a new valve before the winter comes.",
    "Bot: noted. The valve costs 80 euros and the plumber can come on 12 June.",
    "Ana: then book the plumber for 12 June. I am at home all day.",
    "Bot: booked. He comes at nine in the morning and stays for two hours.",
    "Ana: and tell Ben that the water is off. He works from home on that day.",
)


def vector_of(text: str) -> NDArray[np.float32]:
    """A unit vector that depends on the text alone, near one direction."""
    seed = int(hash_text(text)[:8], 16)
    raw = np.random.default_rng(seed).standard_normal(DIM) * 0.3 + 1.0
    return (raw / np.linalg.norm(raw)).astype(np.float32)


class Encoder:
    """Stands where an ONNX export is opened: as deterministic, text by text."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode_documents(self, texts: list[str]) -> NDArray[np.float32]:
        """Return `vector_of` every text."""
        self.texts += texts
        return np.array([vector_of(text) for text in texts], dtype=np.float32).reshape(-1, DIM)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> Encoder:
    opened = Encoder()

    class _Opening:
        @staticmethod
        def open(directory: Path, threads: int) -> Encoder:
            assert directory == Path("export")
            assert threads == 3
            return opened

    monkeypatch.setattr(cluster_task, "OnnxEncoder", _Opening)
    return opened


def cluster_text(number: int, turns: int) -> ClusterText:
    texts = [f"{TURNS[i % len(TURNS)]} ({number}-{i})" for i in range(turns)]
    ids = tuple(f"{number}-{i}" for i in range(turns))
    cluster = Cluster(
        cluster_id=hash_text(str(number))[:16],
        session_id=f"s{number}",
        user="ana" if number % 2 else None,
        wing=None if number % 3 else "home",
        strategy="chronological",
        ordinal=number,
        member_positions=tuple(range(100 * number, 100 * number + turns)),
        member_ids=ids,
        first_us=number,
        last_us=number + turns,
        trivial=turns == 1,
    )
    return ClusterText(cluster, texts, np.array([vector_of(text) for text in texts]))


BATCH = [cluster_text(number, 1 + number % 6) for number in range(1, 14)]


def task(summarizer: Summarizer = EXTRACTIVE, settings: SummarySettings = SETTINGS) -> RecordBatch:
    return SummarizeClusters(summarizer, settings, Path("export")).open(3)


def unplaced(result: BatchResult) -> list[object]:
    """What the task gives for the same clusters: it does not know where they stand."""
    return [replace(summary, source_positions=()) for summary in result.summaries]


@pytest.mark.parametrize("summarizer", [EXTRACTIVE, SentenceSummarizer()])
@pytest.mark.parametrize("threshold", [0.5, 0.999999])
def test_the_task_gives_what_summarize_batch_gives(
    encoder: Encoder, summarizer: Summarizer, threshold: float
) -> None:
    settings = SummarySettings(threshold=threshold)
    expected = summarize_batch(
        BATCH, Encoder().encode_documents, summarizer=summarizer, settings=settings
    )
    made = task(summarizer, settings)(cluster_rows(BATCH))
    assert made.column(KEY).to_pylist() == [result_key(item.cluster) for item in BATCH]
    found = [read_settled(value) for value in made.column(VALUE).to_pylist()]
    assert [one.summary for one in found] == unplaced(expected)
    assert [a for one in found for a in one.attempts] == expected.attempts
    assert {s.status for s in expected.summaries} >= {"trivial"}
    if threshold > 0.9:
        assert any(one.attempts for one in found)


def test_vectors_of_judged_texts_come_with_their_cluster(encoder: Encoder) -> None:
    made = task()(cluster_rows(BATCH))
    found = [read_settled(value) for value in made.column(VALUE).to_pylist()]
    held = {text: vector for one in found for text, vector in one.vectors.items()}
    assert set(held) == set(encoder.texts)
    assert held
    for text, vector in held.items():
        np.testing.assert_array_equal(vector, vector_of(text))
    assert all(one.vectors.keys() <= {one.summary.text} for one in found if not one.attempts)


def test_what_is_kept_is_read_as_it_was_but_for_where_it_stood(encoder: Encoder) -> None:
    strict = SummarySettings(threshold=0.999999)
    result = summarize_batch(BATCH, encoder.encode_documents, settings=strict)
    assert result.fresh.keys() == set(result.keys)
    assert result.attempts
    vectors = {"a": vector_of("a"), "\ud800": vector_of("b")}
    for settled in result.fresh.values():
        value = write_settled(settled._replace(vectors=vectors))
        again = read_settled(value)
        assert again.summary == replace(settled.summary, source_positions=())
        assert again.attempts == settled.attempts
        assert again.vectors.keys() == vectors.keys()
        np.testing.assert_array_equal(again.vectors["a"], vectors["a"])
        assert write_settled(again) == value


def test_how_clusters_are_cut_into_batches_changes_no_byte(encoder: Encoder) -> None:
    whole = task()(cluster_rows(BATCH)).column(VALUE).to_pylist()
    function = task()
    single = [function(cluster_rows([item])).column(VALUE).to_pylist()[0] for item in BATCH]
    assert single == whole


def test_rows_do_not_depend_on_where_the_members_stand(encoder: Encoder) -> None:
    item = BATCH[4]
    moved = item._replace(cluster=replace(item.cluster, member_positions=(7,) * 6))
    assert cluster_rows([moved]).equals(cluster_rows([item]))


def test_a_batch_of_trivial_clusters_opens_no_encoder(encoder: Encoder) -> None:
    trivial = [item for item in BATCH if item.cluster.trivial]
    values = task()(cluster_rows(trivial)).column(VALUE).to_pylist()
    assert [read_settled(value).summary.status for value in values] == ["trivial"] * len(trivial)
    assert trivial
    assert not encoder.texts


def test_the_task_travels_to_other_processes() -> None:
    one = SummarizeClusters(SentenceSummarizer(), SETTINGS, Path("export"))
    assert pickle.loads(pickle.dumps(one)) == one
