"""What the real command says to bad input and a bad machine: one clear sentence, no traceback.

Whatever it was, the snapshot of yesterday is untouched and answers.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.conftest import FirstNight
from tests.e2e.driver import (
    DONE,
    FAILED,
    LOCKED,
    Ran,
    kill,
    night_words,
    run,
    run_night,
    start_night,
)
from tests.e2e.stores import Bench, add_memory, editing, fingerprint_tree, leftovers

QUERY = "duplicate captures of invoices"


def _make_text(path: Path) -> None:
    path.write_text("Dear diary, this is not a database.\n")


def _make_empty_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("VACUUM")
        db.execute("CREATE TABLE t (x)")
        db.execute("DROP TABLE t")
        db.commit()


def _make_unknown_schema(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT)")
        db.execute("INSERT INTO notes VALUES (1, 'a private sentence')")


def _make_truncated_gzip(path: Path) -> None:
    lines = [json.dumps({"id": i, "content": f"memory number {i} is here"}) for i in range(500)]
    whole = gzip.compress("\n".join(lines).encode())
    path.write_bytes(whole[: len(whole) // 2])


def _make_damaged_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY, content TEXT)")
        db.executemany("INSERT INTO memories (content) VALUES (?)", [("x" * 500,)] * 200)
    data = bytearray(path.read_bytes())
    data[100:4096] = b"\xff" * (4096 - 100)
    path.write_bytes(data)


BAD: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "missing": ("absent.db", lambda p: None, "no memory store at"),
    "text": ("notes.db", _make_text, "is not a database"),
    "zero bytes": ("zero.db", lambda p: p.touch(), "found 0 bytes"),
    "empty database": ("empty.db", _make_empty_database, "found the tables (none)"),
    "unknown schema": ("unknown.db", _make_unknown_schema, "found the tables notes"),
    "damaged database": ("damaged.db", _make_damaged_database, "cannot be read"),
    "truncated gzip": ("corpus.jsonl.gz", _make_truncated_gzip, "cut off after line"),
    "folder without a store": ("folder", lambda p: p.mkdir(), "holds no memory store"),
}

_LESS_COMMON = (
    "zero bytes", "damaged database", "folder without a store", "truncated gzip", "text",
    "empty database",
)  # fmt: skip
"""Each costs a process of three seconds, and the unit tests of the sources know them as well."""


@pytest.fixture(scope="module")
def standing(small_night: FirstNight, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A store with a snapshot that the nights of this module must leave alone."""
    return small_night.bench.twin(tmp_path_factory.mktemp("standing"))


def _require_one_sentence(ran: Ran, code: int, expected: str) -> None:
    assert ran.code == code, ran.says
    assert "Traceback" not in ran.says
    said = [line for line in ran.err.splitlines() if line.strip()]
    assert len(said) == 1, ran.says
    assert expected in said[0]
    assert said[0].rstrip().endswith((".", "!")) or ": " in said[0]


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in _LESS_COMMON else []) for n in BAD]
)
def test_a_bad_source_gets_one_sentence(name: str, standing: Bench, tmp_path: Path) -> None:
    file_name, make, expected = BAD[name]
    source = tmp_path / file_name
    make(source)
    before, pointer = (
        fingerprint_tree(standing.paths.snapshots),
        standing.paths.current.read_bytes(),
    )
    ran = run_night(source, standing.store, "--")
    _require_one_sentence(ran, FAILED, expected)
    assert str(source) in ran.err
    assert "a private sentence" not in ran.says
    assert fingerprint_tree(standing.paths.snapshots) == before
    assert standing.paths.current.read_bytes() == pointer
    assert standing.ask(QUERY).memories


def test_after_all_that_the_good_source_is_up_to_date(standing: Bench) -> None:
    ran = run_night(standing.source, standing.store)
    assert ran.report["status"] == "unchanged", ran.says
    assert leftovers(standing.store) == []


def test_the_same_is_said_as_json(small_night: FirstNight, tmp_path: Path) -> None:
    ran = run_night(tmp_path / "absent.db", tmp_path / "store")
    assert ran.code == FAILED
    assert ran.err == ""
    assert ran.report["status"] == "failed"
    assert "no memory store at" in ran.report["message"]
    assert ran.report["snapshot_id"] is None


def test_a_bad_setting_is_named_with_its_nearest(small: Bench) -> None:
    ran = run_night(small.source, small.store, "--", extra={"NOCTUARY_TIERS_SMAL_DIMS": "32"})
    assert ran.code == FAILED
    assert "Traceback" not in ran.says
    assert "NOCTUARY_TIERS_SMAL_DIMS" in ran.err
    assert "NOCTUARY_TIERS_SMALL_DIMS" in ran.err


def test_a_source_that_lost_every_row_does_not_replace_what_serves(small: Bench) -> None:
    """An emptied store is far more often an accident than a wish."""
    yesterday = small.serving
    with editing(small.source) as db:
        db.execute("DELETE FROM memories")
    ran = run_night(small.source, small.store, "--")
    assert ran.code not in (DONE, LOCKED), ran.says
    _require_one_sentence(ran, ran.code, "no row")
    assert small.serving == yesterday
    assert small.ask(QUERY).memories


def test_a_store_that_cannot_be_written_gets_one_sentence(
    small_night: FirstNight, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("not a directory")
    ran = run_night(small_night.bench.source, tmp_path / "file" / "store", "--")
    _require_one_sentence(ran, FAILED, "file")


def test_a_read_only_store_gets_one_sentence(small: Bench) -> None:
    yesterday = small.serving
    directories = [small.store, *(p for p in small.store.rglob("*") if p.is_dir())]
    for directory in directories:
        directory.chmod(0o555)
    try:
        words = [*_as_ordinary_user(), *night_words(small.source, small.store, "--")]
        ran = run(words, small.store.parent)
    finally:
        for directory in directories:
            directory.chmod(0o755)
    _require_one_sentence(ran, FAILED, str(small.store))
    assert small.serving == yesterday
    assert small.ask(QUERY).memories


@pytest.mark.parametrize("limit_kb", [64, 300, 800])
@pytest.mark.slow
def test_a_full_disk_gets_one_sentence_and_the_next_night_goes_on(
    limit_kb: int, small: Bench
) -> None:
    """No file of the child may grow beyond the limit: what the end of a disk looks like."""
    yesterday = small.serving
    # Text that does not compress: corpus, content store and snapshot outgrow every limit here.
    bulk = random.Random(1).choices("abcdefghijklmnopqrstuvwxyz     ", k=900_000)
    add_memory(small.source, "".join(bulk))
    ran = run_night(small.source, small.store, "--", before_exec=lambda: _limit_files(limit_kb))
    assert ran.code == FAILED, ran.says
    assert "Traceback" not in ran.says
    assert len([line for line in ran.err.splitlines() if line.strip()]) == 1, ran.says
    assert small.serving == yesterday
    assert small.ask(QUERY).memories
    assert run_night(small.source, small.store).report["status"] == "published"
    assert leftovers(small.store) == []


@pytest.mark.slow
def test_a_full_disk_on_a_first_night(small_night: FirstNight, tmp_path: Path) -> None:
    """The query encoder does not fit: nothing is half-published, and the next night completes."""
    bench = Bench(small_night.bench.source, tmp_path / "store")
    ran = run_night(bench.source, bench.store, "--", before_exec=lambda: _limit_files(3_000))
    _require_one_sentence(ran, FAILED, "File too large")
    assert [w.code for w in bench.ask(QUERY).warnings] == ["no_snapshot"]
    assert run_night(bench.source, bench.store).report["status"] == "published"
    assert bench.manifest.digest == small_night.bench.manifest.digest
    assert leftovers(bench.store) == []


@pytest.mark.slow
def test_a_second_night_at_once_is_told_to_wait(small: Bench) -> None:
    add_memory(small.source, "The bakery on Alder Street closes at two on Mondays.")
    first = start_night(small.source, small.store)
    try:
        _wait_for_lock(small, first)
        second = run_night(small.source, small.store, "--")
        _require_one_sentence(second, LOCKED, f"another night (process {first.pid}) is running")
        out, err = first.communicate(timeout=600)
    finally:
        kill(first)
    assert first.returncode == DONE, err
    assert json.loads(out)["status"] == "published"


def _wait_for_lock(bench: Bench, night: subprocess.Popen[str]) -> None:
    while bench.paths.lock.read_text() != str(night.pid):
        assert night.poll() is None, "the first night ended before the second began"
        time.sleep(0.01)


def _limit_files(kilobytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, kilobytes * 1024))


def _as_ordinary_user() -> list[str]:
    """Return a prefix without which file permissions would not bind root."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("running as root without setpriv: file permissions bind nobody")
    dropped = "-dac_override,-dac_read_search,-fowner"
    return ["setpriv", f"--bounding-set={dropped}", "--"]
