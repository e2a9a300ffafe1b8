"""Tokens of memories by key: what the task gives is what the fields say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from noctuary.lexical.build import TokenizeMemories, iter_keyed, tokens_key
from noctuary.sources.corpus import MEMORIES_FILE, open_table
from noctuary.text.tokens import document_tokens

ROWS = [
    ("The billing-api is down", "wing:a, urgent", "outage", "facts"),
    ("the of and", "", "", "facts"),
    ("", "", "", ""),
    ("東京タワー", "", "tower", "notes"),
]


@pytest.fixture
def memories(tmp_path: Path) -> Path:
    path = tmp_path / MEMORIES_FILE
    with open_table(path, MEMORIES_FILE) as add:
        for n, (content, tags, keywords, category) in enumerate(ROWS):
            row = (n, str(n), content, category, tags, keywords, 0.5, 0, 0)
            add((*row, None, None, None, None, False, "h"))
    return path


def test_every_memory_gets_its_key_and_its_tokens(memories: Path) -> None:
    (batch,) = iter_keyed(memories)
    found = TokenizeMemories().open(1)(batch)
    assert found.schema.names == ["key", "value"]
    assert found.column("key").type == pa.binary(32)
    assert found.column("key").to_pylist() == [tokens_key(*row) for row in ROWS]
    values = [value.decode().split() for value in found.column("value").to_pylist()]
    assert values == [document_tokens(content, tags, k, c) for content, tags, k, c in ROWS]
    assert values[0]
    assert not values[2]


def test_every_field_tells_keys_apart() -> None:
    one = ("content", "tags", "keywords", "category")
    changed = [[*one[:n], "x", *one[n + 1 :]] for n in range(4)]
    assert len({tokens_key(*fields) for fields in (list(one), *changed)}) == 5
    assert tokens_key("ab", "", "", "") != tokens_key("a", "b", "", "")
