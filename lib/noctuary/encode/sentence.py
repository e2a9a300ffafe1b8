"""The build side's encoder: any local sentence-transformers model, reproducible to the last bit.

What belongs here: opening a model and encoding with it. Where its files are is in `locate`, which
texts go together in `batching`. Nothing heavy is imported before a model is opened.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from logging import ERROR
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from noctuary.encode.base import EncoderUnsupportedError, require_unit_rows
from noctuary.encode.batching import fill_batch, gather_batches, plan_batches
from noctuary.encode.fingerprint import EncoderFingerprint
from noctuary.encode.heads import readable_head
from noctuary.encode.locate import (
    DEFAULT_MODEL,
    locate_model,
    model_name,
    require_default_weights,
    weights_sha256,
)
from noctuary.errors import EncoderError
from noctuary.progress import SILENT, Progress

_COUNT_CHUNK = 512
"""Texts tokenized at once while counting: bounds the memory that the token lists take."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_QUERY_PROMPT = "query"
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")


class SentenceModel(Protocol):
    """The parts of a SentenceTransformer that are used; iteration gives its modules."""

    tokenizer: Any
    max_seq_length: int | None
    prompts: dict[str, str | None]
    encode: Callable[..., NDArray[np.float32]]

    def get_embedding_dimension(self) -> int | None: ...  # noqa: D102

    def __iter__(self) -> Iterator[Any]: ...


class _Verbosity(Protocol):
    """The parts of transformers' logging settings that are used."""

    get_verbosity: Callable[[], int]
    set_verbosity: Callable[[int], None]
    is_progress_bar_enabled: Callable[[], bool]
    enable_progress_bar: Callable[[], None]
    disable_progress_bar: Callable[[], None]


class DocumentBatches(Iterator[tuple[list[int], NDArray[np.float32]]]):
    """Encoded batches, computed one at a time as they are asked for.

    Attributes:
        total: Texts that will be yielded in all.
        truncated_count: Texts longer than the model reads; their ends do not count.
    """

    def __init__(
        self,
        batches: Iterator[tuple[list[int], NDArray[np.float32]]],
        total: int,
        truncated_count: int,
    ) -> None:
        self._batches = batches
        self.total = total
        self.truncated_count = truncated_count

    def __next__(self) -> tuple[list[int], NDArray[np.float32]]:
        """Return positions of the texts and their vectors, shape (len(positions), dimension)."""
        return next(self._batches)


class SentenceEncoder:
    """A loaded sentence-transformers model on the CPU; implements `Encoder`.

    Attributes:
        fingerprint: The identity of the vectors.
        model_dir: The directory the model was read from.
        model: The SentenceTransformer itself.
    """

    def __init__(
        self, model: SentenceModel, model_dir: Path, fingerprint: EncoderFingerprint
    ) -> None:
        self.model = model
        self.model_dir = model_dir
        self.fingerprint = fingerprint

    def encode_documents(
        self, texts: Sequence[str], progress: Progress = SILENT
    ) -> NDArray[np.float32]:
        """See `Encoder`; a text's vector is bit-identical whatever the other texts are."""
        shape = (len(texts), self.fingerprint.dimension)
        return gather_batches(self.iter_document_batches(texts), shape, progress)

    def encode_query(self, text: str) -> NDArray[np.float32]:
        """See `Encoder`."""
        prefix = self.fingerprint.query_prefix
        head = self._head(text)
        length = min(self.token_counts([head], prefix)[0], self.fingerprint.max_tokens)
        return self._encode_batch([head], [0], length, prefix)[0]

    def iter_document_batches(self, texts: Sequence[str]) -> DocumentBatches:
        """Encode batch by batch, longest texts first, so that the caller can keep each batch.

        Only the token counts are computed before the first batch is asked for.

        Raises:
            EncoderError: On iteration, a text got a vector that is not finite or not of unit
            length.
        """
        limit = self.fingerprint.max_tokens
        heads = [self._head(text) for text in texts]
        counts = self.token_counts(heads, self.fingerprint.document_prefix)
        lengths = [min(count, limit) for count in counts]
        truncated_count = sum(
            count > limit or len(head) < len(text)
            for count, head, text in zip(counts, heads, texts, strict=True)
        )
        return DocumentBatches(self._encoded(heads, lengths), len(texts), truncated_count)

    def token_counts(self, texts: Sequence[str], prefix: str = "") -> list[int]:
        """Return the tokens of each text behind a prefix, control tokens included, untruncated."""
        counts: list[int] = []
        with _quiet():
            for start in range(0, len(texts), _COUNT_CHUNK):
                chunk = [prefix + _clean(text) for text in texts[start : start + _COUNT_CHUNK]]
                ids = self.model.tokenizer(
                    chunk,
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

    def _encoded(
        self, texts: Sequence[str], lengths: Sequence[int]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        for positions in plan_batches(lengths):
            members = [texts[position] for position in positions]
            length = lengths[positions[0]]
            prefix = self.fingerprint.document_prefix
            yield positions, self._encode_batch(members, positions, length, prefix)

    def _encode_batch(
        self, texts: Sequence[str], positions: Sequence[int], length: int, prefix: str
    ) -> NDArray[np.float32]:
        rows = fill_batch([_clean(text) for text in texts], length)
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
    """Load a model from local files only, on the CPU.

    Args:
        model: DEFAULT_MODEL (the installed package, its weights verified), a directory, or a hub
        name
            whose files are already in the local cache.

    Raises:
        EncoderError: The model is absent, damaged or, for the default, not the expected one.
        EncoderUnsupportedError: It is not a text model with a tokenizer and a fixed dimension.
    """
    directory = locate_model(model)
    sha256 = weights_sha256(directory)
    if model == DEFAULT_MODEL:
        require_default_weights(directory, sha256)
    loaded = load_model(directory)
    return SentenceEncoder(loaded, directory, _fingerprint(loaded, model_name(model), sha256))


def load_model(directory: Path, attention: str | None = None) -> SentenceModel:
    """Load the model itself, without checks of its weights.

    Args:
        directory: A model in the sentence-transformers layout.
        attention: Implementation of attention by transformers' name; None for its choice.

    Raises:
        EncoderError: The library or the model cannot be loaded.
    """
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


def _fingerprint(model: SentenceModel, name: str, sha256: str) -> EncoderFingerprint:
    dimension = model.get_embedding_dimension()
    max_tokens = model.max_seq_length
    if not dimension or not max_tokens or not callable(getattr(model, "tokenizer", None)):
        raise EncoderUnsupportedError(
            f"model {name} reports dimension {dimension} and token limit {max_tokens}; expected a "
            "text model with a tokenizer, a dimension and a limit. Use another, for example "
            f"{DEFAULT_MODEL!r}."
        )
    prompts: dict[str, str | None] = dict(model.prompts)
    document = next((prompts[key] for key in _DOCUMENT_PROMPTS if prompts.get(key)), None)
    return EncoderFingerprint(
        model=name,
        weights_sha256=sha256,
        dimension=int(dimension),
        pooling=_pooling(model),
        normalized=True,
        query_prefix=prompts.get(_QUERY_PROMPT) or "",
        document_prefix=document or "",
        max_tokens=int(max_tokens),
    )


def _pooling(model: SentenceModel) -> str:
    modes = [str(part.pooling_mode) for part in model if hasattr(part, "pooling_mode")]
    return "+".join(modes) or "none"


def _clean(text: str) -> str:
    # A lone surrogate cannot be handed to the tokenizer (it is not UTF-8); it carries no text
    # anyway.
    return _SURROGATE.sub("\ufffd", text)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Silence transformers' progress bars and notices, and put its settings back afterwards."""
    settings = cast("_Verbosity", importlib.import_module("transformers.utils.logging"))
    verbosity = settings.get_verbosity()
    bars = settings.is_progress_bar_enabled()
    settings.set_verbosity(ERROR)
    _show_bars(settings, wanted=False)
    try:
        yield
    finally:
        settings.set_verbosity(verbosity)
        _show_bars(settings, wanted=bars)


def _show_bars(settings: _Verbosity, *, wanted: bool) -> None:
    with warnings.catch_warnings():
        # It warns where the user's environment already decided; then there is nothing to do.
        warnings.simplefilter("ignore", UserWarning)
        (settings.enable_progress_bar if wanted else settings.disable_progress_bar)()
