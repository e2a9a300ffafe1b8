"""Clusters of turns: which turns may be compacted, how they are grouped, and their texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import accumulate, groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import StoreError
from noctuary.core.files import hash_text, replacement
from noctuary.core.types import UNDATED_US
from noctuary.sources.corpus import open_duckdb
from noctuary.text.marks import CLOSING_CHARS, QUESTION_MARKS

# Turns of a session that may be compacted: all but its recent tail and those with wrong dates.

PROTECTED_TAIL_TURNS = 4  # the newest of each session stay raw; the reference's default
MAX_BUNDLE_TURNS = 8  # most turns by which a tail is extended to the question of its first answer
# A longer turn stays raw: encoders read its beginning only, so the gate could not vouch for the
# rest.
GIANT_TURN_CHARS = 20_000

_REQUESTERS = frozenset({"user", "human", "customer", "client"})
_RESPONDERS = frozenset({"assistant", "ai", "agent", "bot", "chatbot", "model"})


class SessionTurn(NamedTuple):
    """A turn without its text."""

    position: int
    memory_id: str
    content_hash: str
    created_at_us: int  # UNDATED_US where unknown
    session_id: str
    user: str | None
    wing: str | None
    speaker: str | None
    asks: bool  # its text ends in a question mark (`noctuary.text.marks`)
    chars: int


class Eligibility(NamedTuple):
    """The turns of one session, each in exactly one of four places; `bundled` are protected too."""

    eligible: list[SessionTurn]  # chronological
    protected: int  # raw as the recent tail
    bundled: int  # by which the tail was extended to reach a question
    ahead: int  # raw because they are dated after now
    giant: int  # raw because they are too long to be judged


def split_session(turns: Sequence[SessionTurn], *, protected_tail: int, now_us: int) -> Eligibility:
    """Split the turns of a session and user, in time order, into those to compact and the rest.

    Turns dated after now are set aside first: their clock is wrong, and they must not push the real
    newest turns out of the tail. Undated turns are the oldest.
    """
    present = [turn for turn in turns if turn.created_at_us <= now_us]
    tail = min(max(protected_tail, 0), len(present))
    start = bundle_start(present, len(present) - tail)
    eligible = [turn for turn in present[:start] if turn.chars <= GIANT_TURN_CHARS]
    protected, ahead = len(present) - start, len(turns) - len(present)
    return Eligibility(eligible, protected, protected - tail, ahead, start - len(eligible))


def bundle_start(turns: Sequence[SessionTurn], start: int) -> int:
    """Return where a tail from `start` on must begin so that its first answer keeps its question.

    Only a request is coupled to its response, never a response to the next request: an alternating
    chat is not one long bundle (research/peers.md 1.4). Consecutive turns of one speaker are one
    utterance. A question further back than MAX_BUNDLE_TURNS leaves the tail as it is.
    """
    if not 0 < start < len(turns):
        return start
    floor = max(start - MAX_BUNDLE_TURNS, 0)
    answer = _utterance_start(turns, start, floor)
    if answer <= floor or not _is_request(turns[answer - 1], turns[answer]):
        return start
    question = _utterance_start(turns, answer - 1, floor)
    if question > 0 and _same_speaker(turns[question - 1], turns[question]):
        return start
    return question


def _is_request(turn: SessionTurn, following: SessionTurn) -> bool:
    """Return whether a turn asks for the next: by named roles, else by a question mark."""
    asker, answerer = ((t.speaker or "").casefold() for t in (turn, following))
    roles = _REQUESTERS | _RESPONDERS
    if asker in roles and answerer in roles:
        return asker in _REQUESTERS and answerer in _RESPONDERS
    return turn.asks and not _same_speaker(turn, following)


def _utterance_start(turns: Sequence[SessionTurn], index: int, floor: int) -> int:
    while index > floor and _same_speaker(turns[index - 1], turns[index]):
        index -= 1
    return index


def _same_speaker(one: SessionTurn, other: SessionTurn) -> bool:
    return one.speaker is not None and one.speaker == other.speaker


# How eligible turns are grouped: even runs of a session in order (libravdb section 5).

TARGET_CLUSTER_TURNS = 20  # turns per summary: more save tokens and blur topics; the reference's
CLUSTER_ID_HEX_CHARS = 16
CHRONOLOGICAL = "chronological"  # `Cluster.strategy` of consecutive turns: part of every id
FOREVER_US = 2**63 - 1  # a present after every date: no turn is from the future

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Turns of one session, user and wing that are summarised together, in (time, position) order.

    The id is of the strategy, the session, the members' ids and their content hashes: the same
    turns give the same one on every night, and an edit gives another.
    """

    cluster_id: str
    session_id: str
    user: str | None
    wing: str | None
    strategy: str  # CHRONOLOGICAL, or that of a compaction plan
    ordinal: int  # 0-based rank among the clusters of its session, by first member
    member_positions: tuple[int, ...]
    member_ids: tuple[str, ...]
    first_us: int  # earliest known time of a member, UNDATED_US where no member has one
    last_us: int
    trivial: bool  # a single member: there is nothing to compress


def cluster_count(turns: int, target: int = TARGET_CLUSTER_TURNS) -> int:
    """Return c = ceil(max(n, 1) / k); a non-positive k means the default (libravdb section 5)."""
    return -(-max(turns, 1) // (target if target > 0 else TARGET_CLUSTER_TURNS))


def partition_sizes(turns: int, target: int = TARGET_CLUSTER_TURNS) -> list[int]:
    """Return how many of n turns each cluster holds, in order: the i-th is in floor(i * c / n)."""
    if turns <= 0:
        return []
    count = cluster_count(turns, target)
    starts = [-(-j * turns // count) for j in range(count + 1)]
    return [end - start for start, end in pairwise(starts)]


def cut_evenly(turns: Sequence[T], target: int = TARGET_CLUSTER_TURNS) -> list[Sequence[T]]:
    """Cut a chronological run into consecutive parts of `partition_sizes`."""
    ends = accumulate(partition_sizes(len(turns), target), initial=0)
    return [turns[start:end] for start, end in pairwise(ends)]


def make_cluster(members: Sequence[SessionTurn], strategy: str, ordinal: int) -> Cluster:
    """Return the cluster of at least one turn of one session, user and wing, chronological."""
    first = members[0]
    ids = tuple(member.memory_id for member in members)
    hashes = (member.content_hash for member in members)
    dated = [member.created_at_us for member in members if member.created_at_us != UNDATED_US]
    return Cluster(
        cluster_id=hash_text(strategy, first.session_id, *ids, *hashes)[:CLUSTER_ID_HEX_CHARS],
        session_id=first.session_id,
        user=first.user,
        wing=first.wing,
        strategy=strategy,
        ordinal=ordinal,
        member_positions=tuple(member.position for member in members),
        member_ids=ids,
        first_us=min(dated, default=UNDATED_US),
        last_us=max(dated, default=UNDATED_US),
        trivial=len(members) == 1,
    )


def cluster_session(
    turns: Sequence[SessionTurn],
    target: int = TARGET_CLUSTER_TURNS,
    *,
    protected_tail: int = PROTECTED_TAIL_TURNS,
    now_us: int = FOREVER_US,
) -> tuple[list[Cluster], Eligibility]:
    """Return the clusters of one session of one user, given chronologically, cut evenly.

    A cluster never mixes wings, so that a summary can be filtered like its sources. The tail is the
    session's.
    """
    split = split_session(turns, protected_tail=protected_tail, now_us=now_us)
    wings: dict[str | None, list[SessionTurn]] = defaultdict(list)
    for turn in split.eligible:
        wings[turn.wing].append(turn)
    groups = [group for scoped in wings.values() for group in cut_evenly(scoped, target)]
    return [make_cluster(group, CHRONOLOGICAL, rank) for rank, group in enumerate(groups)], split


def cluster_sessions(
    path: Path,
    sessions: Iterable[Sequence[SessionTurn]],
    target: int = TARGET_CLUSTER_TURNS,
    *,
    protected_tail: int = PROTECTED_TAIL_TURNS,
    now_us: int = FOREVER_US,
) -> tuple[int, dict[str, Any]]:
    """Replace the table by the clusters of all sessions; return their number and the counts."""
    names = ("clustered", "protected", "bundled", "future", "giant")
    counts = Counter[str](dict.fromkeys(("sessions", "turns", *(f"{n}_turns" for n in names)), 0))
    sizes: list[int] = []

    def iter_found() -> Iterator[Cluster]:
        for turns in sessions:
            found, split = cluster_session(
                turns, target, protected_tail=protected_tail, now_us=now_us
            )
            counts.update(sessions=1, turns=len(turns), clustered_turns=len(split.eligible))
            counts.update({f"{n}_turns": c for n, c in zip(names[1:], split[1:], strict=True)})
            sizes.extend(len(cluster.member_ids) for cluster in found)
            yield from found

    rows = write_clusters(path, iter_found())
    of_clusters = {"trivial_clusters": sizes.count(1), "cluster_turns": quantiles(sizes)}
    return rows, {**counts, **of_clusters}


_QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return min, p10, median, p90 and max by nearest rank, rounded; empty for no values."""
    ascending, last = sorted(values), len(values) - 1
    shares = _QUANTILES.items() if values else ()
    return {name: round(ascending[round(last * share)], 4) for name, share in shares}


# Tables of this room as Parquet: row group by row group, equal rows give equal bytes.

ROW_GROUP_ROWS = 4_096  # held while writing or reading: bounds memory at some 40 MB

_REBUILD = "run the night again to rebuild it"

ArrowSchema = Any  # pyarrow ships no types
Row = dict[str, Any]


def table_schema(kind: type[Any], *, without: Container[str] = ()) -> ArrowSchema:
    """Return the columns of a dataclass: text, where it is no number, flag or tuple."""
    import pyarrow as pa

    text, whole = pa.string(), pa.int64()
    types = {
        "int": whole, "bool": pa.bool_(), "float": pa.float64(),
        "tuple[str, ...]": pa.list_(text), "tuple[int, ...]": pa.list_(whole),
    }  # fmt: skip
    chosen = (field for field in fields(kind) if field.name not in without)
    return pa.schema([(field.name, types.get(str(field.type), text)) for field in chosen])


@contextmanager
def write_rows(path: Path, schema: ArrowSchema) -> Generator[Callable[[Row], None]]:
    """Yield a function that appends a row to a new table; how rows come leaves no trace in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting: list[Row] = []
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:

        def flush() -> None:
            writer.write_table(pa.Table.from_pylist(waiting, schema=schema))
            waiting.clear()

        def add(row: Row) -> None:
            waiting.append(row)
            if len(waiting) == ROW_GROUP_ROWS:
                flush()

        yield add
        if waiting:
            flush()


def iter_rows(path: Path, expected: ArrowSchema) -> Iterator[Row]:
    """Yield the rows of a table in its order, by row groups; StoreError if it is another one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            found = table.schema_arrow
            if not found.equals(expected):
                columns = f"columns {found.names}, expected {expected.names}"
                raise StoreError(f"{path} has {columns}; {_REBUILD}")
            for batch in table.iter_batches(ROW_GROUP_ROWS):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise StoreError(f"{path} cannot be read ({error}); {_REBUILD}") from error


def with_tuples(row: Row) -> Row:
    """Return a row with its lists as tuples, as a dataclass holds them."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in row.items()}


def write_clusters(path: Path, clusters: Iterable[Cluster]) -> int:
    """Replace the table, whole or not at all; return how many clusters there were."""
    rows = 0
    with replacement(path) as tmp, write_rows(tmp, table_schema(Cluster)) as add:
        for rows, cluster in enumerate(clusters, start=1):  # noqa: B007 (it is the count)
            add({name: getattr(cluster, name) for name in Cluster.__slots__})
    return rows


def iter_clusters(path: Path) -> Iterator[Cluster]:
    """Yield the clusters of a table in its order; StoreError if it is missing or is none."""
    for row in iter_rows(path, table_schema(Cluster)):
        yield Cluster(**with_tuples(row))


class VectorRows:
    """Rows of a `.npy` matrix of shape (n, d), read instead of mapped.

    A map of the whole file comes to count as resident memory: 1.5 GB for a million vectors.
    """

    def __init__(self, path: Path) -> None:
        """Open a matrix and read its header; StoreError if it is missing or no row-major matrix."""
        try:
            header = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path} is not a readable array ({error}); {_REBUILD}") from error
        if header.ndim != 2 or not header.flags.c_contiguous:
            found = f"an array of shape {header.shape}, expected rows of vectors"
            raise StoreError(f"{path} holds {found}; {_REBUILD}")
        self.shape: tuple[int, int] = header.shape
        self.dtype: np.dtype[Any] = header.dtype
        self._path, self._first_byte = path, int(header.offset)

    def take(self, positions: Sequence[int]) -> NDArray[Any]:
        """Return the rows at some positions, shape (m, d); IndexError if one is not in [0, n)."""
        wanted = np.asarray(positions, dtype=np.int64)
        runs = np.split(wanted, np.flatnonzero(np.diff(wanted) != 1) + 1)
        parts = [self._read(int(run[0]) if len(run) else 0, len(run)) for run in runs]
        return np.concatenate(parts)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        """Return consecutive rows, as a matrix in memory would."""
        start, stop, step = rows.indices(self.shape[0])
        return self._read(start, max(stop - start, 0))[::step]

    def _read(self, first: int, count: int) -> NDArray[Any]:
        if count and not 0 <= first <= first + count <= self.shape[0]:
            raise IndexError(f"row {first + count - 1} of a matrix of {self.shape[0]} rows")
        start = self._first_byte + first * self.shape[1] * self.dtype.itemsize
        size = count * self.shape[1]
        try:
            read = np.fromfile(self._path, self.dtype, size, offset=start)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be read ({error}); {_REBUILD}") from error
        if read.size != size:
            raise StoreError(
                f"{self._path} is cut short at row {first}: {read.size} of {size} values are left; "
                f"{_REBUILD}"
            )
        return read.reshape(count, self.shape[1])


# Sessions and cluster texts from the files of a corpus, in bounded memory: DuckDB sorts and spills
# next to the tables, Python holds one session's turns without texts or one batch of clusters.

MEMORY_LIMIT = "512MB"  # of DuckDB before it spills
ROWS_PER_READ = 8_192
# A batch of clusters also ends where its texts reach so many characters.
BATCH_CLUSTERS, BATCH_CHARS = 256, 4_000_000

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


class ClusterSources(NamedTuple):
    """The files that cluster texts are read from."""

    clusters: Path
    memories: Path  # in order of position
    vectors: Path  # by position, `.npy`, shape (n, d)


class ClusterText(NamedTuple):
    """A cluster with the contents and vectors of its members, as a summarizer sees it."""

    cluster: Cluster
    contents: Sequence[str]  # chronological, parallel to `cluster.member_ids`
    vectors: NDArray[np.floating[Any]]  # shape (n, d), in the same order


def iter_sessions(turns: Path, memories: Path) -> Iterator[list[SessionTurn]]:
    """Yield the turns of every session and user, chronological; one session is held at a time."""
    files = {"turns": str(turns), "memories": str(memories)}
    marks = {"marks": QUESTION_MARKS, "closing": CLOSING_CHARS}

    def rows() -> Iterator[SessionTurn]:
        for columns in _query(turns.parent, _SESSIONS, {**files, **marks}):
            yield from map(SessionTurn._make, zip(*columns, strict=True))

    for _, session in groupby(rows(), key=lambda turn: (turn.session_id, turn.user)):
        yield list(session)


def count_later(turns: Path, now_us: int) -> int:
    """Return how many turns are dated after a moment, from one column of turns.parquet."""
    import polars as pl

    later = pl.scan_parquet(turns).filter(pl.col("created_at_us") > now_us)
    return later.select(pl.len()).collect().item()


def iter_cluster_texts(
    sources: ClusterSources, *, skip: Container[str] = frozenset()
) -> Iterator[list[ClusterText]]:
    """Yield the clusters of a table in batches; those in `skip` without contents and vectors."""

    def members_of(cluster: Cluster) -> tuple[int, ...]:
        return () if cluster.cluster_id in skip else cluster.member_positions

    wanted = (p for cluster in iter_clusters(sources.clusters) for p in members_of(cluster))
    texts = _texts(sources.memories, np.fromiter(wanted, dtype=np.int64))
    vectors, batch, chars = VectorRows(sources.vectors), list[ClusterText](), 0
    for cluster in iter_clusters(sources.clusters):
        members = members_of(cluster)
        contents = [next(texts) for _ in members]
        chars += sum(map(len, contents))
        batch.append(ClusterText(cluster, contents, vectors.take(members)))
        if len(batch) >= BATCH_CLUSTERS or chars >= BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _texts(memories: Path, wanted: NDArray[np.int64]) -> Iterator[str]:
    """Yield the contents at some positions, in the order of `wanted`."""
    if len(wanted):
        import pyarrow as pa

        places = pa.table({"place": np.arange(len(wanted)), "position": wanted})
        files = {"memories": str(memories)}
        for (contents,) in _query(memories.parent, _TEXTS, files, wanted=places):
            yield from contents


def _query(
    folder: Path, sql: str, parameters: dict[str, str], **tables: Any
) -> Iterator[list[list[Any]]]:
    """Yield the columns of a query's rows, ROWS_PER_READ at a time."""
    with open_duckdb(folder) as db:
        db.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
        for name, table in tables.items():
            db.register(name, table)
        for rows in db.sql(sql, params=parameters).to_arrow_reader(ROWS_PER_READ):
            yield [column.to_pylist() for column in rows.columns]
