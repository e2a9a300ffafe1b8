from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from noctuary.core.types import UNDATED_US, MemoryRecord
from noctuary.graph.duplicates import (
    Corpus,
    MemoryColumns,
    comparisons,
    is_dated,
)
from noctuary.graph.extract import Extraction, Found, Stated
from noctuary.graph.successors import keys_of
from noctuary.sources.corpus import MEMORIES_FILE, RecordFile, open_table, record_row
from noctuary.text.marks import is_tombstone
from tests.support.supersession import corpus_of

DAYS = st.sampled_from([UNDATED_US, -5, 0, 1, 2, 2**62])
RECORDS = st.lists(
    st.tuples(
        DAYS,
        st.sampled_from([None, "", "u", "v"]),
        st.sampled_from([None, "", "x", "y", "Z"]),
        st.booleans(),
        st.sampled_from(["note", "[SUPERSEDED] note", " [superseded]", "note 7", "note 8"]),
    ),
    max_size=14,
).map(
    lambda drawn: [
        MemoryRecord(
            position, f"m{position}", content, "", "", "", 0.5, created, position, None, wing, None,
            user, is_turn, "",
        )
        for position, (created, user, wing, is_turn, content) in enumerate(drawn)
    ]
)  # fmt: skip

Compared = list[tuple[list[int], list[int], int]]


def naive_comparisons(records: list[MemoryRecord], exact_pairs: int) -> Compared:
    """Every group as objects: each wing with its own and with the wingless, these with all."""
    scopes: dict[tuple[str, int], dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for record in sorted(records, key=lambda r: (r.created_at_us, r.position)):
        if is_dated(record) and not record.is_turn:
            scopes[(record.user or ""), keys_of(record.content).alike][record.wing or ""].append(
                record.position
            )
    marked = {record.position for record in records if is_tombstone(record.content)}
    found: Compared = []
    for _, wings in sorted(scopes.items()):
        everything = sorted(
            (p for rows in wings.values() for p in rows),
            key=lambda p: (records[p].created_at_us, p),
        )
        for wing, own in sorted(wings.items() if len(everything) > 1 else ()):
            for rows in [own, wings.get("", [])] if wing else [everything]:
                newers = [p for p in rows if p not in marked]
                if newers:
                    # A mean of 256 rows a cell: up to 14 of them are one bit.
                    found.append((own, newers, int(len(own) * len(newers) > exact_pairs)))
    return found


@given(RECORDS, st.sampled_from([0, 4, 1_000]))
def test_what_is_compared_is_what_a_walk_over_objects_compares(
    records: list[MemoryRecord], exact_pairs: int
) -> None:
    made = comparisons(MemoryColumns.read(records), exact_pairs=exact_pairs)
    plain = [(c.olders.tolist(), c.newers.tolist(), c.bits) for c in made]
    assert plain == naive_comparisons(records, exact_pairs)


@given(RECORDS, st.randoms(use_true_random=False))
def test_columns_say_what_the_records_say_in_any_order(
    records: list[MemoryRecord], random: object
) -> None:
    order = list(records)
    random.shuffle(order)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    columns = MemoryColumns.read(order)
    assert len(columns) == len(records)
    for record in records:
        at = columns.sighting(record.position)
        assert (at.position, at.created_at_us) == (record.position, record.created_at_us)
        assert (at.user, at.wing) == ((record.user or ""), (record.wing or ""))
    assert columns.memory_ids.to_list() == [r.memory_id for r in records]
    assert columns.updated_at_us.tolist() == [r.updated_at_us for r in records]
    assert columns.turns.tolist() == [r.is_turn for r in records]
    assert columns.tombstones.tolist() == [is_tombstone(r.content) for r in records]
    assert (columns.created_at_us != UNDATED_US).tolist() == [is_dated(r) for r in records]
    assert list(columns.owner_names) == sorted({r.user or "" for r in records})
    assert list(columns.wing_names) == sorted({r.wing or "" for r in records})


SAYS = Extraction((), (Stated("a", "is_now", "b", 0, 4, "a", "b"),))
KEY = Extraction((Found("about", "key", "port", 0, 4, "Port"),))
PLAIN = Extraction((Found("about", "title", "port", 0, 4, "Port"),))


@given(RECORDS, st.data())
def test_only_memories_that_state_something_are_read_as_records_from_a_file_or_a_list(
    records: list[MemoryRecord], data: st.DataObject
) -> None:
    drawn = st.lists(
        st.sampled_from([SAYS, KEY, PLAIN, Extraction(())]),
        min_size=len(records), max_size=len(records),
    )  # fmt: skip
    extractions = data.draw(drawn)
    held = corpus_of(records, extractions)
    assert list(held.stating) == [p for p, e in enumerate(extractions) if e in (SAYS, KEY)]
    for position, memory in held.stating.items():
        assert memory == (records[position], extractions[position])
    with TemporaryDirectory() as directory:
        path = Path(directory) / MEMORIES_FILE
        with open_table(path, MEMORIES_FILE) as write:
            for record in records:
                write(record_row(record))
        stored = Corpus.read(RecordFile(path), held.outlines)
    assert stored.stating == held.stating
    assert stored.columns.owners.tolist() == held.columns.owners.tolist()
    assert stored.columns.created_at_us.tolist() == held.columns.created_at_us.tolist()


def test_positions_with_gaps_or_repeats_are_refused() -> None:
    def record(position: int) -> MemoryRecord:
        return MemoryRecord(
            position, "m", "x", "", "", "", 0.5, 0, 0, None, None, None, None, False, ""
        )

    for positions in ([0, 2], [1, 1], [1, 2]):
        with pytest.raises(ValueError, match=r"each once: export the corpus again"):
            MemoryColumns.read([record(p) for p in positions])
    with pytest.raises(ValueError, match=r"of positions 3\.\.3, expected positions in 0\.\.0"):
        Corpus.read([record(0)], lambda *, stated_only=False: [(3, SAYS)])
    assert len(MemoryColumns.read([])) == 0
    assert np.array_equal(MemoryColumns.read([record(1), record(0)]).created_at_us, [0, 0])
