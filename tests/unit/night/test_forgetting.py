"""What the corpus lost leaves no byte in the fragments, nor do kinds that nobody asks for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from noctuary.compact.tables import write_summaries
from noctuary.embed.documents import memo_kind, text_key
from noctuary.graph.extract import EXTRACTION_KIND
from noctuary.graph.extract import iter_keyed as keyed_extractions
from noctuary.lexical.build import TOKENS_KIND
from noctuary.work.content import KEY, ContentStore, Keys
from noctuary.work.shards import Fragment, fragment_path, write_table
from noctuary.work.stage import StageOutput
from noctuary_assets import housekeeping
from noctuary_assets.graph import open_extractor
from noctuary_assets.index import MEMORY_VECTORS, index_memories, keyed_batches
from noctuary_assets.ingest import CORPUS, export_memories
from noctuary_assets.night import FRAGMENTS, MEMORIES, SHARDS, SUMMARIES, Night
from tests.support.promotions import DIM, ENCODER, Nights, turn

CANARY = "zyzzyvacanary"
KEPT = {"content": "Nina keeps bees in Ulm.", "category": "facts"}
LOST = turn(f"Nina: my {CANARY} lives in Ulm.", 1)


class Forgetting(Nights):
    """Nights as far as memo and fragments go; vectors by hand."""

    def __init__(self, root: Path, face: str) -> None:
        super().__init__(root)
        self.face = face

    def prepare(self) -> Night:
        """Export, and compute what fragments keep."""
        night = Night(self.paths, self.source, _fingerprint=ENCODER)
        export_memories(night)
        rows, facts = night.result_of(CORPUS).rows, {"face": self.face}
        key = {"corpus": night.result_of(CORPUS).digest}
        night.run(MEMORY_VECTORS, key, lambda: StageOutput(rows, facts), places=())
        index_memories(night)
        open_extractor(night).fill(keyed_extractions(night.work(MEMORIES)))
        write_summaries(night.work(SUMMARIES), [])
        self.embed(night)
        return night

    def embed(self, night: Night) -> None:
        """Keep a vector of every memory, where this face keeps it."""
        (batch,) = keyed_batches(night.work(MEMORIES))
        keys = batch.column(KEY).to_pylist()
        kind = memo_kind(ENCODER, self.face)
        if self.face == "openai":
            with Memo.open(night.paths.memo) as memo:
                memo.put_many(kind, {key.hex(): b"\0" * 4 * DIM for key in keys})
            return
        store = night.fragments(kind)
        values = pa.FixedSizeListArray.from_arrays(np.ones(DIM * len(keys), "f4"), DIM)
        made = pa.record_batch([batch.column(KEY), values], names=["key", "value"])
        path = fragment_path(store.directory, f"{len(store.fragments):032x}")
        store.commit([Fragment(path.stem, path, write_table(path, [made]))])


def bytes_below(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


def memo_bytes(night: Night) -> bytes:
    """What the memo and its write-ahead log hold."""
    memo = night.paths.memo
    return b"".join(path.read_bytes() for path in memo.parent.glob(f"{memo.name}*"))


@pytest.mark.parametrize("face", ["onnx", "openai"])
def test_a_memory_that_is_gone_leaves_no_byte(tmp_path: Path, face: str) -> None:
    nights = Forgetting(tmp_path, face)
    nights.write(KEPT, LOST)
    night = nights.prepare()
    fragments = night.work(FRAGMENTS)
    lost = bytes.fromhex(text_key(LOST["content"]))
    kinds = [TOKENS_KIND, EXTRACTION_KIND]
    assert [night.fragments(kind).rows for kind in kinds] == [2, 2]
    assert CANARY.encode() in bytes_below(fragments)
    assert lost in bytes_below(fragments) or lost.hex().encode() in memo_bytes(night)

    nights.write(KEPT)
    night = nights.prepare()
    # What a killed task and an earlier version left.
    night.fragments("tokens:0").directory.mkdir()
    (night.fragments("tokens:0").directory / "x.arrow").write_text(CANARY)
    (fragment_path(night.fragments(TOKENS_KIND).directory, "half")).write_text(CANARY)
    night.work(SHARDS).mkdir(exist_ok=True)
    (night.work(SHARDS) / "x.rows.arrow").write_text(CANARY)
    housekeeping.tidy(night)

    assert CANARY.encode() not in bytes_below(night.paths.work)
    assert lost not in bytes_below(fragments)
    assert lost.hex().encode() not in memo_bytes(night)
    assert not night.work(SHARDS).exists()
    kept = [*kinds, memo_kind(ENCODER, face)] if face == "onnx" else kinds
    assert {p.name for p in fragments.iterdir()} == {
        night.fragments(kind).directory.name for kind in kept
    }
    assert [night.fragments(kind).rows for kind in kept] == [1] * len(kept)
    if face == "openai":
        with Memo.open(night.paths.memo) as found:
            key = text_key(KEPT["content"])
            assert found.get_many(memo_kind(ENCODER, face), [key, lost.hex()]).keys() == {key}


def looked_at(night: Night, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tidy, and return the kinds whose keys were compared."""
    kinds: list[str] = []
    prune = ContentStore.prune

    def count(store: ContentStore, live: Keys) -> int:
        kinds.append(store.kind)
        return prune(store, live)

    with monkeypatch.context() as patch:
        patch.setattr(ContentStore, "prune", count)
        housekeeping.tidy(night)
    return kinds


def test_keys_are_compared_only_where_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = sorted([TOKENS_KIND, EXTRACTION_KIND, memo_kind(ENCODER, "onnx")])
    nights = Forgetting(tmp_path, "onnx")
    nights.write(KEPT, LOST)
    night = nights.prepare()
    assert sorted(looked_at(night, monkeypatch)) == kinds
    half = fragment_path(night.fragments(TOKENS_KIND).directory, "half")
    half.write_text(CANARY)
    assert looked_at(night, monkeypatch) == []
    assert not half.exists(), "what a killed night left goes all the same"
    nights.write(KEPT)
    night = nights.prepare()
    assert sorted(looked_at(night, monkeypatch)) == kinds
    assert looked_at(night, monkeypatch) == []


def test_what_a_refused_night_brought_back_is_forgotten_again(tmp_path: Path) -> None:
    """Its fragments are those of before; no tidying saw it."""
    nights = Forgetting(tmp_path, "onnx")
    nights.write(KEPT)
    housekeeping.tidy(nights.prepare())
    nights.write(KEPT, LOST)
    nights.prepare()
    nights.write(KEPT)
    housekeeping.tidy(nights.prepare())
    nights.write(KEPT, LOST)
    nights.prepare()  # refused: published nothing, tidied nothing
    nights.write(KEPT)
    night = nights.prepare()
    assert CANARY.encode() in bytes_below(night.work(FRAGMENTS))
    housekeeping.tidy(night)
    assert CANARY.encode() not in bytes_below(night.work(FRAGMENTS))


def test_a_night_begins_without_rows_of_a_killed_task(tmp_path: Path) -> None:
    nights = Forgetting(tmp_path, "onnx")
    left = nights.paths.work / SHARDS / "tokens" / "x.rows.arrow"
    left.parent.mkdir(parents=True)
    left.write_text(CANARY)
    housekeeping.sweep(nights.paths)
    assert not left.parent.parent.exists()
