"""RetrievalProfile: every flag of a recall with its built-in default. Declarations only.

What belongs here: names, types, defaults and what each one trades. What does not: ranges
(`rules`), where values come from (`layers`), profiles with a name (`named`).

Defaults of phases 1 to 9 are those of the reference pipeline (research notes on MemPalace, section
1), of 10 to 14 those of the RFC, of the scorers those of libravdb 1.3.12; where noctuary departs
from them, docs/decisions/0025 says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from noctuary.recall.profile.rules import value_faults
from noctuary.values import dataclass


@dataclass(frozen=True, slots=True)
class RetrievalProfile:
    """How one recall ranks: immutable, validated as a whole.

    Attributes:
        fusion: "cc" keeps how much better a hit is; "rrf" is indifferent to score scales
            (docs/decisions/0008 has the measured difference).
        lexical_weight: Weight of the lexical leg; 0 switches it off.
        dense_weight: Weight of the dense leg; 0 switches it off.
        graph_weight: Factor on everything that the concept graph adds; 0 switches it off.
        session_weight: Further factor on what memories of one session lend each other; 0 leaves
            sessions out of the graph.
        importance_prior: p in score * ((1 - p) + p * importance); 0 ignores importance.
        exact_match_bonus: Added to the score of a memory that holds every word of the query; it
            lifts literal hits that rank fusion mixes with near-ties, and 0 switches it off.
        rrf_k: Rank offset of RRF in ranks; larger flattens the head (Cormack 2009 uses 60).
        depth: Candidates taken from each leg before fusion; more costs time, less loses fused hits.
        scorer: "fusion" (the four lines above), "hybrid" (libravdb section 1) or "two_pass"
            (libravdb section 7); the last two rank by cosine and need vectors.
        hybrid_similarity_weight: alpha of section 1, share of cosine.
        hybrid_recency_weight: beta of section 1, share of recency.
        hybrid_scope_weight: gamma of section 1, share of the memory's scope.
        quality_penalty: delta of section 1: what a summary of confidence 0 loses, in [0, 1].
        session_decay_per_s: Recency decay of the active session's memories (half-life 1.9 h).
        user_decay_per_s: Of the user's durable memories (19 h).
        global_decay_per_s: Of memories that belong to nobody in a store of several users (4 d).
        coarse_depth: k1 of section 7, candidates of the first pass.
        coarse_threshold: theta1 of section 7, least cosine of the first pass.
        keyword_gain: kappa of section 7; larger punishes answers without the query's words.
        authority_recency_weight: alpha_r of section 7.
        authority_frequency_weight: alpha_f of section 7.
        authority_authored_weight: alpha_a of section 7.
        authority_decay_per_s: lambda_r of section 7.
        authority_floor: Least factor that authority may multiply with; 0 is the reference, which
            erases whatever is older than days.
        model_guard: Compare the query encoder with the one that made the vectors.
        model_guard_strict: Answer with nothing on a mismatch instead of without the dense leg.
        reranker: Name or directory of a cross-encoder for the head of the list; empty: none.
        rerank_depth: Memories that it reads.
        rerank_timeout_ms: After this long the fused order stands, with a warning.
        ltp_enabled: Phase 1, lift what was recalled often lately.
        ltp_window_days: Retrievals of this many days count.
        ltp_max_boost: Largest multiplier, >= 1.
        time_decay_enabled: Phase 1, let age lower the score.
        half_life_days: Age at which what decays has halved.
        decay_floor: Share of the score that age never takes, in [0, 1]; 0 is the reference.
        tagging_enabled: Phase 1, lift what was filed in the last hours.
        tagging_window_hours: Until when; the boost falls to 1 linearly.
        tagging_max_boost: Multiplier of a memory filed this moment, >= 1.
        association_enabled: Phase 2, lift what was recalled together with the other candidates.
        association_coefficient: c in 1 + c * ln(1 + co-retrievals).
        association_max_boost: Largest multiplier, >= 1.
        mmr_enabled: Phase 5, trade relevance for diversity (maximal marginal relevance).
        mmr_lambda: Share of relevance, in [0, 1]; 1 leaves the order alone.
        pinned_memory_enabled: Phase 6, lift what was used most or filed last.
        pinned_boost: What a pinned memory gains: score + boost * (1 - score).
        pinned_max_items: At most so many memories are pinned.
        pinned_max_tokens: And at most so many tokens of them.
        pinned_ltp_threshold: LTP multiplier from which a memory may be pinned.
        pinned_include_tagged: Pin what was filed lately, and what is tagged "pinned".
        pinned_tagged_window_hours: What lately means.
        query_expansion_enabled: Phase 7, ask again with words of what similar queries found.
        query_expansion_max_terms: At most so many further questions.
        query_expansion_similarity_threshold: Least cosine of a past query.
        query_expansion_boost: Factor on the score of what only a further question found.
        query_expansion_lookback_days: How far back past queries count.
        supersede_filter_enabled: Phase 8, notice a newer memory that says the same thing anew.
        supersede_similarity_threshold: Least cosine between the two.
        supersede_min_age_gap_days: Least distance in time between the two.
        supersede_action: "filter" removes the older, "annotate" says so on both.
        supersede_max_candidates: At most so many memories are superseded in one recall.
        consolidation_enabled: Phase 9, let an accepted summary stand for the turns it was made of.
        include_consolidated_summaries: Put the summary in the place of its turns; off, the turns
            stay and only name it.
        include_consolidated_sources: Name the turns under the summary.
        turn_view: What is searched of a conversation: "raw" its turns, "summaries" the accepted
            summaries in the place of the turns that they cover. Fewer tokens to search and to show,
            at the price of what a summary leaves out; never both (docs/decisions/0040).
        summary_vectors: What the dense leg knows a searched summary by: "own", the vector of its
            text, or "turns", the mean of its two turns nearest to the query.
        include_archived: Search archived memories as if they were not, and in their place the
            summaries of no compaction plan.
        wing_diversity_weight: Phase 11, gamma of the saturation penalty; 0 is plain MMR.
        candidate_pool_multiplier: Candidates per leg, as a multiple of `depth`.
        wing_quota: Best memories of every wing that enter the pool whatever the others hold; only
            with MMR and a wing_diversity_weight above 0.
        explain: Phase 12, return a score breakdown.
        candidate_trace: Return what was dropped, where and why.
        replay_log: Append what a re-run needs to the store's replay log, the query's text included.
        paginated_scoring: Phase 14, scan the store in keyset batches.
        batch_size: Rows per batch.
        max_scan_depth: Rows that a scan reads at most; 0 reads all.
        adaptive_compaction: Phase 13, choose compaction candidates by use.
        compaction_threshold: Normalised LTP score below which a memory may be compacted.
        compaction_age_days: Least days since its last retrieval.
        decay_enabled: Let the normalised LTP score decay since the last retrieval.
        decay_lambda: Decay per day.
    """

    fusion: str = "cc"
    lexical_weight: float = 0.5
    dense_weight: float = 0.5
    graph_weight: float = 1.0
    session_weight: float = 1.0
    importance_prior: float = 0.3
    exact_match_bonus: float = 0.0
    rrf_k: int = 60
    depth: int = 50
    scorer: str = "fusion"
    hybrid_similarity_weight: float = 0.7
    hybrid_recency_weight: float = 0.2
    hybrid_scope_weight: float = 0.1
    quality_penalty: float = 0.5
    session_decay_per_s: float = 1e-4
    user_decay_per_s: float = 1e-5
    global_decay_per_s: float = 2e-6
    coarse_depth: int = 16
    coarse_threshold: float = 0.2
    keyword_gain: float = 0.3
    authority_recency_weight: float = 0.5
    authority_frequency_weight: float = 0.2
    authority_authored_weight: float = 0.3
    authority_decay_per_s: float = 1e-5
    authority_floor: float = 0.5
    model_guard: bool = True
    model_guard_strict: bool = False
    reranker: str = ""
    rerank_depth: int = 30
    rerank_timeout_ms: float = 1500.0
    ltp_enabled: bool = False
    ltp_window_days: int = 30
    ltp_max_boost: float = 2.0
    time_decay_enabled: bool = False
    half_life_days: float = 90.0
    decay_floor: float = 0.9
    tagging_enabled: bool = False
    tagging_window_hours: float = 24.0
    tagging_max_boost: float = 1.5
    association_enabled: bool = False
    association_coefficient: float = 0.15
    association_max_boost: float = 1.5
    mmr_enabled: bool = False
    mmr_lambda: float = 0.7
    pinned_memory_enabled: bool = False
    pinned_boost: float = 0.04
    pinned_max_items: int = 5
    pinned_max_tokens: int = 2000
    pinned_ltp_threshold: float = 1.5
    pinned_include_tagged: bool = True
    pinned_tagged_window_hours: float = 48.0
    query_expansion_enabled: bool = False
    query_expansion_max_terms: int = 3
    query_expansion_similarity_threshold: float = 0.65
    query_expansion_boost: float = 0.7
    query_expansion_lookback_days: int = 60
    supersede_filter_enabled: bool = False
    supersede_similarity_threshold: float = 0.86
    supersede_min_age_gap_days: int = 7
    supersede_action: str = "filter"
    supersede_max_candidates: int = 10
    consolidation_enabled: bool = False
    include_consolidated_summaries: bool = True
    include_consolidated_sources: bool = False
    turn_view: str = "raw"
    summary_vectors: str = "own"
    include_archived: bool = False
    wing_diversity_weight: float = 0.3
    candidate_pool_multiplier: int = 1
    wing_quota: int = 2
    explain: bool = False
    candidate_trace: bool = False
    replay_log: bool = False
    paginated_scoring: bool = True
    batch_size: int = 5000
    max_scan_depth: int = 0
    adaptive_compaction: bool = False
    compaction_threshold: float = 0.3
    compaction_age_days: int = 30
    decay_enabled: bool = False
    decay_lambda: float = 0.01

    def __post_init__(self) -> None:
        faults = value_faults({name: getattr(self, name) for name in FIELD_NAMES}, FIELD_TYPES)
        if faults:
            raise ValueError("; ".join(faults))

    @staticmethod
    def off() -> RetrievalProfile:
        """Return plain fusion: both legs, no graph, no prior, every phase off."""
        return replace(RetrievalProfile(), **OFF)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        # Not asdict, which copies every value: this runs with every recall.
        return {name: getattr(self, name) for name in FIELD_NAMES}


FIELD_NAMES: tuple[str, ...] = tuple(field.name for field in fields(RetrievalProfile))
"""Every flag, in declaration order."""

FIELD_TYPES: Mapping[str, type] = {
    field.name: type(field.default) for field in fields(RetrievalProfile)
}
"""Type of every flag: bool, int, float or str."""

OFF: Mapping[str, Any] = {
    "graph_weight": 0.0,
    "importance_prior": 0.0,
    "exact_match_bonus": 0.0,
    "scorer": "fusion",
    "model_guard": False,
    "model_guard_strict": False,
    "reranker": "",
    "ltp_enabled": False,
    "time_decay_enabled": False,
    "tagging_enabled": False,
    "association_enabled": False,
    "mmr_enabled": False,
    "pinned_memory_enabled": False,
    "query_expansion_enabled": False,
    "supersede_filter_enabled": False,
    "consolidation_enabled": False,
    "turn_view": "raw",
    "include_archived": False,
    "wing_diversity_weight": 0.0,
    "candidate_pool_multiplier": 1,
    "explain": False,
    "candidate_trace": False,
    "replay_log": False,
    "adaptive_compaction": False,
    "decay_enabled": False,
}
"""Everything that plain fusion is without, said also where the built-in default says the same: a
layer below may have switched it on. How fast a scan reads (`paginated_scoring`) changes no result
and stays."""
