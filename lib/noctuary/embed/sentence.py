"""The build side's encoder, any local sentence-transformers model, and its export to the others."""

from __future__ import annotations

import importlib
import json
import logging
import os
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from noctuary.core.errors import EncoderError
from noctuary.core.files import fsync_file, hash_file, hash_text, remove_tree, write_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.store import find_home, keep_caches_in_home
from noctuary.core.types import SILENT, Progress
from noctuary.embed import onnx
from noctuary.embed.checkpoint import (
    PROBE_TEXTS,
    Checkpoint,
    building,
    least_cosine,
    read_architecture,
    require_default_weights,
)
from noctuary.embed.default_model import DEFAULT_MODEL, locate_default
from noctuary.embed.fingerprint import (
    EncoderFingerprint,
    EncoderUnsupportedError,
    Purpose,
    require_unit_rows,
)
from noctuary.embed.multilingual import MULTILINGUAL_MODEL, locate_multilingual
from noctuary.embed.onnx import Floats, OnnxEncoder, PlacedVectors
from noctuary.embed.wordpiece import WordPiece
from noctuary.work.content import ContentStore

# Which texts are encoded together. A vector must not depend on its neighbours, or a kept one
# differs from a recomputed one: padding and the product's shape change the last bits. So a batch
# holds texts of one token count, filled up with repeats until the product takes the ordinary path.

MIN_BATCH_ROWS = 2  # a batch of one text takes the matrix-vector path, which rounds differently
MIN_BATCH_TOKENS = 64  # repeats included: below some 16, threads get single rows, as above


def plan_batches(lengths: Sequence[int], batch_size: int = onnx.BATCH_SIZE) -> list[list[int]]:
    """Group positions by exact token count, the longest first, in position order inside a count."""
    groups: dict[int, list[int]] = {}
    for position, length in enumerate(lengths):
        groups.setdefault(length, []).append(position)
    return [
        members[start : start + batch_size]
        for _, members in sorted(groups.items(), reverse=True)
        for start in range(0, len(members), batch_size)
    ]


def fill_batch(texts: Sequence[str], token_count: int) -> list[str]:
    """Repeat texts of so many tokens each until the batch is large enough to round reproducibly."""
    wanted = -(-MIN_BATCH_TOKENS // max(1, token_count))
    rows = max(len(texts), MIN_BATCH_ROWS, wanted)
    return [texts[row % len(texts)] for row in range(rows)]


# Where a model's files are, and what they hash to. Never touches the network.

FINGERPRINT_KIND = "fingerprint:1"  # of what was measured, by the state of a model's files


def locate_model(model: str) -> Path:
    """Return the directory of a packaged model, of a path, or of a hub name in the local cache."""
    if model == DEFAULT_MODEL:
        return locate_default()
    if model == MULTILINGUAL_MODEL:
        return locate_multilingual(find_home())
    directory = Path(model).expanduser()
    # Path("") would be the working directory.
    if model and directory.is_dir():
        return directory
    if not model or model.startswith((".", "~", os.sep)):
        raise EncoderError(
            f"no model directory at {model!r}; expected a directory in the sentence-transformers "
            f"layout. Correct the path or use {DEFAULT_MODEL!r}."
        )
    hub: Any = importlib.import_module("huggingface_hub")
    name = model if "/" in model else f"sentence-transformers/{model}"
    try:
        return Path(hub.snapshot_download(name, local_files_only=True))
    # ValueError covers names the hub rejects; OSError covers a missing or unreadable cache entry.
    except (OSError, ValueError) as error:
        raise EncoderError(
            f"model {model!r} is not on this machine: no such directory, and {name} is not in the "
            "local model cache. noctuary never downloads: fetch it yourself (`hf download "
            f"{name}`), give its directory, or use {DEFAULT_MODEL!r}."
        ) from error


def model_name(model: str) -> str:
    """Return the name that a fingerprint carries: of a directory, its last part."""
    directory = Path(model).expanduser()
    return directory.resolve().name if model != DEFAULT_MODEL and directory.is_dir() else model


def weights_sha256(directory: Path) -> str:
    """Return the hash of a model's weights file, or of several names and hashes."""
    listing, folders = directory / "modules.json", {directory}
    try:
        if listing.is_file():
            folders |= {directory / part["path"] for part in parse_json(listing.read_text("utf-8"))}
    except (ValueError, KeyError, TypeError) as error:
        raise EncoderError(
            f"{listing} is not a list of modules ({error}). Copy the whole model directory again."
        ) from error
    files: list[Path] = []
    for folder in sorted(folders):
        # The first kind present is the one that is loaded; a second format would count twice.
        files += sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    if not files:
        raise EncoderError(
            f"no *.safetensors or *.bin weights in {directory}; expected a model in the "
            "sentence-transformers layout. Copy the whole model directory."
        )
    if len(files) == 1:
        return hash_file(files[0])
    parts = [part for f in files for part in (f.relative_to(directory).as_posix(), hash_file(f))]
    return hash_text(*parts)


def find_fingerprint(
    model: str, store: ContentStore, measure: Callable[[], EncoderFingerprint]
) -> EncoderFingerprint:
    """Return a model's fingerprint, measured (which loads it) once per state of its files."""
    directory = locate_model(model)
    configs = sorted(directory.rglob("*.json"))
    parts = [f"{p.relative_to(directory)}:{hash_file(p)}" for p in configs]
    state = bytes.fromhex(hash_text(weights_sha256(directory), *parts))
    known = store.get([state])
    if state in known:
        return EncoderFingerprint.from_json(json.loads(known[state]))
    fingerprint = measure()
    store.replace([state], [json.dumps(fingerprint.to_json()).encode()])
    return fingerprint


# The encoder, reproducible to the last bit. Nothing heavy is imported before a model is opened.

_COUNT_CHUNK = 512  # texts tokenized at once while counting: bounds the memory of token lists
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


class SentenceEncoder:
    """A loaded SentenceTransformer on the CPU."""

    def __init__(self, model: Any, model_dir: Path, fingerprint: EncoderFingerprint) -> None:
        self.model = model
        self.model_dir = model_dir
        self.fingerprint = fingerprint

    def encode_documents(self, texts: Sequence[str], progress: Progress = SILENT) -> Floats:
        """Return a unit row per text, bit-identical whatever the other texts are."""
        shape = (len(texts), self.fingerprint.dimension)
        return onnx.gather_batches(self.iter_document_batches(texts), shape, progress)

    def encode_query(self, text: str) -> Floats:
        """Return one unit vector; shape (dimension,)."""
        prefix = self.fingerprint.query_prefix
        head = self._head(text)
        length = min(self.token_counts([head], prefix)[0], self.fingerprint.max_tokens)
        return self._encode_batch([head], [0], length, prefix)[0]

    def iter_document_batches(
        self, texts: Sequence[str], purpose: Purpose = "document"
    ) -> Iterator[PlacedVectors]:
        """Yield batch by batch, longest texts first, so that the caller can keep each of them."""
        prefix, limit = self.fingerprint.prefix_of(purpose), self.fingerprint.max_tokens
        heads = [self._head(text) for text in texts]
        lengths = [min(count, limit) for count in self.token_counts(heads, prefix)]
        for positions in plan_batches(lengths):
            members = [heads[position] for position in positions]
            yield positions, self._encode_batch(members, positions, lengths[positions[0]], prefix)

    def token_counts(self, texts: Sequence[str], prefix: str = "") -> list[int]:
        """Return the tokens of each text behind a prefix, control tokens included, untruncated."""
        counts: list[int] = []
        with _quiet():
            for start in range(0, len(texts), _COUNT_CHUNK):
                chunk = texts[start : start + _COUNT_CHUNK]
                ids = self.model.tokenizer(
                    [prefix + onnx.without_surrogates(text) for text in chunk],
                    truncation=False,
                    padding=False,
                    return_attention_mask=False,
                    return_token_type_ids=False,
                )["input_ids"]
                counts += [len(row) for row in ids]
        return counts

    def _head(self, text: str) -> str:
        limit = self.fingerprint.max_tokens
        return onnx.readable_head(text, limit, lambda head: self.token_counts([head])[0])

    def _encode_batch(
        self, texts: Sequence[str], positions: Sequence[int], length: int, prefix: str
    ) -> Floats:
        rows = fill_batch([onnx.without_surrogates(text) for text in texts], length)
        encoded = self.model.encode(
            rows,
            # Always given, even empty: None would let the model's default prompt in.
            prompt=prefix,
            batch_size=len(rows),
            show_progress_bar=False,
            convert_to_numpy=True,
            normalize_embeddings=True,
        )
        vectors = np.ascontiguousarray(encoded[: len(texts)], dtype=np.float32)
        require_unit_rows(vectors, positions)
        return vectors


def open_sentence_encoder(model: str = DEFAULT_MODEL) -> SentenceEncoder:
    """Load a model (see `locate_model`) from local files only, on the CPU."""
    directory = locate_model(model)
    sha256 = weights_sha256(directory)
    if model == DEFAULT_MODEL:
        require_default_weights(directory, sha256)
    loaded = load_model(directory)
    return SentenceEncoder(loaded, directory, _fingerprint(loaded, model_name(model), sha256))


def load_model(directory: Path, attention: str | None = None) -> Any:
    """Load a SentenceTransformer, with an implementation of attention by transformers' name."""
    options = {"attn_implementation": attention} if attention else {}
    keep_caches_in_home()
    try:
        library: Any = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise EncoderError(
            f"sentence-transformers cannot be imported ({error}). Install noctuary[models]."
        ) from error
    try:
        with _quiet():
            return library.SentenceTransformer(
                str(directory), device="cpu", local_files_only=True, model_kwargs=options
            )
    # The loader raises whatever its many parts raise; the cause is kept.
    except Exception as error:
        raise EncoderError(
            f"the model in {directory} cannot be loaded ({type(error).__name__}: {error}). "
            "Copy or reinstall the whole model directory."
        ) from error


def _fingerprint(model: Any, name: str, sha256: str) -> EncoderFingerprint:
    dimension, max_tokens = model.get_embedding_dimension(), model.max_seq_length
    if not dimension or not max_tokens or not callable(getattr(model, "tokenizer", None)):
        raise EncoderUnsupportedError(
            f"model {name} reports dimension {dimension} and token limit {max_tokens}; expected a "
            "text model with a tokenizer, a dimension and a limit. Use another, for example "
            f"{DEFAULT_MODEL!r}."
        )
    prompts: dict[str, str | None] = dict(model.prompts)
    document = next((prompts[key] for key in _DOCUMENT_PROMPTS if prompts.get(key)), None)
    modes = [str(part.pooling_mode) for part in model if hasattr(part, "pooling_mode")]
    return EncoderFingerprint(
        model=name,
        weights_sha256=sha256,
        dimension=int(dimension),
        pooling="+".join(modes) or "none",
        normalized=True,
        query_prefix=prompts.get("query") or "",
        document_prefix=document or "",
        max_tokens=int(max_tokens),
    )


@contextmanager
def _quiet() -> Generator[None]:
    """Silence transformers' progress bars and notices, and put its settings back afterwards."""
    settings: Any = importlib.import_module("transformers.utils.logging")

    def show(verbosity: int, *, bars: bool) -> None:
        settings.set_verbosity(verbosity)
        with warnings.catch_warnings():
            # It warns where the user's environment already decided; then there is nothing to do.
            warnings.simplefilter("ignore", UserWarning)
            (settings.enable_progress_bar if bars else settings.disable_progress_bar)()

    verbosity, bars = settings.get_verbosity(), settings.is_progress_bar_enabled()
    show(logging.ERROR, bars=False)
    try:
        yield
    finally:
        show(verbosity, bars=bars)


# The numpy encoder's directory.


def read_checkpoint(encoder: SentenceEncoder) -> Checkpoint:
    """Return the files of a BERT with mean pooling; EncoderUnsupportedError for other models."""
    fingerprint, names = encoder.fingerprint, [type(module).__name__ for module in encoder.model]
    are_known = not set(names) - {"Transformer", "Pooling", "Normalize"}
    if not are_known or not _pools_prompt(encoder) or fingerprint.pooling != "mean":
        found = f"the modules {', '.join(names)} with {fingerprint.pooling}"
        raise EncoderUnsupportedError(
            f"model {fingerprint.model} has {found} pooling; the numpy encoder reads a transformer "
            "with mean pooling. Queries need the full library, or choose another model."
        )
    arch = read_architecture(encoder.model_dir, fingerprint)
    return Checkpoint(fingerprint, encoder.model_dir, arch, _vocab_text(encoder, arch.vocab_size))


def _pools_prompt(encoder: SentenceEncoder) -> bool:
    return all(m.include_prompt for m in encoder.model if hasattr(m, "include_prompt"))


def _vocab_text(encoder: SentenceEncoder, vocab_size: int) -> str:
    """Return the vocabulary, one token a line; unsupported unless WordPiece reads it the same."""
    vocab: dict[str, int] = encoder.model.tokenizer.get_vocab()
    tokens = sorted(vocab, key=vocab.__getitem__)
    contiguous = [vocab[token] for token in tokens] == list(range(vocab_size))
    if not contiguous or any("\n" in token for token in tokens):
        raise EncoderUnsupportedError(
            f"the tokenizer's {len(tokens)} tokens are not numbered 0 to {vocab_size - 1} on one "
            "line each; the numpy encoder reads a BERT vocabulary. Choose another model."
        )
    lines = "\n".join(tokens) + "\n"
    tokenizer, limit = WordPiece(lines.encode("utf-8")), encoder.fingerprint.max_tokens
    for text in PROBE_TEXTS:
        expected = encoder.model.tokenizer(text, truncation=True, max_length=limit)["input_ids"]
        if tokenizer.encode(text, limit) != expected:
            raise EncoderUnsupportedError(
                f"model {encoder.fingerprint.model} tokenizes {text[:40]!r} differently from an "
                "uncased BERT; the numpy encoder has no other tokenizer. Choose another model."
            )
    return lines


# ONNX Runtime's directory. A model that is not exported is recorded as declined, so that it is not
# tried again every night.

OPSET = 17  # the newest of torch's tracing exporter, the oldest with one LayerNormalization
_EXAMPLE_TOKENS = 12
_INSTEAD = "sentence-transformers embeds instead."


def export_onnx(
    encoder: SentenceEncoder, directory: Path, sample_texts: Sequence[str]
) -> onnx.OnnxHeader:
    """Export a model for `OnnxEncoder.open`, or record why it is declined."""
    tools = onnx.toolchain(encoder.fingerprint.model)
    if tools is None:
        raise EncoderError("onnx and onnxruntime are not installed. Install noctuary[models].")
    header = onnx.OnnxHeader(encoder.fingerprint, tools, {}, 0.0, 0)
    with building(directory) as new:
        try:
            _require_traceable(encoder)
            _write_graph(encoder, new / onnx.MODEL_FILE)
            library: Any = importlib.import_module("tokenizers")
            # A copy: the original's truncation and padding change with every call of the model.
            copy = library.Tokenizer.from_str(encoder.model.tokenizer.backend_tokenizer.to_str())
            copy.no_truncation()
            copy.no_padding()
            write_text(new / onnx.TOKENIZER_FILE, copy.to_str())
            header = replace(
                header, files=onnx.hash_files(new, (onnx.MODEL_FILE, onnx.TOKENIZER_FILE))
            )
            onnx.write_header(new, header)
            worst = least_cosine(encoder, OnnxEncoder.open(new), sample_texts, _INSTEAD)
            compared = len(PROBE_TEXTS) + len(sample_texts)
            header = replace(header, min_cosine=round(worst, 7), sampled_texts=compared)
        except EncoderError as error:
            remove_tree(new)
            new.mkdir()
            header = replace(header, files={}, declined=str(error))
        onnx.write_header(new, header)
    return header


def _require_traceable(encoder: SentenceEncoder) -> None:
    # Of any architecture and any further modules: whether the graph is right is measured.
    name = encoder.fingerprint.model
    if not _pools_prompt(encoder):
        raise EncoderUnsupportedError(
            f"model {name} leaves the tokens of its prompt out of pooling, which ONNX export does "
            f"not read. {_INSTEAD}"
        )
    if not hasattr(encoder.model.tokenizer, "backend_tokenizer"):
        raise EncoderUnsupportedError(
            f"model {name} has no tokenizer of the tokenizers library, which the ONNX face needs. "
            f"{_INSTEAD}"
        )


def _write_graph(encoder: SentenceEncoder, path: Path) -> None:
    torch: Any = importlib.import_module("torch")

    class UnitVector(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any) -> Any:
            features = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
            pooled = self.model(features)["sentence_embedding"]
            return torch.nn.functional.normalize(pooled, dim=-1)

    # A second copy, whose attention is plain products: the runtime fuses those best.
    wrapped = UnitVector(load_model(encoder.model_dir, attention="eager")).eval().float()
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
