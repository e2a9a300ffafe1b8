"""The stage memory_vectors: in shards or by one encoder, what is known stays known."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import read_array
from noctuary.core.settings import EncoderSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.embed import documents as choosing
from noctuary.embed.documents import LIBRARY, Backend, sample_texts, text_key
from noctuary.embed.onnx import HEADER_FILE, MODEL_FILE, OnnxEncoder, read_header, write_header
from noctuary.sources.corpus import iter_batches
from noctuary.work.content import ContentStore, Filled
from noctuary.work.shards import Shard, write_table
from noctuary.work.stage import forget_result
from noctuary_assets.index import MEMORY_VECTORS, chosen_backend, embed_memories
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import CONTENT, MEMORIES, VECTORS, Night

TinyModel = Callable[..., Path]
TEXTS = ["a river", "stone and paper", "window lamp stone river", "a river", "the key is blue"]


def write_source(path: Path, texts: Sequence[str]) -> None:
    lines = (json.dumps({"id": n, "content": text}) + "\n" for n, text in enumerate(texts))
    path.write_text("".join(lines))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test leaves its model and the export of it, which takes seconds."""
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def night(tiny_model: TinyModel, tmp_path: Path, shared: Path) -> Night:
    """A night on TEXTS with the corpus exported."""
    if not (shared / "model").is_dir():
        tiny_model("model").rename(shared / "model")
    write_source(tmp_path / "memories.jsonl", TEXTS)
    settings = Settings(encoder=EncoderSettings(model=str(shared / "model")))
    night = Night(StorePaths(tmp_path / "store"), tmp_path / "memories.jsonl", settings)
    export_memories(night)
    if (shared / "encoders").is_dir():
        shutil.copytree(shared / "encoders", night.paths.encoders)
    else:
        tonights_backend(night)
        shutil.copytree(night.paths.encoders, shared / "encoders")
    return night


def vectors_kept(night: Night) -> ContentStore:
    return night.encoder.vectors(chosen_backend(night))


def tonights_backend(night: Night) -> Backend:
    return night.encoder.choose_backend(sample_texts(night.work(MEMORIES)))


def fill_all(night: Night, backend: Backend) -> Filled:
    store, shards = night.encoder.vectors(backend), night.shards("memory_vectors")
    return night.encoder.fill_store(store, night.work(MEMORIES), backend, night.runner, shards)


def vectors_by_one_encoder(night: Night, texts: Sequence[str]) -> NDArray[np.float32]:
    directory = night.encoder.onnx_directory
    return OnnxEncoder.open(directory, 1).encode_documents(texts)


def test_the_next_night_embeds_only_what_is_new(night: Night, tmp_path: Path) -> None:
    first = embed_memories(night)
    assert (first.notes["texts_embedded"], first.notes["texts_reused"]) == (4, 0)
    assert chosen_backend(night).tag.startswith("onnx-")
    found = read_array(night.work(VECTORS))
    np.testing.assert_array_equal(found, vectors_by_one_encoder(night, TEXTS))
    assert vectors_kept(night).rows == 4
    texts = ["a new bicycle", *TEXTS[::-1]]
    write_source(tmp_path / "memories.jsonl", texts)
    later = Night(night.paths, night.source, night.settings)
    export_memories(later)
    result = embed_memories(later)
    assert (result.notes["texts_embedded"], result.notes["texts_reused"]) == (1, 4)
    found = read_array(later.work(VECTORS))
    np.testing.assert_array_equal(found, vectors_by_one_encoder(later, texts))


@pytest.mark.parametrize("damage", ["not finite", "of another size"])
def test_a_damaged_vector_is_computed_again(night: Night, damage: str) -> None:
    embed_memories(night)
    before = night.work(VECTORS).read_bytes()
    store = vectors_kept(night)
    keys = pa.array([text_key(text) for text in TEXTS[1:]], pa.binary(32))
    rows = np.array(read_array(night.work(VECTORS))[1:])
    if damage == "not finite":
        rows[2, 5] = np.nan
    else:
        rows = rows[:, :-1]
    values = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    store.forget(keys.to_pylist())
    path = store.directory / f"{'0' * 32}.arrow"
    count = write_table(path, [pa.record_batch([keys, values], names=["key", "value"])])
    store.commit([Shard("0" * 32, path, count)])
    forget_result(night.paths.work, MEMORY_VECTORS)
    result = embed_memories(Night(night.paths, night.source, night.settings))
    wanted = 1 if damage == "not finite" else 4
    assert (result.notes["texts_embedded"], result.notes["texts_reused"]) == (wanted, 4 - wanted)
    assert night.work(VECTORS).read_bytes() == before
    later = vectors_kept(night)
    assert (later.find([text_key(text) for text in TEXTS]) >= 0).all()
    forget_result(night.paths.work, MEMORY_VECTORS)
    third = embed_memories(Night(night.paths, night.source, night.settings))
    assert third.notes["texts_embedded"] == 0, "the damage is gone for good"


def test_shards_are_a_thirtieth_of_the_memories_in_bounds(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = tonights_backend(night)
    monkeypatch.setattr(choosing, "LEAST_SHARD_ROWS", 1)
    monkeypatch.setattr(choosing, "SHARDS_OF_A_NIGHT", 3)
    filled = fill_all(night, backend)
    embed_memories(night)
    assert filled.computed == 4
    assert [fragment.rows for fragment in vectors_kept(night).fragments] == [2, 2]


def test_what_a_killed_night_left_counts_as_known(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = tonights_backend(night)
    monkeypatch.setattr(choosing, "LEAST_SHARD_ROWS", 1)
    monkeypatch.setattr(choosing, "SHARDS_OF_A_NIGHT", 3)

    def power_cut(_: ContentStore, __: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ContentStore, "commit", power_cut)
        with pytest.raises(KeyboardInterrupt):
            fill_all(night, backend)
    first, second = sorted(night.encoder.vectors(backend).directory.glob("*.arrow"))
    first.unlink()
    filled = fill_all(night, backend)
    assert (filled.computed, filled.reused) == (2, 2)
    assert first.exists()
    assert second.exists()


def test_without_onnx_the_library_keeps_its_vectors_the_same_way(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_all(night, tonights_backend(night))
    monkeypatch.setattr(choosing, "toolchain", {}.get)
    result = embed_memories(night)
    assert (result.notes["texts_embedded"], result.notes["texts_reused"]) == (4, 0)
    assert chosen_backend(night).tag == ""
    assert vectors_kept(night).rows == 4
    wanted = night.encoder.sentence.encode_documents(TEXTS)
    np.testing.assert_allclose(read_array(night.work(VECTORS)), wanted, atol=1e-6)
    forget_result(night.paths.work, MEMORY_VECTORS)
    later = Night(night.paths, night.source, night.settings)
    again = embed_memories(later)
    assert (again.notes["texts_embedded"], again.notes["texts_reused"]) == (0, 4)


@given(rows=st.integers(0, 60), count=st.integers(1, 20), group=st.integers(1, 9))
def test_the_sample_is_evenly_spread(
    tmp_path_factory: pytest.TempPathFactory, rows: int, count: int, group: int
) -> None:
    path = tmp_path_factory.mktemp("sample") / "memories.parquet"
    texts = [f"text {number}" for number in range(rows)]
    table = pa.table({"content": pa.array(texts, pa.string())})
    pq.write_table(table, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choosing, "iter_batches", partial(iter_batches, rows=group))
        found = sample_texts(path, count)
    assert found == texts[:: max(rows // count, 1)][:count]


LINES = ["a river", "stone and paper", "window lamp stone river"]


def _night(root: Path, model: Path) -> Night:
    settings = Settings(encoder=EncoderSettings(model=str(model)))
    return Night(StorePaths(root), root / "memory.db", settings)


def _export(night: Night) -> Path:
    return night.encoder.onnx_directory


def _kept(night: Night, tag: str) -> int:
    handles = night.encoder.vectors(Backend(tag)).find([text_key(text) for text in LINES])
    return int((handles >= 0).sum())


def _embed(night: Night, backend: Backend) -> tuple[int, NDArray[np.float32]]:
    found = night.encoder.embed(backend, LINES)
    return found.computed, found.vectors


def test_a_lost_or_damaged_export_is_made_again_with_the_same_bits(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    night = _night(tmp_path / "store", tiny_model("model"))
    backend = night.encoder.choose_backend(LINES)
    _, vectors = _embed(night, backend)
    (_export(night) / MODEL_FILE).write_bytes(b"damaged")
    assert night.encoder.choose_backend(LINES).tag == backend.tag
    shutil.rmtree(_export(night))
    shutil.rmtree(night.work(CONTENT))
    # A later stage of a night whose vectors are up to date: it knows the tag from the facts only.
    computed, found = _embed(night, Backend.from_facts(backend.to_facts()))
    assert computed == 3
    np.testing.assert_array_equal(found, vectors)


def test_a_declined_model_is_embedded_by_sentence_transformers_and_the_facts_say_why(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    night = _night(tmp_path / "store", tiny_model("model"))
    night.encoder.choose_backend(LINES)
    header = json.loads((_export(night) / HEADER_FILE).read_text())
    (_export(night) / HEADER_FILE).write_text(
        json.dumps(header | {"declined": "it is a test", "files": {}})
    )
    backend = night.encoder.choose_backend(LINES)
    assert backend.to_facts() == {"face": LIBRARY, "onnx_declined": "it is a test"}
    assert _embed(night, backend)[0] == 3
    assert _kept(night, "") == 3
    assert Backend.from_facts(backend.to_facts()).tag == ""


def test_a_later_stage_refuses_to_mix_faces(tiny_model: TinyModel, tmp_path: Path) -> None:
    night = _night(tmp_path / "store", tiny_model("model"))
    with pytest.raises(EncoderError, match="embeds again"):
        _embed(night, Backend("onnx-of-another-runtime"))


@pytest.mark.parametrize(("change", "stays"), [(1e-7, True), (0.02, False)])
def test_vectors_of_another_runtime_stay_where_new_ones_agree(
    tiny_model: TinyModel, tmp_path: Path, change: float, stays: bool
) -> None:
    """As after an update: the store's vectors were made by a version that rounds otherwise."""
    said: list[str] = []
    night = _night(tmp_path / "store", tiny_model("model"))
    encoder = night.encoder
    encoder._say = said.append  # pyright: ignore[reportPrivateUsage]
    backend = encoder.choose_backend(LINES)
    _, vectors = _embed(night, backend)
    moved = vectors + np.float32(change) * np.roll(vectors, 1, axis=1)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    header = read_header(_export(night))
    older = {**header.toolchain, "onnxruntime": "1.20.0"}
    write_header(_export(night), replace(header, toolchain=older))
    before = read_header(_export(night)).tag
    values = pa.FixedSizeListArray.from_arrays(pa.array(moved.ravel()), moved.shape[1])
    encoder.vectors(Backend(before)).replace([text_key(text) for text in LINES], values)
    found = encoder.choose_backend(LINES)
    assert (found.tag == before) is stays
    assert "onnxruntime 1.20.0" in said[-1]
    assert ("the kept ones stay" if stays else "every memory is embedded again") in said[-1]
    assert encoder.choose_backend(LINES).tag == found.tag
    assert len(said) == 1, "and is decided once"
