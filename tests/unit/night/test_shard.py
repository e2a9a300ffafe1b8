"""One shard ahead of the night: computed for its memories only, found by the night, made again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noctuary.corpus.columns import read_column
from noctuary.corpus.partition import Partition
from noctuary.errors import StoreError
from noctuary.graph.extraction_task import iter_keyed as keyed_extractions
from noctuary.lexical.tokenizing import TOKENS_KIND, iter_keyed
from noctuary.night.context import FRAGMENTS, MEMORIES, POSTING_ARRAYS, POSTING_TERMS, Night
from noctuary.night.corpus import export_memories
from noctuary.night.lexical import index_memories
from noctuary.night.shard import STEPS, prepare_shard
from noctuary.settings import EncoderSettings, Settings
from noctuary.shards.fragment_store import KEY, FragmentStore
from noctuary.snapshot.layout import StorePaths

COUNT = 3
ROWS = 40
CANARY = "quagmirecanary"


def make_night(directory: Path, settings: Settings | None = None) -> Night:
    directory.mkdir(exist_ok=True)
    source = directory / "memories.jsonl"
    rows = [
        {"id": n, "content": f"Note {n % 37} of the {CANARY} garden, bed {n % 37}."}
        for n in range(ROWS)
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    night = Night(StorePaths(directory / "store"), source, settings or Settings())
    export_memories(night)
    return night


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return make_night(tmp_path / "cut")


def held(night: Night, kind: str) -> set[bytes]:
    store = night.fragments(kind)
    keys = keys_of(night)
    return {key for key in keys if store.find([key])[0] >= 0}


def keys_of(night: Night) -> list[bytes]:
    return [k for batch in iter_keyed(night.work(MEMORIES)) for k in batch.column(KEY).to_pylist()]


def test_a_shard_is_its_own_memories_and_all_shards_are_all_of_them(night: Night) -> None:
    hashes = read_column(night.work(MEMORIES), "content_hash").to_pylist()
    keys = keys_of(night)
    expected: set[bytes] = set()
    for number in range(COUNT):
        made = prepare_shard(night, "shard_tokens", Partition(number, COUNT), again=False)
        own = Partition(number, COUNT).members(hashes).tolist()
        assert made.rows == len(own) > 0
        assert made.computed == len({keys[place] for place in own} - expected)
        expected |= {keys[place] for place in own}
        assert held(night, TOKENS_KIND) == expected
    assert expected == set(keys)


def test_the_night_finds_what_shards_prepared_and_comes_out_as_without_them(
    night: Night, tmp_path: Path
) -> None:
    for number in range(COUNT):
        prepare_shard(night, "shard_tokens", Partition(number, COUNT), again=False)
    assert index_memories(night).notes["texts_tokenized"] == 0
    alone = make_night(tmp_path / "whole")
    assert index_memories(alone).notes["texts_tokenized"] == 37
    for name in (POSTING_TERMS, *POSTING_ARRAYS):
        assert night.work(name).read_bytes() == alone.work(name).read_bytes()


@pytest.mark.parametrize("name", ["shard_tokens", "shard_extractions"])
def test_a_shard_again_is_forgotten_and_computed_again_and_no_other(
    name: str, night: Night
) -> None:
    for number in range(COUNT):
        prepare_shard(night, name, Partition(number, COUNT), again=False)
    before = contents(night)
    known = prepare_shard(night, name, Partition(1, COUNT), again=False)
    assert (known.computed, known.forgotten) == (0, 0)
    made = prepare_shard(night, name, Partition(1, COUNT), again=True)
    assert 0 < made.forgotten == made.computed == known.reused <= made.rows
    assert made.reused == 0
    assert contents(night) == before


def contents(night: Night) -> list[tuple[str, list[Any]]]:
    """What every fragment store holds, sorted by key."""
    from noctuary.shards.files import open_table

    found: list[tuple[str, list[Any]]] = []
    for directory in sorted(night.work(FRAGMENTS).iterdir()):
        kind = json.loads((directory / "MANIFEST.json").read_text("utf-8"))["kind"]
        store = FragmentStore(night.work(FRAGMENTS), kind)
        rows = [
            tuple(row.values()) for f in store.fragments for row in open_table(f.path).to_pylist()
        ]
        found.append((kind, sorted(rows)))
    return found


def test_extractions_are_prepared_under_the_keys_that_the_night_asks_for(night: Night) -> None:
    for number in range(COUNT):
        prepare_shard(night, "shard_extractions", Partition(number, COUNT), again=False)
    store = FragmentStore(night.work(FRAGMENTS), STEPS["shard_extractions"](night).kind)  # pyright: ignore[reportOptionalMemberAccess]
    for batch in keyed_extractions(night.work(MEMORIES)):
        assert (store.find(batch.column(KEY).to_pylist()) >= 0).all()


def test_nothing_of_a_shard_stays_beside_its_fragments(night: Night) -> None:
    prepare_shard(night, "shard_tokens", Partition(0, COUNT), again=False)
    shards = night.shards("")
    assert [path for path in shards.rglob("*") if path.is_file()] == []


def test_a_shard_that_fails_leaves_no_text_behind(night: Night) -> None:
    night.work(FRAGMENTS).write_text("a file where the directory belongs")
    with pytest.raises(OSError, match="fragments"):
        prepare_shard(night, "shard_tokens", Partition(0, COUNT), again=False)
    assert [path for path in night.shards("").rglob("*") if path.is_file()] == []


def test_what_a_provider_embeds_is_left_to_the_night(tmp_path: Path) -> None:
    encoder = EncoderSettings(
        "voyage-4", "voyage", "http://127.0.0.1:9", api_key_variable="UNSET", dimension=256
    )
    hosted = make_night(tmp_path / "hosted", Settings(encoder=encoder))
    made = prepare_shard(hosted, "shard_vectors", Partition(0, COUNT), again=True)
    assert made.declined
    assert (made.rows, made.computed, made.forgotten) == (0, 0, 0)


def test_without_an_export_a_shard_says_what_to_run_first(tmp_path: Path) -> None:
    night = Night(StorePaths(tmp_path / "store"), tmp_path / "memories.jsonl")
    with pytest.raises(StoreError, match="run it first"):
        prepare_shard(night, "shard_tokens", Partition(0, COUNT), again=False)
