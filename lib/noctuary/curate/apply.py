"""Writing proposals to a source and taking them back, by a journal kept in that source."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from noctuary.core.errors import ConfigError, CurationRefusedError
from noctuary.core.files import hash_text, replacement
from noctuary.core.tombstones import Tombstones, read_tombstones
from noctuary.core.types import MemoryRecord
from noctuary.curate.finders import fields_of
from noctuary.curate.proposals import (
    NOTES,
    Evidence,
    Piece,
    Proposal,
    Span,
    Target,
    joined_text,
    open_noted,
    united,
)
from noctuary.curate.stores import MISSING, TABLE, Change, Entry, SqliteStore, Store
from noctuary.sources.corpus import iter_records
from noctuary.sources.export import read_report
from noctuary.text.marks import TOMBSTONE_IMPORTANCE, buried

# proposals.parquet: a row per proposal, no text of a memory in it.

PROPOSALS = "curation/proposals.parquet"  # below the work directory

_JSON = ("targets", "evidence", "pieces", "fields")
_COLUMNS = ("proposal_id", "action", "kind", "confidence", "user", "wing", *_JSON)


class ProposalTable(NamedTuple):
    """The proposals of a night."""

    proposals: tuple[Proposal, ...]  # in the order of `propose`
    is_on: bool  # False if curation.enabled was off: nothing was searched
    corpus: str  # digest of their corpus; "" if it was off
    source: str = ""  # the night's source, once `read_proposed` has run
    # Contents by memory id, of every unchanged target, likewise
    text_of: Mapping[str, str] = MappingProxyType({})


def write_proposals(path: Path, table: ProposalTable) -> None:
    """Replace the table atomically; equal tables give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [pa.field(n, pa.float64() if n == "confidence" else pa.string()) for n in _COLUMNS]
    )
    notes = json.dumps({"on": table.is_on, "corpus": table.corpus}, sort_keys=True)
    rows = [_row(proposal) for proposal in table.proposals]
    found = pa.Table.from_pylist(rows, schema=schema).replace_schema_metadata({NOTES: notes})
    with replacement(path) as tmp:
        pq.write_table(found, tmp, compression="zstd")


def read_proposals(path: Path) -> ProposalTable:
    """Read a table written by `write_proposals`."""
    missing = f"There are no curation proposals at {path}: set curation.enabled and run the night."
    with open_noted(path, missing, "proposals") as (file, notes):
        proposals = tuple(map(_proposal, file.read().to_pylist()))
        return ProposalTable(proposals, bool(notes["on"]), str(notes["corpus"]))


def _row(proposal: Proposal) -> dict[str, Any]:
    value = proposal.to_json()
    return {n: json.dumps(value[n], sort_keys=True) if n in _JSON else value[n] for n in _COLUMNS}


def _proposal(row: dict[str, Any]) -> Proposal:
    value: dict[str, Any] = {n: json.loads(row[n]) if n in _JSON else row[n] for n in _COLUMNS}
    evidence = value["evidence"]
    spans = tuple(Span(**span) for span in evidence.pop("spans"))
    value["targets"] = tuple(Target(**target) for target in value["targets"])
    value["evidence"] = Evidence(spans=spans, **evidence)
    value["pieces"] = tuple(Piece(**piece) for piece in value["pieces"])
    value["fields"] = tuple(value["fields"])
    return Proposal(**value)


def read_proposed(work: Path) -> ProposalTable:
    """Return the last night's proposals with the texts of their targets."""
    table = read_proposals(work / PROPOSALS)
    hashes = {t.memory_id: t.text_hash for p in table.proposals for t in p.targets}
    gone = read_tombstones(work.parent)
    texts = {
        record.memory_id: record.content
        for batch in iter_records(work / "corpus")
        for record in batch
        if record.memory_id in hashes and hash_text(record.content) == hashes[record.memory_id]
        if not gone.holds(record)
    }
    source = read_report(work / "corpus").identity.location
    return table._replace(source=source, text_of=texts)


def replacement_text(proposal: Proposal, text_of: Mapping[str, str]) -> str | None:
    """Return the text of the row that an ADD would make; None without all its parts' texts."""
    if not proposal.pieces or any(piece.memory_id not in text_of for piece in proposal.pieces):
        return None
    return joined_text(proposal.pieces, text_of)


def chosen(
    proposals: Iterable[Proposal], ids: Sequence[str], least_confidence: float
) -> list[Proposal]:
    """Return the proposals named by the start of their id; without a name all that would act."""
    if not 0 <= least_confidence <= 1:
        raise ConfigError(f"found --min-confidence {least_confidence}, expected 0 to 1")
    known = list(proposals)
    if not ids:
        return [p for p in known if p.action != "NOOP" and p.confidence >= least_confidence]
    found: dict[str, Proposal] = {}
    for prefix in ids:
        matching = [p for p in known if prefix and p.proposal_id.startswith(prefix)]
        if len(matching) != 1:
            raise CurationRefusedError(
                f"{prefix!r} names {len(matching)} proposals, expected one: see `noctuary "
                "proposals curate`. Ids change with every night that finds the memories changed."
            )
        found[matching[0].proposal_id] = matching[0]
    return list(found.values())


# Which rows of a source are the memories of a proposal, or why they are not.
#
# In the source that the night read, ids and content hashes decide: any change since refuses. In
# another source, ids may name other rows. A proposal is matched as a whole: by the ids if every one
# of them has the content, else by content, where each text must occur exactly as often as among the
# targets. All rows must be of one user (of the proposal's, where it has one) and of its wing.

_ROW_ID = re.compile(r"-?[0-9]{1,19}")

Matched = Mapping[str, MemoryRecord]  # targets in the source to write to, by id
_Found = Mapping[str, MemoryRecord | str]  # the same, or the problem with a target


class Where(NamedTuple):
    """The source that is written, compared with the night's."""

    is_own: bool  # it is the one that the night read
    text_of: Mapping[str, str]  # contents by memory id, as the night read them


def match(proposal: Proposal, store: Store, where: Where) -> Matched:
    """Return the row of every target, locked; CurationRefusedError if one is not as it was."""
    ids = [target.memory_id for target in proposal.targets]
    found: _Found = {i: store.row(int(i)) if _is_row_id(i) else MISSING for i in ids}
    wrong = _first_wrong(proposal, found, where)
    if wrong is not None and not where.is_own:
        found = _by_text(proposal, store, where)
        wrong = _first_wrong(proposal, found, where)
    if wrong is not None:
        raise CurationRefusedError(f"{proposal.proposal_id}: memory {wrong}")
    matched = {i: record for i, record in found.items() if not isinstance(record, str)}
    users = {record.user for record in matched.values()}
    if len(users) > 1 or (proposal.user is not None and users != {proposal.user}):
        raise CurationRefusedError(
            f"{proposal.proposal_id}: its memories are not all of one user in this source"
        )
    return matched


def _is_row_id(memory_id: str) -> bool:
    return _ROW_ID.fullmatch(memory_id) is not None and -(2**63) <= int(memory_id) < 2**63


def _by_text(proposal: Proposal, store: Store, where: Where) -> _Found:
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for target in proposal.targets:
        groups[target.text_hash].append(target.memory_id)
    found: dict[str, MemoryRecord | str] = {}
    for ids in groups.values():
        text = where.text_of.get(ids[0])
        rows = [
            row
            for row in map(store.row, () if text is None else store.ids_with_text(text))
            if not isinstance(row, str)
            and row.wing == proposal.wing
            and proposal.user in (None, row.user)
        ]
        # More rows than targets: which are meant is unknown.
        same: list[MemoryRecord | str] = [*rows] if len(rows) == len(ids) else [MISSING] * len(ids)
        found.update(zip(ids, same, strict=True))
    return found


def _first_wrong(proposal: Proposal, found: _Found, where: Where) -> str | None:
    """Return why the first changed target does not match, or None."""
    for target in proposal.targets:
        record = found[target.memory_id]
        if isinstance(record, str):
            return f"{target.memory_id} {record}"
        if where.is_own and record.content_hash != target.content_hash:
            return f"{target.memory_id} was changed since"
        if hash_text(record.content) != target.text_hash:
            return f"{target.memory_id} has another text by now"
        if record.wing != proposal.wing:
            return f"{target.memory_id} is of another wing"
    return None


# Writing proposals to a source: all of them or none, with a journal that takes them back.
#
# Everything is compared before anything is written, so that proposals that share a row agree with
# the state that they were made from.

_NAMES = ", ".join(Entry._fields)
SHOWN = 5  # refusals, and rows, spelled out in a message; the number of all is given


class AppliedProposals(NamedTuple):
    """The result of applying."""

    journal_id: int | None  # for `undo`; None if there was nothing to do
    written: tuple[str, ...]  # ids of the proposals that were applied now
    held: Mapping[str, int]  # ids of proposals applied before, with their journal ids
    tombstones: tuple[int, ...] = ()  # rows that were marked
    updated: tuple[int, ...] = ()  # rows whose fields were filled up
    added: tuple[int, ...] = ()  # new rows


class _Write(NamedTuple):
    proposal_id: str
    change: Change
    row_id: int
    values: Mapping[str, object]


def apply_proposals(
    store: Store, proposals: Sequence[Proposal], where: Where, *, now: datetime | None = None
) -> AppliedProposals:
    """Write proposals in one transaction; those that hold already are left out.

    CurationRefusedError if a proposal is a NOOP or the source changed since, SourceError if the
    source is locked or cannot be written; nothing is written then.
    """
    idle = [p.proposal_id for p in proposals if p.action == "NOOP"]
    if idle:
        raise CurationRefusedError(
            f"{', '.join(idle)} would change nothing (NOOP): edit or delete the memories yourself"
        )
    moment = (now or datetime.now(UTC)).isoformat()
    with store.transaction():
        store.open_journal()
        holding = store.execute(
            f"SELECT proposal_id, max(journal_id) FROM {TABLE} WHERE undone_at IS NULL "
            "GROUP BY proposal_id"
        )
        journal_of = {str(name): int(journal_id) for name, journal_id in holding}
        ids = [proposal.proposal_id for proposal in proposals]
        held = {name: journal_of[name] for name in ids if name in journal_of}
        due = [proposal for proposal in proposals if proposal.proposal_id not in held]
        matched = _match_all(due, store, where)
        writes = [w for p, rows in zip(due, matched, strict=True) for w in _writes(p, rows)]
        return _write(store, writes, held, moment) if writes else AppliedProposals(None, (), held)


def _match_all(proposals: Sequence[Proposal], store: Store, where: Where) -> list[Matched]:
    matched: list[Matched] = []
    refusals: list[str] = []
    for proposal in proposals:
        try:
            matched.append(match(proposal, store, where))
        except CurationRefusedError as error:
            refusals.append(str(error))
    if refusals:
        more = len(refusals) - SHOWN
        shown = "; ".join(refusals[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
        raise CurationRefusedError(
            f"the source is not as it was when this was proposed ({shown}). Nothing was written. "
            "Run the night again, or name the proposals to apply."
        )
    return matched


def _writes(proposal: Proposal, rows: Matched) -> Iterator[_Write]:
    """Yield the writes of a proposal; a replacing row comes before those it replaces."""
    name = proposal.proposal_id
    older = [rows[target.memory_id] for target in proposal.having("superseded")]
    others = [fields_of(record) for record in older]
    if proposal.action == "ADD":
        # A joined text is as old as its newest part, not as this night.
        last = max(older, key=lambda r: (r.created_at_us, int(r.memory_id)))
        text = joined_text(proposal.pieces, {i: record.content for i, record in rows.items()})
        values = {"content": text, **united(fields_of(last), others)._asdict()}
        yield _Write(name, "add", int(last.memory_id), values)
    for target in proposal.having("updated"):
        record = rows[target.memory_id]
        fields = united(fields_of(record), others)._asdict()
        yield _Write(name, "update", int(record.memory_id), {n: fields[n] for n in proposal.fields})
    for record in older:
        importance = min(record.importance, TOMBSTONE_IMPORTANCE)
        values = {"content": buried(record.content), "importance": importance}
        yield _Write(name, "tombstone", int(record.memory_id), values)


def _write(
    store: Store, writes: Sequence[_Write], held: Mapping[str, int], moment: str
) -> AppliedProposals:
    journal_id = _next_id(store)
    touched: dict[Change, list[int]] = {"tombstone": [], "update": [], "add": []}
    for number, (proposal_id, change, row_id, changed) in enumerate(writes):
        before, values = None, {**changed, "updated_at": moment}
        if change == "add":
            row_id = store.copy(row_id, values)
        else:
            before = store.image(row_id)
            store.update(row_id, values)
        after = hash_text(store.image(row_id) or "")
        touched[change].append(row_id)
        where = journal_id, number, proposal_id, row_id
        _note(store, Entry(*where, change, before, after, moment, None))
    written = tuple(dict.fromkeys(write.proposal_id for write in writes))
    return AppliedProposals(journal_id, written, held, *map(tuple, touched.values()))


def _next_id(store: Store) -> int:
    return int(store.execute(f"SELECT coalesce(max(journal_id), 0) + 1 FROM {TABLE}")[0][0])


def _note(store: Store, entry: Entry) -> None:
    marks = ", ".join("?" * len(entry))
    store.execute(f"INSERT INTO {TABLE} ({_NAMES}) VALUES ({marks})", entry)


# Forgetting rows: the one thing that deletes, and that nothing takes back.


def forget_rows(store: Store, gone: Tombstones, ids: Iterable[str], *, now: datetime) -> int:
    """Delete the rows of these ids that are forgotten; return how many.

    The journal gets an entry for each, without an image: there is nothing to put back.
    """
    moment = now.isoformat()
    if isinstance(store, SqliteStore):
        store.overwrite()
    with store.transaction():
        store.open_journal()
        rows = [store.row(int(memory_id)) for memory_id in ids if _is_row_id(memory_id)]
        found = [int(r.memory_id) for r in rows if not isinstance(r, str) and gone.holds(r)]
        journal_id = _next_id(store)
        for number, row_id in enumerate(found):
            store.execute(store.erase, (row_id,))
            name, after = f"forget {row_id}", hash_text("")
            where = journal_id, number, name, row_id
            _note(store, Entry(*where, "forget", None, after, moment, None))
        store.open_journal()  # drops the entries of these rows
    if isinstance(store, SqliteStore):
        store.overwrite()
    return len(found)


# Taking an application back: every row as it was, or nothing.


class Undone(NamedTuple):
    """The result of an undo."""

    journal_id: int
    restored: tuple[int, ...]  # rows restored to their former state
    taken_back: tuple[int, ...]  # added rows that were removed


def undo(store: Store, journal_id: int, *, now: datetime | None = None) -> Undone:
    """Take one application back in one transaction.

    CurationRefusedError if there is none, it is undone already, or one of its rows was changed,
    deleted or marked sensitive since; SourceError as in `apply_proposals`. Nothing is written then.
    """
    moment = (now or datetime.now(UTC)).isoformat()
    with store.transaction():
        store.open_journal()
        sql = f"SELECT {_NAMES} FROM {TABLE} WHERE journal_id = ? ORDER BY entry"
        entries = [Entry(*row) for row in store.execute(sql, (journal_id,))]
        _check(store, journal_id, entries)
        for entry in reversed(entries):
            if entry.before_image is None:
                store.execute(store.take_back, (entry.row_id,))
            else:
                store.restore(entry.row_id, entry.before_image)
        # Roll back rather than leave a row that is not exactly as before.
        images = [e for e in entries if e.before_image is not None]
        _refuse(
            [e.row_id for e in images if store.image(e.row_id) != e.before_image],
            "did not come back as they were (does a trigger change them?)",
        )
        # Its images are of no more use and go.
        sql = f"UPDATE {TABLE} SET undone_at = ?, before_image = NULL WHERE journal_id = ?"
        store.execute(sql, (moment, journal_id))
    restored = tuple(entry.row_id for entry in entries if entry.change != "add")
    return Undone(journal_id, restored, tuple(e.row_id for e in entries if e.change == "add"))


def _check(store: Store, journal_id: int, entries: Sequence[Entry]) -> None:
    if not entries:
        raise CurationRefusedError(
            f"the journal holds no application {journal_id}: see `noctuary proposals curate "
            "--journal`"
        )
    if entries[0].undone_at is not None:
        raise CurationRefusedError(f"{journal_id} was undone at {entries[0].undone_at} already")
    _refuse(
        [e.row_id for e in entries if e.change != "add" and e.before_image is None],
        "are sensitive or deleted by now, and what they said was forgotten",
    )
    _refuse(
        [e.row_id for e in entries if hash_text(store.image(e.row_id) or "") != e.after_hash],
        "were changed since (undo a later application first, if one touched them)",
    )


def _refuse(row_ids: Sequence[int], why: str) -> None:
    if row_ids:
        more = len(row_ids) - SHOWN
        rest = f" and {more} more" if more > 0 else ""
        shown = ", ".join(map(str, row_ids[:SHOWN]))
        raise CurationRefusedError(f"rows {shown}{rest} {why}. Nothing was written.")
