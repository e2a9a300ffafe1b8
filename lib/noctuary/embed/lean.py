"""The read side's encoder: a BERT forward pass in numpy over memory-mapped weights."""

from __future__ import annotations

import json
import math
import mmap
import re
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import SILENT, Progress, dataclass
from noctuary.embed.fingerprint import EncoderFingerprint, require_unit_rows

# The arithmetic of a BERT encoder on numpy arrays of one text.
#
# Sources: Vaswani et al., "Attention Is All You Need" (2017); Hendrycks and Gimpel, "Gaussian
# Error Linear Units" (2016); Ba et al., "Layer Normalization" (2016).

Floats = NDArray[np.float32]

# erfc(z) exp(z^2) as a ratio of polynomials in z, lowest power first: a weighted least-squares fit
# of our own over [0, 5], within 2e-8 of erfc. All terms are positive, so nothing cancels in
# float32.
_ERFC_ABOVE = tuple(np.float32(c) for c in (1.0, 0.5246595765032215, 0.14147290936820758))
_ERFC_BELOW = tuple(
    np.float32(c)
    for c in (1.0, 1.6530402472991703, 1.006695143214606, 0.2354024574672044, 0.0014867727837260308)
)
_SQRT_HALF = np.float32(math.sqrt(0.5))


class LayerWeights(NamedTuple):
    """Weights of one layer; matrices have shape (inputs, outputs).

    Query, key and value share one matrix, and the query part is already divided by the square root
    of the head size.
    """

    qkv_weight: Floats
    qkv_bias: Floats
    out_weight: Floats
    out_bias: Floats
    attention_gain: Floats
    attention_shift: Floats
    up_weight: Floats
    up_bias: Floats
    down_weight: Floats
    down_bias: Floats
    output_gain: Floats
    output_shift: Floats


def erfc(z: Floats) -> Floats:
    """Complementary error function for 0 <= z < 1e9; absolute error below 3e-7."""
    result = _polynomial(z, _ERFC_ABOVE)
    result /= _polynomial(z, _ERFC_BELOW)
    exponent = z * z
    np.negative(exponent, out=exponent)
    result *= np.exp(exponent, out=exponent)
    return result


def gelu(x: Floats) -> Floats:
    """Return x times the standard normal distribution of x: the exact, not the tanh, GELU.

    Written as max(x, 0) - |x|/2 erfc(|x|/sqrt 2), which loses no digits for negative x: the error
    is below 2e-7 for |x| <= 4 and below 2 units in the last place beyond.
    """
    magnitude = np.abs(x)
    tail = erfc(magnitude * _SQRT_HALF)
    tail *= magnitude
    tail *= np.float32(0.5)
    result = np.maximum(x, np.float32(0.0))
    result -= tail
    return result


def _polynomial(x: Floats, coefficients: Sequence[np.float32]) -> Floats:
    result = x * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        result += coefficient
        result *= x
    result += coefficients[0]
    return result


def layer_norm(x: Floats, gain: Floats, shift: Floats, epsilon: float) -> Floats:
    """Scale each row of (tokens, hidden) in place to mean 0 and variance 1, then gain and shift."""
    width = np.float32(x.shape[1])
    x -= x.sum(axis=1, keepdims=True) / width
    variance = np.einsum("ij,ij->i", x, x) / width
    x *= (np.float32(1.0) / np.sqrt(variance + np.float32(epsilon)))[:, None]
    x *= gain
    x += shift
    return x


def attention(x: Floats, layer: LayerWeights, heads: int) -> Floats:
    """Return multi-head self-attention of x, shape (tokens, hidden), before the residual."""
    tokens, hidden = x.shape
    qkv = x @ layer.qkv_weight
    qkv += layer.qkv_bias
    query, key, value = qkv.reshape(tokens, 3, heads, hidden // heads).transpose(1, 2, 0, 3)
    scores = query @ key.transpose(0, 2, 1)
    scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=2, keepdims=True)
    context = np.empty((tokens, heads, hidden // heads), dtype=np.float32)
    np.matmul(scores, value, out=context.transpose(1, 0, 2))
    result = context.reshape(tokens, hidden) @ layer.out_weight
    result += layer.out_bias
    return result


def encoder_layer(x: Floats, layer: LayerWeights, heads: int, epsilon: float) -> Floats:
    """Return one post-norm transformer layer of x, shape (tokens, hidden)."""
    attended = attention(x, layer, heads)
    attended += x
    attended = layer_norm(attended, layer.attention_gain, layer.attention_shift, epsilon)
    inner = attended @ layer.up_weight
    inner += layer.up_bias
    result = gelu(inner) @ layer.down_weight
    result += layer.down_bias
    result += attended
    return layer_norm(result, layer.output_gain, layer.output_shift, epsilon)


# Code point classes of the uncased BERT tokenizer: [b0, b1), [b2, b3), ...
#
# They are spelled out instead of asked from `unicodedata` because that follows the Unicode version
# of the Python that runs, while a vector must not depend on it: the reference tokenizer froze its
# tables at an older version. A test compares every code point with the `tokenizers` library.


def _boundaries(hexadecimal: str) -> tuple[int, ...]:
    return tuple(int(number, 16) for number in hexadecimal.split())


DROPPED = _boundaries(
    """
    0 9 b d e 20 7f a0 ad ae 600 606 61c 61d 6dd 6de 70f 710 180e 180f 200b 2010 202a 202f 2060
    2065 2066 2070 d800 f900 feff ff00 fff9 fffc fffd fffe 110bd 110be 1bca0 1bca4 1d173 1d17b
    e0001 e0002 e0020 e0080 f0000 ffffe 100000 10fffe
    """
)
"""Removed before anything else: controls, format characters, private use, surrogates, U+FFFD."""

SPACE = _boundaries(
    """
    9 b d e 20 21 a0 a1 1680 1681 2000 200b 2028 202a 202f 2030 205f 2060 3000 3001
    """
)
"""Ends a word."""

IDEOGRAPH = _boundaries(
    """
    3400 4dc0 4e00 a000 f900 fb00 20000 2a6e0 2a700 2b820 2b920 2ceb0 2f800 2fa20
    """
)
"""A word of its own: CJK unified ideographs and their compatibility forms."""

PUNCTUATION = _boundaries(
    """
    21 30 3a 41 5b 61 7b 7f a1 a2 a7 a8 ab ac b6 b8 bb bc bf c0 37e 37f 387 388 55a 560 589 58b
    5be 5bf 5c0 5c1 5c3 5c4 5c6 5c7 5f3 5f5 609 60b 60c 60e 61b 61c 61e 620 66a 66e 6d4 6d5 700
    70e 7f7 7fa 830 83f 85e 85f 964 966 970 971 af0 af1 df4 df5 e4f e50 e5a e5c f04 f13 f14 f15
    f3a f3e f85 f86 fd0 fd5 fd9 fdb 104a 1050 10fb 10fc 1360 1369 1400 1401 166d 166f 169b 169d
    16eb 16ee 1735 1737 17d4 17d7 17d8 17db 1800 180b 1944 1946 1a1e 1a20 1aa0 1aa7 1aa8 1aae 1b5a
    1b61 1bfc 1c00 1c3b 1c40 1c7e 1c80 1cc0 1cc8 1cd3 1cd4 2010 2028 2030 2044 2045 2052 2053 205f
    207d 207f 208d 208f 2308 230c 2329 232b 2768 2776 27c5 27c7 27e6 27f0 2983 2999 29d8 29dc 29fc
    29fe 2cf9 2cfd 2cfe 2d00 2d70 2d71 2e00 2e2f 2e30 2e43 3001 3004 3008 3012 3014 3020 3030 3031
    303d 303e 30a0 30a1 30fb 30fc a4fe a500 a60d a610 a673 a674 a67e a67f a6f2 a6f8 a874 a878 a8ce
    a8d0 a8f8 a8fb a8fc a8fd a92e a930 a95f a960 a9c1 a9ce a9de a9e0 aa5c aa60 aade aae0 aaf0 aaf2
    abeb abec fd3e fd40 fe10 fe1a fe30 fe53 fe54 fe62 fe63 fe64 fe68 fe69 fe6a fe6c ff01 ff04 ff05
    ff0b ff0c ff10 ff1a ff1c ff1f ff21 ff3b ff3e ff3f ff40 ff5b ff5c ff5d ff5e ff5f ff66 10100
    10103 1039f 103a0 103d0 103d1 1056f 10570 10857 10858 1091f 10920 1093f 10940 10a50 10a59
    10a7f 10a80 10af0 10af7 10b39 10b40 10b99 10b9d 11047 1104e 110bb 110bd 110be 110c2 11140
    11144 11174 11176 111c5 111ca 111cd 111ce 111db 111dc 111dd 111e0 11238 1123e 112a9 112aa
    114c6 114c7 115c1 115d8 11641 11644 1173c 1173f 12470 12475 16a6e 16a70 16af5 16af6 16b37
    16b3c 16b44 16b45 1bc9f 1bca0 1da87 1da8c
    """
)
"""A word of its own."""

MARK = _boundaries(
    """
    300 370 483 488 591 5be 5bf 5c0 5c1 5c3 5c4 5c6 5c7 5c8 610 61b 64b 660 670 671 6d6 6dd 6df
    6e5 6e7 6e9 6ea 6ee 711 712 730 74b 7a6 7b1 7eb 7f4 816 81a 81b 824 825 828 829 82e 859 85c
    8e3 903 93a 93b 93c 93d 941 949 94d 94e 951 958 962 964 981 982 9bc 9bd 9c1 9c5 9cd 9ce 9e2
    9e4 a01 a03 a3c a3d a41 a43 a47 a49 a4b a4e a51 a52 a70 a72 a75 a76 a81 a83 abc abd ac1 ac6
    ac7 ac9 acd ace ae2 ae4 b01 b02 b3c b3d b3f b40 b41 b45 b4d b4e b56 b57 b62 b64 b82 b83 bc0
    bc1 bcd bce c00 c01 c3e c41 c46 c49 c4a c4e c55 c57 c62 c64 c81 c82 cbc cbd cbf cc0 cc6 cc7
    ccc cce ce2 ce4 d01 d02 d41 d45 d4d d4e d62 d64 dca dcb dd2 dd5 dd6 dd7 e31 e32 e34 e3b e47
    e4f eb1 eb2 eb4 eba ebb ebd ec8 ece f18 f1a f35 f36 f37 f38 f39 f3a f71 f7f f80 f85 f86 f88
    f8d f98 f99 fbd fc6 fc7 102d 1031 1032 1038 1039 103b 103d 103f 1058 105a 105e 1061 1071 1075
    1082 1083 1085 1087 108d 108e 109d 109e 135d 1360 1712 1715 1732 1735 1752 1754 1772 1774 17b4
    17b6 17b7 17be 17c6 17c7 17c9 17d4 17dd 17de 180b 180e 18a9 18aa 1920 1923 1927 1929 1932 1933
    1939 193c 1a17 1a19 1a1b 1a1c 1a56 1a57 1a58 1a5f 1a60 1a61 1a62 1a63 1a65 1a6d 1a73 1a7d 1a7f
    1a80 1ab0 1abe 1b00 1b04 1b34 1b35 1b36 1b3b 1b3c 1b3d 1b42 1b43 1b6b 1b74 1b80 1b82 1ba2 1ba6
    1ba8 1baa 1bab 1bae 1be6 1be7 1be8 1bea 1bed 1bee 1bef 1bf2 1c2c 1c34 1c36 1c38 1cd0 1cd3 1cd4
    1ce1 1ce2 1ce9 1ced 1cee 1cf4 1cf5 1cf8 1cfa 1dc0 1df6 1dfc 1e00 20d0 20dd 20e1 20e2 20e5 20f1
    2cef 2cf2 2d7f 2d80 2de0 2e00 302a 302e 3099 309b a66f a670 a674 a67e a69e a6a0 a6f0 a6f2 a802
    a803 a806 a807 a80b a80c a825 a827 a8c4 a8c5 a8e0 a8f2 a926 a92e a947 a952 a980 a983 a9b3 a9b4
    a9b6 a9ba a9bc a9bd a9e5 a9e6 aa29 aa2f aa31 aa33 aa35 aa37 aa43 aa44 aa4c aa4d aa7c aa7d aab0
    aab1 aab2 aab5 aab7 aab9 aabe aac0 aac1 aac2 aaec aaee aaf6 aaf7 abe5 abe6 abe8 abe9 abed abee
    fb1e fb1f fe00 fe10 fe20 fe30 101fd 101fe 102e0 102e1 10376 1037b 10a01 10a04 10a05 10a07
    10a0c 10a10 10a38 10a3b 10a3f 10a40 10ae5 10ae7 11001 11002 11038 11047 1107f 11082 110b3
    110b7 110b9 110bb 11100 11103 11127 1112c 1112d 11135 11173 11174 11180 11182 111b6 111bf
    111ca 111cd 1122f 11232 11234 11235 11236 11238 112df 112e0 112e3 112eb 11300 11302 1133c
    1133d 11340 11341 11366 1136d 11370 11375 114b3 114b9 114ba 114bb 114bf 114c1 114c2 114c4
    115b2 115b6 115bc 115be 115bf 115c1 115dc 115de 11633 1163b 1163d 1163e 1163f 11641 116ab
    116ac 116ad 116ae 116b0 116b6 116b7 116b8 1171d 11720 11722 11726 11727 1172c 16af0 16af5
    16b30 16b37 16f8f 16f93 1bc9d 1bc9f 1d167 1d16a 1d17b 1d183 1d185 1d18c 1d1aa 1d1ae 1d242
    1d245 1da00 1da37 1da3b 1da6d 1da75 1da76 1da84 1da85 1da9b 1daa0 1daa1 1dab0 1e8d0 1e8d7
    e0100 e01f0
    """
)
"""Removed after canonical decomposition: accents and other nonspacing marks."""

# BERT's uncased WordPiece tokenizer in plain Python, for a process that lives for one query.
#
# Standard library only: importing `tokenizers` takes longer than encoding the query. The steps are
# those of Devlin et al., "BERT" (2019), section 3, and Wu et al., "Google's Neural Machine
# Translation System" (2016), section 4.1.

UNKNOWN, CLASSIFY, SEPARATE = "[UNK]", "[CLS]", "[SEP]"
CONTROL_TOKENS = ("[PAD]", UNKNOWN, CLASSIFY, SEPARATE, "[MASK]")
"""Tokens that a text may spell out literally, as the reference tokenizer allows."""

MAX_WORD_CHARS = 100
"""A longer word is one unknown token, as in the reference."""

_CONTINUATION = "##"
_CONTROL = re.compile("(" + "|".join(re.escape(token) for token in CONTROL_TOKENS) + ")")
_SPACES = "".join(
    chr(code_point)
    for start, stop in zip(SPACE[::2], SPACE[1::2], strict=True)
    for code_point in range(start, stop)
)
_RAW_WORD = re.compile(f"[^{_SPACES}]+")


class _Translation(dict[int, "int | str | None"]):
    """Drops one class of characters and sets another apart; filled as characters are met."""

    def __init__(self, dropped: tuple[int, ...], apart: tuple[int, ...]) -> None:
        super().__init__()
        self._dropped, self._apart = dropped, apart

    def __missing__(self, code_point: int) -> int | str | None:
        result: int | str | None = code_point
        if bisect_right(self._dropped, code_point) % 2:
            result = None
        elif bisect_right(self._apart, code_point) % 2:
            result = f" {chr(code_point)} "
        self[code_point] = result
        return result


_CLEAN = _Translation(DROPPED, IDEOGRAPH)
_SPLIT = _Translation(MARK, PUNCTUATION)


@dataclass(frozen=True, slots=True)
class WordPiece:
    """A loaded vocabulary: ids by token, and those of the tokens that stand for no piece."""

    vocab: dict[str, int]
    unknown_id: int
    first_id: int
    last_id: int

    @classmethod
    def from_text(cls, text: str) -> WordPiece:
        """Read one token per line, its id the line number from 0; EncoderError if no BERT's."""
        # Not splitlines: a vocabulary may hold line separators other than the newline as tokens.
        lines = text.removesuffix("\n").split("\n")
        vocab = dict(zip(lines, range(len(lines)), strict=True))
        missing = [token for token in (UNKNOWN, CLASSIFY, SEPARATE) if token not in vocab]
        if missing:
            raise EncoderError(
                f"the vocabulary of {len(lines)} lines lacks {', '.join(missing)}; expected a BERT "
                "WordPiece vocab.txt. Export the encoder again."
            )
        return cls(vocab, vocab[UNKNOWN], vocab[CLASSIFY], vocab[SEPARATE])

    def encode(self, text: str, max_tokens: int) -> list[int]:
        """Return 2 to max_tokens ids of a text, between [CLS] and [SEP].

        Lone surrogates and control characters are ignored; the text is read only as far as needed.
        """
        ids = [self.first_id]
        for found in self._ids(text):
            if len(ids) + len(found) >= max_tokens:
                ids += found[: max_tokens - 1 - len(ids)]
                break
            ids += found
        ids.append(self.last_id)
        return ids

    def _ids(self, text: str) -> Iterator[list[int]]:
        for part in _CONTROL.split(text):
            if part in CONTROL_TOKENS:
                yield [self.vocab.get(part, self.unknown_id)]
                continue
            for raw in _RAW_WORD.finditer(part):
                for word in split_words(raw.group()):
                    yield self._pieces(word)

    def _pieces(self, word: str) -> list[int]:
        """Cover a word with vocabulary entries, the longest possible first; [UNK] if that fails."""
        if len(word) > MAX_WORD_CHARS:
            return [self.unknown_id]
        vocab = self.vocab
        whole = vocab.get(word)
        if whole is not None:
            return [whole]
        pieces: list[int] = []
        start, prefix = 0, ""
        while start < len(word):
            for end in range(len(word), start, -1):
                found = vocab.get(prefix + word[start:end])
                if found is not None:
                    pieces.append(found)
                    start, prefix = end, _CONTINUATION
                    break
            else:
                return [self.unknown_id]
        return pieces


def split_words(text: str) -> list[str]:
    """Return lower-case, accent-free words; punctuation and ideographs stand alone."""
    cleaned = text.translate(_CLEAN)
    if not cleaned.isascii():
        # `str.lower` alone would write a sigma at a word's end differently; the reference does not.
        cleaned = unicodedata.normalize("NFD", cleaned).replace("Σ", "σ")
    return cleaned.lower().translate(_SPLIT).split()


# The directory of an exported encoder: encoder.json (format version, fingerprint, architecture,
# tensor table, size and hash of the two other files), vocab.txt (one token per line) and
# weights.bin (the tensors, little-endian float32, each at a multiple of ALIGNMENT_BYTES).

FORMAT_VERSION = 1
HEADER_FILE = "encoder.json"
VOCAB_FILE = "vocab.txt"
WEIGHTS_FILE = "weights.bin"

ALIGNMENT_BYTES = 64
"""Start of every tensor: one cache line, so that vector loads do not straddle two."""

MOST_LAYERS = 1_000
"""Of a header that is read: it is checked before the size of the weights is."""

_FLOAT32 = np.dtype("<f4")
_MADV_POPULATE_READ = 22  # of Linux 5.14 on; Python has no name for it yet


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of a BERT encoder."""

    layers: int
    heads: int  # of a layer; divides hidden
    hidden: int  # length of a token vector, and of the result
    intermediate: int  # length of the feed-forward layer
    vocab_size: int
    max_tokens: int  # of the longest text, control tokens included
    norm_epsilon: float  # added to the variance before its root is taken


class FileIdentity(NamedTuple):
    """Size and SHA-256 of one file of the directory."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Header:
    """What encoder.json says."""

    fingerprint: EncoderFingerprint
    architecture: Architecture
    weights: FileIdentity
    vocab: FileIdentity


class TensorPlace(NamedTuple):
    """Where a tensor lies in weights.bin."""

    offset_bytes: int
    shape: tuple[int, ...]


def tensor_shapes(arch: Architecture) -> dict[str, tuple[int, ...]]:
    """Return every tensor's shape, in file order.

    The word table comes last: a query touches a few of its rows, but all of what precedes it,
    which is then one contiguous read.
    """
    hidden, inner = arch.hidden, arch.intermediate
    of_layer = {
        "qkv_weight": (hidden, 3 * hidden),
        "qkv_bias": (3 * hidden,),
        "out_weight": (hidden, hidden),
        "out_bias": (hidden,),
        "attention_gain": (hidden,),
        "attention_shift": (hidden,),
        "up_weight": (hidden, inner),
        "up_bias": (inner,),
        "down_weight": (inner, hidden),
        "down_bias": (hidden,),
        "output_gain": (hidden,),
        "output_shift": (hidden,),
    }
    layers = range(arch.layers)
    return {
        "position": (arch.max_tokens, hidden),
        "embedding_gain": (hidden,),
        "embedding_shift": (hidden,),
        **{f"{layer}.{name}": shape for layer in layers for name, shape in of_layer.items()},
        "word": (arch.vocab_size, hidden),
    }


def tensor_table(arch: Architecture) -> tuple[dict[str, TensorPlace], int]:
    """Return where every tensor lies, and the size of weights.bin in bytes."""
    table: dict[str, TensorPlace] = {}
    end = 0
    for name, shape in tensor_shapes(arch).items():
        offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        table[name] = TensorPlace(offset, shape)
        end = offset + prod(shape) * _FLOAT32.itemsize
    return table, end


def header_text(header: Header) -> str:
    """Return the content of encoder.json."""
    value = {
        "format_version": FORMAT_VERSION,
        "fingerprint": header.fingerprint.to_json(),
        "architecture": asdict(header.architecture),
        "weights": header.weights._asdict(),
        "vocab": header.vocab._asdict(),
        "tensors": _listed(tensor_table(header.architecture)[0]),
    }
    return json.dumps(value, indent=1) + "\n"


def read_header(directory: Path) -> Header:
    """Read encoder.json; EncoderError if it is missing, of another version or inconsistent."""
    path = directory / HEADER_FILE
    try:
        value = parse_json(path.read_bytes())
        version = value["format_version"]
        if version != FORMAT_VERSION:
            raise EncoderError(
                f"{path} has format version {version!r}; expected {FORMAT_VERSION}. "
                "Export the encoder again with this version."
            )
        return _parse(value)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise EncoderError(
            f"cannot read the exported encoder's header {path} ({type(error).__name__}: {error}). "
            "Export the encoder again."
        ) from error


def _parse(value: Mapping[str, Any]) -> Header:
    arch = Architecture(**value["architecture"])
    sizes = (arch.layers, arch.heads, arch.hidden, arch.intermediate, arch.vocab_size)
    are_whole = all(type(size) is int for size in (*sizes, arch.max_tokens))
    if (
        not are_whole
        or min(*sizes, arch.max_tokens - 1) < 1
        or arch.layers > MOST_LAYERS
        or arch.hidden % arch.heads
    ):
        raise ValueError(f"impossible architecture {arch}")
    header = Header(
        fingerprint=EncoderFingerprint.from_json(value["fingerprint"]),
        architecture=arch,
        weights=FileIdentity(**value["weights"]),
        vocab=FileIdentity(**value["vocab"]),
    )
    table, size_bytes = tensor_table(arch)
    if value["tensors"] != _listed(table) or header.weights.size_bytes != size_bytes:
        raise ValueError("the tensor table does not match the architecture")
    if header.fingerprint.dimension != arch.hidden:
        raise ValueError("the fingerprint's dimension is not the architecture's")
    return header


def _listed(table: Mapping[str, TensorPlace]) -> dict[str, list[int]]:
    return {name: [place.offset_bytes, *place.shape] for name, place in table.items()}


@dataclass(frozen=True, slots=True)
class LeanEncoder:
    """A memory-mapped BERT encoder with mean pooling; implements `Encoder`."""

    fingerprint: EncoderFingerprint  # of its source: the vectors agree to float32 rounding
    architecture: Architecture
    tokenizer: WordPiece
    position: Floats  # position plus segment embeddings, shape (max_tokens, hidden)
    embedding_gain: Floats
    embedding_shift: Floats
    layers: tuple[LayerWeights, ...]
    word: Floats  # token embeddings, shape (vocab_size, hidden)

    @classmethod
    def open(cls, directory: Path, *, verify: bool = False) -> LeanEncoder:
        """Map the weights that `export_lean` wrote; only the layers are read ahead.

        Sizes and the vocabulary are always checked; `verify` also hashes the weights, which takes
        0.1-0.3 s for 90 MB. EncoderError if a file is missing, damaged or of another format.
        """
        header = read_header(directory)
        arch = header.architecture
        tokenizer = _open_vocab(directory / VOCAB_FILE, header.vocab, arch.vocab_size)
        tensors = _map_weights(directory / WEIGHTS_FILE, header.weights, arch, verify=verify)
        layers = tuple(
            LayerWeights(*(tensors[f"{layer}.{name}"] for name in LayerWeights._fields))
            for layer in range(arch.layers)
        )
        return cls(
            fingerprint=header.fingerprint,
            architecture=arch,
            tokenizer=tokenizer,
            position=tensors["position"],
            embedding_gain=tensors["embedding_gain"],
            embedding_shift=tensors["embedding_shift"],
            layers=layers,
            word=tensors["word"],
        )

    def encode_query(self, text: str) -> Floats:
        """See `Encoder`."""
        return self._encode(self.fingerprint.query_prefix + text, 0)

    def encode_documents(self, texts: Sequence[str], progress: Progress = SILENT) -> Floats:
        """See `Encoder`; one text at a time, so neighbours have no influence."""
        vectors = np.empty((len(texts), self.architecture.hidden), dtype=np.float32)
        for position, text in enumerate(texts):
            vectors[position] = self._encode(self.fingerprint.document_prefix + text, position)
            progress.update("encode", position + 1, len(texts))
        return vectors

    def _encode(self, text: str, position: int) -> Floats:
        ids = self.tokenizer.encode(text, self.architecture.max_tokens)
        # Damaged weights overflow; that is reported once, by the check, not by numpy's warnings.
        with np.errstate(all="ignore"):
            pooled = self._pooled(ids)
            require_unit_rows(pooled, [position])
        return pooled[0]

    def _pooled(self, ids: Sequence[int]) -> Floats:
        arch = self.architecture
        x = self.word[ids]
        x += self.position[: len(ids)]
        x = layer_norm(x, self.embedding_gain, self.embedding_shift, arch.norm_epsilon)
        for layer in self.layers:
            x = encoder_layer(x, layer, arch.heads, arch.norm_epsilon)
        pooled = x.mean(axis=0, keepdims=True)
        pooled /= np.sqrt(np.einsum("ij,ij->i", pooled, pooled))[:, None]
        return pooled


def _open_vocab(path: Path, identity: FileIdentity, vocab_size: int) -> WordPiece:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise EncoderError(f"cannot read {path} ({error}). Export the encoder again.") from error
    _require_identity(path, FileIdentity(len(raw), sha256(raw).hexdigest()), identity)
    tokenizer = WordPiece.from_text(raw.decode("utf-8"))
    if len(tokenizer.vocab) != vocab_size:
        raise EncoderError(
            f"{path} holds {len(tokenizer.vocab)} tokens; expected {vocab_size}. "
            "Export the encoder again."
        )
    return tokenizer


def _map_weights(
    path: Path, identity: FileIdentity, arch: Architecture, *, verify: bool
) -> dict[str, Floats]:
    try:
        with path.open("rb") as handle:
            # Length 0 maps the whole file as it is now.
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        digest = hash_file(path) if verify else identity.sha256
    except (OSError, ValueError) as error:
        raise EncoderError(f"cannot map {path} ({error}). Export the encoder again.") from error
    _require_identity(path, FileIdentity(len(mapped), digest), identity)
    table, _ = tensor_table(arch)
    _map_ahead(mapped, table["word"].offset_bytes)
    return {
        name: np.frombuffer(mapped, _FLOAT32, prod(shape), offset).reshape(shape)
        for name, (offset, shape) in table.items()
    }


def _map_ahead(mapped: mmap.mmap, size_bytes: int) -> None:
    """Map all that every text needs in one call: thousands of page faults cost the first text 5 ms.

    The word table is left out, of which a text reads a few rows.
    """
    if sys.platform == "linux":
        # An older kernel refuses; then the pages come one by one.
        with suppress(OSError):
            mapped.madvise(_MADV_POPULATE_READ, 0, size_bytes // mmap.PAGESIZE * mmap.PAGESIZE)


def _require_identity(path: Path, found: FileIdentity, expected: FileIdentity) -> None:
    if found != expected:
        raise EncoderError(
            f"{path} has {found.size_bytes} bytes and SHA-256 {found.sha256}; expected "
            f"{expected.size_bytes} and {expected.sha256}. Export the encoder again."
        )
