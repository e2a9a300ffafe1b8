from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.compact.gate import FactReport


def report_of(kept: int, more: int, introduced: list[str], contradicted: list[str]) -> FactReport:
    return FactReport(kept, kept + more, tuple(introduced), tuple(contradicted))


faults = st.lists(st.text(max_size=20), max_size=3)
reports = st.builds(report_of, st.integers(0, 99), st.integers(0, 99), faults, faults)


@given(reports)
def test_a_report_survives_its_json_and_its_share_stays_in_range(report: FactReport) -> None:
    assert FactReport.from_json(report.to_json()) == report
    assert 0.0 <= report.share <= 1.0
    assert report.passed == (not report.reasons)


def test_sources_without_facts_are_kept_whole() -> None:
    assert FactReport(0, 0).share == 1.0


@pytest.mark.parametrize("text", ["[]", '{"kept": 1}', "3"])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a fact report"):
        FactReport.from_json(text)
