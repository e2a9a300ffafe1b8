"""Keeping timed arms honest about the cost of encoding a prompt. No ranking."""

from __future__ import annotations

from noctuary.evaluate.labels import Query
from noctuary.recall import inputs


class Freshness:
    """Empties recall's cache of query vectors whenever an arm turns to another query.

    Without it an arm would be timed on vectors that the warm-up or an earlier arm left. One per
    arm: the deeper, untimed call for the same query may reuse the vector, another arm may not.
    """

    def __init__(self) -> None:
        self._asked: tuple[str, str] | None = None

    def turn_to(self, query: Query) -> None:
        """Forget every vector unless this very query was the last one asked here."""
        asked = (query.query_id, query.text)
        if asked != self._asked:
            inputs.forget_queries()
            self._asked = asked
