from __future__ import annotations

from dataclasses import replace

from noctuary.evaluate.metrics import Difference
from noctuary.evaluate.report import (
    BAD,
    EXACT_BIAS,
    GOOD,
    OPEN,
    GateOutcome,
    NightReport,
    QueryGroup,
    bias_note,
    difference_sentence,
    render_page,
    word_verdict,
)
from tests.unit.reports.builders import comparison, decision, difference

EMPTY = NightReport("store", "tonight")
WORSE = difference(-0.041, -0.07, -0.012, p=0.0031)


def against(found: Difference) -> NightReport:
    group = QueryGroup("labelled", against_serving=comparison("candidate", found, "serving"))
    return replace(EMPTY, groups=(group,))


def test_only_a_gate_passes_or_refuses_a_candidate() -> None:
    for found in (WORSE, difference(0.1, 0.05, 0.15, p=0.001), difference(-1.0, n=13)):
        verdict = word_verdict(against(found))
        assert (verdict.kind, verdict.word) == (OPEN, "Not judged")
        assert verdict.details == [f"labelled, recall@10: {difference_sentence(found)}"]
    assert not word_verdict(EMPTY).details


def test_the_gates_sentence_is_the_verdict() -> None:
    for passed, kind in ((True, GOOD), (False, BAD)):
        verdict = word_verdict(replace(EMPTY, gate=GateOutcome(passed, "said by the gate")))
        assert (verdict.kind, verdict.sentence) == (kind, "said by the gate")


def test_a_loss_is_told_with_its_numbers() -> None:
    assert difference_sentence(WORSE) == (
        "significantly worse than the current snapshot, by 0.041 "
        "(95% interval \u22120.070 to \u22120.012, n = 40, Holm p 0.0031)."
    )


def test_no_difference_is_told_with_what_could_not_be_seen() -> None:
    found = difference(0.003, -0.01, 0.016)
    sentence = difference_sentence(found)
    assert sentence.startswith(
        "no significant difference from the current snapshot (+0.003, 95% interval"
    )
    assert sentence.endswith("; a true difference below 0.062 is easily missed.")


def test_one_query_is_too_few() -> None:
    assert difference_sentence(difference(0.5, n=13)) == (
        "too few queries to say anything (+0.500, n = 13)."
    )


def test_the_decisions_reason_is_among_the_details() -> None:
    kept = word_verdict(replace(EMPTY, decision=decision(None, "the settings stay")))
    assert kept.details == ["Ranking: the settings stay"]
    taken = word_verdict(replace(EMPTY, decision=decision("rrf", "it is better")))
    assert taken.details == ["Ranking: rrf is adopted: it is better"]


def test_the_bias_of_exact_queries_is_stated() -> None:
    assert "built from the corpus's own words: it favours lexical search" in EXACT_BIAS.lower()
    assert bias_note("exact") == bias_note("labelled", "exact") == EXACT_BIAS
    assert bias_note("labelled", "all") == ""


def test_explanations_carry_the_settings_that_were_used() -> None:
    page = render_page(EMPTY)
    assert "95% bootstrap interval" in page
    assert "10\u202f000 draws" in page
    assert "below 0.05." in page
    assert "80% of the time" in page
