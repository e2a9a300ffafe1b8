"""proposals.parquet: a row per turn that a person said, with every number of its judgement.

What belongs here: columns, rows and back, and which corpus they were made from. No text of a turn
is in it. What does not: texts (`listing`), judging (`walk`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.errors import StoreError
from noctuary.files import replace_with
from noctuary.promote.candidates import Heard
from noctuary.promote.walk import PROPOSED, Judged
from noctuary.types import UNDATED_US

PROPOSALS = "promotion/proposals.parquet"
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
    """A row that a turn was compared with.

    Attributes:
        memory_id: Of a durable memory, an earlier proposal or an earlier turn.
        kind: "durable" (what novelty is against) or "repeated" (what is said again).
        cosine: In [-1, 1].
    """

    memory_id: str
    kind: str
    cosine: float


class PromotionRow(NamedTuple):
    """A turn and its judgement.

    Attributes:
        turn_id: The source's id of the turn.
        content_hash: Of the record that was judged.
        user: Whose it is, or None.
        wing: Its wing, or None.
        session_id: Its conversation, or None.
        created_at_us: Microseconds since the epoch, UNDATED_US where unknown.
        scores: By the names in `SCORES`, each in [0, 1].
        marks: What its words hold ("date", "preference", ...), sorted.
        neighbours: What it was compared with, nearest first, durable ones before repeated ones.
        decision: "propose" or "leave".
        reason: "proposed", "below_threshold" or "nothing_said".
    """

    turn_id: str
    content_hash: str
    user: str | None
    wing: str | None
    session_id: str | None
    created_at_us: int
    scores: Mapping[str, float]
    marks: tuple[str, ...]
    neighbours: tuple[Relation, ...]
    decision: str
    reason: str


class PromotionTable(NamedTuple):
    """What a night judged.

    Attributes:
        rows: By user, nobody first, then by time.
        is_on: False where promotion.enabled was off, and nothing was judged.
        threshold: Least G of a proposal.
        corpus: Digest of the corpus that was judged; "" where it was off.
    """

    rows: tuple[PromotionRow, ...]
    is_on: bool
    threshold: float
    corpus: str

    def proposals(self) -> list[PromotionRow]:
        """Return what is proposed, highest G first; of equal ones, the newest first."""
        found = [row for row in self.rows if row.decision == PROPOSE]
        return sorted(found, key=lambda row: (-row.scores["g"], -row.created_at_us, row.turn_id))


def make_row(heard: Heard, judged: Judged, id_of: Callable[[int], str]) -> PromotionRow:
    """Return the row of a judged turn.

    Args:
        heard: The turn.
        judged: Its judgement.
        id_of: Gives the memory id at a position, of everything that it was compared with.
    """
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
    """Read what `write_table` wrote.

    Raises:
        StoreError: There is no such table, or it is damaged.
    """
    with open_table(path) as (file, notes):
        rows = tuple(_row(found) for found in file.read().to_pylist())
        return PromotionTable(
            rows, bool(notes["on"]), float(notes["threshold"]), str(notes["corpus"])
        )


@contextmanager
def open_table(path: Path) -> Generator[tuple[Any, dict[str, Any]]]:
    """Open the table as a `pyarrow.parquet.ParquetFile`, with the night's notes on it.

    Raises:
        StoreError: There is no such table, or what was asked of it shows that it is damaged.
    """
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
