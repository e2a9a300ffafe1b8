"""What the extractor found in tonight's memories: kept, made anew, and added to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import StoreError
from noctuary.core.files import hash_text
from noctuary.core.types import SILENT, MemoryRecord, Progress
from noctuary.graph.extract import (
    EXTRACTION_COLUMNS,
    Extraction,
    ExtractMemories,
    add_keys,
    decode_extraction,
    encode_extraction,
)
from noctuary.graph.llm import Extended, merge_extractions
from noctuary.sources.corpus import column_batches, take_columns
from noctuary.work.content import KEY, ContentStore, Filled, as_rows, fill
from noctuary.work.shards import RecordBatch, Runner

KeyRows = NDArray[np.uint8]
"""Keys, shape (n, 32)."""

_READ_ROWS = 4_096
"""Findings decoded at once: some ten MB of objects."""


@dataclass(frozen=True, slots=True)
class Extractor:
    """Reads findings from where they are kept, and lets a runner make what is lacking."""

    store: ContentStore
    runner: Runner
    shards: Path
    progress: Progress = SILENT

    def fill(self, keyed: Iterable[RecordBatch]) -> Filled:
        """Compute what the store lacks of some memories, given as `add_keys` does."""
        return fill(self.store, keyed, ExtractMemories(), self.runner, self.shards, self.progress)

    def read(self, records: Sequence[MemoryRecord]) -> list[Extraction]:
        """Return the findings of some memories; what the store lost is found again."""
        self.fill(map(add_keys, column_batches(records, EXTRACTION_COLUMNS)))
        return list(self.read_kept(_keys_of(records)))

    def read_kept(self, keys: KeyRows) -> Iterator[Extraction]:
        """Yield what the store holds under some keys, in their order.

        Raises:
            StoreError: It lacks one of them.
        """
        for start in range(0, len(keys), _READ_ROWS):
            handles = self.store.find(keys[start : start + _READ_ROWS])
            if lacking := int((handles < 0).sum()):
                raise StoreError(
                    f"found no findings of {lacking} memories in {self.store.directory}, which "
                    "were written just now: something else writes there; run the night again"
                )
            yield from map(decode_extraction, self.store.take(handles).to_pylist())


class Extractions:
    """Extractions of tonight's memories on demand.

    What the store tells of a memory is added to what its text gave, and is part of its key.
    """

    def __init__(
        self,
        extractor: Extractor,
        records: Sequence[MemoryRecord],
        told: Mapping[str, Extraction],
    ) -> None:
        """Read the keys; nothing is extracted before `load`."""
        self._extractor = extractor
        self._records = records
        self._text_keys = _keys_of(records)
        self._told: dict[int, Extraction] = {}
        keys = self._text_keys.copy() if told else self._text_keys
        for batch in column_batches(records, ("position", "memory_id")) if told else ():
            columns = (column.to_pylist() for column in batch.columns)
            for position, memory_id in zip(*columns, strict=True):
                if (more := told.get(memory_id)) is not None:
                    self._told[position] = more
                    added = encode_extraction(more).decode("utf-8")
                    key = hash_text(keys[position].tobytes().hex(), added)
                    keys[position] = as_rows([bytes.fromhex(key)])
        self.keys: Sequence[str] = _HexKeys(keys)
        self.extracted = 0
        self.facts: Mapping[str, Any] = {}
        self.notes: Mapping[str, Any] = {}

    def load(self, chosen: Sequence[int]) -> Iterable[Extraction]:
        """Yield the extractions of the memories at ascending positions."""
        positions = np.array(chosen, dtype=np.int64)
        rows = take_columns(self._records, positions, EXTRACTION_COLUMNS)
        self.extracted += self._extractor.fill(map(add_keys, rows)).computed
        found = self._extractor.read_kept(self._text_keys[positions])
        for position, extraction in zip(chosen, found, strict=True):
            told = self._told.get(position)
            yield extraction if told is None else merge_extractions(extraction, told)


class ExtendedExtractions(Extractions):
    """Extractions to which a language model adds: an answer that came late changes a memory's key.

    All of them are held: asking a model is for stores where that is affordable.
    """

    def __init__(
        self,
        extractor: Extractor,
        records: Sequence[MemoryRecord],
        told: Mapping[str, Extraction],
        extend: Callable[[Sequence[MemoryRecord], Sequence[Extraction]], Extended],
    ) -> None:
        """Extract everything and let `extend` add to it; see `extend_extractions`."""
        held = list(records)
        super().__init__(extractor, held, told)
        found = list(super().load(range(len(held))))
        extended = extend(held, found)
        self.facts, self.notes = extended.facts, extended.notes
        self._merged = extended.extractions
        self.keys = [
            hash_text(key, encode_extraction(merged).decode("utf-8"))
            for key, merged in zip(self.keys, self._merged, strict=True)
        ]

    def load(self, chosen: Sequence[int]) -> Iterable[Extraction]:
        """Return the merged extractions of the memories at some positions."""
        return [self._merged[position] for position in chosen]


class _HexKeys(Sequence[str]):
    """Keys as hex digits, of which only those in use are texts."""

    def __init__(self, keys: KeyRows) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [key.tobytes().hex() for key in self._keys[index]]
        return self._keys[index].tobytes().hex()


def _keys_of(records: Sequence[MemoryRecord]) -> KeyRows:
    keys = [
        as_rows(add_keys(batch).column(KEY).to_pylist())
        for batch in column_batches(records, EXTRACTION_COLUMNS)
    ]
    return np.concatenate([*keys, as_rows([])])
