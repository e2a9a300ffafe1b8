"""Vectors out of a content store: every key its own, whatever the order, and damage is told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.files import hash_text
from noctuary.embed import documents as embed_task
from noctuary.embed.documents import keyed_texts, read_vectors, write_vectors
from noctuary.work.content import ContentStore
from noctuary.work.shards import Shard, fragment_path, write_table

DIM = 3
Floats = NDArray[np.float32]


def key_of(text: str) -> bytes:
    return bytes.fromhex(hash_text(text))


def vector_of(text: str) -> Floats:
    return np.frombuffer(key_of(text)[:DIM], dtype=np.uint8).astype(np.float32)


def add(store: ContentStore, name: str, texts: Sequence[str], values: Any) -> None:
    keys = pa.array([key_of(text) for text in texts], pa.binary(32))
    path = fragment_path(store.directory, name)
    rows = write_table(path, [pa.record_batch([keys, values], names=["key", "value"])])
    store.commit([Shard(name, path, rows)])


def as_values(texts: Sequence[str], dimension: int = DIM) -> Any:
    flat = np.stack([np.resize(vector_of(text), dimension) for text in texts]).ravel()
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), dimension)


@pytest.fixture
def store(tmp_path: Path) -> ContentStore:
    """Three fragments of 5, 1 and 4 texts: "a0".."a4", "b0", "c0".."c3"."""
    store = ContentStore(tmp_path / "content", "vectors")
    for name, count in (("a", 5), ("b", 1), ("c", 4)):
        texts = [f"{name}{number}" for number in range(count)]
        add(store, name, texts, as_values(texts))
    return store


KNOWN = ["a0", "a1", "a2", "a3", "a4", "b0", "c0", "c1", "c2", "c3"]


@given(texts=st.lists(st.sampled_from([*KNOWN, "unknown"]), max_size=30), take=st.integers(1, 7))
def test_any_order_of_keys_gives_each_its_own_vector(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], take: int
) -> None:
    store = ContentStore(tmp_path_factory.mktemp("store"), "vectors")
    for name in "abc":
        own = [text for text in KNOWN if text[0] == name]
        add(store, name, own, as_values(own))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embed_task, "TAKE_ROWS", take)
        found = read_vectors(store, [key_of(text) for text in texts], DIM)
    assert found.shape == (len(texts), DIM)
    for row, text in zip(found, texts, strict=True):
        if text == "unknown":
            assert np.isnan(row).all()
        else:
            np.testing.assert_array_equal(row, vector_of(text))


@pytest.mark.parametrize("window", [1, 3, 10, 1000])
def test_a_file_written_window_by_window_is_that_of_the_whole_array(
    store: ContentStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    monkeypatch.setattr(embed_task, "WINDOW_ROWS", window)
    read = embed_task.read_vectors
    held: list[int] = []

    def noted(store: ContentStore, keys: Sequence[bytes], dimension: int) -> Floats:
        held.append(len(keys))
        return read(store, keys, dimension)

    monkeypatch.setattr(embed_task, "read_vectors", noted)
    texts = [*KNOWN[::-1], "a3", "a3", *KNOWN]
    batches = [[key_of(text) for text in texts[at : at + 4]] for at in range(0, len(texts), 4)]
    path = tmp_path / "vectors.npy"
    assert write_vectors(path, store, batches, len(texts), DIM) == []
    assert max(held) == min(window, len(texts)), "no more is held than a window"
    np.save(tmp_path / "whole.npy", np.stack([vector_of(text) for text in texts]))
    assert path.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_no_memory_at_all_is_an_empty_array(store: ContentStore, tmp_path: Path) -> None:
    assert write_vectors(tmp_path / "v.npy", store, [], 0, DIM) == []
    assert np.load(tmp_path / "v.npy").shape == (0, DIM)


def test_keys_without_a_usable_vector_are_told_and_nan(store: ContentStore, tmp_path: Path) -> None:
    add(
        store,
        "nan",
        ["n", "fine"],
        pa.FixedSizeListArray.from_arrays(
            pa.array(np.array([1, np.nan, 0, 1, 2, 3], dtype=np.float32)), DIM
        ),
    )
    add(store, "short", ["s"], as_values(["s"], DIM - 1))
    add(store, "text", ["t"], pa.array(["no vector"]))
    add(store, "null", ["0"], pa.array([None], pa.list_(pa.float32(), DIM)))
    texts = ["a0", "n", "s", "c3", "absent", "t", "fine", "0"]
    path = tmp_path / "v.npy"
    told = [write_vectors(path, store, [[key_of(text)] for text in texts], len(texts), DIM)]
    bad = {"n", "s", "absent", "t", "0"}
    # One by one; together, damaged fragments may take a good neighbour's piece with them.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embed_task, "TAKE_ROWS", 1)
        told.append(write_vectors(path, store, [[key_of(t) for t in texts]], len(texts), DIM))
    assert set(told[0]) >= {key_of(text) for text in bad}
    assert set(told[1]) == {key_of(text) for text in bad}
    rows = np.load(path)
    np.testing.assert_array_equal(rows[0], vector_of("a0"))
    np.testing.assert_array_equal(rows[6], [1, 2, 3])
    assert [bool(np.isfinite(row).all()) for row in rows] == [text not in bad for text in texts]


def test_more_or_fewer_keys_than_rows_leave_no_file(store: ContentStore, tmp_path: Path) -> None:
    keys = [[key_of(text) for text in KNOWN]]
    for rows in (len(KNOWN) - 1, len(KNOWN) + 1):
        with pytest.raises(ValueError, match=f"{len(KNOWN)} rows came"):
            write_vectors(tmp_path / "v.npy", store, keys, rows, DIM)
    assert not (tmp_path / "v.npy").exists()


def test_texts_are_keyed_in_order_and_kept() -> None:
    texts = ["b", "", "a", "b", "é🔑"]
    batch = keyed_texts(pa.record_batch([pa.array(texts)], names=["content"]))
    assert batch.column("content").to_pylist() == texts
    assert batch.column("key").to_pylist() == [key_of(text) for text in texts]
    assert batch.schema.field("key").type == pa.binary(32)
