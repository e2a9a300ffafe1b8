"""The ingestion gate: which turns of a person are proposed as durable memories."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from noctuary.core.errors import StoreError
from noctuary.core.files import replace_with
from noctuary.core.types import SILENT, UNDATED_US, MemoryRecord, Progress
from noctuary.curate.neighbours import (
    ALIKE_PROBES,
    Floats,
    Ints,
    Nearest,
    Neighbour,
    exact_cosines,
    nearness,
    read_statement,
)
from noctuary.curate.signals import (
    DURABLE_HITS,
    REPEATED_COSINE,
    REPEATED_HITS,
    Gate,
    Signals,
    gate,
    novelty,
    read_signals,
    repetition,
    said_something,
)
from noctuary.sources.corpus import iter_records

if TYPE_CHECKING:
    import polars as pl


# Turn after turn: what is durable by then, how new and how often said, and whether G lets it in.
#
# A turn that is let in is kept from being proposed again by being durable from then on: the next
# one like it is less novel.

BLOCK_ROWS = 256
"""Turns compared at once with what was let in before them; with what a block lets in itself, they
are compared one by one."""

PROPOSED = "proposed"
BELOW_THRESHOLD = "below_threshold"
NOTHING_SAID = "nothing_said"
"""Why a turn is, or is not, proposed. The last: G would do, but only for being new or repeated."""


class Judged(NamedTuple):
    """What the gate made of one turn."""

    position: int
    h: float  # Novelty
    r: float  # Repetition
    gate: Gate  # G and its branches
    reason: str  # One of the three above
    durable: tuple[Neighbour, ...]  # The nearest `DURABLE_HITS`, whatever their cosine
    repeated: tuple[Neighbour, ...]  # Earlier turns of `REPEATED_COSINE` and more


def walk(
    turns: Ints,
    signals: Sequence[Signals],
    memories: Ints,
    vectors: Floats,
    threshold: float,
) -> Iterator[Judged]:
    """Yield the judgement of every turn of one user, in order of time.

    Args:
        turns: Positions of what this user's people said, oldest first, shape (n,).
        signals: What their words say, as many.
        memories: Positions of the durable memories that this user may see, shape (m,).
        vectors: Unit rows by position.
        threshold: Least G that lets in, in [0, 1].
    """
    durable = Nearest(turns, vectors, DURABLE_HITS)
    durable.offer(memories)
    repeated = Nearest(turns, vectors, REPEATED_HITS, REPEATED_COSINE)
    repeated.offer(turns, earlier_only=True, probes=ALIKE_PROBES)
    let_in: list[int] = []
    for start in range(0, len(turns), BLOCK_ROWS):
        rows = np.arange(start, min(start + BLOCK_ROWS, len(turns)))
        durable.offer(turns[let_in], rows)
        block = np.asarray(vectors[turns[rows]], dtype=np.float32)
        fresh: list[int] = []
        for i in range(len(rows)):
            cosines = exact_cosines(block[i], block[fresh])
            just = (
                Neighbour(c, int(turns[start + j])) for c, j in zip(cosines, fresh, strict=True)
            )
            kept = sorted([*durable.of(start + i), *just], key=nearness)[:DURABLE_HITS]
            position = int(turns[start + i])
            judged = _judge(position, signals[start + i], kept, repeated.of(start + i), threshold)
            if judged.reason == PROPOSED:
                fresh.append(i)
            yield judged
        let_in += [start + i for i in fresh]


def _judge(
    position: int,
    signals: Signals,
    durable: Sequence[Neighbour],
    repeated: Sequence[Neighbour],
    threshold: float,
) -> Judged:
    kept = [n.cosine for n in durable]
    h = round(novelty(kept), 6)
    r = round(repetition([n.cosine for n in repeated], kept), 6)
    found = gate(signals, h, r)
    reason = PROPOSED
    if found.g < threshold:
        reason = BELOW_THRESHOLD
    elif not said_something(signals):
        reason = NOTHING_SAID
    return Judged(position, h, r, found, reason, tuple(durable), tuple(repeated))


# Which turns of a corpus the gate hears, and which memories each of them is compared with.

_TOLD_EVERY = 1_024
"""Turns between two reports of progress."""


class Heard(NamedTuple):
    """A turn that a person said: what the table knows of it. No text."""

    position: int  # Its row
    memory_id: str  # The source's id
    user: str | None  # Whose it is, or None
    wing: str | None  # Its wing, or None
    session_id: str | None  # Its conversation, or None
    created_at_us: int  # Microseconds since the epoch, UNDATED_US where unknown
    content_hash: str  # Of the record, so that a listing can tell whether it is still the same
    signals: Signals  # What its words say


@dataclass(slots=True)
class Candidates:
    """What of a corpus takes part."""

    # The turns that people said, by user
    heard: dict[str | None, list[Heard]] = field(
        default_factory=lambda: defaultdict[str | None, list[Heard]](list)
    )
    # Positions of durable memories, by user
    memories: dict[str | None, list[int]] = field(
        default_factory=lambda: defaultdict[str | None, list[int]](list)
    )
    unheard: int = 0  # Turns that no person is known to have said

    def seen_by(self, user: str | None) -> Ints:
        """Return the positions of the durable memories that a user may see, ascending."""
        whose = {user, None}
        found = sorted(p for owner in whose for p in self.memories.get(owner, ()))
        return np.asarray(found, dtype=np.int64)


def find_candidates(records: Iterable[MemoryRecord]) -> Candidates:
    """Return the turns that count and the memories that they are compared with.

    A memory that its owner marked as superseded is durable too: what was known and replaced is no
    news.
    """
    found = Candidates()
    for record in records:
        if not record.is_turn:
            found.memories[record.user].append(record.position)
            continue
        statement = read_statement(record.content)
        if statement is None:
            found.unheard += 1
        else:
            found.heard[record.user].append(_heard(record, statement))
    for turns in found.heard.values():
        turns.sort(key=lambda turn: (turn.created_at_us, turn.position))
    return found


def judge_turns(
    candidates: Candidates,
    vectors: Floats,
    threshold: float,
    progress: Progress = SILENT,
) -> Iterator[tuple[Heard, Judged]]:
    """Yield every heard turn with its judgement: by user, nobody first, then by time.

    Args:
        candidates: What takes part.
        vectors: Unit rows by position, shape (n, d).
        threshold: Least G of a proposal, in [0, 1].
        progress: Told how many turns are judged.
    """
    total = sum(len(turns) for turns in candidates.heard.values())
    done = 0
    for user in sorted(candidates.heard, key=lambda user: (user is not None, user or "")):
        turns = candidates.heard[user]
        judged = walk(
            np.asarray([turn.position for turn in turns], dtype=np.int64),
            [turn.signals for turn in turns],
            candidates.seen_by(user),
            vectors,
            threshold,
        )
        for pair in zip(turns, judged, strict=True):
            yield pair
            done += 1
            if done % _TOLD_EVERY == 0 or done == total:
                progress.update("judging turns", done, total)


def _heard(record: MemoryRecord, statement: str) -> Heard:
    return Heard(
        record.position,
        record.memory_id,
        record.user,
        record.wing,
        record.session_id,
        record.created_at_us,
        record.content_hash,
        read_signals(statement),
    )


# proposals.parquet: a row per turn that a person said, with every number of its judgement.

PROMOTIONS = "promotion/proposals.parquet"
"""Where the table lies, below the work directory."""

PROPOSE = "propose"
LEAVE = "leave"

GROUP_ROWS = 4_096
"""Rows per row group, and rows that are held while the table is written."""

KEPT_NEIGHBOURS = 5
"""Of each kind, in the table: all that novelty is against, and as many as repetition counts."""

SCORES = ("g", "t", "h", "r", "d", "p", "a", "dtech", "gconv", "gtech")
"""As libravdb stores them beside a durable record: G, T, H, R, D, P, A, Dt and both branches."""

_NOTES = b"noctuary"


class Relation(NamedTuple):
    """A row that a turn was compared with."""

    memory_id: str  # Of a durable memory, an earlier proposal or an earlier turn
    kind: str  # "durable" (what novelty is against) or "repeated" (what is said again)
    cosine: float  # In [-1, 1]


class PromotionRow(NamedTuple):
    """A turn and its judgement."""

    turn_id: str  # The source's id of the turn
    content_hash: str  # Of the record that was judged
    user: str | None  # Whose it is, or None
    wing: str | None  # Its wing, or None
    session_id: str | None  # Its conversation, or None
    created_at_us: int  # Microseconds since the epoch, UNDATED_US where unknown
    scores: Mapping[str, float]  # By the names in `SCORES`, each in [0, 1]
    marks: tuple[str, ...]  # What its words hold ("date", "preference", ...), sorted
    # What it was compared with, nearest first, durable ones before repeated ones
    neighbours: tuple[Relation, ...]
    decision: str  # "propose" or "leave"
    reason: str  # "proposed", "below_threshold" or "nothing_said"


class PromotionTable(NamedTuple):
    """What a night judged."""

    rows: tuple[PromotionRow, ...]  # By user, nobody first, then by time
    is_on: bool  # False where promotion.enabled was off, and nothing was judged
    threshold: float  # Least G of a proposal
    corpus: str  # Digest of the corpus that was judged; "" where it was off

    def proposals(self) -> list[PromotionRow]:
        """Return what is proposed, highest G first; of equal ones, the newest first."""
        found = [row for row in self.rows if row.decision == PROPOSE]
        return sorted(found, key=lambda row: (-row.scores["g"], -row.created_at_us, row.turn_id))


def make_row(heard: Heard, judged: Judged, id_of: Callable[[int], str]) -> PromotionRow:
    """Return the row of a judged turn."""
    s = heard.signals
    branches = judged.gate
    numbers = (
        branches.g, s.t, judged.h, judged.r, s.d, s.p, s.a, s.dtech, branches.gconv,
        branches.gtech,
    )  # fmt: skip
    related = (("durable", judged.durable), ("repeated", judged.repeated))
    return PromotionRow(
        turn_id=heard.memory_id,
        content_hash=heard.content_hash,
        user=heard.user,
        wing=heard.wing,
        session_id=heard.session_id,
        created_at_us=heard.created_at_us,
        scores=dict(zip(SCORES, numbers, strict=True)),
        marks=s.marks,
        neighbours=tuple(
            Relation(id_of(n.position), kind, n.cosine)
            for kind, found in related
            for n in found[:KEPT_NEIGHBOURS]
        ),
        decision=PROPOSE if judged.reason == PROPOSED else LEAVE,
        reason=judged.reason,
    )


def row_json(row: PromotionRow) -> dict[str, Any]:
    """Return a row as plain values: scores as fields of their own, UNDATED_US as None."""
    fields = row._asdict()
    scores: Mapping[str, float] = fields.pop("scores")
    dated = None if row.created_at_us == UNDATED_US else row.created_at_us
    return {
        **fields,
        "created_at_us": dated,
        **scores,
        "marks": list(row.marks),
        "neighbours": [
            {"memory_id": n.memory_id, "kind": n.kind, "cosine": n.cosine} for n in row.neighbours
        ],
    }


def write_table(
    path: Path,
    rows: Iterable[PromotionRow],
    *,
    is_on: bool = True,
    threshold: float = 0.0,
    corpus: str = "",
) -> dict[str, int]:
    """Replace the table atomically; equal rows give equal bytes.

    Args:
        path: The file.
        rows: In the order of the table; consumed once, `GROUP_ROWS` held at a time.
        is_on: As in `PromotionTable`, like `threshold` and `corpus`.
        threshold: In [0, 1].
        corpus: A digest.

    Returns:
        How many rows have each reason, by name.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    notes = {"on": is_on, "threshold": threshold, "corpus": corpus}
    schema = _schema().with_metadata({_NOTES: json.dumps(notes, sort_keys=True).encode()})
    counts: dict[str, int] = {}

    def write(tmp: Path) -> None:
        waiting = iter(rows)
        with pq.ParquetWriter(tmp, schema, compression="zstd") as writer:
            while group := list(islice(waiting, GROUP_ROWS)):
                for row in group:
                    counts[row.reason] = counts.get(row.reason, 0) + 1
                plain = [{**row_json(row), "created_at_us": row.created_at_us} for row in group]
                writer.write_table(pa.Table.from_pylist(plain, schema=schema))

    replace_with(path, write)
    return dict(sorted(counts.items()))


def read_table(path: Path) -> PromotionTable:
    """Read what `write_table` wrote."""
    with open_table(path) as (file, notes):
        rows = tuple(_row(found) for found in file.read().to_pylist())
        return PromotionTable(
            rows, bool(notes["on"]), float(notes["threshold"]), str(notes["corpus"])
        )


@contextmanager
def open_table(path: Path) -> Generator[tuple[Any, dict[str, Any]]]:
    """Open the table as a `pyarrow.parquet.ParquetFile`, with the night's notes on it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            yield file, json.loads((file.schema_arrow.metadata or {})[_NOTES])
    except FileNotFoundError:
        raise StoreError(f"There is no table of promotions at {path}: run the night.") from None
    except (pa.ArrowInvalid, OSError, KeyError, TypeError, ValueError):
        raise StoreError(
            f"{path} is no readable table of promotions: run the night again."
        ) from None


def _row(found: dict[str, Any]) -> PromotionRow:
    scores = {name: found.pop(name) for name in SCORES}
    found["marks"] = tuple(found["marks"])
    found["neighbours"] = tuple(Relation(**n) for n in found["neighbours"])
    return PromotionRow(scores=scores, **found)


def _schema() -> Any:
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    related = pa.struct([("memory_id", text), ("kind", text), ("cosine", number)])
    return pa.schema(
        [
            ("turn_id", text),
            ("content_hash", text),
            ("user", text),
            ("wing", text),
            ("session_id", text),
            ("created_at_us", pa.int64()),
            *((name, number) for name in SCORES),
            ("marks", pa.list_(text)),
            ("neighbours", pa.list_(related)),
            ("decision", text),
            ("reason", text),
        ]
    )


# Does the table keep its own rules: counted by columns, one row group at a time.

FAULTS = ("below_threshold", "without_marks", "out_of_range", "own_neighbours")
"""Proposals with G below the threshold, proposals without marks, scores outside [0, 1] or not a
number, rows that were compared with themselves."""


def count_faults(path: Path) -> dict[str, int]:
    """Return how many rows were judged and proposed, and how often each rule is broken.

    Returns:
        "judged", "proposals" and the names in FAULTS.
    """
    import polars as pl

    counts = Counter[str]()
    with open_table(path) as (file, notes):
        columns = ["turn_id", "decision", *SCORES, "marks", "neighbours"]
        for batch in file.iter_batches(GROUP_ROWS, columns=columns):
            counts.update(_count(pl.DataFrame(batch), float(notes["threshold"])))
    return {name: counts[name] for name in ("judged", "proposals", *FAULTS)}


def _count(rows: pl.DataFrame, threshold: float) -> dict[str, int]:
    import polars as pl

    is_proposed = _holds(pl.col("decision") == PROPOSE)
    near = pl.col("neighbours").list.eval(pl.element().struct.field("memory_id"))
    counted = rows.with_columns(pl.col(SCORES).fill_nan(None)).select(
        judged=pl.len(),
        proposals=is_proposed.sum(),
        below_threshold=(is_proposed & ~_holds(pl.col("g") >= threshold)).sum(),
        without_marks=(is_proposed & ~_holds(pl.col("marks").list.len() > 0)).sum(),
        out_of_range=pl.sum_horizontal((~_holds(pl.col(s).is_between(0, 1))).sum() for s in SCORES),
        own_neighbours=_holds(near.list.contains(pl.col("turn_id"))).sum(),
    )
    return counted.row(0, named=True)


def _holds(condition: pl.Expr) -> pl.Expr:
    """Return a condition that what is missing does not meet."""
    return condition.fill_null(value=False)


# The night's proposals with their texts, for people.
#
# Only rows of one user, or of nobody, are listed.


class Promotions(NamedTuple):
    """What a night proposed to one user."""

    rows: tuple[PromotionRow, ...]  # Highest G first; proposals only, or everything that was judged
    # Contents by turn id, of every row whose turn is still what was judged
    text_of: Mapping[str, str]
    is_on: bool  # False where that night did not judge
    threshold: float  # Least G of a proposal
    counts: Mapping[str, int]  # By reason, of all turns of this user, listed or not


def list_promotions(
    work: Path, *, user: str | None = None, with_left: bool = False, limit: int | None = None
) -> Promotions:
    """Return what the last night proposed to a user; None is nobody, never everybody."""
    table = read_table(work / PROMOTIONS)
    own = table._replace(rows=tuple(row for row in table.rows if row.user == user))
    rows = own.proposals()
    if with_left:
        proposed = {row.turn_id for row in rows}
        left = [row for row in own.rows if row.turn_id not in proposed]
        rows += sorted(left, key=lambda row: (-row.scores["g"], -row.created_at_us, row.turn_id))
    chosen = tuple(rows[:limit])
    counts = Counter(row.reason for row in own.rows)
    return Promotions(
        chosen, _texts(work, chosen), table.is_on, table.threshold, dict(sorted(counts.items()))
    )


def _texts(work: Path, rows: tuple[PromotionRow, ...]) -> dict[str, str]:
    hashes = {row.turn_id: row.content_hash for row in rows}
    if not hashes:
        return {}
    return {
        record.memory_id: record.content
        for batch in iter_records(work / "corpus")
        for record in batch
        if hashes.get(record.memory_id) == record.content_hash
    }
