"""Merge decisions: which names are one concept, why, and how to undo one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from noctuary.graph.view.model import MergeView
from noctuary.graph.view.names import NameBook, Names
from noctuary.graph.view.source import GraphSource

_COLUMNS = "name, canonical, reason, score, detail"


def merges_into(source: GraphSource, names: Names) -> tuple[MergeView, ...]:
    """Return the merges that made a concept, of names that may be seen, by name."""
    sql = f"SELECT {_COLUMNS} FROM merges WHERE canonical IN"
    found = sorted(_view(row) for row in source.query_in(sql, sorted(names.folded)))
    return tuple(m for m in found if names.complete or {m.name, m.canonical} <= names.folded)


def list_merges(source: GraphSource, book: NameBook) -> list[MergeView]:
    """Return every merge whose two names may be seen, by canonical name, then name."""
    return sorted(_visible(source, book), key=lambda m: (m.canonical, m.name))


def undo_line(merge: MergeView) -> str:
    """Return the line of `merges.toml` that keeps two names apart from the next night on."""
    pair = ", ".join(json.dumps(name, ensure_ascii=False) for name in (merge.name, merge.canonical))
    return f"never = [[{pair}]]"


def _visible(source: GraphSource, book: NameBook) -> Iterator[MergeView]:
    rows = source.query(
        "SELECT merges.name, canonical, reason, score, detail, ordinal FROM merges "
        "JOIN concept_names ON concept_names.name = merges.canonical"
    )
    for *row, ordinal in rows:
        merge, names = _view(row), book.names(ordinal)
        if names is None:
            continue
        if names.complete or {merge.name, merge.canonical} <= names.folded:
            yield merge


def _view(row: Sequence[Any]) -> MergeView:
    name, canonical, reason, score, detail = row
    return MergeView(str(name), str(canonical), str(reason), float(score), str(detail))
