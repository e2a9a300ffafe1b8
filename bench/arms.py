"""The systems that are compared: two FTS5 baselines and mnemon's legs, alone and fused.

What belongs here: how each arm is asked (the only adapter between the evaluation and recall). No
metric, no file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from mnemon.evaluate.labels.queries import Query
from mnemon.evaluate.run import Retrieve
from mnemon.lexical.fts_seed import FtsSeed, SeedMode
from mnemon.recall import query_encoder
from mnemon.recall.profile import Profile
from mnemon.recall.scope import Scope

if TYPE_CHECKING:
    from mnemon.recall.engine import Recaller

SearchScope = Literal["all", "wing"]
"""Whether a query searches the whole corpus or the wing that it names."""

BASELINE = "fts_plain"
"""The arm that every other is compared with."""

_SHIPPED = Profile()
# Importance is one constant in nearly every labelled set; an arm without the prior isolates the
# legs.
_BARE = replace(_SHIPPED, graph_weight=0.0, importance_prior=0.0)

PROFILES: dict[str, Profile] = {
    "lexical": replace(_BARE, dense_weight=0.0),
    "dense": replace(_BARE, lexical_weight=0.0),
    "fused_rrf": replace(_BARE, fusion="rrf"),
    "fused_cc": replace(_BARE, fusion="cc"),
    "fused_cc_graph": replace(_BARE, fusion="cc", graph_weight=_SHIPPED.graph_weight),
    "mnemon": _SHIPPED,
}
"""mnemon's arms; each differs from a neighbour in one knob, `mnemon` is what ships."""

DESCRIPTIONS = {
    "fts_plain": "SQLite FTS5, OR of the query's words, bm25, content only (the set's README)",
    "fts_seed": "SQLite FTS5 of the seed store: four fields, AND then OR, bm25 and importance",
    "lexical": "mnemon's lexical leg alone",
    "dense": "mnemon's dense leg alone",
    "fused_rrf": "lexical + dense, weighted reciprocal rank fusion",
    "fused_cc": "lexical + dense, convex combination of scores",
    "fused_cc_graph": "convex combination plus the concept graph",
    "mnemon": "the profile that ships, importance prior included",
}

_WORD = re.compile(r"\w+")

_FTS_MODES: dict[str, SeedMode] = {"fts_plain": "or", "fts_seed": "and_then_or"}


@dataclass(frozen=True, slots=True)
class Arm:
    """One system under comparison.

    Attributes:
        name: Its key in results and tables.
        retrieve: Asks it; ids as text, best first.
        profile: mnemon's knobs as plain values, or None for a baseline.
        warnings: Degradations met so far, by code; filled while the arm runs. An arm with a missing
            leg is not the arm it is called, so this is reported beside its scores.
    """

    name: str
    retrieve: Retrieve
    profile: dict[str, Any] | None = None
    warnings: Counter[str] = field(default_factory=Counter[str])


def fts_arms(rows: Sequence[dict[str, Any]], scope: SearchScope) -> list[Arm]:
    """Index a set's corpus and return the two FTS5 baselines.

    Within a wing the baseline ranks the whole corpus and keeps the wing's rows, as FTS5 users
    filter: collection statistics stay those of the whole corpus, and its latency is that of the
        whole ranking.
    """
    index = FtsSeed.build(
        (
            position,
            str(row["content"]),
            str(row.get("category") or ""),
            str(row.get("tags") or ""),
            str(row.get("expanded_keywords") or ""),
            float(row.get("importance", 0.5)),
        )
        for position, row in enumerate(rows)
    )
    ids = [str(row["id"]) for row in rows]
    wings = [row.get("wing") for row in rows]
    return [
        Arm(name, _ask_fts(index, mode, ids, wings, scope)) for name, mode in _FTS_MODES.items()
    ]


def _ask_fts(
    index: FtsSeed,
    mode: SeedMode,
    ids: Sequence[str],
    wings: Sequence[str | None],
    scope: SearchScope,
) -> Retrieve:
    def retrieve(query: Query, k: int) -> list[str]:
        text = distinct_words(query.text) if mode == "or" else query.text
        if scope == "all" or query.wing is None:
            return [ids[position] for position, _ in index.search(text, k, mode)]
        ranked = index.search(text, len(ids), mode)
        return [ids[position] for position, _ in ranked if wings[position] == query.wing][:k]

    return retrieve


def distinct_words(text: str) -> str:
    """Return each word of a query once, as the plain baseline of the sets asks it.

    FTS5 adds a term's bm25 once per mention in the query: on long conversational queries the
    repeats would put the baseline below the figures that the sets state (realmem recall@10 .099
    instead of .127).
    """
    return " ".join(dict.fromkeys(_WORD.findall(text.lower())))


def mnemon_arms(recaller: Recaller, scope: SearchScope) -> list[Arm]:
    """Return mnemon's arms over one pinned snapshot."""
    return [mnemon_arm(recaller, name, profile, scope) for name, profile in PROFILES.items()]


def mnemon_arm(recaller: Recaller, name: str, profile: Profile, scope: SearchScope) -> Arm:
    """Return one arm: a profile asked over the whole snapshot or within the query's wing."""
    warnings: Counter[str] = Counter()
    previous: str | None = None

    def retrieve(query: Query, k: int) -> list[str]:
        nonlocal previous
        if query.query_id != previous:
            # Otherwise an arm would be timed on vectors that the warm-up or an earlier arm left.
            forget_query_vectors()
            previous = query.query_id
        within = Scope(wing=query.wing) if scope == "wing" else None
        result = recaller.recall(query.text, k, profile=profile, scope=within)
        warnings.update(warning.code for warning in result.warnings)
        return [str(memory.id) for memory in result.memories]

    return Arm(name, retrieve, profile.to_json(), warnings)


def forget_query_vectors() -> None:
    """Empty recall's cache of encoded queries; a prompt that was never asked has to be encoded."""
    query_encoder.forget_queries()


def snapshot_ids(recaller: Recaller) -> set[str]:
    """Return the id of every memory of a snapshot, as text."""
    found = recaller.reader.fetch_ids(range(recaller.reader.count))
    return {str(memory_id) for memory_id in found.values()}
