"""Tonight's extractions: from the content store, made anew, with what the store told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from noctuary.core.errors import StoreError
from noctuary.core.files import remove_tree
from noctuary.core.store import StorePaths
from noctuary.core.types import MemoryRecord
from noctuary.graph.extract import EXTRACTION_KIND, extract, extraction_key
from noctuary.sources.corpus import RecordFile, read_records
from noctuary.work.content import as_rows
from noctuary_assets.graph import open_extractions, open_extractor
from noctuary_assets.ingest import export_memories, read_told
from noctuary_assets.night import CONTENT, MEMORIES, Night

TEXTS = (
    "Blue Ridge\nA line of hills.",
    "Dana Whitfield works at Globex.",
    "Blue Ridge\nA line of hills.",
    "K8s: the cluster",
)


@pytest.fixture
def night(tmp_path: Path) -> Night:
    rows = [{"id": n, "content": text} for n, text in enumerate(TEXTS)]
    source = tmp_path / "memories.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    night = Night(StorePaths(tmp_path / "store"), source)
    export_memories(night)
    return night


def _records(night: Night) -> list[MemoryRecord]:
    return read_records(night.work(MEMORIES))


def _plain(night: Night) -> list[object]:
    return [
        extract(r.content, r.tags, r.expanded_keywords, is_turn=r.is_turn) for r in _records(night)
    ]


def _hex_keys(night: Night) -> list[str]:
    return [
        extraction_key(r.content, r.tags, r.expanded_keywords, r.is_turn).hex()
        for r in _records(night)
    ]


def test_extractions_are_those_of_each_text_and_each_is_made_once(night: Night) -> None:
    assert not read_told(night)
    first = open_extractions(night, RecordFile(night.work(MEMORIES)))
    assert list(first.load([0, 1, 2, 3])) == _plain(night)
    assert first.extracted == 3, "two texts are alike"
    again = open_extractions(night, _records(night))
    assert list(again.load([1, 3])) == [_plain(night)[1], _plain(night)[3]]
    assert again.extracted == 0
    assert open_extractor(night).read(_records(night)[1:]) == _plain(night)[1:]


def test_keys_are_a_sequence_of_hex_digits(night: Night) -> None:
    keys = open_extractions(night, RecordFile(night.work(MEMORIES))).keys
    wanted = _hex_keys(night)
    assert list(keys) == wanted
    assert (len(keys), keys[-1], list(keys[1:3])) == (4, wanted[3], wanted[1:3])
    assert keys[0] == keys[2] != keys[1]


def test_nothing_is_extracted_before_it_is_asked_for(night: Night) -> None:
    source = open_extractions(night, RecordFile(night.work(MEMORIES)))
    assert (source.extracted, night.content(EXTRACTION_KIND).rows) == (0, 0)
    assert list(source.load([])) == []
    assert source.extracted == 0


def test_lost_and_damaged_fragments_are_made_again(night: Night) -> None:
    assert open_extractor(night).read(_records(night)) == _plain(night)
    (fragment,) = night.content(EXTRACTION_KIND).fragments
    fragment.path.write_bytes(fragment.path.read_bytes()[:-40])
    damaged = open_extractions(night, _records(night))
    assert list(damaged.load([0, 1, 2, 3])) == _plain(night)
    assert damaged.extracted == 3
    remove_tree(night.work(CONTENT))
    assert open_extractor(night).read(_records(night)) == _plain(night)


def test_findings_that_are_not_there_stop_the_night_by_name(night: Night) -> None:
    keys = as_rows(bytes.fromhex(key) for key in _hex_keys(night))
    with pytest.raises(StoreError, match="found no findings of 4 memories"):
        list(open_extractor(night).read_kept(keys))
    open_extractor(night).read(_records(night)[:1])
    with pytest.raises(StoreError, match="found no findings of 2 memories"):
        list(open_extractor(night).read_kept(keys))
    assert list(open_extractor(night).read_kept(keys[[0, 2]])) == [_plain(night)[0]] * 2
