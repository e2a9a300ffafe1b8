"""Writing proposals to a source: all of them or none, with a journal that takes them back.

What belongs here: the order of one transaction (lock, compare, write, note). What does not: which
row is which (`matching`), what a text would be (`compose`), one kind of database (`stores`).

Everything is compared before anything is written, so that proposals of one night that share a row
(what one keeps, another supersedes) agree with the state that they were made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from noctuary.curate.compose import Fields, joined_text, united
from noctuary.curate.exact import fields_of
from noctuary.curate.journal import (
    Change,
    Entry,
    applied_proposals,
    ensure_journal,
    next_id,
    write_entry,
)
from noctuary.curate.matching import Matched, Where, match
from noctuary.curate.model import Proposal
from noctuary.curate.stores.base import Transaction, WritableStore
from noctuary.errors import CurationRefusedError
from noctuary.hashing import hash_text
from noctuary.text.tombstone import TOMBSTONE_IMPORTANCE, buried
from noctuary.types import MemoryRecord

REFUSALS_SHOWN = 5
"""Refusals spelled out in a message; the number of all is given."""


class Applied(NamedTuple):
    """What was written.

    Attributes:
        journal_id: What `undo` takes; None where there was nothing to do.
        written: Ids of the proposals that were applied now.
        held: Ids of those that were applied before, with their journal ids.
        tombstones: Rows that were marked.
        updated: Rows whose fields were filled up.
        added: New rows.
    """

    journal_id: int | None
    written: tuple[str, ...]
    held: Mapping[str, int]
    tombstones: tuple[int, ...]
    updated: tuple[int, ...]
    added: tuple[int, ...]


class _Write(NamedTuple):
    proposal_id: str
    change: Change
    row_id: int
    values: Mapping[str, object]


def apply_proposals(
    store: WritableStore,
    proposals: Sequence[Proposal],
    where: Where,
    *,
    now: datetime | None = None,
) -> Applied:
    """Write proposals in one transaction; those that hold already are left out.

    Args:
        store: The source.
        proposals: None of them a NOOP.
        where: What is known of the source.
        now: Moment for updated_at and the journal; None means now.

    Raises:
        CurationRefusedError: A proposal is a NOOP, or the source changed since; nothing is written.
        SourceError: The source is locked or cannot be written; nothing is.
    """
    idle = [p.proposal_id for p in proposals if p.action == "NOOP"]
    if idle:
        raise CurationRefusedError(
            f"{', '.join(idle)} would change nothing (NOOP): edit or delete the memories yourself"
        )
    moment = (now or datetime.now(UTC)).isoformat()
    with store.transaction() as source:
        ensure_journal(source)
        source.forget_lost_rows()
        holding = applied_proposals(source)
        held = {
            p.proposal_id: holding[p.proposal_id] for p in proposals if p.proposal_id in holding
        }
        due = [proposal for proposal in proposals if proposal.proposal_id not in held]
        matched = _match_all(due, source, where)
        writes = [w for p, rows in zip(due, matched, strict=True) for w in _writes(p, rows, moment)]
        return _write(source, writes, held, moment) if writes else _nothing(held)


def _match_all(proposals: Sequence[Proposal], source: Transaction, where: Where) -> list[Matched]:
    matched: list[Matched] = []
    refusals: list[str] = []
    for proposal in proposals:
        try:
            matched.append(match(proposal, source, where))
        except CurationRefusedError as error:
            refusals.append(str(error))
    if refusals:
        shown = "; ".join(refusals[:REFUSALS_SHOWN])
        more = len(refusals) - REFUSALS_SHOWN
        raise CurationRefusedError(
            f"the source is not as it was when this was proposed ({shown}"
            + (f"; and {more} more" if more > 0 else "")
            + "). Nothing was written. Run the night again, or name the proposals to apply."
        )
    return matched


def _writes(proposal: Proposal, rows: Matched, moment: str) -> Iterator[_Write]:
    """Yield what a proposal writes; a row that stands for others before these go."""
    records = {memory_id: _record_of(rows, memory_id) for memory_id in rows}
    older = [records[target.memory_id] for target in proposal.having("superseded")]
    if proposal.action == "ADD":
        last = max(proposal.having("superseded"), key=lambda t: _age(records[t.memory_id]))
        text = joined_text(proposal.pieces, {i: record.content for i, record in records.items()})
        # A joined text is as old as its newest part, not as this night.
        fields = united(fields_of(records[last.memory_id]), [fields_of(record) for record in older])
        values = {"content": text, **fields._asdict(), "updated_at": moment}
        yield _Write(proposal.proposal_id, "add", rows[last.memory_id].row_id, values)
    for target in proposal.having("updated"):
        fields = united(fields_of(records[target.memory_id]), [fields_of(r) for r in older])
        values = {**_named(fields, proposal.fields), "updated_at": moment}
        yield _Write(proposal.proposal_id, "update", rows[target.memory_id].row_id, values)
    for target in proposal.having("superseded"):
        record = records[target.memory_id]
        values = {
            "content": buried(record.content),
            "importance": min(record.importance, TOMBSTONE_IMPORTANCE),
            "updated_at": moment,
        }
        yield _Write(proposal.proposal_id, "tombstone", rows[target.memory_id].row_id, values)


def _write(
    source: Transaction, writes: Sequence[_Write], held: Mapping[str, int], moment: str
) -> Applied:
    journal_id = next_id(source)
    touched: dict[Change, list[int]] = {"tombstone": [], "update": [], "add": []}
    for number, write in enumerate(writes):
        before: str | None = None
        row_id = write.row_id
        if write.change == "add":
            row_id = source.copy(row_id, write.values)
        else:
            before = source.image(row_id)
            source.update(row_id, write.values)
        after = hash_text(source.image(row_id) or "")
        touched[write.change].append(row_id)
        write_entry(
            source,
            Entry(
                journal_id, number, write.proposal_id, row_id, write.change, before, after, moment,
                None,
            ),
        )  # fmt: skip
    return Applied(
        journal_id,
        tuple(dict.fromkeys(write.proposal_id for write in writes)),
        held,
        tuple(touched["tombstone"]),
        tuple(touched["update"]),
        tuple(touched["add"]),
    )


def _nothing(held: Mapping[str, int]) -> Applied:
    return Applied(None, (), held, (), (), ())


def _record_of(rows: Matched, memory_id: str) -> MemoryRecord:
    record = rows[memory_id].record
    assert record is not None  # `match` returns live rows only
    return record


def _age(record: MemoryRecord) -> tuple[int, int]:
    return record.created_at_us, int(record.memory_id)


def _named(fields: Fields, names: Sequence[str]) -> dict[str, object]:
    return {name: getattr(fields, name) for name in names}
