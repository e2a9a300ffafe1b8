"""Fragment stores: what is found, what is computed again, what is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.core.errors import ShardError
from noctuary.work import fragments as filling
from noctuary.work import fragments as fragment_store
from noctuary.work.content import MANIFEST_FILE, ContentStore, Filled, fill
from noctuary.work.runner import LocalRunner
from noctuary.work.shards import Fragment, list_shards
from tests.support.batch_tasks import Fail, ShoutTexts, batches_of, key_of

HERE = LocalRunner(workers=1)
TEXTS = [f"memory {number}" for number in range(50)]


class Told:
    def __init__(self) -> None:
        self.reports: list[tuple[int, int]] = []

    def update(self, task: str, done: int, total: int) -> None:
        self.reports.append((done, total))


def store_at(tmp_path: Path, kind: str = "shout:1") -> ContentStore:
    return ContentStore(tmp_path / "fragments", kind)


def fill_with(store: ContentStore, texts: Sequence[str], tmp_path: Path, **more: Any) -> Filled:
    shards = tmp_path / "shards"
    done = fill(store, batches_of(texts), ShoutTexts(), HERE, shards, shard_rows=10, **more)
    assert not shards.exists(), "shards are gone when their fragments count"
    return done


def held(store: ContentStore, texts: Sequence[str]) -> list[str | None]:
    handles = store.find([key_of(text) for text in texts])
    values = store.take(handles[handles >= 0])
    found = iter([] if values is None else values.to_pylist())
    return [next(found) if handle >= 0 else None for handle in handles.tolist()]


def shouted(texts: Sequence[str]) -> list[str]:
    return [text.upper() for text in texts]


def bytes_of(store: ContentStore) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(store.directory.rglob("*")))


def test_each_distinct_key_is_computed_once(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    assert fill_with(store, [*TEXTS, *TEXTS[:5]], tmp_path) == Filled(50, 0)
    assert store.rows == 50
    assert fill_with(store, [*TEXTS[10:], "new", "new"], tmp_path) == Filled(1, 40)
    assert held(store, ["new", *TEXTS, "never"]) == [*shouted(["new", *TEXTS]), None]


def test_what_one_night_computed_the_next_one_finds(tmp_path: Path) -> None:
    fill_with(store_at(tmp_path), TEXTS, tmp_path)
    assert held(store_at(tmp_path), TEXTS[::-1]) == shouted(TEXTS[::-1])
    assert held(store_at(tmp_path, "shout:2"), TEXTS) == [None] * 50, "another kind, another store"


def test_waves_and_shards_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "WAVE_SHARDS", 2)
    waves, told = store_at(tmp_path / "waves"), Told()
    known = [*TEXTS[:5], *TEXTS]
    fill_with(waves, TEXTS[:5], tmp_path)
    assert fill_with(waves, known, tmp_path, progress=told, total=55) == Filled(45, 5)
    assert held(waves, TEXTS) == shouted(TEXTS)
    done = [count for count, _ in told.reports]
    assert done == sorted(done)
    assert done[0] < 30
    assert told.reports[-1] == (55, 55)


def test_a_killed_night_goes_on_with_the_wave_it_was_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "WAVE_SHARDS", 2)
    texts = [*TEXTS[:35], "bad", *TEXTS[35:]]
    shards = tmp_path / "shards"
    with pytest.raises(ShardError):
        fill(store_at(tmp_path), batches_of(texts), Fail(), HERE, shards, shard_rows=10)
    assert not shards.exists()
    store = store_at(tmp_path)
    assert held(store, texts) == [*TEXTS[:20], *[None] * 31]
    left = {p.name: p.stat().st_ino for p in store.directory.iterdir() if p.suffix == ".arrow"}
    assert len(left) == 3, "one more is whole and does not count yet"
    # Under the same name its shards have the same keys.
    fill(store, batches_of(texts), ShoutTexts("fail"), HERE, shards, shard_rows=10)
    after = {p.name: p.stat().st_ino for p in store.directory.iterdir()}
    assert {name: after[name] for name in left} == left, "it was taken as it was"
    assert held(store, texts) == [*TEXTS[:30], *shouted(texts[30:])]


def cut_off(data: bytes) -> bytes:
    return data[: len(data) // 2]


def change_a_value(data: bytes) -> bytes:
    return data.replace(b"MEMORY 13", b"MEMORY 31")


def empty(data: bytes) -> bytes:
    return data[:0]


def zero(data: bytes) -> bytes:
    return bytes(len(data))


@pytest.mark.parametrize("damage", [cut_off, change_a_value, empty, zero])
def test_what_a_damaged_fragment_held_is_computed_again(tmp_path: Path, damage: Any) -> None:
    fill_with(store_at(tmp_path), TEXTS, tmp_path)
    path = store_at(tmp_path).fragments[1].path
    path.write_bytes(damage(path.read_bytes()))
    store = store_at(tmp_path)
    assert not path.exists(), "it cannot be taken for the fragment that is made now"
    assert held(store, TEXTS) == [*shouted(TEXTS[:10]), *[None] * 10, *shouted(TEXTS[20:])]
    assert fill_with(store, TEXTS, tmp_path) == Filled(10, 40)
    assert held(store_at(tmp_path), TEXTS) == shouted(TEXTS)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1, "kind": "shout:1"}'])
def test_without_a_manifest_whole_fragments_are_taken_over(tmp_path: Path, text: str) -> None:
    fill_with(store_at(tmp_path), TEXTS, tmp_path)
    manifest = store_at(tmp_path).directory / MANIFEST_FILE
    manifest.write_text(text)
    store = store_at(tmp_path)
    assert store.rows == 0
    assert fill_with(store, TEXTS, tmp_path) == Filled(0, 50), "as after a kill before the commit"
    assert held(store_at(tmp_path), TEXTS) == shouted(TEXTS)


def test_a_leftover_that_is_damaged_is_not_taken(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    kind = "shout:shout:1"
    (shard, *_) = list_shards(batches_of(TEXTS), tmp_path / "same", kind, 10)
    store.directory.mkdir(parents=True)
    (store.directory / f"{shard.key}.arrow").write_bytes(b"ARROW1" + bytes(99))
    fill_with(store, TEXTS, tmp_path)
    assert held(store, TEXTS) == shouted(TEXTS)


def test_a_fragment_that_cannot_be_read_does_not_count(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    fill_with(store, TEXTS[:10], tmp_path)
    with pytest.raises(ShardError, match="cannot be read"):
        store.commit([Fragment("0" * 32, store.directory / "no.arrow", 3)])
    assert held(store_at(tmp_path), TEXTS[:10]) == shouted(TEXTS[:10])


def test_a_fragment_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    fill_with(store, TEXTS, tmp_path)
    handles = store.find([key_of(TEXTS[0])])
    store.fragments[0].path.unlink()
    with pytest.raises(ShardError, match="run again"):
        store.take(handles)


def test_what_is_forgotten_leaves_no_byte(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    secret = "canary-7f3a"
    fill_with(store, [*TEXTS, secret], tmp_path)
    (store.directory / ("f" * 32 + ".arrow")).write_text(secret.upper())
    (store.directory / ".x.99.tmp").write_text(secret.upper())
    assert secret.upper().encode() in bytes_of(store)
    assert store.prune(map(key_of, TEXTS)) == 1
    assert secret.upper().encode() not in bytes_of(store)
    assert held(store, [*TEXTS, secret]) == [*shouted(TEXTS), None]
    assert held(store_at(tmp_path), TEXTS) == shouted(TEXTS)


def test_pruning_sweeps_even_where_nothing_is_forgotten(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    (store.directory).mkdir(parents=True)
    (store.directory / "left.arrow").write_text("canary")
    assert store.prune([]) == 0
    assert not list(store.directory.glob("*.arrow"))


def test_forgotten_keys_are_computed_again(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    fill_with(store, TEXTS, tmp_path)
    assert store.forget(np.frombuffer(key_of(TEXTS[3]), np.uint8).reshape(1, 32)) == 1
    assert fill_with(store, TEXTS, tmp_path) == Filled(1, 49)


def test_small_fragments_are_merged_and_large_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fragment_store, "SHARD_ROWS", 20)
    monkeypatch.setattr(fragment_store, "MERGE_ROWS", 10)
    store = store_at(tmp_path)
    fill_with(store, TEXTS[:20], tmp_path)
    large = [fragment.path.stat().st_ino for fragment in store.fragments]
    for number in range(20, 50):
        fill_with(store, [TEXTS[number]], tmp_path)
    assert len(store.fragments) == 32
    assert store.prune(map(key_of, TEXTS)) == 0
    assert [fragment.rows for fragment in store.fragments] == [10, 10, 20, 10]
    assert [fragment.path.stat().st_ino for fragment in store.fragments[:2]] == large
    assert held(store, TEXTS) == shouted(TEXTS)
    before = bytes_of(store)
    store.prune(map(key_of, TEXTS))
    assert bytes_of(store) == before, "a night without news writes nothing"


def test_a_key_that_two_fragments_hold_is_found_once_and_merged_away(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    fill_with(store, TEXTS[:10], tmp_path)
    (shard,) = list_shards(batches_of(TEXTS[5:12]), tmp_path / "again", "x", 10)
    store.commit(HERE.run(ShoutTexts(), [shard], store.directory))
    assert store.rows == 17
    assert held(store, TEXTS[:12]) == shouted(TEXTS[:12])
    assert store.prune(map(key_of, TEXTS)) == 0
    assert store.rows == 12
    assert held(store, TEXTS[:12]) == shouted(TEXTS[:12])


def test_nothing_asked_is_nothing_found(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    assert store.take(store.find([])) is None
    assert fill_with(store, [], tmp_path) == Filled(0, 0)
