"""The tokens of memories as a task over record batches.

What belongs here: the task, the key of a memory's tokens and the rows that it is given. What does
not: which fields are indexed (`fields`), where tokens are kept (`noctuary.shards`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noctuary.corpus.columns import iter_batches
from noctuary.hashing import hash_text
from noctuary.lexical.fields import document_tokens
from noctuary.shards.keys import KEY_BYTES
from noctuary.shards.task import BatchFunction, RecordBatch
from noctuary.text.tokens import TOKENIZER_VERSION, encode_tokens

TOKENS_KIND = f"tokens:{TOKENIZER_VERSION}"
"""Kind of the fragments: another tokenizer's are not found."""

_KEYED = ("content", "tags", "expanded_keywords", "category")
"""What tokens depend on, in the order of the key."""


@dataclass(frozen=True, slots=True)
class TokenizeMemories:
    """Gives `key` and `value` (as `encode_tokens`) for rows of `key` and the indexed fields."""

    @property
    def name(self) -> str:
        """See `BatchTask`."""
        return "tokens"

    @property
    def row_ms(self) -> float:
        """See `BatchTask`; measured on turns and notes of 190 characters."""
        return 0.03

    def open(self, threads: int) -> BatchFunction:
        """See `BatchTask`."""
        return _tokenize


def tokens_key(content: str, tags: str, expanded_keywords: str, category: str) -> bytes:
    """Return the key of a memory's tokens: the SHA-256 of the fields that are indexed."""
    return bytes.fromhex(hash_text(content, tags, expanded_keywords, category))


def iter_keyed(memories: Path) -> Iterator[RecordBatch]:
    """Yield what the task reads of every memory, in the order of positions.

    Args:
        memories: memories.parquet.

    Raises:
        StoreError: It is missing or damaged.
    """
    import pyarrow as pa

    for batch in iter_batches(memories, _KEYED):
        columns = [column.to_pylist() for column in batch.columns]
        keys = [tokens_key(*row) for row in zip(*columns, strict=True)]
        named = [pa.array(keys, pa.binary(KEY_BYTES)), *batch.columns]
        yield pa.RecordBatch.from_arrays(named, names=["key", *_KEYED])


def _tokenize(batch: RecordBatch) -> RecordBatch:
    import pyarrow as pa

    fields: list[list[str]] = [batch.column(name).to_pylist() for name in _KEYED]
    values = [encode_tokens(document_tokens(*row)) for row in zip(*fields, strict=True)]
    made: list[Any] = [batch.column("key"), pa.array(values, pa.binary())]
    return pa.RecordBatch.from_arrays(made, names=["key", "value"])
