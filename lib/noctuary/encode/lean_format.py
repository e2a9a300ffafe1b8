"""The directory of an exported encoder: file names, header and the place of every tensor.

encoder.json  format version, fingerprint, architecture, tensor table, size and hash of the two
other files
vocab.txt     one token per line
weights.bin   the tensors, little-endian float32, each at a multiple of ALIGNMENT_BYTES

What belongs here: the format, shared by `export` (writes) and `lean` (reads). Standard library
only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.errors import EncoderError
from noctuary.foreign_json import parse_json
from noctuary.values import dataclass

FORMAT_VERSION = 1
HEADER_FILE = "encoder.json"
VOCAB_FILE = "vocab.txt"
WEIGHTS_FILE = "weights.bin"

ALIGNMENT_BYTES = 64
"""Start of every tensor: one cache line, so that vector loads do not straddle two."""

MOST_LAYERS = 1_000
"""Of a header that is read: it is checked before the size of the weights is."""

_ITEM_BYTES = 4


@dataclass(frozen=True, slots=True)
class Architecture:
    """Sizes of a BERT encoder.

    Attributes:
        layers: Transformer layers.
        heads: Attention heads of a layer; divides hidden.
        hidden: Length of a token vector, and of the result.
        intermediate: Length of the feed-forward layer.
        vocab_size: Tokens of the vocabulary.
        max_tokens: Longest text, control tokens included.
        norm_epsilon: Added to the variance before its root is taken.
    """

    layers: int
    heads: int
    hidden: int
    intermediate: int
    vocab_size: int
    max_tokens: int
    norm_epsilon: float


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
    shapes: dict[str, tuple[int, ...]] = {
        "position": (arch.max_tokens, hidden),
        "embedding_gain": (hidden,),
        "embedding_shift": (hidden,),
    }
    for layer in range(arch.layers):
        shapes |= {
            f"{layer}.qkv_weight": (hidden, 3 * hidden),
            f"{layer}.qkv_bias": (3 * hidden,),
            f"{layer}.out_weight": (hidden, hidden),
            f"{layer}.out_bias": (hidden,),
            f"{layer}.attention_gain": (hidden,),
            f"{layer}.attention_shift": (hidden,),
            f"{layer}.up_weight": (hidden, inner),
            f"{layer}.up_bias": (inner,),
            f"{layer}.down_weight": (inner, hidden),
            f"{layer}.down_bias": (hidden,),
            f"{layer}.output_gain": (hidden,),
            f"{layer}.output_shift": (hidden,),
        }
    shapes["word"] = (arch.vocab_size, hidden)
    return shapes


def tensor_table(arch: Architecture) -> tuple[dict[str, TensorPlace], int]:
    """Return where every tensor lies, and the size of weights.bin in bytes."""
    table: dict[str, TensorPlace] = {}
    end = 0
    for name, shape in tensor_shapes(arch).items():
        offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        table[name] = TensorPlace(offset, shape)
        end = offset + prod(shape) * _ITEM_BYTES
    return table, end


def header_text(header: Header) -> str:
    """Return the content of encoder.json."""
    table, _ = tensor_table(header.architecture)
    value = {
        "format_version": FORMAT_VERSION,
        "fingerprint": header.fingerprint.to_json(),
        "architecture": asdict(header.architecture),
        "weights": header.weights._asdict(),
        "vocab": header.vocab._asdict(),
        "tensors": {name: [place.offset_bytes, *place.shape] for name, place in table.items()},
    }
    return json.dumps(value, indent=1) + "\n"


def read_header(directory: Path) -> Header:
    """Read and check encoder.json.

    Raises:
        EncoderError: It is missing, of another version or inconsistent.
    """
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
    if (
        any(type(size) is not int for size in (*sizes, arch.max_tokens))
        or arch.layers > MOST_LAYERS
    ):
        raise ValueError(f"impossible architecture {arch}")
    if min(*sizes, arch.max_tokens - 1) < 1 or arch.hidden % arch.heads:
        raise ValueError(f"impossible architecture {arch}")
    header = Header(
        fingerprint=EncoderFingerprint.from_json(value["fingerprint"]),
        architecture=arch,
        weights=FileIdentity(**value["weights"]),
        vocab=FileIdentity(**value["vocab"]),
    )
    table, size_bytes = tensor_table(arch)
    stored = {name: [place.offset_bytes, *place.shape] for name, place in table.items()}
    if value["tensors"] != stored or header.weights.size_bytes != size_bytes:
        raise ValueError("the tensor table does not match the architecture")
    if header.fingerprint.dimension != arch.hidden:
        raise ValueError("the fingerprint's dimension is not the architecture's")
    return header
