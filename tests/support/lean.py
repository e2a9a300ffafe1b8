"""A query encoder small enough to read: a known word lies on one axis, a text is its words' mean.

It is written in the real format and opened by the real `LeanEncoder`: one layer of zero weights
leaves the word table as all that decides a vector. Words that share an axis are synonyms.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from noctuary.core.files import hash_file
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.lean import (
    HEADER_FILE,
    NORM,
    VOCAB_FILE,
    WEIGHTS_FILE,
    WORDS,
    Architecture,
    FileIdentity,
    Header,
    LeanEncoder,
    header_text,
    tensor_shapes,
)

DIMENSION = 8
# Axis 0 belongs to everything that is no known word; it is faint, so that one known word decides a
# text's direction.
SYNONYMS = (
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    ("cat", "feline", "kitten"),
    ("key", "unlock"),
    ("heating", "boiler", "radiator"),
    ("money", "invoice", "payment"),
    ("trip", "journey", "flight"),
    ("doctor", "physician"),
    ("deploy", "release"),
)
_FAINT = 0.05


def write_encoder(parent: Path, *, model: str = "word-axes", scale: float = 1.0) -> LeanEncoder:
    """Write the encoder below `parent` under its fingerprint's digest, as a night does; open it.

    Another `scale` gives other weights, hence another fingerprint.
    """
    tokens = [word for words in SYNONYMS for word in words]
    arch = Architecture(
        layers=1, heads=1, hidden=DIMENSION, intermediate=1, vocab_size=len(tokens), max_tokens=64,
        norm_epsilon=1e-12,
    )  # fmt: skip
    staging = parent / f".{model}"
    staging.mkdir(parents=True)
    shapes = tensor_shapes(arch)
    weights = {name: _tensor(name, shape, tokens, scale) for name, shape in shapes.items()}
    save_file(weights, staging / WEIGHTS_FILE)
    (staging / VOCAB_FILE).write_text("\n".join(tokens) + "\n", encoding="utf-8")
    weights_id, vocab_id = (_identify(staging / name) for name in (WEIGHTS_FILE, VOCAB_FILE))
    fingerprint = EncoderFingerprint(
        model, weights_id.sha256, DIMENSION, "mean", True, "", "", arch.max_tokens
    )
    header = Header(fingerprint, arch, weights_id, vocab_id)
    (staging / HEADER_FILE).write_text(header_text(header), encoding="utf-8")
    return LeanEncoder.open(staging.rename(parent / fingerprint.digest))


def _tensor(
    name: str, shape: tuple[int, ...], tokens: list[str], scale: float
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    values = np.zeros(shape, dtype="<f4")
    if name == WORDS:
        return _word_table(tokens)
    if name.endswith("LayerNorm.weight"):
        values[:] = scale if name == f"{NORM}.weight" else 1.0
    if name == "encoder.layer.0.output.LayerNorm.weight":
        values[0] = _FAINT
    if name == "encoder.layer.0.output.LayerNorm.bias":
        # A normalised axis has this much below 0 everywhere else: lifted, the axes are orthogonal.
        values[:] = 1.0 / np.sqrt(DIMENSION - 1)
        values[0] *= _FAINT
    return values


def _word_table(tokens: list[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    rows = np.zeros((len(tokens), DIMENSION), dtype="<f4")
    for axis, words in enumerate(SYNONYMS):
        for word in words:
            rows[tokens.index(word), axis] = 1.0
    return rows


def _identify(path: Path) -> FileIdentity:
    return FileIdentity(path.stat().st_size, hash_file(path))
