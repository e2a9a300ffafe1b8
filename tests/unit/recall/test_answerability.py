"""Thresholds as a snapshot carries them, and what a recall says by them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.errors import SnapshotCorruptError
from noctuary.core.files import remove_tree
from noctuary.core.manifest import pack_digest, read_manifest
from noctuary.core.store import ABSTENTION_FILE, DIGEST_NAME_CHARS
from noctuary.core.types import DAMAGED_TEXT
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Scope
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import (
    SIGNALS,
    WORDS,
    WORDS_AND_VECTORS,
    Answerability,
    Calibration,
    RecallResult,
)
from noctuary.snapshot.publish import publish_candidate, seal_candidate
from tests.support.calibration import MEASURE, MEASURES
from tests.support.store import Store, household


def both(**entry: Any) -> dict[str, Any]:
    return {"signals": {signal: {**entry, "measure": MEASURE.to_json()} for signal in SIGNALS}}


HIGH = both(threshold=0.999)
LOW = both(threshold=0.0)
OF_BEFORE: dict[str, Any] = {"signals": {signal: {"threshold": 0.999} for signal in SIGNALS}}


def sealed(store: Store, abstention: dict[str, Any]) -> Recaller:
    pack = read_manifest(store.candidate(household())).digest
    candidate = seal_candidate(store.paths, pack, None, abstention)
    publish_candidate(store.paths, store.judge(candidate), 7)
    return Recaller.open(store.root)


def test_a_snapshot_carries_its_thresholds_and_they_change_the_digest(empty_store: Store) -> None:
    pack = read_manifest(empty_store.candidate(household()))
    directory = seal_candidate(empty_store.paths, pack.digest, None, HIGH)
    manifest = read_manifest(directory)
    assert manifest.digest != pack.digest
    assert pack_digest(manifest) == pack.digest
    found = SnapshotReader.open(directory).calibration
    assert found == Calibration({WORDS: 0.999, WORDS_AND_VECTORS: 0.999}, MEASURES)
    again = seal_candidate(empty_store.paths, pack.digest, None, HIGH)
    assert read_manifest(again).digest == manifest.digest
    remove_tree(empty_store.paths.candidates / pack.digest[:DIGEST_NAME_CHARS])
    bare = seal_candidate(empty_store.paths, pack.digest, None)
    assert ABSTENTION_FILE not in read_manifest(bare).files
    assert SnapshotReader.open(bare).calibration is None


def test_without_a_calibration_nothing_is_said(plain_store: Store) -> None:
    result = Recaller.open(plain_store.root).recall("spare key")
    assert result.answerability is None
    assert "answerability" not in result.to_json()
    assert "answerability" not in result.phase_timing_ms


@pytest.mark.parametrize("dense", [True, False])
def test_a_recall_says_how_sure_it_is_and_changes_nothing_else(
    dense_store: Store, dense: bool
) -> None:
    profile = RetrievalProfile() if dense else RetrievalProfile(dense_weight=0.0)
    plain = Recaller.open(dense_store.root)
    before = plain.recall("spare key", profile=profile)
    plain.calibration = Calibration.parse(json.dumps(HIGH))
    after = plain.recall("spare key", profile=profile)
    own = [m.support for m in after.memories]
    assert tuple(m._replace(support=None) for m in after.memories) == before.memories
    assert before.answerability is None
    found = after.answerability
    assert found is not None
    assert found.signal == (WORDS_AND_VECTORS if dense else WORDS)
    assert 0.0 < found.score < found.threshold == 0.999
    assert found.abstain
    assert after.to_json()["answerability"] == {
        "score": found.score,
        "threshold": 0.999,
        "abstain": True,
        "signal": found.signal,
        "bar": found.bar,
    }
    assert [m["support"] for m in after.to_json()["memories"]] == own
    assert max(score for score in own if score is not None) == found.score


def test_the_published_thresholds_are_the_ones_in_force(empty_store: Store) -> None:
    found = sealed(empty_store, LOW).recall("spare key").answerability
    assert found is not None
    assert not found.abstain


def test_a_threshold_of_before_whose_scores_had_another_scale_is_none(empty_store: Store) -> None:
    recaller = sealed(empty_store, OF_BEFORE)
    assert recaller.calibration is None
    assert recaller.recall("spare key").answerability is None


def test_each_memory_has_its_own_score_where_a_damaged_one_drops_out(
    empty_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    recaller = sealed(empty_store, LOW)
    query = "spare key and the boiler"
    whole = recaller.recall(query, 5).memories
    describe = SnapshotReader.describe

    def damaged(reader: SnapshotReader, positions: Iterable[int]) -> Any:
        rows = describe(reader, positions)
        for row in rows.values():
            if row["memory_id"] == str(whole[0].id):
                row["content"] = DAMAGED_TEXT
        return rows

    monkeypatch.setattr(SnapshotReader, "describe", damaged)
    found = recaller.recall(query, 4)
    assert "snapshot_damaged" in [w.code for w in found.warnings]
    assert [(m.id, m.support) for m in found.memories] == [(m.id, m.support) for m in whole[1:]]
    assert len({m.support for m in whole}) > 1


@pytest.mark.parametrize(
    ("query", "k", "scope"),
    [("  ", 10, Scope()), ("key", 0, Scope()), ("key", 10, Scope(wing="nowhere"))],
)
def test_where_nothing_is_searched_nothing_is_said(
    plain_store: Store, query: str, k: int, scope: Scope
) -> None:
    recaller = Recaller.open(plain_store.root)
    recaller.calibration = Calibration.observing(MEASURES)
    assert recaller.recall(query, k, scope=scope).answerability is None


def test_a_query_that_finds_nothing_scores_zero_and_is_below_any_threshold(
    plain_store: Store,
) -> None:
    recaller = Recaller.open(plain_store.root)
    recaller.calibration = Calibration({WORDS: 0.00001}, MEASURES)
    found = recaller.recall("zymurgy quux").answerability
    assert found == Answerability(0.0, 0.00001, abstain=True, signal=WORDS)


def test_a_signal_that_was_not_calibrated_is_not_judged(dense_store: Store) -> None:
    recaller = Recaller.open(dense_store.root)
    recaller.calibration = Calibration({WORDS: 0.4}, {WORDS: MEASURE})
    assert recaller.recall("spare key").answerability is None
    assert recaller.recall("spare key").memories[0].support is None
    assert not recaller.calibration.judge(0.4, WORDS).abstain, "at the threshold is not below it"


def test_observing_shows_every_score_and_abstains_from_nothing() -> None:
    for signal in SIGNALS:
        assert not Calibration.observing(MEASURES).judge(0.0, signal).abstain


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"signals": 3}', '{"signals": {"words": {}}}', '{"signals": {"words": 1}}',
        '{"signals": {"words": {"threshold": "x"}}}', '{"signals": {"words": {"threshold": NaN}}}',
        '{"signals": {"words": {"threshold": 0.5, "bar": 2}}}',
        '{"signals": {"words": {"threshold": 0.5, "measure": {"usual": {}, "direction": ["x"]}}}}',
        '{"signals": {"words": {"threshold": 0.5, "measure": {"usual": {"any": {}}}}}}',
        '{"signals": {"words": {"threshold": 0.5, "measure": {"usual": {}, "direction": []}}}}',
        '{"signals": {"words": {"threshold": 1.5}}}', '{"signals": {"words": {"threshold": -1}}}',
    ],
)  # fmt: skip
def test_what_is_no_calibration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Calibration.parse(text)


def test_a_damaged_file_is_a_damaged_snapshot(empty_store: Store, tmp_path: Path) -> None:
    pack = read_manifest(empty_store.candidate(household())).digest
    broken = {"signals": {"words": {"threshold": 7}}}
    directory = seal_candidate(empty_store.paths, pack, None, broken)
    with pytest.raises(SnapshotCorruptError, match="doctor"):
        SnapshotReader.open(directory)


def test_a_result_without_a_judgement_says_nothing_about_it() -> None:
    assert "answerability" not in RecallResult(query="x").to_json()
