"""The enumerator finds each fault that a program may have, and none in one that has none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.support.crash_states import STRACE, Recording, State, crash_states, record

pytestmark = pytest.mark.skipif(STRACE is None, reason="strace is not installed")

_PROGRAM = """
import os, sys
root = sys.argv[1]
def flush(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
"""
_SOUND = """
with open(f"{root}/.new", "wb") as file:
    file.write(b"new text")
    file.flush()
    os.fsync(file.fileno())
os.rename(f"{root}/.new", f"{root}/text")
flush(root)
os.write(1, b"done")
"""
NO_FLUSH_OF_THE_FILE = _SOUND.replace("os.fsync(file.fileno())", "pass")
NO_FLUSH_OF_THE_DIRECTORY = _SOUND.replace("flush(root)", "pass")
SAID_TOO_EARLY = 'os.write(1, b"done")\n' + _SOUND.rpartition("os.write")[0]
IN_PLACE = """
with open(f"{root}/text", "wb") as file:
    file.write(b"new text")
    file.flush()
    os.fsync(file.fileno())
os.write(1, b"done")
"""
A_NEW_DIRECTORY_IS_NOT_FLUSHED = """
os.mkdir(f"{root}/below")
os.rename(f"{root}/text", f"{root}/below/old")
flush(f"{root}/below")
""" + _SOUND.replace("flush(root)", "pass")


def recorded(tmp_path: Path, body: str) -> Recording:
    root = tmp_path / "root"
    root.mkdir()
    (root / "text").write_text("old text")
    words = [sys.executable, "-c", _PROGRAM + body, str(root)]
    found = record(words, root, tmp_path / "before", env=os.environ, cwd=tmp_path)
    assert found.code == 0
    return found


def fault(state: State) -> str:
    """Say what is wrong with a state of one text that is replaced."""
    text = state.files.get("text")
    if text == b"new text" or (text == b"old text" and state.said == ""):
        return ""
    return f"{text!r} after {state.said!r}"


@pytest.mark.parametrize(
    ("body", "faults"),
    [
        (_SOUND, set[str]()),
        (NO_FLUSH_OF_THE_FILE, {
            "b'' after ''", "b'new ' after ''", "b'\\x00\\x00\\x00\\x00text' after ''",
            "b'' after 'done'", "b'new ' after 'done'", "b'\\x00\\x00\\x00\\x00text' after 'done'",
        }),
        (NO_FLUSH_OF_THE_DIRECTORY, {"b'old text' after 'done'"}),
        (SAID_TOO_EARLY, {"b'old text' after 'done'"}),
        # Cutting a file to nothing is a change like others: it may be on disk before the bytes.
        (IN_PLACE, {"b'' after ''", "b'new ' after ''", "b'\\x00\\x00\\x00\\x00text' after ''"}),
        (A_NEW_DIRECTORY_IS_NOT_FLUSHED, {"None after ''", "None after 'done'"}),
    ],
)  # fmt: skip
def test_the_faults_of_a_program_are_found(tmp_path: Path, body: str, faults: set[str]) -> None:
    states = list(crash_states(recorded(tmp_path, body)))
    assert {said for state in states if (said := fault(state))} == faults
    assert any(fault(state) == "" for state in states)
    trees = [(state.said, *sorted(state.files.items())) for state in states]
    assert len(set(trees)) == len(trees)


def test_what_moves_bytes_without_writing_them_is_recorded(tmp_path: Path) -> None:
    """`record` compares with what the program left; each line is one way to fill a file."""
    body = """
import shutil, sqlite3
from pathlib import Path
shutil.copyfile(f"{root}/text", f"{root}/copy")
os.link(f"{root}/copy", f"{root}/link")
with open(f"{root}/copy", "r+b") as file:
    file.seek(4)
    file.write(b"TEXT")
fd = os.open(f"{root}/vector", os.O_CREAT | os.O_WRONLY)
os.writev(fd, [b"abc", b"def"])
os.pwritev(fd, [b"X", b"Y"], 2)
os.ftruncate(fd, 5)
os.posix_fallocate(fd, 0, 9)
for text in ("one", "two"):
    with open(f"{root}/log", "a") as file:
        file.write(text)
os.makedirs(f"{root}/deep/deeper")
Path(f"{root}/deep/deeper/file").touch()
Path(f"{root}/deep").rename(f"{root}/moved")
shutil.rmtree(f"{root}/moved")
with sqlite3.connect(f"{root}/rows") as db:
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE t (a)")
    db.execute("INSERT INTO t VALUES (1)")
db.close()
"""
    found = recorded(tmp_path, body)
    last = [s for s in crash_states(found) if s.at == len(found.events)]
    whole = next(s for s in last if s.what == "names: all; bytes: full").files
    assert found.mapped == {"rows-shm"}
    assert {name: whole[name] for name in ("copy", "link", "vector", "log")} == {
        "copy": b"old TEXT", "link": b"old TEXT", "vector": b"abXYe\0\0\0\0", "log": b"onetwo",
    }  # fmt: skip
    assert {*whole} == {"text", "copy", "link", "vector", "log", "rows"}


def test_a_tree_is_written_as_it_is_described(tmp_path: Path) -> None:
    found = recorded(tmp_path, _SOUND)
    moments = [*range(len(found.events))] * 4
    drawn = list(crash_states(found, moments, seed=3))
    assert drawn == list(crash_states(found, moments, seed=3))
    assert 1 < len(drawn) < len(moments)
    for number, state in enumerate(drawn):
        root = state.write(tmp_path / str(number))
        assert {p.name: p.read_bytes() for p in root.iterdir()} == dict(state.files)
