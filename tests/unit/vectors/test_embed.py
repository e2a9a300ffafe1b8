from __future__ import annotations

from noctuary.graph.canonical import Memo
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.embed import documents as embed_module
from noctuary.embed.documents import Embedded, embed_texts, iter_known, memo_kind, text_key
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

    def open(self) -> CountingEncoder:
        self.opened += 1
        return self

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
    return tmp_path / "memo.sqlite"


def embed(path: Path, texts: Sequence[str], encoder: CountingEncoder) -> Embedded:
    with Memo.open(path) as memo:
        return embed_texts(texts, memo, FINGERPRINT, encoder.open)


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
    other = replace(FINGERPRINT, weights_sha256="cd" * 32)
    encoder = CountingEncoder()
    with Memo.open(path) as memo:
        embed_texts(["a"], memo, other, encoder.open)
        assert encoder.seen == ["a"]
        assert memo.get_many(memo_kind(FINGERPRINT), [text_key("a")])
        assert memo.get_many(memo_kind(other), [text_key("a")])


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
    [b"", b"\x00" * 15, b"\x00" * 20, np.full(4, np.nan, "<f4").tobytes()],
    ids=["empty", "short", "long", "not finite"],
)
def test_a_damaged_vector_is_computed_again(path: Path, damaged: bytes) -> None:
    embed(path, ["a", "bb"], CountingEncoder())
    with Memo.open(path) as memo:
        memo.put_many(memo_kind(FINGERPRINT), {text_key("a"): damaged})
    encoder = CountingEncoder()
    result = embed(path, ["a", "bb"], encoder)
    assert encoder.seen == ["a"]
    assert np.array_equal(result.vectors[0], vector_of("a"))


def test_progress_is_told_what_is_durable(path: Path) -> None:
    recorder = Recorder()
    with Memo.open(path) as memo:
        texts = ["x" * n for n in range(1, 21)]
        embed_texts(texts, memo, FINGERPRINT, CountingEncoder().open, recorder)
    assert recorder.updates == [("memory_vectors", 16, 20), ("memory_vectors", 20, 20)]


def test_any_text_has_a_key_and_different_texts_have_different_ones() -> None:
    texts = ["", "a", "A", "a ", "á", "a\u0301", "\ud800", "🔑", "\x00"]
    assert len({text_key(t) for t in texts}) == len(texts)


def test_two_faces_of_one_model_share_nothing(path: Path) -> None:
    embed(path, ["a"], CountingEncoder())
    encoder = CountingEncoder()
    with Memo.open(path) as memo:
        embed_texts(["a"], memo, FINGERPRINT, encoder.open, face="onnx-1")
        again = CountingEncoder()
        embed_texts(["a"], memo, FINGERPRINT, again.open, face="onnx-1")
        newer = CountingEncoder()
        embed_texts(["a"], memo, FINGERPRINT, newer.open, face="onnx-2")
    assert (encoder.seen, again.seen, newer.seen) == (["a"], [], ["a"])


def test_many_texts_are_read_in_parts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed_module, "READ_ROWS", 3)
    texts = ["a", "bb", "a", "ccc", "dddd", "eeeee", "bb", "ffffff"]
    result = embed(path, texts, CountingEncoder())
    assert np.array_equal(result.vectors, np.stack([vector_of(t) for t in texts]))
    assert (result.computed, result.reused) == (6, 0)
    with Memo.open(path) as memo:
        blocks = list(iter_known(texts, memo, FINGERPRINT))
    assert [len(block) for block in blocks] == [3, 3, 2]


def test_a_text_that_was_never_embedded_has_no_vector(path: Path) -> None:
    embed(path, ["a"], CountingEncoder())
    with Memo.open(path) as memo, pytest.raises(EncoderError, match="1 texts got no finite vector"):
        list(iter_known(["a", "never"], memo, FINGERPRINT))


def test_a_vector_that_is_not_finite_is_an_error_and_no_result(path: Path) -> None:
    class Broken(CountingEncoder):
        def iter_document_batches(
            self, texts: Sequence[str]
        ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
            yield [0], np.full((1, 4), np.nan, dtype=np.float32)

    with pytest.raises(EncoderError, match="no finite vector"):
        embed(path, ["a"], Broken())
