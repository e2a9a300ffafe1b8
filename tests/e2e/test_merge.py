"""A merge is killed anywhere, and run again: as if nothing had happened."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.tombstones import read_tombstones
from noctuary.sources.own_store import OWN_FILE
from tests.e2e.driver import DONE, environment
from tests.properties.test_merge import kept_turns
from tests.rooms.cli.test_merge import live_apart
from tests.rooms.snapshot.test_forget import House

HERE = Path(__file__).parent
PLACES = (
    "before noctuary.snapshot.forget.forget_again 1",
    "after noctuary.snapshot.forget.forget_again 1",
    "after noctuary.sources.other_home.write_rows 1",  # before the commit
    "after noctuary.sources.own_store.change_rows 1",
    "before noctuary.sources.other_home._take_turn 3",  # in the middle of a transaction
    "after noctuary.sources.other_home.merge_turns 1",
    "before noctuary.compact.archive_apply._rewrite 1",
    "after noctuary.compact.archive_apply._rewrite 1",
    "before noctuary.snapshot.forget.apply_forget 1",
    "after noctuary.snapshot.forget.hide 1",
    "after noctuary.sources.own_store.forget_rows 1",
)
RANDOM_KILLS = 6


def merge(home: Path, *words: str) -> subprocess.Popen[bytes]:
    """Start a merge of the laptop in a process of its own."""
    script = words or ("-m", "noctuary.cli.entry")
    return subprocess.Popen(
        [sys.executable, *script, "merge", str(home.with_name("laptop"))],
        env=environment(home), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip


def held(house: House) -> Any:
    """Return all that a merge writes."""
    home, found = house.home, list[Any]()
    tables = ("memories", "memory_links", "came_from", "gone")
    with closing(sqlite3.connect(home / OWN_FILE)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        found += [db.execute(f"SELECT * FROM {t} ORDER BY 1, 2").fetchall() for t in tables]
    if house.paths.archive.exists():
        with closing(sqlite3.connect(house.paths.archive)) as db:
            found += [
                db.execute(f"SELECT * FROM {t}").fetchall() for t in ("entries", "applications")
            ]
    stones = read_tombstones(house.paths.root)
    labels = (home / "queries.jsonl").read_text()
    return found, kept_turns(house.paths.turns), stones.rows, stones.ids, labels


def test_a_killed_merge_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, desktop = live_apart(tmp_path, monkeypatch)
    home, saved = desktop.home, tmp_path / "saved"
    shutil.copytree(home, saved)

    def run(process: subprocess.Popen[bytes]) -> int:
        _, told = process.communicate(timeout=60)
        assert b"Traceback" not in told
        return process.returncode

    began = time.monotonic()
    assert run(merge(home)) == DONE
    took_s, wanted = time.monotonic() - began, held(desktop)
    deaths = list[str | float](PLACES)
    deaths += [took_s * (1 + number) / (RANDOM_KILLS + 1) for number in range(RANDOM_KILLS)]
    halves = 0
    for death in deaths:
        shutil.rmtree(home)
        shutil.copytree(saved, home)
        if isinstance(death, str):
            killed = merge(home, str(HERE / "die_at.py"), *death.split())
            assert run(killed) == -signal.SIGKILL, death
        else:
            killed = merge(home)
            time.sleep(death)
            killed.kill()
            killed.communicate()
        halves += held(desktop) != wanted
        assert run(merge(home)) == DONE
        assert held(desktop) == wanted, death
        left = [path.name for path in home.iterdir() if path.name.startswith(".")]
        assert left == [], death
    assert halves > len(PLACES) / 2
