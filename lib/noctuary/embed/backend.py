"""Which implementation of the encoder embeds a store's texts, and embedding each of them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file, replacement
from noctuary.core.settings import PROVIDERS, EncoderSettings
from noctuary.core.types import Progress
from noctuary.embed.documents import (
    BATCHES_PER_WRITE,
    SHARD_ROWS,
    TEXT,
    Embedded,
    EmbedTexts,
    embed_texts,
    fill_vectors,
    keyed_texts,
    lacking_vectors,
    vector_kind,
    write_vectors,
)
from noctuary.embed.export import export_onnx
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.hosted import HostedEncoder, hosted_model, open_hosted_encoder
from noctuary.embed.onnx import OnnxEncoder, hash_files, known_header, onnx_directory, toolchain
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

Opened = SentenceEncoder | OnnxEncoder | HostedEncoder


@dataclass(frozen=True, slots=True)
class Backend:
    """The implementation that embeds."""

    tag: str  # of its vectors' kind: empty for sentence-transformers, or the provider's name
    min_cosine: float = 0.0  # worst agreement with sentence-transformers; 0 if not compared
    declined: str = ""  # why it is not ONNX Runtime

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

    `content` opens what earlier nights computed, by kind; `say` is shown a line before money is
    spent. The store's exported encoders lie in `directory`.
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
        self._opened: dict[str, Opened] = {}

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
        """The provider's model; one for the whole night, because it counts what it spends."""
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

        Of the texts, the corpus or a sample, AGREEMENT_SAMPLE are compared, evenly spread.
        """
        if self.is_hosted:
            return Backend(self.settings.provider)
        if toolchain() is None:
            return Backend("", declined="onnx or onnxruntime is not installed")
        header = known_header(self.onnx_directory, self.fingerprint)
        if header is not None and not header.declined:
            try:
                is_whole = hash_files(self.onnx_directory) == header.files
            except EncoderError:
                is_whole = False
            header = header if is_whole else None
        if header is None:
            sample = texts[:: max(len(texts) // AGREEMENT_SAMPLE, 1)][:AGREEMENT_SAMPLE]
            header = export_onnx(self.sentence, self.onnx_directory, sample)
        return Backend(header.tag, header.min_cosine, header.declined)

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
            lambda new: self.open_backend(backend, texts).iter_document_batches(new),
            progress or self._progress,
            batches_per_write=backend.batches_per_write,
        )

    def embed_queries(self, texts: Sequence[str]) -> Embedded:
        """Ask the provider for the vectors of queries that are not known yet.

        EncoderError if it gives none, or the budget does not cover them.
        """
        return embed_texts(
            texts,
            self._content(vector_kind(self.fingerprint, f"{self.settings.provider}:query")),
            self.fingerprint,
            lambda new: self.hosted.iter_batches(new, "query"),
            self._progress,
            batches_per_write=1,
        )

    def open_backend(self, backend: Backend, texts: Sequence[str]) -> Opened:
        """Return the implementation that made the store's vectors; opened once.

        Its export may be gone by now: the texts are as for `choose_backend`. EncoderError if this
        machine has another one, whose vectors differ in the last digits.
        """
        if backend.tag not in self._opened:
            self._opened[backend.tag] = self._open(backend, texts)
        return self._opened[backend.tag]

    def _open(self, backend: Backend, texts: Sequence[str]) -> Opened:
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
        """Write the vector of every memory, by position, to a `.npy` file of float32.

        Only unknown texts are embedded: by the runner, through files in `shards`, where ONNX
        Runtime does it. Returns how many distinct texts were embedded now, and how many were known.

        Raises:
            EncoderError: The encoder fails; what it gave before is kept.
            StoreError: The memories' table is missing or damaged.
        """
        rows, store = count_rows(memories), self.vectors(backend)

        def write() -> tuple[Filled, list[bytes]]:
            filled = self.fill_store(store, memories, backend, runner, shards)
            keys = (batch.column(KEY).to_pylist() for batch in keyed_memories(memories))
            return filled, write_vectors(path, store, keys, rows, self.fingerprint.dimension)

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
            total = count_rows(memories)
            return fill(
                store,
                keyed_memories(memories),
                EmbedTexts(self.onnx_directory),
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
            lambda new: self.open_backend(backend, texts).iter_document_batches(new),
            self._progress,
            batches_per_write=backend.batches_per_write,
        )


def keyed_memories(memories: Path) -> Iterator[RecordBatch]:
    """Yield `key` and `content` of every memory of a table, in its order."""
    return map(keyed_texts, iter_batches(memories, [TEXT]))


def sample_texts(memories: Path, count: int = AGREEMENT_SAMPLE) -> list[str]:
    """Return at most so many contents of the memories' table, evenly spread from the first on."""
    step = max(count_rows(memories) // count, 1)
    texts: list[str] = []
    first = 0
    for batch in iter_batches(memories, [TEXT]):
        column = batch.column(TEXT)
        texts += [column[at].as_py() for at in range(-first % step, batch.num_rows, step)]
        first += batch.num_rows
    return texts[:count]


def share_files(directory: Path, home: Path) -> None:
    """Keep files of an encoder that another store of this home holds as well once on disk.

    By hard links to the oldest, so that every store stays whole: it can be moved, mended or removed
    without the others. An encoder is written beside its place and renamed, never changed in it. The
    directory need not exist; the home holds the stores.
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
