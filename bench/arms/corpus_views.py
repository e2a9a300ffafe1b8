"""One set seen two ways, file rows and snapshot positions, and the costly views that arms share.

FTS5 and the seed's graph index every row of the file; vectors exist for what the snapshot holds.
Rows that the export held back are therefore found by keyword arms only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.arms.base import SetContext
from bench.arms.cooccurrence import CooccurrenceGraph
from bench.arms.fts_seed import FtsSeed, SeedRow
from noctuary.core.errors import EncoderError
from noctuary.embed import rotation
from noctuary.embed.rotation import Rotation
from noctuary.evaluate.labels import Query
from noctuary.recall.inputs import encode_query
from noctuary.recall.query import Mask, Scope, build_mask

DEFAULT_IMPORTANCE = 0.5
"""Of a row that states none; the default column value of the reference store."""


class CorpusViews:
    """The views of one set's corpus."""

    def __init__(self, context: SetContext) -> None:
        self.context = context
        self.recaller = context.recaller
        self.row_ids = [str(row["id"]) for row in context.rows]
        self.row_wings: list[str | None] = [row.get("wing") for row in context.rows]
        self.row_importance = [_importance(row) for row in context.rows]

    @cached_property
    def fts(self) -> FtsSeed:
        """The FTS5 index over all rows."""
        return FtsSeed.build(seed_rows(self.context.rows))

    @cached_property
    def graph(self) -> CooccurrenceGraph:
        """The reference's concept graph over all rows."""
        return CooccurrenceGraph.build(self.context.rows)

    @cached_property
    def snapshot_ids(self) -> list[str]:
        """Id of every snapshot position, as text."""
        reader = self.recaller.reader
        found = reader.public_ids(range(reader.count))
        return [str(found[position]) for position in range(reader.count)]

    @cached_property
    def row_of_position(self) -> NDArray[np.int64]:
        """Row of every snapshot position, -1 where the file lacks it."""
        row_of = {memory_id: row for row, memory_id in enumerate(self.row_ids)}
        return np.array([row_of.get(i, -1) for i in self.snapshot_ids], dtype=np.int64)

    @cached_property
    def vectors(self) -> NDArray[np.float32]:
        """The snapshot's vectors, shape (n, d), read into memory.

        Raises:
            EncoderError: If the snapshot was built without vectors.
        """
        stored = self.recaller.reader.vectors
        if stored is None:
            raise EncoderError(
                f"snapshot {self.recaller.snapshot_id} holds no vectors; the dense arms need a "
                "store that was built with an encoder"
            )
        return np.array(stored, dtype=np.float32)

    @cached_property
    def rotation(self) -> Rotation:
        """The store's frozen rotation, or the identity where it has none yet."""
        manifest = self.recaller.reader.manifest
        digest = manifest.encoder_digest or ""
        frozen = rotation.load(self.recaller.paths.rotations / digest)
        dim = int(self.vectors.shape[1])
        return frozen or rotation.identity(dim, digest, "the store has no frozen rotation")

    def wing_of(self, query: Query) -> str | None:
        """Return the wing that a query is confined to, or None for the whole corpus."""
        return query.wing if self.context.scope == "wing" else None

    @cached_property
    def asking_user(self) -> str | None:
        """The user that recall is asked as: who owns most memories, or None if nobody owns any.

        Queries of the sets name no user, and recall shows a named user's memories to that user
        only: asked as nobody it would find nothing in a set that has owners.
        """
        owners = self.recaller.reader.facets["user"]
        held = owners.codes[owners.codes >= 0]
        return owners.values[int(np.bincount(held).argmax())] if held.size else None

    def scope_of(self, query: Query) -> Scope:
        """Return the scope that recall is asked with."""
        return Scope(wing=self.wing_of(query), user=self.asking_user)

    def recall_mask(self, query: Query) -> Mask | None:
        """Return the snapshot positions that recall may see for a query; None for all."""
        reader = self.recaller.reader
        return build_mask(self.scope_of(query), reader.facets, reader.created_at_us)[0]

    def wing_mask(self, query: Query) -> Mask | None:
        """Return the snapshot positions of the query's wing, whoever owns them; None for all.

        For the baselines: the reference's recall knows no users (research/peers.md 2.4).
        """
        wing = self.wing_of(query)
        if wing is None:
            return None
        facet = self.recaller.reader.facets["wing"]
        code = facet.values.index(wing) if wing in facet.values else None
        return facet.codes == code if code is not None else np.zeros(facet.codes.size, dtype=bool)

    def encode(self, query: Query) -> NDArray[np.float32]:
        """Return the query's vector; recall caches it per text."""
        return encode_query(self.recaller.paths, self.recaller.reader.manifest, query.text)


def seed_rows(rows: list[dict[str, Any]]) -> Iterator[SeedRow]:
    """Yield a corpus as the FTS5 baselines index it, positions being places in the file."""
    for position, row in enumerate(rows):
        yield (
            position,
            str(row["content"]),
            str(row.get("category") or ""),
            str(row.get("tags") or ""),
            str(row.get("expanded_keywords") or ""),
            _importance(row),
        )


def _importance(row: dict[str, Any]) -> float:
    value = row.get("importance")
    return DEFAULT_IMPORTANCE if value is None else float(value)
