"""What the extractor found in tonight's memories, from fragments or made anew.

What belongs here: keys by memory, filling the fragments, reading them, what the source told and
what a language model adds. What does not: the extractor (`noctuary.graph.extract`), what becomes of
findings (`noctuary.graph.state`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from noctuary.corpus.record_file import column_batches, take_columns
from noctuary.errors import StoreError
from noctuary.graph.extraction import Extraction
from noctuary.graph.extraction_task import (
    EXTRACTION_COLUMNS,
    EXTRACTION_KIND,
    ExtractMemories,
    add_keys,
    decode_extraction,
    encode_extraction,
)
from noctuary.graph.merge import merge_extractions
from noctuary.hashing import hash_text
from noctuary.night.context import Night
from noctuary.night.llm_triples import extend_extractions
from noctuary.night.told import read_told
from noctuary.shards.filling import Filled, fill
from noctuary.shards.fragment_store import KEY
from noctuary.shards.keys import as_rows
from noctuary.shards.task import RecordBatch
from noctuary.types import MemoryRecord

KeyRows = NDArray[np.uint8]
"""Keys, shape (n, 32)."""

_READ_ROWS = 4_096
"""Findings decoded at once: some ten MB of objects."""


def fill_extractions(night: Night, keyed: Iterable[RecordBatch]) -> Filled:
    """Compute what the fragments lack of some memories.

    Args:
        night: The night.
        keyed: As `add_keys` gives them.
    """
    task = ExtractMemories()
    store = night.fragments(EXTRACTION_KIND)
    return fill(store, keyed, task, night.runner(), night.shards(task.name), night.progress)


def read_extractions(night: Night, records: Sequence[MemoryRecord]) -> list[Extraction]:
    """Return the extractor's findings of some memories; what the fragments lost is found again."""
    fill_extractions(night, map(add_keys, column_batches(records, EXTRACTION_COLUMNS)))
    return list(read_kept(night, _keys_of(records)))


def read_kept(night: Night, keys: KeyRows) -> Iterator[Extraction]:
    """Yield what the fragments hold under some keys, in their order.

    Raises:
        StoreError: They lack one of them.
    """
    store = night.fragments(EXTRACTION_KIND)
    for start in range(0, len(keys), _READ_ROWS):
        handles = store.find(keys[start : start + _READ_ROWS])
        if (handles < 0).any():
            raise StoreError(
                f"found no findings of {int((handles < 0).sum())} memories in {store.directory}, "
                "which were written just now: something else writes there; run the night again"
            )
        yield from map(decode_extraction, store.take(handles).to_pylist())


class Extractions:
    """Extractions of tonight's memories on demand.

    What the store tells of a memory is added to what its text gave, and is part of its key.

    Attributes:
        keys: By position, as hex digits: equal keys promise equal extractions.
        extracted: How many distinct texts were read so far.
        facts: What a language model told of these memories.
        notes: What it did tonight.
    """

    def __init__(self, night: Night, records: Sequence[MemoryRecord]) -> None:
        self._night = night
        self._records = records
        self._text_keys = _keys_of(records)
        self._told = _told_by_position(night, records)
        changed = {at: encode_extraction(told) for at, told in self._told.items()}
        self.keys: Sequence[str] = _HexKeys(_with_added(self._text_keys, changed))
        self.extracted = 0
        self.facts: Mapping[str, Any] = {}
        self.notes: Mapping[str, Any] = {}

    def load(self, chosen: Sequence[int]) -> Iterable[Extraction]:
        """Yield the extractions of the memories at ascending positions."""
        positions = np.array(chosen, dtype=np.int64)
        rows = take_columns(self._records, positions, EXTRACTION_COLUMNS)
        self.extracted += fill_extractions(self._night, map(add_keys, rows)).computed
        found = read_kept(self._night, self._text_keys[positions])
        for position, extraction in zip(chosen, found, strict=True):
            told = self._told.get(position)
            yield extraction if told is None else merge_extractions(extraction, told)


class ExtendedExtractions(Extractions):
    """Extractions to which a language model adds: an answer that came late changes a memory's key.

    All of them are held: asking a model is for stores where that is affordable.
    """

    def __init__(self, night: Night, records: Sequence[MemoryRecord]) -> None:
        held = list(records)
        super().__init__(night, held)
        found = list(super().load(range(len(held))))
        extended = extend_extractions(night, held, found)
        self.facts, self.notes = extended.facts, extended.notes
        self._merged = extended.extractions
        self.keys = [
            hash_text(key, encode_extraction(merged).decode("utf-8"))
            for key, merged in zip(self.keys, self._merged, strict=True)
        ]

    def load(self, chosen: Sequence[int]) -> Iterable[Extraction]:
        """Return the merged extractions of the memories at some positions."""
        return [self._merged[position] for position in chosen]


def open_extractions(night: Night, records: Sequence[MemoryRecord]) -> Extractions:
    """Return the extractions of tonight's memories, with a model's where one is configured."""
    with_model = night.settings.graph.extractor == "llm"
    return (ExtendedExtractions if with_model else Extractions)(night, records)


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


def _told_by_position(night: Night, records: Sequence[MemoryRecord]) -> dict[int, Extraction]:
    told = read_told(night)
    if not told:
        return {}
    rows = (
        row
        for batch in column_batches(records, ("position", "memory_id"))
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    return {position: told[memory_id] for position, memory_id in rows if memory_id in told}


def _with_added(keys: KeyRows, added: Mapping[int, bytes]) -> KeyRows:
    """Return the keys, those of some positions changed by what is added there."""
    changed = keys.copy() if added else keys
    for position, more in added.items():
        key = hash_text(keys[position].tobytes().hex(), more.decode("utf-8"))
        changed[position] = as_rows([bytes.fromhex(key)])
    return changed
