from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file
from noctuary.embed.checkpoint import MIN_COSINE, PROBE_TEXTS, measure_agreement
from noctuary.embed.lean import LeanEncoder
from noctuary.embed.onnx import (
    BATCH_SIZE,
    CHARS_PER_TOKEN,
    HEADER_FILE,
    MARGIN_TOKENS,
    MAX_HEAD_CHARS,
    MODEL_FILE,
    OnnxEncoder,
    OnnxHeader,
    known_header,
    onnx_directory,
    read_header,
    readable_head,
    toolchain,
)
from noctuary.embed.sentence import (
    SentenceEncoder,
    export_onnx,
    fill_batch,
    open_sentence_encoder,
    plan_batches,
)
from tests.rooms.embed.conftest import TinyModel, export_lean

WORDS = ["river", "stone", "северный", "北京", "quartz-like", "🙂", "don't", "window!"]


def _varied_texts(count: int) -> list[str]:
    rng = random.Random(5)
    lengths = [0, 1, 1, 400, *(rng.randrange(1, 60) for _ in range(count - 4))]
    return [" ".join(rng.choice(WORDS) for _ in range(length)) for length in lengths]


@pytest.fixture(scope="session")
def exported(minilm: SentenceEncoder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = onnx_directory(tmp_path_factory.mktemp("encoders"), minilm.fingerprint)
    export_onnx(minilm, directory, _varied_texts(8))
    return directory


@pytest.fixture(scope="session")
def one(exported: Path) -> OnnxEncoder:
    return OnnxEncoder.open(exported, threads=1)


@pytest.fixture(scope="session")
def three(exported: Path) -> OnnxEncoder:
    return OnnxEncoder.open(exported, threads=3)


def test_the_default_model_is_accepted_and_stamped(
    minilm: SentenceEncoder, exported: Path, one: OnnxEncoder
) -> None:
    header = read_header(exported)
    assert (header.fingerprint, header.declined) == (minilm.fingerprint, "")
    assert header.toolchain == toolchain(minilm.fingerprint.model)
    assert header.min_cosine >= 0.9999
    assert header.sampled_texts == 16
    assert header.files[MODEL_FILE] == hash_file(exported / MODEL_FILE)
    assert header.tag.startswith("onnx-")
    assert one.tag == header.tag
    assert known_header(exported, minilm.fingerprint) == header


def test_vectors_agree_with_sentence_transformers(
    minilm: SentenceEncoder, three: OnnxEncoder
) -> None:
    huge = three.encode_documents(["stone river " * 1_000_000, "stone river " * 300])
    np.testing.assert_array_equal(huge[0], huge[1])
    texts = [*_varied_texts(30), "x" * 5000, "stone " * 254, "stone " * 255, "\ud800", "\0", " \n"]
    expected = minilm.model.encode(
        [text.replace("\ud800", "\ufffd") for text in texts],
        normalize_embeddings=True,
        show_progress_bar=False,
    )
    np.testing.assert_allclose(three.encode_documents(texts), expected, atol=2e-6)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.text(max_size=200), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_a_vector_is_the_same_to_the_last_bit_whatever_surrounds_it(
    one: OnnxEncoder, three: OnnxEncoder, texts: list[str], rng: random.Random
) -> None:
    first = one.encode_documents(texts)
    order = list(range(len(texts)))
    rng.shuffle(order)
    np.testing.assert_array_equal(three.encode_documents([texts[i] for i in order]), first[order])
    np.testing.assert_array_equal(one.encode_query(texts[0]), first[0])


def test_another_process_gives_the_same_bits(exported: Path, three: OnnxEncoder) -> None:
    texts = _varied_texts(24)
    code = (
        "import sys, json; from pathlib import Path; "
        "from noctuary.embed.onnx import OnnxEncoder; "
        "e = OnnxEncoder.open(Path(sys.argv[1]), threads=2); "
        "sys.stdout.buffer.write(e.encode_documents(json.loads(sys.argv[2])).tobytes()); "
        "assert 'torch' not in sys.modules and 'sentence_transformers' not in sys.modules"
    )
    command = [sys.executable, "-c", code, str(exported), json.dumps(texts)]
    found = subprocess.run(command, check=True, capture_output=True).stdout
    assert found == three.encode_documents(texts).tobytes()


def test_exporting_again_gives_the_same_files(
    minilm: SentenceEncoder, exported: Path, tmp_path: Path
) -> None:
    header = export_onnx(minilm, tmp_path / "again.onnx", [])
    assert header.files == read_header(exported).files
    assert header.tag == read_header(exported).tag


def test_batches_cover_every_text_once_longest_first(three: OnnxEncoder) -> None:
    texts = ["a" * n for n in (3, 1, 2)] + ["b"] * 20
    found = list(three.iter_document_batches(texts))
    places = [place for positions, _ in found for place in positions]
    assert sorted(places) == list(range(23))
    assert places[:2] == [0, 2]
    assert all(len(positions) == len(vectors) for positions, vectors in found)
    assert three.encode_documents([]).shape == (0, 384)


def _another_architecture(directory: Path, kind: str) -> Path:
    """Give a tiny BERT directory the weights of another architecture."""
    import torch
    from transformers import AutoConfig, AutoModel

    path = directory / "config.json"
    sizes = {"vocab_size": 30522, "max_position_embeddings": 514, "pad_token_id": 0}
    bert = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    bert["num_attention_heads"] = 4
    more = {
        "distilbert": {"dim": 32, "hidden_dim": 64, "n_layers": 2, "n_heads": 4},
        "deberta-v2": {**bert, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        "qwen3": {**bert, "num_key_value_heads": 4, "head_dim": 8},
        "albert": {**bert, "embedding_size": 32}, "electra": {**bert, "embedding_size": 32},
    }.get(kind, bert)  # fmt: skip
    torch.manual_seed(3)
    model = AutoModel.from_config(AutoConfig.for_model(kind, **sizes, **more))
    model.config.save_pretrained(directory)
    weights = {name: t.detach().numpy().copy() for name, t in model.state_dict().items()}
    save_file(weights, directory / "model.safetensors")
    assert json.loads(path.read_text())["model_type"] == kind
    return directory


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("bert", "mean"), ("bert", "cls"), ("bert", "max"), ("roberta", "mean"),
     ("xlm-roberta", "mean"), ("distilbert", "mean"), ("mpnet", "mean"), ("electra", "cls"),
     ("albert", "mean"), ("deberta-v2", "mean"), ("modernbert", "mean"), ("qwen3", "last")],
)  # fmt: skip
def test_every_architecture_agrees(
    tiny_model: TinyModel, tmp_path: Path, kind: str, pooling: str
) -> None:
    directory = tiny_model("model", pooling=pooling)
    if kind != "bert":
        _another_architecture(directory, kind)
    source = open_sentence_encoder(str(directory))
    header = export_onnx(source, tmp_path / "m.onnx", _varied_texts(12))
    assert header.declined == ""
    assert header.min_cosine >= 0.999999


def test_a_model_that_no_graph_says_is_declined_with_its_reason_and_not_tried_again(
    tiny_model: TinyModel, tmp_path: Path
) -> None:
    source = open_sentence_encoder(str(tiny_model("model", include_prompt=False)))
    header = export_onnx(source, tmp_path / "m.onnx", [])
    assert header.tag == ""
    assert "leaves the tokens of its prompt out of pooling" in header.declined
    assert "sentence-transformers embeds instead" in header.declined
    assert [p.name for p in (tmp_path / "m.onnx").iterdir()] == [HEADER_FILE]
    assert known_header(tmp_path / "m.onnx", source.fingerprint) == header
    with pytest.raises(EncoderError, match="was declined"):
        OnnxEncoder.open(tmp_path / "m.onnx")


def test_a_model_that_disagrees_is_declined(tiny_model: TinyModel, tmp_path: Path) -> None:
    """The loaded model has lost a layer that the files, from which the export is made, have."""
    source = open_sentence_encoder(str(tiny_model("model")))
    layers = next(iter(source.model)).auto_model.encoder.layer
    del layers[1]
    header = export_onnx(source, tmp_path / "m.onnx", [])
    assert "disagrees" in header.declined
    assert "expected at least 0.9999" in header.declined


@pytest.mark.parametrize("name", [MODEL_FILE, "tokenizer.json", HEADER_FILE])
def test_a_damaged_or_missing_file_is_refused(
    minilm: SentenceEncoder, exported: Path, tmp_path: Path, name: str
) -> None:
    for path in exported.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / name).unlink()
    with pytest.raises(EncoderError, match="Delete"):
        OnnxEncoder.open(tmp_path)
    (tmp_path / name).write_bytes(b"{}")
    with pytest.raises(EncoderError, match="Delete"):
        OnnxEncoder.open(tmp_path)
    if name == HEADER_FILE:
        assert known_header(tmp_path, minilm.fingerprint) is None


@pytest.mark.parametrize("part", ["_session", "_tokenizer"])
def test_what_fails_inside_the_libraries_is_an_encoder_error_that_quotes_no_text(
    exported: Path, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def run(self, *_: object) -> None:
            raise RuntimeError("Non-zero status code while running MatMul for 'secret words'")

        encode = run

    encoder = OnnxEncoder.open(exported, threads=1)
    monkeypatch.setattr(encoder, part, Broken())
    with pytest.raises(EncoderError, match="failed on a text of 12 char") as raised:
        encoder.encode_query("secret words")
    assert "secret" not in str(raised.value)


def test_the_tag_tells_runtimes_and_graphs_apart(exported: Path) -> None:
    header = read_header(exported)

    def tag(**changes: dict[str, str]) -> str:
        parts = {"toolchain": dict(header.toolchain), "files": dict(header.files)} | changes
        return OnnxHeader(header.fingerprint, parts["toolchain"], parts["files"], 1.0, 1).tag

    newer = {**header.toolchain, "onnxruntime": "0"}
    other = {**header.files, MODEL_FILE: "0"}
    assert len({tag(), tag(toolchain=newer), tag(files=other)}) == 3
    assert tag() == header.tag


def _words(text: str) -> int:
    return len(text.split())


def test_a_short_text_is_whole_and_not_even_counted() -> None:
    def refuse(text: str) -> int:
        raise AssertionError(text)

    text = "a" * (CHARS_PER_TOKEN * 10)
    assert readable_head(text, 10, refuse) is text


@pytest.mark.parametrize("gap", [0, 1_000, 30_000])
def test_the_head_grows_until_it_holds_enough_tokens(gap: int) -> None:
    head = readable_head(" " * gap + "ab " * 100_000, 256, _words)
    assert len(head) < 150_000
    assert gap or len(head) == CHARS_PER_TOKEN * 256
    assert _words(head) > 256 + MARGIN_TOKENS


def test_a_text_of_few_tokens_stays_whole_up_to_the_bound() -> None:
    text = "x" * 100_000
    assert readable_head(text, 256, _words) is text
    assert len(readable_head("x" * 10_000_000, 256, _words)) == MAX_HEAD_CHARS


@pytest.mark.parametrize(
    ("counts", "size", "plan"),
    [
        ([3, 9, 3, 5, 9, 3], 2, [[1, 4], [3], [0, 2], [5]]),
        ([4] * (BATCH_SIZE + 1), BATCH_SIZE, [[*range(BATCH_SIZE)], [BATCH_SIZE]]),
        ([], 2, []),
    ],
)
def test_equal_counts_go_together_longest_first(
    counts: list[int], size: int, plan: list[list[int]]
) -> None:
    assert plan_batches(counts, size) == plan
    assert plan_batches(counts) == plan_batches(counts, BATCH_SIZE)


@pytest.mark.parametrize(
    ("texts", "token_count", "rows"),
    [
        (["a"], 256, 2),
        (["a", "b"], 256, 2),
        (["a"], 20, 4),
        (["a", "b", "c"], 2, 32),
        (["a"], 0, 64),
    ],
)
def test_small_batches_are_filled_with_repeats(
    texts: list[str], token_count: int, rows: int
) -> None:
    filled = fill_batch(texts, token_count)
    assert len(filled) == rows
    assert filled == (texts * rows)[:rows]


class ForgetsThePrefix(SentenceEncoder):
    """Its documents are right; a query loses what the model wants before it."""

    def encode_query(self, text: str) -> NDArray[np.float32]:
        return self.encode_documents([text])[0]


@pytest.fixture
def prompted(tiny_model: TinyModel) -> SentenceEncoder:
    directory = tiny_model("prompted")
    prompts = '{"prompts": {"query": "tell me of the long river and its stone: "}}'
    (directory / "config_sentence_transformers.json").write_text(prompts)
    return open_sentence_encoder(str(directory))


def forgetful(encoder: SentenceEncoder) -> SentenceEncoder:
    return ForgetsThePrefix(encoder.model, encoder.model_dir, encoder.fingerprint)


def test_all_three_faces_agree_on_documents_and_on_queries(
    prompted: SentenceEncoder, tmp_path: Path
) -> None:
    export_lean(prompted, tmp_path / "lean", [])
    assert not export_onnx(prompted, tmp_path / "m.onnx", []).declined
    texts = ["a river", "a stone and a lamp"]
    for face in (LeanEncoder.open(tmp_path / "lean"), OnnxEncoder.open(tmp_path / "m.onnx")):
        cosines = measure_agreement(prompted, face, texts)
        assert cosines.shape == (len(texts) + 2 * len(PROBE_TEXTS),)
        assert float(cosines.min()) >= MIN_COSINE


def test_an_encoder_that_disagrees_on_queries_only_is_refused(
    prompted: SentenceEncoder, tmp_path: Path
) -> None:
    with pytest.raises(EncoderError, match=r"on query \d: cosine"):
        export_lean(forgetful(prompted), tmp_path / "lean", ["a river"])
    assert list(tmp_path.glob("lean*")) == []
    header = export_onnx(forgetful(prompted), tmp_path / "m.onnx", ["a river"])
    assert "disagrees with prompted on query" in header.declined
