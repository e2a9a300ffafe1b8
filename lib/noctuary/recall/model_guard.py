"""Phase 10: is the query encoder the one that made the vectors? The verdict, not the consequences.

The whole fingerprint is compared (name, weights, dimension, pooling, prefixes, normalisation,
length limit): two models of one dimension give cosines that look plausible and mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Verdict = Literal["MATCH", "MISMATCH", "UNKNOWN"]


class GuardResult(NamedTuple):
    """What the guard found.

    Attributes:
        verdict: UNKNOWN where either side says nothing about itself.
        ingest: Fingerprint of the encoder that made the vectors, or None.
        query: Fingerprint of the encoder that queries are encoded with, or None.
        differing: Names of the fields that differ.
    """

    verdict: Verdict
    ingest: Mapping[str, Any] | None
    query: Mapping[str, Any] | None
    differing: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """Say what differs and what to do about it."""
        what = ", ".join(self.differing) or "nothing"
        return (
            f"vectors were made by {_name(self.ingest)}, queries are encoded by "
            f"{_name(self.query)} (different: {what}): run the nightly job again with the model "
            "that you want"
        )

    def hook_context(self) -> dict[str, Any]:
        """Return the RFC's context of post_model_guard."""
        return {
            "match": self.verdict == "MATCH",
            "ingest_model": _name(self.ingest),
            "query_model": _name(self.query),
        }

    def trace_event(self, *, blocked: bool) -> dict[str, Any]:
        """Return the RFC's candidate-trace event of a mismatch."""
        return {
            "phase": "model_guard",
            "action": "block" if blocked else "warn",
            "ingest_model": _name(self.ingest),
            "query_model": _name(self.query),
            "dim_ingest": (self.ingest or {}).get("dimension"),
            "dim_query": (self.query or {}).get("dimension"),
        }


def guard_model(ingest: Mapping[str, Any] | None, query: Mapping[str, Any] | None) -> GuardResult:
    """Compare two fingerprints field by field.

    Args:
        ingest: Of the snapshot's vectors; None where it has none.
        query: Of the encoder at hand; None where there is none or it cannot be read.
    """
    if ingest is None or query is None:
        return GuardResult("UNKNOWN", ingest, query)
    names = sorted({*ingest, *query})
    differing = tuple(n for n in names if ingest.get(n) != query.get(n))
    return GuardResult("MISMATCH" if differing else "MATCH", ingest, query, differing)


def _name(fingerprint: Mapping[str, Any] | None) -> str:
    if fingerprint is None:
        return "an unknown model"
    weights = str(fingerprint.get("weights_sha256", ""))[:8]
    return f"{fingerprint.get('model')} ({fingerprint.get('dimension')}, weights {weights})"
