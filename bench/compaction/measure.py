"""One store asked with its turns and with summaries in their place.

A question searches summaries and then ranks the turns of those that it hit: how many tokens it
reads there is told beside what is saved. Where a summary comes back whole, it counts as evidence
when it expands to the labelled turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.compaction.arms import VIEWS
from bench.suite.loading import LoadedSet
from noctuary.compact.summaries import iter_summaries
from noctuary.core.store import StorePaths
from noctuary.evaluate.labels import Query
from noctuary.evaluate.metrics import Scores, compare
from noctuary.recall.engine import Recaller
from noctuary.recall.profile import RetrievalProfile
from noctuary.recall.result import RecallResult
from noctuary.recall.trace import TURN_VIEW
from noctuary.text.marks import estimate_tokens
from noctuary_assets.night import SUMMARIES

CUTOFFS = (5, 10)
METRICS = tuple(f"recall@{k}" for k in CUTOFFS)


def measure_arm(loaded: LoadedSet, store: Path) -> dict[str, Any]:
    """Return tokens, quality of the summaries and evidence recall of both views.

    Args:
        loaded: The set.
        store: Its store, as the arm's night left it.
    """
    recaller = Recaller.open(store)
    with closing(recaller.reader):
        views = {name: _compare_views(loaded, recaller, changes) for name, changes in VIEWS.items()}
        return {
            **_tokens(recaller),
            **_quality(StorePaths(store).work / SUMMARIES),
            "views": views,
        }


def evidence_recall(found: Sequence[Sequence[str]], query: Query, k: int) -> float:
    """Return the share of a query's relevant memories that its first k results lead to.

    Args:
        found: Per result, best first, the ids of the memories that it stands for.
        query: With at least one relevant id.
        k: Results looked at.
    """
    reached = {memory_id for sources in found[:k] for memory_id in sources}
    return len(reached & set(query.relevant_ids)) / len(query.relevant_ids)


def _compare_views(
    loaded: LoadedSet, recaller: Recaller, changes: tuple[Mapping[str, Any], Mapping[str, Any]]
) -> dict[str, Any]:
    tokens = _TurnTokens(recaller)
    asked = {
        view: _ask(
            view, loaded, recaller, RetrievalProfile(**values, candidate_trace=traced), tokens
        )
        for view, values, traced in zip(("raw", "summaries"), changes, (False, True), strict=True)
    }
    difference = compare([(asked["summaries"][0], asked["raw"][0])])[0]
    return {
        "means": {
            view: {m: round(float(scores.column(m).mean()), 5) for m in METRICS}
            for view, (scores, *_) in asked.items()
        },
        "answer_tokens": {view: round(answer, 1) for view, (_, answer, _) in asked.items()},
        # Of the turns of summaries that were hit, a question; as a share of all tokens of turns.
        "read_tokens": round(asked["summaries"][2], 1),
        "read_tokens_share": round(asked["summaries"][2] / max(tokens.of_all, 1), 4),
        "difference": difference.to_json(),
    }


class _TurnTokens:
    """How many tokens the turns of a snapshot have."""

    def __init__(self, recaller: Recaller) -> None:
        reader = recaller.reader
        rows = reader.describe(range(reader.count)).values()
        tokens = {r["position"]: estimate_tokens(r["content"]) for r in rows if r["is_turn"]}
        self.of_all = sum(tokens.values())
        self._of_summary = {
            reader.summaries.ids[view.position - reader.count]: sum(tokens[p] for p in view.sources)
            for view in reader.summaries.views
        }

    def read_by(self, answer: RecallResult) -> int:
        """Return the tokens of the turns that took the place of their summaries."""
        dropped = [row for row in answer.candidate_trace or () if row["dropped_at"] == TURN_VIEW]
        return sum(self._of_summary.get(str(row["memory_id"]), 0) for row in dropped)


def _ask(
    name: str,
    loaded: LoadedSet,
    recaller: Recaller,
    profile: RetrievalProfile,
    turn_tokens: _TurnTokens,
) -> tuple[Scores, float, float]:
    """Return the evidence recall of every query, and the mean tokens of an answer and read."""
    values = np.zeros((len(loaded.queries), len(METRICS)))
    tokens: list[int] = []
    read: list[int] = []
    for row, query in enumerate(loaded.queries):
        answer = recaller.recall(query.text, max(CUTOFFS), profile=profile)
        found = stands_for(answer)
        values[row] = [evidence_recall(found, query, k) for k in CUTOFFS]
        tokens.append(sum(estimate_tokens(memory.content) for memory in answer.memories))
        read.append(turn_tokens.read_by(answer))
    scores = Scores(
        name=name,
        metrics=METRICS,
        query_ids=tuple(query.query_id for query in loaded.queries),
        strata=tuple(query.stratum for query in loaded.queries),
        values=values,
    )
    return scores, float(np.mean(tokens)), float(np.mean(read))


def stands_for(answer: RecallResult) -> list[list[str]]:
    """Return, per result, the ids of the memories that it stands for: itself, or its turns."""
    return [[str(s) for s in memory.sources] or [str(memory.id)] for memory in answer.memories]


def _tokens(recaller: Recaller) -> dict[str, Any]:
    """Return the tokens of what is searched, with turns and with summaries in their place."""
    reader = recaller.reader
    rows = reader.describe(range(reader.count))
    memories = {position: estimate_tokens(row["content"]) for position, row in rows.items()}
    held = reader.summaries
    covered = {source for view in held.views for source in view.sources}
    texts = reader.describe(range(reader.count, reader.count + held.size))
    summaries = sum(estimate_tokens(row["content"]) for row in texts.values())
    turns = {position for position, row in rows.items() if row["is_turn"]}
    raw, of_turns = sum(memories.values()), sum(memories[p] for p in turns)
    saved = sum(memories[p] for p in covered) - summaries
    return {
        "memories": reader.count,
        "turns": len(turns),
        "turns_covered": len(covered),
        "tokens_raw": raw,
        "tokens_with_summaries": raw - saved,
        "tokens_saved_share": round(saved / max(raw, 1), 4),
        "turn_tokens_saved_share": round(saved / max(of_turns, 1), 4),
    }


def _quality(path: Path) -> dict[str, Any]:
    accepted = [s for s in iter_summaries(path) if s.status == "accepted"]
    reports = [s.report for s in accepted if s.report is not None]
    facts = [s.facts for s in accepted if s.facts is not None and s.facts.total]
    return {
        "summaries": len(accepted),
        "q_align_median": round(median([r.align for r in reports]), 4) if reports else None,
        "q_align_lowest": round(min([r.align for r in reports]), 4) if reports else None,
        "q_cover_median": round(median([r.cover for r in reports]), 4) if reports else None,
        "facts_kept": sum(f.kept for f in facts),
        "facts_total": sum(f.total for f in facts),
    }
