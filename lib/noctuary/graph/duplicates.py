"""Near duplicates: the newest memory in scope that repeats an older one."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from noctuary.core.files import release_pages
from noctuary.core.types import DAY_US, UNDATED_US, MemoryRecord
from noctuary.graph.extract import Extraction
from noctuary.graph.successors import LEAST_DAYS, LEAST_SIMILARITY, Keys, keys_of
from noctuary.graph.tables import Evidence
from noctuary.sources.corpus import MEMORIES_FILE, arrow_schema, column_batches, column_names
from noctuary.text.kinds import are_apart
from noctuary.text.marks import is_tombstone

if TYPE_CHECKING:
    import polars as pl

# One reason to think that a memory replaces another, before it is decided which one counts.

# Sources of a supersession, strongest first.
REASONS = ("explicit", "is_now", "newer_value", "near_duplicate")


class Link(NamedTuple):
    """A candidate for a supersession; both memories are of one user and of wings that agree."""

    older: int
    newer: int
    reason: str
    confidence: int
    similarity: float | None  # cosine of the two, or None where none was needed
    concept_id: str  # the subject on which both speak, or ""
    evidence: Evidence


# When and whose every memory is, as arrays: some 40 bytes a memory where a record takes 1,200.

_NOBODY = ""
_NO_KEYS = Keys(0, 0, "")
_COLUMNS = (
    "position", "memory_id", "created_at_us", "updated_at_us", "user", "wing", "is_turn",
)  # fmt: skip
KEYED_COLUMNS = ("content", "is_turn")  # what `read_keys` takes
_KEYS = ("tombstone", "marks", "alike", "things")  # and what it returns

_ARRAYS = ("created_at_us", "updated_at_us", "user", "wing", "is_turn", *_KEYS)

Ints = NDArray[np.int64]


class Sighting(NamedTuple):
    """When and whose one memory is."""

    position: int
    user: str  # "" for none
    wing: str  # "" for none: it may belong to any
    created_at_us: int

    def in_scope(self, other: Sighting) -> bool:
        """Return whether two belong to one user and to wings that agree."""
        return self.user == other.user and wings_agree(self.wing, other.wing)


@dataclass(frozen=True, slots=True)
class MemoryColumns:
    """Columns over the n memories of a corpus, by position; all but ids and names are (n,)."""

    memory_ids: pl.Series
    created_at_us: Ints  # UNDATED_US where unknown
    updated_at_us: Ints
    owners: NDArray[np.int32]  # index into `owner_names`
    wings: NDArray[np.int32]  # index into `wing_names`
    turns: NDArray[np.bool_]
    tombstones: NDArray[np.bool_]  # marked as superseded in the source
    marks: Ints  # the text's `successors.Keys.marks`; 0 for turns
    alike: Ints  # the text's `successors.Keys.alike`; 0 for turns
    things: NDArray[np.int32]  # index into `thing_sets`
    owner_names: tuple[str, ...]  # users, sorted; "" for no user
    wing_names: tuple[str, ...]  # wings, sorted; "" for none
    thing_sets: tuple[str, ...]  # the texts' `successors.Keys.things`, sorted; "" for turns

    def __len__(self) -> int:
        """Return n."""
        return len(self.created_at_us)

    @staticmethod
    def read(records: Sequence[MemoryRecord], keys: Any = None) -> MemoryColumns:
        """Read memories in any order; `keys` by position are read from the texts where None."""
        import polars as pl

        none = arrow_schema(MEMORIES_FILE).empty_table().select(_COLUMNS)
        read = pl.concat(map(pl.DataFrame, chain([none], column_batches(records, _COLUMNS))))
        found = _keys_of(records) if keys is None else pl.DataFrame(keys)
        rows = read.join(found, on="position", how="left").sort("position")
        rows = rows.with_columns(pl.col("user", "wing").fill_null(_NOBODY))
        positions = rows["position"].to_numpy()
        if not np.array_equal(positions, np.arange(len(positions))):
            raise ValueError(
                f"found {len(np.unique(positions))} positions for {len(positions)} memories, "
                f"expected 0..{len(positions) - 1}, each once: export the corpus again"
            )
        coded_names = ("user", "wing", "things")
        users, wings, things = (rows[of].unique().sort() for of in coded_names)
        coded = rows.with_columns(
            pl.col(of).cast(pl.Enum(names)).to_physical().cast(pl.Int32)
            for of, names in zip(coded_names, (users, wings, things), strict=True)
        )
        columns: Iterator[Any] = (coded[name].to_numpy() for name in _ARRAYS)
        return MemoryColumns(
            rows["memory_id"], *columns, owner_names=tuple(users), wing_names=tuple(wings),
            thing_sets=tuple(things),
        )  # fmt: skip

    def are_apart(self, one: int, other: int) -> bool:
        """Return whether two memories speak of two things of one kind."""
        ours, theirs = self.things[one], self.things[other]
        return are_apart(self.thing_sets[ours], self.thing_sets[theirs])

    def sighting(self, position: int) -> Sighting:
        """Return a memory's position, scope and date."""
        return Sighting(
            position,
            self.owner_names[self.owners[position]],
            self.wing_names[self.wings[position]],
            int(self.created_at_us[position]),
        )


def _keys_of(records: Sequence[MemoryRecord]) -> pl.DataFrame:
    import polars as pl

    schema = dict(zip(_KEYS, (pl.Boolean, pl.Int64, pl.Int64, pl.String), strict=True))
    found = [
        (position, *read_keys(*text))
        for batch in column_batches(records, ("position", *KEYED_COLUMNS))
        for position, *text in zip(*(c.to_pylist() for c in batch.columns), strict=True)
    ]
    return pl.DataFrame(found, {"position": pl.Int64, **schema}, orient="row")


def read_keys(content: str, is_turn: bool) -> tuple[bool, int, int, str]:
    """Return whether a memory is marked as superseded, and the `Keys` of its text."""
    keys = _NO_KEYS if is_turn else keys_of(content)
    return is_tombstone(content), keys.marks, keys.alike, keys.things


# Checks for every source of links: whether two scopes agree, and which memory is newer.
#
# As in recall (`noctuary.recall.selection`): both memories have the same user, or none; different
# wings keep both, and a memory without a wing matches any wing.

_LAST = 2**63  # after every position
# When a memory was made, and its position, which orders those of one moment.
Moment = tuple[int, int]


class Memory(NamedTuple):
    """A memory and what was found in it."""

    record: MemoryRecord
    extraction: Extraction

    @property
    def sighting(self) -> Sighting:
        """When and whose it is."""
        r = self.record
        return Sighting(r.position, r.user or _NOBODY, r.wing or _NOBODY, r.created_at_us)


# By position, in ascending order of position whatever the order of the input. All memories of a
# small corpus (`line_up`), or the few that state something (`corpus.Corpus`).
Memories = Mapping[int, Memory]


def line_up(records: Sequence[MemoryRecord], extractions: Sequence[Extraction]) -> Memories:
    """Return the memories by position."""
    pairs = sorted(zip(records, extractions, strict=True), key=lambda pair: pair[0].position)
    return {record.position: Memory(record, extraction) for record, extraction in pairs}


def wings_agree(one: str, other: str) -> bool:
    """Return whether two memories of these wings may replace one another."""
    return one == other or not one or not other


def is_dated(record: MemoryRecord | Sighting) -> bool:
    """Return whether it is known when the memory was made."""
    return record.created_at_us != UNDATED_US


class Timeline:
    """Dated memories of one user by wing, to be asked for the next or the last one in scope."""

    def __init__(self, sightings: Iterable[Sighting]) -> None:
        self._by_wing: defaultdict[str, list[Moment]] = defaultdict(list)
        for at in filter(is_dated, sightings):
            self._by_wing[at.wing].append((at.created_at_us, at.position))
        for line in self._by_wing.values():
            line.sort()

    def first_after(self, at: Sighting) -> int | None:
        """Return the oldest strictly later memory in scope, or None."""
        after = (at.created_at_us, _LAST)
        starts = [(line, bisect_right(line, after)) for line in self._lines(at.wing)]
        oldest = min((line[i] for line, i in starts if i < len(line)), default=None)
        return None if oldest is None else oldest[1]

    def last_before(self, at: Sighting) -> int | None:
        """Return the newest strictly earlier memory in scope, or None."""
        ends = [(line, bisect_left(line, (at.created_at_us, -1))) for line in self._lines(at.wing)]
        newest = max((line[end - 1] for line, end in ends if end), default=None)
        return None if newest is None else newest[1]

    def _lines(self, wing: str) -> list[list[Moment]]:
        wings = dict.fromkeys((wing, "")) if wing else tuple(self._by_wing)
        return [self._by_wing[w] for w in wings if w in self._by_wing]


# A corpus as supersession asks about it: columns of all memories, texts of the few that state.
#
# At a million memories, records and findings as objects are some 2 GB. Only a memory that states
# something, or is a `key: value` one, is read as a text: some twentieth of them.

# Yields, on each call, position and extraction of every memory with a subject, a tag or a
# statement; of the findings, only subjects and tags are needed. `stated_only=True` limits it to
# memories with a statement or a `key: value`.
Outlines = Callable[..., Iterable[tuple[int, Extraction]]]


@dataclass(frozen=True, slots=True)
class Corpus:
    """The memories of one night."""

    columns: MemoryColumns
    stating: Mapping[int, Memory]  # memories that may state something, by position, ascending
    outlines: Outlines

    @staticmethod
    def read(records: Sequence[MemoryRecord], outlines: Outlines, keys: Any = None) -> Corpus:
        """Read the columns (see `MemoryColumns.read`), and the memories that state something."""
        columns = MemoryColumns.read(records, keys)
        said = dict(outlines(stated_only=True))
        if said and not 0 <= min(said) <= max(said) < len(columns):
            raise ValueError(
                f"found outlines of positions {min(said)}..{max(said)}, expected positions in "
                f"0..{len(columns) - 1}: the state belongs to another corpus"
            )
        is_wanted = np.zeros(len(columns), dtype=np.bool_)
        is_wanted[list(said)] = True
        stating: dict[int, Memory] = {}
        for batch in column_batches(records, column_names(MEMORIES_FILE)) if said else ():
            rows = np.flatnonzero(is_wanted[batch.column("position").to_numpy()])
            values = [column.to_pylist() for column in batch.take(rows).columns]
            found = (MemoryRecord(*fields) for fields in zip(*values, strict=True))
            stating |= {record.position: Memory(record, said[record.position]) for record in found}
        return Corpus(columns, dict(sorted(stating.items())), outlines)


# Candidate cells: rows that point the same way share a cell, whatever else is in the corpus. Cells
# of k-means would move with it: one added memory would change which pairs are looked at.

# Chance that two rows of cosine LEAST_SIMILARITY share a cell; closer ones do more often. Higher
# finds more of the borderline pairs, for more sets of cells and their time.
LEAST_RECALL = 0.97
# Mean rows of a cell that the number of bits aims at. Fewer are quicker and miss more pairs.
ROWS_PER_CELL = 256
_SEED = 5_000_186  # of the hyperplanes; another one finds other borderline pairs

_ROWS_AT_ONCE = 4_096


def tables_for(bits: int) -> int:
    """Return how many independent sets of cells reach LEAST_RECALL.

    Rows at an angle a are on one side of a hyperplane with chance 1 - a/pi (0.83 at cosine 0.86),
    of b hyperplanes with that to the power b, and share a cell of t sets with 1 - (1 - p^b)^t.
    """
    together = (1.0 - math.acos(LEAST_SIMILARITY) / math.pi) ** bits
    return math.ceil(math.log(1.0 - LEAST_RECALL) / math.log1p(-together))


def signatures(
    vectors: NDArray[np.float32], bits: int, rows: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the cell of every row (or of `rows`) in every table, shape (n, tables)."""
    tables, powers = tables_for(bits), 1 << np.arange(bits, dtype=np.int64)
    # Every table has its own generator: more of them, or more bits, change nothing of the others.
    drawn = [np.random.default_rng((_SEED, table)) for table in range(tables)]
    planes = np.concatenate([r.standard_normal((bits, vectors.shape[1])) for r in drawn])
    chosen = np.arange(len(vectors)) if rows is None else rows
    cells = np.empty((len(chosen), tables), dtype=np.int64)
    for start in range(0, len(chosen), _ROWS_AT_ONCE):
        chunk = vectors[chosen[start : start + _ROWS_AT_ONCE]].astype(np.float64)
        sides = (chunk @ planes.T >= 0.0).reshape(len(chunk), tables, bits)
        cells[start : start + len(chunk)] = sides @ powers
    return cells


def shared_cells(
    olders: NDArray[np.int64], newers: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (rows of the olders, rows of the newers) of each cell of a table that holds both."""
    by_older, by_newer = np.argsort(olders, kind="stable"), np.argsort(newers, kind="stable")
    shared = np.intersect1d(olders, newers)
    bounds = [
        np.searchsorted(cells[order], shared, side=side)
        for cells, order in ((olders, by_older), (newers, by_newer))
        for side in ("left", "right")
    ]
    for a, b, c, d in zip(*(b.tolist() for b in bounds), strict=True):
        yield by_older[a:b], by_newer[c:d]


# The search: rows of a wing are compared with rows of the same wing and with those without one;
# these with all rows of the user. Up to EXACT_PAIRS pairs are compared one by one, beyond that
# those that share a cell. Turns are skipped: courtesies recur ("Bye!" and "Thanks!" on locomo).

# Most pairs that are compared one by one (two seconds of one slow core at 384 dimensions). Higher
# finds every pair of larger groups; beyond it, cells miss some pairs near the threshold.
EXACT_PAIRS = 12_288 * 12_288
# Older rows compared at once. Fewer skip more columns that are not late enough for any of them;
# more make larger products.
_BLOCK_ROWS = 512
# Newer rows compared at once: bounds memory to some megabytes per array, and the work past the
# first match.
_BLOCK_COLUMNS = 2_048
# Above the rounding of a float32 product, whose order of summation depends on the block.
_SLACK = 1e-4
_DIGITS = 6
_MAPPED_ROWS = 16_384  # rows of vectors that stay mapped: 25 MB at 384 dimensions

Floats = NDArray[np.float32]


class NearPair(NamedTuple):
    """Two memories by position; the newer is the newest near duplicate that was asked for."""

    older: int
    newer: int
    similarity: float


class Comparison(NamedTuple):
    """Rows whose newest near duplicates are sought among other rows."""

    olders: Ints  # positions in order of moment, shape (a,)
    newers: Ints  # positions in order of moment, shape (b,)
    bits: int


def comparisons(memories: MemoryColumns, *, exact_pairs: int = EXACT_PAIRS) -> Iterator[Comparison]:
    """Yield the comparisons that a corpus needs, given its users, wings and dates."""
    by_moment = np.argsort(memories.created_at_us, kind="stable")
    rows = by_moment[((memories.created_at_us != UNDATED_US) & ~memories.turns)[by_moment]]
    _, groups, sizes = np.unique(memories.alike[rows], return_inverse=True, return_counts=True)
    rows = rows[sizes[groups] > 1]
    by_owner = _split(rows, memories.owners)
    shared = (group for own in by_owner for group in _split(own, memories.alike))
    for everything in (group for group in shared if len(group) > 1):
        wings = list(_split(everything, memories.wings))
        # Names are sorted, so a first group without a name is the one without a wing.
        wingless = [] if memories.wing_names[memories.wings[wings[0][0]]] else wings[:1]
        for place, own in enumerate(wings):
            for newers in [own, *wingless] if place or not wingless else [everything]:
                # A memory that its owner marked as superseded replaces nothing.
                kept = newers[~memories.tombstones[newers]]
                exact = len(own) * len(kept) <= exact_pairs
                bits = 0 if exact else max((len(kept) // ROWS_PER_CELL).bit_length(), 1)
                if len(kept):
                    yield Comparison(own, kept, bits)


def _split(rows: Ints, codes: NDArray[np.integer]) -> Iterator[Ints]:
    """Yield the rows of every code, ascending by code, each in the order it has."""
    found = codes[rows]
    order = np.argsort(found, kind="stable")
    bounds = np.flatnonzero(np.diff(found[order])) + 1
    if len(rows):
        yield from np.split(rows[order], bounds)


def exact_cosine(one: Floats, other: Floats) -> float:
    """Return the cosine of two unit vectors, the same whatever else is compared."""
    products = one.astype(np.float64) * other.astype(np.float64)
    return min(round(float(products.sum()), _DIGITS), 1.0)


def find_near_duplicates(memories: MemoryColumns, vectors: Floats) -> list[NearPair]:
    """Return the newest near duplicates, at most two per older memory; vectors are unit rows."""
    pairs: list[NearPair] = []
    read = 0
    for comparison in comparisons(memories):
        pairs += newest_near_duplicates(
            comparison, vectors, memories.created_at_us, memories.are_apart
        )
        # Groups are many and mostly small.
        read += len(comparison.olders) + len(comparison.newers)
        if read >= _MAPPED_ROWS:
            read = 0
            release_pages(vectors)
    release_pages(vectors)
    return sorted(pairs)


def newest_near_duplicates(
    comparison: Comparison,
    vectors: Floats,
    created_at_us: Ints,
    are_apart: Callable[[int, int], bool] = lambda _one, _other: False,
) -> list[NearPair]:
    """Return the newest near duplicate of every older row that has one, never one set apart."""
    search = _Search(comparison, vectors, created_at_us, are_apart)
    for olders, newers in _cells(comparison, vectors):
        # Both ascend, that is, are in order of moment.
        for start in range(0, len(olders), _BLOCK_ROWS):
            search.compare(olders[start : start + _BLOCK_ROWS], newers)
    return search.pairs()


def _cells(comparison: Comparison, vectors: Floats) -> Iterator[tuple[Ints, Ints]]:
    """Yield rows of a comparison, by their index, that are compared with one another."""
    olders, newers = comparison.olders, comparison.newers
    if not comparison.bits:
        yield np.arange(len(olders)), np.arange(len(newers))
        return
    # The newer rows are mostly the older ones again.
    rows = np.union1d(olders, newers)
    olders, newers = (np.searchsorted(rows, some) for some in (olders, newers))
    for table in signatures(vectors, comparison.bits, rows).T:
        yield from shared_cells(table[olders], table[newers])


class _Search:
    """The newest near duplicate of every older row so far. Rows are indices of the comparison."""

    def __init__(
        self,
        comparison: Comparison,
        vectors: Floats,
        created_at_us: Ints,
        are_apart: Callable[[int, int], bool],
    ) -> None:
        self._olders, self._newers, _ = comparison
        self._vectors, self._are_apart = vectors, are_apart
        self._older_us = created_at_us[self._olders]
        # the latest moment of a memory that each newer row may replace
        self._until_us = created_at_us[self._newers] - LEAST_DAYS * DAY_US
        self._best = np.full(len(self._olders), -1, dtype=np.int64)
        self._similarity = np.zeros(len(self._olders))

    def pairs(self) -> list[NearPair]:
        found = np.flatnonzero(self._best >= 0)
        columns = self._olders[found], self._newers[self._best[found]], self._similarity[found]
        return list(map(NearPair, *(column.tolist() for column in columns)))

    def compare(self, rows: Ints, newers: Ints) -> None:
        # A row that has met its newest near duplicate is done, so a thousand copies of one text
        # cost one block of columns and not a thousand rows.
        late_enough = int(np.searchsorted(self._until_us[newers], self._older_us[rows[0]]))
        newest_first = newers[late_enough:][::-1]
        for start in range(0, len(newest_first), _BLOCK_COLUMNS):
            columns = newest_first[start : start + _BLOCK_COLUMNS]
            rows = rows[self._best[rows] < columns[0]]
            if not len(rows):
                return
            self._match(rows, columns)

    def _match(self, rows: Ints, columns: Ints) -> None:
        """Record for each row the first column that is near and newer than its current best."""
        some, others = self._vectors[self._olders[rows]], self._vectors[self._newers[columns]]
        near = some @ others.T >= LEAST_SIMILARITY - _SLACK
        if not near.any():
            return
        near &= self._older_us[rows][:, None] <= self._until_us[columns]
        near &= columns > self._best[rows][:, None]
        for place in np.flatnonzero(near.any(axis=1)).tolist():
            older = int(self._olders[rows[place]])
            for column in np.flatnonzero(near[place]).tolist():
                if self._are_apart(older, int(self._newers[columns[column]])):
                    continue
                similarity = exact_cosine(some[place], others[column])
                if similarity >= LEAST_SIMILARITY:
                    self._best[rows[place]] = columns[column]
                    self._similarity[rows[place]] = similarity
                    break
