"""The bulk face of an encoder: ONNX Runtime, fp32, exported once."""

from __future__ import annotations

import importlib
import json
import re
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import fsync_dir, fsync_file, hash_file, hash_json, remove_tree, write_text
from noctuary.core.foreign_json import parse_json
from noctuary.core.types import SILENT, Progress, usable_cores
from noctuary.embed.fingerprint import (
    DIGEST_CHARS,
    EncoderFingerprint,
    EncoderUnsupportedError,
    require_unit_rows,
)
from noctuary.embed.lean_export import MIN_COSINE, PROBE_TEXTS, describe_place, measure_agreement
from noctuary.embed.sentence import (
    BATCH_SIZE,
    SentenceEncoder,
    gather_batches,
    load_model,
    readable_head,
)

# The directory of an export: names, header, and what identifies its vectors.


MODEL_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
HEADER_FILE = "onnx.json"

EXPORT_VERSION = 1
"""Bumped when an export of the same model would give other files, or be judged otherwise."""

_PACKAGES = ("onnx", "onnxruntime", "sentence-transformers", "torch", "transformers")

_FIELDS = {
    "fingerprint": dict,
    "toolchain": dict,
    "files": dict,
    "min_cosine": float,
    "sampled_texts": int,
    "declined": str,
}


@dataclass(frozen=True, slots=True)
class OnnxHeader:
    """What an export found, kept beside it; also kept where the model was declined.

    Attributes:
        fingerprint: Of the model.
        toolchain: What exported, checked and runs it (see `toolchain`).
        files: SHA-256 by file name; empty where declined.
        min_cosine: Worst agreement with sentence-transformers; 0 where it was not measured.
        sampled_texts: Texts compared.
        declined: Why the model is not used this way; empty if it is.
    """

    fingerprint: EncoderFingerprint
    toolchain: Mapping[str, str]
    files: Mapping[str, str]
    min_cosine: float
    sampled_texts: int
    declined: str = ""

    @property
    def tag(self) -> str:
        """Name of these vectors among those of one fingerprint; empty where declined.

        It changes with the graph, the tokenizer and the version of the runtime, because each of
        them may change the last bits.
        """
        if self.declined:
            return ""
        runtime = self.toolchain["onnxruntime"]
        return f"onnx-{hash_json({'files': dict(self.files), 'runtime': runtime})[:DIGEST_CHARS]}"


def onnx_directory(encoders: Path, fingerprint: EncoderFingerprint) -> Path:
    """Return where the ONNX face of a fingerprint is, below a store's encoders."""
    return encoders / f"{fingerprint.digest}.onnx"


def toolchain() -> dict[str, str] | None:
    """Return the versions that an export depends on, or None if one is not installed."""
    try:
        return {
            "export": str(EXPORT_VERSION),
            **{name: version(name) for name in _PACKAGES},
        }
    except PackageNotFoundError:
        return None


def write_header(directory: Path, header: OnnxHeader) -> None:
    """Write the header; last, because it vouches for the other files."""
    write_text(directory / HEADER_FILE, json.dumps(asdict(header), indent=1, sort_keys=True) + "\n")


def read_header(directory: Path) -> OnnxHeader:
    """Read the header without touching the other files.

    Raises:
        EncoderError: It is missing or damaged.
    """
    path = directory / HEADER_FILE
    try:
        return _parse(parse_json(path.read_text("utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise EncoderError(
            f"{path} is not the header of an ONNX export ({type(error).__name__}: {error}). Delete "
            "its directory; the next night exports again."
        ) from error


def _parse(value: dict[str, Any]) -> OnnxHeader:
    wrong = [name for name, kind in _FIELDS.items() if not isinstance(value[name], kind)]
    if wrong:
        raise TypeError(f"of another type: {', '.join(wrong)}")
    return OnnxHeader(
        fingerprint=EncoderFingerprint.from_json(value["fingerprint"]),
        toolchain=value["toolchain"],
        files=value["files"],
        min_cosine=value["min_cosine"],
        sampled_texts=value["sampled_texts"],
        declined=value["declined"],
    )


def hash_files(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of the graph and of the tokenizer.

    Raises:
        EncoderError: One of them is missing.
    """
    try:
        return {name: hash_file(directory / name) for name in (MODEL_FILE, TOKENIZER_FILE)}
    except OSError as error:
        raise EncoderError(
            f"the ONNX export in {directory} is incomplete ({error}). Delete the directory; the "
            "next night exports again."
        ) from error


# Running it: one text per call, several calls at once.
#
# A text is never padded and never shares a call, and every call is one thread's work, so a vector
# cannot depend on its neighbours, on the order or on how many threads there are.


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


# Turning a sentence-transformers model into such a directory.
#
# A model that is not exported is recorded as declined, so that it is not tried again every night.


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
