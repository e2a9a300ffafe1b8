from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from noctuary.compact.clusters import ClusterText
from noctuary.compact.summaries import (
    BatchResult,
    Lookup,
    SessionContext,
    Settled,
    Summary,
    SummarySettings,
    read_settled,
    recipe_digest,
    summarize_batch,
    write_settled,
)
from noctuary.compact.summarizers import EXTRACTIVE, Draft, Outcome, Refusal, Request, Summarizer
from noctuary.core.files import JsonValue
from tests.support.clusters import CONTENTS, Bag, cluster_text


@dataclass
class Scripted(Summarizer):
    """A summarizer that writes what it is told to, by cluster; it remembers what it was shown."""

    name = "scripted"
    densities = (0.5, 0.25)

    texts: Mapping[str, Sequence[str | Refusal]]
    uses_context: bool = False
    asked: list[Request] = field(default_factory=list[Request])

    @property
    def recipe(self) -> Mapping[str, JsonValue]:
        return {}

    def write(self, request: Request, density: float) -> Draft | Refusal:
        self.asked.append(request)
        written = self.texts[request.cluster_id][self.densities.index(density)]
        return Draft(written, 0.5) if isinstance(written, str) else written


FOUR = cluster_text("c", 0, 1, 2, 3)
LONG = "x" * 400


def run(batch: Sequence[ClusterText], encode: Bag | None = None, **options: Any) -> BatchResult:
    return summarize_batch(batch, encode or Bag(), **options)


def one(result: BatchResult) -> Summary:
    (summary,) = result.summaries
    return summary


def known_of(result: BatchResult) -> Lookup:
    """What another night knows of what is worth keeping: it has been on disk."""
    kept = {key: write_settled(settled) for key, settled in result.fresh.items()}

    def known(keys: Sequence[bytes]) -> Mapping[bytes, Settled]:
        return {key: read_settled(kept[key]) for key in keys if key in kept}

    return known


def test_an_accepted_summary_names_its_sources_their_time_and_their_owner() -> None:
    encode = Bag()
    summary = one(run([cluster_text("c", 0, 1, 2, 3, user="ann", wing="home")], encode))
    assert (summary.status, summary.method, summary.reason) == ("accepted", "extractive", "")
    assert summary.text == "Ann: lyon and the flat Bob: lyon flat move"
    assert encode.encoded == [summary.text]
    assert summary.source_ids == ("m0", "m1", "m2", "m3")
    assert summary.source_positions == (0, 1, 2, 3)
    assert (summary.first_us, summary.last_us) == (0, 3)
    assert (summary.user, summary.wing) == ("ann", "home")
    assert summary.summary_tokens < summary.source_tokens
    assert summary.report is not None
    assert summary.report.passed
    assert summary.facts is not None
    assert summary.facts.passed
    assert (summary.parent_ids, summary.fallback) == ((), "")


def test_a_refused_candidate_is_kept_with_its_report() -> None:
    result = run([FOUR], settings=SummarySettings(threshold=0.999))
    summary = one(result)
    assert summary.status == "declined"
    assert summary.text
    assert summary.report is not None
    assert not summary.report.passed
    assert summary.reason == summary.report.reasons[0]
    (attempt,) = result.attempts
    assert (attempt.outcome, attempt.place, attempt.text) == (Outcome.GATE, 0, summary.text)
    assert attempt.report == summary.report
    assert attempt.facts == summary.facts


def test_a_singleton_stands_for_itself_without_a_verdict() -> None:
    encode = Bag()
    summary = one(run([cluster_text("c", 4)], encode))
    assert (summary.status, summary.method, summary.text) == ("trivial", "trivial", CONTENTS[4])
    assert summary.report is None
    assert encode.encoded == []


def test_what_cannot_shrink_is_declined_without_encoding() -> None:
    encode = Bag()
    settings = SummarySettings(density=1.0, aggressive_density=1.0)
    result = run([cluster_text("c", 4, 5)], encode, settings=settings)
    summary = one(result)
    assert (summary.status, summary.method, summary.text) == ("declined", "none", "")
    assert "not fewer" in summary.reason
    assert [(a.method, a.outcome) for a in result.attempts] == [
        ("extractive", Outcome.NOT_SMALLER),
        ("extractive-aggressive", Outcome.NOT_SMALLER),
    ]
    assert encode.encoded == []


@pytest.mark.parametrize("writer", [EXTRACTIVE, Scripted({"c": ["Ann: cat"]})])
def test_a_summary_of_one_verbatim_turn_is_not_embedded_again(writer: Any) -> None:
    encode = Bag()
    summary = one(run([cluster_text("c", 4, 5)], encode, summarizer=writer))
    assert (summary.text, summary.status) == ("Ann: cat", "accepted")
    assert encode.encoded == []


def test_an_abstractive_draft_that_passes_is_taken_with_its_own_confidence() -> None:
    writer = Scripted({"c": ["Ann has the flat in Lyon; rent, move."]})
    summary = one(run([FOUR], summarizer=writer))
    assert (summary.status, summary.method) == ("accepted", "scripted")
    assert summary.report is not None
    preserved = (summary.report.align + summary.report.cover) / 2
    assert summary.report.confidence == pytest.approx(0.8 * preserved + 0.2 * 0.5)


@pytest.mark.parametrize(
    ("drafts", "outcomes", "fallback"),
    [
        ([LONG, "Lyon flat move."], [Outcome.NOT_SMALLER], ""),
        ([LONG, LONG], [Outcome.NOT_SMALLER, Outcome.NOT_SMALLER], "not_smaller"),
        (["cat cat cat", "Lyon flat move."], [Outcome.GATE], "gate"),
        (["Ann has 7 lyon flat move.", "Lyon flat."], [Outcome.FACTS], "facts"),
        ([Refusal(Outcome.UNUSABLE, "garbage"), "Lyon."], [Outcome.UNUSABLE], "unusable"),
        (["password: hunter2hunter2", "Lyon."], [Outcome.SECRET], "secret"),
    ],
    ids=["aggressive", "never smaller", "drift", "a new number", "garbage", "a secret"],
)
def test_drafts_that_fail_give_way_step_by_step(
    drafts: list[str | Refusal], outcomes: list[Outcome], fallback: str
) -> None:
    result = run([FOUR], summarizer=Scripted({"c": drafts}))
    summary = one(result)
    assert summary.status == "accepted"
    assert [attempt.outcome for attempt in result.attempts] == outcomes
    assert [attempt.place for attempt in result.attempts] == list(range(len(outcomes)))
    assert summary.fallback == fallback
    assert summary.method == ("extractive" if fallback else "scripted-aggressive")
    assert all(a.text == "" for a in result.attempts if a.outcome is Outcome.SECRET)


def test_turns_that_join_to_a_secret_are_declined_and_the_text_is_not_kept() -> None:
    contents = ["the password:", "hunter2hunter2", "cat cat cat cat", "cat cat cat"]
    item = FOUR._replace(contents=contents, vectors=np.eye(4, 6, dtype=np.float32))
    encode = Bag()
    result = run([item], encode, settings=SummarySettings(density=0.5, threshold=-1.0))
    summary = one(result)
    assert summary.status == "declined"
    assert "reads like" in summary.reason
    assert [summary.text, *(attempt.text for attempt in result.attempts)] == ["", ""]
    assert encode.encoded == []


def test_results_do_not_depend_on_how_clusters_are_cut_into_batches() -> None:
    batch = [cluster_text("a", 4), FOUR, cluster_text("d", 4, 5), cluster_text("e", 6)]
    whole = run(batch)
    assert [s.cluster_id for s in whole.summaries] == ["a", "c", "d", "e"]
    assert [one(run([item])) for item in batch] == whole.summaries
    assert whole.made == 4


def test_known_summaries_are_reused_with_todays_positions() -> None:
    first = run([FOUR], settings=SummarySettings(threshold=0.999))
    moved = FOUR._replace(cluster=replace(FOUR.cluster, member_positions=(3, 4, 5, 6)))
    encode = Bag()
    again = run([moved], encode, known=known_of(first))
    assert encode.encoded == []
    assert again.made == 0
    assert one(again) == replace(one(first), source_positions=(3, 4, 5, 6))
    assert again.attempts == first.attempts


@pytest.mark.parametrize(
    ("outcome", "made"), [(Outcome.UNAVAILABLE, 1), (Outcome.UNUSABLE, 0), (Outcome.NAMED_USER, 0)]
)
def test_only_a_want_of_answer_is_asked_about_again(outcome: Outcome, made: int) -> None:
    silent = Scripted({"c": [Refusal(outcome, "no answer")]})
    first = run([FOUR], summarizer=silent)
    assert one(first).fallback == outcome
    assert one(first).status == "accepted"
    answers = Scripted({"c": ["Lyon flat move."]})
    again = run([FOUR], summarizer=answers, known=known_of(first))
    assert again.made == len(answers.asked) == made
    assert one(again).method == ("scripted" if made else "extractive")


def session(*names: str, **fields: Any) -> list[ClusterText]:
    return [cluster_text(n, 0, 1, 2, 3, ordinal=i, **fields) for i, n in enumerate(names)]


WRITES = {name: ["Lyon flat move."] for name in "abcxy"}


def test_earlier_summaries_of_the_session_are_shown_and_become_parents() -> None:
    writer = Scripted(WRITES, uses_context=True)
    batch = [*session("a", "b", "c"), *session("x", user="bob"), *session("y", wing="work")]
    result = run(batch, summarizer=writer)
    shown = {request.cluster_id: request.context for request in writer.asked}
    text = "Lyon flat move."
    assert shown == {"a": (), "b": (text,), "c": (text, text), "x": (), "y": ()}
    a, b, c, x, y = result.summaries
    assert (a.parent_ids, b.parent_ids) == ((), (a.summary_id,))
    assert c.parent_ids == (a.summary_id, b.summary_id)
    assert x.parent_ids == y.parent_ids == ()


def test_a_session_is_carried_over_from_batch_to_batch() -> None:
    whole = run(session("a", "b", "c"), summarizer=Scripted(WRITES, uses_context=True))
    context = SessionContext()
    writer = Scripted(WRITES, uses_context=True)
    cut = [one(run([item], summarizer=writer, context=context)) for item in session("a", "b", "c")]
    assert cut == whole.summaries


def test_a_summary_is_made_again_when_what_came_before_it_changed() -> None:
    first = run(session("a", "b"), summarizer=Scripted(WRITES, uses_context=True))
    writer = Scripted(WRITES, uses_context=True)
    assert run(session("a", "b"), summarizer=writer, known=known_of(first)).made == 0
    second = first.keys[1]
    known = known_of(first._replace(fresh={second: first.fresh[second]}))
    changed = Scripted({**WRITES, "a": ["Lyon move."]}, uses_context=True)
    again = run(session("a", "b"), summarizer=changed, known=known)
    assert again.made == 2
    assert again.summaries[1].parent_ids == (again.summaries[0].summary_id,)


def test_a_fallback_is_reused_while_its_summarizer_would_be_shown_the_same() -> None:
    writes = {**WRITES, "b": ["cat cat cat"]}
    first = run(session("a", "b"), summarizer=Scripted(writes, uses_context=True))
    assert first.summaries[1].fallback == "gate"
    assert first.summaries[1].parent_ids == ()
    assert first.attempts[0].parent_ids == (first.summaries[0].summary_id,)
    writer = Scripted(writes, uses_context=True)
    assert run(session("a", "b"), summarizer=writer, known=known_of(first)).made == 0


def test_an_encoder_that_loses_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match="0 vectors for 1"):
        summarize_batch([FOUR], lambda texts: np.zeros((0, 6)))


def test_a_recipe_depends_on_encoder_settings_and_summarizer() -> None:
    digests = {
        recipe_digest("e1"),
        recipe_digest("e2"),
        recipe_digest("e1", SummarySettings(threshold=0.7)),
        recipe_digest("e1", SummarySettings(density=0.5)),
        recipe_digest("e1", summarizer=Scripted({})),
    }
    assert len(digests) == 5
    assert recipe_digest("e1") == recipe_digest("e1", SummarySettings())
