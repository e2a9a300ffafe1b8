"""SIGKILL in the middle of applying and undoing: done, or as if never begun; never in between.

The real command in a process of its own; nothing but the moment of death is changed.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from noctuary.compact.archive import ArchiveReader
from noctuary.compact.archive_apply import apply_in_store, undo_in_store
from noctuary.compact.archive_plan import ArchiveRules
from tests.support.archive import NOW_US
from tests.support.store import Store

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import importlib, os, signal, sys
when, target, call, *words = sys.argv[1:]
names = target.split(".")
owner = importlib.import_module(".".join(names[:-1])) if names[0] == "noctuary" else os
function = getattr(owner, names[-1])
calls = 0
def deadly(*args, **kwargs):
    global calls
    calls += 1
    if calls == int(call) and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = function(*args, **kwargs)
    if calls == int(call) and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(owner, names[-1], deadly)
from noctuary.cli.main import main
main(words)
"""

BEFORE = ["101", "102", "103", "105"]


def start(store: Store, *words: str) -> subprocess.Popen[str]:
    code = "from noctuary.cli.main import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, "proposals", "compact", *words, "--store", str(store.root)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
    )  # fmt: skip


def die(store: Store, when: str, target: str, *words: str, call: int = 1) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, when, target, str(call), "proposals", "compact", *words,
         "--store", str(store.root)],
        cwd=ROOT, capture_output=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == -signal.SIGKILL, ran.stdout + ran.stderr


def archived(store: Store) -> list[str]:
    reader = ArchiveReader(store.paths.archive)
    assert reader.warning is None
    return sorted(reader.entries_at(None))


def leftovers(store: Store) -> list[str]:
    return [p.name for p in store.root.iterdir() if p.name.endswith((".tmp", "-journal", "-wal"))]


@pytest.mark.parametrize(
    ("when", "target", "call", "is_done"),
    [
        ("before", "noctuary.compact.archive_apply._put_into_force", 1, False),
        ("after", "noctuary.compact.archive_apply._body_of", 1, False),
        ("before", "noctuary.compact.archive_apply._digest", 1, False),
        ("before", "noctuary.core.files.fsync_file", 1, False),
        ("before", "noctuary.core.files.fsync_dir", 1, True),
        ("after", "noctuary.compact.archive_apply._put_into_force", 1, True),
    ],
)
def test_a_killed_apply_happened_or_did_not(
    store: Store, when: str, target: str, call: int, is_done: bool
) -> None:
    die(store, when, target, "--apply", call=call)
    assert archived(store) == (BEFORE if is_done else [])
    done = apply_in_store(store.paths, ArchiveRules(), None, now_us=NOW_US)
    assert (done.applied_at_us is None) is is_done
    assert archived(store) == BEFORE
    assert leftovers(store) == [], "the next start cleans up"


@pytest.mark.parametrize(
    ("target", "is_done"),
    [
        ("noctuary.compact.archive_apply._digest", False),
        ("noctuary.core.files.fsync_file", False),
        ("noctuary.core.files.fsync_dir", True),
    ],
)
def test_a_killed_undo_happened_or_did_not(store: Store, target: str, is_done: bool) -> None:
    plan_id = apply_in_store(store.paths, ArchiveRules(), None, now_us=NOW_US).plan.plan_id
    whole = store.paths.archive.read_bytes()
    die(store, "before", target, "--undo", plan_id)
    assert archived(store) == ([] if is_done else BEFORE)
    assert (store.paths.archive.read_bytes() == whole) is not is_done


@pytest.mark.slow
def test_killed_from_outside_at_whatever_moment(store: Store) -> None:
    """Kills spread over the life of the process; each leaves one of the two states."""
    seen: set[bool] = set()
    watched = time.perf_counter()
    start(store, "--plan").communicate()
    life_s = time.perf_counter() - watched
    for attempt in range(12):
        process = start(store, "--apply")
        time.sleep(life_s * (0.5 + attempt / 16))
        process.kill()
        process.communicate()
        found = archived(store)
        assert found in ([], BEFORE)
        seen.add(bool(found))
        if found:
            plan_id = next(iter(ArchiveReader(store.paths.archive).applied_plans_at(None)))
            undo_in_store(store.paths, plan_id, now_us=NOW_US)
        assert archived(store) == []
    assert apply_in_store(store.paths, ArchiveRules(), None, now_us=NOW_US).applied_at_us
    assert leftovers(store) == []
    assert False in seen, "every kill came too late to tell anything"
