"""The own store and the kept turns of another home, and what a merge makes of them here."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from noctuary.core.errors import StoreError
from noctuary.core.files import hash_text
from noctuary.core.settings import CorpusSettings
from noctuary.core.sqlite import open_foreign, open_log, transaction
from noctuary.core.store import OWN_APPLICATION_ID
from noctuary.core.tombstones import Tombstones
from noctuary.core.types import UNDATED_US, MemoryRecord, from_micros, to_micros
from noctuary.sources.export import Tally, sift
from noctuary.sources.ingest import TURNS, TurnsFile, unusable
from noctuary.sources.own_store import WAIT_S, text_key
from noctuary.sources.source import LINK_TYPES, RawRow
from noctuary.sources.sqlite import SqliteSource
from noctuary.text.marks import is_tombstone
from noctuary.text.secrets import find_text_sensitivity

# Which memories of two homes are one.
#
# Two homes give the same number to different memories, and a merged memory has another number here
# than where it was made. It stays the one with its first number and its date, to the microsecond;
# a date of whole seconds, which only other tools write, needs the text as well. The name of a home
# does not count: a restored backup is a second home with the same rows.

Key = tuple[int, int, str, str]
"""First number, date in microseconds, user, and a digest of the text where the date is coarse."""
Mark = tuple[int, int]
"""First number and date of a memory that is gone."""


class OwnRows(NamedTuple):
    """What an own store holds, sifted by the rules of an export."""

    home: str  # name of the home; "" before format 3
    memories: Mapping[int, MemoryRecord]  # by number, ascending
    origins: Mapping[int, tuple[str, int]]  # home and first number of merged ones
    gone: frozenset[Mark]
    kept_back: frozenset[Mark]  # rows that no export takes: sensitive, or no memories
    links: frozenset[tuple[int, int, str]]  # newer, older, type
    refused: int = 0  # rows that no export takes
    stamp: str = ""  # of all rows, whatever they are

    def first_number(self, number: int) -> int:
        """Return the number of a memory where it was made."""
        return self.origins.get(number, ("", number))[1]

    def key(self, number: int) -> Key:
        """Return what a memory is known by in every home."""
        one = self.memories[number]
        text = "" if _is_precise(one.created_at_us) else hash_text(one.content)
        return self.first_number(number), one.created_at_us, one.user or "", text


NO_ROWS = OwnRows("", {}, {}, frozenset(), frozenset(), frozenset())


def _is_precise(micros: int) -> bool:
    return micros != UNDATED_US and micros % 1_000_000 != 0


def read_own_rows(path: Path, settings: CorpusSettings) -> OwnRows:
    """Read an own store of any format; StoreError if it is none, or of a newer noctuary."""
    if not path.is_file():
        return NO_ROWS
    with closing(open_foreign(path, WAIT_S)[0]) as db:
        if db.execute("PRAGMA application_id").fetchone() != (OWN_APPLICATION_ID,):
            raise StoreError(f"{path} is not the own store of a home: nothing was merged")
        db.execute("BEGIN")
        with SqliteSource(path) as source:
            now_us = time.time_ns() // 1000
            tally = Tally()
            rows = sift(source.rows(), tally, now_us=now_us, settings=settings)
            memories = {int(record.memory_id): record for record in rows}
        tables = {str(name) for (name,) in db.execute("SELECT name FROM sqlite_master")}
        origins, gone, home, links = dict[int, tuple[str, int]](), set[Mark](), "", set[Any]()
        if "came_from" in tables:  # format 3
            origins = {
                int(row): (_name(named), int(number))
                for row, named, number in db.execute(
                    "SELECT id, home, number FROM came_from WHERE typeof(number) = 'integer'"
                )
            }
            gone.update(
                mark
                for mark in _marks(db.execute("SELECT number, created_at FROM gone"))
                if _is_precise(mark[1])
            )
            home = _name((db.execute("SELECT name FROM home").fetchone() or ("",))[0])
        if "memory_links" in tables:  # format 2
            sql = "SELECT src_id, dst_id, link_type FROM memory_links"
            links.update(row for row in db.execute(sql) if row[2] in LINK_TYPES)
        dated = ((n, d) for n, d in db.execute("SELECT id, created_at FROM memories"))
        first = ((origins.get(n, ("", n))[1], d) for n, d in dated if n not in memories)
        refused, stamp = tally.total - tally.exported, stamp_rows(db)
        return OwnRows(
            home, memories, origins, frozenset(gone), frozenset(_marks(first)), frozenset(links),
            refused, stamp,
        )  # fmt: skip


def stamp_rows(db: sqlite3.Connection) -> str:
    """Return a digest of all rows, which takes a fraction of the time that sifting them does."""
    return hash_text(*map(repr, db.execute("SELECT * FROM memories ORDER BY id")))


def _name(found: object) -> str:
    """Return the name of a home, "" for what is none."""
    return found if isinstance(found, str) and found.isalnum() and len(found) <= 32 else ""


def _marks(rows: Iterable[tuple[Any, Any]]) -> Iterable[Mark]:
    for number, told in rows:
        micros = UNDATED_US
        with suppress(ValueError, OverflowError, TypeError):
            moment = datetime.fromisoformat(told)
            micros = to_micros(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        if isinstance(number, int):
            yield number, micros


# What a merge does, as a function of both sides alone: the plan is made again inside the
# transaction that carries it out, so that a kill or a write in between changes nothing.

_FIELDS = (
    "content", "category", "tags", "expanded_keywords", "importance", "wing", "room", "origin",
)  # fmt: skip


class Conflict(NamedTuple):
    """A memory that both homes have edited; the later edit stays."""

    id: int  # its number here
    kept: str  # "here" or "there"
    here: str  # the texts
    there: str


class Merging(NamedTuple):
    """What merging another own store into this one changes."""

    new: tuple[int, ...]  # numbers there
    changed: Mapping[int, int]  # numbers here of memories that were edited there, to those there
    gone: tuple[int, ...]  # numbers here of memories that were forgotten or deleted there
    stayed_out: int  # memories there that are gone or kept back here
    conflicts: tuple[Conflict, ...]
    same: Mapping[int, int]  # numbers there to numbers here, of memories that both have

    def as_if_written(self) -> Merging:
        """Return it with new memories that are here under their numbers there, to plan by."""
        return self._replace(same={**{number: number for number in self.new}, **self.same})

    @property
    def is_idle(self) -> bool:
        """Return whether the memories here stay as they are."""
        return not (self.new or self.changed or self.gone)


NO_PLAN = Merging((), {}, (), 0, (), {})

IsForgotten = Callable[[MemoryRecord, int], bool]
"""Whether a tombstone of either home holds a memory, given with its first number."""


def plan_rows(here: OwnRows, there: OwnRows, is_forgotten: IsForgotten) -> Merging:
    """Return what to do: gone in either wins, then the later edit."""
    gone = here.gone | there.gone

    def is_gone(rows: OwnRows, number: int) -> bool:
        record, first = rows.memories[number], rows.first_number(number)
        return (first, record.created_at_us) in gone or is_forgotten(record, first)

    known = {here.key(number): number for number in here.memories}
    new, changed, same, conflicts, stayed_out = list[int](), dict[int, int](), {}, list[Any](), 0
    for number, record in there.memories.items():
        key = there.key(number)
        if is_gone(there, number) or key[:2] in here.kept_back:
            stayed_out += 1
        elif key not in known:
            new.append(number)
        else:
            same[number] = mine = known[key]
            ours = here.memories[mine]
            is_later = version(record) > version(ours)
            if is_later:
                changed[mine] = number
            if _is_edited(ours) and _is_edited(record) and record.content != ours.content:
                kept = "there" if is_later else "here"
                conflicts.append(Conflict(mine, kept, ours.content, record.content))
    lost = tuple(number for number in here.memories if is_gone(here, number))
    return Merging(tuple(new), changed, lost, stayed_out, tuple(conflicts), same)


def version(record: MemoryRecord) -> tuple[Any, ...]:
    """Return what decides between two versions of a memory: replaced, then later, then anything."""
    told = repr([getattr(record, name) for name in _FIELDS])
    return is_tombstone(record.content), record.updated_at_us, told


def _is_edited(record: MemoryRecord) -> bool:
    return record.updated_at_us != record.created_at_us


_FAR = 1_000_000  # numbers: a memory keeps its own unless that would use up many


def write_rows(
    db: sqlite3.Connection, here: OwnRows, there: OwnRows, plan: Merging
) -> dict[int, int]:
    """Write a plan in the caller's transaction, all but what goes; return numbers there to here."""
    ids, before = dict(plan.same), _highest(db)
    for number in sorted(plan.new, key=lambda number: (number <= before, number)):
        row, highest = _row(there.memories[number]), _highest(db)
        row["id"] = number if highest < number <= highest + _FAR else highest + 1
        marks = ", ".join("?" * len(row))
        db.execute(f"INSERT INTO memories ({', '.join(row)}) VALUES ({marks})", (*row.values(),))
        ids[number] = row["id"]
        home, first = there.origins.get(number, (there.home, number))
        if (home, first) != (here.home, row["id"]):
            db.execute("INSERT INTO came_from VALUES (?, ?, ?)", (row["id"], home, first))
    for mine, number in plan.changed.items():
        row = _row(there.memories[number])
        names = ", ".join(f"{name} = ?" for name in row)
        db.execute(f"UPDATE memories SET {names} WHERE id = ?", (*row.values(), mine))
    for newer, older, kind in sorted(there.links):
        user = there.memories[newer].user if newer in ids else None
        if newer in ids and older in ids and there.memories[older].user == user:
            link = (
                user or "",
                ids[newer],
                ids[older],
                kind,
                _moment(there.memories[newer].created_at_us),
            )
            names = "user_id, src_id, dst_id, link_type, created_at"
            db.execute(f"INSERT OR IGNORE INTO memory_links ({names}) VALUES (?, ?, ?, ?, ?)", link)
    marks = ((number, _moment(micros)) for number, micros in there.gone - here.gone)
    db.executemany("INSERT OR IGNORE INTO gone VALUES (?, ?)", marks)
    return ids


def _highest(db: sqlite3.Connection) -> int:
    """Return the highest number that was ever used."""
    found = db.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'memories'").fetchone()
    return int(found[0] or 0)


def _row(record: MemoryRecord) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in (*_FIELDS, "user")}
    moments = {
        "created_at": _moment(record.created_at_us),
        "updated_at": _moment(record.updated_at_us),
    }
    until_us = record.valid_until_us
    until = None if until_us is None else _moment(until_us)
    return {**values, **moments, "text_key": text_key(record.content), "valid_until": until}


def _moment(micros: int) -> str:
    moment = from_micros(micros)
    return moment.isoformat() if moment else ""


# Kept turns have ids that are the same everywhere. Of one turn, two homes may have kept different
# parts; a turn that either has marked, for a secret or because it was forgotten, stays marked.

_TURNS = """
SELECT number, turn_id, agent, role, session, wing, at_us, is_sidechain, is_sensitive FROM turns
WHERE typeof(number) = 'integer' AND typeof(turn_id) = 'text' AND typeof(agent) = 'text'
    AND role IN ('user', 'assistant') AND typeof(session) = 'text' AND typeof(wing) = 'text'
    AND typeof(at_us) IN ('integer', 'null') ORDER BY turn_id
"""
_PARTS = """
SELECT key, kind, label, text FROM parts WHERE number = ? AND typeof(key) = 'text'
    AND typeof(kind) = 'text' AND typeof(label) = 'text' AND typeof(text) = 'text' ORDER BY part
"""
Part = tuple[str, str, str, str]
"""Key, kind, label, text."""


class TurnsMerged(NamedTuple):
    """Numbers of turns."""

    new: int = 0
    gone: int = 0  # lost their texts here, because they are marked there
    refused: int = 0  # secrets, or forgotten here


def merge_turns(
    mine: Path, theirs: Path, home: str, corpus: CorpusSettings, forgotten: Tombstones,
    *, dry_run: bool,
) -> TurnsMerged:  # fmt: skip
    """Take the kept turns of another home in one transaction; StoreError if that fails."""
    if not theirs.is_file():
        return TurnsMerged()
    try:
        return _merge_turns(mine, theirs, home, corpus, forgotten, dry_run=dry_run)
    except sqlite3.Error as error:
        raise unusable(mine, error) from None


def _merge_turns(
    mine: Path, theirs: Path, home: str, corpus: CorpusSettings, forgotten: Tombstones,
    *, dry_run: bool,
) -> TurnsMerged:  # fmt: skip
    with closing(open_foreign(theirs, WAIT_S)[0]) as db:
        with closing(open_log(mine, TURNS, wait_s=WAIT_S, or_empty=True)) as here:
            unlike = [row for row in db.execute(_TURNS).fetchall() if not _has_turn(here, row, db)]
            known = {turn_id for (turn_id,) in here.execute("SELECT turn_id FROM turns")}
        tally, now_us, rows = Tally(), time.time_ns() // 1000, _turn_rows(db, unlike)
        kept = sift(rows, tally, now_us=now_us, settings=corpus, forgotten=forgotten)
        ids = {record.memory_id for record in kept}
        gone = {turn_id for _, turn_id, *_, marked in unlike if marked and turn_id in known}
        due = [row for row in unlike if row[-1] or row[1] in ids]
        if due and not dry_run:
            with closing(TurnsFile(mine, wait_s=WAIT_S)) as turns, transaction(turns.db):
                for number, *turn, marked in due:
                    parts = [] if marked else db.execute(_PARTS, (number,)).fetchall()
                    _take_turn(turns, turn, parts, home, is_sensitive=bool(marked))
    return TurnsMerged(len(ids - known), len(gone), tally.total - tally.exported)


def _has_turn(here: sqlite3.Connection, row: Sequence[Any], there: sqlite3.Connection) -> bool:
    """Return whether a turn is here as it is there, or is marked here."""
    number, turn_id, *_, wing, at_us, _, marked = row
    sql = "SELECT number, is_sensitive, wing, at_us FROM turns WHERE turn_id = ?"
    found = here.execute(sql, (turn_id,)).fetchone()
    if found is None or found[1] or marked or found[2:] != (wing, at_us):
        return found is not None and bool(found[1])
    parts = (db.execute(_PARTS, (n,)).fetchall() for db, n in ((here, found[0]), (there, number)))
    return next(parts) == next(parts)


def _turn_rows(db: sqlite3.Connection, turns: Iterable[Sequence[Any]]) -> Iterator[RawRow]:
    """Yield turns as an export reads them."""
    for number, turn_id, _, role, session, wing, at_us, _, marked in turns:
        texts = [text for *_, text in db.execute(_PARTS, (number,))]
        moment = from_micros(at_us) if at_us is not None else None
        if texts and not marked:
            content = f"{role.capitalize()}: {chr(10).join(texts)}"
            told = {"content": content, "session_id": session or None, "wing": wing or None}
            fields = {**told, "category": "turn", "created_at": moment and moment.isoformat()}
            yield RawRow(f"turn {turn_id}", turn_id, fields)


def _take_turn(
    turns: TurnsFile, turn: Sequence[Any], parts: list[Part], home: str, *, is_sensitive: bool
) -> None:
    turn_id, agent, role, session, wing, at_us, is_sidechain = turn
    sql = "SELECT number, is_sensitive, wing, at_us FROM turns WHERE turn_id = ?"
    found = turns.one(sql, turn_id)
    if found is None:
        number = turns.free_number(turn_id)
        values = (number, turn_id, agent, role, session, wing, at_us, bool(is_sidechain))
        turns.db.execute("INSERT INTO turns VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)", values)
        if not turns.fact(f"home of {session}"):
            turns.keep_fact(f"home of {session}", home)
        mine = list[Part]()
    elif found[1]:
        return
    else:
        number, mine = found[0], turns.db.execute(_PARTS, (found[0],)).fetchall()
        # Two machines may name a project differently: the same one in both from now on.
        wings, moments = {found[2], wing} - {""}, {found[3], at_us} - {None}
        values = (min(wings, default=""), min(moments, default=None), number)
        turns.db.execute("UPDATE turns SET wing = ?, at_us = ? WHERE number = ?", values)
    both = _join_parts(mine, parts)
    if both != mine and not is_sensitive:
        turns.db.execute("DELETE FROM parts WHERE number = ?", (number,))
        sql = "INSERT OR IGNORE INTO parts (key, number, kind, label, text) VALUES (?, ?, ?, ?, ?)"
        turns.db.executemany(sql, [(part[0], number, *part[1:]) for part in both])
    if is_sensitive or (mine and find_text_sensitivity("\n".join(turns.texts_of(number)))):
        turns.mark_sensitive(number)


def _join_parts(mine: list[Part], theirs: list[Part]) -> list[Part]:
    """Return the parts of both in the order of the longer list, the longer text of one part."""
    longer, shorter = sorted((mine, theirs), key=lambda parts: (-len(parts), parts))
    known = {part[0]: part for part in shorter}
    both = [max(part, known.pop(part[0], part), key=lambda p: (len(p[3]), p)) for part in longer]
    return [*both, *(known[key] for key in sorted(known))]
