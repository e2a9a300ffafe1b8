"""What a night says of itself in the morning; notes.json has the stages of real nights."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.evaluate import note as module
from noctuary.evaluate.note import write_note
from noctuary.snapshot.checks import DROP_CHECK
from noctuary.snapshot.publish import CheckResult, Verdict
from noctuary.sources.source import QuarantineReason
from noctuary.text.marks import plural
from noctuary.work.stage import Stage, StageResult
from noctuary_assets import compact, evaluate, graph, ingest, proposals, publish, report

GOLDEN = Path(__file__).parents[2] / "golden" / "notes.json"
NIGHTS: dict[str, dict[str, list[Any]]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
LYING = "every_summary_preserves_its_sources"
BROKEN = "every_edge_has_evidence"


def stage(
    name: str, facts: dict[str, Any], *, reused: bool = False, before: dict[str, Any] | None = None
) -> StageResult:
    return StageResult(name, "", reused, 0, facts, before=before or {})


def corpus(**facts: Any) -> StageResult:
    counts = {"added": 0, "edited": 0, "deleted": 0, "turned_sensitive": 0, "exported": 1}
    reasons = {"quarantined_by_reason": {}, "sensitive_by_reason": {}}
    return stage("corpus_export", {**counts, **reasons, **facts})


def refusal(*failed: CheckResult) -> Verdict:
    return Verdict("d", "FAIL", (CheckResult("holds", True, {"rows": 9}), *failed), "")


GRAPH = {"concepts": 1, "merges": 1, "supersessions": 1}
REASONS = {"bad_id": 1, "injected_lines": 2, "injected_block": 1}
SUMMARIES = {
    "by_status": {"accepted": 1, "declined": 1},
    "by_fallback": {"unavailable": 1},
    "summarised_turns": 20,
    "source_tokens": 101,
    "summary_tokens": 100,
    "tokens_saved_share": 0.0099,
}
COMPARED = {"dropped": 1, "intervals": {"labelled": [-0.0312, 0.01]}, "labelled recall@10": -0.0125}
DOWN = {"warnings": [{"message": "it was\n given up"}]}

CASES: list[tuple[list[StageResult], str]] = [
    ([], ""),
    ([corpus(added=1)], "Memories: 1 new."),
    (
        [corpus(edited=1, turned_sensitive=1)],
        """Memories: 1 changed; 1 in all.
        1 memory has turned sensitive: it is taken out of every snapshot.""",
    ),
    (
        [corpus(added=1, sensitive_by_reason={"flagged": 1}, quarantined_by_reason=REASONS)],
        """Memories: 1 new.
        Withheld: 1 sensitive row (1 flagged), 1 quarantined row (1 bad id), 3 repeats of what
          recall had injected.""",
    ),
    ([stage("concept_graph", GRAPH)], "Graph: 1 concept, 1 merged name, 1 superseded memory."),
    ([stage("concept_graph", GRAPH, reused=True)], ""),
    (
        [
            stage("concept_graph", GRAPH, before={**GRAPH, "concepts": 2_001, "merges": 0}),
            stage("summaries", SUMMARIES, before={"by_status": {"accepted": 3}}),
        ],
        """Graph: 1 concept (\u22122,000), 1 merged name (+1), 1 superseded memory.
        Summaries: 1 (\u22122) stands for 20 turns and saves 1 token (1%).
        1 summary was declined; the turns stay.
        Warning: the summaries' model gave no answer for 1 group of turns; asked again next night.
        `noctuary doctor` checks the store.""",
    ),
    (
        [stage("summaries", SUMMARIES)],
        """Summaries: 1 stands for 20 turns and saves 1 token (1%).
        1 summary was declined; the turns stay.
        Warning: the summaries' model gave no answer for 1 group of turns; asked again next night.
        `noctuary doctor` checks the store.""",
    ),
    (
        [
            stage("recall_evaluation", {"recall@10 labelled": 0.5}),
            stage("recall_comparison", COMPARED),
            stage("fusion_decision", {"adopted": "rrf", "reason": "it is better"}),
        ],
        """Recall@10: labelled 0.500.
        Compared with the last snapshot, on the same questions: labelled \u22120.013 (\u22120.031 to
          +0.010); 1 significant loss.
        Ranking: rrf is adopted; it is better.""",
    ),
    (
        [
            stage("curation_proposals", {"by_action": {"delete": 1, "merge": 2}}),
            stage("promotion_proposals", {"proposed": 1}),
            stage("compaction_plan", {"would_archive": 1, "unchecked": 2}),
        ],
        """Proposed: 3 changes to the source (`noctuary proposals curate`), 1 turn worth keeping for
          good (`noctuary proposals promotions`), 1 memory to archive (`noctuary proposals
          compact`).
        Not checked for long, or about to end: 2 memories (`noctuary review`).""",
    ),
    (
        [
            stage("concept_graph", DOWN, reused=True),
            stage("access_statistics", {"fault": "the log is damaged"}, reused=True),
        ],
        """Warning: it was given up.
        Warning: access statistics: the log is damaged.
        `noctuary doctor` checks the store.""",
    ),
    (
        [corpus(warnings={"mem0_get_all_default": 1, "bad_date": 1234, "injected_lines_cut": 2})],
        """Memories: nothing new, changed or gone; 1 in all.
        Warning: an export of mem0 has exactly 20 memories, where get_all() of mem0 2.x stops unless
          it is told more: export again with top_k=100_000.
        Warning: memories without a date, as theirs is not understood or has two meanings: 1,234.
        `noctuary doctor` checks the store.""",
    ),
]


@pytest.mark.parametrize("night", NIGHTS)
def test_a_real_night_is_told_in_a_few_lines(night: str) -> None:
    found = NIGHTS[night]
    checks = [CheckResult(**check) for check in found["failed_checks"]]
    stages = [StageResult(digest="", **each) for each in found["stages"]]
    note = write_note(stages, refusal(*checks))
    assert note == found["note"]
    assert 4 <= len(note) <= 9


@pytest.mark.parametrize(("stages", "said"), CASES)
def test_numbers_are_told_as_people_say_them(stages: list[StageResult], said: str) -> None:
    lines = said.replace("\n          ", " ").splitlines()
    assert write_note(stages) == [line.strip() for line in lines]


def test_checks_with_the_same_remedy_name_it_once() -> None:
    lying = CheckResult(LYING, False, {"summaries": 19, "failed": 1, "ids": "s-7"})
    broken = CheckResult(BROKEN, False, {"edges": 9, "dangling": 1})
    note = write_note([], refusal(lying, broken))
    assert note[:3] == [
        "The gate refused tonight's candidate; the current snapshot stays.",
        f"{LYING} found summaries 19, failed 1, ids s-7.",
        f"{BROKEN} found edges 9, dangling 1.",
    ]
    (remedy,) = note[3:]
    assert remedy.startswith("What to do: run the night again")
    assert "`noctuary doctor`" in remedy


def test_a_check_that_could_not_compare_is_told_as_well() -> None:
    broken = CheckResult(DROP_CHECK, False, {"fault": "KeyError: 'recall'"})
    assert f"{DROP_CHECK} found fault KeyError: 'recall'." in write_note([], refusal(broken))


@given(st.dictionaries(st.sampled_from(list(QuarantineReason)), st.integers(0, 9)))
def test_every_withheld_row_is_told_and_nothing_that_is_zero(counts: dict[str, int]) -> None:
    text = " ".join(write_note([corpus(added=1, quarantined_by_reason=counts)])[1:])
    repeats = counts.get("injected_lines", 0) + counts.get("injected_block", 0)
    for count, noun in ((repeats, "repeat"), (sum(counts.values()) - repeats, "quarantined row")):
        assert (f" {plural(count, noun)} " in text) == (count > 0)
    for reason, count in counts.items():
        shown = f"{count} {reason.replace('_', ' ')}"
        is_told = count > 0 and not reason.startswith("injected_")
        assert is_told <= (shown in text)
        assert count > 0 or shown not in text


def test_the_stages_that_it_speaks_of_are_those_of_a_night() -> None:
    source = inspect.getsource(module)
    named = set(re.findall(r'(?:_told|_news|done\.get)\((?:done, )?"(\w+)"', source))
    groups = (compact, evaluate, graph, ingest, proposals, publish, report)
    stages = {v.name for g in groups for v in vars(g).values() if isinstance(v, Stage)}
    assert len(named) == 10
    assert named <= stages
