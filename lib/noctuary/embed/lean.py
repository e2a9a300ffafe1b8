"""The read side's encoder: a BERT forward pass in numpy over memory-mapped weights."""

from __future__ import annotations

import json
import math
import mmap
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core import formats
from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file, release_pages, sha256
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import SILENT, Progress
from noctuary.embed.default_model import (
    DEFAULT_MODEL,
    VOCAB_FILE,
    WEIGHTS_FILE,
    locate_default,
)
from noctuary.embed.fingerprint import EncoderFingerprint, require_unit_rows
from noctuary.embed.wordpiece import WordPiece

# The arithmetic of a BERT encoder on numpy arrays of one text.
#
# Sources: Vaswani et al., "Attention Is All You Need" (2017); Hendrycks and Gimpel, "Gaussian
# Error Linear Units" (2016); Ba et al., "Layer Normalization" (2016).

Floats = NDArray[np.float32]

# artanh(erf(x / sqrt 2)) / x as a polynomial in x^2, lowest power first: a weighted least-squares
# fit of our own over [0, 5.6], within 1e-7 of the GELU; beyond, tanh is 1.
_ARTANH = tuple(
    map(
        np.float32,
        (7.97884216e-1, 3.63342833e-2, -3.31298398e-5, -5.52402072e-5, 3.96911633e-6,
         -1.33446842e-7, 1.80562622e-9),
    )
)  # fmt: skip
_ONE, _HALF = np.float32(1.0), np.float32(0.5)

# A product with at most so many multiplications OpenBLAS takes from the operands as they lie (its
# kernels for AVX-512), one with a matrix of shape (outputs, inputs) only with so few results. Of
# others it first repacks both, a matrix of that shape one number at a time: for a short text that
# takes longer than the product. From blocks of shape (inputs, _BLOCK) it is twice as fast.
_SMALL_RESULT, _SMALL_PRODUCT = 1_200, 1_000_000
_VECTOR = 16  # float32 numbers of a register
_BLOCK = 32  # outputs

# Matrix, shape (outputs, inputs) or, packed, (blocks, inputs, _BLOCK), and bias; or gain and shift.
Dense = tuple[Floats, Floats]


class LayerWeights(NamedTuple):
    """Weights of one layer, as they lie in a checkpoint or packed."""

    query: Dense
    key: Dense
    value: Dense
    out: Dense
    attention_norm: Dense
    up: Dense
    down: Dense
    output_norm: Dense


def dense(x: Floats, weights: Dense) -> Floats:
    """Return the product of x, shape (tokens, inputs), with a matrix, plus the bias."""
    matrix, bias = weights
    tokens, outputs = len(x), len(bias)
    result = np.empty((tokens, outputs), dtype=np.float32)
    if matrix.ndim == 3:
        blocks = result.reshape(tokens, len(matrix), -1).transpose(1, 0, 2)
        step = max(_SMALL_PRODUCT // matrix[0].size, 1)
        for start in range(0, tokens, step):
            part = slice(start, start + step)
            np.matmul(x[part], matrix, out=blocks[:, part])
    else:
        most = min(_SMALL_RESULT // tokens, _SMALL_PRODUCT // x.size)
        step = most // _VECTOR * _VECTOR or outputs
        for start in range(0, outputs, step):
            part = slice(start, start + step)
            np.matmul(x, matrix[part].T, out=result[:, part])
    result += bias
    return result


def pack(layers: Sequence[LayerWeights]) -> list[LayerWeights]:
    """Return layers whose matrices lie in the order in which `dense` reads them fastest."""
    # All in one array: numpy asks for huge pages, which make reading it a tenth faster.
    wanted = [w for layer in layers for w, _ in layer if w.ndim == 2 and len(w) % _BLOCK == 0]
    place = np.empty(sum(matrix.size for matrix in wanted), dtype=np.float32)
    packed: dict[int, Floats] = {}
    start = 0
    for matrix in wanted:
        blocks = matrix.reshape(-1, _BLOCK, matrix.shape[1]).transpose(0, 2, 1)
        part = place[start : start + matrix.size].reshape(blocks.shape)
        part[:] = blocks
        packed[id(matrix)] = part
        start += matrix.size
    return [LayerWeights(*((packed.get(id(w), w), b) for w, b in layer)) for layer in layers]


def gelu(x: Floats) -> Floats:
    """Return x times the standard normal distribution of x: the exact GELU, to 3e-7."""
    square = x * x
    result = square * _ARTANH[-1]
    for coefficient in _ARTANH[-2:0:-1]:
        result += coefficient
        result *= square
    result += _ARTANH[0]
    result *= x
    np.tanh(result, out=result)
    result += _ONE
    result *= x
    result *= _HALF
    return result


def layer_norm(x: Floats, weights: Dense, epsilon: float) -> Floats:
    """Scale each row of (tokens, hidden) in place to mean 0 and variance 1, then gain and shift."""
    gain, shift = weights
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
    query, key, value = (
        dense(x, part).reshape(tokens, heads, -1).transpose(1, 0, 2)
        for part in (layer.query, layer.key, layer.value)
    )
    query *= np.float32(1.0 / math.sqrt(hidden // heads))
    scores = query @ key.transpose(0, 2, 1)
    scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=2, keepdims=True)
    context = np.empty((tokens, heads, hidden // heads), dtype=np.float32)
    np.matmul(scores, value, out=context.transpose(1, 0, 2))
    return dense(context.reshape(tokens, hidden), layer.out)


def encoder_layer(x: Floats, layer: LayerWeights, heads: int, epsilon: float) -> Floats:
    """Return one post-norm transformer layer of x, shape (tokens, hidden)."""
    attended = attention(x, layer, heads)
    attended += x
    attended = layer_norm(attended, layer.attention_norm, epsilon)
    result = dense(gelu(dense(attended, layer.up)), layer.down)
    result += attended
    return layer_norm(result, layer.output_norm, epsilon)


# The directory of an exported encoder: encoder.json (format version, fingerprint, architecture,
# size and hash of the two other files), vocab.txt (one token per line) and model.safetensors: a
# BERT checkpoint in float32. The default model's is not copied: it is read where it is installed.

FORMAT_VERSION = formats.ENCODER.version
HEADER_FILE = "encoder.json"
MOST_LAYERS = 1_000  # of a header: it is checked before the weights are
WORDS, POSITIONS, SEGMENTS = (
    f"embeddings.{table}_embeddings.weight" for table in ("word", "position", "token_type")
)
NORM = "embeddings.LayerNorm"
# In the order of LayerWeights.
_MODULES = (
    "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
    "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm",
)  # fmt: skip

_FLOAT32 = np.dtype("<f4")


class Architecture(NamedTuple):
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


class Header(NamedTuple):
    """The content of encoder.json."""

    fingerprint: EncoderFingerprint
    architecture: Architecture
    weights: FileIdentity
    vocab: FileIdentity


class TensorPlace(NamedTuple):
    """The place of a tensor in a file."""

    offset_bytes: int
    shape: tuple[int, ...]


def tensor_shapes(arch: Architecture) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor in a checkpoint; of positions and segments, the least."""
    hidden, inner = arch.hidden, arch.intermediate
    square, vector = (hidden, hidden), (hidden,)
    of_layer = (*[square] * 4, vector, (inner, hidden), (hidden, inner), vector)
    modules: dict[str, tuple[int, ...]] = {NORM: vector}
    for layer in range(arch.layers):
        modules |= zip(_modules(layer), of_layer, strict=True)
    shapes: dict[str, tuple[int, ...]] = {
        WORDS: (arch.vocab_size, hidden), POSITIONS: (arch.max_tokens, hidden),
        SEGMENTS: (1, hidden),
    }  # fmt: skip
    for module, shape in modules.items():
        shapes |= {f"{module}.weight": shape, f"{module}.bias": shape[:1]}
    return shapes


def _modules(layer: int) -> list[str]:
    return [f"encoder.layer.{layer}.{module}" for module in _MODULES]


def map_file(path: Path) -> mmap.mmap:
    """Map a whole file as it is now; OSError or ValueError if it is missing or empty."""
    with path.open("rb") as handle:
        return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)


def find_tensors(file: mmap.mmap, arch: Architecture) -> dict[str, TensorPlace]:
    """Return where in a safetensors file the tensors are.

    ValueError, TypeError or KeyError if it is none, or not of such a model in float32.
    """
    start = 8 + int.from_bytes(file[:8], "little")
    table: dict[str, Any] = parse_json(file[8:start])
    places: dict[str, TensorPlace] = {}
    for name, shape in tensor_shapes(arch).items():
        entry = table[name]
        (first, end), found = entry["data_offsets"], tuple(entry["shape"])
        is_longer = name in (POSITIONS, SEGMENTS) and found[1:] == shape[1:] and found > shape
        if (
            {type(number) for number in (first, end, *found)} != {int}
            or not (found == shape or is_longer)
            or entry["dtype"] != "F32"
            or not 0 <= first < end <= len(file) - start
            or end - first != prod(found) * _FLOAT32.itemsize
        ):
            raise ValueError(f"{name} is {entry['dtype']} {found} at {first} to {end}")
        places[name] = TensorPlace(start + first, found)
    return places


def header_text(header: Header) -> str:
    """Return the content of encoder.json."""
    value = {
        "format_version": FORMAT_VERSION,
        "fingerprint": header.fingerprint.to_json(),
        "architecture": header.architecture._asdict(),
        "weights": header.weights._asdict(),
        "vocab": header.vocab._asdict(),
    }
    return json.dumps(value, indent=1) + "\n"


def read_header(directory: Path) -> Header:
    """Read encoder.json; EncoderError if it is missing, of another version or inconsistent."""
    path = directory / HEADER_FILE
    try:
        value = parse_json(path.read_bytes())
        if value["format_version"] != FORMAT_VERSION:
            raise EncoderError(
                f"{path} has format version {value['format_version']!r}; expected "
                f"{FORMAT_VERSION}. Export the encoder again with this version."
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
    if header.fingerprint.dimension != arch.hidden:
        raise ValueError("the fingerprint's dimension is not the architecture's")
    return header


class LeanEncoder(NamedTuple):
    """A memory-mapped BERT encoder with mean pooling."""

    fingerprint: EncoderFingerprint  # of its source: the vectors agree to float32 rounding
    architecture: Architecture
    tokenizer: WordPiece
    word: Floats  # shape (vocab_size, hidden)
    position: Floats  # shape (max_tokens or more, hidden)
    segment: Floats  # of the first segment, which every text is; shape (hidden,)
    norm: Dense
    layers: tuple[LayerWeights, ...]

    @classmethod
    def open(cls, directory: Path, *, verify: bool = False) -> LeanEncoder:
        """Map the weights of `export_lean`; `verify` also hashes them, 0.1-0.3 s for 90 MB."""
        header = read_header(directory)
        arch = header.architecture
        tokenizer = _open_vocab(directory / VOCAB_FILE, header.vocab, arch.vocab_size)
        path = locate_weights(directory, header.fingerprint)
        tensors = _map_weights(path, header.weights, arch, verify=verify)
        tables = tensors[WORDS], tensors[POSITIONS], tensors[SEGMENTS][0]

        def named(module: str) -> Dense:
            return tensors[f"{module}.weight"], tensors[f"{module}.bias"]

        layers = (LayerWeights(*map(named, _modules(layer))) for layer in range(arch.layers))
        return cls(header.fingerprint, arch, tokenizer, *tables, named(NORM), tuple(layers))

    def packed(self) -> LeanEncoder:
        """Return the encoder for a process that keeps asking; vectors agree to float32 rounding.

        It takes as long as ten queries and copies the layers, in place of the file's pages.
        """
        layers = pack(self.layers)
        release_pages(self.word)
        return self._replace(layers=tuple(layers))

    def encode_query(self, text: str) -> Floats:
        """Return one unit vector; shape (dimension,)."""
        return self._encode(self.fingerprint.query_prefix + text, 0)

    def encode_documents(self, texts: Sequence[str], progress: Progress = SILENT) -> Floats:
        """Return a unit row per text; one text at a time, so neighbours have no influence."""
        vectors = np.empty((len(texts), self.architecture.hidden), dtype=np.float32)
        for position, text in enumerate(texts):
            vectors[position] = self._encode(self.fingerprint.document_prefix + text, position)
            progress.update("encode", position + 1, len(texts))
        return vectors

    def known_share(self, text: str) -> float:
        """Return the share of a text's tokens that the vocabulary has, in [0, 1]; 1 of none."""
        return self.tokenizer.known_share(text, self.architecture.max_tokens)

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
        x += self.position[: len(ids)] + self.segment
        x = layer_norm(x, self.norm, arch.norm_epsilon)
        for layer in self.layers:
            x = encoder_layer(x, layer, arch.heads, arch.norm_epsilon)
        pooled = x.mean(axis=0, keepdims=True)
        pooled /= np.sqrt(np.einsum("ij,ij->i", pooled, pooled))[:, None]
        return pooled


def locate_weights(directory: Path, fingerprint: EncoderFingerprint) -> Path:
    """Return the file of the weights; EncoderError if the default model is not installed."""
    own = directory / WEIGHTS_FILE
    is_installed = fingerprint.model == DEFAULT_MODEL and not own.is_file()
    return locate_default() / WEIGHTS_FILE if is_installed else own


def _open_vocab(path: Path, identity: FileIdentity, vocab_size: int) -> WordPiece:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise EncoderError(f"cannot read {path} ({error}). Export the encoder again.") from error
    _require_identity(path, FileIdentity(len(raw), sha256(raw).hexdigest()), identity)
    tokenizer = WordPiece(raw)
    if tokenizer.size != vocab_size:
        raise EncoderError(
            f"{path} holds {tokenizer.size} tokens; expected {vocab_size}. "
            "Export the encoder again."
        )
    return tokenizer


def _map_weights(
    path: Path, identity: FileIdentity, arch: Architecture, *, verify: bool
) -> dict[str, Floats]:
    try:
        mapped = map_file(path)
        digest = hash_file(path) if verify else identity.sha256
    except (OSError, ValueError) as error:
        raise EncoderError(f"cannot map {path} ({error}). Export the encoder again.") from error
    _require_identity(path, FileIdentity(len(mapped), digest), identity)
    try:
        places = find_tensors(mapped, arch)
    except (ValueError, TypeError, KeyError) as error:
        raise EncoderError(
            f"{path} does not hold such a BERT in float32 ({type(error).__name__}: {error}). "
            "Export the encoder again."
        ) from error
    return {
        name: np.frombuffer(mapped, _FLOAT32, prod(shape), offset).reshape(shape)
        for name, (offset, shape) in places.items()
    }


def _require_identity(path: Path, found: FileIdentity, expected: FileIdentity) -> None:
    if found != expected:
        raise EncoderError(
            f"{path} has {found.size_bytes} bytes and SHA-256 {found.sha256}; expected "
            f"{expected.size_bytes} and {expected.sha256}. Export the encoder again."
        )
