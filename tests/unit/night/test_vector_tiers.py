"""The tables of the tiers are compared on every night; their exit thresholds are derived once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.files import write_array
from noctuary.core.settings import Settings, TierSettings
from noctuary.core.store import StorePaths, path_of
from noctuary.embed.fingerprint import EncoderFingerprint
from noctuary.work.stage import StageOutput, StageResult
from noctuary_assets import index as vectors
from noctuary_assets.index import MEMORY_VECTORS, sync_vector_tiers
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import VECTORS, Night
from tests.support.vectors import topical_vectors

ROWS, DIM = 130, 32
DIMS = (8, 16)
ENCODER = EncoderFingerprint("m", "0" * 64, DIM, "mean", True, "", "", 64)


class Derived:
    """Counts how often thresholds are derived."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        self._derive = vectors.derive_thresholds
        monkeypatch.setattr(vectors, "derive_thresholds", self)

    def __call__(self, *given: Any) -> Any:
        self.times += 1
        return self._derive(*given)


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> Derived:
    return Derived(monkeypatch)


@pytest.fixture
def night(tmp_path: Path) -> Night:
    source = tmp_path / "memories.jsonl"
    lines = (json.dumps({"id": n, "content": f"note {n}"}) + "\n" for n in range(ROWS))
    source.write_text("".join(lines))
    night = a_night(tmp_path, source)
    export_memories(night)
    embed(night)
    return night


def a_night(tmp_path: Path, source: Path, dims: tuple[int, int] = DIMS) -> Night:
    settings = Settings(tiers=TierSettings(*dims))
    night = Night(StorePaths(tmp_path / "store"), source, settings)
    night.encoder.fingerprint = ENCODER
    return night


def embed(night: Night, seed: int = 0) -> StageResult:
    def body() -> StageOutput:
        write_array(night.work(VECTORS), topical_vectors(ROWS, DIM, seed))
        return StageOutput(ROWS, {})

    return night.run(MEMORY_VECTORS, {"seed": seed}, body)


def test_the_next_night_compares_the_tables_and_derives_nothing(
    night: Night, derived: Derived
) -> None:
    first = sync_vector_tiers(night)
    assert set(first.facts["exits"]) == {"8", "16"}
    assert {found["queries"] for found in first.facts["exits"].values()} == {ROWS}
    assert derived.times == 1
    (night.paths.lance / "memory_vectors_8.lance").rename(night.paths.root / "lost")
    second = sync_vector_tiers(night)
    assert derived.times == 1
    assert second.notes["rows_written"] == ROWS, "what was lost is written all the same"
    assert (second.facts, second.reused) == (first.facts, True)


def test_other_vectors_dimensions_or_rules_derive_again(
    night: Night, derived: Derived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sync_vector_tiers(night).facts["exits"]
    embed(night, seed=1)
    second = sync_vector_tiers(night).facts["exits"]
    assert (derived.times, first != second) == (2, True)
    third = sync_vector_tiers(a_night(tmp_path, path_of(night.source), (8, 24))).facts["exits"]
    assert (derived.times, set(third)) == (3, {"8", "24"})
    monkeypatch.setattr(vectors, "RULES", {**vectors.RULES, "target_recall": 0.8})
    sync_vector_tiers(a_night(tmp_path, path_of(night.source), (8, 24)))
    assert derived.times == 4
