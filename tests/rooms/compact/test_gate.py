"""The fact check on faithful summaries, on hand-written mutants of them, and on verbatim turns."""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from noctuary.compact.claims import Support, read_claims
from noctuary.compact.gate import (
    TAU_PRESERVE,
    FactReport,
    alignment,
    check_facts,
    coverage,
    final_confidence,
    find_verbatim,
    is_made_of_sentences,
    judge,
    preservation,
)
from noctuary.compact.summarizers import Refusal, Request, SentenceSummarizer

GOLDEN = Path(__file__).parents[2] / "golden"


def golden_rows() -> list[dict[str, str]]:
    with (GOLDEN / "compaction_confidence.tsv").open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t"))


@pytest.mark.parametrize("row", golden_rows(), ids=lambda row: row["case"])
def test_confidence_reproduces_the_reference_evaluation(row: dict[str, str]) -> None:
    raw = float(row["raw"])
    final = final_confidence(preservation(float(row["align"]), float(row["cover"])), raw)
    assert final == pytest.approx(float(row["final"]), abs=1e-4)
    assert final - raw == pytest.approx(float(row["delta"]), abs=1.01e-4)


@pytest.mark.parametrize(
    ("threshold", "refused"),
    [
        (TAU_PRESERVE, set[str]()),
        (0.75, set[str]()),
        (0.85, {"compaction_boundary", "cross_domain_mix"}),
    ],
)
def test_threshold_sweep_over_the_reference_evaluation(threshold: float, refused: set[str]) -> None:
    rows = golden_rows()
    assert len(rows) == 16
    assert {r["case"] for r in rows if float(r["align"]) < threshold} == refused


def test_closed_form_of_two_orthogonal_sources() -> None:
    sources = np.eye(2)
    half = math.sqrt(0.5)
    report = judge(np.array([1.0, 0.0]), sources)
    assert report.align == pytest.approx(half)
    assert report.cover == pytest.approx(0.5)
    assert report.confidence == pytest.approx((half + 0.5) / 2)
    assert report.decay_rate == pytest.approx(1 - (half + 0.5) / 2)
    assert report.passed
    assert report.reasons == ()


def test_negative_cosines_do_not_lower_cover_but_do_lower_align() -> None:
    sources = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    summary = np.array([1.0, 0.0])
    assert coverage(summary, sources) == pytest.approx(1 / 3)
    assert alignment(summary, sources) == pytest.approx(0.0)
    assert alignment(-summary, sources[:1]) == pytest.approx(-1.0)
    # The centroid is of the vectors as given.
    long = np.array([[3.0, 0.0], [0.0, 1.0]])
    assert alignment(summary, long) == pytest.approx(3 / math.sqrt(10))
    with pytest.raises(ValueError, match="one model"):
        judge(np.ones(3), np.eye(4))
    # What the model says of itself counts one fifth.
    finals = [final_confidence(0.5), final_confidence(0.5, 1.0), final_confidence(0.5, math.nan)]
    assert finals == pytest.approx([0.5, 0.6, 0.4])


def test_the_threshold_itself_passes() -> None:
    sources = np.array([[1.0, 0.0]])
    exact = alignment(np.array([0.6, 0.8]), sources)
    assert judge(np.array([0.6, 0.8]), sources, threshold=exact).passed
    refused = judge(np.array([0.6, 0.8]), sources, threshold=float(np.nextafter(exact, 2.0)))
    assert not refused.passed
    assert "align" in refused.reasons[0]


@pytest.mark.parametrize(
    ("summary", "sources", "reason"),
    [
        (np.zeros(3), np.eye(3), "zero"),
        (np.ones(3), np.zeros((0, 3)), "no sources"),
        (np.ones(3), np.zeros((2, 3)), "align"),
        (np.array([np.nan, 1.0, 1.0]), np.eye(3), "not finite"),
        (np.ones(3), np.array([[np.inf, 0.0, 0.0]]), "not finite"),
    ],
)
def test_unusable_vectors_fail_with_a_reason_and_finite_numbers(
    summary: np.ndarray, sources: np.ndarray, reason: str
) -> None:
    report = judge(summary, sources)
    assert not report.passed
    assert any(reason in text for text in report.reasons)
    assert report.align == 0.0
    assert report.confidence == pytest.approx(report.cover / 2)
    assert all(map(math.isfinite, (report.align, report.cover, report.decay_rate)))


def cases(name: str) -> list[dict[str, Any]]:
    lines = (GOLDEN / name).read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


TUNED = cases("fact_mutants.jsonl")
HELD_OUT = cases("fact_mutants_heldout.jsonl")
"""Written after the rules and never used to change them."""

CAUGHT_TUNED = {
    "number": (16, 16), "name": (11, 14), "negation": (11, 14), "date": (16, 16),
    "identifier": (7, 7),
}  # fmt: skip
CAUGHT_HELD_OUT = {
    "number": (8, 10), "name": (8, 10), "negation": (6, 8), "date": (9, 10), "identifier": (6, 6),
}  # fmt: skip
"""Mutants caught, of how many, by class. Missed are: names in Chinese, Russian and German that open
a sentence or change places; two values of one turn that change places; denials that change the form
of a verb, or that another clause of the same speaker seems to hold."""


@pytest.mark.parametrize(
    ("summary", "sources"),
    [(text, case["sources"]) for case in TUNED + HELD_OUT for text in case["faithful"]],
)
def test_a_faithful_paraphrase_passes(summary: str, sources: list[str]) -> None:
    report = check_facts(summary, sources)
    assert report.reasons == ()
    assert 0 <= report.kept <= report.total


@pytest.mark.parametrize(
    ("mutated", "expected"), [(TUNED, CAUGHT_TUNED), (HELD_OUT, CAUGHT_HELD_OUT)]
)
def test_mutants_are_caught_class_by_class(
    mutated: list[dict[str, Any]], expected: dict[str, tuple[int, int]]
) -> None:
    caught: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    for case in mutated:
        for kind, mutants in case["mutants"].items():
            tried[kind] += len(mutants)
            caught[kind] += sum(not check_facts(m, case["sources"]).passed for m in mutants)
    assert {kind: (caught[kind], tried[kind]) for kind in tried if tried[kind]} == expected


CLUSTER = [
    "Caroline: I paid 1,000 dollars rent on May 12, 2024 and have three cats.",
    "Melanie: I don't like pizza. See PROJ-123.",
]


@pytest.mark.parametrize(
    ("summary", "introduced", "contradicted"),
    [
        ("Zelda paid rent.", ("name: Zelda",), 0),
        ("Caroline paid 1,100 dollars.", ("number: 1,100",), 1),
        ("Caroline has 12 cats.", (), 1),
        ("Melanie likes pizza.", (), 1),
        ("PROJ-132 is fixed.", ("identifier: PROJ-132",), 0),
        ("Caroline paid rent on May 12, 2023.", ("date: May 12, 2023",), 0),
        ("Caroline paid at 4 pm.", ("time: 4 pm",), 0),
    ],
)
def test_a_fault_is_named(summary: str, introduced: tuple[str, ...], contradicted: int) -> None:
    sources = [*CLUSTER, "Melanie: and twelve eggs"]
    report = check_facts(summary, sources)
    assert report.introduced == introduced
    assert len(report.contradicted) >= contradicted
    assert not report.passed


def test_whole_turns_keep_their_facts_and_a_dropped_fact_lowers_the_share_alone() -> None:
    report = check_facts(CLUSTER[0], CLUSTER)
    assert report.passed
    assert 0 < report.share < 1
    assert check_facts(" ".join(CLUSTER), CLUSTER).share == 1.0
    whole = check_facts("Caroline paid 1000 dollars on 12 May 2024 and has 3 cats.", CLUSTER)
    less = check_facts("Caroline paid rent.", CLUSTER)
    assert less.passed
    assert less.share < whole.share


WORDS = [
    "Ana", "Lyon", "12", "three", "May 5", "PROJ-7", "not", "likes", "the", "v1.2.3", "3 pm",
    "rent", "B12", "5kg", "不", "猫", "Иван", "2024-05-12", "don't", "1,000.",
]  # fmt: skip
turns = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join), min_size=1, max_size=5
)


@example(["1000/01A0"])
@example(["2024年5月12日B7"])
@given(turns | st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=4))
def test_a_text_supports_what_it_claims(texts: list[str]) -> None:
    for text in texts:
        support = Support([text])
        assert [claim for claim in read_claims(text) if not support.holds(claim)] == []


@given(turns, st.data())
def test_verbatim_turns_always_pass_and_numbers_stay_in_range(
    sources: list[str], data: st.DataObject
) -> None:
    kept = [source for source in sources if data.draw(st.booleans())]
    report = check_facts(" ".join(kept), sources)
    assert report.passed
    assert 0 <= report.kept <= report.total


@given(st.text(max_size=80), st.lists(st.text(max_size=40), max_size=4))
def test_any_text_gets_a_report(summary: str, sources: list[str]) -> None:
    report = check_facts(summary, sources)
    assert 0.0 <= report.share <= 1.0


def test_a_giant_turn_is_read_to_its_end() -> None:
    giant = "Ana said 12 things in Lyon, not PROJ-7. " * 500 + "Zelda paid 77."
    assert check_facts("Zelda paid 77.", [giant]).passed
    assert not check_facts("Zelda paid 78.", [giant]).passed


def report_of(kept: int, more: int, introduced: list[str], contradicted: list[str]) -> FactReport:
    return FactReport(kept, kept + more, tuple(introduced), tuple(contradicted))


faults = st.lists(st.text(max_size=20), max_size=3)
reports = st.builds(report_of, st.integers(0, 99), st.integers(0, 99), faults, faults)


@given(reports)
def test_a_report_survives_its_json_and_its_share_stays_in_range(report: FactReport) -> None:
    assert FactReport.from_json(report.to_json()) == report
    assert 0.0 <= report.share <= 1.0
    assert report.passed == (not report.reasons)


@pytest.mark.parametrize("text", ["[]", '{"kept": 1}', "3"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a fact report"):
        FactReport.from_json(text)


SOURCES = ["Ann: the rent is 500", "Bob: no way!", "the rent is 500", "Bob: no"]
texts = st.lists(st.text(alphabet="ab .!", min_size=1, max_size=8), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("summary", "quoted", "written"),
    [
        ("Ann: the rent is 500 Bob: no way!", (0, 1), []),
        ("They argued. Bob: no way! So it stays.", (1,), ["They argued.", "So it stays."]),
        # A turn inside of another sentence is not quoted.
        ("It is false that the rent is 500", (), ["It is false that the rent is 500"]),
        ("the rent is 500 no more", (), ["the rent is 500 no more"]),
        ("the rent is 5000", (), ["the rent is 5000"]),
        ("Bob: nothing", (), ["Bob: nothing"]),
    ],
)
def test_whole_turns_are_quoted_and_the_rest_was_written(
    summary: str, quoted: tuple[int, ...], written: list[str]
) -> None:
    parts = find_verbatim(summary, SOURCES)
    assert parts.quoted == quoted
    assert [part.strip() for part in parts.written] == written


@given(texts, st.data())
def test_every_joined_choice_of_turns_is_verbatim(sources: list[str], data: st.DataObject) -> None:
    sources = [source for source in sources if source.strip()]
    kept = [source for source in sources if data.draw(st.booleans())]
    assert find_verbatim(" ".join(kept), sources).written == ()


SPOKEN = ["Ann: We moved. The rent is 500! Is it?", "Bob: No way. I pay 3.5 k", "猫在家。狗在外。"]


@pytest.mark.parametrize(
    ("summary", "is_verbatim"),
    [
        ("Ann: We moved. Is it? Bob: No way.", True),
        ("Ann: The rent is 500! Bob: I pay 3.5 k", True),
        ("Bob: I pay 3.5 k 猫在家。狗在外。", True),
        ("", True),
        ("Bob: We moved.", False),
        ("We moved.", False),
        ("Ann: It is false. The rent is 500!", False),
        ("Ann: The rent is 500! no more", False),
        ("Ann: The rent is 5000!", False),
        ("Bob: I pay 3.5 kg", False),
    ],
)
def test_whole_sentences_under_their_speakers_are_verbatim(summary: str, is_verbatim: bool) -> None:
    assert is_made_of_sentences(summary, SPOKEN) == is_verbatim


@given(texts)
def test_what_the_sentence_summarizer_writes_is_verbatim(sources: list[str]) -> None:
    request = Request("c", sources, np.ones((len(sources), 1)))
    draft = SentenceSummarizer().write(request, 0.5)
    assert isinstance(draft, Refusal) or is_made_of_sentences(draft.text, sources)
