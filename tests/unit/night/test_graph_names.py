"""Vectors of names in the stage of the graph: merges, the table, what a night takes over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from noctuary.core.errors import EncoderError
from noctuary.core.files import write_array
from noctuary.core.store import StorePaths
from noctuary.embed.documents import LIBRARY, text_key
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.embed.sentence import SentenceEncoder
from noctuary.graph import build
from noctuary.graph.build import choose_names
from noctuary.graph.guards import NameStats
from noctuary.work.stage import StageOutput, StageResult
from noctuary_assets.graph import (
    connect_memories,
    names_kind,
)
from noctuary_assets.index import MEMORY_VECTORS
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import VECTORS, Night

DIM = 16
ENCODER = EncoderFingerprint("m", "0" * 64, DIM, "mean", True, "", "", 64)
TEXTS = ("error handling: we retry.", "handling of errors: we log.", "night shift: Dana.")
NAMES = ["error handling", "handling of errors", "night shift"]


class Encoder:
    """Texts of the same words but for the small ones and the plural have one vector."""

    def __init__(self, *, is_broken: bool = False) -> None:
        self.seen: list[str] = []
        self._is_broken = is_broken

    def iter_document_batches(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Yield every text as a batch."""
        for place, text in enumerate(texts):
            if self._is_broken:
                raise EncoderError("the model's files are gone")
            self.seen.append(text)
            row = np.zeros((1, DIM), np.float32)
            row[0, 0 if "handling" in text else 1 + len(text) % (DIM - 1)] = 1.0
            yield [place], row


class Told:
    """A progress that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, int]] = []

    def update(self, task: str, done: int, total: int) -> None:
        """Keep the report."""
        self.told.append((task, done, total))


class Store:
    """A store and nights on it."""

    def __init__(self, root: Path) -> None:
        self._file = root / "memories.jsonl"
        self.paths = StorePaths(root / "store")
        self.progress = Told()

    def night(self, encoder: Encoder, texts: Sequence[str] = TEXTS) -> tuple[Night, StageResult]:
        """Export, pretend to have embedded the memories, and connect."""
        rows = [{"id": n, "content": text} for n, text in enumerate(texts)]
        self._file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        night = Night(self.paths, self._file, progress=self.progress)
        night.encoder.sentence = cast(SentenceEncoder, encoder)
        night.encoder.fingerprint = ENCODER
        export_memories(night)

        def body() -> StageOutput:
            write_array(night.work(VECTORS), np.eye(len(texts), DIM, dtype=np.float32))
            return StageOutput(len(texts), {"face": LIBRARY})

        night.run(MEMORY_VECTORS, {"texts": list(texts)}, body)
        return night, connect_memories(night)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_near_names_are_one_concept(store: Store) -> None:
    _, result = store.night(Encoder())
    assert result.facts["merges_by_reason"] == {"embedding": 1}
    assert ("concept_vectors", 3, 3) in store.progress.told


def test_a_later_night_embeds_only_new_names(store: Store) -> None:
    store.night(Encoder())
    encoder = Encoder()
    night, result = store.night(encoder, (*TEXTS, "day shift: Kim."))
    assert (encoder.seen, result.notes["names_embedded"]) == (["day shift"], 1)
    assert sorted(map(bytes, night.content(names_kind(night)).keys())) == sorted(
        map(text_key, [*NAMES, "day shift"])
    )


def test_without_the_encoder_there_is_a_graph_and_the_next_night_tries_again(store: Store) -> None:
    _, without = store.night(Encoder(is_broken=True))
    assert without.facts["merges_by_reason"] == {}
    assert "files are gone" in without.facts["names_not_embedded"]
    _, later = store.night(Encoder())
    assert later.facts["merges_by_reason"] == {"embedding": 1}
    assert "names_not_embedded" not in later.facts
    assert store.night(Encoder())[1].reused


def test_names_of_many_memories_and_of_authors_are_chosen_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [
        NameStats("rare", "name", ("rare",), 1),
        NameStats("shared", "name", ("shared",), 2),
        NameStats("tagged", "tag", ("tagged",), 1),
        NameStats("s1", "session", ("s1",), 9),
        NameStats("common", "run", ("common",), 5),
    ]
    assert choose_names(names) == ["common", "shared", "tagged"]
    monkeypatch.setattr(build, "NAMES_MAX", 2)
    assert choose_names(names) == ["common", "shared"]
