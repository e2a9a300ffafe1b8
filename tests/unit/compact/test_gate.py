from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from noctuary.compact.gate import (
    TAU_PRESERVE,
    alignment,
    coverage,
    final_confidence,
    judge,
    preservation,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "compaction_confidence.tsv"


def golden_rows() -> list[dict[str, str]]:
    with GOLDEN.open(encoding="utf-8", newline="") as handle:
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


def test_the_centroid_is_of_the_vectors_as_given() -> None:
    sources = np.array([[3.0, 0.0], [0.0, 1.0]])
    assert alignment(np.array([1.0, 0.0]), sources) == pytest.approx(3 / math.sqrt(10))


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


def test_sides_of_different_models_are_refused() -> None:
    with pytest.raises(ValueError, match="one model"):
        judge(np.ones(3), np.eye(4))


def test_raw_confidence_counts_one_fifth_and_only_for_abstractive() -> None:
    assert final_confidence(0.5) == 0.5
    assert final_confidence(0.5, 1.0) == pytest.approx(0.6)
    assert final_confidence(0.5, float("nan")) == pytest.approx(0.4)
