"""Extraction of many memories as a task over record batches.

What belongs here: the task, the key of a memory's findings and the rows that it is given. What does
not: reading one memory (`extract`), where findings are kept (`noctuary.shards`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from noctuary.corpus.columns import iter_batches
from noctuary.graph.extract import extract
from noctuary.graph.extraction import EXTRACTOR_VERSION, Extraction
from noctuary.hashing import hash_text
from noctuary.shards.keys import KEY_BYTES
from noctuary.shards.task import BatchFunction, RecordBatch

EXTRACTION_KIND = f"extraction:{EXTRACTOR_VERSION}"
"""Kind of the fragments: another extractor's are not found."""

EXTRACTION_COLUMNS = ("content", "category", "tags", "expanded_keywords", "is_turn")
"""What findings depend on, in the order of `extract` and of the key."""

EXTRACTION_ROW_MS = 0.3
"""About what one memory of 200 characters takes on one core."""


@dataclass(frozen=True, slots=True)
class ExtractMemories:
    """Gives `key` and `value` (as `encode_extraction`) for rows of `key` and EXTRACTION_COLUMNS."""

    @property
    def name(self) -> str:
        """See `BatchTask`."""
        return "extractions"

    @property
    def row_ms(self) -> float:
        """See `BatchTask`."""
        return EXTRACTION_ROW_MS

    def open(self, threads: int) -> BatchFunction:
        """See `BatchTask`; one thread is used."""
        del threads
        return _extract_batch


def extraction_key(
    content: str, category: str, tags: str, expanded_keywords: str, is_turn: bool
) -> bytes:
    """Return the key of a memory's findings: the SHA-256 of the fields that are read."""
    kind = "turn" if is_turn else "memory"
    return bytes.fromhex(hash_text(content, category, tags, expanded_keywords, kind))


def iter_keyed(memories: Path) -> Iterator[RecordBatch]:
    """Yield what the task reads of every memory, by position.

    Args:
        memories: memories.parquet.

    Raises:
        StoreError: It is missing or damaged.
    """
    yield from map(add_keys, iter_batches(memories, EXTRACTION_COLUMNS))


def add_keys(batch: RecordBatch) -> RecordBatch:
    """Return EXTRACTION_COLUMNS of memories with their keys in front, as `key`."""
    import pyarrow as pa

    columns = [batch.column(name) for name in EXTRACTION_COLUMNS]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    keys = pa.array([extraction_key(*row) for row in rows], pa.binary(KEY_BYTES))
    return pa.RecordBatch.from_arrays([keys, *columns], names=["key", *EXTRACTION_COLUMNS])


def encode_extraction(found: Extraction) -> bytes:
    """Return the form in which findings are kept: JSON in UTF-8."""
    return json.dumps(found.to_json(), ensure_ascii=False).encode("utf-8")


def decode_extraction(kept: bytes) -> Extraction:
    """Read what `encode_extraction` wrote.

    Raises:
        StoreError: See `Extraction.from_json`.
    """
    return Extraction.from_json(json.loads(kept))


def _extract_batch(batch: RecordBatch) -> RecordBatch:
    import pyarrow as pa

    columns = [batch.column(name).to_pylist() for name in EXTRACTION_COLUMNS]
    values = [
        encode_extraction(extract(*texts, is_turn=is_turn))
        for *texts, is_turn in zip(*columns, strict=True)
    ]
    made = [batch.column("key"), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(made, names=["key", "value"])
