from __future__ import annotations

import importlib
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from noctuary.core.errors import EncoderError
from noctuary.embed import sentence as locate
from noctuary.embed.onnx import MAX_HEAD_CHARS
from noctuary.embed.sentence import (
    DEFAULT_MODEL,
    DEFAULT_WEIGHTS_SHA256,
    SentenceEncoder,
    open_sentence_encoder,
)

TinyModel = Callable[..., Path]
WORDS = [
    "river",
    "stone",
    "paper",
    "lamp",
    "северный",
    "北京",
    "window!",
    "quartz-like",
    "un-affable",
    "🙂",
    "don't",
]


def _varied_texts(count: int) -> list[str]:
    rng = random.Random(3)
    lengths = [1, 1, 1, 2, 3, 400, *(rng.randrange(1, 60) for _ in range(count - 6))]
    return [" ".join(rng.choice(WORDS) for _ in range(length)) for length in lengths]


def test_fingerprint_of_the_default_model(minilm: SentenceEncoder) -> None:
    found = minilm.fingerprint
    assert (found.model, found.weights_sha256) == (DEFAULT_MODEL, DEFAULT_WEIGHTS_SHA256)
    assert (found.dimension, found.pooling, found.normalized) == (384, "mean", True)
    assert (found.query_prefix, found.document_prefix, found.max_tokens) == ("", "", 256)


def test_vectors_do_not_depend_on_order_or_neighbours(minilm: SentenceEncoder) -> None:
    texts = _varied_texts(60)
    first = minilm.encode_documents(texts)
    order = list(range(60))
    random.Random(11).shuffle(order)
    shuffled = minilm.encode_documents([texts[i] for i in order])
    np.testing.assert_array_equal(shuffled, first[order])
    for position in (0, 1, 3, 5, 30, 59):
        alone = minilm.encode_documents([texts[position]])
        np.testing.assert_array_equal(alone[0], first[position])
        np.testing.assert_array_equal(minilm.encode_query(texts[position]), first[position])
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, atol=1e-6)


@pytest.mark.slow
def test_vectors_do_not_depend_on_neighbours_with_two_threads(minilm: SentenceEncoder) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        test_vectors_do_not_depend_on_order_or_neighbours(minilm)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("text", "same_as"),
    [("stone river " * 1_000_000, "stone river " * 300), ("x" * 10**7, "x" * 101)],
)
def test_a_huge_text_is_encoded_by_its_head(
    minilm: SentenceEncoder, text: str, same_as: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    count = SentenceEncoder.token_counts

    def spy(encoder: SentenceEncoder, texts: Sequence[str], prefix: str = "") -> list[int]:
        read.extend(map(len, texts))
        return count(encoder, texts, prefix)

    monkeypatch.setattr(SentenceEncoder, "token_counts", spy)
    ((_, vectors),) = minilm.iter_document_batches([text])
    # Tokenizing all of it would take a minute.
    assert sum(read) < 3 * MAX_HEAD_CHARS
    np.testing.assert_array_equal(vectors, minilm.encode_documents([same_as]))


def test_vectors_are_those_of_the_library(minilm: SentenceEncoder) -> None:
    texts = _varied_texts(12)
    expected = minilm.model.encode(texts, show_progress_bar=False)
    np.testing.assert_allclose(minilm.encode_documents(texts), expected, atol=1e-6)


def test_batches_come_longest_first_and_cover_every_text_once(minilm: SentenceEncoder) -> None:
    texts = ["a b c", "a", "d e f", *["x"] * 9]
    found = list(minilm.iter_document_batches(texts))
    assert [positions for positions, _ in found] == [
        [0, 2],
        [1, 3, 4, 5, 6, 7, 8, 9],
        [10, 11],
    ]
    assert [vectors.shape for _, vectors in found] == [(2, 384), (8, 384), (2, 384)]


def test_batches_are_computed_when_asked_for(minilm: SentenceEncoder) -> None:
    batches = minilm.iter_document_batches(["one two three", "one"])
    positions, vectors = next(batches)
    assert positions == [0]
    np.testing.assert_array_equal(vectors, minilm.encode_documents(["one two three"]))


def test_the_end_of_a_truncated_text_does_not_count(minilm: SentenceEncoder) -> None:
    # 254 words of one token each plus the two control tokens fill the model exactly.
    exact, over = "stone " * 254, "stone " * 255
    batches = minilm.iter_document_batches([over, exact, "stone", "stone " * 5000])
    vectors = dict(zip(*next(batches), strict=True))
    np.testing.assert_array_equal(vectors[0], vectors[1])


def test_blank_broken_and_odd_texts_get_unit_vectors(minilm: SentenceEncoder) -> None:
    texts = [
        "",
        " \n\t",
        "\0",
        "\ud800",
        "\ufffd",
        "🙂",
        "e\u0301",
        "https://example.invalid/a.png",
    ]
    vectors = minilm.encode_documents(texts)
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(vectors[0], vectors[3])


def test_no_texts(minilm: SentenceEncoder) -> None:
    assert minilm.encode_documents([]).shape == (0, 384)
    assert list(minilm.iter_document_batches([])) == []


def test_progress_reaches_the_total(minilm: SentenceEncoder) -> None:
    seen: list[tuple[str, int, int]] = []

    class Recorder:
        def update(self, task: str, done: int, total: int) -> None:
            seen.append((task, done, total))

    minilm.encode_documents(["a", "b c", "d e f"], Recorder())
    assert [done for _, done, _ in seen] == [1, 2, 3]
    assert {(task, total) for task, _, total in seen} == {("encode", 3)}


def test_transformers_settings_are_put_back(minilm: SentenceEncoder) -> None:
    settings = importlib.import_module("transformers.utils.logging")
    before = (settings.get_verbosity(), settings.is_progress_bar_enabled())
    minilm.encode_documents(["a"])
    assert (settings.get_verbosity(), settings.is_progress_bar_enabled()) == before


def test_nothing_is_written_to_the_terminal(
    tiny_model: TinyModel, capfd: pytest.CaptureFixture[str]
) -> None:
    encoder = open_sentence_encoder(str(tiny_model("quiet")))
    encoder.encode_documents(["stone " * 600, "b"])
    assert capfd.readouterr() == ("", "")


def test_a_local_directory_is_a_model(tiny_model: TinyModel) -> None:
    encoder = open_sentence_encoder(str(tiny_model("my-tiny", pooling="cls")))
    assert (encoder.fingerprint.model, encoder.fingerprint.pooling) == ("my-tiny", "cls")
    assert encoder.encode_documents(["a", "b c"]).shape == (2, 32)


def test_prompts_of_the_model_are_prefixes(tiny_model: TinyModel) -> None:
    directory = tiny_model("prompted")
    (directory / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "ask: ", "passage": "tell: "}, "default_prompt_name": "query"}'
    )
    prompted = open_sentence_encoder(str(directory))
    plain = open_sentence_encoder(str(tiny_model("plain")))
    assert prompted.fingerprint.query_prefix == "ask: "
    assert prompted.fingerprint.document_prefix == "tell: "
    np.testing.assert_array_equal(prompted.encode_query("stone"), plain.encode_query("ask: stone"))
    np.testing.assert_array_equal(
        prompted.encode_documents(["stone", ""]), plain.encode_documents(["tell: stone", "tell: "])
    )


def test_weights_that_are_not_finite_name_the_text(tiny_model: TinyModel) -> None:
    directory = tiny_model("broken")
    weights = load_file(directory / "model.safetensors")
    vocab = (directory / "vocab.txt").read_text("utf-8").split("\n")
    weights["embeddings.word_embeddings.weight"][vocab.index("x")] = np.nan
    save_file(weights, directory / "model.safetensors")
    encoder = open_sentence_encoder(str(directory))
    with pytest.raises(EncoderError, match="for text 1; expected finite numbers"):
        encoder.encode_documents(["stone", "x"])


def test_other_weights_under_the_default_name_are_refused(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tiny_model("impostor")
    (tmp_path / "impostor_package.py").write_text(f"MODEL_DIR = {str(directory)!r}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(locate, "DEFAULT_PACKAGE", "impostor_package")
    with pytest.raises(EncoderError, match="expected 53aa5117"):
        open_sentence_encoder()


def test_missing_default_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "DEFAULT_PACKAGE", "absent_model_package")
    with pytest.raises(EncoderError, match=r"Install noctuary\[pipelines\]"):
        open_sentence_encoder()


def test_a_damaged_model_is_an_encoder_error(tiny_model: TinyModel) -> None:
    directory = tiny_model("damaged")
    (directory / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(EncoderError, match="cannot be loaded"):
        open_sentence_encoder(str(directory))


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, noctuary.embed.sentence, noctuary.embed.sentence\n"
        "print(sorted({'torch', 'transformers', 'sentence_transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
