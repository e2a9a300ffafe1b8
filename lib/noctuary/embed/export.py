"""Turning a sentence-transformers model into the directories that the other two encoders read.

Nothing is put in place unless it agrees with its source.
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import fsync_dir, fsync_file, hash_file, remove_tree, write_text
from noctuary.core.foreign_json import parse_json
from noctuary.embed import lean, onnx
from noctuary.embed.fingerprint import EncoderUnsupportedError
from noctuary.embed.lean import (
    MIN_COSINE,
    Architecture,
    FileIdentity,
    Floats,
    Header,
    LeanEncoder,
    WordPiece,
)
from noctuary.embed.onnx import OnnxEncoder, OnnxHeader
from noctuary.embed.sentence import SentenceEncoder, load_model

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
"""Texts that are always compared: each uses a part of the tokenizer that a plain sample may not."""


def measure_agreement(
    source: SentenceEncoder, face: LeanEncoder | OnnxEncoder, texts: Sequence[str]
) -> NDArray[np.float64]:
    """Return the cosines of documents in two implementations, then of probes as queries."""
    pairs = [(source.encode_documents(texts), face.encode_documents(texts))]
    pairs += [
        (source.encode_query(text)[np.newaxis], face.encode_query(text)[np.newaxis])
        for text in PROBE_TEXTS
    ]
    cosines = [np.einsum("ij,ij->i", one, other, dtype=np.float64) for one, other in pairs]
    return np.concatenate(cosines)


def _least_cosine(
    source: SentenceEncoder,
    face: LeanEncoder | OnnxEncoder,
    texts: Sequence[str],
    name: str,
    remedy: str,
) -> float:
    """Return the worst agreement; EncoderError if it is below MIN_COSINE."""
    cosines = measure_agreement(source, face, texts)
    worst = int(np.argmin(cosines))
    if not cosines[worst] >= MIN_COSINE:
        place = f"text {worst}" if worst < len(texts) else f"query {worst - len(texts)}"
        raise EncoderError(
            f"{name} disagrees with {source.fingerprint.model} on {place}: cosine "
            f"{cosines[worst]:.6f}, expected at least {MIN_COSINE}. {remedy}"
        )
    return float(cosines[worst])


@contextmanager
def _building(directory: Path) -> Generator[Path]:
    """Make a directory beside its place and rename it; where that fails, what was there stays."""
    # Fixed names: what a killed export left behind is removed by the next one.
    building = directory.with_name(f".{directory.name}.building")
    aside = directory.with_name(f".{directory.name}.old")
    remove_tree(building)
    building.mkdir(parents=True)
    try:
        yield building
        remove_tree(aside)
        # A directory cannot be renamed over a non-empty one: the old one steps aside first.
        if directory.exists():
            directory.rename(aside)
        building.rename(directory)
        fsync_dir(directory.parent)
        remove_tree(aside)
    finally:
        remove_tree(building)


# The numpy encoder's directory: a published BERT checkpoint in another layout.

_CHECKPOINT = "model.safetensors"
_EXPECTED_CONFIG = {
    "model_type": ("bert",),
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
}
_ARCHITECTURE = {
    "layers": "num_hidden_layers", "heads": "num_attention_heads", "hidden": "hidden_size",
    "intermediate": "intermediate_size", "vocab_size": "vocab_size",
    "max_tokens": "max_position_embeddings", "norm_epsilon": "layer_norm_eps",
}  # fmt: skip
"""Names of sizes in config.json."""

_LAYER = {
    "out_weight": "attention.output.dense.weight",
    "out_bias": "attention.output.dense.bias",
    "attention_gain": "attention.output.LayerNorm.weight",
    "attention_shift": "attention.output.LayerNorm.bias",
    "up_weight": "intermediate.dense.weight",
    "up_bias": "intermediate.dense.bias",
    "down_weight": "output.dense.weight",
    "down_bias": "output.dense.bias",
    "output_gain": "output.LayerNorm.weight",
    "output_shift": "output.LayerNorm.bias",
}
"""Names of a layer's tensors in a checkpoint; matrices are transposed there."""

Tensors = dict[str, Floats]


def export_lean(encoder: SentenceEncoder, directory: Path, sample_texts: Sequence[str]) -> float:
    """Write what `LeanEncoder.open` reads; return its least cosine with the source's vectors.

    A valid export of the same fingerprint is kept. EncoderError if some vectors do not agree,
    EncoderUnsupportedError for what is no uncased BERT with mean pooling.
    """

    def agreement(found: LeanEncoder) -> float:
        remedy = (
            "The model differs from a plain BERT: queries need the full library, or choose another "
            "model."
        )
        texts = [*PROBE_TEXTS, *sample_texts]
        return _least_cosine(encoder, found, texts, "the numpy encoder", remedy)

    try:
        existing = LeanEncoder.open(directory, verify=True)
    except EncoderError:
        existing = None
    if existing is not None and existing.fingerprint == encoder.fingerprint:
        return agreement(existing)
    arch = _supported_architecture(encoder)
    with _building(directory) as building:
        _write_lean(building, encoder, arch)
        return agreement(LeanEncoder.open(building))


def _supported_architecture(encoder: SentenceEncoder) -> Architecture:
    """Return the sizes of a BERT with exact GELU, absolute positions and mean pooling."""
    fingerprint, model_dir = encoder.fingerprint, encoder.model_dir
    names, are_known = _look_at_modules(encoder, {"Transformer", "Pooling", "Normalize"})
    if not are_known or fingerprint.pooling != "mean":
        raise EncoderUnsupportedError(
            f"model {fingerprint.model} has the modules {names} with {fingerprint.pooling} "
            "pooling; the numpy encoder reads a transformer with mean pooling. Queries need the "
            "full library, or choose another model."
        )
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
    if not (model_dir / _CHECKPOINT).is_file():
        raise EncoderUnsupportedError(
            f"{model_dir} has no single {_CHECKPOINT}; the numpy encoder is exported from one. "
            "Convert the weights to safetensors."
        )
    return Architecture(**sizes)


def _look_at_modules(encoder: SentenceEncoder, known: set[str]) -> tuple[str, bool]:
    """Return the model's modules in words; and whether all are known and pool their prompt."""
    names = [type(module).__name__ for module in encoder.model]
    included = [m.include_prompt for m in encoder.model if hasattr(m, "include_prompt")]
    return ", ".join(names), not set(names) - known and all(included)


def _write_lean(directory: Path, encoder: SentenceEncoder, arch: Architecture) -> None:
    vocab = _vocab_text(encoder.model.tokenizer.get_vocab(), arch.vocab_size)
    _require_same_tokens(encoder, WordPiece.from_text(vocab))
    write_text(directory / lean.VOCAB_FILE, vocab)
    weights, tensors = directory / lean.WEIGHTS_FILE, _read_tensors(encoder.model_dir, arch)
    table, size_bytes = lean.tensor_table(arch)
    with weights.open("wb") as handle:
        handle.truncate(size_bytes)
        for name, place in table.items():
            handle.seek(place.offset_bytes)
            handle.write(np.ascontiguousarray(tensors[name], dtype="<f4").tobytes())
    fsync_file(weights)
    raw = vocab.encode("utf-8")
    header = Header(
        fingerprint=encoder.fingerprint,
        architecture=arch,
        weights=FileIdentity(weights.stat().st_size, hash_file(weights)),
        vocab=FileIdentity(len(raw), sha256(raw).hexdigest()),
    )
    write_text(directory / lean.HEADER_FILE, lean.header_text(header))
    fsync_dir(directory)


def _vocab_text(vocab: Mapping[str, int], vocab_size: int) -> str:
    tokens = sorted(vocab, key=vocab.__getitem__)
    contiguous = [vocab[token] for token in tokens] == list(range(vocab_size))
    if not contiguous or any("\n" in token for token in tokens):
        raise EncoderUnsupportedError(
            f"the tokenizer's {len(tokens)} tokens are not numbered 0 to {vocab_size - 1} on one "
            "line each; the numpy encoder reads a BERT vocabulary. Choose another model."
        )
    return "\n".join(tokens) + "\n"


def _require_same_tokens(encoder: SentenceEncoder, tokenizer: WordPiece) -> None:
    limit = encoder.fingerprint.max_tokens
    for text in PROBE_TEXTS:
        expected = encoder.model.tokenizer(text, truncation=True, max_length=limit)["input_ids"]
        if tokenizer.encode(text, limit) != expected:
            raise EncoderUnsupportedError(
                f"model {encoder.fingerprint.model} tokenizes {text[:40]!r} differently from an "
                "uncased BERT; the numpy encoder has no other tokenizer. Choose another model."
            )


def _read_tensors(model_dir: Path, arch: Architecture) -> Tensors:
    """Read the checkpoint and change its layout to that of `lean.tensor_shapes`."""
    path = model_dir / _CHECKPOINT
    raw = _load_checkpoint(path)
    try:
        tensors = {
            # Every text here is one segment, so its segment row is added once, not per query.
            "position": raw["embeddings.position_embeddings.weight"][: arch.max_tokens]
            + raw["embeddings.token_type_embeddings.weight"][0],
            "embedding_gain": raw["embeddings.LayerNorm.weight"],
            "embedding_shift": raw["embeddings.LayerNorm.bias"],
            "word": raw["embeddings.word_embeddings.weight"],
        }
        for layer in range(arch.layers):
            of_layer = _layer_tensors(raw, f"encoder.layer.{layer}.", arch.hidden // arch.heads)
            tensors |= {f"{layer}.{name}": tensor for name, tensor in of_layer.items()}
    except KeyError as error:
        raise EncoderUnsupportedError(
            f"{path} has no tensor {error}; expected a BERT encoder. Choose another model."
        ) from error
    for name, shape in lean.tensor_shapes(arch).items():
        if tensors[name].shape != shape:
            raise EncoderUnsupportedError(
                f"tensor {name} of {model_dir} has shape {tensors[name].shape}; config.json "
                f"implies {shape}. Choose another model."
            )
    return tensors


def _load_checkpoint(path: Path) -> Tensors:
    library: Any = importlib.import_module("safetensors")
    safetensors_numpy: Any = importlib.import_module("safetensors.numpy")
    try:
        raw: dict[str, NDArray[Any]] = safetensors_numpy.load_file(str(path))
    except (OSError, ValueError, library.SafetensorError) as error:
        raise EncoderError(
            f"cannot read {path} ({error}). Copy the whole model directory again."
        ) from error
    # A checkpoint saved with a task head nests the encoder one level deeper.
    prefix = "bert." if "embeddings.word_embeddings.weight" not in raw else ""
    # Integer tensors (position_ids) are not weights.
    return {
        name.removeprefix(prefix): np.asarray(tensor, dtype=np.float32)
        for name, tensor in raw.items()
        if tensor.dtype.kind == "f"
    }


def _layer_tensors(raw: Tensors, base: str, head_size: int) -> Tensors:
    names = [f"{base}attention.self.{part}." for part in ("query", "key", "value")]
    # The scores' division by the root of the head size moves into the query matrix.
    scales = [np.float32(1.0 / math.sqrt(head_size)), np.float32(1), np.float32(1)]
    parts = list(zip(names, scales, strict=True))
    return {
        "qkv_weight": np.hstack([raw[f"{n}weight"].T * s for n, s in parts]),
        "qkv_bias": np.hstack([raw[f"{n}bias"] * s for n, s in parts]),
        # The transpose of a vector is itself.
        **{name: raw[f"{base}{theirs}"].T for name, theirs in _LAYER.items()},
    }


# ONNX Runtime's directory. A model that is not exported is recorded as declined, so that it is not
# tried again every night.

OPSET = 17
"""The newest that torch's tracing exporter writes, the oldest with one LayerNormalization."""

MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "distilbert")
"""Architectures that are exported; each has a test. Others may trace, but nobody has looked."""

_EXAMPLE_TOKENS = 12
_INSTEAD = "sentence-transformers embeds instead."


def export_onnx(
    encoder: SentenceEncoder, directory: Path, sample_texts: Sequence[str]
) -> OnnxHeader:
    """Write what `OnnxEncoder.open` reads, or why the model is declined; replace what is there."""
    tools = onnx.toolchain()
    if tools is None:
        raise EncoderError("onnx and onnxruntime are not installed. Install noctuary[pipelines].")
    header = OnnxHeader(encoder.fingerprint, tools, {}, 0.0, 0)
    texts = [*PROBE_TEXTS, *sample_texts]
    with _building(directory) as building:
        try:
            _require_traceable(encoder)
            _write_graph(encoder, building / onnx.MODEL_FILE)
            _write_tokenizer(encoder, building / onnx.TOKENIZER_FILE)
            header = replace(header, files=onnx.hash_files(building))
            onnx.write_header(building, header)
            opened = OnnxEncoder.open(building)
            worst = _least_cosine(encoder, opened, texts, "the ONNX export", _INSTEAD)
            header = replace(header, min_cosine=round(worst, 7), sampled_texts=len(texts))
        except EncoderError as error:
            remove_tree(building)
            building.mkdir()
            header = replace(header, files={}, declined=str(error))
        onnx.write_header(building, header)
    return header


def _require_traceable(encoder: SentenceEncoder) -> None:
    name = encoder.fingerprint.model
    known = {"Transformer", "Pooling", "Normalize", "Dense"}
    modules, are_known = _look_at_modules(encoder, known)
    kinds = [str(m.auto_model.config.model_type) for m in encoder.model if hasattr(m, "auto_model")]
    if not are_known or len(kinds) != 1:
        raise EncoderUnsupportedError(
            f"model {name} has the modules {modules}; ONNX export reads one transformer with "
            f"pooling. {_INSTEAD}"
        )
    if kinds[0] not in MODEL_TYPES:
        raise EncoderUnsupportedError(
            f"model {name} is a {kinds[0]}; ONNX export reads {', '.join(MODEL_TYPES)}. {_INSTEAD}"
        )
    if not hasattr(encoder.model.tokenizer, "backend_tokenizer"):
        raise EncoderUnsupportedError(
            f"model {name} has no tokenizer of the tokenizers library, which the ONNX face needs. "
            f"{_INSTEAD}"
        )


def _write_graph(encoder: SentenceEncoder, path: Path) -> None:
    torch: Any = importlib.import_module("torch")
    # A second copy, whose attention is plain products: the runtime fuses those best.
    wrapped = _wrap(load_model(encoder.model_dir, attention="eager"))
    # The wrapper takes token ids only: at one unpadded text per call the mask is all ones, and the
    # runtime folds it away.
    example = torch.ones((1, _EXAMPLE_TOKENS), dtype=torch.long)
    with warnings.catch_warnings():
        # The tracing exporter announces its successor and warns of every constant that it folds;
        # that the graph is right at every length is measured instead.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                wrapped,
                (example,),
                str(path),
                dynamo=False,
                opset_version=OPSET,
                input_names=[onnx.INPUT_NAME],
                output_names=[onnx.OUTPUT_NAME],
                dynamic_axes={onnx.INPUT_NAME: {1: "tokens"}},
            )
        # The tracer raises whatever the model's code raises; the cause is kept.
        except Exception as error:
            raise EncoderUnsupportedError(
                f"model {encoder.fingerprint.model} cannot be traced ({type(error).__name__}: "
                f"{str(error)[:200]}). {_INSTEAD}"
            ) from error
    fsync_file(path)


def _wrap(model: Any) -> Any:
    torch: Any = importlib.import_module("torch")

    class UnitVector(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any) -> Any:
            features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            pooled = self.model(features)["sentence_embedding"]
            return torch.nn.functional.normalize(pooled, dim=-1)

    return UnitVector().eval().float()


def _write_tokenizer(encoder: SentenceEncoder, path: Path) -> None:
    library: Any = importlib.import_module("tokenizers")
    # A copy: the original's truncation and padding change with every call of the model.
    copy: Any = library.Tokenizer.from_str(encoder.model.tokenizer.backend_tokenizer.to_str())
    copy.no_truncation()
    copy.no_padding()
    write_text(path, copy.to_str())
