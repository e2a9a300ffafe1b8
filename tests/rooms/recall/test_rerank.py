"""The cross-encoder: its order, its time limit, its faults."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from noctuary.recall.phases import rerank
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.query import Positions
from noctuary.recall.rerank import Reranker, open_reranker
from noctuary.recall.result import RecallWarning
from tests.support.cross_encoder import (
    MOST_MARKERS,
    any_query,
    marked_text,
    require_models,
    write_cross_encoder,
)
from tests.support.lookups import MemoryLookups, Stored, candidates_of, context_of, reason_of

PROFILE = RetrievalProfile()


# Few values, so that ties are common; beyond [0, 1], as logits are.
LOGITS = st.sampled_from([-7.5, -1.0, 0.0, 0.25, 0.5, 11.0])
FUSED = st.sampled_from([0.0, 0.1, 0.4, 0.4, 0.9, 1.0])


@dataclass
class Logits(MemoryLookups):
    """A cross-encoder's scores by position."""

    logits: Mapping[int, float] = field(default_factory=dict[int, float])

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        return np.array([self.logits[int(p)] for p in positions], dtype=np.float64)


@given(st.lists(st.tuples(FUSED, LOGITS), max_size=12), st.integers(1, 14))
def test_it_permutes_the_head_as_a_sort_would(pairs: list[tuple[float, float]], depth: int) -> None:
    before = candidates_of(*((p, fused) for p, (fused, _) in enumerate(pairs)))
    logits = {p: logit for p, (_, logit) in enumerate(pairs)}
    context = context_of(Logits([], logits=logits), PROFILE.replaced(rerank_depth=depth))
    after = rerank(before, context).candidates
    was = before.positions.tolist()
    expected = sorted(was[:depth], key=lambda p: (-logits[p], was.index(p))) + was[depth:]
    assert after.positions.tolist() == expected
    assert after.scores.tolist() == before.scores.tolist()


def test_a_head_of_one_asks_nobody() -> None:
    class Nobody(MemoryLookups):
        def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
            raise AssertionError(positions)

    context = context_of(Nobody([]), PROFILE.replaced(rerank_depth=1))
    for before in (candidates_of(), candidates_of((3, 0.5)), candidates_of((3, 0.5), (4, 0.4))):
        assert rerank(before, context).candidates is before


@pytest.mark.parametrize(("logit", "text"), [(0.934, "0.93"), (-7.5, "-7.50")])
def test_the_reason_names_places_from_one_and_the_score(logit: float, text: str) -> None:
    before = candidates_of(*((p, 1 - p / 10) for p in range(8)))
    logits = {p: -100.0 - p for p in range(8)} | {0: 50.0, 6: logit}
    outcome = rerank(before, context_of(Logits([], logits=logits)))
    assert reason_of(outcome, 6) == f"cross-encoder moved it from place 7 to 2 (score {text})"
    assert outcome.notes == {"read": 8, "moved": 6}


AMPLE_MS = 60_000.0
NO_TIME_MS = 1e-3
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder trained here; every other test relies on what the first one proves."""
    return write_cross_encoder(tmp_path_factory.mktemp("cross-encoder"))


@dataclass
class ReadLookups(MemoryLookups):
    """The small store with a real reranker."""

    model: str = ""
    text: str = "river stone"
    timeout_ms: float = AMPLE_MS
    times: int = 1

    def rerank_scores(self, positions: Positions) -> NDArray[np.float64] | RecallWarning:
        texts = [self.memories[int(p)].content for p in positions] * self.times
        return open_reranker(self.model).score(self.text, texts, self.timeout_ms)


def scored(model: Path, query: str, texts: list[str]) -> NDArray[np.float64]:
    answer = open_reranker(str(model)).score(query, texts, AMPLE_MS)
    assert not isinstance(answer, RecallWarning), answer
    return answer


def warned(answer: NDArray[np.float64] | RecallWarning) -> RecallWarning:
    assert isinstance(answer, RecallWarning), answer
    return answer


def store(*markers: int) -> list[Stored]:
    rng = random.Random(4)
    return [Stored(marked_text(rng, count)) for count in markers]


def test_the_trained_model_knows_texts_it_has_never_seen(model: Path) -> None:
    """Whoever says the marker more often scores higher, for all of 300 held-out pairs."""
    rng = random.Random(1234)
    counts = [rng.randint(0, MOST_MARKERS) for _ in range(300)]
    query = any_query(rng)
    scores = scored(model, query, [marked_text(rng, count) for count in counts])
    for fewer in range(MOST_MARKERS):
        highest = max(s for s, c in zip(scores, counts, strict=True) if c == fewer)
        lowest = min(s for s, c in zip(scores, counts, strict=True) if c == fewer + 1)
        assert highest < lowest


def test_the_head_takes_the_known_order_and_the_tail_stays(model: Path) -> None:
    lookups = ReadLookups(store(0, 2, 1, 3, 3), model=str(model))
    before = candidates_of((0, 0.9), (1, 0.7), (2, 0.6), (3, 0.5), (4, 0.4))
    before = before._replace(expanded=before.positions == 0)
    outcome = rerank(before, context_of(lookups, PROFILE.replaced(rerank_depth=4)))
    assert outcome.candidates.positions.tolist() == [3, 1, 2, 0, 4]
    assert outcome.candidates.scores.tolist() == [0.9, 0.7, 0.6, 0.5, 0.4]
    assert outcome.candidates.expanded.tolist() == [False, False, False, True, False]
    assert outcome.warnings == ()
    assert reason_of(outcome, 3).startswith("cross-encoder moved it from place 4 to 1 (score 0.9")
    assert reason_of(outcome, 0).startswith("cross-encoder moved it from place 1 to 4 (score 0.0")


def test_out_of_time_the_fused_order_stands_with_a_warning(model: Path) -> None:
    lookups = ReadLookups(store(0, 3), model=str(model))
    before = candidates_of((0, 0.9), (1, 0.7))
    moved = rerank(before, context_of(lookups)).candidates
    assert moved.positions.tolist() == [1, 0], "loaded, and with time it changes the order"
    # Two pairs may be scored before anybody looks at the clock; hours of work may not.
    lookups.timeout_ms, lookups.times = NO_TIME_MS, 100_000
    outcome = rerank(before, context_of(lookups))
    assert outcome.candidates is before
    assert [w.code for w in outcome.warnings] == ["reranker_timeout"]
    assert "rerank_timeout_ms" in outcome.warnings[0].message


def test_a_model_that_is_still_loading_is_ready_for_a_later_call(model: Path) -> None:
    reranker = Reranker(str(model))
    assert warned(reranker.score("river", ["stone"], NO_TIME_MS)).code == "reranker_loading"
    answer = reranker.score("river", ["stone"], AMPLE_MS)
    while isinstance(answer, RecallWarning):
        assert answer.code == "reranker_loading"
        time.sleep(0.01)
        answer = reranker.score("river", ["stone"], AMPLE_MS)
    assert answer.tolist() == scored(model, "river", ["stone"]).tolist()


def test_a_question_that_was_given_up_stops_and_makes_room(model: Path) -> None:
    reranker = Reranker(str(model))
    assert isinstance(reranker.score("river", ["stone"], AMPLE_MS), np.ndarray)
    # Hours of work, if the first question did not notice that nobody waits.
    endless = ["stone"] * 2_000_000
    assert warned(reranker.score("river", endless, NO_TIME_MS)).code == "reranker_timeout"
    while isinstance(answer := reranker.score("river", ["stone"], AMPLE_MS), RecallWarning):
        assert answer.code == "reranker_timeout"
        time.sleep(0.01)
    assert answer.shape == (1,)


def test_callers_at_the_same_time_wait_for_their_turn(model: Path) -> None:
    reranker = Reranker(str(model))
    rng = random.Random(8)
    texts = [[marked_text(rng, rng.randint(0, MOST_MARKERS)) for _ in range(9)] for _ in range(12)]
    with ThreadPoolExecutor(6) as pool:
        asked_at_once = [pool.submit(reranker.score, "river", t, AMPLE_MS) for t in texts]
    for answer, asked in zip((a.result() for a in asked_at_once), texts, strict=True):
        assert isinstance(answer, np.ndarray), answer
        assert answer.tolist() == scored(model, "river", asked).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("first_ms", [AMPLE_MS, NO_TIME_MS])
def test_a_process_may_end_while_a_question_runs(model: Path, first_ms: float) -> None:
    """Given up while it computes, and given up while the model is being loaded."""
    code = f"""
from noctuary.recall.phases import open_reranker
reranker = open_reranker({str(model)!r})
reranker.score("river", ["stone"], {first_ms})
print(reranker.score("river", ["stone"] * 1_000_000, 20.0).code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() in (["reranker_timeout"], ["reranker_loading"])


def test_odd_texts_are_scored_by_one_model_per_process_and_name(model: Path) -> None:
    odd = ["", "\x00", "a\ud800b", "🙂" * 50, "river " * 5000]
    assert scored(model, "\ud800", odd).shape == (5,)
    assert scored(model, "river", []).shape == (0,)
    assert open_reranker(str(model)) is open_reranker(str(model))
    assert open_reranker(str(model)) is not open_reranker("another")


def test_with_a_damaged_model_the_fused_order_stands(model: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(model, tmp_path / "damaged")
    (damaged / WEIGHTS).write_bytes((model / WEIGHTS).read_bytes()[:100])
    lookups = ReadLookups(store(0, 3), model=str(damaged))
    before = candidates_of((0, 0.9), (1, 0.7))
    for _ in range(2):
        outcome = rerank(before, context_of(lookups))
        assert outcome.candidates is before
        assert [w.code for w in outcome.warnings] == ["reranker_unavailable"]
        assert outcome.notes == {"fallback": "reranker_unavailable"}


def test_a_model_that_is_not_there_is_a_warning_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "sentence_transformers", None)
        found = warned(Reranker("any").score("river", ["stone"], AMPLE_MS))
    assert found.code == "reranker_unavailable"
    assert "noctuary[models]" in found.message
    require_models()
    found = warned(Reranker(str(tmp_path / "nothing")).score("river", ["stone"], AMPLE_MS))
    assert found.code == "reranker_unavailable"
    assert "Give the directory" in found.message


def test_what_gives_no_number_for_each_text_is_refused(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "nan")
    weights = load_file(tmp_path / "nan" / WEIGHTS)
    weights["classifier.bias"] = np.full(1, np.nan, dtype=np.float32)
    save_file(weights, tmp_path / "nan" / WEIGHTS, {"format": "pt"})
    write_cross_encoder(tmp_path / "classes", classes=3)
    for name, said in (("nan", "finite"), ("classes", "(2, 3)")):
        answer = Reranker(str(tmp_path / name)).score("river", ["stone", "lamp"], AMPLE_MS)
        assert warned(answer).code == "reranker_failed"
        assert said in warned(answer).message
