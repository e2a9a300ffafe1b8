"""RetrievalProfile: every flag of a recall, its range, its group and the named profiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from noctuary.core.settings import FUSIONS
from noctuary.core.types import dataclass

# Ranges of a profile's values, as one list of sentences. Rules, nothing else.
#
# Every rule is about one flag: values that are good one by one are good together, so layers can be
# checked before they are merged.


SCORERS = ("fusion", "hybrid", "two_pass")
SUPERSEDE_ACTIONS = ("filter", "annotate")
RAW = "raw"
SUMMARIES = "summaries"
TURN_VIEWS = (RAW, SUMMARIES)
OWN = "own"
TURNS = "turns"
SUMMARY_VECTORS = (OWN, TURNS)

CHOICES: Mapping[str, tuple[str, ...]] = {
    "fusion": FUSIONS,
    "scorer": SCORERS,
    "supersede_action": SUPERSEDE_ACTIONS,
    "turn_view": TURN_VIEWS,
    "summary_vectors": SUMMARY_VECTORS,
}
"""Flags that are one of a few words."""

MOST_DAYS = 1_000_000
"""2,700 years: in microseconds still well within 64 bits, and no memory is older."""
LEAST_DURATION = 1e-6
MOST_DURATION = 1e9
"""Of times that are real numbers: quotients and microseconds of them stay finite."""
MOST_WEIGHT = 1e9
MOST_BOOST = 1e6
"""Products of all factors that a recall knows stay finite; nobody needs a millionth of it."""
MOST_WHOLE = 2**31 - 1
"""Of counts: more rows than that are not addressed by the pack's int32 codes."""


class Range(NamedTuple):
    """Both ends belong to it.

    Attributes:
        low: Least value.
        high: Largest value.
        sentence: How it is written, e.g. "must lie in [0, 1]".
    """

    low: float
    high: float
    sentence: str


_SHARES = (
    "importance_prior",
    "hybrid_similarity_weight",
    "hybrid_recency_weight",
    "hybrid_scope_weight",
    "quality_penalty",
    "authority_recency_weight",
    "authority_frequency_weight",
    "authority_authored_weight",
    "authority_floor",
    "decay_floor",
    "mmr_lambda",
    "pinned_boost",
    "query_expansion_similarity_threshold",
    "query_expansion_boost",
    "supersede_similarity_threshold",
    "compaction_threshold",
)
_NOT_NEGATIVE = (
    "lexical_weight",
    "dense_weight",
    "graph_weight",
    "session_weight",
    "exact_match_bonus",
    "session_decay_per_s",
    "user_decay_per_s",
    "global_decay_per_s",
    "keyword_gain",
    "authority_decay_per_s",
    "association_coefficient",
    "wing_diversity_weight",
    "decay_lambda",
)
_DURATIONS = (
    "rerank_timeout_ms",
    "half_life_days",
    "tagging_window_hours",
    "pinned_tagged_window_hours",
)
_BOOSTS = (
    "ltp_max_boost",
    "tagging_max_boost",
    "association_max_boost",
    "pinned_ltp_threshold",
)
_AT_LEAST_ONE = (
    "rrf_k",
    "depth",
    "coarse_depth",
    "rerank_depth",
    "pinned_max_items",
    "pinned_max_tokens",
    "query_expansion_max_terms",
    "supersede_max_candidates",
    "candidate_pool_multiplier",
    "batch_size",
)
_AT_LEAST_ZERO = ("wing_quota", "max_scan_depth")
_DAYS = ("ltp_window_days", "query_expansion_lookback_days")
_DAYS_OR_NONE = ("supersede_min_age_gap_days", "compaction_age_days")


def _between(low: float, high: float) -> str:
    return f"must lie in [{_number(low)}, {_number(high)}]"


def _number(value: float) -> str:
    """Short where that loses nothing: 1e+09, and 2147483647 in full."""
    short = f"{value:g}"
    return short if float(short) == value else str(value)


RANGES: Mapping[str, Range] = {
    name: found
    for names, found in (
        (_SHARES, Range(0.0, 1.0, _between(0, 1))),
        (_NOT_NEGATIVE, Range(0.0, MOST_WEIGHT, _between(0, MOST_WEIGHT))),
        (
            _DURATIONS,
            Range(
                LEAST_DURATION,
                MOST_DURATION,
                f"must lie in [{LEAST_DURATION:g}, {MOST_DURATION:g}]",
            ),
        ),
        (_BOOSTS, Range(1.0, MOST_BOOST, _between(1, MOST_BOOST))),
        (("coarse_threshold",), Range(-1.0, 1.0, _between(-1, 1))),
        (_AT_LEAST_ONE, Range(1, MOST_WHOLE, _between(1, MOST_WHOLE))),
        (_AT_LEAST_ZERO, Range(0, MOST_WHOLE, _between(0, MOST_WHOLE))),
        (_DAYS, Range(1, MOST_DAYS, _between(1, MOST_DAYS))),
        (_DAYS_OR_NONE, Range(0, MOST_DAYS, _between(0, MOST_DAYS))),
    )
    for name in names
}
"""Range of every number; infinities and NaN lie in none of them."""


def value_faults(values: Mapping[str, Any], types: Mapping[str, type]) -> list[str]:
    """Return one sentence per value of the wrong type or out of range; empty if none.

    Args:
        values: Some flags, each one of `types`.
        types: Type of every flag; a whole number is good where a float is due.
    """
    found = (_fault(name, value, types[name]) for name, value in values.items())
    return [fault for fault in found if fault is not None]


def _fault(name: str, value: Any, kind: type) -> str | None:
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        return f"{name} must be {kind.__name__}, found {value!r}"
    if name in CHOICES and value not in CHOICES[name]:
        return f"{name} must be one of {', '.join(CHOICES[name])}, found {value!r}"
    # Comparing, and not math.isfinite: a whole number may be too large for a float.
    if name in RANGES and not RANGES[name].low <= value <= RANGES[name].high:
        return f"{name} {RANGES[name].sentence}, found {value!r}"
    return None


# RetrievalProfile: every flag of a recall with its built-in default. Declarations only.
#
# Defaults of phases 1 to 9 are those of the reference pipeline (research notes on MemPalace,
# section 1), of 10 to 14 those of the RFC, of the scorers those of libravdb 1.3.12; where noctuary
# departs from them, docs/decisions/0007 says why.


@dataclass(frozen=True, slots=True)
class RetrievalProfile:
    """How one recall ranks: immutable, validated as a whole.

    Attributes:
        fusion: "cc" keeps how much better a hit is; "rrf" is indifferent to score scales
            (docs/decisions/0006 has the measured difference).
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
            at the price of what a summary leaves out; never both (docs/decisions/0018).
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


# Which flags belong to which phase, in the order in which people read them. Names only.


GROUPS: Mapping[str, tuple[str, ...]] = {
    "legs and fusion": (
        "fusion",
        "lexical_weight",
        "dense_weight",
        "graph_weight",
        "session_weight",
        "importance_prior",
        "exact_match_bonus",
        "rrf_k",
        "depth",
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
        "turn_view",
        "summary_vectors",
        "include_archived",
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


# The profiles that ship: names, one line each, and what they change of the layers below.
#
# Sources: seed-hybrid is the hybrid of the integration design, sections A.3 and B; libravdb has
# the constants of mathematical reference sections 1 and 7 as its code ships them.


DEFAULT = "default"
"""The profile that is always there; an unknown name falls back to it."""

INHERITS = "inherits"
"""Key of a profile's table that names its parent."""
DESCRIPTION = "description"
"""Key of a profile's table with one line for `noctuary profile list`."""


class Shipped(NamedTuple):
    """A profile that ships.

    Attributes:
        description: One line.
        values: Flags and, under `inherits`, the name of a parent.
    """

    description: str
    values: Mapping[str, Any]


SHIPPED: Mapping[str, Shipped] = {
    DEFAULT: Shipped("the built-in values, and what configuration and store say", {}),
    "off": Shipped("plain fusion: no graph, no importance, every phase off", OFF),
    "seed-hybrid": Shipped(
        "the reference hybrid: RRF (k 60, depth 50, weights 1 and 1) of words and cosine, then "
        "importance",
        {
            **OFF,
            "fusion": "rrf",
            "lexical_weight": 1.0,
            "dense_weight": 1.0,
            "rrf_k": 60,
            "depth": 50,
            "importance_prior": 0.3,
        },
    ),
    "synapse": Shipped(
        "the reference pipeline's own defaults: use, age without a floor and the first day count",
        {
            "ltp_enabled": True,
            "tagging_enabled": True,
            "time_decay_enabled": True,
            "decay_floor": 0.0,
        },
    ),
    "compact": Shipped(
        "old turns by their summaries alone: fewer tokens searched and more shown per result",
        # The reference's penalty of .5 puts a summary behind every turn that stays as it is.
        {"turn_view": "summaries", "summary_vectors": "turns", "quality_penalty": 0.05},
    ),
    "libravdb": Shipped(
        "libravdb section 1: cosine, recency and scope, times the quality of summaries; no phases",
        {
            **OFF,
            "scorer": "hybrid",
            "hybrid_similarity_weight": 0.7,
            "hybrid_recency_weight": 0.2,
            "hybrid_scope_weight": 0.1,
            "quality_penalty": 0.5,
            "session_decay_per_s": 1e-4,
            "user_decay_per_s": 1e-5,
            "global_decay_per_s": 2e-6,
            "coarse_depth": 16,
            "coarse_threshold": 0.2,
            "keyword_gain": 0.3,
            "authority_recency_weight": 0.5,
            "authority_frequency_weight": 0.2,
            "authority_authored_weight": 0.3,
            "authority_decay_per_s": 1e-5,
        },
    ),
    "libravdb-two-pass": Shipped(
        "libravdb section 7 without noctuary's floor: authority erases what is days old",
        {INHERITS: "libravdb", "scorer": "two_pass", "authority_floor": 0.0},
    ),
}
"""Shipped profiles by name."""
