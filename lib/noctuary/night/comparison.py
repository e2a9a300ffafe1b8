"""Stage recall_comparison: does tonight's candidate recall worse than what serves?

What belongs here: which queries both snapshots can answer, both runs, the significant losses. What
does not: refusing (noctuary.snapshot.checks does).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from noctuary.errors import SnapshotCorruptError, SnapshotMissingError
from noctuary.evaluate.comparison import Comparison, Difference, compare
from noctuary.evaluate.labels.queries import Query
from noctuary.evaluate.resampling import Resampling
from noctuary.evaluate.run import Run, run_retriever
from noctuary.evaluate.scores import score_run
from noctuary.evaluate.statistics.holm import holm
from noctuary.files import write_text
from noctuary.night.context import COMPARISON, Night
from noctuary.night.evaluation import PLAN, RECALL_EVALUATION, served_profile
from noctuary.night.questions import read_questions
from noctuary.night.retriever import ProfileRetriever
from noctuary.night.serving import candidate_digest, candidate_path
from noctuary.recall.engine import Recaller
from noctuary.recall.reader import SnapshotReader
from noctuary.snapshot.drops import Drop, DropReport
from noctuary.snapshot.manifest import read_pointer
from noctuary.work.stage import Stage, StageResult, load_result

RECALL_COMPARISON = Stage("recall_comparison", "1", (COMPARISON,))
DROP_METRICS = ("recall@10", "ndcg@10")
"""What a drop is told by: whether the answer is there at all, and where it stands."""

Pair = tuple[Run, Run, Sequence[Query]]


def compare_with_serving(night: Night) -> StageResult:
    """Ask the candidate and the serving snapshot the same queries and keep the differences."""
    digest = candidate_digest(night)
    serving = _serving(night)
    known = load_result(night.paths.work, RECALL_COMPARISON)
    if serving and serving[1] == digest and known and known.facts.get("candidate") == digest:
        # It serves by now; what was found before it did is the answer that is worth keeping.
        return night.finish(known)
    inputs = {
        "candidate": digest,
        "serving": serving[1] if serving else None,
        "evaluation": night.result_of(RECALL_EVALUATION).digest,
        "profile": served_profile(night).to_json(),
        "on_drop": night.settings.evaluation.on_drop,
    }

    def body() -> tuple[int, dict[str, Any]]:
        note = _nothing_to_compare(night, digest, serving)
        if serving is None or note:
            return _write(night, digest, [], DropReport(note=note))
        try:
            found, report = _compare(night, serving[0])
        except SnapshotCorruptError as error:
            note = f"the serving snapshot is damaged: {error}"
            return _write(night, digest, [], DropReport(note=note))
        return _write(night, digest, found, report)

    return night.finish(night.run(RECALL_COMPARISON, inputs, body))


def read_drops(night: Night) -> DropReport:
    """Return what the stage found.

    Raises:
        StoreError: If it has not run for tonight's candidate.
    """
    night.result_of(RECALL_COMPARISON)
    raw = json.loads(night.work(COMPARISON).read_text(encoding="utf-8"))["report"]
    fields: dict[str, Any] = {**raw, "drops": tuple(Drop(**drop) for drop in raw["drops"])}
    return DropReport(**fields)


def read_comparisons(night: Night) -> dict[str, Comparison]:
    """Return the differences to the serving snapshot by group; empty if none were made."""
    raw = json.loads(night.work(COMPARISON).read_text(encoding="utf-8"))["groups"]
    return {group: Comparison.from_json(found) for group, found in raw.items()}


def find_drops(
    comparisons: Sequence[tuple[str, Comparison]],
    resampling: Resampling = Resampling(),  # noqa: B008
) -> tuple[list[Drop], int]:
    """Return the significant losses and how many pairs were tested.

    A loss is significant if its paired interval lies below zero and its permutation p, corrected
    over every group, stratum and metric together (Holm), is below alpha.

    Args:
        comparisons: Group name and candidate against serving snapshot.
        resampling: Where alpha comes from.
    """
    tested = [
        (name, metric, difference)
        for group, comparison in comparisons
        for name, metric, difference in _differences(group, comparison)
    ]
    corrected = holm([difference.p_value for _, _, difference in tested])
    drops = [
        Drop(name, metric, d.mean, d.interval.low, d.interval.high, d.n, p)
        for (name, metric, d), p in zip(tested, corrected, strict=True)
        if d.interval is not None and d.interval.high < 0.0 and p < resampling.alpha
    ]
    return drops, len(tested)


def _differences(group: str, comparison: Comparison) -> Iterator[tuple[str, str, Difference]]:
    parts = {group: comparison.overall}
    if len(comparison.strata) > 1:
        parts |= {f"{group}: {stratum}": part for stratum, part in comparison.strata.items()}
    for name, part in parts.items():
        for metric in DROP_METRICS:
            yield name, metric, part[metric]


def _serving(night: Night) -> tuple[Path, str] | None:
    """Return directory and digest of what serves."""
    try:
        pointer = read_pointer(night.paths)
    except (SnapshotMissingError, SnapshotCorruptError):
        return None
    return night.paths.snapshots / pointer.snapshot_id, pointer.digest


def _nothing_to_compare(night: Night, digest: str, serving: tuple[Path, str] | None) -> str:
    if not night.settings.evaluation.enabled:
        return "the evaluation is switched off"
    if serving is None:
        return "nothing serves yet"
    if serving[1] == digest:
        return "the serving snapshot is this candidate"
    if not read_questions(night).groups:
        return "there is no query to ask"
    return ""


def _compare(
    night: Night, serving_directory: Path
) -> tuple[list[tuple[str, Comparison]], DropReport]:
    candidate = SnapshotReader.open(candidate_path(night))
    with closing(candidate), closing(SnapshotReader.open(serving_directory)) as serving:
        pairs = {
            group: pair
            for group, queries in read_questions(night).groups.items()
            if (pair := _ask_both(night, candidate, serving, queries)) is not None
        }
    found = [
        (group, compare([(score_run(ours, queries), score_run(theirs, queries))])[0])
        for group, (ours, theirs, queries) in pairs.items()
    ]
    drops, tested = find_drops(found)
    return found, DropReport(
        drops=tuple(drops),
        tested=tested,
        queries=sum(len(queries) for _, _, queries in pairs.values()),
        note="" if found else "no query can be answered by both snapshots",
        on_drop=night.settings.evaluation.on_drop,
    )


def _ask_both(
    night: Night, candidate: SnapshotReader, serving: SnapshotReader, queries: Sequence[Query]
) -> Pair | None:
    """Run both snapshots on the queries whose relevant memories stand unchanged in both."""
    labels = {i for query in queries for i in query.relevant_ids}
    here, there = candidate.content_hashes(labels), serving.content_hashes(labels)
    kept = [
        query
        for query in queries
        if all(i in there and there[i] == here.get(i) for i in query.relevant_ids)
    ]
    if not kept:
        return None
    runs: list[Run] = []
    for name, reader in (("candidate", candidate), ("serving", serving)):
        recaller = Recaller(night.paths, reader, name)
        retriever = ProfileRetriever(name, recaller, served_profile(night, reader.adopted))
        runs.append(run_retriever(retriever, kept, PLAN, progress=night.progress))
    return runs[0], runs[1], kept


def _write(
    night: Night, digest: str, found: Sequence[tuple[str, Comparison]], report: DropReport
) -> tuple[int, dict[str, Any]]:
    document = {
        "report": asdict(report),
        "groups": {group: comparison.to_json() for group, comparison in found},
    }
    write_text(night.work(COMPARISON), json.dumps(document, indent=1) + "\n")
    facts: dict[str, Any] = {
        "candidate": digest,
        "tested": report.tested,
        "dropped": len(report.drops),
    }
    if report.note:
        facts["note"] = report.note
    for group, comparison in found:
        difference = comparison.overall[DROP_METRICS[0]]
        facts[f"{group} {DROP_METRICS[0]}"] = round(difference.mean, 4)
    return report.queries, facts
