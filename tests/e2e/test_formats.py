"""What lies in a home that was lived in, and what becomes of a file of another version."""

from __future__ import annotations

import json
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from noctuary import remember
from noctuary.agents import install
from noctuary.cli.backup import list_backups, read_backup
from noctuary.cli.doctor import examine
from noctuary.compact.archive_apply import undo_in_store
from noctuary.core import formats
from noctuary.core.errors import NoctuaryError
from noctuary.core.formats import FORMATS
from noctuary.core.tombstones import Tombstones, write_tombstones
from noctuary.evaluate.run import Run, read_run, write_run
from noctuary.recall import replay
from noctuary.recall.engine import Recaller
from noctuary.snapshot import forget
from noctuary.snapshot.forget_plan import SOURCE, plan_forget
from noctuary.sources import injected, own_store
from noctuary.sources.ingest import ingest_transcripts
from noctuary.usage.access_log import append_retrievals
from noctuary.usage.query_log import append_query
from noctuary.usage.statistics import read_folded
from noctuary.work.ledger import end_night
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, run, run_night
from tests.e2e.stores import Bench, add_memory, answers, files_of
from tests.support.archive_file import write_archive
from tests.support.transcripts import said_session, write_session

QUERIES = ["boiler error", "ladder", "invoice"]
ASKED_WITH = ("--set", "replay_log=true", "--set", "query_expansion_enabled=true", "--inject")


class Lived:
    """A home after a night, a working day and a backup."""

    def __init__(self, bench: Bench, beside: Path) -> None:
        self.bench, self.beside = bench, beside
        self.home, self.paths = bench.store.parent, bench.paths
        self.place = install.SettingsPlace("claude", "user", beside / "claude/settings.json")

    def run(self, *words: str, told: object = None) -> None:
        given = ["sh", "-c", 'echo "$1" | (shift; exec "$@")', "sh", json.dumps(told)]
        ran = run([*given, sys.executable, "-m", "noctuary.cli.entry", *words], self.home)
        assert ran.code == DONE, ran.says

    def live(self) -> None:
        paths, transcript = self.paths, self.beside / "projects/shop/one.jsonl"
        write_session(transcript, said_session().lines)
        ingest_transcripts(transcript, paths.turns)
        self.run("remember", "The ladder leans behind the blue door.")
        for query in QUERIES:
            self.run("recall", query, "--store", str(paths.root), *ASKED_WITH)
        for event in ("UserPromptSubmit", "PreCompact"):
            told = {"session_id": "s", "hook_event_name": event, "prompt": "where is the ladder?"}
            self.run("hook", "--agent", "claude", "--store", str(paths.root), told=told)
        install.install_hooks(self.place, ["noctuary"], home=self.home)
        reader = Recaller.open(paths.root).reader
        ids = [str(m.id) for m in self.bench.ask("boiler error").memories[:2]]
        write_archive(paths.archive, reader, {"p": {ids[0]: ids[1]}}, {"p": [(1, 2)]})
        write_tombstones(paths.root, Tombstones(rows=frozenset({"0" * 32})))
        draft = {"format": formats.RECEIPT.version, "ids": [1]}
        (paths.root / "receipts").mkdir()
        (paths.root / "receipts" / vars(forget)["_DRAFT"]).write_text(json.dumps(draft))
        forget.seal(paths)
        self.run("backup", str(self.beside / "backup"))
        write_run(self.beside / "run.json", Run("ours", 1, 1, ("q",), (("1",),), (None,)), {})


@pytest.fixture(scope="module")
def _lived(small_night: FirstNight, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    beside = tmp_path_factory.mktemp("lived")
    home = Lived(small_night.bench.twin(beside / "home"), beside)
    home.live()
    return home


@pytest.fixture
def lived(_lived: Lived, monkeypatch: pytest.MonkeyPatch) -> Lived:
    """One for all tests here, each of which leaves it as it was; it is the configured home."""
    monkeypatch.setenv("NOCTUARY_HOME", str(_lived.home))
    return _lived


def test_every_file_of_a_home_belongs_to_a_format(lived: Lived) -> None:
    found = files_of(lived.home)
    assert [name for name, owner in found.items() if not owner] == ["memory.db"], "but the source"
    # A row of another file, a provider's model, and what lies elsewhere.
    absent = {"REPLAY_PACKET", "HOSTED_MODEL", "BACKUP", "EVALUATION_RUN"}
    assert FORMATS.keys() - found.values() == absent


_KEYS = ("format", "format_version", "version", "schema_version")


def version_of(path: Path) -> Any:
    """Return the version that a file says it has."""
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as db:
            return db.execute("PRAGMA user_version").fetchone()[0]
    if path.suffix == ".duckdb":
        with duckdb.connect(str(path)) as graph:
            return graph.execute("SELECT version FROM meta").fetchall()[0][0]
    told = json.loads(path.read_text(encoding="utf-8"))
    return next(told[key] for key in _KEYS if isinstance(told.get(key), int))


def raise_version(path: Path) -> None:
    """Make a file one of the next version, as a newer noctuary would."""
    version = version_of(path)
    if path.suffix == ".sqlite":
        with closing(sqlite3.connect(path)) as db:
            db.execute(f"PRAGMA user_version={version + 1}")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    elif path.suffix == ".duckdb":
        with duckdb.connect(str(path)) as graph:
            graph.execute("UPDATE meta SET version = '9' || version")
    else:
        told = json.loads(path.read_text(encoding="utf-8"))
        key = next(key for key in _KEYS if isinstance(told.get(key), int))
        path.chmod(0o600)
        path.write_text(json.dumps({**told, key: version + 1}), encoding="utf-8")


Act = Callable[[Lived], object]
REFUSED: dict[str, tuple[str, Act]] = {
    "OWN_STORE": ("home/memories.sqlite", lambda _: remember("The key hangs in the hall.")),
    "TURNS": (
        "home/store/turns.sqlite",
        lambda at: ingest_transcripts(at.beside / "projects", at.paths.turns),
    ),
    "ARCHIVE": (
        "home/store/archive.sqlite", lambda at: undo_in_store(at.paths, "p", now_us=3),
    ),
    "ACCESS_LOG": (
        "home/store/access.sqlite",
        lambda at: append_retrievals(at.paths.access_log, snapshot_id="s", memory_ids=["1"]),
    ),
    "QUERY_LOG": (
        "home/store/queries.sqlite",
        lambda at: append_query(
            at.paths.queries, text="q", vector=np.ones(1, np.float32), memory_ids=(),
            encoder_digest="e", asked_us=1, user=None,
        ),
    ),
    "INJECTIONS": (
        "home/store/injected.sqlite",
        lambda at: injected.append_injection(
            at.paths.injections, [injected.InjectedWording("line", b"", b"", b"", b"", 1)], now_us=1
        ),
    ),
    "REPLAY_LOG": (
        "home/store/replays.sqlite", lambda at: replay.list_packets(at.paths.replays, 1),
    ),
    "RECALL_SUMS": (
        "home/store/work/usage/folded.json",
        lambda at: read_folded(at.paths.work / "usage/folded.json"),
    ),
    "TOMBSTONES": (
        "home/store/forgotten.json", lambda at: at.bench.ask("ladder").warnings[0].message,
    ),
    "INSTALL_RECEIPTS": (
        "home/hooks/installs.json", lambda at: install.uninstall_hooks(at.place, home=at.home),
    ),
    "BACKUP": (
        "backup/backups/*.json",
        lambda at: read_backup(at.beside / "backup", *list_backups(at.beside / "backup")),
    ),
    "EVALUATION_RUN": ("run.json", lambda at: read_run(at.beside / "run.json")),
}  # fmt: skip
REMEDIES = {
    "BACKUP": "use the noctuary that made it",
    "EVALUATION_RUN": "write it again",
}


def test_every_format_that_is_refused_is_tried() -> None:
    refused = {name for name, one in FORMATS.items() if one.newer == "refused"}
    assert refused - {"REPLAY_PACKET"} == REFUSED.keys()
    assert formats.OWN_STORE.version == len(own_store.MIGRATIONS)
    first = {name for name, one in FORMATS.items() if one.older is None}
    assert first == {name for name, one in FORMATS.items() if one.version == 1}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_of_a_newer_version_is_named_and_left_alone(lived: Lived, name: str) -> None:
    pattern, act = REFUSED[name]
    (path,) = lived.beside.glob(pattern)
    before = path.read_bytes()
    try:
        raise_version(path)
        raised, settings = path.read_bytes(), lived.place.path.read_bytes()
        try:
            said = str(act(lived))
        except NoctuaryError as error:
            said = str(error)
        version = FORMATS[name].version
        assert all(re.search(rf"\b{found}\b", said) for found in (version, version + 1)), said
        assert REMEDIES.get(name, formats.UPDATE) in said.lower(), said
        assert (path.read_bytes(), lived.place.path.read_bytes()) == (raised, settings)
    finally:
        path.write_bytes(before)


def test_a_packet_of_another_version_is_not_run(lived: Lived) -> None:
    (packet,) = replay.list_packets(lived.paths.replays, 1).packets
    newer = {**packet, "format": packet["format"] + 1}
    with pytest.raises(NoctuaryError, match=r"has format 3; this noctuary .* runs format 2"):
        replay.rerun(Recaller.open(lived.paths.root), newer)


def test_a_forgetting_finds_its_source_beside_a_snapshot_of_another_version(lived: Lived) -> None:
    path = lived.bench.snapshot / "manifest.json"
    before, asked = path.read_bytes(), lived.bench.ask("boiler error").memories[0].id
    try:
        raise_version(path)
        plan = plan_forget(lived.paths.root, ids=[asked])
        assert plan.notes == ()
        assert plan.memories[0].places == (SOURCE, lived.bench.serving)
    finally:
        path.write_bytes(before)


@pytest.mark.slow
def test_the_next_night_makes_anew_what_it_made(small: Bench) -> None:
    before = [[row[0] for row in found][:2] for found in answers(small, QUERIES)]
    patterns = {
        "SNAPSHOT": f"snapshots/{small.serving}/manifest.json",
        "ENCODER": "encoders/*/encoder.json",
        "USAGE": "usage.sqlite", "CONTENT": "work/content/*/MANIFEST.json",
        "EXPORT_REPORT": "work/corpus/report.json", "GRAPH_STATE": "work/graph.duckdb",
    }  # fmt: skip
    made = {name for name, one in FORMATS.items() if one.version and one.newer == "rebuilt"}
    assert made - {"HOSTED_MODEL", "HOOK_COUNTS"} == patterns.keys()
    found = (path for pattern in patterns.values() for path in small.store.glob(pattern))
    files = {path: version_of(path) for path in found}
    assert len(files) > len(patterns)
    for path in files:
        raise_version(path)
    # The ledger vouches for the files: none of them counts as damaged.
    end_night(small.paths, finished=True)
    assert {w.code for w in small.ask("ladder").warnings} == {"store_unreadable"}
    new = add_memory(small.source, "The sextant is kept in the observatory.")
    ran = run_night(small.source, small.store)
    assert ran.code == DONE, ran.says
    assert "damaged" not in ran.says
    # What it did not ask for stays as it is: an older snapshot, results of stages that had no work.
    unasked = {"manifest.json", "MANIFEST.json"}
    ours = {path: version for path, version in files.items() if path.name not in unasked}
    assert {path: version_of(path) for path in ours} == ours
    assert [version_of(p) for p in files if p.name == "MANIFEST.json"].count(2) >= 2
    assert [[row[0] for row in found][:2] for found in answers(small, QUERIES)] == before
    (best, *_) = small.ask("sextant observatory").memories
    assert best.id == new
    assert "fail" not in {finding.level for finding in examine(small.paths)}
