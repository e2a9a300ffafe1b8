"""The bulk encoder: ONNX Runtime, fp32, over the files of `export_onnx`.

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
from noctuary.embed.fingerprint import DIGEST_CHARS, EncoderFingerprint, require_unit_rows

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

    @property
    def tag(self) -> str:
        """Name of these vectors, whose last bits graph, tokenizer and runtime change; or empty."""
        if self.declined:
            return ""
        runtime = self.toolchain["onnxruntime"]
        return f"onnx-{hash_json({'files': dict(self.files), 'runtime': runtime})[:DIGEST_CHARS]}"


_FIELDS = {
    "toolchain": dict, "files": dict, "min_cosine": float, "sampled_texts": int, "declined": str,
}  # fmt: skip


def onnx_directory(encoders: Path, fingerprint: EncoderFingerprint) -> Path:
    """Return where the ONNX face of a fingerprint is, below a store's encoders."""
    return encoders / f"{fingerprint.digest}.onnx"


def toolchain() -> dict[str, str] | None:
    """Return the versions that an export depends on, or None if one is not installed."""
    try:
        return {"export": str(EXPORT_VERSION), **{name: version(name) for name in _PACKAGES}}
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
        value = parse_json(path.read_text("utf-8"))
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
        is_whole = bool(header.declined) or hash_files(directory) == header.files
    except EncoderError:
        return None
    same = header.fingerprint == fingerprint and header.toolchain == toolchain()
    return header if same and is_whole else None


def hash_files(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of the graph and of the tokenizer; EncoderError if one is missing."""
    try:
        return {name: hash_file(directory / name) for name in (MODEL_FILE, TOKENIZER_FILE)}
    except OSError as error:
        raise EncoderError(
            f"the ONNX export in {directory} is incomplete ({error}). Delete the directory; the "
            "next night exports again."
        ) from error


class OnnxEncoder:
    """An opened export; `tag` distinguishes its vectors from those of other implementations."""

    def __init__(self, header: OnnxHeader, session: Any, tokenizer: Any, threads: int) -> None:
        self.fingerprint: EncoderFingerprint = header.fingerprint
        self.tag = header.tag
        self.threads = threads
        self._session = session
        self._cutting = tokenizer  # as sentence-transformers cuts

    @classmethod
    def open(
        cls, directory: Path, threads: int | None = None, *, call_threads: int = 1
    ) -> OnnxEncoder:
        """Open what `export_onnx` wrote; its files are compared with their checksums.

        `threads` call at once; `call_threads` divide one call's products, which changes last
        digits.
        """
        header = read_header(directory)
        if header.declined:
            raise EncoderError(f"{directory} was declined: {header.declined}")
        if hash_files(directory) != header.files:
            raise EncoderError(
                f"the ONNX export in {directory} is not what its header vouches for. Delete the "
                "directory; the next night exports again."
            )
        session = _open_session(directory / MODEL_FILE, call_threads)
        tokenizer = _import("tokenizers").Tokenizer.from_file(str(directory / TOKENIZER_FILE))
        tokenizer.enable_truncation(max_length=header.fingerprint.max_tokens)
        return cls(header, session, tokenizer, threads or usable_cores())

    @cached_property
    def _counting(self) -> Any:
        """The same tokenizer, which does not cut; made for the first long text."""
        copy = type(self._cutting).from_str(self._cutting.to_str())
        copy.no_truncation()
        return copy

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
        unknown = getattr(self._cutting.model, "unk_token", None) or _UNKNOWN
        head = without_surrogates(text)[: CHARS_PER_TOKEN * self.fingerprint.max_tokens]
        ids = self._cutting.encode(head, add_special_tokens=False).ids
        return 1.0 - ids.count(self._cutting.token_to_id(unknown)) / max(len(ids), 1)

    def iter_document_batches(self, texts: Sequence[str]) -> Iterator[PlacedVectors]:
        """Yield vectors batch by batch, longest texts first; each is computed on its own."""
        # By characters: long texts last would leave one thread working alone at the end.
        order = sorted(range(len(texts)), key=lambda position: -len(texts[position]))
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="noctuary-onnx")
        waiting: deque[Future[Floats]] = deque()
        submitted = 0
        try:
            for start in range(0, len(order), BATCH_SIZE):
                until = start + BATCH_SIZE + _AHEAD_PER_THREAD * self.threads
                for position in order[submitted:until]:
                    prefix = self.fingerprint.document_prefix
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
            clean, limit = without_surrogates(text), self.fingerprint.max_tokens
            head = readable_head(clean, limit, lambda head: len(self._counting.encode(head).ids))
            rows = np.array([self._cutting.encode(prefix + head).ids], dtype=np.int64)
            return self._session.run([OUTPUT_NAME], {INPUT_NAME: rows})[0][0]
        # The exceptions of both libraries have no common base, and may quote the text.
        except Exception as error:
            raise EncoderError(
                f"ONNX Runtime failed on a text of {len(text):,} characters "
                f"({type(error).__name__}). If it fails again, delete the model's directory "
                "below encoders; the next night exports again."
            ) from error


def _open_session(path: Path, call_threads: int) -> Any:
    # Before its first import: else it tells Microsoft which models run, under an id that it keeps.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    runtime = _import("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = call_threads
    # A waiting thread sleeps: spinning would take a core from whatever else the process does.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.inter_op_num_threads = 1
    options.log_severity_level = _ERRORS_ONLY
    try:
        return runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
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
