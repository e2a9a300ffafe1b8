"""Embedding a store's texts once, by whichever implementation fits; vectors kept by content."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import hash_file, hash_text, replacement, write_array_blocks
from noctuary.core.settings import PROVIDERS, EncoderSettings
from noctuary.core.types import SILENT, Progress
from noctuary.embed.checkpoint import (
    default_checkpoint,
    default_fingerprint,
    export_default,
    export_lean,
)
from noctuary.embed.default_model import DEFAULT_MODEL, fetch_default
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.hosted import HostedEncoder, hosted_model, open_hosted_encoder
from noctuary.embed.onnx import (
    OnnxEncoder,
    OnnxHeader,
    known_header,
    onnx_directory,
    read_header,
    toolchain,
    write_header,
)
from noctuary.embed.sentence import (
    FINGERPRINT_KIND,
    Floats,
    PlacedVectors,
    SentenceEncoder,
    export_onnx,
    find_fingerprint,
    open_sentence_encoder,
    read_checkpoint,
)
from noctuary.sources.corpus import count_rows, iter_batches
from noctuary.work.content import KEY, KEY_BYTES, VALUE, ContentStore, Filled, fill
from noctuary.work.shards import BatchFunction, RecordBatch, Runner

TEXT = "content"  # the column of the texts
MEMORIES_TASK = "memory_vectors"  # as the progress names it
BATCHES_PER_WRITE = 8  # durable at once: more loses more work to a kill (8 are about a second)
SHARD_ROWS = 4_096  # more lose more work to a kill (20 s), fewer make more fragments to merge
WINDOW_ROWS = 65_536  # gathered at once (100 MB at 384 dimensions); fewer read fragments often
TAKE_ROWS = 4_096  # taken from a store at once: each call copies them up to three times

# Opens an encoder and yields batches that can be kept one by one; only called for new texts.
Encode = Callable[[Sequence[str]], Iterator[PlacedVectors]]


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors of texts, and how many distinct ones the encoder saw now or were known."""

    vectors: Floats  # unit rows, shape (n, d), aligned with the texts
    computed: int
    reused: int


def vector_kind(fingerprint: EncoderFingerprint, face: str = "") -> str:
    """Return the kind of the vectors of one implementation, by its tag: each rounds differently."""
    return f"vector:{fingerprint.digest}:{face}" if face else f"vector:{fingerprint.digest}"


def text_key(text: str) -> bytes:
    """Return the key of a text's vector."""
    return bytes.fromhex(hash_text(text))


def embed_texts(
    texts: Sequence[str],
    store: ContentStore,
    fingerprint: EncoderFingerprint,
    encode: Encode,
    progress: Progress = SILENT,
    batches_per_write: int = BATCHES_PER_WRITE,
    task: str = MEMORIES_TASK,
) -> Embedded:
    """Return a vector for every text, where all fit in memory; see `fill_vectors`."""
    filled = fill_vectors(texts, store, fingerprint, encode, progress, batches_per_write, task)
    vectors = read_vectors(store, [text_key(text) for text in texts], fingerprint.dimension)
    if lacking := len(_unusable(vectors)):
        raise lacking_vectors(lacking, fingerprint)
    return Embedded(vectors, filled.computed, filled.reused)


def fill_vectors(
    texts: Sequence[str],
    store: ContentStore,
    fingerprint: EncoderFingerprint,
    encode: Encode,
    progress: Progress = SILENT,
    batches_per_write: int = BATCHES_PER_WRITE,
    task: str = MEMORIES_TASK,
) -> Filled:
    """Store the vector of every distinct text; written ones stay if a later one fails."""
    unique = {text_key(text): text for text in texts}
    missing = [
        window[place]
        for window in _windows([unique])
        # One of another size or not finite is made again.
        for place in _unusable(read_vectors(store, window, fingerprint.dimension))
    ]
    if missing:
        pending: dict[bytes, Floats] = {}
        done = 0
        batches = enumerate(encode([unique[key] for key in missing]), start=1)
        for number, (places, vectors) in batches:
            pending |= {missing[at]: row for at, row in zip(places, vectors, strict=True)}
            if number % batches_per_write == 0:
                done += len(pending)
                put_vectors(store, pending)
                progress.update(task, done, len(missing))
                pending = {}
        put_vectors(store, pending)
        progress.update(task, done + len(pending), len(missing))
    return Filled(computed=len(missing), reused=len(unique) - len(missing))


def lacking_vectors(count: int, fingerprint: EncoderFingerprint) -> EncoderError:
    """Return the error that some texts got no usable vector."""
    return EncoderError(
        f"{count} texts got no finite vector of {fingerprint.dimension} numbers from "
        f"{fingerprint.model}; choose another model, or reinstall this one"
    )


def put_vectors(store: ContentStore, vectors: Mapping[bytes, Floats]) -> None:
    """Keep vectors of one dimension by key, durably."""
    import pyarrow as pa

    if vectors:
        rows = np.stack(list(vectors.values())).astype(np.float32)
        values = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        store.put(list(vectors), values)


def read_vectors(store: ContentStore, keys: Sequence[bytes], dimension: int) -> Floats:
    """Return the vectors of keys, shape (len(keys), dimension); NaN where none can be read."""
    vectors = np.full((len(keys), dimension), np.nan, dtype=np.float32)
    handles = store.find(keys)
    # In the order of the store, so that a fragment is read once and not by every piece.
    order = np.argsort(handles, kind="stable")
    order = order[handles[order] >= 0]
    for start in range(0, len(order), TAKE_ROWS):
        chosen = order[start : start + TAKE_ROWS]
        vectors[chosen] = _take(store, handles[chosen], dimension)
    return vectors


def _take(store: ContentStore, handles: NDArray[np.int64], dimension: int) -> Floats | float:
    import pyarrow as pa

    try:
        values = store.take(handles)
    except pa.ArrowException:
        # Fragments of different types: one of them is not of this task.
        return np.nan
    if values.type != pa.list_(pa.float32(), dimension) or values.null_count:
        return np.nan
    return values.flatten().to_numpy(zero_copy_only=False).reshape(len(handles), dimension)


def write_vectors(
    path: Path, store: ContentStore, keys: Iterable[Sequence[bytes]], rows: int, dimension: int
) -> list[bytes]:
    """Write the vectors of keys to a `.npy` file, NaN for those without one, and return these."""
    unusable: list[bytes] = []

    def blocks() -> Iterator[Floats]:
        for window in _windows(keys):
            vectors = read_vectors(store, window, dimension)
            unusable.extend(window[place] for place in _unusable(vectors))
            yield vectors

    write_array_blocks(path, (rows, dimension), "<f4", blocks())
    return unusable


def _unusable(vectors: Floats) -> list[int]:
    return np.flatnonzero(~np.isfinite(vectors).all(axis=1)).tolist()


def _windows(batches: Iterable[Iterable[bytes]]) -> Iterator[list[bytes]]:
    window: list[bytes] = []
    for batch in batches:
        window.extend(batch)
        while len(window) >= WINDOW_ROWS:
            yield window[:WINDOW_ROWS]
            del window[:WINDOW_ROWS]
    if window:
        yield window


# Embedding as a task over record batches.


def keyed_texts(batch: RecordBatch) -> RecordBatch:
    """Return `key` and `content` of a batch that has `content`; as many rows, in their order."""
    import pyarrow as pa

    texts = batch.column(TEXT)
    keys = list(map(text_key, texts.to_pylist()))
    return pa.record_batch([pa.array(keys, pa.binary(KEY_BYTES)), texts], names=[KEY, TEXT])


@dataclass(frozen=True, slots=True)
class EmbedTexts:
    """Gives the unit vector of every text with an ONNX export; see `BatchTask`."""

    export: Path  # every worker must be able to read it
    name: str = MEMORIES_TASK
    row_ms: float = 0.0  # One process: its threads use every core, further models only memory

    def open(self, threads: int) -> BatchFunction:
        """Return the function from `key` and `content` to `key` and `value`; see `BatchTask`."""
        encoder = OnnxEncoder.open(self.export, threads)

        def embed(batch: RecordBatch) -> RecordBatch:
            import pyarrow as pa

            vectors = encoder.encode_documents(batch.column(TEXT).to_pylist())
            values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
            return pa.record_batch([batch.column(KEY), values], names=[KEY, VALUE])

        return embed


# Which implementation of the encoder embeds.

LIBRARY = "sentence-transformers"
HOSTED = frozenset(PROVIDERS[1:])

AGREEMENT_SAMPLE = 16  # texts on which two implementations must agree; each costs some 20 ms
KEPT_COSINE = 0.999999  # of a kept vector to one of another version: float32 rounding
SHARDS_OF_A_NIGHT = 30  # unless too large or small: one wave opens the model once
LEAST_SHARD_ROWS = 32  # a third of a second on two cores; fewer spend it on files

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
        """Batches between two writes; a provider's are written at once, because they cost money."""
        return 1 if self.is_hosted else BATCHES_PER_WRITE

    def to_facts(self) -> dict[str, str]:
        """Return the stage's facts; `from_facts` reads them back."""
        named = {"face": self.tag or LIBRARY}
        return {**named, "onnx_declined": self.declined} if self.declined else named

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Backend:
        """Return the choice recorded in the facts of memory_vectors."""
        return cls("" if facts["face"] == LIBRARY else str(facts["face"]))


class NightEncoder:
    """The configured encoder, opened as far as a night needs it: loading a model takes seconds."""

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
        if self.settings.model == DEFAULT_MODEL:
            fetch_default(self._say)
            return default_fingerprint()
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
            self.hosted.client.close()

    def choose_backend(self, texts: Sequence[str]) -> Backend:
        """Choose tonight's implementation; export a new or lost model, checked on sample texts."""
        if self.is_hosted:
            return Backend(self.settings.provider)
        if toolchain(self.settings.model) is None:
            return Backend("", declined="onnx or onnxruntime is not installed")
        header = known_header(self.onnx_directory, self.fingerprint)
        if header is None:
            before: OnnxHeader | None = None
            with suppress(EncoderError):
                before = read_header(self.onnx_directory)
            sample = texts[:: max(len(texts) // AGREEMENT_SAMPLE, 1)][:AGREEMENT_SAMPLE]
            header = self._export(sample)
            if before is not None and before.tag not in ("", header.tag):
                header = self._compare_kept(before, header, sample)
        return Backend(header.tag, header.min_cosine, header.declined)

    def _export(self, sample: Sequence[str]) -> OnnxHeader:
        if self.settings.model == DEFAULT_MODEL:
            return export_default(self.onnx_directory)
        return export_onnx(self.sentence, self.onnx_directory, sample)

    def _compare_kept(
        self, before: OnnxHeader, header: OnnxHeader, sample: Sequence[str]
    ) -> OnnxHeader:
        """Keep an older export's vectors in use where a new one computes the same on a sample."""
        keys = list(map(text_key, sample))
        known = self._content(vector_kind(self.fingerprint, before.tag)).get(keys)
        texts = [text for key, text in zip(keys, sample, strict=True) if key in known]
        if header.declined or not texts:
            return header
        kept = np.array([known[text_key(text)] for text in texts], np.float32)
        made = OnnxEncoder.open(self.onnx_directory).encode_documents(texts)
        least = float(np.einsum("ij,ij->i", kept, made, dtype=np.float64).min())
        was, now = (h.toolchain.get("onnxruntime", "?") for h in (before, header))
        found = f"kept vectors (onnxruntime {was}) and new ones ({now}) have cosine {least:.7f}"
        if not least >= KEPT_COSINE:
            self._say(f"{found} or more on {len(texts)} texts: every memory is embedded again")
            return header
        self._say(f"{found} or more on {len(texts)} texts: the kept ones stay")
        header = replace(header, same_as=before.tag)
        write_header(self.onnx_directory, header)
        return header

    def export_query_encoder(
        self, backend: Backend, directory: Path, texts: Sequence[str]
    ) -> float:
        """Export the model for the read side; return its least cosine with the bulk encoder's."""
        opened = self.open_backend(backend, texts)

        def encode(sample: Sequence[str]) -> Floats:
            return self.embed(backend, sample).vectors

        if self.settings.model == DEFAULT_MODEL and isinstance(opened, OnnxEncoder):
            return export_lean(opened, default_checkpoint, directory, texts, encode)
        source = self.sentence
        return export_lean(source, lambda: read_checkpoint(source), directory, texts, encode)

    def vectors(self, backend: Backend) -> ContentStore:
        """Open the document vectors that an implementation made."""
        return self._content(vector_kind(self.fingerprint, backend.tag))

    def query_kind(self, backend: Backend) -> str:
        """Return the kind of query vectors: the documents' where both are encoded alike."""
        model = self.fingerprint
        alike = not backend.is_hosted and model.query_prefix == model.document_prefix
        return vector_kind(model, backend.tag if alike else f"{backend.tag}:query")

    def embed(self, backend: Backend, texts: Sequence[str], task: str = MEMORIES_TASK) -> Embedded:
        """Embed texts; see `embed_texts`."""
        store, encode = self.vectors(backend), self._encode(backend, texts)
        kept, told = backend.batches_per_write, self._progress
        return embed_texts(texts, store, self.fingerprint, encode, told, kept, task)

    def keep(self, backend: Backend, vectors: Mapping[str, Floats]) -> None:
        """Keep vectors by text that the same implementation made elsewhere."""
        put_vectors(self.vectors(backend), {text_key(t): vector for t, vector in vectors.items()})

    def embed_queries(self, backend: Backend, texts: Sequence[str]) -> Embedded:
        """Encode queries that are not known yet, many at once."""
        store, kept = self._content(self.query_kind(backend)), backend.batches_per_write

        def encode(new: Sequence[str]) -> Iterator[PlacedVectors]:
            return self.open_backend(backend, texts).iter_document_batches(new, "query")

        told = self._progress
        return embed_texts(texts, store, self.fingerprint, encode, told, kept, "query_vectors")

    def open_backend(self, backend: Backend, texts: Sequence[str]) -> Opened:
        """Return the implementation that made the store's vectors; EncoderError if it is gone."""
        if not backend.tag:
            return self.sentence
        if backend.tag not in self._opened:
            found = self.choose_backend(texts)
            if found.tag != backend.tag:
                raise EncoderError(
                    f"the memory vectors were made by {backend.tag}, but this machine now has "
                    f"{found.tag or LIBRARY} {found.declined}. Delete "
                    f"{self.directory.parent / 'work' / 'stamps'} and run the whole nightly job: "
                    "it embeds again."
                )
            hosted = self.hosted if backend.is_hosted else None
            self._opened[backend.tag] = hosted or OnnxEncoder.open(self.onnx_directory)
        return self._opened[backend.tag]

    def write_memory_vectors(
        self, path: Path, memories: Path, backend: Backend, runner: Runner, shards: Path
    ) -> Filled:
        """Write every memory's vector, by position, to a `.npy` file of float32."""
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
        """Embed what the store lacks: ONNX Runtime in shards, others all texts at once."""
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
        encode, kept = self._encode(backend, texts), backend.batches_per_write
        return fill_vectors(texts, store, self.fingerprint, encode, self._progress, kept)

    def _encode(self, backend: Backend, texts: Sequence[str]) -> Encode:
        return lambda new: self.open_backend(backend, texts).iter_document_batches(new)


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
    """Keep files of an encoder that other stores of this home hold once on disk, by hard links.

    To the oldest. An encoder is written beside its place and renamed, never changed in it.
    """
    for file in directory.glob("*"):
        for twin in home.glob(f"*/{directory.parent.name}/{directory.name}/{file.name}"):
            with suppress(OSError):  # it goes at this moment, or lies on another disk
                # The older one, in an order that all stores agree on.
                ours, theirs = file.stat(), twin.stat()
                is_older = (theirs.st_mtime_ns, theirs.st_ino) < (ours.st_mtime_ns, ours.st_ino)
                is_as_large = theirs.st_size == ours.st_size
                if is_as_large and is_older and hash_file(twin) == hash_file(file):
                    with replacement(file) as tmp:
                        tmp.unlink()
                        tmp.hardlink_to(twin)
