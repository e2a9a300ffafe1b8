"""The profiles that ship: names, one line each, and what they change of the layers below.

What belongs here: values. What does not: merging (`layers`), what a flag does (`fields`).

Sources: seed-hybrid is the hybrid of the integration design, sections A.3 and B; libravdb has the
constants of mathematical reference sections 1 and 7 as its code ships them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from noctuary.recall.profile.fields import OFF

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
