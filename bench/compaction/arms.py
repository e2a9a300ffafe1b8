"""The ways to compact that are compared: settings of a night by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noctuary.recall.profile import SHIPPED

ARMS: Mapping[str, Mapping[str, str]] = {
    "sentences": {},
    "central turns": {"NOCTUARY_COMPACTION_SUMMARIZER": "extractive"},
    "10 turns per summary": {"NOCTUARY_COMPACTION_CLUSTER_SIZE": "10"},
    "40 turns per summary": {"NOCTUARY_COMPACTION_CLUSTER_SIZE": "40"},
}
"""By name, the environment of the night; the first one is the default."""

VIEWS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "compact": ({}, SHIPPED["compact"].values),
    "own vectors": ({}, {**SHIPPED["compact"].values, "summary_vectors": "own"}),
    "whole summaries": ({}, {**SHIPPED["compact"].values, "consolidation_enabled": True}),
    "fusion alone": (
        {"graph_weight": 0.0},
        {**SHIPPED["compact"].values, "graph_weight": 0.0},
    ),
}
"""By name, what differs from the default profile where turns are searched, and where summaries
are."""
