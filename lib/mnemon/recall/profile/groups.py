"""Which flags belong to which phase, in the order in which people read them. Names only."""

from __future__ import annotations

from collections.abc import Mapping

GROUPS: Mapping[str, tuple[str, ...]] = {
    "legs and fusion": (
        "fusion",
        "lexical_weight",
        "dense_weight",
        "graph_weight",
        "importance_prior",
        "exact_match_bonus",
        "rrf_k",
        "depth",
        "lexical_mode",
    ),
    "scorers of libravdb": (
        "scorer",
        "hybrid_similarity_weight",
        "hybrid_recency_weight",
        "hybrid_scope_weight",
        "quality_penalty",
        "session_decay_per_s",
        "user_decay_per_s",
        "global_decay_per_s",
        "coarse_depth",
        "coarse_threshold",
        "keyword_gain",
        "authority_recency_weight",
        "authority_frequency_weight",
        "authority_authored_weight",
        "authority_decay_per_s",
        "authority_floor",
    ),
    "model guard (phase 10)": ("model_guard", "model_guard_strict"),
    "reranker": ("reranker", "rerank_depth", "rerank_timeout_ms"),
    "use, age and newness (phase 1)": (
        "ltp_enabled",
        "ltp_window_days",
        "ltp_max_boost",
        "time_decay_enabled",
        "half_life_days",
        "decay_floor",
        "tagging_enabled",
        "tagging_window_hours",
        "tagging_max_boost",
    ),
    "association (phase 2)": (
        "association_enabled",
        "association_coefficient",
        "association_max_boost",
    ),
    "diversity (phase 5)": ("mmr_enabled", "mmr_lambda"),
    "pinned memories (phase 6)": (
        "pinned_memory_enabled",
        "pinned_boost",
        "pinned_max_items",
        "pinned_max_tokens",
        "pinned_ltp_threshold",
        "pinned_include_tagged",
        "pinned_tagged_window_hours",
    ),
    "query expansion (phase 7)": (
        "query_expansion_enabled",
        "query_expansion_max_terms",
        "query_expansion_similarity_threshold",
        "query_expansion_boost",
        "query_expansion_lookback_days",
    ),
    "superseded memories (phase 8)": (
        "supersede_filter_enabled",
        "supersede_similarity_threshold",
        "supersede_min_age_gap_days",
        "supersede_action",
        "supersede_max_candidates",
    ),
    "summaries (phase 9)": (
        "consolidation_enabled",
        "include_consolidated_summaries",
        "include_consolidated_sources",
    ),
    "balance of wings (phase 11)": (
        "wing_diversity_weight",
        "candidate_pool_multiplier",
        "wing_quota",
    ),
    "explaining (phase 12)": ("explain", "candidate_trace", "replay_log"),
    "scans (phase 14)": ("paginated_scoring", "batch_size", "max_scan_depth"),
    "compaction (phase 13)": (
        "adaptive_compaction",
        "compaction_threshold",
        "compaction_age_days",
        "decay_enabled",
        "decay_lambda",
    ),
}
"""Flags by heading; together every flag once, in declaration order."""
