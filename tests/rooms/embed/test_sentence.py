from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file
from noctuary.embed import checkpoint as export
from noctuary.embed import default_model as locate
from noctuary.embed.checkpoint import DEFAULT_WEIGHTS_SHA256, PROBE_TEXTS
from noctuary.embed.default_model import DEFAULT_MODEL
from noctuary.embed.fingerprint import EncoderUnsupportedError
from noctuary.embed.lean import HEADER_FILE, VOCAB_FILE, WEIGHTS_FILE, LeanEncoder
from noctuary.embed.onnx import MAX_HEAD_CHARS
from noctuary.embed.sentence import (
    SentenceEncoder,
    locate_model,
    model_name,
    open_sentence_encoder,
    weights_sha256,
)
from tests.rooms.embed.conftest import TinyModel, export_lean

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
    library = minilm.model.encode(texts, show_progress_bar=False)
    np.testing.assert_allclose(first, library, atol=1e-6)


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


def test_batches_come_longest_first_and_cover_every_text_once(minilm: SentenceEncoder) -> None:
    texts = ["a b c", "a", "d e f", *["x"] * 9]
    found = list(minilm.iter_document_batches(texts))
    assert [positions for positions, _ in found] == [[0, 2], [1, 3, 4, 5, 6, 7, 8, 9], [10, 11]]
    assert [vectors.shape for _, vectors in found] == [(2, 384), (8, 384), (2, 384)]
    assert minilm.encode_documents([]).shape == (0, 384)
    assert list(minilm.iter_document_batches([])) == []
    seen: list[tuple[str, int, int]] = []

    class Recorder:
        def update(self, task: str, done: int, total: int) -> None:
            seen.append((task, done, total))

    minilm.encode_documents(["a", "b c", "d e f"], Recorder())
    assert seen == [("encode", done, 3) for done in (1, 2, 3)]


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


def test_transformers_settings_are_put_back(minilm: SentenceEncoder) -> None:
    settings = importlib.import_module("transformers.utils.logging")
    before = (settings.get_verbosity(), settings.is_progress_bar_enabled())
    minilm.encode_documents(["a"])
    assert (settings.get_verbosity(), settings.is_progress_bar_enabled()) == before


def test_prompts_of_the_model_are_prefixes(tiny_model: TinyModel, tmp_path: Path) -> None:
    directory = tiny_model("prompted")
    (directory / "config_sentence_transformers.json").write_text(
        '{"prompts": {"query": "ask: ", "passage": "tell: "}, "default_prompt_name": "query"}'
    )
    prompted = opened(directory)
    export_lean(prompted, tmp_path / "lean", [])
    lean = LeanEncoder.open(tmp_path / "lean")
    np.testing.assert_allclose(lean.encode_query("a"), prompted.encode_query("a"), atol=1e-5)
    found = lean.encode_documents(["a"])
    np.testing.assert_allclose(found, prompted.encode_documents(["a"]), atol=1e-5)
    assert not np.allclose(lean.encode_query("a"), found[0], atol=1e-3)
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
    (tmp_path / "impostor_package").mkdir()
    (tmp_path / "impostor_package" / "__init__.py").touch()
    (tmp_path / "impostor_package" / "model").symlink_to(directory)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(locate, "DEFAULT_PACKAGE", "impostor_package")
    with pytest.raises(EncoderError, match="expected 53aa5117"):
        open_sentence_encoder()


def test_missing_default_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locate, "DEFAULT_PACKAGE", "absent_model_package")
    with pytest.raises(EncoderError, match="`noctuary nightly` fetches it"):
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


def test_default_model_is_the_installed_package_with_the_expected_weights() -> None:
    directory = locate_model(DEFAULT_MODEL)
    assert DEFAULT_WEIGHTS_SHA256.startswith("53aa5117")
    assert weights_sha256(directory) == DEFAULT_WEIGHTS_SHA256
    assert model_name(DEFAULT_MODEL) == DEFAULT_MODEL


@pytest.mark.parametrize("model", ["./absent", "/absent/model", "~/absent-model", ""])
def test_an_absent_path_says_so(model: str) -> None:
    with pytest.raises(EncoderError, match="no model directory at"):
        locate_model(model)


@pytest.mark.parametrize("model", ["absent-model-x", "nobody/absent-model-x", "a/b/c d"])
def test_an_uncached_name_says_what_to_do(model: str) -> None:
    with pytest.raises(EncoderError, match="noctuary never downloads: fetch it yourself"):
        locate_model(model)


def test_one_weights_file_gives_its_own_hash_and_formats_are_not_counted_twice(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"one")
    (tmp_path / "pytorch_model.bin").write_bytes(b"same weights, other format")
    assert weights_sha256(tmp_path) == hash_file(tmp_path / "model.safetensors")
    dense = tmp_path / "2_Dense"
    dense.mkdir()
    (tmp_path / "modules.json").write_text(json.dumps([{"path": ""}, {"path": "2_Dense"}]))
    (dense / "model.safetensors").write_bytes(b"two")
    first = weights_sha256(tmp_path)
    (dense / "model.safetensors").write_bytes(b"three")
    assert weights_sha256(tmp_path) != first, "weights of later modules count"


def test_no_weights_and_a_broken_module_list_are_errors(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match=r"no \*\.safetensors or \*\.bin weights"):
        weights_sha256(tmp_path)
    (tmp_path / "modules.json").write_text("{")
    with pytest.raises(EncoderError, match="not a list of modules"):
        weights_sha256(tmp_path)


SAMPLES = ["where is the spare key?", "我们明天去北京开会。", "stone " * 300]


@pytest.fixture(scope="module")
def lean_dir(minilm: SentenceEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("encoder") / "lean"
    export_lean(minilm, directory, [])
    return directory


def opened(directory: Path) -> SentenceEncoder:
    return open_sentence_encoder(str(directory))


def _tree(directory: Path) -> dict[str, tuple[int, bytes]]:
    return {f.name: (f.stat().st_mtime_ns, f.read_bytes()) for f in directory.iterdir()}


def test_default_model_agrees_and_carries_the_same_fingerprint(
    minilm: SentenceEncoder, lean_dir: Path
) -> None:
    lean = LeanEncoder.open(lean_dir, verify=True)
    assert lean.fingerprint == minilm.fingerprint
    for text in (*PROBE_TEXTS, *SAMPLES):
        query = lean.encode_query(text)
        assert query.shape == (384,)
        assert query.dtype == np.float32
        np.testing.assert_allclose(query, minilm.encode_query(text), atol=2e-6)


def test_a_second_export_is_the_same_and_nothing_is_said(
    tiny_model: TinyModel, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    encoder, out = opened(tiny_model("m")), tmp_path / "out" / "lean"
    (out.parent / ".lean.building").mkdir(parents=True)  # leftovers of a killed export
    (out.parent / ".lean.building" / WEIGHTS_FILE).write_bytes(b"half")
    (out.parent / ".lean.old").mkdir()
    least = export_lean(encoder, out, SAMPLES)
    assert capfd.readouterr() == ("", "")
    before = _tree(out)
    assert set(before) == {HEADER_FILE, VOCAB_FILE, WEIGHTS_FILE}
    assert 0.99999 < least < 1.00001
    assert export_lean(encoder, out, SAMPLES) == least
    assert {name: raw for name, (_, raw) in _tree(out).items()} == {
        name: raw for name, (_, raw) in before.items()
    }
    assert [path.name for path in out.parent.iterdir()] == ["lean"]


def test_another_model_and_a_damaged_export_are_replaced(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    out = tmp_path / "lean"
    first = open_sentence_encoder(str(tiny_model("first")))
    second = open_sentence_encoder(str(tiny_model("second", seed=2)))
    export_lean(first, out, [])
    reader = LeanEncoder.open(out)
    vector = reader.encode_query("stone")
    export_lean(second, out, [])
    assert LeanEncoder.open(out).fingerprint == second.fingerprint
    np.testing.assert_array_equal(reader.encode_query("stone"), vector)
    (out / WEIGHTS_FILE).write_bytes(b"damaged")
    export_lean(second, out, [])
    np.testing.assert_allclose(
        LeanEncoder.open(out, verify=True).encode_query("stone"),
        second.encode_query("stone"),
        atol=1e-5,
    )


def test_disagreement_leaves_what_was_there(
    tiny_model: TinyModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "o" / "lean"
    export_lean(opened(tiny_model("first")), out, [])
    before = _tree(out)
    monkeypatch.setattr(export, "MIN_COSINE", 1.1)
    with pytest.raises(EncoderError, match="disagrees with second on text"):
        export_lean(opened(tiny_model("second", seed=2)), out, [])
    assert _tree(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["lean"]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"pooling": "cls"}, "with cls pooling"), ({"hidden_act": "relu"}, "hidden_act 'relu'")],
)
def test_other_architectures_are_unsupported(
    tiny_model: TinyModel, tmp_path: Path, options: dict[str, str], message: str
) -> None:
    with pytest.raises(EncoderUnsupportedError, match=message):
        export_lean(opened(tiny_model("m", **options)), tmp_path / "lean", [])
    assert not (tmp_path / "lean").exists()


def test_a_cased_tokenizer_and_a_missing_tensor_are_unsupported(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    directory = tiny_model("cased")
    for name, old, new in (
        ("tokenizer.json", '"lowercase":true', '"lowercase":false'),
        ("tokenizer_config.json", '"do_lower_case": true', '"do_lower_case": false'),
    ):
        path = directory / name
        path.write_text(path.read_text("utf-8").replace(old, new))
    with pytest.raises(EncoderUnsupportedError, match="differently from an uncased BERT"):
        export_lean(opened(directory), tmp_path / "lean", [])
    encoder = opened(tiny_model("m"))
    path = encoder.model_dir / "model.safetensors"
    weights = load_file(path)
    del weights["encoder.layer.1.output.dense.bias"]
    save_file(weights, path)
    with pytest.raises(EncoderUnsupportedError, match=r"encoder\.layer\.1\.output\.dense\.bias"):
        export_lean(encoder, tmp_path / "lean", [])


@pytest.mark.parametrize("name", [HEADER_FILE, VOCAB_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
def test_damaged_directories_are_errors(
    tiny_model: TinyModel, tmp_path: Path, name: str, damage: str
) -> None:
    out = tmp_path / "lean"
    export_lean(opened(tiny_model("m")), out, [])
    path = out / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(b"" if damage == "empty" else content[: len(content) // 2])
    with pytest.raises(EncoderError, match="Export the encoder again"):
        LeanEncoder.open(out)
    flipped = bytearray(content)
    flipped[-1] ^= 1
    path.write_bytes(flipped)
    with pytest.raises(EncoderError, match="Export the encoder again"):
        LeanEncoder.open(out, verify=True)


def test_an_export_whose_weights_are_not_finite_names_the_text(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    out = tmp_path / "lean"
    export_lean(opened(tiny_model("m")), out, [])
    lean = LeanEncoder.open(out)
    word = lean.word.copy()
    word[lean.tokenizer.vocab["x"]] = np.nan
    broken = lean._replace(word=word)
    with pytest.raises(EncoderError, match="for text 1; expected finite numbers"):
        broken.encode_documents(["stone", "x"])


def test_a_checkpoint_with_a_task_head_is_read(tiny_model: TinyModel, tmp_path: Path) -> None:
    directory = tiny_model("nested")
    plain = open_sentence_encoder(str(directory)).encode_query("stone")
    path = directory / "model.safetensors"
    save_file({f"bert.{name}": tensor for name, tensor in load_file(path).items()}, path)
    export_lean(opened(directory), tmp_path / "lean", [])
    np.testing.assert_allclose(
        LeanEncoder.open(tmp_path / "lean").encode_query("stone"), plain, atol=1e-5
    )
