"""Turn a sentence-transformers model into the directory that `onnx_encoder` runs. Build side.

What belongs here: what can be exported, writing it atomically, and proof that it agrees. A model
that is not exported is recorded as declined, so that it is not tried again every night.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from noctuary.encode.base import EncoderUnsupportedError
from noctuary.encode.export import (
    MIN_COSINE,
    PROBE_TEXTS,
    describe_place,
    measure_agreement,
)
from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.encode.onnx_encoder import INPUT_NAME, OUTPUT_NAME, OnnxEncoder
from noctuary.encode.onnx_format import (
    MODEL_FILE,
    TOKENIZER_FILE,
    OnnxHeader,
    hash_files,
    read_header,
    toolchain,
    write_header,
)
from noctuary.encode.sentence import SentenceEncoder, load_model
from noctuary.errors import EncoderError
from noctuary.files import fsync_dir, fsync_file, remove_tree, write_text

OPSET = 17
"""The newest that torch's tracing exporter writes and the oldest with LayerNormalization as one
operation."""

MODEL_TYPES = ("bert", "roberta", "xlm-roberta", "distilbert")
"""Architectures that are exported; each has a test. Others may trace, but nobody has looked."""

_MODULES = {"Transformer", "Pooling", "Normalize", "Dense"}
_EXAMPLE_TOKENS = 12


def export_onnx(
    encoder: SentenceEncoder, directory: Path, sample_texts: Sequence[str]
) -> OnnxHeader:
    """Write `directory` so that `OnnxEncoder.open` gives the source model's vectors, or decline.

    Args:
        encoder: The source model.
        directory: The directory to write; what is there is replaced.
        sample_texts: Texts to compare on besides PROBE_TEXTS, ideally from the corpus.

    Returns:
        What the directory now says; `declined` tells why if the model cannot be used this way.

    Raises:
        EncoderError: onnx or onnxruntime is not installed.
        OSError: The directory cannot be written.
    """
    tools = toolchain()
    if tools is None:
        raise EncoderError("onnx and onnxruntime are not installed. Install noctuary[pipelines].")
    # One fixed name: what a killed export left behind is removed by the next one.
    building = directory.with_name(f".{directory.name}.building")
    remove_tree(building)
    building.mkdir(parents=True)
    try:
        empty = OnnxHeader(encoder.fingerprint, tools, {}, 0.0, 0)
        header = _export(encoder, building, empty, [*PROBE_TEXTS, *sample_texts])
        # The header goes away first, so that a kill leaves an export that nobody vouches for.
        remove_tree(directory)
        building.rename(directory)
        fsync_dir(directory.parent)
    finally:
        remove_tree(building)
    return header


def known_header(directory: Path, fingerprint: EncoderFingerprint) -> OnnxHeader | None:
    """Return what an earlier export found, if it was of this model and with these libraries."""
    try:
        header = read_header(directory)
    except EncoderError:
        return None
    same = header.fingerprint == fingerprint and header.toolchain == toolchain()
    return header if same else None


def _export(
    encoder: SentenceEncoder, building: Path, header: OnnxHeader, texts: Sequence[str]
) -> OnnxHeader:
    try:
        _require_supported(encoder)
        _write_graph(encoder, building / MODEL_FILE)
        _write_tokenizer(encoder, building / TOKENIZER_FILE)
        header = replace(header, files=hash_files(building))
        write_header(building, header)
        worst = _least_cosine(encoder, building, texts)
        header = replace(header, min_cosine=round(worst, 7), sampled_texts=len(texts))
    except EncoderError as error:
        remove_tree(building)
        building.mkdir()
        header = replace(header, files={}, declined=str(error))
    write_header(building, header)
    return header


def _require_supported(encoder: SentenceEncoder) -> None:
    name = encoder.fingerprint.model
    modules = [type(module).__name__ for module in encoder.model]
    included = [m.include_prompt for m in encoder.model if hasattr(m, "include_prompt")]
    kinds = [str(m.auto_model.config.model_type) for m in encoder.model if hasattr(m, "auto_model")]
    if set(modules) - _MODULES or not all(included) or len(kinds) != 1:
        raise EncoderUnsupportedError(
            f"model {name} has the modules {', '.join(modules)}; ONNX export reads one transformer "
            "with pooling. sentence-transformers embeds instead."
        )
    if kinds[0] not in MODEL_TYPES:
        raise EncoderUnsupportedError(
            f"model {name} is a {kinds[0]}; ONNX export reads {', '.join(MODEL_TYPES)}. "
            "sentence-transformers embeds instead."
        )
    if not hasattr(encoder.model.tokenizer, "backend_tokenizer"):
        raise EncoderUnsupportedError(
            f"model {name} has no tokenizer of the tokenizers library, which the ONNX face needs. "
            "sentence-transformers embeds instead."
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
                input_names=[INPUT_NAME],
                output_names=[OUTPUT_NAME],
                dynamic_axes={INPUT_NAME: {1: "tokens"}},
            )
        # The tracer raises whatever the model's code raises; the cause is kept.
        except Exception as error:
            raise EncoderUnsupportedError(
                f"model {encoder.fingerprint.model} cannot be traced ({type(error).__name__}: "
                f"{str(error)[:200]}). sentence-transformers embeds instead."
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


def _least_cosine(encoder: SentenceEncoder, directory: Path, texts: Sequence[str]) -> float:
    cosines = measure_agreement(encoder, OnnxEncoder.open(directory), texts)
    worst = int(np.argmin(cosines))
    if not cosines[worst] >= MIN_COSINE:
        raise EncoderError(
            f"the ONNX export disagrees with {encoder.fingerprint.model} on "
            f"{describe_place(worst, texts)}: cosine {cosines[worst]:.6f}, expected at least "
            f"{MIN_COSINE}. sentence-transformers embeds instead."
        )
    return float(cosines[worst])
