"""What a killer watches: the programs of `power_cut_programs`, and more commands that write."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from noctuary import remember
from noctuary.cli.backup import back_up, choose_files, restore_files
from noctuary.cli.exchange import export_snapshot
from noctuary.context.inject import wordings_of
from noctuary.core.errors import StoreError
from noctuary.core.sqlite import close_logs
from noctuary.core.tombstones import read_tombstones
from noctuary.curate.apply import Where, apply_proposals, undo
from noctuary.curate.proposals import Proposal
from noctuary.recall.api import recall
from noctuary.sources.injected import append_injection
from tests.e2e import power_cut_programs
from tests.e2e.power_cut_programs import KEPT, Say, edition, store_of
from tests.rooms.curate.test_apply import ROWS, with_store
from tests.rooms.snapshot.test_forget import House, found
from tests.support.claude_memory import make_sqlite, proposals_for, records_of
from tests.support.injections import INJECTED_US, memory
from tests.support.store import new_store


@contextmanager
def home_of(root: Path) -> Generator[Path]:
    """Let noctuary's home be the one of a program."""
    before = os.environ.get("NOCTUARY_HOME", "")
    os.environ["NOCTUARY_HOME"] = str(root / "home")
    try:
        yield root / "home"
    finally:
        os.environ["NOCTUARY_HOME"] = before


def _one_snapshot(root: Path) -> None:
    new_store(store_of(root).root, keep=KEPT).publish(edition(1))


def _export(root: Path, say: Say) -> None:
    export_snapshot(store_of(root).paths, root / "export")
    say("exported")


def _a_home(root: Path) -> None:
    _one_snapshot(root)
    with home_of(root):
        remember("There are two pumps.")


def back_up_home(root: Path, say: Say) -> None:
    """Back a home up beside it."""
    with home_of(root) as home:
        say(back_up(home, [store_of(root).root], root / "backups").backup)


def _a_backup(root: Path) -> None:
    _a_home(root)
    close_logs()
    back_up_home(root, lambda _: None)
    shutil.rmtree(root / "home")


def restore_home(root: Path, say: Say, *, may_replace: bool = False) -> None:
    """Put the newest backup back."""
    with home_of(root) as home:
        chosen = choose_files(root / "backups", home, None, None)
        restore_files(root / "backups", home, chosen, may_replace)
        say("restored")


def _a_house(root: Path) -> None:
    with home_of(root) as home:
        House.new(home)


def _forget(root: Path, say: Say) -> None:
    with home_of(root) as home:
        House.again(home).apply(1, night=None)
        say("hidden ")
        if House.again(home).apply().is_gone:
            say("gone")


def _look_for_forgotten(root: Path, say: Say) -> None:
    """Say what a fresh process sees of it."""
    with home_of(root) as home:
        house = House.again(home)
        result = recall("Zanzibarova Oxenholme ledger", store=house.paths.root, dry_run=True)
        shown = 1 in found(k=100, dry_run=True)
        kept = 2 in found("spare key behind the blue door", dry_run=True)
        pending = read_tombstones(house.paths.root).is_pending
        try:
            traces = len(house.traces())
        except Exception:  # a file that the kill left half-written: nobody knows what it holds
            traces = 1
        told = [shown, kept, pending, traces, house.forgetting(),
                [w.code for w in result.warnings]]  # fmt: skip
        say(json.dumps(told))


def _forget_again(root: Path, say: Say) -> None:
    with home_of(root) as home:
        house = House.again(home)
        try:
            say("gone" if house.apply(1).is_gone else "left")
        except StoreError as error:
            say("gone" if "no memory is in the plan" in str(error) else str(error))


def _a_cache(root: Path) -> None:
    make_sqlite(root / "memory.db", ROWS)
    records_of(root / "memory.db", root / "corpus")


def proposed(root: Path) -> tuple[list[Proposal], Where]:
    """Return what curation would write now."""
    records = records_of(root / "memory.db", root / "corpus")
    where = Where(is_own=True, text_of={r.memory_id: r.content for r in records})
    return [p for p in proposals_for(records) if p.action != "NOOP"], where


def _curate(root: Path, say: Say) -> None:
    what = proposed(root)
    path = root / "memory.db"
    applied = with_store(path, lambda store: apply_proposals(store, *what))
    say("applied")
    number = applied.journal_id
    assert number is not None
    with_store(path, lambda store: undo(store, number))
    say(", undone")


def _inject(root: Path, say: Say) -> None:
    for number in range(3):
        texts = wordings_of([memory(number, f"The pump number {number} is in the cellar.")], "pump")
        fault = append_injection(root / "injected.sqlite", texts, now_us=INJECTED_US + number)
        say(fault or f"{number}\n")


def _nothing(root: Path) -> None:
    pass


def _twelve(root: Path, say: Say) -> None:
    with home_of(root):
        for number in range(12):
            text = f"Memory number {number}."
            say(f"{remember(text).id} {text}\n")


PROGRAMS: dict[str, tuple[Callable[[Path], object], Callable[[Path, Say], None]]] = {
    **power_cut_programs.PROGRAMS,
    "memories": (_nothing, _twelve),
    "export": (_one_snapshot, _export),
    "backup": (_a_home, back_up_home),
    "restore": (_a_backup, restore_home),
    "forget --apply": (_a_house, _forget),
    "curation": (_a_cache, _curate),
    "injections": (_nothing, _inject),
}
KILLED = tuple(PROGRAMS)
"""Names of those that are killed; the others look and heal."""
PROGRAMS["look for forgotten"] = (_nothing, _look_for_forgotten)
PROGRAMS["forget again"] = (_nothing, _forget_again)
