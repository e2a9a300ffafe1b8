"""Turn a sentence-transformers model into the directory that the lean encoder reads."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import fsync_dir, fsync_file, hash_file, remove_tree, write_text
from noctuary.core.foreign_json import parse_json
from noctuary.embed.fingerprint import Encoder, EncoderUnsupportedError
from noctuary.embed.lean import (
    HEADER_FILE,
    VOCAB_FILE,
    WEIGHTS_FILE,
    Architecture,
    FileIdentity,
    Header,
    LeanEncoder,
    WordPiece,
    header_text,
    tensor_shapes,
    tensor_table,
)
from noctuary.embed.sentence import SentenceEncoder, open_sentence_encoder

# Reading a published BERT checkpoint into the numpy encoder's tensors.


Tensors = dict[str, NDArray[np.float32]]

_CONFIG_FILE = "config.json"
_CHECKPOINT_FILE = "model.safetensors"
_EXPECTED_CONFIG = {
    "model_type": ("bert",),
    "hidden_act": ("gelu",),
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
}
_PREFIXES = ("", "bert.")
"""A checkpoint saved with a task head nests the encoder one level deeper."""


def read_architecture(model_dir: Path, max_tokens: int) -> Architecture:
    """Read the sizes of a BERT model.

    Args:
        model_dir: Directory with config.json.
        max_tokens: Longest text of the encoder, at most the model's own positions.

    Raises:
        EncoderUnsupportedError: Not a BERT with exact GELU and absolute positions, or not
        safetensors.
        EncoderError: config.json is unreadable.
    """
    path = model_dir / _CONFIG_FILE
    try:
        config: dict[str, Any] = parse_json(path.read_bytes())
        arch = Architecture(
            layers=config["num_hidden_layers"],
            heads=config["num_attention_heads"],
            hidden=config["hidden_size"],
            intermediate=config["intermediate_size"],
            vocab_size=config["vocab_size"],
            max_tokens=min(max_tokens, config["max_position_embeddings"]),
            norm_epsilon=config["layer_norm_eps"],
        )
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
    if not (model_dir / _CHECKPOINT_FILE).is_file():
        raise EncoderUnsupportedError(
            f"{model_dir} has no single {_CHECKPOINT_FILE}; the numpy encoder is exported from "
            "one. Convert the weights to safetensors."
        )
    return arch


def read_tensors(model_dir: Path, arch: Architecture) -> Tensors:
    """Read the checkpoint and change its layout to that of `lean_format.tensor_shapes`.

    Raises:
        EncoderUnsupportedError: A tensor is missing or of another shape.
        EncoderError: The file is damaged.
    """
    raw = _load(model_dir / _CHECKPOINT_FILE)
    try:
        tensors = _embeddings(raw, arch)
        for layer in range(arch.layers):
            tensors |= _layer(raw, arch, layer)
    except KeyError as error:
        raise EncoderUnsupportedError(
            f"{model_dir / _CHECKPOINT_FILE} has no tensor {error}; expected a BERT encoder. "
            "Choose another model."
        ) from error
    for name, shape in tensor_shapes(arch).items():
        if tensors[name].shape != shape:
            raise EncoderUnsupportedError(
                f"tensor {name} of {model_dir} has shape {tensors[name].shape}; config.json "
                f"implies {shape}. Choose another model."
            )
    return tensors


def _load(path: Path) -> Tensors:
    library: Any = importlib.import_module("safetensors")
    safetensors_numpy: Any = importlib.import_module("safetensors.numpy")
    try:
        raw: dict[str, NDArray[Any]] = safetensors_numpy.load_file(str(path))
    except (OSError, ValueError, library.SafetensorError) as error:
        raise EncoderError(
            f"cannot read {path} ({error}). Copy the whole model directory again."
        ) from error
    prefix = next((p for p in _PREFIXES if f"{p}embeddings.word_embeddings.weight" in raw), "")
    # Integer tensors (position_ids) are not weights.
    return {
        name.removeprefix(prefix): np.asarray(tensor, dtype=np.float32)
        for name, tensor in raw.items()
        if tensor.dtype.kind == "f"
    }


def _embeddings(raw: Tensors, arch: Architecture) -> Tensors:
    # Every text here is one segment, so its segment row is added once, not per query.
    segment = raw["embeddings.token_type_embeddings.weight"][0]
    return {
        "position": raw["embeddings.position_embeddings.weight"][: arch.max_tokens] + segment,
        "embedding_gain": raw["embeddings.LayerNorm.weight"],
        "embedding_shift": raw["embeddings.LayerNorm.bias"],
        "word": raw["embeddings.word_embeddings.weight"],
    }


def _layer(raw: Tensors, arch: Architecture, layer: int) -> Tensors:
    base = f"encoder.layer.{layer}."
    names = [f"{base}attention.self.{part}." for part in ("query", "key", "value")]
    # The scores' division by the root of the head size moves into the query matrix.
    scales = [np.float32(1.0 / math.sqrt(arch.hidden // arch.heads)), np.float32(1), np.float32(1)]
    parts = list(zip(names, scales, strict=True))
    attention, output = f"{base}attention.output.", f"{base}output."
    return {
        f"{layer}.qkv_weight": np.hstack([raw[f"{n}weight"].T * s for n, s in parts]),
        f"{layer}.qkv_bias": np.hstack([raw[f"{n}bias"] * s for n, s in parts]),
        f"{layer}.out_weight": raw[f"{attention}dense.weight"].T,
        f"{layer}.out_bias": raw[f"{attention}dense.bias"],
        f"{layer}.attention_gain": raw[f"{attention}LayerNorm.weight"],
        f"{layer}.attention_shift": raw[f"{attention}LayerNorm.bias"],
        f"{layer}.up_weight": raw[f"{base}intermediate.dense.weight"].T,
        f"{layer}.up_bias": raw[f"{base}intermediate.dense.bias"],
        f"{layer}.down_weight": raw[f"{output}dense.weight"].T,
        f"{layer}.down_bias": raw[f"{output}dense.bias"],
        f"{layer}.output_gain": raw[f"{output}LayerNorm.weight"],
        f"{layer}.output_shift": raw[f"{output}LayerNorm.bias"],
    }


# Turning a sentence-transformers model into the directory that `lean` reads.


MIN_COSINE = 0.9999
"""Least agreement with the source model. Correct float32 arithmetic reaches 0.999999; a wrong
activation, pooling or tokenizer falls below 0.999."""

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

_MODULES = {"Transformer", "Pooling", "Normalize"}


@dataclass(frozen=True, slots=True)
class LeanExport:
    """What an export found.

    Attributes:
        directory: The exported encoder.
        min_cosine: Worst agreement with the source model, over the samples and the probe texts.
        mean_cosine: Mean agreement.
        sample_count: Texts compared.
        size_bytes: Of the three files.
        kept: True if a valid export of the same fingerprint was already there.
    """

    directory: Path
    min_cosine: float
    mean_cosine: float
    sample_count: int
    size_bytes: int
    kept: bool


def export_lean(
    source: SentenceEncoder | Path | str, out_dir: Path, sample_texts: Sequence[str]
) -> LeanExport:
    """Write `out_dir` so that `LeanEncoder.open` gives the same vectors as the source model.

    Nothing is put at `out_dir` unless it agrees. A valid export of the same fingerprint is kept;
    anything else there is replaced. A reader that has the old one open is not disturbed.

    Args:
        source: An open encoder, a model directory or a model name.
        out_dir: The directory to write; its parent is made.
        sample_texts: Texts to compare on besides PROBE_TEXTS, ideally from the corpus.

    Raises:
        EncoderUnsupportedError: Not an uncased BERT with mean pooling.
        EncoderError: The result does not agree with the model on some text.
    """
    encoder = source if isinstance(source, SentenceEncoder) else open_sentence_encoder(str(source))
    texts = [*PROBE_TEXTS, *sample_texts]
    existing = _existing(out_dir, encoder)
    if existing is not None:
        return _compare(encoder, existing, out_dir, texts, kept=True)
    arch = _require_supported(encoder)
    # One fixed name: what a killed export left behind is removed by the next one.
    building = out_dir.with_name(f".{out_dir.name}.building")
    remove_tree(building)
    building.mkdir(parents=True)
    try:
        _write(building, encoder, arch)
        report = _compare(encoder, LeanEncoder.open(building), building, texts, kept=False)
        _put_in_place(building, out_dir)
    finally:
        remove_tree(building)
    return LeanExport(
        out_dir, report.min_cosine, report.mean_cosine, len(texts), report.size_bytes, kept=False
    )


def measure_agreement(source: Encoder, face: Encoder, texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the cosines between two implementations of one encoder, the same text in both.

    Both ways of encoding count, because a model may have one prefix for queries and another for
    documents, and each implementation puts them there by itself.

    Args:
        source: The model that the other must agree with.
        face: The other.
        texts: Documents to compare.

    Returns:
        Cosines of the documents, then those of PROBE_TEXTS as queries; shape (len(texts) +
        len(PROBE_TEXTS),).
    """
    pairs = [(source.encode_documents(texts), face.encode_documents(texts))]
    pairs += [
        (source.encode_query(text)[np.newaxis], face.encode_query(text)[np.newaxis])
        for text in PROBE_TEXTS
    ]
    cosines = [np.einsum("ij,ij->i", one, other, dtype=np.float64) for one, other in pairs]
    return np.concatenate(cosines)


def describe_place(place: int, texts: Sequence[str]) -> str:
    """Return what stands at a place of `measure_agreement`'s result, for an error's text."""
    return f"text {place}" if place < len(texts) else f"query {place - len(texts)}"


def _existing(out_dir: Path, encoder: SentenceEncoder) -> LeanEncoder | None:
    try:
        found = LeanEncoder.open(out_dir, verify=True)
    except EncoderError:
        return None
    return found if found.fingerprint == encoder.fingerprint else None


def _require_supported(encoder: SentenceEncoder) -> Architecture:
    names = [type(module).__name__ for module in encoder.model]
    included = [m.include_prompt for m in encoder.model if hasattr(m, "include_prompt")]
    pooling = encoder.fingerprint.pooling
    if set(names) - _MODULES or pooling != "mean" or not all(included):
        raise EncoderUnsupportedError(
            f"model {encoder.fingerprint.model} has the modules {', '.join(names)} with {pooling} "
            "pooling; the numpy encoder reads a transformer with mean pooling. Queries need the "
            "full library, or choose another model."
        )
    return read_architecture(encoder.model_dir, encoder.fingerprint.max_tokens)


def _write(directory: Path, encoder: SentenceEncoder, arch: Architecture) -> None:
    vocab = _vocab_text(encoder.model.tokenizer.get_vocab(), arch.vocab_size)
    _require_same_tokens(encoder, WordPiece.from_text(vocab))
    write_text(directory / VOCAB_FILE, vocab)
    weights = directory / WEIGHTS_FILE
    _write_weights(weights, read_tensors(encoder.model_dir, arch), arch)
    raw = vocab.encode("utf-8")
    header = Header(
        fingerprint=encoder.fingerprint,
        architecture=arch,
        weights=FileIdentity(weights.stat().st_size, hash_file(weights)),
        vocab=FileIdentity(len(raw), sha256(raw).hexdigest()),
    )
    write_text(directory / HEADER_FILE, header_text(header))
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


def _write_weights(
    path: Path, tensors: Mapping[str, np.ndarray[Any, np.dtype[np.float32]]], arch: Architecture
) -> None:
    table, size_bytes = tensor_table(arch)
    with path.open("wb") as handle:
        handle.truncate(size_bytes)
        for name, place in table.items():
            handle.seek(place.offset_bytes)
            handle.write(np.ascontiguousarray(tensors[name], dtype="<f4").tobytes())
    fsync_file(path)


def _compare(
    encoder: SentenceEncoder,
    lean: LeanEncoder,
    directory: Path,
    texts: Sequence[str],
    *,
    kept: bool,
) -> LeanExport:
    cosines = measure_agreement(encoder, lean, texts)
    worst = int(np.argmin(cosines))
    if not cosines[worst] >= MIN_COSINE:
        raise EncoderError(
            f"the numpy encoder disagrees with {encoder.fingerprint.model} on "
            f"{describe_place(worst, texts)}: cosine {cosines[worst]:.6f}, expected at least "
            f"{MIN_COSINE}. The model differs from a plain BERT: queries need the full library, or "
            "choose another model."
        )
    size_bytes = sum(item.stat().st_size for item in directory.iterdir())
    mean = float(cosines.mean())
    return LeanExport(directory, float(cosines[worst]), mean, len(texts), size_bytes, kept)


def _put_in_place(building: Path, out_dir: Path) -> None:
    # A directory cannot be renamed over a non-empty one: the old one steps aside first.
    aside = out_dir.with_name(f".{out_dir.name}.old")
    remove_tree(aside)
    if out_dir.exists():
        out_dir.rename(aside)
    building.rename(out_dir)
    fsync_dir(out_dir.parent)
    remove_tree(aside)
