from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.embed import documents as embed_module
from noctuary.embed.documents import (
    Embedded,
    embed_texts,
    fill_vectors,
    put_vectors,
    read_vectors,
    text_key,
    vector_kind,
)
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.work.content import ContentStore

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


def test_every_text_gets_its_own_vector_in_order(path: Path) -> None:
    texts = ["a", "bbb", "cc", "dddd", "ee"]
    result = embed(path, texts, CountingEncoder())
    assert result.vectors.dtype == np.float32
    assert np.array_equal(result.vectors, np.stack([vector_of(t) for t in texts]))
    assert (result.computed, result.reused) == (5, 0)


def test_equal_texts_are_embedded_once(path: Path) -> None:
    encoder = CountingEncoder()
    result = embed(path, ["a", "bb", "a", "a"], encoder)
    assert sorted(encoder.seen) == ["a", "bb"]
    assert result.vectors.shape == (4, 4)
    assert (result.computed, result.reused) == (2, 0)


def test_a_second_time_nothing_is_computed_and_no_model_is_opened(path: Path) -> None:
    first = embed(path, ["a", "bb"], CountingEncoder())
    encoder = CountingEncoder()
    second = embed(path, ["bb", "a"], encoder)
    assert (encoder.opened, second.computed, second.reused) == (0, 0, 2)
    assert np.array_equal(second.vectors, first.vectors[::-1])


def test_only_what_is_new_reaches_the_encoder(path: Path) -> None:
    embed(path, ["a", "bb"], CountingEncoder())
    encoder = CountingEncoder()
    result = embed(path, ["a", "ccc", "bb"], encoder)
    assert encoder.seen == ["ccc"]
    assert (result.computed, result.reused) == (1, 2)


def test_another_encoder_shares_nothing(path: Path) -> None:
    embed(path, ["a"], CountingEncoder())
    other = FINGERPRINT._replace(weights_sha256="cd" * 32)
    encoder = CountingEncoder()
    embed_texts(["a"], store_at(path, other), other, encoder.encode)
    assert encoder.seen == ["a"]
    assert [store_at(path, f).rows for f in (FINGERPRINT, other)] == [1, 1]


def test_no_text_needs_no_model(path: Path) -> None:
    encoder = CountingEncoder()
    result = embed(path, [], encoder)
    assert result.vectors.shape == (0, 4)
    assert encoder.opened == 0


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
    [np.zeros(3), np.zeros(5), np.full(4, np.nan), np.array([1, 0, 0, np.inf])],
    ids=["short", "long", "not a number", "not finite"],
)
def test_a_damaged_vector_is_computed_again(path: Path, damaged: NDArray[np.float64]) -> None:
    embed(path, ["a", "bb"], CountingEncoder())
    put_vectors(store_at(path), {text_key("a"): damaged.astype(np.float32)})
    encoder = CountingEncoder()
    result = embed(path, ["a", "bb"], encoder)
    # Vectors of another size may take those that are read with them along.
    assert set(encoder.seen) >= {"a"}
    assert encoder.seen == ["a"] or len(damaged) != 4
    assert np.array_equal(result.vectors, np.stack([vector_of("a"), vector_of("bb")]))
    again = CountingEncoder()
    assert np.array_equal(embed(path, ["a", "bb"], again).vectors, result.vectors)
    assert again.seen == [], "the damage is gone for good"


@pytest.mark.parametrize("damaged", [b"", b"\0" * 16])
def test_a_value_that_is_no_vector_is_computed_again(path: Path, damaged: bytes) -> None:
    store_at(path).put([text_key("a")], [damaged])
    encoder = CountingEncoder()
    assert np.array_equal(embed(path, ["a"], encoder).vectors[0], vector_of("a"))
    assert encoder.seen == ["a"]


def test_progress_is_told_what_is_durable(path: Path) -> None:
    recorder = Recorder()
    texts = ["x" * n for n in range(1, 21)]
    embed_texts(texts, store_at(path), FINGERPRINT, CountingEncoder().encode, recorder)
    assert recorder.updates == [("memory_vectors", 16, 20), ("memory_vectors", 20, 20)]


def test_any_text_has_a_key_and_different_texts_have_different_ones() -> None:
    texts = ["", "a", "A", "a ", "á", "a\u0301", "\ud800", "🔑", "\x00"]
    assert len({text_key(t) for t in texts}) == len(texts)


def test_two_faces_of_one_model_share_nothing(path: Path) -> None:
    embed(path, ["a"], CountingEncoder())
    seen: list[list[str]] = []
    for face in ("onnx-1", "onnx-1", "onnx-2"):
        encoder = CountingEncoder()
        embed_texts(["a"], store_at(path, face=face), FINGERPRINT, encoder.encode)
        seen.append(encoder.seen)
    assert seen == [["a"], [], ["a"]]


def test_many_texts_are_read_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed_module, "WINDOW_ROWS", 3)
    monkeypatch.setattr(embed_module, "TAKE_ROWS", 2)
    texts = ["a", "bb", "a", "ccc", "dddd", "eeeee", "bb", "ffffff"]
    result = embed(path, texts, CountingEncoder())
    assert np.array_equal(result.vectors, np.stack([vector_of(t) for t in texts]))
    assert (result.computed, result.reused) == (6, 0)
    assert embed(path, texts, CountingEncoder()).reused == 6


def test_a_text_that_was_never_embedded_has_no_vector(path: Path) -> None:
    embed(path, ["a"], CountingEncoder())
    found = read_vectors(store_at(path), [text_key("a"), text_key("never")], 4)
    assert np.array_equal(found[0], vector_of("a"))
    assert np.isnan(found[1]).all()


def test_vectors_can_be_filled_without_reading_them(path: Path) -> None:
    encoder = CountingEncoder()
    filled = fill_vectors(["a", "bb", "a"], store_at(path), FINGERPRINT, encoder.encode)
    assert (filled.computed, filled.reused) == (2, 0)
    assert embed(path, ["bb", "a"], CountingEncoder()).computed == 0


def test_a_text_that_the_encoder_leaves_out_is_an_error(path: Path) -> None:
    class Forgetful(CountingEncoder):
        def iter_document_batches(
            self, texts: Sequence[str]
        ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
            yield [0], vector_of(texts[0])[None]

    with pytest.raises(EncoderError, match="1 texts got no finite vector of 4 numbers"):
        embed(path, ["a", "never"], Forgetful())


def test_a_vector_that_is_not_finite_is_an_error_and_no_result(path: Path) -> None:
    class Broken(CountingEncoder):
        def iter_document_batches(
            self, texts: Sequence[str]
        ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
            yield [0], np.full((1, 4), np.nan, dtype=np.float32)

    with pytest.raises(EncoderError, match="no finite vector"):
        embed(path, ["a"], Broken())
