"""The graph of one opened snapshot, as the graph leg reads it.

What belongs here: arrays and name look-ups of the graph, each read on first use. What does not:
ranking with them (`graph_leg`), showing them (noctuary.graph.view).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from noctuary.graph.arrays import GraphArrays, MentionArrays
from noctuary.graph.conversation import Posting
from noctuary.graph.linking import Name, NameTable
from noctuary.graph.named import subjects_of
from noctuary.graph.sessions import SessionArrays
from noctuary.recall.scope import Mask

if TYPE_CHECKING:
    from noctuary.recall.reader import SnapshotReader


class SnapshotGraph:
    """What the graph leg needs of a snapshot; safe to share between threads."""

    def __init__(self, reader: SnapshotReader) -> None:
        self._reader = reader

    @cached_property
    def edges(self) -> GraphArrays:
        """Steps between memories."""
        return self._reader.graph_edges

    @cached_property
    def mentions(self) -> MentionArrays:
        """Where concepts stand."""
        return self._reader.mentions

    @cached_property
    def sessions(self) -> SessionArrays:
        """Who follows whom."""
        return self._reader.sessions

    @cached_property
    def wings(self) -> NDArray[np.int32] | None:
        """Wing codes, -1 for none; None where nothing has a wing."""
        facet = self._reader.facets["wing"]
        return facet.codes if facet.values else None

    @cached_property
    def _speakers(self) -> frozenset[int]:
        spoken = self.sessions.speakers
        return frozenset(spoken[spoken >= 0].tolist())

    def names_seen(self, mask: Mask | None) -> NameTable:
        """Return the names of concepts that a visible memory is about, or that speak in one.

        A name that only others use would otherwise use up the words of a visible one.
        """
        if mask is None:
            return NameTable(self._longest, self._named)

        def named(asked: Sequence[str]) -> Mapping[str, Name]:
            found = self._named(asked)
            return {name: f for name, f in found.items() if self._is_seen(f.ordinal, mask)}

        return NameTable(self._longest, named)

    def _is_seen(self, ordinal: int, mask: Mask) -> bool:
        return subjects_of(ordinal, self.mentions, mask).size > 0 or self.speaks(ordinal, mask)

    def speaks(self, ordinal: int, mask: Mask | None = None) -> bool:
        """Say whether a concept speaks in any memory that may be seen."""
        if mask is None or ordinal not in self._speakers:
            return ordinal in self._speakers
        return bool((mask & (self.sessions.speakers == ordinal)).any())

    def postings(self, terms: Sequence[str]) -> list[Posting]:
        """Return positions and scores of every known term."""
        reader = self._reader
        return [
            (reader.posting_positions[start:stop], reader.posting_scores[start:stop])
            for start, stop in reader.look_up_terms(terms)
        ]

    def _longest(self, words: Sequence[str]) -> Mapping[str, int]:
        rows = self._reader.look_up("link_starts", "word", "word, words", words)
        return {str(word): int(count) for word, count in rows}

    def _named(self, names: Sequence[str]) -> Mapping[str, Name]:
        rows = self._reader.look_up("links", "name", "name, ordinal, weight, cased", names)
        return {
            str(name): Name(int(ordinal), float(weight), bool(cased))
            for name, ordinal, weight, cased in rows
        }
