"""Ranges of a profile's values, as one list of sentences. Rules, nothing else.

Every rule is about one flag: values that are good one by one are good together, so layers can be
checked before they are merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from noctuary.settings import FUSIONS

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
