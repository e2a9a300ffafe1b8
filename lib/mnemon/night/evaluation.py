"""Stage recall_evaluation.

The candidate answers the labelled queries that lie beside its source.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mnemon.corpus.export import read_records
from mnemon.evaluate.labels.queries import Query, QueryFileError, read_queries
from mnemon.evaluate.run import EvaluationPlan, evaluate
from mnemon.files import write_text
from mnemon.hashing import hash_file
from mnemon.night.context import EVALUATION, MEMORIES, Night
from mnemon.night.serving import SNAPSHOT_CANDIDATE, candidate_path
from mnemon.recall.engine import Recaller
from mnemon.recall.profile import Profile
from mnemon.recall.reader import SnapshotReader
from mnemon.recall.scope import Scope
from mnemon.work.stage import Stage, StageResult

RECALL_EVALUATION = Stage("recall_evaluation", "1", (EVALUATION,))
QUERIES_FILE = "queries.jsonl"


def evaluation_profiles(night: Night) -> dict[str, Profile]:
    """Return the arms of the nightly evaluation: each leg alone, fused, and with the graph."""
    served = Profile.from_settings(night.settings.recall)
    return {
        "lexical": replace(served, lexical_weight=1.0, dense_weight=0.0, graph_weight=0.0),
        "dense": replace(served, lexical_weight=0.0, dense_weight=1.0, graph_weight=0.0),
        "fused": replace(served, graph_weight=0.0),
        "served": served,
    }


def evaluate_candidate(night: Night) -> StageResult:
    """Measure the candidate on the source's own labelled queries; without any, say so."""
    path = labelled_queries(night.source)
    inputs = {
        "candidate": night.result_of(SNAPSHOT_CANDIDATE).facts["digest"],
        "queries": hash_file(path) if path else None,
        "recall": night.settings.to_json()["recall"],
    }

    def body() -> tuple[int, dict[str, Any]]:
        if path is None:
            write_text(night.work(EVALUATION), "{}\n")
            return 0, {"note": f"no {QUERIES_FILE} beside the source: nothing to evaluate"}
        known_ids = {r.memory_id for r in read_records(night.work(MEMORIES))}
        try:
            labelled = read_queries(path).ranked
        except QueryFileError as error:
            # Labels are a convenience beside the store; a typo in them must not stop the night.
            write_text(night.work(EVALUATION), "{}\n")
            return 0, {"note": f"not evaluated: {error}"}
        queries, gone = _answerable(labelled, known_ids)
        if not queries:
            write_text(night.work(EVALUATION), "{}\n")
            return 0, {"note": f"{path.name} holds no query with a relevant memory"}
        reader = SnapshotReader.open(candidate_path(night))
        try:
            return len(queries), {
                "labels_not_in_corpus": gone,
                **_evaluate_arms(night, reader, queries),
            }
        finally:
            reader.close()

    return night.finish(night.run(RECALL_EVALUATION, inputs, body))


def _answerable(queries: Sequence[Query], known_ids: Collection[str]) -> tuple[list[Query], int]:
    """Return the queries with the labels that the corpus holds, and how many labels it does not.

    A labelled memory may be deleted or turn sensitive; that must not keep a night from publishing.
    """
    kept = [
        replace(q, relevant_ids=tuple(i for i in q.relevant_ids if i in known_ids)) for q in queries
    ]
    before, after = (sum(len(q.relevant_ids) for q in group) for group in (queries, kept))
    return [q for q in kept if q.relevant_ids], before - after


def labelled_queries(source: Path) -> Path | None:
    """Return the query file beside a source, or None."""
    folder = source if source.is_dir() else source.parent
    path = folder / QUERIES_FILE
    return path if path.is_file() else None


def _evaluate_arms(
    night: Night, reader: SnapshotReader, queries: Sequence[Query]
) -> dict[str, Any]:
    recaller = Recaller(night.paths, reader, "candidate")
    plan = EvaluationPlan(mrr_depth=10)
    reports: dict[str, Any] = {}
    for name, profile in evaluation_profiles(night).items():

        def retrieve(query: Query, k: int, profile: Profile = profile) -> list[str]:
            found = recaller.recall(query.text, k, profile=profile, scope=Scope(as_of=query.as_of))
            return [str(m.id) for m in found.memories]

        reports[name] = evaluate(retrieve, queries, plan=plan, progress=night.progress)
    write_text(
        night.work(EVALUATION),
        "{" + ",\n".join(f'"{name}": {r.to_json()}' for name, r in reports.items()) + "}\n",
    )
    return {
        name: {metric: round(s.mean, 4) for metric, s in report.overall.metrics.items()}
        for name, report in reports.items()
    }
