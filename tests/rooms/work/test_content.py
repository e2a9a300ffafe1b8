"""The content store: what is found, replaced, computed again, forgotten; and what a kill leaves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.errors import ShardError
from noctuary.work import content
from noctuary.work.content import MANIFEST_FILE, ContentStore, Filled, fill
from noctuary.work.runner import LocalRunner
from noctuary.work.shards import Shard, list_shards
from tests.support.batch_tasks import Fail, ShoutTexts, batches_of, key_of

HERE = LocalRunner(workers=1)
TEXTS = [f"memory {number}" for number in range(50)]
CANARY = b"canary-5f1c-the-text-that-must-go"


class Told:
    def __init__(self) -> None:
        self.reports: list[tuple[int, int]] = []

    def update(self, task: str, done: int, total: int) -> None:
        self.reports.append((done, total))


def store_at(tmp_path: Path, kind: str = "shout:1") -> ContentStore:
    return ContentStore(tmp_path / "content", kind)


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
    other = store_at(tmp_path, "shout:2")
    assert held(other, TEXTS) == [None] * 50, "another kind, another store"
    assert other.take(other.find([])) is None
    assert fill_with(other, [], tmp_path) == Filled(0, 0)


def test_waves_and_shards_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "WAVE_SHARDS", 2)
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
    monkeypatch.setattr(content, "WAVE_SHARDS", 2)
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
        store.commit([Shard("0" * 32, store.directory / "no.arrow", 3)])
    assert held(store_at(tmp_path), TEXTS[:10]) == shouted(TEXTS[:10])


def test_a_fragment_that_is_gone_is_one_sentence(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    fill_with(store, TEXTS, tmp_path)
    handles = store.find([key_of(TEXTS[0])])
    store.fragments[0].path.unlink()
    with pytest.raises(ShardError, match="run again"):
        store.take(handles)


def test_what_is_forgotten_leaves_no_byte_and_is_computed_again(tmp_path: Path) -> None:
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
    (store.directory / "left.arrow").write_text(secret)
    assert store.prune(map(key_of, TEXTS)) == 0
    assert not (store.directory / "left.arrow").exists(), "it sweeps all the same"
    assert store.forget(np.frombuffer(key_of(TEXTS[3]), np.uint8).reshape(1, 32)) == 1
    assert fill_with(store, TEXTS, tmp_path) == Filled(1, 49)


def test_small_fragments_are_merged_and_large_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "SHARD_ROWS", 20)
    monkeypatch.setattr(content, "MERGE_ROWS", 10)
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


def test_what_was_put_is_found_under_its_kind_only(tmp_path: Path) -> None:
    """What comes of putting, replacing and forgetting: test_it_answers_as_a_dictionary_does."""
    one, two, three = map(key_of, ("one", "two", "three"))
    store_at(tmp_path, "a").put([one, two], [b"1", b""])
    store_at(tmp_path, "b").put([one], [b"other"])
    store = store_at(tmp_path, "a")
    assert store.get([two, one, three, one]) == {one: b"1", two: b""}
    assert store.get(iter([three])) == {}
    assert store_at(tmp_path, "b").get([one, two]) == {one: b"other"}


def test_nothing_is_written_for_nothing(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.put([], [])
    assert not store.directory.exists()
    store.put([key_of("k")], [b"v"])
    before = {path: path.stat().st_mtime_ns for path in store.directory.iterdir()}
    store.put([], [])
    assert store.prune([key_of("k")]) == store.forget([key_of("x")]) == 0
    assert {path: path.stat().st_mtime_ns for path in store.directory.iterdir()} == before


def test_what_was_replaced_is_in_no_file_after_pruning(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    store.put([key_of("k")], [CANARY * 300])
    store.put([key_of("k")], [b"clean"])
    assert store.prune([key_of("k")]) == 0
    assert CANARY not in bytes_of(store)
    assert store.get([key_of("k")]) == {key_of("k"): b"clean"}


@pytest.mark.parametrize("texts", [[], ["k"], ["k", "new"]])
def test_replacing_all_leaves_nothing_else(tmp_path: Path, texts: list[str]) -> None:
    store = store_at(tmp_path)
    store.put([key_of("k"), key_of("lost")], [CANARY, CANARY])
    store.put([key_of("k")], [b"again"])
    wanted = {key_of(text): text.encode() for text in texts}
    store.replace(list(wanted), list(wanted.values()))
    assert CANARY not in bytes_of(store)
    assert store_at(tmp_path).get(map(key_of, ["k", "lost", "new"])) == wanted
    assert store.rows == len(wanted)


def test_vectors_are_kept_as_they_are_given(tmp_path: Path) -> None:
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6, dtype="f4")), 3)
    store = store_at(tmp_path)
    store.put([key_of("a"), key_of("b")], values)
    assert store.take(store.find([key_of("b"), key_of("a")])).equals(values.take(pa.array([1, 0])))


def test_keys_alike_at_the_start_or_ending_in_zeros_are_told_apart(tmp_path: Path) -> None:
    keys = [bytes(32), bytes(15) + b"\1" + bytes(16), bytes(14) + b"\1" + bytes(17)]
    keys += [key_of("x")[:15] + bytes([last]) + bytes(16) for last in (0, 1, 255)]
    store = store_at(tmp_path)
    store.put(keys[::2], [bytes([number]) for number in range(0, len(keys), 2)])
    assert set(store.get(keys)) == set(keys[::2])
    store.put(keys[1::2], [bytes([number]) for number in range(1, len(keys), 2)])
    assert store.get(keys) == {key: bytes([number]) for number, key in enumerate(keys)}
    assert store.forget(keys[:1]) == 1
    assert set(store.get(keys)) == set(keys[1:])


DIE_IN = """
import os, signal, sys
from pathlib import Path
from noctuary.work import content
store = content.ContentStore(Path(sys.argv[1]), "shout:1")
store.put([b"1" * 32, b"3" * 32], [b"one", b"three"])
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(content, sys.argv[2], die)
getattr(store, sys.argv[3])([b"1" * 32, b"2" * 32], [b"uno", sys.argv[4].encode()])
"""


@pytest.mark.parametrize("call", ["put", "replace"])
@pytest.mark.parametrize("place", ["write_hashed", "write_manifest", "remove_unnamed"])
def test_a_killed_writer_leaves_all_or_nothing(tmp_path: Path, place: str, call: str) -> None:
    code = DIE_IN if place != "remove_unnamed" else f"{DIE_IN}\nstore.prune(store.keys())"
    arguments = [str(tmp_path / "content"), place, call, CANARY.decode()]
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=False)
    assert done.returncode == -9
    store = store_at(tmp_path)
    one, two, three = (digit * 32 for digit in (b"1", b"2", b"3"))
    before = {one: b"one", three: b"three"}
    after = {one: b"uno", two: CANARY, **({three: b"three"} if call == "put" else {})}
    held_now = after if place == "remove_unnamed" else before
    assert store.get([one, two, three]) == held_now
    store.prune([one, three])
    assert CANARY not in bytes_of(store)
    store.put([one], [b"again"])
    assert store_at(tmp_path).get([one]) == {one: b"again"}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "forget", "prune", "replace", "reopen"]),
        st.dictionaries(st.integers(0, 7), st.binary(max_size=2), max_size=5),
    ),
    max_size=12,
)


@given(steps=STEPS, shard_rows=st.integers(1, 6))
def test_it_answers_as_a_dictionary_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Any], shard_rows: int
) -> None:
    places = tmp_path_factory.mktemp("store")
    store, naive = store_at(places), dict[bytes, bytes]()
    keys = [key_of(str(number)) for number in range(8)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "SHARD_ROWS", shard_rows)
        patch.setattr(content, "MERGE_ROWS", shard_rows // 2)
        for step, drawn in steps:
            given_now = {keys[number]: value for number, value in drawn.items()}
            both = list(given_now), list(given_now.values())
            match step:
                case "put":
                    store.put(*both)
                    naive |= given_now
                case "replace":
                    store.replace(*both)
                    naive = given_now
                case "forget":
                    assert store.forget(both[0]) == len(given_now.keys() & naive.keys())
                    naive = {k: v for k, v in naive.items() if k not in given_now}
                case "prune":
                    assert store.prune(both[0]) == len(naive.keys() - given_now.keys())
                    naive = {k: v for k, v in naive.items() if k in given_now}
                    assert store.rows == len(naive)
                case _:
                    store = store_at(places)
            assert store.get(keys) == naive
            assert dict(zip(map(bytes, store.keys()), store.values(), strict=True)) == naive
