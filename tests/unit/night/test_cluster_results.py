"""Summaries through the runner: the same tables, resumed after a kill, nothing left behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.compact import summaries as cluster_task
from noctuary.compact.summaries import BatchResult, iter_summaries, summary_kind
from noctuary.compact.summarizers import EXTRACTIVE
from noctuary.core.files import remove_tree
from noctuary.embed import documents
from noctuary.embed.documents import Backend, NightEncoder
from noctuary.work.content import ContentStore, Filled, fill
from noctuary_assets import compact
from noctuary_assets.compact import summary_recipe
from noctuary_assets.night import ATTEMPTS, CONTENT, SHARDS, SUMMARIES, Night
from noctuary_assets.pack import _summary_vectors  # pyright: ignore[reportPrivateUsage]
from tests.support.turns import word_vectors
from tests.unit.night.test_compaction import DIMENSION, CountingEncoder, Nights


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
def nights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nights:
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
    nights: Nights,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    summarizer: str,
    threshold: float,
) -> None:
    nights.settings = type(nights.settings)(
        cluster_size=5, summarizer=summarizer, preserve_threshold=threshold
    )
    nights.write(31)
    night, _, first = nights.run()
    assert Export.seen or summarizer == "sentences"
    monkeypatch.setattr(NightEncoder, "choose_backend", library)
    other = Nights(tmp_path / "other", CountingEncoder(), nights.settings)
    other.root.mkdir()
    other.write(31)
    expected, _, here = other.run()
    assert tables(night) == tables(expected)
    assert first.facts == here.facts
    assert first.notes == here.notes
    assert first.notes["summaries_made"] == first.rows


def test_what_the_pack_and_the_gate_need_is_not_embedded_again(nights: Nights) -> None:
    nights.write(30)
    night, _, _ = nights.run()
    judged = {s.text for s in iter_summaries(night.work(SUMMARIES))} & set(Export.seen)
    assert judged
    nights.encoder.seen.clear()
    vectors = _summary_vectors(night, sorted(judged))
    assert np.array_equal(vectors, word_vectors(sorted(judged), DIMENSION))
    assert not nights.encoder.seen


def test_only_new_clusters_are_summarised_and_old_ones_keep_every_byte(nights: Nights) -> None:
    nights.write(17)
    nights.run()
    Export.seen.clear()
    nights.write(30)
    night, _, second = nights.run()
    grown = tables(night)
    assert 0 < second.notes["summaries_made"] < second.rows
    assert len(Export.seen) <= second.notes["summaries_made"]
    Export.seen.clear()
    night.work(SUMMARIES).unlink()
    again, _, third = nights.run()
    assert (third.notes["summaries_made"], Export.seen) == (0, [])
    assert tables(again) == grown
    remove_tree(night.work(CONTENT))
    night.work(SUMMARIES).unlink()
    again, _, fourth = nights.run()
    assert fourth.notes["summaries_made"] == fourth.rows
    assert tables(again) == grown


def test_a_killed_night_goes_on_with_what_was_made(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(batch: BatchResult) -> None:
        raise KeyboardInterrupt

    def no_tables(*paths: Path) -> AbstractContextManager[Callable[[BatchResult], None]]:
        return nullcontext(cut_off)

    nights.write(30)
    with monkeypatch.context() as patch:
        patch.setattr(compact, "write_tables", no_tables)
        with pytest.raises(KeyboardInterrupt):
            nights.run()
    embedded = len(Export.seen)
    assert embedded
    night, _, result = nights.run()
    assert result.notes["summaries_made"] == 0
    assert len(Export.seen) == embedded
    assert len(list(iter_summaries(night.work(SUMMARIES)))) == result.rows > 0


def test_nothing_is_left_of_summaries_that_are_gone_and_no_shards(nights: Nights) -> None:
    nights.write(30)
    night, _, first = nights.run()
    old = {s.text for s in iter_summaries(night.work(SUMMARIES))}
    store = night.content(summary_kind(summary_recipe(night, EXTRACTIVE)))
    assert store.rows == first.rows
    nights.write(17)
    night, _, second = nights.run()
    texts = {s.text for s in iter_summaries(night.work(SUMMARIES))}
    store = night.content(store.kind)
    assert old - texts
    assert store.rows == second.rows
    assert all(text.encode() in bytes_of(store) for text in texts)
    assert not any(text.encode() in bytes_of(store) for text in old - texts)
    assert not night.work(SHARDS).exists() or not any(night.work(SHARDS).iterdir())


def test_what_damage_took_is_summarised_again(nights: Nights) -> None:
    nights.write(30)
    night, _, first = nights.run()
    before = tables(night)
    store = night.content(summary_kind(summary_recipe(night, EXTRACTIVE)))
    (fragment,) = store.fragments
    fragment.path.write_bytes(fragment.path.read_bytes()[:-40])
    night.work(SUMMARIES).unlink()
    night, _, again = nights.run()
    assert again.notes["summaries_made"] == first.rows
    assert tables(night) == before


def test_a_result_that_is_gone_is_made_again(
    nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights.write(30)
    night, _, _ = nights.run()
    expected = tables(night)

    def lose_one(store: ContentStore, *arguments: Any, **options: Any) -> Filled:
        filled = fill(store, *arguments, **options)
        assert store.forget(store.keys()[:1]) == 1
        return filled

    night.work(SUMMARIES).unlink()
    monkeypatch.setattr(cluster_task, "fill", lose_one)
    night, _, again = nights.run()
    assert again.notes["summaries_made"] == 1
    assert tables(night) == expected
