"""Vectors out of a content store: every key its own, whatever the order, and damage is told."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_text
from noctuary.embed import documents as embed_module
from noctuary.embed import documents as embed_task
from noctuary.embed.documents import (
    Embedded,
    embed_texts,
    fill_vectors,
    keyed_texts,
    put_vectors,
    read_vectors,
    share_files,
    text_key,
    vector_kind,
    write_vectors,
)
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.lean import WEIGHTS_FILE, LeanEncoder
from noctuary.work.content import ContentStore
from noctuary.work.shards import Shard, fragment_path, write_table
from tests.support.lean import write_encoder

FINGERPRINT = EncoderFingerprint("by hand", "ab" * 32, 4, "mean", True, "", "", 16)
BATCH_TEXTS = 2


def vector_of(text: str) -> NDArray[np.float32]:
    """A legible unit vector: texts of one length share an axis."""
    vector = np.zeros(4, dtype=np.float32)
    vector[len(text) % 4] = 1.0
    return vector


@dataclass
class CountingEncoder:
    """Two texts per batch, longest first, as the real one sorts; may fail after some batches."""

    fail_after: int | None = None
    seen: list[str] = field(default_factory=list[str])
    opened: int = 0

    def encode(self, texts: Sequence[str]) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        self.opened += 1
        return self.iter_document_batches(texts)

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        places = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        for number, start in enumerate(range(0, len(places), BATCH_TEXTS)):
            if number == self.fail_after:
                raise EncoderError("the power went out")
            batch = places[start : start + BATCH_TEXTS]
            self.seen += [texts[i] for i in batch]
            yield batch, np.stack([vector_of(texts[i]) for i in batch])


class Recorder:
    def __init__(self) -> None:
        self.updates: list[tuple[str, int, int]] = []

    def update(self, task: str, done: int, total: int) -> None:
        self.updates.append((task, done, total))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "content"


def store_at(
    path: Path, fingerprint: EncoderFingerprint = FINGERPRINT, face: str = ""
) -> ContentStore:
    return ContentStore(path, vector_kind(fingerprint, face))


def embed(path: Path, texts: Sequence[str], encoder: CountingEncoder) -> Embedded:
    return embed_texts(texts, store_at(path), FINGERPRINT, encoder.encode)


@pytest.mark.parametrize(
    ("before", "texts", "seen"),
    [
        ([], ["a", "bbb", "cc", "dddd", "ee"], ["a", "bbb", "cc", "dddd", "ee"]),
        ([], ["a", "bb", "a", "a"], ["a", "bb"]),
        (["a", "bb"], ["bb", "a"], []),
        (["a", "bb"], ["a", "ccc", "bb"], ["ccc"]),
        ([], [], []),
    ],
)
def test_only_new_texts_reach_the_encoder_once_and_each_gets_its_own_vector(
    path: Path, before: list[str], texts: list[str], seen: list[str]
) -> None:
    fill_vectors([*before, *before], store_at(path), FINGERPRINT, CountingEncoder().encode)
    encoder = CountingEncoder()
    result = embed(path, texts, encoder)
    assert sorted(encoder.seen) == seen
    assert encoder.opened == (1 if seen else 0), "no model is opened for nothing"
    assert (result.computed, result.reused) == (len(seen), len(set(texts)) - len(seen))
    assert result.vectors.dtype == np.float32
    rows = [vector_of(text) for text in texts]
    assert np.array_equal(result.vectors, np.array(rows).reshape(-1, 4))


def test_what_was_written_before_a_failure_is_kept(path: Path) -> None:
    """Of 10 batches, 8 are one durable write; the ninth is lost with the tenth."""
    texts = ["x" * n for n in range(1, 21)]
    broken = CountingEncoder(fail_after=9)
    with pytest.raises(EncoderError, match="power"):
        embed(path, texts, broken)
    assert len(broken.seen) == 18
    again = CountingEncoder()
    result = embed(path, texts, again)
    assert (result.computed, result.reused) == (4, 16)
    assert np.array_equal(result.vectors, np.stack([vector_of(t) for t in texts]))


@pytest.mark.parametrize(
    "damaged",
    [np.zeros(3), np.zeros(5), np.full(4, np.nan), np.array([1, 0, 0, np.inf]), b"", b"\0" * 16],
    ids=["short", "long", "not-a-number", "not-finite", "no-bytes", "zeros"],
)
def test_a_damaged_vector_is_computed_again(
    path: Path, damaged: NDArray[np.float64] | bytes
) -> None:
    embed(path, ["a", "bb"], CountingEncoder())
    if isinstance(damaged, bytes):
        store_at(path).put([text_key("a")], [damaged])
    else:
        put_vectors(store_at(path), {text_key("a"): damaged.astype(np.float32)})
    encoder = CountingEncoder()
    result = embed(path, ["a", "bb"], encoder)
    # Vectors of another size may take those that are read with them along.
    assert set(encoder.seen) >= {"a"}
    assert encoder.seen == ["a"] or isinstance(damaged, bytes) or len(damaged) != 4
    assert np.array_equal(result.vectors, np.stack([vector_of("a"), vector_of("bb")]))
    again = CountingEncoder()
    assert np.array_equal(embed(path, ["a", "bb"], again).vectors, result.vectors)
    assert again.seen == [], "the damage is gone for good"


def test_progress_is_told_what_is_durable(path: Path) -> None:
    recorder = Recorder()
    texts = ["x" * n for n in range(1, 21)]
    embed_texts(texts, store_at(path), FINGERPRINT, CountingEncoder().encode, recorder)
    assert recorder.updates == [("memory_vectors", 16, 20), ("memory_vectors", 20, 20)]


def test_any_text_has_a_key_and_different_texts_have_different_ones() -> None:
    texts = ["", "a", "A", "a ", "á", "a\u0301", "\ud800", "🔑", "\x00"]
    assert len({text_key(t) for t in texts}) == len(texts)


def test_two_faces_of_one_model_and_two_encoders_share_nothing(path: Path) -> None:
    embed(path, ["a"], CountingEncoder())
    other = FINGERPRINT._replace(weights_sha256="cd" * 32)
    another = CountingEncoder()
    embed_texts(["a"], store_at(path, other), other, another.encode)
    seen = [another.seen]
    assert [store_at(path, f).rows for f in (FINGERPRINT, other)] == [1, 1]
    for face in ("onnx-1", "onnx-1", "onnx-2"):
        encoder = CountingEncoder()
        embed_texts(["a"], store_at(path, face=face), FINGERPRINT, encoder.encode)
        seen.append(encoder.seen)
    assert seen == [["a"], ["a"], [], ["a"]]


class Unreliable(CountingEncoder):
    """Forgets the last text, and knows no finite vector of "nan"."""

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        yield [0], np.full((1, 4), np.nan if texts[0] == "nan" else 0.5, dtype=np.float32)


@pytest.mark.parametrize("texts", [["a", "never"], ["nan"]])
def test_a_text_without_a_finite_vector_is_an_error_and_no_result(
    path: Path, texts: list[str]
) -> None:
    with pytest.raises(EncoderError, match="1 texts got no finite vector of 4 numbers"):
        embed(path, texts, Unreliable())


def test_many_texts_are_read_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed_module, "WINDOW_ROWS", 3)
    monkeypatch.setattr(embed_module, "TAKE_ROWS", 2)
    texts = ["a", "bb", "a", "ccc", "dddd", "eeeee", "bb", "ffffff"]
    result = embed(path, texts, CountingEncoder())
    assert np.array_equal(result.vectors, np.stack([vector_of(t) for t in texts]))
    assert (result.computed, result.reused) == (6, 0)
    assert embed(path, texts, CountingEncoder()).reused == 6


DIM = 3
Floats = NDArray[np.float32]


def key_of(text: str) -> bytes:
    return bytes.fromhex(hash_text(text))


def seeded_vector(text: str) -> Floats:
    return np.frombuffer(key_of(text)[:DIM], dtype=np.uint8).astype(np.float32)


def add(store: ContentStore, name: str, texts: Sequence[str], values: Any) -> None:
    keys = pa.array([key_of(text) for text in texts], pa.binary(32))
    path = fragment_path(store.directory, name)
    rows = write_table(path, [pa.record_batch([keys, values], names=["key", "value"])])
    store.commit([Shard(name, path, rows)])


def as_values(texts: Sequence[str], dimension: int = DIM) -> Any:
    flat = np.stack([np.resize(seeded_vector(text), dimension) for text in texts]).ravel()
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
            np.testing.assert_array_equal(row, seeded_vector(text))


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
    np.save(tmp_path / "whole.npy", np.stack([seeded_vector(text) for text in texts]))
    assert path.read_bytes() == (tmp_path / "whole.npy").read_bytes()


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
    np.testing.assert_array_equal(rows[0], seeded_vector("a0"))
    np.testing.assert_array_equal(rows[6], [1, 2, 3])
    assert [bool(np.isfinite(row).all()) for row in rows] == [text not in bad for text in texts]


def test_more_or_fewer_keys_than_rows_leave_no_file(store: ContentStore, tmp_path: Path) -> None:
    keys = [[key_of(text) for text in KNOWN]]
    assert write_vectors(tmp_path / "none.npy", store, [], 0, DIM) == []
    assert np.load(tmp_path / "none.npy").shape == (0, DIM)
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


def inodes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in directory.iterdir()}


@pytest.fixture
def stores(tmp_path: Path) -> list[Path]:
    """The encoders of three stores, made apart, one after the other."""
    made = [write_encoder(tmp_path / name / "encoders") for name in ("one", "two", "three")]
    digest = made[0].fingerprint.digest
    return [tmp_path / name / "encoders" / digest for name in ("one", "two", "three")]


def test_equal_files_become_one_and_stay_so(stores: list[Path], tmp_path: Path) -> None:
    contents = {path.name: path.read_bytes() for path in stores[0].iterdir()}
    for directory in (*reversed(stores), *stores):
        share_files(directory, tmp_path)
    first = inodes(stores[0])
    assert len(first) == 3
    for directory in stores:
        assert inodes(directory) == first
        assert {path.name: path.read_bytes() for path in directory.iterdir()} == contents
        LeanEncoder.open(directory, verify=True)
    for directory in (*stores, *reversed(stores)):
        share_files(directory, tmp_path)
    assert inodes(stores[2]) == first, "a night that changes nothing links nothing"


def test_a_store_is_mended_and_removed_without_the_others(
    stores: list[Path], tmp_path: Path
) -> None:
    for directory in stores:
        share_files(directory, tmp_path)
    weights = stores[0] / WEIGHTS_FILE
    whole = weights.read_bytes()
    weights.write_bytes(b"x" * len(whole))  # in its place: damage, which reaches all that share it
    write_encoder(tmp_path / "fresh")
    shutil.rmtree(stores[1])
    shutil.copytree(tmp_path / "fresh" / stores[1].name, stores[1])
    share_files(stores[1], tmp_path)
    assert (stores[1] / WEIGHTS_FILE).read_bytes() == whole, "nothing links to what differs"
    shutil.rmtree(stores[0].parents[1])
    LeanEncoder.open(stores[1], verify=True)


def test_what_is_not_there_or_alone_is_left(tmp_path: Path) -> None:
    share_files(tmp_path / "one" / "encoders" / "none", tmp_path)
    (tmp_path / "one" / "encoders" / "a").mkdir(parents=True)
    (tmp_path / "one" / "encoders" / "a" / WEIGHTS_FILE).write_bytes(b"w")
    before = inodes(tmp_path / "one" / "encoders" / "a")
    share_files(tmp_path / "one" / "encoders" / "a", tmp_path)
    assert inodes(tmp_path / "one" / "encoders" / "a") == before
