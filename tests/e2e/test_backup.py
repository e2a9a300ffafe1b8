"""The machine is lost: a backup that was made while a night ran and others wrote brings it back."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.manifest import full_check, read_manifest
from noctuary.core.store import store_for_source
from noctuary.sources.own_store import remember
from noctuary.work.lock import find_holder
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, environment, run, run_night, start_night
from tests.e2e.stores import Bench, answers, editing, files_of, give_encoder, leftovers, sample_rows
from tests.support.transcripts import said_session, write_session

QUERIES = ["boiler error", "garage paint", "ladder", "invoice", "writer"]
CODES = ("4471", "9032", "7715")

WRITER = """
from noctuary import remember
number = 0
while True:
    number += 1
    print(remember(f"Note {number} of the writer, kept for the ladder.").id, flush=True)
"""


def noctuary(home: Path, *words: str, code: int = DONE) -> Any:
    ran = run([sys.executable, "-m", "noctuary.cli.entry", *words, "--json"], home.parent,
              extra={"NOCTUARY_HOME": str(home)})  # fmt: skip
    assert ran.code == code, ran.says
    return json.loads(ran.out)


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return db.execute(sql).fetchall()


@pytest.fixture
def lived(small_night: FirstNight, tmp_path: Path) -> Bench:
    """A home of some nights: memories, turns, recalls and an archive, and nothing else."""
    home = tmp_path / "home"
    home.mkdir()
    source = home / "memories.sqlite"
    bench = Bench(source, store_for_source(home, source))
    give_encoder(bench.store, small_night.bench)
    write_session(tmp_path / "projects/shop/one.jsonl", said_session().lines)
    (home / "noctuary.toml").write_text(
        f"[transcripts]\npath = '{tmp_path / 'projects'}'\n"
        "[profiles.default]\nadaptive_compaction = true\ncompaction_age_days = 0\n"
    )
    for row in [row for row in sample_rows() if row.category != "turn"][:40]:
        remember(row.content, wing="home")
    previous = ""
    for month, code in enumerate(CODES, start=2):
        replaced = f" Supersedes #{previous}." if previous else ""
        previous = str(remember(f"The garage paint is {code} this season.{replaced}").id)
        with editing(source) as db:
            past = f"2026-{month:02d}-01T08:00:00+00:00"
            db.execute("UPDATE memories SET created_at = ? WHERE id = ?", (past, previous))
    night(bench)
    plan = noctuary(home, "proposals", "compact")
    assert plan["would_archive"] == 2
    noctuary(home, "proposals", "compact", "--apply", plan["plan_id"])
    for query in QUERIES:
        noctuary(home, "recall", query)
    return bench


def night(bench: Bench) -> None:
    ran = run_night(bench.source, bench.store)
    assert ran.code == DONE, ran.says


@pytest.mark.slow
def test_a_lost_machine_comes_back(lived: Bench, tmp_path: Path) -> None:
    home, disk = lived.store.parent, tmp_path / "disk"
    writer = subprocess.Popen([sys.executable, "-c", WRITER], env=environment(home),
                              stdout=subprocess.PIPE, encoding="utf-8")  # fmt: skip
    assert writer.stdout is not None
    running = start_night(lived.source, lived.store)
    acknowledged: dict[str, int] = {}
    try:
        while find_holder(lived.paths.lock) is None:
            assert running.poll() is None
            time.sleep(0.01)
        while running.poll() is None:
            last = int(writer.stdout.readline())
            acknowledged[noctuary(home, "backup", str(disk))["backup"]] = last
    finally:
        writer.kill()
        writer.communicate()
        told, _ = running.communicate()
    assert json.loads(told)["status"] == "published"
    night(lived)
    before, digest = answers(lived, QUERIES), lived.manifest.digest
    assert before[1]
    assert "" not in files_of(home).values()
    turns = rows(lived.paths.turns, "SELECT * FROM parts ORDER BY number, part")
    assert turns
    memories = rows(lived.source, "SELECT * FROM memories ORDER BY id")
    noctuary(home, "backup", str(disk))
    again = noctuary(home, "backup", str(disk))
    assert again["new_bytes"] < again["bytes"] / 4, "what did not change is not copied again"
    shutil.rmtree(home)
    shutil.rmtree(tmp_path / "projects")

    assert len(acknowledged) > 2
    for name, last in [*acknowledged.items()][:: len(acknowledged) - 1]:
        back = tmp_path / f"at-{name}"
        noctuary(home, "restore", str(disk), "--backup", name, "--home", str(back))
        kept = {key for (key,) in rows(back / "memories.sqlite", "SELECT id FROM memories")}
        assert kept >= set(range(1, last + 1))
        source = back / "memories.sqlite"
        bench = Bench(source, store_for_source(back, source))
        full_check(bench.snapshot, read_manifest(bench.snapshot))
        shutil.rmtree(back)

    noctuary(home, "restore", str(disk))
    assert answers(lived, QUERIES) == before
    assert rows(lived.source, "SELECT * FROM memories ORDER BY id") == memories
    assert rows(lived.paths.turns, "SELECT * FROM parts ORDER BY number, part") == turns
    findings = noctuary(home, "doctor")["findings"]
    assert {f["name"]: f["level"] for f in findings}["privacy"] == "ok"
    assert [f for f in findings if f["level"] == "fail"] == []
    (home / "noctuary.toml").unlink()  # its transcripts are lost as well
    night(lived)
    assert leftovers(lived.store) == []
    assert (lived.manifest.digest, answers(lived, QUERIES)) == (digest, before)
    found = [m.content for m in lived.ask("garage paint", 50).memories if m.kind == "memory"]
    assert [code for code in CODES if any(code in text for text in found)] == [CODES[-1]]
