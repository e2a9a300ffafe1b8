"""The bulk face of an encoder: ONNX Runtime, fp32, one text per call, several calls at once.

What belongs here: opening an export and running it. A text is never padded and never shares a call,
and every call is one thread's work, so a vector cannot depend on its neighbours, on the order or on
how many threads there are.
"""

from __future__ import annotations

import importlib
import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.cores import usable_cores
from noctuary.encode.base import require_unit_rows
from noctuary.encode.batching import BATCH_SIZE, gather_batches
from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.encode.heads import readable_head
from noctuary.encode.onnx_format import (
    MODEL_FILE,
    TOKENIZER_FILE,
    OnnxHeader,
    hash_files,
    read_header,
)
from noctuary.errors import EncoderError
from noctuary.progress import SILENT, Progress

INPUT_NAME = "ids"
OUTPUT_NAME = "vector"

_AHEAD_PER_THREAD = 4 * BATCH_SIZE
"""Texts queued per thread: enough that no thread waits while a batch is written, few enough that
100,000 texts do not become 100,000 waiting tasks."""

_ERRORS_ONLY = 3
_SURROGATE = re.compile("[\ud800-\udfff]")


class OnnxEncoder:
    """An opened export; implements `Encoder`.

    Attributes:
        fingerprint: The identity of the space, that of the source model.
        tag: Which face these vectors come from (see `OnnxHeader.tag`).
        threads: Calls at once.
    """

    def __init__(self, header: OnnxHeader, session: Any, tokenizers: Any, threads: int) -> None:
        self.fingerprint: EncoderFingerprint = header.fingerprint
        self.tag = header.tag
        self.threads = threads
        self._session = session
        self._cutting, self._counting = tokenizers

    @classmethod
    def open(
        cls, directory: Path, threads: int | None = None, *, call_threads: int = 1
    ) -> OnnxEncoder:
        """Open an export; its files are compared with their checksums.

        Args:
            directory: What `export_onnx` wrote.
            threads: Calls at once; None for the cores that this process may use.
            call_threads: Threads of one call; more than one divide its products, so that the last
                digits depend on their number.

        Raises:
            EncoderError: It is absent, damaged or declined, or onnxruntime is not installed.
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
        limit = header.fingerprint.max_tokens
        tokenizers = _open_tokenizers(directory / TOKENIZER_FILE, limit)
        return cls(header, session, tokenizers, threads or usable_cores())

    def encode_documents(
        self, texts: Sequence[str], progress: Progress = SILENT
    ) -> NDArray[np.float32]:
        """See `Encoder`; a text's vector is bit-identical whatever the other texts are."""
        shape = (len(texts), self.fingerprint.dimension)
        return gather_batches(self.iter_document_batches(texts), shape, progress)

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """See `Encoder`."""
        vector = self._vector(self.fingerprint.query_prefix, text)
        require_unit_rows(vector[np.newaxis], [0])
        return vector

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield positions of `texts` and their vectors, longest texts first.

        Batches only group what is yielded together, so that the caller can keep it; each text is
        computed on its own.

        Raises:
            EncoderError: A text got a vector that is not finite or not of unit length.
        """
        # By characters: long texts last would leave one thread working alone at the end.
        order = sorted(range(len(texts)), key=lambda position: -len(texts[position]))
        for start, vectors in self._in_order([texts[position] for position in order]):
            positions = order[start : start + len(vectors)]
            require_unit_rows(vectors, positions)
            yield positions, vectors

    def _in_order(self, texts: Sequence[str]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        prefix = self.fingerprint.document_prefix
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="noctuary-onnx")
        waiting: deque[Future[NDArray[np.float32]]] = deque()
        submitted = 0
        try:
            for start in range(0, len(texts), BATCH_SIZE):
                until = min(len(texts), start + BATCH_SIZE + _AHEAD_PER_THREAD * self.threads)
                for text in texts[submitted:until]:
                    waiting.append(pool.submit(self._vector, prefix, text))
                submitted = until
                count = min(BATCH_SIZE, len(texts) - start)
                yield start, np.stack([waiting.popleft().result() for _ in range(count)])
        finally:
            # Also when the caller stops early: nothing computes on behind its back.
            pool.shutdown(wait=True, cancel_futures=True)

    def _vector(self, prefix: str, text: str) -> NDArray[np.float32]:
        try:
            head = readable_head(_clean(text), self.fingerprint.max_tokens, self._count)
            ids = self._cutting.encode(prefix + head).ids
            rows = np.array([ids], dtype=np.int64)
            return self._session.run([OUTPUT_NAME], {INPUT_NAME: rows})[0][0]
        # The exceptions of both libraries have no common base, and may quote the text.
        except Exception as error:
            raise EncoderError(
                f"ONNX Runtime failed on a text of {len(text):,} characters "
                f"({type(error).__name__}). If it fails again, delete the model's directory "
                "below encoders; the next night exports again."
            ) from error

    def _count(self, text: str) -> int:
        return len(self._counting.encode(text).ids)


def _open_session(path: Path, call_threads: int) -> Any:
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


def _open_tokenizers(path: Path, max_tokens: int) -> tuple[Any, Any]:
    """Return one tokenizer that cuts as sentence-transformers does, and one that does not cut."""
    library = _import("tokenizers")
    cutting: Any = library.Tokenizer.from_file(str(path))
    counting: Any = library.Tokenizer.from_file(str(path))
    cutting.enable_truncation(max_length=max_tokens)
    return cutting, counting


def _import(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as error:
        raise EncoderError(
            f"this model needs {library}, which cannot be imported ({error}): "
            "pip install onnxruntime tokenizers"
        ) from error


def _clean(text: str) -> str:
    # A lone surrogate cannot be handed to the tokenizer: it is not UTF-8 and carries no text.
    return _SURROGATE.sub("\ufffd", text)
