"""Read a published BERT checkpoint into the numpy encoder's tensors. Build side.

What belongs here: config.json and model.safetensors, and the layout changes done once here instead
of at every query (transposition, fused query/key/value, folded scale).
"""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.base import EncoderUnsupportedError
from noctuary.encode.lean_format import Architecture, tensor_shapes
from noctuary.errors import EncoderError
from noctuary.foreign_json import parse_json

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
