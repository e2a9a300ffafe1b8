"""Extraction of many memories, against one memory at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import StoreError
from noctuary.core.types import MemoryRecord
from noctuary.graph.extract import (
    EXTRACTION_COLUMNS,
    EXTRACTION_KIND,
    ExtractMemories,
    add_keys,
    decode_extraction,
    encode_extraction,
    extract,
    extraction_key,
)
from noctuary.sources.corpus import column_batches
from noctuary.work.content import ContentStore, Filled, fill
from noctuary.work.runner import LocalRunner
from tests.support.store import household, memory, renumber, turns

_Fields = tuple[str, str, str, bool]
_WORD = st.sampled_from(["", "a", "ab", "b"])
_FIELDS = st.tuples(_WORD, _WORD, _WORD, st.booleans())


def _records() -> list[MemoryRecord]:
    same = "Dana Whitfield works at Globex. 我的公司"
    return renumber(
        [*household(), memory(same), memory(same), memory(same, is_turn=True), *turns("s", "A: hi")]
    )


def _key_of(r: MemoryRecord) -> bytes:
    return extraction_key(r.content, r.tags, r.expanded_keywords, r.is_turn)


def test_fragments_hold_what_one_memory_at_a_time_gives(tmp_path: Path) -> None:
    records = _records()
    store = ContentStore(tmp_path, EXTRACTION_KIND)

    def filled() -> Filled:
        keyed = map(add_keys, column_batches(records, EXTRACTION_COLUMNS, 4))
        return fill(
            store, keyed, ExtractMemories(), LocalRunner(1), tmp_path / "shards", shard_rows=5
        )

    keys = [_key_of(r) for r in records]
    assert filled() == Filled(len(set(keys)), 0)
    assert filled() == Filled(0, len(set(keys)))
    assert len(set(keys)) == len(records) - 1, "two memories are alike, a turn is another one"
    kept = store.take(store.find(keys)).to_pylist()
    for record, value in zip(records, kept, strict=True):
        found = extract(
            record.content, record.tags, record.expanded_keywords,
            is_turn=record.is_turn,
        )  # fmt: skip
        assert value == encode_extraction(found)
        assert decode_extraction(value) == found
    assert any(decode_extraction(value).stated for value in kept)


@given(_FIELDS, _FIELDS)
def test_equal_keys_are_equal_fields(one: _Fields, other: _Fields) -> None:
    assert (extraction_key(*one) == extraction_key(*other)) == (one == other)
    assert len(extraction_key(*one)) == 32


def test_findings_of_another_version_are_refused() -> None:
    kept = encode_extraction(extract("Blue Ridge\nHills."))
    with pytest.raises(StoreError, match="version"):
        decode_extraction(kept.replace(b'"version": ', b'"version": 9'))
