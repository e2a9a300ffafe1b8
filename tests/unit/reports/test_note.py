"""What a night says of itself in the morning; the stages in notes.json are those of real nights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.snapshot.checks import DROP_CHECK
from noctuary.snapshot.verdict import CheckResult, Verdict
from noctuary.sources.source import QuarantineReason
from noctuary.work.stage import StageResult
from noctuary_assets.report import write_note

GOLDEN = Path(__file__).parents[2] / "golden" / "notes.json"
NIGHTS: dict[str, list[dict[str, Any]]] = json.loads(GOLDEN.read_text(encoding="utf-8"))

DROPPED = CheckResult(
    DROP_CHECK, False, {"tested": 4, "queries": 102, "dropped": 2, "on_drop": "refuse"}
)
LYING = CheckResult(
    "every_summary_preserves_its_sources", False, {"summaries": 19, "failed": 1, "ids": "s-7"}
)
PASSED = CheckResult("every_edge_has_evidence", True, {"edges": 1729, "dangling": 0})

NOTES = {
    "first night": [
        "Memories: 665 new.",
        "Withheld: 13 sensitive rows (8 flagged, 3 placeholder, 2 secret).",
        "Graph: 1,211 concepts, 23 merged names.",
        "Summaries: 19 stand for 351 turns and save 5,305 tokens (72%).",
        (
            "Recall@10: labelled 0.876, exact 1.000; not compared with the last night: nothing serves "
            "yet."
        ),
        "Proposed: 2 turns worth keeping for good (`noctuary promotions`).",
    ],
    "night with edits": [
        "Memories: 3 new, 1 changed, 2 gone; 666 in all.",
        (
            "Withheld: 14 sensitive rows (9 flagged, 3 placeholder, 2 secret), 2 quarantined rows "
            "(1 bad date, 1 empty content)."
        ),
        "Graph: 1,208 concepts, 23 merged names.",
        "Summaries: 19 stand for 351 turns and save 5,305 tokens (72%).",
        "Recall@10: labelled 0.873, exact 1.000.",
        "Against what served, on the same questions: labelled no different, exact no different.",
        (
            "Questions: 2 labels name memories that the corpus does not hold; 1 queries lost all their "
            "labels and are not asked."
        ),
        "Proposed: 2 turns worth keeping for good (`noctuary promotions`).",
    ],
    "unchanged night": [
        "Memories: nothing new, changed or gone; 666 in all.",
        (
            "Withheld: 14 sensitive rows (9 flagged, 3 placeholder, 2 secret), 2 quarantined rows "
            "(1 bad date, 1 empty content)."
        ),
        "Proposed: 2 turns worth keeping for good (`noctuary promotions`).",
        "Nothing new was measured; the last report is reports/20261123.html.",
    ],
    "refused night": [
        "Memories: 672 new; 728 in all.",
        "Graph: 56 concepts.",
        "Recall@10: labelled 0.000, exact 1.000.",
        (
            "Against what served, on the same questions: labelled \u22121.000 (\u22121.000 to "
            "\u22121.000), exact no different; 2 significant losses."
        ),
        "Questions: only 46 of 60 memories hold a phrase that no other memory holds.",
        "The gate refused tonight's candidate: what served keeps serving.",
        "recall_has_not_dropped_significantly found 2 significant losses in 102 queries.",
        (
            "What to do: look at the report; if the loss is meant, set evaluation.on_drop to report "
            "and run the night again."
        ),
    ],
}


def stage(name: str, *, reused: bool = False, **facts: Any) -> StageResult:
    return StageResult(name, "", reused, 0, facts)


def corpus(**facts: Any) -> StageResult:
    counts = {"added": 0, "edited": 0, "deleted": 0, "turned_sensitive": 0, "exported": 1}
    reasons = {"quarantined_by_reason": {}, "sensitive_by_reason": {}}
    return stage("corpus_export", **{**counts, **reasons, **facts})


@pytest.mark.parametrize("night", NOTES)
def test_a_real_night_is_told_in_a_few_lines(night: str) -> None:
    stages = [StageResult(digest="", **found) for found in NIGHTS[night]]
    checks = (PASSED, DROPPED) if night == "refused night" else (PASSED,)
    assert write_note(stages, Verdict("d", "", checks, "")) == NOTES[night]


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ([], []),
        ([corpus(added=1)], ["Memories: 1 new."]),
        (
            [corpus(edited=1, turned_sensitive=1)],
            [
                "Memories: 1 changed; 1 in all.",
                "1 memory has turned sensitive: it is taken out of every snapshot.",
            ],
        ),
        (
            [
                corpus(
                    added=1,
                    sensitive_by_reason={"flagged": 1},
                    quarantined_by_reason={"bad_id": 1, "injected_lines": 2, "injected_block": 1},
                )
            ],
            [
                "Memories: 1 new.",
                (
                    "Withheld: 1 sensitive row (1 flagged), 1 quarantined row (1 bad id), 3 repeats of "
                    "what recall had injected."
                ),
            ],
        ),
        (
            [stage("concept_graph", concepts=1, merges=1, supersessions=1)],
            ["Graph: 1 concept, 1 merged name, 1 superseded memory."],
        ),
        ([stage("concept_graph", reused=True, concepts=1, merges=1, supersessions=1)], []),
        (
            [
                stage(
                    "summaries",
                    by_status={"accepted": 1, "declined": 1},
                    by_fallback={"unavailable": 1},
                    summarised_turns=20,
                    source_tokens=101,
                    summary_tokens=100,
                    tokens_saved_share=0.0099,
                )
            ],
            [
                "Summaries: 1 stands for 20 turns and saves 1 token (1%).",
                "1 summary was declined; the turns stay.",
                (
                    "Warning: the model of the summaries gave no answer for 1 group of turns; asked "
                    "again next night."
                ),
                "`noctuary doctor` says how the store is.",
            ],
        ),
        (
            [
                stage("recall_evaluation", **{"recall@10 labelled": 0.5}),
                stage(
                    "recall_comparison",
                    dropped=1,
                    intervals={"labelled": [-0.0312, 0.01]},
                    **{"labelled recall@10": -0.0125},
                ),
                stage("fusion_decision", adopted="rrf", reason="it is better"),
            ],
            [
                "Recall@10: labelled 0.500.",
                (
                    "Against what served, on the same questions: labelled \u22120.013 (\u22120.031 to "
                    "+0.010); 1 significant loss."
                ),
                "Ranking: rrf is adopted; it is better.",
            ],
        ),
        (
            [
                stage("curation_proposals", by_action={"delete": 1, "merge": 2}),
                stage("promotion_proposals", proposed=1),
                stage("compaction_plan", would_archive=1),
            ],
            [
                (
                    "Proposed: 3 changes to the source (`noctuary curate`), 1 turn worth keeping for "
                    "good (`noctuary promotions`), 1 memory to archive (`noctuary compact`)."
                ),
            ],
        ),
        (
            [
                stage("concept_graph", reused=True, warnings=[{"message": "it was\n given up"}]),
                stage("access_statistics", reused=True, fault="the log is damaged"),
            ],
            [
                "Warning: it was given up.",
                "Warning: access statistics: the log is damaged.",
                "`noctuary doctor` says how the store is.",
            ],
        ),
    ],
)
def test_numbers_are_told_as_people_say_them(stages: list[StageResult], said: list[str]) -> None:
    assert write_note(stages) == said


def test_checks_that_failed_for_one_reason_have_one_remedy() -> None:
    other = CheckResult("every_edge_has_evidence", False, {"edges": 9, "dangling": 1})
    assert write_note([], Verdict("d", "FAIL", (PASSED, LYING, other), "")) == [
        "The gate refused tonight's candidate: what served keeps serving.",
        "every_summary_preserves_its_sources found summaries 19, failed 1, ids s-7.",
        "every_edge_has_evidence found edges 9, dangling 1.",
        (
            "What to do: run the night again, which makes everything of the candidate anew; if it is "
            "refused again, `noctuary doctor` looks for the cause."
        ),
    ]


@given(st.dictionaries(st.sampled_from(list(QuarantineReason)), st.integers(0, 9)))
def test_every_withheld_row_is_told_once_and_nothing_that_is_zero(counts: dict[str, int]) -> None:
    _, *withheld = write_note([corpus(added=1, quarantined_by_reason=counts)])
    text = " ".join(withheld)
    assert sum(map(int, text.partition("(")[0].split()[1:2])) <= sum(counts.values())
    for reason, count in counts.items():
        if not reason.startswith("injected"):
            assert (f"{count} {reason.replace('_', ' ')}" in text) == (count > 0)
