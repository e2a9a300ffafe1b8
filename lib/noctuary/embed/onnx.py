"""The bulk encoder: ONNX Runtime, fp32, over the files of `export_default` or `export_onnx`.

A text is never padded, shares no call, and each call is one thread's: nothing changes its vector.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file, hash_json, write_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import SILENT, Progress, usable_cores
from noctuary.embed.default_model import (
    DEFAULT_MODEL,
    VOCAB_FILE,
    WEIGHTS_FILE,
    locate_default,
)
from noctuary.embed.fingerprint import (
    DIGEST_CHARS,
    EncoderFingerprint,
    Purpose,
    require_unit_rows,
)
from noctuary.embed.wordpiece import WordPiece

# What bulk encoders share. How much of a long text has to be tokenized: only a head that certainly
# holds the tokens that a model reads. All of a 10 MB paste would take a minute.

Floats = NDArray[np.float32]
PlacedVectors = tuple[list[int], Floats]  # positions of some texts, and a row for each

CHARS_PER_TOKEN = 16  # first guess; English has 4, so ordinary texts are left whole
MARGIN_TOKENS = 128  # beyond those read: a cut word has at most 100 (more is one unknown)
MAX_HEAD_CHARS = 1 << 18  # what holds too few tokens by here is one blob
BATCH_SIZE = 8  # texts; on a CPU 8-16 is the fastest: larger ones fall out of the cache

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


# ONNX Runtime.

MODEL_FILE, TOKENIZER_FILE, HEADER_FILE = "model.onnx", "tokenizer.json", "onnx.json"
INPUT_NAME, OUTPUT_NAME = "ids", "vector"
# Bumped when an export of the same model would give other files, or be judged otherwise.
EXPORT_VERSION = 1

_PACKAGES = ("onnx", "onnxruntime", "sentence-transformers", "torch", "transformers")
_AHEAD_PER_THREAD = 4 * BATCH_SIZE  # queued: none waits for a write, and not all of 100,000 are
_ERRORS_ONLY = 3
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"
_UNKNOWN = "<unk>"  # of a Unigram model, which does not tell it


@dataclass(frozen=True, slots=True)
class OnnxHeader:
    """The result of an export, also kept if the model was declined."""

    fingerprint: EncoderFingerprint
    toolchain: Mapping[str, str]  # what exported, checked and runs it
    files: Mapping[str, str]  # SHA-256 by name; empty where declined
    min_cosine: float  # worst agreement with sentence-transformers; 0 where it was not measured
    sampled_texts: int
    declined: str = ""  # why the model is not used this way
    same_as: str = ""  # tag of an older export whose kept vectors agree: they stay in use

    @property
    def tag(self) -> str:
        """Name of these vectors, whose last bits graph, tokenizer and runtime change; or empty."""
        if self.declined or self.same_as:
            return self.same_as
        runtime = self.toolchain["onnxruntime"]
        return f"onnx-{hash_json({'files': dict(self.files), 'runtime': runtime})[:DIGEST_CHARS]}"


_FIELDS = {
    "toolchain": dict, "files": dict, "min_cosine": float, "sampled_texts": int, "declined": str,
    "same_as": str,
}  # fmt: skip


def onnx_directory(encoders: Path, fingerprint: EncoderFingerprint) -> Path:
    """Return where the ONNX face of a fingerprint is, below a store's encoders."""
    return encoders / f"{fingerprint.digest}.onnx"


def toolchain(model: str) -> dict[str, str] | None:
    """Return the versions that a model's export depends on, or None if one is not installed."""
    names = ("onnxruntime",) if model == DEFAULT_MODEL else _PACKAGES
    try:
        return {"export": str(EXPORT_VERSION), **{name: version(name) for name in names}}
    except PackageNotFoundError:
        return None


def write_header(directory: Path, header: OnnxHeader) -> None:
    """Write the header; last, because it has the hashes of the other files."""
    told = {**asdict(header), "fingerprint": header.fingerprint.to_json()}
    write_text(directory / HEADER_FILE, json.dumps(told, indent=1, sort_keys=True) + "\n")


def read_header(directory: Path) -> OnnxHeader:
    """Read the header alone; EncoderError if it is missing or damaged."""
    path = directory / HEADER_FILE
    try:
        value: dict[str, Any] = {"same_as": "", **parse_json(path.read_text("utf-8"))}
        fingerprint = EncoderFingerprint.from_json(value["fingerprint"])
        if wrong := [n for n, kind in _FIELDS.items() if not isinstance(value[n], kind)]:
            raise TypeError(f"of another type: {', '.join(wrong)}")  # noqa: TRY301
        return OnnxHeader(fingerprint, **{name: value[name] for name in _FIELDS})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise EncoderError(
            f"{path} is not the header of an ONNX export ({type(error).__name__}: {error}). Delete "
            "its directory; the next night exports again."
        ) from error


def known_header(directory: Path, fingerprint: EncoderFingerprint) -> OnnxHeader | None:
    """Return the header of an intact export of this model with these libraries, or None."""
    try:
        header = read_header(directory)
        is_whole = bool(header.declined) or hash_files(directory, header.files) == header.files
    except EncoderError:
        return None
    same = header.fingerprint == fingerprint and header.toolchain == toolchain(fingerprint.model)
    return header if same and is_whole else None


def hash_files(directory: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of the files of an export; EncoderError if one is missing."""
    try:
        return {name: hash_file(_place(directory, name)) for name in names}
    except OSError as error:
        raise EncoderError(
            f"the ONNX export in {directory} is incomplete ({error}). Delete the directory; the "
            "next night exports again."
        ) from error


def _place(directory: Path, name: str) -> Path:
    """Return where a file of an export is: the default model's stay in its package."""
    return (locate_default() if name in (WEIGHTS_FILE, VOCAB_FILE) else directory) / name


class _Library:
    """A tokenizer of the library tokenizers, which cuts as sentence-transformers does."""

    def __init__(self, file: Path, max_tokens: int) -> None:
        self._cutting = _import("tokenizers").Tokenizer.from_file(str(file))
        self._cutting.enable_truncation(max_length=max_tokens)
        self._max_tokens = max_tokens

    @cached_property
    def _counting(self) -> Any:
        """The same tokenizer, which does not cut; made for the first long text."""
        copy = type(self._cutting).from_str(self._cutting.to_str())
        copy.no_truncation()
        return copy

    def encode(self, prefix: str, text: str) -> list[int]:
        """Return the ids of a text behind a prefix."""
        count: Callable[[str], int] = lambda head: len(self._counting.encode(head).ids)  # noqa: E731
        head = readable_head(text, self._max_tokens, count)
        return self._cutting.encode(prefix + head).ids

    def known_share(self, text: str) -> float:
        """Return the share of a text's tokens that the vocabulary has, in [0, 1]; 1 of none."""
        unknown = getattr(self._cutting.model, "unk_token", None) or _UNKNOWN
        head = text[: CHARS_PER_TOKEN * self._max_tokens]
        ids = self._cutting.encode(head, add_special_tokens=False).ids
        return 1.0 - ids.count(self._cutting.token_to_id(unknown)) / max(len(ids), 1)


class _Vocabulary:
    """The default model's own tokenizer."""

    def __init__(self, file: Path, max_tokens: int) -> None:
        self._pieces, self._max_tokens = WordPiece(file.read_bytes()), max_tokens

    def encode(self, prefix: str, text: str) -> list[int]:
        """Return the ids of a text behind a prefix."""
        return self._pieces.encode(prefix + text, self._max_tokens)

    def known_share(self, text: str) -> float:
        """Return the share of a text's tokens that the vocabulary has, in [0, 1]; 1 of none."""
        return self._pieces.known_share(text, self._max_tokens)


class OnnxEncoder:
    """An opened export; `tag` distinguishes its vectors from those of other implementations."""

    def __init__(
        self, header: OnnxHeader, session: Any, tokenizer: _Library | _Vocabulary, threads: int
    ) -> None:
        self.fingerprint: EncoderFingerprint = header.fingerprint
        self.tag = header.tag
        self.threads = threads
        self._session = session
        self._tokenizer = tokenizer

    @classmethod
    def open(cls, directory: Path, threads: int | None = None) -> OnnxEncoder:
        """Open what `export_onnx` wrote; its files are compared with their checksums.

        `threads` call at once.
        """
        header = read_header(directory)
        if header.declined:
            raise EncoderError(f"{directory} was declined: {header.declined}")
        if hash_files(directory, header.files) != header.files:
            raise EncoderError(
                f"the ONNX export in {directory} is not what its header vouches for. Delete the "
                "directory; the next night exports again."
            )
        session = _open_session(directory / MODEL_FILE, header.files)
        is_default = VOCAB_FILE in header.files
        kind, name = (_Vocabulary, VOCAB_FILE) if is_default else (_Library, TOKENIZER_FILE)
        tokenizer = kind(_place(directory, name), header.fingerprint.max_tokens)
        return cls(header, session, tokenizer, threads or usable_cores())

    def encode_documents(self, texts: Sequence[str], progress: Progress = SILENT) -> Floats:
        """Return a unit row per text, bit-identical whatever the other texts are."""
        shape = (len(texts), self.fingerprint.dimension)
        return gather_batches(self.iter_document_batches(texts), shape, progress)

    def encode_query(self, text: str) -> Floats:
        """Return one unit vector; shape (dimension,)."""
        vector = self._vector(self.fingerprint.query_prefix, text)
        require_unit_rows(vector[np.newaxis], [0])
        return vector

    def known_share(self, text: str) -> float:
        """Return the share of a text's tokens that the vocabulary has, in [0, 1]; 1 of none."""
        return self._tokenizer.known_share(without_surrogates(text))

    def iter_document_batches(
        self, texts: Sequence[str], purpose: Purpose = "document"
    ) -> Iterator[PlacedVectors]:
        """Yield vectors batch by batch, longest texts first; each is computed on its own."""
        prefix = self.fingerprint.prefix_of(purpose)
        # By characters: long texts last would leave one thread working alone at the end.
        order = sorted(range(len(texts)), key=lambda position: -len(texts[position]))
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="noctuary-onnx")
        waiting: deque[Future[Floats]] = deque()
        submitted = 0
        try:
            for start in range(0, len(order), BATCH_SIZE):
                until = start + BATCH_SIZE + _AHEAD_PER_THREAD * self.threads
                for position in order[submitted:until]:
                    waiting.append(pool.submit(self._vector, prefix, texts[position]))
                submitted = until
                positions = order[start : start + BATCH_SIZE]
                vectors = np.stack([waiting.popleft().result() for _ in positions])
                require_unit_rows(vectors, positions)
                yield positions, vectors
        finally:
            # Also when the caller stops early: nothing computes on behind its back.
            pool.shutdown(wait=True, cancel_futures=True)

    def _vector(self, prefix: str, text: str) -> Floats:
        try:
            ids = self._tokenizer.encode(prefix, without_surrogates(text))
            rows = np.array([ids], dtype=np.int64)
            return self._session.run([OUTPUT_NAME], {INPUT_NAME: rows})[0][0]
        # The exceptions of both libraries have no common base, and may quote the text.
        except Exception as error:
            raise EncoderError(
                f"ONNX Runtime failed on a text of {len(text):,} characters "
                f"({type(error).__name__}). If it fails again, delete the model's directory "
                "below encoders; the next night exports again."
            ) from error


def _open_session(path: Path, files: Mapping[str, str]) -> Any:
    # Before its first import: else it tells Microsoft which models run, under an id that it keeps.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    runtime = _import("onnxruntime")
    options = runtime.SessionOptions()
    # Dividing one call's products would change last digits.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    model: str | bytes = str(path)
    if WEIGHTS_FILE in files:
        # Weights outside the graph's own directory are refused, unless the graph comes as bytes.
        model = path.read_bytes()
        options.add_session_config_entry(_WEIGHTS_FOLDER, str(locate_default()))
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    # onnxruntime's exceptions have no common base; the cause is kept.
    except Exception as error:
        raise EncoderError(
            f"onnxruntime cannot open {path} ({type(error).__name__}: {error}). Delete its "
            "directory; the next night exports again."
        ) from error


def _import(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise EncoderError(
            f"this model needs {library}, which cannot be imported ({error}): "
            "pip install onnxruntime tokenizers"
        ) from error
