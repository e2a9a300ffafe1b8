"""Clusters of turns: eligibility, strategies, and the texts of their members."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.errors import StoreError
from noctuary.core.files import hash_text, replace_with
from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.text.marks import ends_as_question, find_speaker

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# Which turns of a session may be compacted: all but its recent tail and what cannot be judged.
#
# Pure functions over one session.


PROTECTED_TAIL_TURNS = 4
"""The newest turns of each session stay raw: they are what the conversation still refers to. Larger
protects more context and compacts less. The reference excludes the last 4."""

MAX_BUNDLE_TURNS = 8
"""Most turns by which the tail is extended to reach the question of its first answer. Larger keeps
longer exchanges whole; the bound is what keeps a tail from swallowing its session."""

GIANT_TURN_CHARS = 20_000
"""A longer turn (some 5,000 tokens) stays raw. Encoders read its beginning only, so the gate could
not tell whether a summary preserves the rest; larger compacts more and vouches for less."""

_REQUESTERS = frozenset({"user", "human", "customer", "client"})
_RESPONDERS = frozenset({"assistant", "ai", "agent", "bot", "chatbot", "model"})


class SessionTurn(NamedTuple):
    """What clustering needs of a turn: not its text.

    Attributes:
        position: Corpus position.
        memory_id: The source's id.
        content_hash: Changes with every edit of the memory.
        created_at_us: Microseconds since the epoch, UNDATED_US where unknown.
        session_id: The conversation.
        user: Whose turn it is, or None.
        wing: Its wing, or None.
        speaker: Who says it (`noctuary.sources.source`), or None.
        asks: True where the text ends in a question mark (`noctuary.text.marks`).
        chars: Length of the text in code points.
    """

    position: int
    memory_id: str
    content_hash: str
    created_at_us: int
    session_id: str
    user: str | None
    wing: str | None
    speaker: str | None
    asks: bool
    chars: int


@dataclass(frozen=True, slots=True)
class Eligibility:
    """The turns of one session, each in exactly one of four places.

    Attributes:
        eligible: May be compacted, chronological.
        protected: How many stay raw as the recent tail, the extension included.
        bundled: How many of these the tail was extended by to reach a question.
        ahead: How many stay raw because they are dated after now.
        giant: How many stay raw because they are too long to be judged.
    """

    eligible: list[SessionTurn]
    protected: int
    bundled: int
    ahead: int
    giant: int


def split_session(turns: Sequence[SessionTurn], *, protected_tail: int, now_us: int) -> Eligibility:
    """Say which turns of a session may be compacted.

    A turn dated after now is set aside first: its clock is wrong, so its place in the order is
    unknown, and it must not push the real newest turns out of the tail. It is an ordinary turn once
    its moment has passed. Undated turns are the oldest, in the source's order. The tail is the last
    `protected_tail` of what is left, extended backwards to the question of its first answer. A
    giant turn outside the tail stays raw.

    Args:
        turns: All turns of one session and user, chronological.
        protected_tail: How many of the newest stay raw; negative counts as 0.
        now_us: The present, microseconds since the epoch.
    """
    present = [turn for turn in turns if turn.created_at_us <= now_us]
    tail = min(max(protected_tail, 0), len(present))
    start = bundle_start(present, len(present) - tail)
    eligible = [turn for turn in present[:start] if turn.chars <= GIANT_TURN_CHARS]
    return Eligibility(
        eligible=eligible,
        protected=len(present) - start,
        bundled=len(present) - start - tail,
        ahead=len(turns) - len(present),
        giant=start - len(eligible),
    )


def bundle_start(turns: Sequence[SessionTurn], start: int) -> int:
    """Return where a tail must begin so that its first answer keeps its question.

    Only a request is coupled to its response, never a response to the next request, so that an
    alternating chat is not one long bundle (research/peers.md 1.4). Consecutive turns of one
    speaker count as one utterance. Where the question is not within MAX_BUNDLE_TURNS before the
    tail, the tail stays as it is.

    Args:
        turns: A session, chronological.
        start: Index of the tail's first turn; len(turns) for no tail.

    Returns:
        An index in [start - MAX_BUNDLE_TURNS, start].
    """
    if not 0 < start < len(turns):
        return start
    floor = max(start - MAX_BUNDLE_TURNS, 0)
    answer = _utterance_start(turns, start, floor)
    if answer <= floor or not is_request(turns[answer - 1], turns[answer]):
        return start
    question = _utterance_start(turns, answer - 1, floor)
    if question > 0 and _same_speaker(turns[question - 1], turns[question]):
        return start
    return question


def is_request(turn: SessionTurn, following: SessionTurn) -> bool:
    """Return whether a turn asks for the turn that follows it.

    Between named roles ("User", "Assistant") the role decides. Between people it is a turn that
    ends in a question mark and is followed by another speaker's, or by anything where no turn
    names its speaker.
    """
    roles = _role(turn), _role(following)
    if None not in roles:
        return roles == ("request", "response")
    differs = turn.speaker != following.speaker or turn.speaker is None
    return turn.asks and differs


def _utterance_start(turns: Sequence[SessionTurn], index: int, floor: int) -> int:
    while index > floor and _same_speaker(turns[index - 1], turns[index]):
        index -= 1
    return index


def _same_speaker(one: SessionTurn, other: SessionTurn) -> bool:
    return one.speaker is not None and one.speaker == other.speaker


def _role(turn: SessionTurn) -> str | None:
    name = (turn.speaker or "").casefold()
    if name in _REQUESTERS:
        return "request"
    return "response" if name in _RESPONDERS else None


# Clusters of turns: the noun, its id, the chronological partition formula, one session's clusters.


TARGET_CLUSTER_TURNS = 20
# Turns per summary. Larger: fewer tokens in the searched set, but each summary covers more topics
# and is aligned less well with any one of them. The reference's default.

CLUSTER_ID_HEX_CHARS = 16
# 64 bits: the chance of a collision among a million clusters is about 3e-8.

CHRONOLOGICAL = "chronological"
"""`Cluster.strategy` of consecutive turns: part of every id."""

FOREVER_US = 2**63 - 1
"""A present after every date: no turn is from the future."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Turns of one session that are summarised together, in (created_at_us, position) order.

    Attributes:
        cluster_id: 16 hex characters of the strategy, the session, the members' ids and their
            content hashes, so that the same turns give the same id on every night and an edit
            gives another.
        session_id: The session all members belong to.
        user: Whose turns they are, or None.
        wing: The wing all members belong to, or None.
        strategy: Who grouped them: CHRONOLOGICAL, or a compaction plan (noctuary.compact).
        ordinal: 0-based rank among the clusters of its session, by first member.
        member_positions: Corpus positions in chronological order.
        member_ids: Memory ids, parallel to member_positions.
        first_us: Earliest known time of a member, UNDATED_US where no member has one.
        last_us: Latest known time of a member, likewise.
        trivial: True for a single member: there is nothing to compress.
    """

    cluster_id: str
    session_id: str
    user: str | None
    wing: str | None
    strategy: str
    ordinal: int
    member_positions: tuple[int, ...]
    member_ids: tuple[str, ...]
    first_us: int
    last_us: int
    trivial: bool


def cluster_count(turns: int, target: int = TARGET_CLUSTER_TURNS) -> int:
    """Return c = ceil(max(n, 1) / k); a non-positive k means the default (libravdb section 5)."""
    size = target if target > 0 else TARGET_CLUSTER_TURNS
    return -(-max(turns, 1) // size)


def cluster_index(turn: int, turns: int, count: int) -> int:
    """Return floor(i * c / max(n, 1)), the cluster of the i-th of n turns (libravdb section 5)."""
    return turn * count // max(turns, 1)


def partition_sizes(turns: int, target: int = TARGET_CLUSTER_TURNS) -> list[int]:
    """Return how many turns each cluster holds, in order; empty for no turns.

    The sizes sum to `turns` and differ by at most one.
    """
    if turns <= 0:
        return []
    count = cluster_count(turns, target)
    starts = [-(-j * turns // count) for j in range(count + 1)]
    return [end - start for start, end in pairwise(starts)]


def cut_evenly(
    turns: Sequence[SessionTurn], target: int = TARGET_CLUSTER_TURNS
) -> list[Sequence[SessionTurn]]:
    """Cut a chronological run into consecutive parts of `partition_sizes`."""
    parts: list[Sequence[SessionTurn]] = []
    start = 0
    for size in partition_sizes(len(turns), target):
        parts.append(turns[start : start + size])
        start += size
    return parts


def make_cluster(members: Sequence[SessionTurn], strategy: str, ordinal: int) -> Cluster:
    """Return the cluster of some turns of one session, user and wing.

    Args:
        members: At least one turn, chronological.
        strategy: Who grouped them.
        ordinal: Rank among the clusters of the session.
    """
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


class SessionClusters(NamedTuple):
    """What became of one session's turns.

    Attributes:
        clusters: By ordinal.
        split: Which turns were eligible, and why others were not.
    """

    clusters: list[Cluster]
    split: Eligibility


def cluster_session(
    turns: Sequence[SessionTurn],
    target: int = TARGET_CLUSTER_TURNS,
    *,
    protected_tail: int = PROTECTED_TAIL_TURNS,
    now_us: int = FOREVER_US,
) -> SessionClusters:
    """Return the clusters of one session of one user, cut evenly (libravdb section 5).

    A cluster never mixes wings: where a session spans several, each wing's turns are grouped on
    their own, so that a summary can be filtered like its sources. The tail is the session's.

    Args:
        turns: All turns of the session and user, chronological by (created_at_us, position).
        target: Turns per cluster; non-positive means TARGET_CLUSTER_TURNS.
        protected_tail: Newest turns that stay raw (see `split_session`).
        now_us: The present.
    """
    split = split_session(turns, protected_tail=protected_tail, now_us=now_us)
    wings: dict[str | None, list[SessionTurn]] = defaultdict(list)
    for turn in split.eligible:
        wings[turn.wing].append(turn)
    groups = [group for scoped in wings.values() for group in cut_evenly(scoped, target)]
    clusters = [make_cluster(group, CHRONOLOGICAL, rank) for rank, group in enumerate(groups)]
    return SessionClusters(clusters, split)


def cluster_turns(
    records: Iterable[MemoryRecord],
    *,
    target: int = TARGET_CLUSTER_TURNS,
    protected_tail: int = PROTECTED_TAIL_TURNS,
    now_us: int = FOREVER_US,
) -> list[Cluster]:
    """Return the clusters of a corpus that is in memory; `streaming.iter_sessions` is for files.

    Deterministic: the order of `records` does not matter. A session is the pair of session id and
    user, so that two users who share an id never share a cluster. Memories that are no turns, and
    turns without a session, stay raw.

    Args:
        records: The corpus, in any order.
        target: Turns per cluster; non-positive means TARGET_CLUSTER_TURNS.
        protected_tail: Newest turns per session that stay raw.
        now_us: The present; later dates are from the future.
    """
    sessions: dict[tuple[str, bool, str], list[SessionTurn]] = defaultdict(list)
    for record in records:
        if record.is_turn and record.session_id is not None:
            key = (record.session_id, record.user is not None, record.user or "")
            sessions[key].append(to_session_turn(record, record.session_id))
    clusters: list[Cluster] = []
    for key in sorted(sessions):
        turns = sorted(sessions[key], key=lambda turn: (turn.created_at_us, turn.position))
        found = cluster_session(turns, target, protected_tail=protected_tail, now_us=now_us)
        clusters += found.clusters
    return clusters


def to_session_turn(record: MemoryRecord, session_id: str) -> SessionTurn:
    """Return what clustering needs of a turn."""
    return SessionTurn(
        position=record.position,
        memory_id=record.memory_id,
        content_hash=record.content_hash,
        created_at_us=record.created_at_us,
        session_id=session_id,
        user=record.user,
        wing=record.wing,
        speaker=find_speaker(record.content),
        asks=ends_as_question(record.content),
        chars=len(record.content),
    )


# A cluster together with what its members say and where they point.


class ClusterText(NamedTuple):
    """What a summarizer sees of one cluster.

    Attributes:
        cluster: Its members, user and wing.
        contents: Their texts, chronological, parallel to `cluster.member_ids`.
        vectors: Their document vectors, shape (n, d), in the same order.
    """

    cluster: Cluster
    contents: Sequence[str]
    vectors: NDArray[np.floating[Any]]


# Tables as Parquet, the clusters' among them: row group by row group, replaced whole or not at all.
#
# Equal clusters give equal bytes.


ROW_GROUP_ROWS = 4_096
"""Rows held while writing or reading: larger compresses better, smaller bounds memory (of 20
turns a cluster is about 5 KB as an object, a summary 8)."""

ArrowSchema = Any
# pyarrow ships no types.


def write_clusters(path: Path, clusters: Iterable[Cluster]) -> int:
    """Replace the table with the given clusters, in their order; return how many there were.

    Only one row group is in memory, so that `clusters` may be a generator over any number. Where
    it raises, the old table stays.
    """
    written = 0

    def fill(tmp: Path) -> None:
        nonlocal written
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = _schema()
        with pq.ParquetWriter(tmp, schema, compression="zstd") as writer:
            rest = iter(clusters)
            while rows := [_row_of(cluster) for cluster in islice(rest, ROW_GROUP_ROWS)]:
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                written += len(rows)

    replace_with(path, fill)
    return written


def cluster_sessions(
    path: Path,
    sessions: Iterable[Sequence[SessionTurn]],
    target: int = TARGET_CLUSTER_TURNS,
    *,
    protected_tail: int = PROTECTED_TAIL_TURNS,
    now_us: int = FOREVER_US,
) -> tuple[int, dict[str, Any]]:
    """Replace the table with the clusters of all sessions; see `cluster_session`.

    Returns:
        How many clusters there are, and what became of every turn: it is clustered, protected, of
        the future or a giant. `bundled_turns` are among the protected.
    """
    counts = Counter[str](
        sessions=0, turns=0, clustered_turns=0, protected_turns=0, bundled_turns=0,
        future_turns=0, giant_turns=0,
    )  # fmt: skip
    sizes: list[int] = []

    def iter_found() -> Iterator[Cluster]:
        for turns in sessions:
            clusters, split = cluster_session(
                turns, target, protected_tail=protected_tail, now_us=now_us
            )
            counts.update(
                sessions=1, turns=len(turns), clustered_turns=len(split.eligible),
                protected_turns=split.protected, bundled_turns=split.bundled,
                future_turns=split.ahead, giant_turns=split.giant,
            )  # fmt: skip
            sizes.extend(len(cluster.member_ids) for cluster in clusters)
            yield from clusters

    rows = write_clusters(path, iter_found())
    of_clusters = {"trivial_clusters": sizes.count(1), "cluster_turns": quantiles(sizes)}
    return rows, {**counts, **of_clusters}


_QUANTILES = {"min": 0.0, "p10": 0.1, "median": 0.5, "p90": 0.9, "max": 1.0}
_DECIMALS = 4


def quantiles(values: Sequence[float]) -> dict[str, float]:
    """Return min, p10, median, p90 and max by nearest rank, rounded; empty for no values."""
    ascending, last = sorted(values), len(values) - 1
    shares = _QUANTILES.items() if values else ()
    return {name: round(ascending[round(last * share)], _DECIMALS) for name, share in shares}


def read_clusters(path: Path) -> list[Cluster]:
    """Return the whole table.

    Raises:
        StoreError: The file is missing or is no cluster table.
    """
    return list(iter_clusters(path))


def iter_clusters(path: Path) -> Iterator[Cluster]:
    """Yield the clusters of a table in its order; one row group is in memory at a time.

    Raises:
        StoreError: The file is missing or is no cluster table.
    """
    return map(_cluster_of, iter_rows(path, _schema()))


def iter_rows(path: Path, expected: ArrowSchema) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table of this room in its order; `ROW_GROUP_ROWS` are in memory.

    Raises:
        StoreError: The file is missing, damaged, or has other columns.
    """
    with open_table(path) as table:
        found = table.schema_arrow
        if not found.equals(expected):
            raise StoreError(
                f"{path} has columns {found.names}, expected {expected.names}; "
                "run the night again to rebuild it"
            )
        for batch in table.iter_batches(ROW_GROUP_ROWS):
            yield from batch.to_pylist()


@contextmanager
def open_table(path: Path) -> Generator[pq.ParquetFile]:
    """Open a table of this room; what Arrow says while it is open is a StoreError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            yield table
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{path} cannot be read ({error}); run the night again to rebuild it"
        ) from error


def _row_of(cluster: Cluster) -> dict[str, Any]:
    return {name: getattr(cluster, name) for name in Cluster.__slots__}


def _cluster_of(row: dict[str, Any]) -> Cluster:
    row["member_positions"] = tuple(row["member_positions"])
    row["member_ids"] = tuple(row["member_ids"])
    return Cluster(**row)


def _schema() -> ArrowSchema:
    import pyarrow as pa

    return pa.schema(
        [
            ("cluster_id", pa.string()),
            ("session_id", pa.string()),
            ("user", pa.string()),
            ("wing", pa.string()),
            ("strategy", pa.string()),
            ("ordinal", pa.int64()),
            ("member_positions", pa.list_(pa.int64())),
            ("member_ids", pa.list_(pa.string())),
            ("first_us", pa.int64()),
            ("last_us", pa.int64()),
            ("trivial", pa.bool_()),
        ]
    )
