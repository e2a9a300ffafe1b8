"""Sessions and cluster texts from the files of a corpus, in bounded memory.

What belongs here: the two sorted scans (turns by session, texts by cluster) and their batches. What
does not: grouping and summarising. DuckDB sorts and spills beside the tables; what Python holds is
one session's turns without their texts, or one batch of clusters with them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.cluster_table import iter_clusters
from noctuary.compact.cluster_text import ClusterText
from noctuary.compact.clusters import Cluster
from noctuary.compact.eligibility import SessionTurn
from noctuary.compact.vector_rows import VectorRows
from noctuary.corpus.engine import open_duckdb
from noctuary.text.sentences import CLOSING_CHARS, QUESTION_MARKS

MEMORY_LIMIT = "512MB"
"""What DuckDB may hold before it spills. Larger sorts more turns without touching the disk; the
night around it has its own tables in memory."""

ROWS_PER_READ = 8_192
"""Rows handed over at once."""

BATCH_CLUSTERS = 256
"""Clusters summarised together. Larger fills the encoder better, smaller bounds memory: one batch
holds the texts and the vectors of about 256 * 20 turns."""

BATCH_CHARS = 4_000_000
"""A batch also ends where its texts reach this many characters: long turns bound it before the
number of clusters does."""

_SESSIONS = """
    SELECT t.position, t.memory_id, m.content_hash, t.created_at_us, t.session_id, t."user",
           m.wing, t.speaker, m.asks, m.chars
    FROM read_parquet($turns) AS t
    JOIN (
        SELECT position, content_hash, wing, length(content) AS chars,
               contains($marks, right(rtrim(content, $closing), 1))
                   AND rtrim(content, $closing) <> '' AS asks
        FROM read_parquet($memories)
        WHERE is_turn
    ) AS m ON m.position = t.position
    ORDER BY t.session_id, t."user" NULLS FIRST, t.ordinal
"""

_TEXTS = """
    SELECT m.content
    FROM wanted AS w
    JOIN read_parquet($memories) AS m ON m.position = w.position
    ORDER BY w.place
"""


@dataclass(frozen=True, slots=True)
class ClusterSources:
    """The files that cluster texts are read from.

    Attributes:
        clusters: The cluster table.
        memories: The export's memories.parquet, in order of position.
        vectors: Document vectors by position, `.npy`, shape (n, d).
    """

    clusters: Path
    memories: Path
    vectors: Path


def iter_sessions(turns: Path, memories: Path) -> Iterator[list[SessionTurn]]:
    """Yield the turns of every session and user, chronological by (created_at_us, position).

    Sessions come by session id, then user, nobody's first. One session is in memory at a time: with
    one of a million turns the process takes 1 GB.

    Args:
        turns: The export's turns.parquet.
        memories: Its memories.parquet.
    """
    rows = _session_turns(turns, memories)
    for _, session in groupby(rows, key=lambda turn: (turn.session_id, turn.user)):
        yield list(session)


def count_later(turns: Path, now_us: int) -> int:
    """Return how many turns are dated after a moment, from one column of turns.parquet."""
    import pyarrow.parquet as pq

    later = 0
    with pq.ParquetFile(turns) as table:
        for batch in table.iter_batches(columns=["created_at_us"]):
            created: NDArray[np.int64] = batch.column("created_at_us").to_numpy()
            later += int((created > now_us).sum())
    return later


def iter_cluster_texts(
    sources: ClusterSources, *, skip: Container[str] = frozenset()
) -> Iterator[list[ClusterText]]:
    """Yield all clusters of a table in its order, with what their members say and where they point.

    A batch ends at BATCH_CLUSTERS clusters or BATCH_CHARS characters.

    Args:
        sources: Where to read.
        skip: Ids of clusters whose texts are not needed; they come without contents and vectors.
    """
    wanted = _wanted_positions(iter_clusters(sources.clusters), skip)
    texts = _texts(sources.memories, wanted)
    with VectorRows(sources.vectors) as vectors:
        batch: list[ClusterText] = []
        chars = 0
        for cluster in iter_clusters(sources.clusters):
            members = () if cluster.cluster_id in skip else cluster.member_positions
            contents = [next(texts) for _ in members]
            chars += sum(map(len, contents))
            batch.append(ClusterText(cluster, contents, vectors.take(members)))
            if len(batch) >= BATCH_CLUSTERS or chars >= BATCH_CHARS:
                yield batch
                batch, chars = [], 0
        if batch:
            yield batch


def iter_clusters_only(path: Path) -> Iterator[list[ClusterText]]:
    """Yield all clusters of a table in its order, BATCH_CLUSTERS at once, without what they say."""
    clusters = iter_clusters(path)
    nothing = np.empty((0, 0), dtype=np.float32)
    while batch := [ClusterText(c, (), nothing) for c in islice(clusters, BATCH_CLUSTERS)]:
        yield batch


def _session_turns(turns: Path, memories: Path) -> Iterator[SessionTurn]:
    names = _Shared()
    parameters = {
        "turns": str(turns),
        "memories": str(memories),
        "marks": QUESTION_MARKS,
        "closing": CLOSING_CHARS,
    }
    with open_duckdb(turns.parent) as db:
        db.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        reader = db.sql(_SESSIONS, params=parameters).to_arrow_reader(ROWS_PER_READ)
        for rows in reader:
            columns = [rows.column(i).to_pylist() for i in range(rows.num_columns)]
            for i in _REPEATING:
                columns[i] = list(map(names.of, columns[i]))
            yield from map(SessionTurn._make, zip(*columns, strict=True))


_REPEATING = tuple(map(SessionTurn._fields.index, ("session_id", "user", "wing", "speaker")))


@dataclass(slots=True)
class _Shared:
    """Equal strings as one object: sessions, users and speakers repeat with every turn."""

    _known: dict[str | None, str | None] = field(default_factory=dict[str | None, str | None])

    def of(self, value: str | None) -> str | None:
        return self._known.setdefault(value, value)


def _wanted_positions(clusters: Iterable[Cluster], skip: Container[str]) -> NDArray[np.int64]:
    """Return the members of all clusters that are not skipped, in order: 8 bytes per turn."""
    parts = [
        np.asarray(cluster.member_positions, dtype=np.int64)
        for cluster in clusters
        if cluster.cluster_id not in skip
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _texts(memories: Path, wanted: NDArray[np.int64]) -> Iterator[str]:
    """Yield the contents at some positions, in the order of `wanted`."""
    if not len(wanted):
        return
    import pyarrow as pa

    places = pa.table({"place": np.arange(len(wanted)), "position": wanted})
    with open_duckdb(memories.parent) as db:
        db.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        db.register("wanted", places)
        reader = db.sql(_TEXTS, params={"memories": str(memories)}).to_arrow_reader(ROWS_PER_READ)
        for rows in reader:
            yield from rows.column(0).to_pylist()
