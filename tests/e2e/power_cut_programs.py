"""Small programs that change what a power cut must not break, for a recorder to watch.

Usage: `python power_cut_programs.py ROOT NAME...`. Each works below ROOT/NAME, where `PREPARED` has
put what is there before, and writes "NAME:..." to its standard output once something is promised.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from noctuary import remember
from noctuary.cli.backup import back_up, choose_files, restore_files
from noctuary.cli.exchange import export_snapshot
from noctuary.compact.archive_apply import apply_in_store, undo_in_store
from noctuary.compact.archive_plan import ArchiveRules
from noctuary.context.inject import wordings_of
from noctuary.core.files import make_directory, write_text
from noctuary.core.manifest import read_manifest
from noctuary.core.settings import CorpusSettings
from noctuary.core.sqlite import close_logs
from noctuary.core.store import StorePaths, store_for_source
from noctuary.core.types import MemoryRecord
from noctuary.curate.apply import Where, apply_proposals, undo
from noctuary.curate.stores import SqliteStore
from noctuary.recall.replay import append_packet
from noctuary.snapshot.forget import apply_forget
from noctuary.snapshot.forget_plan import plan_forget
from noctuary.snapshot.publish import publish_candidate, rollback
from noctuary.sources.export import previous_export
from noctuary.sources.ingest import TurnsFile, capture_session, ingest_transcripts
from noctuary.sources.injected import append_injection
from noctuary.sources.own_store import OWN_FILE
from noctuary.usage.access_log import append_retrievals
from noctuary.usage.query_log import append_query
from noctuary.work.lock import hold_lock
from noctuary_assets.housekeeping import forget_retracted
from tests.support.archive import NOW_US, new_archive_store
from tests.support.claude_memory import make_sqlite, proposals_for, records_of
from tests.support.injections import INJECTED_US
from tests.support.injections import memory as injected
from tests.support.live import Cache, publish_from
from tests.support.store import Store, household, memory, new_store, renumber
from tests.support.transcripts import ClaudeSession, write_session

Say = Callable[[str], None]
KEPT = 2  # snapshots of a store
RETRACTED = "The spare key has number 1 now."
"""In the first edition only."""


def edition(number: int) -> list[MemoryRecord]:
    """Return the memories that the n-th publication holds."""
    return renumber([*household(), memory(f"The spare key has number {number} now.")])


def store_of(root: Path) -> Store:
    """Return the store of a program; its home lies beside what it reads."""
    return Store(StorePaths(root / "home" / "store"), keep=KEPT)


def _publish(root: Path, say: Say, number: int) -> None:
    store = store_of(root)
    with hold_lock(store.paths.lock):
        store.publish(edition(number))
        say("published")


def _two_snapshots(root: Path) -> None:
    store = new_store(store_of(root).root, keep=KEPT)
    for number in (1, 2):
        store.publish(edition(number))


def _a_retracted_row(root: Path) -> None:
    """Leave what a night leaves that found a row turned sensitive, before it forgets."""
    _two_snapshots(root)
    paths = store_of(root).paths
    append_query(
        paths.queries, text=RETRACTED, vector=np.ones(4, np.float32), memory_ids=["1"],
        encoder_digest="e", asked_us=0, user=None,
    )  # fmt: skip
    write_text(paths.reports / "report.html", RETRACTED)
    write_text(paths.purge_pending, "1\n")


def _forget(root: Path, say: Say) -> None:
    forget_retracted(store_of(root).paths)
    say("forgotten")


def _roll_back(root: Path, say: Say) -> None:
    with hold_lock(store_of(root).paths.lock):
        rollback(store_of(root).paths)
        say("rolled back")


def _publish_what_a_killed_night_installed(root: Path, say: Say) -> None:
    """Go on where a night was killed before it flushed the directories of the move."""
    paths = store_of(root).paths
    (candidate,) = paths.candidates.iterdir()
    digest = read_manifest(candidate).digest
    candidate.rename(paths.snapshots / f"29991231T000000000000-{digest[:12]}")
    publish_candidate(paths, digest, keep=7)  # nothing is removed, which would flush too
    say("published")


def _a_judged_candidate(root: Path) -> None:
    _two_snapshots(root)
    store_of(root).judge(store_of(root).candidate(edition(3)))


@contextmanager
def _home(root: Path) -> Generator[Path]:
    """Name the home of a program."""
    before = os.environ.get("NOCTUARY_HOME", "")
    os.environ["NOCTUARY_HOME"] = str(root / "home")
    yield root / "home"
    os.environ["NOCTUARY_HOME"] = before


def _remember(root: Path, say: Say, *texts: str) -> None:
    os.environ["NOCTUARY_HOME"] = str(root / "home")
    for text in texts:
        say(f"{remember(text).id} {text}\n")


def _remembered(root: Path) -> None:
    with _home(root):
        _remember(root, lambda _: None, "There are two pumps.", "The third pump is new.")


def _archive(root: Path, say: Say) -> None:
    paths = store_of(root).paths
    plan = apply_in_store(paths, ArchiveRules(), None, now_us=NOW_US).plan
    say("archived")
    undo_in_store(paths, plan.plan_id, now_us=NOW_US)
    say(", undone")


def _sessions(root: Path) -> None:
    for name in ("first", "second"):
        session = ClaudeSession(f"{name}-1111-2222-4333-8444-555555555555")
        for number in range(3):
            session.user(f"The {name} pump has {number} valves.")
        (root / "agent" / "shop").mkdir(parents=True, exist_ok=True)
        write_session(root / "agent" / "shop" / f"{name}.jsonl", session.lines)


def _keep_turns(root: Path, say: Say) -> None:
    turns = store_of(root).paths.turns
    # A night that reads the turns of before: nobody who closes the file is its last user.
    make_directory(turns.parent)
    TurnsFile(turns, wait_s=0).close()
    with closing(sqlite3.connect(turns)) as db:
        db.execute("SELECT * FROM turns").fetchall()
        _capture(root, turns, say)


def _capture(root: Path, turns: Path, say: Say) -> None:
    captured = capture_session(root / "agent" / "shop" / "first.jsonl", turns)
    say(f"{captured.turns}\n")
    ingested = ingest_transcripts(root / "agent", turns)
    say(f"{ingested.turns}\n")


def _log(root: Path, say: Say) -> None:
    paths = StorePaths(root)
    for number in range(4):
        name = f"s{number}"
        faults = [
            append_retrievals(paths.access_log, snapshot_id=name, memory_ids=["1", "2"]),
            append_query(
                paths.queries, text=name, vector=np.ones(4, np.float32), memory_ids=["1"],
                encoder_digest="e", asked_us=number, user=None,
            ),
            append_packet(paths.replays, {"replay_id": name, "text": "x" * 5_000}),
            append_injection(
                paths.injections, wordings_of([injected(number, f"Pump {number}.")], "pump"),
                now_us=INJECTED_US + number,
            ),
        ]  # fmt: skip
        say("".join(fault or "" for fault in faults))
    close_logs()


def _last_export(root: Path) -> None:
    write_text(root / "memories.parquet", RETRACTED)


def _compare_exports(root: Path, say: Say) -> None:
    with previous_export(root / "memories.parquet"):
        write_text(root / "memories.parquet", "Another text.")
        say("compared")
    say(", done")


def own_store_of(root: Path) -> Store:
    """Return the store that is made of a program's own store."""
    return Store(StorePaths(store_for_source(root / "home", root / "home" / OWN_FILE)), keep=KEPT)


def publish_own(root: Path) -> None:
    """Publish what the own store holds, as a night does."""
    publish_from(Cache(root / "home" / OWN_FILE), own_store_of(root))


def _a_home_that_serves(root: Path) -> None:
    with _home(root):
        _remember(root, lambda _: None, RETRACTED, "The spare key hangs behind the blue door.")
        new_store(own_store_of(root).root)
        publish_own(root)
        _remember(root, lambda _: None, "The boiler is serviced before winter.")
        publish_own(root)


def _forget_for_good(root: Path, say: Say) -> None:
    with _home(root):
        done = apply_forget(plan_forget(ids=[1]), night=lambda: publish_own(root))
        say("gone" if done.is_gone else done.message)


SAME = "The harbour master answers on channel 12."


def _a_source_with_proposals(root: Path) -> None:
    parts = ("Tides (part 1 of 2): high at six.", "Tides (part 2 of 2): low at noon.")
    make_sqlite(root / "memory.db", [{"content": text} for text in (SAME, SAME, *parts)])


def _curate(root: Path, say: Say) -> None:
    records = records_of(root / "memory.db", root / "corpus")
    where = Where(True, {record.memory_id: record.content for record in records})
    proposed = [one for one in proposals_for(records) if one.action != "NOOP"]
    with closing(SqliteStore(root / "memory.db", CorpusSettings())) as store:
        applied = apply_proposals(store, proposed, where).journal_id
        assert applied is not None
        say("applied")
        undo(store, applied)
        say(", undone")


def _a_backup_of_a_home_that_lives_on(root: Path) -> None:
    _a_home_that_serves(root)
    _back_up(root, lambda _: None)
    with _home(root):
        _remember(root, lambda _: None, "The cellar door sticks.")


def _back_up(root: Path, say: Say) -> None:
    with _home(root) as home:
        say(back_up(home, [own_store_of(root).root], root / "disk", keep=1).backup)


def _a_lost_home(root: Path) -> None:
    _a_home_that_serves(root)
    _back_up(root, lambda _: None)
    close_logs()
    shutil.rmtree(root / "home")


def _restore(root: Path, say: Say) -> None:
    with _home(root) as home:
        restore_files(root / "disk", home, choose_files(root / "disk", home, None, None))
        say("restored")


def _export_to_a_directory(root: Path, say: Say) -> None:
    export_snapshot(store_of(root).paths, root / "export")
    say("exported")


def _nothing(root: Path) -> None:
    pass


PROGRAMS: dict[str, tuple[Callable[[Path], object], Callable[[Path, Say], None]]] = {
    "first publication": (_nothing, lambda root, say: _publish(root, say, 1)),
    "publication": (_two_snapshots, lambda root, say: _publish(root, say, 3)),
    "publication after a kill": (_a_judged_candidate, _publish_what_a_killed_night_installed),
    "rollback": (_two_snapshots, _roll_back),
    "forgetting": (_a_retracted_row, _forget),
    "forgetting for good": (_a_home_that_serves, _forget_for_good),
    "comparison of exports": (_last_export, _compare_exports),
    "export": (_two_snapshots, _export_to_a_directory),
    "backup": (_a_backup_of_a_home_that_lives_on, _back_up),
    "restore": (_a_lost_home, _restore),
    "curation": (_a_source_with_proposals, _curate),
    "first memory": (_nothing, lambda root, say: _remember(root, say, "One.", "Two.")),
    "memory": (_remembered, lambda root, say: _remember(root, say, "Four.", "Five.")),
    "archive": (lambda root: new_archive_store(store_of(root).root, None), _archive),
    "turns": (_sessions, _keep_turns),
    "logs": (_nothing, _log),
}  # fmt: skip
"""By name, what puts there what is there before, and what is watched."""


def main() -> None:
    root, *names = sys.argv[1:]
    for name in names:
        PROGRAMS[name][1](Path(root, name), lambda text, name=name: _say(f"{name}:{text}"))


def _say(text: str) -> None:
    os.write(1, text.encode())


if __name__ == "__main__":
    main()
