"""Which implementation of the encoder embeds a store's texts, and embedding each of them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file, replacement
from noctuary.core.settings import PROVIDERS, EncoderSettings
from noctuary.core.types import Progress
from noctuary.embed.documents import (
    BATCHES_PER_WRITE,
    SHARD_ROWS,
    TEXT,
    DocumentEncoder,
    Embedded,
    EmbedTexts,
    embed_texts,
    fill_vectors,
    keyed_texts,
    lacking_vectors,
    vector_kind,
    write_vectors,
)
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.hosted import HostedEncoder, hosted_model, open_hosted_encoder
from noctuary.embed.onnx import (
    OnnxEncoder,
    OnnxHeader,
    export_onnx,
    hash_files,
    known_header,
    onnx_directory,
    toolchain,
)
from noctuary.embed.sentence import (
    FINGERPRINT_KIND,
    SentenceEncoder,
    find_fingerprint,
    open_sentence_encoder,
)
from noctuary.sources.corpus import count_rows, iter_batches
from noctuary.work.content import KEY, ContentStore, Filled, fill
from noctuary.work.shards import RecordBatch, Runner

LIBRARY = "sentence-transformers"

HOSTED = frozenset(PROVIDERS[1:])

AGREEMENT_SAMPLE = 16
"""Texts of the corpus on which two implementations must agree; each costs both some 20 ms."""

SHARDS_OF_A_NIGHT = 30
"""Shards that a night's memories are cut into, as long as these are not too large or small: a kill
loses one. They are one wave, so that the model is opened once."""

LEAST_SHARD_ROWS = 32
"""A third of a second with the default model on two cores; fewer spend it on files."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The implementation that embeds.

    Attributes:
        tag: Of its vectors' kind; empty for sentence-transformers, of a hosted model its provider.
        min_cosine: Worst agreement with sentence-transformers; 0 where nothing was compared.
        declined: Why it is not ONNX Runtime; empty if it is.
    """

    tag: str
    min_cosine: float = 0.0
    declined: str = ""

    @property
    def is_hosted(self) -> bool:
        """Whether a provider embeds, who is paid for it."""
        return self.tag in HOSTED

    @property
    def is_onnx(self) -> bool:
        """Whether ONNX Runtime embeds, which works through shards."""
        return bool(self.tag) and not self.is_hosted

    @property
    def batches_per_write(self) -> int:
        """How many batches a kill may lose: none that was paid for."""
        return 1 if self.is_hosted else BATCHES_PER_WRITE

    def to_facts(self) -> dict[str, str]:
        """Return what the stage's facts say; `from_facts` reads it back."""
        named = {"face": self.tag or LIBRARY}
        return {**named, "onnx_declined": self.declined} if self.declined else named

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Backend:
        """Return the choice that the facts of memory_vectors tell."""
        return cls("" if facts["face"] == LIBRARY else str(facts["face"]))


class NightEncoder:
    """The configured encoder, opened as far as a night needs it: loading a model takes seconds.

    Args:
        settings: The model, and who computes it.
        directory: Where the store keeps its exported encoders.
        content: Opens what earlier nights computed, by kind.
        progress: Told about long work.
        say: Shown a line before money is spent.
    """

    def __init__(
        self,
        settings: EncoderSettings,
        directory: Path,
        content: Callable[[str], ContentStore],
        progress: Progress,
        say: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self.directory = directory
        self._content = content
        self._progress = progress
        self._say = say
        self._opened: dict[str, DocumentEncoder] = {}

    @cached_property
    def fingerprint(self) -> EncoderFingerprint:
        """The model's identity; the model is loaded only when its files are new."""
        if self.is_hosted:
            return hosted_model(self.settings).fingerprint()
        known = self._content(FINGERPRINT_KIND)
        return find_fingerprint(self.settings.model, known, lambda: self.sentence.fingerprint)

    @cached_property
    def sentence(self) -> SentenceEncoder:
        """The model itself, by sentence-transformers."""
        return open_sentence_encoder(self.settings.model)

    @cached_property
    def hosted(self) -> HostedEncoder:
        """The provider's model; one for the whole night, because it counts what it spends.

        Raises:
            ConfigError: Its address, dimension or price is missing.
        """
        return open_hosted_encoder(self.settings, self._say)

    @property
    def is_hosted(self) -> bool:
        """Whether a provider embeds."""
        return self.settings.provider in HOSTED

    @property
    def onnx_directory(self) -> Path:
        """Where the model's ONNX export is."""
        return onnx_directory(self.directory, self.fingerprint)

    def close(self) -> None:
        """Close the connections to a provider."""
        if "hosted" in self.__dict__:
            self.hosted.close()

    def choose_backend(self, texts: Sequence[str]) -> Backend:
        """Return what embeds tonight; exports and checks a model that is new or was lost.

        Args:
            texts: The corpus or a sample; AGREEMENT_SAMPLE of them are compared, evenly spread.
        """
        if self.is_hosted:
            return Backend(self.settings.provider)
        if toolchain() is None:
            return Backend("", declined="onnx or onnxruntime is not installed")
        header = self._whole_export()
        if header is None:
            step = max(len(texts) // AGREEMENT_SAMPLE, 1)
            sample = texts[::step][:AGREEMENT_SAMPLE]
            header = export_onnx(self.sentence, self.onnx_directory, sample)
        return Backend(header.tag, header.min_cosine, header.declined)

    def _whole_export(self) -> OnnxHeader | None:
        """Return what is known of the model's ONNX export; None if it is new, lost or damaged."""
        header = known_header(self.onnx_directory, self.fingerprint)
        try:
            is_whole = header and (
                header.declined or hash_files(self.onnx_directory) == header.files
            )
        except EncoderError:
            return None
        return header if is_whole else None

    def vectors(self, backend: Backend) -> ContentStore:
        """Open the document vectors that an implementation made."""
        return self._content(vector_kind(self.fingerprint, backend.tag))

    def embed(
        self, backend: Backend, texts: Sequence[str], progress: Progress | None = None
    ) -> Embedded:
        """Embed texts; see `embed_texts`."""
        return embed_texts(
            texts,
            self.vectors(backend),
            self.fingerprint,
            lambda: self.open_backend(backend, texts),
            progress or self._progress,
            batches_per_write=backend.batches_per_write,
        )

    def embed_queries(self, texts: Sequence[str]) -> Embedded:
        """Ask the provider for the vectors of queries that are not known yet.

        Raises:
            EncoderError: The provider gives none, or the budget does not cover them.
        """
        return embed_texts(
            texts,
            self._content(vector_kind(self.fingerprint, f"{self.settings.provider}:query")),
            self.fingerprint,
            lambda: _Queries(self.hosted),
            self._progress,
            batches_per_write=1,
        )

    def open_backend(self, backend: Backend, texts: Sequence[str]) -> DocumentEncoder:
        """Return the implementation that made the store's vectors; opened once.

        Args:
            backend: The implementation.
            texts: As for `choose_backend`, because its export may be gone by now.

        Raises:
            EncoderError: This machine has another one, whose vectors differ in the last digits.
        """
        if backend.tag not in self._opened:
            self._opened[backend.tag] = self._open(backend, texts)
        return self._opened[backend.tag]

    def _open(self, backend: Backend, texts: Sequence[str]) -> DocumentEncoder:
        if not backend.tag:
            return self.sentence
        found = self.choose_backend(texts)
        if found.tag != backend.tag:
            raise EncoderError(
                f"the memory vectors were made by {backend.tag}, but this machine now has "
                f"{found.tag or LIBRARY} {found.declined}. Delete "
                f"{self.directory.parent / 'work' / 'stamps'} and run the whole nightly job: it "
                "embeds again."
            )
        return self.hosted if backend.is_hosted else OnnxEncoder.open(self.onnx_directory)

    def write_memory_vectors(
        self, path: Path, memories: Path, backend: Backend, runner: Runner, shards: Path
    ) -> Filled:
        """Write the vector of every memory, by position; only unknown texts are embedded.

        Args:
            path: The `.npy` file; of shape (memories, dimension), float32.
            memories: The table of memories.
            backend: The implementation.
            runner: Who works where ONNX Runtime embeds.
            shards: Where its shards lie meanwhile.

        Returns:
            Distinct texts embedded now, and those whose vector was known.

        Raises:
            EncoderError: The encoder fails; what it gave before is kept.
            StoreError: The memories' table is missing or damaged.
        """
        rows, store = count_rows(memories), self.vectors(backend)
        dimension = self.fingerprint.dimension

        def write() -> tuple[Filled, list[bytes]]:
            filled = self.fill_store(store, memories, backend, runner, shards)
            keys = (batch.column(KEY).to_pylist() for batch in keyed_memories(memories))
            return filled, write_vectors(path, store, keys, rows, dimension)

        filled, unusable = write()
        if unusable and backend.is_onnx:
            # Damage that no checksum saw: those texts are embedded once more.
            store.forget(unusable)
            again, unusable = write()
            computed = filled.computed + again.computed
            filled = Filled(computed, again.computed + again.reused - computed)
        if unusable:
            path.unlink()
            raise lacking_vectors(len(set(unusable)), self.fingerprint)
        return filled

    def fill_store(
        self, store: ContentStore, memories: Path, backend: Backend, runner: Runner, shards: Path
    ) -> Filled:
        """Embed the memories whose vector the store lacks.

        ONNX Runtime works through shards. Other encoders take all texts at once:
        sentence-transformers sorts them by length, a hosted model fills its batches.
        """
        if backend.is_onnx:
            task, total = EmbedTexts(self.onnx_directory), count_rows(memories)
            return fill(
                store,
                keyed_memories(memories),
                task,
                runner,
                shards,
                self._progress,
                total=total,
                shard_rows=min(max(-(-total // SHARDS_OF_A_NIGHT), LEAST_SHARD_ROWS), SHARD_ROWS),
            )
        batches = iter_batches(memories, [TEXT])
        texts: list[str] = [text for batch in batches for text in batch.column(TEXT).to_pylist()]
        return fill_vectors(
            texts,
            store,
            self.fingerprint,
            lambda: self.open_backend(backend, texts),
            self._progress,
            batches_per_write=backend.batches_per_write,
        )


@dataclass(frozen=True, slots=True)
class _Queries:
    """A hosted encoder whose texts are queries."""

    encoder: HostedEncoder

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield places and vectors; see `DocumentEncoder`."""
        return self.encoder.iter_batches(texts, "query")


def keyed_memories(memories: Path) -> Iterator[RecordBatch]:
    """Yield `key` and `content` of every memory of a table, in its order.

    Raises:
        StoreError: The table is missing or damaged.
    """
    return map(keyed_texts, iter_batches(memories, [TEXT]))


def sample_texts(memories: Path, count: int = AGREEMENT_SAMPLE) -> list[str]:
    """Return at most so many contents of the memories' table, evenly spread, the first one first.

    Raises:
        StoreError: There is no such table, or it is damaged.
    """
    step = max(count_rows(memories) // count, 1)
    wanted = range(0, step * count, step)
    texts: list[str] = []
    first = 0
    for batch in iter_batches(memories, [TEXT]):
        column = batch.column(TEXT)
        places = range(-first % step, batch.num_rows, step)
        texts += [column[place].as_py() for place in places if first + place in wanted]
        first += batch.num_rows
    return texts


def share_files(directory: Path, home: Path) -> None:
    """Keep files of an encoder that another store of this home holds as well once on disk.

    By hard links to the oldest, so that every store stays whole: it can be moved, mended or removed
    without the others. An encoder is written beside its place and renamed, never changed in it.

    Args:
        directory: An encoder of a store; need not exist.
        home: The directory that holds the stores.
    """
    for file in directory.glob("*"):
        for twin in home.glob(f"*/{directory.parent.name}/{directory.name}/{file.name}"):
            with suppress(OSError):  # it goes at this moment, or lies on another disk
                if _is_older(twin, file) and hash_file(twin) == hash_file(file):
                    with replacement(file) as tmp:
                        tmp.unlink()
                        tmp.hardlink_to(twin)


def _is_older(one: Path, other: Path) -> bool:
    """Say whether one of two files of equal size is the older one.

    All stores agree on an order, or two would take each other's place every night.
    """
    found = [path.stat() for path in (one, other)]
    ages = [(stat.st_mtime_ns, stat.st_ino) for stat in found]
    return found[0].st_size == found[1].st_size and ages[0] < ages[1]
