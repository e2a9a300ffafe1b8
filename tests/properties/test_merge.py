"""Homes that live apart and merge: any order, any number of times, one memory."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from noctuary import remember
from noctuary.cli.merge import Merged, merge_home
from noctuary.core.settings import CorpusSettings
from noctuary.core.sqlite import open_log
from noctuary.core.tombstones import NOTHING_FORGOTTEN
from noctuary.snapshot.forget import apply_forget
from noctuary.snapshot.forget_plan import plan_forget
from noctuary.sources.ingest import TURNS, forget_turns, ingest_transcripts
from noctuary.sources.other_home import merge_turns
from noctuary.sources.own_store import OWN_FILE
from noctuary.text.marks import buried, is_tombstone
from tests.support.transcripts import working_session, write_session

ACTS = ("say", "replace", "forget", "delete", "edit", "mark", "merge")
HISTORIES = st.lists(
    st.tuples(st.sampled_from(ACTS), st.integers(0, 2), st.integers(0, 9)), min_size=3, max_size=14
)


class Twin:
    """What a home should hold: a set of memories by the moment they were made, as sets merge."""

    def __init__(self) -> None:
        self.texts: dict[str, tuple[bool, str, str]] = {}  # replaced, edited at, text
        self.gone: set[str] = set()
        self.links: set[tuple[str, str]] = set()

    def lose(self, *moments: str) -> None:
        self.gone.update(moments)
        self.texts = {m: told for m, told in self.texts.items() if m not in self.gone}
        self.links = {link for link in self.links if self.gone.isdisjoint(link)}

    def merge(self, other: Twin) -> None:
        for moment, told in other.texts.items():
            self.texts[moment] = max(told, self.texts.get(moment, told))
        self.links |= other.links
        self.lose(*other.gone)


class Home:
    """A real home with its twin."""

    def __init__(self, path: Path) -> None:
        self.path, self.twin = path, Twin()

    @contextmanager
    def lived_in(self) -> Generator[sqlite3.Connection]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NOCTUARY_HOME", str(self.path))
            with closing(sqlite3.connect(self.path / OWN_FILE, isolation_level=None)) as db:
                db.execute("PRAGMA foreign_keys=ON")
                yield db

    def say(self, text: str, replaced: int | None = None) -> None:
        self.path.mkdir(exist_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NOCTUARY_HOME", str(self.path))
            key = remember(text, supersedes=replaced).id
        with self.lived_in() as db:
            sql = "SELECT created_at FROM memories WHERE id IN (?, ?) ORDER BY id = ?"
            moments = [m for (m,) in db.execute(sql, (key, replaced, replaced))]
        self.twin.texts[moments[0]] = False, moments[0], text
        self.twin.links |= {(moments[0], moments[1])} if replaced else set()

    def act(self, what: str, number: int, step: int) -> None:
        ids = list(self.rows())
        if what == "say" or not ids:
            self.say(f"Note {step} of {self.path.name}, about the ladder.")
            return
        row = ids[number % len(ids)]
        if what == "replace":
            self.say(f"Note {step} of {self.path.name}, instead of another.", row)
            return
        with self.lived_in() as db:
            ((moment, text),) = db.execute(
                "SELECT created_at, content FROM memories WHERE id = ?", (row,)
            ).fetchall()
            if what in ("edit", "mark"):
                later = f"2030-01-{step + 1:02d}T00:00:00+00:00"
                new = buried(text) if what == "mark" else f"{text} Edited in step {step}."
                db.execute(
                    "UPDATE memories SET content = ?, updated_at = ? WHERE id = ?",
                    (new, later, row),
                )
                self.twin.texts[moment] = is_tombstone(new), later, new
                return
            if what == "delete":
                db.execute("DELETE FROM memories WHERE id = ?", (row,))
            else:
                apply_forget(plan_forget(ids=[row]))
        self.twin.lose(moment)

    def merge(self, other: Home) -> Merged:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NOCTUARY_HOME", str(self.path))
            here, there = self.twin.texts, other.twin.texts
            clashes = {
                (here[moment][2], there[moment][2])
                for moment in (here.keys() & there.keys()) - self.twin.gone - other.twin.gone
                if here[moment][2] != there[moment][2]
                and moment not in (here[moment][1], there[moment][1])
            }
            self.twin.merge(other.twin)
            done = merge_home(self.path, other.path)
            assert {(one.here, one.there) for one in done.rows.conflicts} == clashes
            return done

    def rows(self) -> dict[int, str]:
        if not (self.path / OWN_FILE).exists():
            return {}
        with self.lived_in() as db:
            return dict(db.execute("SELECT id, created_at FROM memories ORDER BY id"))

    def held(self) -> Any:
        """Return texts, links and first places by the moment that a memory was made."""
        rows = self.rows()
        with self.lived_in() as db:
            texts = db.execute("SELECT created_at, content, updated_at FROM memories").fetchall()
            links = db.execute("SELECT src_id, dst_id FROM memory_links").fetchall()
            ((name,),) = db.execute("SELECT name FROM home").fetchall()
            first = {row: (home, n) for row, home, n in db.execute("SELECT * FROM came_from")}
            assert first.keys() <= rows.keys()
        told = {moment: (is_tombstone(text), at, text) for moment, text, at in texts}
        assert len(told) == len(texts)
        places = {moment: first.get(row, (name, row)) for row, moment in rows.items()}
        return told, {(rows[newer], rows[older]) for newer, older in links}, places

    def copy(self, name: str) -> Home:
        made = Home(self.path.with_name(name))
        if self.path.exists():
            shutil.copytree(self.path, made.path)
        made.twin.merge(self.twin)
        return made


@settings(max_examples=15)
@given(
    history=HISTORIES,
    count=st.integers(2, 3),
    is_cloned=st.booleans(),
    order=st.permutations("012"),
)
@example([("mark", 1, 0), ("edit", 0, 0)], 2, True, ["0", "1", "2"])  # replaced, then edited
def test_homes_that_merge_hold_the_same(
    history: list[tuple[str, int, int]], count: int, is_cloned: bool, order: list[str]
) -> None:
    with TemporaryDirectory() as below:
        homes = [Home(Path(below) / str(number)) for number in range(count)]
        homes[0].act("say", 0, 98)
        if is_cloned:  # the second machine began as a restored backup of the first
            homes[1:] = [homes[0].copy(home.path.name) for home in homes[1:]]
        for step, (what, where, number) in enumerate(history):
            home, other = homes[where % count], homes[number % count]
            if what != "merge":
                home.act(what, number, step)
            elif home is not other and other.rows():
                home.merge(other)
        for home in homes[1:]:
            home.act("say", 0, 97)
        numbers = [int(n) for n in order if int(n) < count]
        ends = list[Any]()
        for end, turn in enumerate((numbers, numbers[::-1], numbers[1:] + numbers[:1])):
            copied = [home.copy(f"{home.path.name}-{end}") for home in homes]
            first = copied[turn[0]]
            for n in turn[1:]:
                first.merge(copied[n])
            again = [first.merge(copied[n]) for n in turn[1:]]
            assert all(one.rows.is_idle for one in again), "a second time changes nothing"
            ends.append(first.held())
            assert ends[-1][:2] == (first.twin.texts, first.twin.links)
        assert ends[1:] == ends[:-1], "in any order"


def kept_turns(path: Path) -> dict[str, Any]:
    """Return whether each turn is marked, its wing and moment, and its texts."""
    with closing(open_log(path, TURNS, or_empty=True)) as db:
        found = db.execute(
            "SELECT number, turn_id, is_sensitive, wing, at_us FROM turns"
        ).fetchall()
        sql = "SELECT text FROM parts WHERE number = ? ORDER BY part"
        return {
            turn_id: (marked, wing, at_us, [text for (text,) in db.execute(sql, (number,))])
            for number, turn_id, marked, wing, at_us in found
        }


def merge_kept(mine: Path, *others: Path) -> None:
    for theirs in others:
        corpus = CorpusSettings()
        merge_turns(mine, theirs, "aa", corpus, NOTHING_FORGOTTEN, dry_run=False)


@settings(max_examples=25)
@given(
    reads=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 24)), min_size=2, max_size=8
    ),
    forgotten=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=3),
)
def test_kept_turns_of_three_homes_are_the_same_in_any_order(
    reads: list[tuple[int, int, int]], forgotten: list[tuple[int, int]]
) -> None:
    sessions = [working_session(seed, 6) for seed in range(3)]
    with TemporaryDirectory() as below:
        homes = [Path(below) / f"{number}.sqlite" for number in range(3)]
        for number, seed, lines in reads:  # a session may be on two machines, of other length
            session = Path(below) / str(number) / "shop" / f"{seed}.jsonl"
            write_session(session, sessions[seed].lines[:lines])
            ingest_transcripts(session, homes[number])
        for number, nth in forgotten:
            if ids := sorted(kept_turns(homes[number])):
                forget_turns(homes[number], [ids[nth % len(ids)]])
        before = [kept_turns(home) for home in homes]
        ends = list[Any]()
        for a, b, c in ((0, 1, 2), (2, 1, 0), (1, 2, 0)):
            copies = [shutil.copy(h, f"{h}-{a}") if h.exists() else h for h in homes]
            mine = Path(f"{homes[a]}-{a}")
            merge_kept(mine, Path(copies[b]), Path(copies[c]))
            ends.append(kept_turns(mine))
            stamp = mine.stat().st_mtime_ns if mine.exists() else 0
            merge_kept(mine, Path(copies[b]), Path(copies[c]))
            assert kept_turns(mine) == ends[-1], "a second time changes nothing"
            assert stamp == (mine.stat().st_mtime_ns if mine.exists() else 0)
        assert ends[1:] == ends[:-1], "in any order"
        for turn_id, (is_marked, _, _, texts) in ends[0].items():
            had = [one[turn_id] for one in before if turn_id in one]
            assert is_marked == any(marked for marked, *_ in had)
            assert texts == ([] if is_marked else max((one[3] for one in had), key=len))
        assert {turn_id for one in before for turn_id in one} == ends[0].keys()
