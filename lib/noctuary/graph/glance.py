"""The graph at a glance: its best-known concepts and a few merges, as Markdown for the night's UI.

What is shown stays in an event log for good, whatever happens to the memories: only short names of
concepts that several memories hold, and never a span of text.
"""

from __future__ import annotations

from typing import Any

from noctuary.arrow import arrow_compute
from noctuary.graph.fold import concept_id
from noctuary.graph.tables import ArrowTable, GraphTables

SHOWN_ROWS = 20
"""Rows of each table; more would not be read."""

NAME_MAX_CHARS = 24
"""Longest name shown: longer ones are often half a sentence of a memory."""

SHOWN_DF_MIN = 3
"""Fewest memories that hold a concept that is shown: one memory's own words stay in the store."""


def top_concepts(tables: GraphTables) -> str:
    """Return the concepts that most memories hold, as a Markdown table."""
    rows = [
        f"| {_cell(row['canonical_name'])} | {row['kind']} | {row['df']} |"
        for row in _best_known(tables.concepts)
    ]
    return _table(("concept", "kind", "memories"), rows[:SHOWN_ROWS])


def sample_merges(tables: GraphTables) -> str:
    """Return merges into the best-known concepts, as a Markdown table."""
    places = {row["concept_id"]: i for i, row in enumerate(_best_known(tables.concepts))}
    merges: list[tuple[int, str, dict[str, Any]]] = [
        (places[key], merge["name"], merge)
        for merge in tables.merges.to_pylist()
        if (key := concept_id(merge["canonical"])) in places and _is_short(merge["name"])
    ]
    rows = [
        f"| {_cell(merge['name'])} | {_cell(merge['canonical'])} | {merge['reason']} | "
        f"{merge['score']:.2f} |"
        for _, _, merge in sorted(merges, key=lambda item: item[:2])
    ]
    return _table(("name", "concept", "reason", "score"), rows[:SHOWN_ROWS])


def _best_known(concepts: ArrowTable) -> list[dict[str, Any]]:
    pc = arrow_compute()

    known = concepts.filter(pc.greater_equal(concepts["df"], SHOWN_DF_MIN))
    ordered = known.sort_by([("df", "descending"), ("concept_id", "ascending")])
    columns = ordered.select(["concept_id", "canonical_name", "kind", "df"])
    return [row for row in columns.to_pylist() if _is_short(row["canonical_name"])]


def _is_short(name: str) -> bool:
    return len(name) <= NAME_MAX_CHARS


def _table(columns: tuple[str, ...], rows: list[str]) -> str:
    return "\n".join([f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *rows])


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")
