"""Looking into the graph of a published snapshot, as `noctuary graph` does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from noctuary.graph.view import GraphSource, NameBook, open_graph
from noctuary.recall.query import Scope, build_mask
from noctuary.recall.reader import SnapshotReader
from tests.support.graph_snapshot import GraphSpec

Look = Callable[..., GraphSource]
Publish = Callable[[GraphSpec], Look]


def find(source: GraphSource, name: str) -> tuple[NameBook, int]:
    """Return the book and the ordinal of a name that exists."""
    book = NameBook(source)
    ordinal = book.find(name)
    assert ordinal is not None
    return book, ordinal


def looks_into(snapshot: Path, stack: ExitStack) -> Look:
    """Open a snapshot's graph for a user and moments; closed with the stack."""

    def look(
        *,
        user: str | None = None,
        wing: str | None = None,
        as_of_us: int | None = None,
        known_at_us: int | None = None,
    ) -> GraphSource:
        reader = SnapshotReader.open(snapshot)
        stack.callback(reader.close)
        mask, _ = build_mask(Scope(user=user, wing=wing), reader.facets, reader.created_at_us)
        opened = open_graph(
            snapshot,
            mask,
            reader.created_at_us,
            reader.relations,
            ids_are_integers=True,
            as_of_us=as_of_us,
            known_at_us=known_at_us,
        )
        return stack.enter_context(opened)

    return look
