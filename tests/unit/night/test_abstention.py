"""The stage: the owner's labelled queries become thresholds, and the snapshot carries them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noctuary.core.errors import EncoderError
from noctuary.core.manifest import read_manifest
from noctuary.core.settings import EvaluationSettings, Settings
from noctuary.core.store import StorePaths
from noctuary.embed.documents import put_vectors
from noctuary.evaluate.abstain import (
    LENIENT,
    LET_THROUGH,
    MAX_RECALL_LOSS,
    MIN_ANSWERABLE,
    OWN_METRIC,
    everyday_keys,
    everyday_kind,
    find_asker,
    scope_mask,
)
from noctuary.evaluate.metrics import HEADLINE_METRIC
from noctuary.evaluate.queries import read_everyday
from noctuary.recall.engine import Recaller
from noctuary.recall.inputs import Inputs
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.reader import SnapshotReader
from noctuary.recall.result import WORDS, WORDS_AND_VECTORS
from noctuary.sources.corpus import read_records
from noctuary.work.stage import StageOutput, StageResult
from noctuary_assets.evaluate import (
    ABSTENTION_CALIBRATION,
    calibrate_abstention,
    decide_fusion,
    evaluate_pack,
    read_calibration,
)
from noctuary_assets.ingest import export_memories
from noctuary_assets.night import MEMORIES, Night
from noctuary_assets.pack import SERVING_PACK
from noctuary_assets.publish import seal_snapshot_candidate
from tests.support.lean import write_encoder
from tests.support.store import Store, memory, renumber

THINGS = ("kettle", "ladder", "violin", "harbour", "lantern", "orchard", "saddle", "tunnel")
ACTS = ("repaired", "painted", "sold", "borrowed")
COUNT = len(THINGS) * len(ACTS)
NOTHING = ("Which zeppelin was chartered?", "Where is the observatory?", "Who won the regatta?")


def texts(number: int) -> tuple[str, str]:
    """Return a memory and a question that it answers."""
    thing, act = THINGS[number % len(THINGS)], ACTS[number // len(THINGS)]
    return f"last week the {thing} was {act} by the neighbours", f"Was the {thing} {act}?"


def write_source(folder: Path, questions: Iterable[dict[str, Any]], count: int = COUNT) -> Path:
    folder.mkdir(parents=True)
    rows = [
        {"id": n + 1, "content": texts(n)[0], "created_at": "2026-01-05T10:00:00Z"}
        for n in range(count)
    ]
    for name, lines in (("corpus.jsonl", rows), ("queries.jsonl", list(questions))):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def questions(answerable: int = COUNT, unanswerable: int = len(NOTHING)) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"query_id": f"q{n}", "text": texts(n)[1], "relevant_ids": [n + 1]}
        for n in range(answerable)
    ]
    return found + [
        {"query_id": f"n{n}", "text": NOTHING[n], "relevant_ids": []} for n in range(unanswerable)
    ]


class Made:
    """A store whose pack is there, and the stages up to the sealed candidate run on it."""

    def __init__(
        self, tmp_path: Path, asked: list[dict[str, Any]], *, dense: bool, count: int = COUNT
    ) -> None:
        root = tmp_path / "house"
        encoder = write_encoder(root / "encoders") if dense else None
        store = Store(StorePaths(root), encoder)
        settings = Settings(evaluation=EvaluationSettings(exact_queries=4))
        source = write_source(tmp_path / "source", asked, count)
        self.night = Night(store.paths, source, settings)
        export_memories(self.night)
        pack = store.candidate(read_records(self.night.work(MEMORIES)))
        digest = read_manifest(pack).digest
        self.night.run(SERVING_PACK, {}, lambda: StageOutput(count, {"digest": digest}))
        evaluate_pack(self.night)
        self.decision = decide_fusion(self.night)

    def sealed(self) -> SnapshotReader:
        sealed = read_calibration(self.night)["sealed"]
        result = seal_snapshot_candidate(self.night, self.decision, sealed)
        name = str(result.facts["digest"])[:16]
        return SnapshotReader.open(self.night.paths.candidates / name)


@pytest.mark.parametrize("dense", [False, True])
def test_the_night_chooses_a_threshold_that_keeps_the_recall(tmp_path: Path, dense: bool) -> None:
    made = Made(tmp_path, questions(), dense=dense)
    result = calibrate_abstention(made.night)
    signals = read_calibration(made.night)["sealed"]["signals"]
    assert set(signals) == {WORDS, *([WORDS_AND_VECTORS] if dense else [])}
    for name, found in signals.items():
        assert (found["n_answerable"], found["n_unanswerable"]) == (COUNT, len(NOTHING))
        assert found["auroc"] == 1.0
        assert found["recall_kept"] >= (1 - MAX_RECALL_LOSS) * found["recall"]
        assert result.facts[f"threshold {name}"] == found["threshold"] > 0.0
    assert signals[WORDS]["unanswerable_abstained"] == 1.0
    assert read_calibration(made.night)["sealed"]["signals"][WORDS]["auroc"] == 1.0
    calibration = made.sealed().calibration
    assert calibration is not None
    assert calibration.thresholds == {name: f["threshold"] for name, f in signals.items()}


def test_the_same_night_twice_does_nothing_and_gives_the_same_bytes(tmp_path: Path) -> None:
    made = Made(tmp_path, questions(), dense=False)
    first = calibrate_abstention(made.night)
    text = made.night.work(*ABSTENTION_CALIBRATION.outputs).read_bytes()
    second = calibrate_abstention(made.night)
    assert (first.reused, second.reused) == (False, True)
    assert first.digest == second.digest
    made.night.work(*ABSTENTION_CALIBRATION.outputs).unlink()
    third = calibrate_abstention(made.night)
    assert not third.reused
    assert made.night.work(*ABSTENTION_CALIBRATION.outputs).read_bytes() == text


@pytest.mark.parametrize("dense", [False, True])
def test_with_too_few_labels_prompts_and_own_questions_calibrate(
    tmp_path: Path, dense: bool
) -> None:
    made = Made(tmp_path, questions(MIN_ANSWERABLE - 1), dense=dense)
    result = calibrate_abstention(made.night)
    signals = read_calibration(made.night)["sealed"]["signals"]
    assert set(signals) == {WORDS, *([WORDS_AND_VECTORS] if dense else [])}
    for name, found in signals.items():
        assert 0.0 <= found["bar"] <= found["threshold"] <= 1.0
        assert found["prompts"] == len(read_everyday())
        most = LENIENT if name == WORDS_AND_VECTORS else LET_THROUGH
        assert found["prompts_let_through"] <= most * found["prompts"]
        # Its own questions repeat words: they have a say only beside vectors.
        assert found.get("metric") == (OWN_METRIC if name == WORDS_AND_VECTORS else None)
    assert "everyday prompts reach it" in result.facts["reason"]
    recaller = Recaller(made.night.paths, made.sealed(), "candidate")
    lexical = RetrievalProfile(dense_weight=0.0)
    answer = recaller.recall("Was the kettle repaired by the neighbours?", 3, profile=lexical)
    silence = recaller.recall("write a haiku about penguins", 3, profile=lexical)
    assert answer.answerability is not None
    assert silence.answerability is not None
    assert silence.answerability.abstain
    assert not answer.answerability.abstain


def test_a_labelled_query_that_another_signal_answers_calibrates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Made(tmp_path, questions(), dense=True)
    ask, broken = Inputs.query_vector, texts(3)[1]

    def query_vector(world: Inputs, text: str, within_ms: float = math.inf) -> Any:
        if text == broken:
            raise EncoderError("one text that the model cannot represent")
        return ask(world, text, within_ms)

    monkeypatch.setattr(Inputs, "query_vector", query_vector)
    calibrate_abstention(made.night)
    calibrated = read_calibration(made.night)
    signals = calibrated["sealed"]["signals"]
    assert signals[WORDS_AND_VECTORS]["metric"] == OWN_METRIC
    assert signals[WORDS]["metric"] == HEADLINE_METRIC
    said = {text.partition(":")[0]: text for text in calibrated["said"]}
    # Why the labels were not heeded, and the prompts once.
    assert "some labelled queries are answered by another signal" in said[WORDS_AND_VECTORS]
    assert [text.count("prompts") for text in said.values()] == [1, 1]


@pytest.mark.parametrize(
    ("owners", "asker"),
    [
        (("ana", "ana", "ben", "ben", "ben", "eva", "eva"), "ben"),
        ((None, None, None, "ana", "ben"), None),
        ((None, "ana", "ana"), "ana"),
        ((None,), None),
    ],
)
def test_prompts_are_asked_for_whoever_has_most_memories(
    empty_store: Store, owners: tuple[str | None, ...], asker: str | None
) -> None:
    empty_store.publish(renumber([memory(f"a tea {n}", user=u) for n, u in enumerate(owners)]))
    reader = Recaller.open(empty_store.root).reader
    assert find_asker(reader) == asker
    mask = scope_mask(reader, asker)
    assert mask is None or mask.any()


def test_the_prompts_are_encoded_once_per_encoder(tmp_path: Path) -> None:
    made = Made(tmp_path, questions(0), dense=True)
    night = made.night
    calibrate_abstention(night)
    text = night.work(*ABSTENTION_CALIBRATION.outputs).read_bytes()
    encoder = made.sealed().manifest.encoder_digest
    assert encoder is not None
    store = night.content(everyday_kind(encoder))
    assert store.rows == len(read_everyday())
    # What is remembered is used: a changed vector changes what is usual.
    dimension = store.take(store.find(everyday_keys()[:1])).type.list_size
    put_vectors(store, dict.fromkeys(everyday_keys(), np.zeros(dimension, np.float32)))
    night.work(*ABSTENTION_CALIBRATION.outputs).unlink()
    calibrate_abstention(night)
    assert night.work(*ABSTENTION_CALIBRATION.outputs).read_bytes() != text


def test_an_empty_hand_of_memories_still_says_what_is_usual(tmp_path: Path) -> None:
    made = Made(tmp_path, questions(0), dense=False, count=3)
    found = calibrate_abstention(made.night)
    assert read_calibration(made.night)["sealed"]["signals"][WORDS]["threshold"] > 0.0
    assert "there are 0 labelled queries, and 20 are needed" in found.facts["reason"]
    assert not any(
        "auroc" in told for told in read_calibration(made.night)["sealed"]["signals"].values()
    )


def test_without_unanswerable_queries_there_is_a_threshold_and_a_caveat(tmp_path: Path) -> None:
    made = Made(tmp_path, questions(unanswerable=0), dense=False)
    result = calibrate_abstention(made.night)
    assert read_calibration(made.night)["sealed"]["signals"][WORDS]["auroc"] is None
    assert "no unanswerable query" in result.facts["reason"]


def test_nothing_that_is_sealed_or_told_quotes_a_query(tmp_path: Path) -> None:
    made = Made(tmp_path, questions(), dense=False)
    result: StageResult = calibrate_abstention(made.night)
    written = json.dumps([read_calibration(made.night), result.facts])
    for word in (*THINGS, "zeppelin", "observatory", "regatta"):
        assert word not in written
