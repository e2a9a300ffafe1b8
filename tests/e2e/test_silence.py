"""A store says nothing to prompts that are none of its business, with labels and without."""

from __future__ import annotations

import pytest

from noctuary.context.render import worth_injecting
from noctuary.evaluate.decide import words_only
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import SIGNALS, WORDS, WORDS_AND_VECTORS
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import ROOT
from tests.e2e.stores import Bench, labelled_queries

HELD_OUT = ROOT / "bench" / "prompts.txt"
"""Prompts that calibrated nothing."""

MOST = {WORDS_AND_VECTORS: 0.03, WORDS: 0.05}
"""Share of them that may get anything on the sample, as docs/abstention.md promises."""


def profile_of(recaller: Recaller, signal: str) -> RetrievalProfile:
    profile = RetrievalProfile(**recaller.reader.adopted)
    return words_only(profile) if signal == WORDS else profile


def injected(recaller: Recaller, text: str, signal: str) -> list[str]:
    found = recaller.recall(text, 3, profile=profile_of(recaller, signal))
    assert found.answerability is not None
    assert found.answerability.signal == signal
    return [str(memory["id"]) for memory in worth_injecting(found.to_json())]


@pytest.mark.parametrize("signal", SIGNALS)
def test_without_a_label_everyday_prompts_get_nothing_and_its_own_questions_answers(
    small_night: FirstNight, signal: str
) -> None:
    recaller = Recaller.open(small_night.bench.store)
    assert injected(recaller, "write a haiku about penguins", signal) == []
    prompts = HELD_OUT.read_text(encoding="utf-8").splitlines()
    let_through = [prompt for prompt in prompts if injected(recaller, prompt, signal)]
    assert len(let_through) <= MOST[signal] * len(prompts), let_through
    known = set(recaller.reader.memory_ids(range(recaller.reader.count)).values())
    own = [q for q in labelled_queries() if q["relevant_ids"]
           and known.issuperset(map(str, q["relevant_ids"]))]  # fmt: skip
    assert own
    exact = [q for q in own if q["stratum"] == "exact"] or own
    answered = [q for q in exact if injected(recaller, q["text"], signal)]
    assert len(answered) >= 0.5 * len(exact)


@pytest.mark.parametrize("signal", SIGNALS)
def test_with_labels_a_prompt_about_nothing_gets_nothing(
    full_night: FirstNight, signal: str
) -> None:
    recaller = Recaller.open(full_night.bench.store)
    assert injected(recaller, "write a haiku about penguins", signal) == []
    assert injected(recaller, "boiler error F22", signal) != []


def test_each_memory_clears_a_bar_of_its_own(full_night: FirstNight) -> None:
    bench: Bench = full_night.bench
    dropped = 0
    for query in labelled_queries():
        result = bench.ask(query["text"], k=3)
        judged = result.answerability
        assert judged is not None
        kept = {str(m["id"]) for m in worth_injecting(result.to_json())}
        for memory in result.memories:
            assert memory.support is not None
            clears = not judged.abstain and memory.support >= judged.bar
            assert (str(memory.id) in kept) == clears
            dropped += not judged.abstain and not clears
    assert dropped > 0, "some come along with the best one and are no answer"


def test_the_prompts_that_calibrate_are_not_those_that_judge() -> None:
    calibrate = ROOT / "lib" / "noctuary" / "evaluate" / "everyday.txt"
    texts = [set(p.read_text(encoding="utf-8").splitlines()) for p in (calibrate, HELD_OUT)]
    assert not texts[0] & texts[1]
    assert (len(texts[0]), len(texts[1])) == (401, 200)
