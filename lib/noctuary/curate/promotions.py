"""The ingestion gate: which turns of a person are proposed as durable memories."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.compact.clusters import write_rows
from noctuary.core.files import replacement
from noctuary.core.tombstones import read_tombstones
from noctuary.core.types import SILENT, UNDATED_US, MemoryRecord, Progress
from noctuary.curate.proposals import NOTES, open_noted
from noctuary.curate.signals import (
    DURABLE_HITS,
    REPEATED_COSINE,
    REPEATED_HITS,
    SIGNALS_VERSION,
    Gate,
    Signals,
    gate,
    novelty,
    read_signals,
    repetition,
    said_something,
)
from noctuary.embed.documents import text_key
from noctuary.embed.rotation import FIT_ROWS_PER_CELL, assign, fit_centroids
from noctuary.sources.corpus import iter_records
from noctuary.text.marks import split_speaker
from noctuary.work.content import ContentStore

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

# Which turns of a corpus the gate hears, and which memories each of them is compared with.

# Labels of whatever is no person, folded. A person of such a name ("Claude") is not heard: a
# proposal that is missing costs less than one that a machine wrote.
MACHINE_SPEAKERS = frozenset(
    {
        "agent", "ai", "assistant", "bot", "chatbot", "chatgpt", "claude", "codex", "command",
        "copilot", "cursor", "developer", "function", "gemini", "gpt", "hook", "llm", "model",
        "output", "result", "subagent", "summary", "system", "tool", "tool result", "tool use",
    }
)  # fmt: skip


def read_statement(content: str) -> str | None:
    """Return a turn's text if a person wrote it; None without a label: it may be an answer."""
    speaker, text = split_speaker(content)
    # "Assistant (planner)" is an assistant.
    name = (speaker or "").split("(")[0].replace("_", " ").replace("-", " ").strip().casefold()
    return None if speaker is None or name in MACHINE_SPEAKERS else text.strip()


class Heard(NamedTuple):
    """A turn by a person: the first columns of its row in the table, and no text."""

    turn_id: str  # the source's id
    content_hash: str  # to detect in a listing whether it has changed
    user: str | None
    wing: str | None
    session_id: str | None
    created_at_us: int  # UNDATED_US where unknown
    position: int
    signals: Signals


class Candidates(NamedTuple):
    """The turns and memories of a corpus that take part."""

    heard: Mapping[str | None, list[Heard]]  # turns of persons, by user
    memories: Mapping[str | None, list[int]]  # positions of durable memories, by user
    unheard: int  # turns not known to be a person's

    def seen_by(self, user: str | None) -> Ints:
        """Return the positions of the durable memories that a user may see, ascending."""
        found = sorted(p for owner in {user, None} for p in self.memories.get(owner, ()))
        return np.asarray(found, dtype=np.int64)


SIGNALS_KIND = f"signals:{SIGNALS_VERSION}"


def find_candidates(
    batches: Iterable[Sequence[MemoryRecord]], kept: ContentStore | None = None
) -> Candidates:
    """Return the turns that count and the memories, superseded ones too, to compare them with.

    Signals of texts that were read before are taken from `kept`.
    """
    heard: defaultdict[str | None, list[Heard]] = defaultdict(list)
    memories: defaultdict[str | None, list[int]] = defaultdict(list)
    unheard = 0
    for batch in batches:
        said: list[tuple[MemoryRecord, str]] = []
        for r in batch:
            if not r.is_turn:
                memories[r.user].append(r.position)
            elif (statement := read_statement(r.content)) is None:
                unheard += 1
            else:
                said.append((r, statement))
        for (r, _), signals in zip(said, _read_all(said, kept), strict=True):
            named = r.memory_id, r.content_hash, r.user, r.wing, r.session_id, r.created_at_us
            heard[r.user].append(Heard(*named, r.position, signals))
    for turns in heard.values():
        turns.sort(key=lambda turn: (turn.created_at_us, turn.position))
    return Candidates(heard, memories, unheard)


def _read_all(
    turns: Sequence[tuple[MemoryRecord, str]], kept: ContentStore | None
) -> Iterator[Signals]:
    """Yield the signals of statements, kept by the content of their turns."""
    keys = [text_key(record.content) for record, _ in turns]
    known: dict[bytes, bytes] = {} if kept is None else kept.get(keys)
    fresh: dict[bytes, bytes] = {}
    for key, (_, statement) in zip(keys, turns, strict=True):
        if key in known or key in fresh:
            *numbers, marks, words = json.loads(known.get(key) or fresh[key])
            yield Signals(*numbers, marks=tuple(marks), words=words)
        else:
            signals = read_signals(statement)
            fresh[key] = json.dumps(signals).encode()
            yield signals
    if kept is not None:
        kept.put(list(fresh), list(fresh.values()))


_TOLD_EVERY = 1_024  # turns between two reports of progress


def judge_turns(
    candidates: Candidates, vectors: Floats, threshold: float, progress: Progress = SILENT
) -> Iterator[tuple[Heard, Judged]]:
    """Yield every heard turn with its judgement: by user (unowned ones first), then by time."""
    total = sum(len(turns) for turns in candidates.heard.values())
    done = 0
    for user in sorted(candidates.heard, key=lambda user: (user is not None, user or "")):
        turns = candidates.heard[user]
        positions = np.asarray([turn.position for turn in turns], dtype=np.int64)
        signals = [turn.signals for turn in turns]
        judged = walk(positions, signals, candidates.seen_by(user), vectors, threshold)
        for pair in zip(turns, judged, strict=True):
            yield pair
            done += 1
            if done % _TOLD_EVERY == 0 or done == total:
                progress.update("judging turns", done, total)


# Similar texts of a turn: its nearest earlier turns and durable memories by the night's vectors.
#
# Up to EXACT_PAIRS everything is compared, in a second of one core at 384 dimensions; beyond,
# only candidates of the cells next to a turn. Of 100,000 memories that finds 97 % of the five
# nearest; novelty changes by .0002 on average and by .005 at most.

EXACT_PAIRS = 1 << 26
ROWS_PER_CELL = 512
PROBES = 16  # cells that a turn is compared with
ALIKE_PROBES = 8  # where only rows of a high cosine count, which lie in the nearest cells
QUERY_ROWS, CANDIDATE_ROWS = 256, 2_048  # compared at once: 10 MB with the merge
_ROWS_AT_ONCE = 8_192  # whose cells are found at once: 32 KB per cell
_SLACK = 1e-4  # above the rounding of a float32 product, whose order depends on the block
_DIGITS = 6


class Neighbour(NamedTuple):
    """A row that is like another."""

    cosine: float  # in [-1, 1], to 6 digits
    position: int


class Nearest:
    """The k nearest candidates of every turn, of all that were offered so far."""

    def __init__(self, turns: Ints, vectors: Floats, k: int, least_cosine: float = -1.0) -> None:
        """Start without candidates; a row of zeros is at cosine 0 of everything."""
        self._turns, self._vectors, self._least = turns, vectors, least_cosine
        # Descending, -inf and -1 where there is none.
        self._cosines = np.full((len(turns), k), -np.inf, dtype=np.float32)
        self._positions = np.full((len(turns), k), -1, dtype=np.int64)

    def offer(
        self,
        candidates: Ints,
        rows: Ints | None = None,
        *,
        earlier_only: bool = False,
        probes: int = PROBES,
    ) -> None:
        """Compare turns with candidates, each of which may be offered once.

        Candidates are positions, shape (m,); `rows` are numbers of the turns, ascending, None for
        all. With `earlier_only` the candidates are the turns, each compared with those before it.
        """
        asking = np.arange(len(self._turns)) if rows is None else rows
        if len(asking) * len(candidates) // (1 + earlier_only) <= EXACT_PAIRS:
            self._compare(asking, candidates, np.arange(len(candidates)), earlier_only)
            return
        for near, held in _by_cell(self._turns[asking], candidates, self._vectors, probes):
            self._compare(asking[near], candidates, held, earlier_only)

    def of(self, row: int) -> list[Neighbour]:
        """Return the neighbours of a turn, nearest first; of equal ones, by position."""
        kept = self._positions[row][self._positions[row] >= 0]
        near = neighbours(self._vectors[self._turns[row]], self._vectors[kept], kept)
        return [n for n in near if n.cosine >= self._least]

    def _compare(self, asking: Ints, candidates: Ints, held: Ints, earlier_only: bool) -> None:
        """Compare some turns with some of the candidates, both by ascending number."""
        for first in range(0, len(asking), QUERY_ROWS):
            rows = asking[first : first + QUERY_ROWS]
            block = _floats(self._vectors, self._turns[rows])
            for start in range(0, len(held), CANDIDATE_ROWS):
                chunk = held[start : start + CANDIDATE_ROWS]
                if earlier_only and chunk[0] >= rows[-1]:
                    break
                found = candidates[chunk]
                products = block @ _floats(self._vectors, found).T
                if earlier_only:
                    products[chunk[None, :] >= rows[:, None]] = -np.inf
                self._take(rows, products, found)

    def _take(self, rows: Ints, products: Floats, candidates: Ints) -> None:
        """Merge nearer candidates into those kept; products of shape (rows, candidates)."""
        bar = np.maximum(self._cosines[rows, -1], self._least - _SLACK)
        # Later candidates improve few rows: only those are merged.
        better = np.flatnonzero(products.max(axis=1, initial=-np.inf) > bar)
        rows, k = rows[better], self._cosines.shape[1]
        others = np.broadcast_to(candidates, (len(better), len(candidates)))
        cosines = np.concatenate([self._cosines[rows], products[better]], axis=1)
        positions = np.concatenate([self._positions[rows], others], axis=1)
        best = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(cosines, best, axis=1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, axis=1)
        kept = np.take_along_axis(cosines, best, axis=1)
        chosen = np.take_along_axis(positions, best, axis=1)
        self._cosines[rows] = kept
        self._positions[rows] = np.where(np.isneginf(kept), -1, chosen)


def neighbours(row: Floats, others: Floats, positions: Iterable[Any]) -> list[Neighbour]:
    """Return unit rows (m, d) as neighbours of a row (d,), nearest first, whatever else there is.

    Cosines are of single products, so that they do not depend on how rows are cut into blocks.
    """
    if not len(others):
        return []
    products = np.asarray(others, dtype=np.float64) * np.asarray(row, dtype=np.float64)
    cosines = [min(max(round(c, _DIGITS), -1.0), 1.0) for c in products.sum(axis=1).tolist()]
    found = [Neighbour(c, int(p)) for c, p in zip(cosines, positions, strict=True)]
    return sorted(found, key=_nearest_first)


def _nearest_first(neighbour: Neighbour) -> tuple[float, int]:
    return -neighbour.cosine, neighbour.position


def _by_cell(
    turns: Ints, candidates: Ints, vectors: Floats, probes: int
) -> Iterator[tuple[Ints, Ints]]:
    """Yield the numbers of turns next to a cell and of its candidates, both ascending, per cell."""
    count = max(len(candidates) // ROWS_PER_CELL, 1)
    sample = candidates[:: max(len(candidates) // (count * FIT_ROWS_PER_CELL), 1)]
    centroids, width = fit_centroids(_floats(vectors, sample), count), min(probes, count)
    # In no order, shape (turns, width).
    near = np.concatenate(
        [
            np.argpartition(-(_floats(vectors, part) @ centroids.T), width - 1, axis=1)[:, :width]
            for part in _parts(turns)
        ]
    )
    own = [assign(_floats(vectors, part), centroids) for part in _parts(candidates)]
    asked, held = _rows_by_cell(near.ravel(), count), _rows_by_cell(np.concatenate(own), count)
    yield from ((rows // width, numbers) for rows, numbers in zip(asked, held, strict=True))


def _rows_by_cell(cells: NDArray[np.integer], count: int) -> list[Ints]:
    order = np.argsort(cells, kind="stable")
    return np.split(order, np.searchsorted(cells[order], np.arange(1, count)))


def _floats(vectors: Floats, rows: Ints) -> Floats:
    return np.asarray(vectors[rows], dtype=np.float32)


def _parts(rows: Ints) -> Iterator[Ints]:
    return (rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE))


# Judge turn after turn. A proposed turn counts as durable from then on, so that its repetitions are
# not proposed.

# Turns compared at once with the proposals before their block; with proposals of their own block
# they are compared one by one.
BLOCK_ROWS = 256

# Why a turn is, or is not, proposed. The last: it could only be for being new or repeated, so it is
# compared with nothing, and its H and R count as 0.
PROPOSED, BELOW_THRESHOLD, NOTHING_SAID = "proposed", "below_threshold", "nothing_said"


class Judged(NamedTuple):
    """The judgement of one turn."""

    position: int
    h: float  # novelty
    r: float  # repetition
    gate: Gate  # G and its branches
    reason: str  # one of the three above
    durable: tuple[Neighbour, ...]  # the nearest `DURABLE_HITS`, whatever their cosine
    repeated: tuple[Neighbour, ...]  # earlier turns of `REPEATED_COSINE` and more


def walk(
    turns: Ints, signals: Sequence[Signals], memories: Ints, vectors: Floats, threshold: float
) -> Iterator[Judged]:
    """Yield the judgement of every turn of one user, in order of time.

    Turns and durable memories that this user may see are positions, shapes (n,) and (m,), the
    turns oldest first; vectors are unit rows by position; `threshold` is the least G, in [0, 1].
    """
    vectors = np.asarray(vectors)  # a row of a mapped file takes longer than its product
    # Nine turns in ten say nothing, whatever they are near: nobody asks what that is.
    speaks = np.fromiter(map(said_something, signals), np.bool_, len(signals))
    asking = np.flatnonzero(speaks)
    durable = Nearest(turns, vectors, DURABLE_HITS)
    durable.offer(memories, asking)
    repeated = Nearest(turns, vectors, REPEATED_HITS, REPEATED_COSINE)
    repeated.offer(turns, asking, earlier_only=True, probes=ALIKE_PROBES)
    let_in: list[int] = []
    for start in range(0, len(turns), BLOCK_ROWS):
        rows = np.arange(start, min(start + BLOCK_ROWS, len(turns)))
        durable.offer(turns[let_in], rows[speaks[rows]])
        fresh: list[int] = []
        for row in rows.tolist():
            if not speaks[row]:
                words_alone = gate(signals[row], 0.0, 0.0)
                yield Judged(int(turns[row]), 0.0, 0.0, words_alone, NOTHING_SAID, (), ())
                continue
            just = neighbours(vectors[turns[row]], vectors[turns[fresh]], turns[fresh])
            kept = sorted([*durable.of(row), *just], key=_nearest_first)[:DURABLE_HITS]
            near = repeated.of(row)
            judged = _judge(int(turns[row]), signals[row], kept, near, threshold)
            if judged.reason == PROPOSED:
                fresh.append(row)
            yield judged
        let_in += fresh


def _judge(
    position: int, said: Signals, durable: list[Neighbour], near: list[Neighbour], threshold: float
) -> Judged:
    cosines = [n.cosine for n in durable]
    h = round(novelty(cosines), _DIGITS)
    r = round(repetition([n.cosine for n in near], cosines), _DIGITS)
    found = gate(said, h, r)
    reason = PROPOSED if found.g >= threshold else BELOW_THRESHOLD
    return Judged(position, h, r, found, reason, tuple(durable), tuple(near))


# proposals.parquet: a row per turn of a person, with every number of its judgement.

PROMOTIONS = "promotion/proposals.parquet"  # below the work directory

PROPOSE, LEAVE = "propose", "leave"

KEPT_NEIGHBOURS = 5  # of each kind, in the table: as many as repetition counts

SCORES = ("g", "t", "h", "r", "d", "p", "a", "dtech", "gconv", "gtech")
"""As libravdb stores them with a durable record: G, T, H, R, D, P, A, Dt and both branches."""

Row = dict[str, Any]  # a turn and its judgement, as the table has it and `--json` shows it


class PromotionTable(NamedTuple):
    """The turns judged in a night."""

    rows: tuple[Row, ...]  # by user (unowned ones first), then by time
    is_on: bool  # False if promotion.enabled was off: nothing was judged
    threshold: float  # least G of a proposal
    corpus: str  # digest of the judged corpus; "" if it was off


def make_row(heard: Heard, judged: Judged, id_of: Callable[[int], str]) -> Row:
    """Return the row of a judged turn."""
    s, (g, gconv, gtech) = heard.signals, judged.gate
    numbers = g, s.t, judged.h, judged.r, s.d, s.p, s.a, s.dtech, gconv, gtech
    # Its neighbours: durable memories with earlier proposals, and similar turns.
    near = [
        {"memory_id": id_of(n.position), "kind": kind, "cosine": n.cosine}
        for kind, found in (("durable", judged.durable), ("repeated", judged.repeated))
        for n in found[:KEPT_NEIGHBOURS]
    ]
    return {
        **dict(zip(Heard._fields, heard[:6], strict=False)),
        **dict(zip(SCORES, numbers, strict=True)),
        "marks": list(s.marks),
        "neighbours": near,
        "decision": PROPOSE if judged.reason == PROPOSED else LEAVE,
        "reason": judged.reason,
    }


def write_table(
    path: Path,
    rows: Iterable[Row],
    *,
    is_on: bool = True,
    threshold: float = 0.0,
    corpus: str = "",
) -> dict[str, int]:
    """Replace the table atomically, equal rows as equal bytes; return the counts by reason."""
    notes = json.dumps({"on": is_on, "threshold": threshold, "corpus": corpus}, sort_keys=True)
    schema, counts = _schema().with_metadata({NOTES: notes}), Counter[str]()
    with replacement(path) as tmp, write_rows(tmp, schema) as add:
        for row in rows:
            counts[row["reason"]] += 1
            add(row)
    return dict(sorted(counts.items()))


def _schema() -> Any:
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    related = pa.struct([("memory_id", text), ("kind", text), ("cosine", number)])
    texts = ("turn_id", "content_hash", "user", "wing", "session_id")
    names = [*((name, text) for name in texts), ("created_at_us", pa.int64())]
    names += [*((name, number) for name in SCORES), ("marks", pa.list_(text))]
    return pa.schema(
        [*names, ("neighbours", pa.list_(related)), ("decision", text), ("reason", text)]
    )


def read_table(path: Path) -> PromotionTable:
    """Read a table written by `write_table`."""
    missing = f"There is no table of promotions at {path}: run the night."
    with open_noted(path, missing, "promotions") as (file, notes):
        said = bool(notes["on"]), float(notes["threshold"]), str(notes["corpus"])
        return PromotionTable(tuple(file.read().to_pylist()), *said)


# The night's proposals with their texts, for people.


def list_promotions(
    work: Path, *, user: str | None = None, with_left: bool = False, limit: int | None = None
) -> dict[str, Any]:
    """Return the last night's proposals to a user (None: without an owner, not all), as JSON."""
    table = read_table(work / PROMOTIONS)
    gone = read_tombstones(work.parent).ids  # hidden until the night that makes the table again
    own = [row for row in table.rows if row["user"] == user and row["turn_id"] not in gone]
    wanted = [row for row in own if with_left or row["decision"] == PROPOSE]
    chosen = sorted(wanted, key=_best_first)[:limit]
    hashes = {row["turn_id"]: row["content_hash"] for row in chosen}
    texts = {
        record.memory_id: record.content
        for batch in (iter_records(work / "corpus") if hashes else ())
        for record in batch
        if hashes.get(record.memory_id) == record.content_hash
    }
    for row in chosen:
        dated = None if row["created_at_us"] == UNDATED_US else row["created_at_us"]
        row.update(created_at_us=dated, text=texts.get(row["turn_id"]))
    counts = Counter(row["reason"] for row in own)
    return {
        "enabled": table.is_on,
        "threshold": table.threshold,
        "counts": dict(sorted(counts.items())),
        "promotions": chosen,
    }


def _best_first(row: Row) -> tuple[bool, float, int, str]:
    """Proposals before the rest, the highest G first; of equal ones, the newest first."""
    return row["decision"] != PROPOSE, -row["g"], -row["created_at_us"], row["turn_id"]
