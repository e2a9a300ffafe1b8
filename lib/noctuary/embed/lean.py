"""The read side's encoder: a BERT forward pass in numpy over memory-mapped weights."""

from __future__ import annotations

import atexit
import itertools
import json
import math
import mmap
import threading
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core import formats
from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file, release_pages, sha256
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import SILENT, Progress, usable_cores
from noctuary.embed.fingerprint import EncoderFingerprint, require_same, require_unit_rows
from noctuary.embed.wordpiece import WordPiece

if TYPE_CHECKING:
    from noctuary.embed.onnx import OnnxEncoder

# The arithmetic of a BERT encoder on numpy arrays of one text.
#
# Sources: Vaswani et al., "Attention Is All You Need" (2017); Hendrycks and Gimpel, "Gaussian
# Error Linear Units" (2016); Ba et al., "Layer Normalization" (2016).

Floats = NDArray[np.float32]

# erfc(z) exp(z^2) as a ratio of polynomials in z, lowest power first: a weighted least-squares fit
# of our own over [0, 5], within 2e-8 of erfc. All terms are positive: nothing cancels in float32.
_ABOVE = (1.0, 0.5246595765032215, 0.14147290936820758)
_BELOW = (1.0, 1.6530402472991703, 1.006695143214606, 0.2354024574672044, 0.0014867727837260308)
_ERFC_ABOVE, _ERFC_BELOW = (tuple(map(np.float32, row)) for row in (_ABOVE, _BELOW))
_SQRT_HALF = np.float32(math.sqrt(0.5))


class LayerWeights(NamedTuple):
    """Weights of one layer, (inputs, outputs); the query part is divided by sqrt(head size)."""

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
    """Return x times the standard normal distribution of x: the exact GELU, to 2e-7 or 2 ulp."""
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


# The directory of an exported encoder: encoder.json (format version, fingerprint, architecture,
# tensor table, size and hash of the two other files), vocab.txt (one token per line) and
# weights.bin (the tensors, little-endian float32, each at a multiple of ALIGNMENT_BYTES).

FORMAT_VERSION = formats.ENCODER.version
HEADER_FILE, VOCAB_FILE, WEIGHTS_FILE = "encoder.json", "vocab.txt", "weights.bin"
ALIGNMENT_BYTES = 64  # of every tensor: one cache line, so that vector loads do not straddle two
MOST_LAYERS = 1_000  # of a header: it is checked before the size of the weights is

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
    """The place of a tensor in weights.bin."""

    offset_bytes: int
    shape: tuple[int, ...]


def tensor_shapes(arch: Architecture) -> dict[str, tuple[int, ...]]:
    """Return every tensor's shape in file order; the word table, rarely read whole, is last."""
    hidden, inner = arch.hidden, arch.intermediate
    of_layer = (
        *((hidden, 3 * hidden), (3 * hidden,), (hidden, hidden), (hidden,), (hidden,), (hidden,)),
        *((hidden, inner), (inner,), (inner, hidden), (hidden,), (hidden,), (hidden,)),
    )
    shapes: dict[str, tuple[int, ...]] = {"position": (arch.max_tokens, hidden)}
    shapes |= {"embedding_gain": (hidden,), "embedding_shift": (hidden,)}
    for layer in range(arch.layers):
        named = zip(LayerWeights._fields, of_layer, strict=True)
        shapes |= {f"{layer}.{name}": shape for name, shape in named}
    return {**shapes, "word": (arch.vocab_size, hidden)}


def tensor_table(arch: Architecture) -> tuple[dict[str, TensorPlace], int]:
    """Return the place of every tensor, and the size of weights.bin in bytes."""
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
        "architecture": header.architecture._asdict(),
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
    table, size_bytes = tensor_table(arch)
    if value["tensors"] != _listed(table) or header.weights.size_bytes != size_bytes:
        raise ValueError("the tensor table does not match the architecture")
    if header.fingerprint.dimension != arch.hidden:
        raise ValueError("the fingerprint's dimension is not the architecture's")
    return header


def _listed(table: Mapping[str, TensorPlace]) -> dict[str, list[int]]:
    return {name: [place.offset_bytes, *place.shape] for name, place in table.items()}


class LeanEncoder(NamedTuple):
    """A memory-mapped BERT encoder with mean pooling."""

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
        """Map the weights of `export_lean`; `verify` also hashes them, 0.1-0.3 s for 90 MB."""
        header = read_header(directory)
        arch = header.architecture
        tokenizer = _open_vocab(directory / VOCAB_FILE, header.vocab, arch.vocab_size)
        tensors = _map_weights(directory / WEIGHTS_FILE, header.weights, arch, verify=verify)
        layers = tuple(
            LayerWeights(*(tensors[f"{layer}.{name}"] for name in LayerWeights._fields))
            for layer in range(arch.layers)
        )
        others = ("position", "embedding_gain", "embedding_shift", "word")
        named = {name: tensors[name] for name in others}
        return cls(header.fingerprint, arch, tokenizer, layers=layers, **named)

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
        with path.open("rb") as handle:
            # Length 0 maps the whole file as it is now.
            mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
        digest = hash_file(path) if verify else identity.sha256
    except (OSError, ValueError) as error:
        raise EncoderError(f"cannot map {path} ({error}). Export the encoder again.") from error
    _require_identity(path, FileIdentity(len(mapped), digest), identity)
    table, _ = tensor_table(arch)
    return {
        name: np.frombuffer(mapped, _FLOAT32, prod(shape), offset).reshape(shape)
        for name, (offset, shape) in table.items()
    }


def _require_identity(path: Path, found: FileIdentity, expected: FileIdentity) -> None:
    if found != expected:
        raise EncoderError(
            f"{path} has {found.size_bytes} bytes and SHA-256 {found.sha256}; expected "
            f"{expected.size_bytes} and {expected.sha256}. Export the encoder again."
        )


# The query face of a process that keeps asking: this encoder starts in 20 ms, ONNX Runtime in half
# a second, and is two to three times as fast per query.

WARM_AFTER_QUERIES = 8  # before the runtime is loaded, which costs what 100 queries save
CALL_THREADS = 2  # of one call, at most the cores: two take 2.5 ms a query where one takes 3.5
MIN_COSINE = 0.9999  # of two implementations: float32 reaches 0.999999, a wrong tokenizer 0.999

# Compared before the change: each uses another part of both.
SAMPLE_TEXTS = (
    "",
    "When did we move the quarterly review, and who decided it?",
    "CAPITALS, Ünïcödé accents, Ελληνικά ΣΟΦΟΣ",
    "我们明天去北京开会。 Встреча перенесена на пятницу.",
    "def f(x):\n\treturn x[0] != 'a' # 🙂",
    "one two three four five six seven eight nine ten " * 8,
)
# Longest wait for a load (0.5 s) at exit: the runtime aborts a process that ends inside a call.
_LEAVE_WITHIN_S = 5.0


class WarmEncoder:
    """Encodes queries; safe to share between threads, and never fails for the runtime."""

    def __init__(self, lean: LeanEncoder, export: Path) -> None:
        self.lean = lean
        self._export = export
        self._asked = itertools.count(1)
        self._runtime: OnnxEncoder | None = None
        self._reason = f"fewer than {WARM_AFTER_QUERIES} queries were encoded"

    @property
    def reason(self) -> str:
        """Say why the runtime does not encode; empty if it does."""
        return "" if self._runtime is not None else self._reason

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """Return the unit vector of a query; EncoderError if the lean encoder cannot give one."""
        if (runtime := self._runtime) is not None:
            try:
                return runtime.encode_query(text)
            # onnxruntime's exceptions have no common base; the lean encoder answers instead.
            except Exception as error:
                self._runtime = None
                self._reason = f"a query failed: {type(error).__name__}: {error}"
        # No lock: `next` is atomic, so exactly one thread sees the number.
        elif next(self._asked) == WARM_AFTER_QUERIES:
            self.load_behind()
        return self.lean.encode_query(text)

    def load_behind(self) -> threading.Thread | None:
        """Load the runtime in the background; None where there is nothing to load."""
        if not self._export.is_dir():
            self._reason = "the store has no ONNX export: the next night makes one"
            return None
        thread = threading.Thread(target=self.load, name="noctuary-warm", daemon=True)
        atexit.register(thread.join, _LEAVE_WITHIN_S)
        self._reason = "the runtime is being loaded"
        thread.start()
        return thread

    def load(self) -> bool:
        """Use the runtime from now on if it loads and agrees; say whether it does. Never raises."""
        try:
            self._runtime = self._open()
        # Whatever is wrong with the runtime or its files, recall goes on without.
        except Exception as error:
            self._reason = f"{type(error).__name__}: {error}"
            return False
        return True

    def _open(self) -> OnnxEncoder:
        from noctuary.embed.onnx import OnnxEncoder

        threads = min(CALL_THREADS, usable_cores())
        runtime = OnnxEncoder.open(self._export, 1, call_threads=threads)
        require_same(self.lean.fingerprint, runtime.fingerprint)
        for number, text in enumerate(SAMPLE_TEXTS):
            cosine = float(runtime.encode_query(text) @ self.lean.encode_query(text))
            # Not "below": NaN must not pass.
            if not cosine >= MIN_COSINE:
                raise EncoderError(
                    f"the ONNX export agrees with the lean encoder only to cosine {cosine:.6f} on "
                    f"sample text {number}; expected {MIN_COSINE}. Delete {self._export}; the next "
                    "night exports again."
                )
        # Half of what a warm process holds; the file is read again for the store's own rows.
        release_pages(self.lean.word)
        return runtime
