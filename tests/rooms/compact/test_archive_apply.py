"""Plans of a real store: made without writing, applied whole or not at all, undone exactly."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from noctuary.compact.archive import ArchiveReader
from noctuary.compact.archive_apply import (
    PlanRefusedError,
    applied_summaries,
    apply_in_store,
    purge_texts,
    undo_in_store,
)
from noctuary.compact.archive_plan import ArchiveRules, Plan, plan_store
from noctuary.core.errors import SnapshotMissingError, StoreError, StoreLockedError
from noctuary.core.sqlite import close_logs
from noctuary.core.types import MemoryRecord
from noctuary.recall.engine import Recaller
from noctuary.usage.access_log import append_retrievals
from noctuary.work.lock import hold_lock
from tests.support.archive import NOW_US, Replaced, count_use, publish, versions
from tests.support.store import DAY_US, Store, day_us, memory, new_store, renumber

RULES = ArchiveRules()
QUERIES = ("spare key", "boiler degrees", "kitten radiator", "neighbour", "payment", "the")


BEFORE = ["101", "102", "103", "105"]


def plan(store: Store, rules: ArchiveRules = RULES) -> Plan:
    return plan_store(store.paths, rules)


def apply(store: Store, plan_id: str | None = None, *, now_us: int = NOW_US) -> Plan:
    return apply_in_store(store.paths, RULES, plan_id, now_us=now_us).plan


def archived(store: Store) -> list[str]:
    reader = ArchiveReader(store.paths.archive)
    assert reader.warning is None
    return sorted(reader.entries_at(None))


def answers(store: Store) -> list[str]:
    """Return every recall whole, as text: byte-identical means identical here."""
    recaller = Recaller.open(store.root)
    return [json.dumps([m.to_json() for m in recaller.recall(q).memories]) for q in QUERIES]


def found_ids(store: Store, query: str) -> set[str]:
    recaller = Recaller.open(store.root)
    return {str(m.id) for m in recaller.recall(query, 20).memories}


def tree(root: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(p.relative_to(root)): (p.read_bytes(), p.stat().st_mtime_ns, p.stat().st_ino)
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


def test_a_plan_writes_nothing_and_comes_out_again(store: Store) -> None:
    fault = append_retrievals(store.paths.access_log, snapshot_id="s", memory_ids=["107"])
    assert fault is None  # a log in use: its -wal and -shm must be left alone too
    before = tree(store.root)
    first, again = plan(store), plan(store)
    assert tree(store.root) == before
    assert first.plan_id == again.plan_id
    assert first.groups == again.groups
    assert len(first.archived) == 4
    close_logs()


def test_a_plan_is_empty_where_nobody_has_counted(tmp_path: Path) -> None:
    store = new_store(tmp_path / "house")
    with pytest.raises(SnapshotMissingError):
        plan(store)
    publish(store, *versions())
    found = plan(store)
    assert found.archived == ()
    assert found.warning is not None
    assert "what is not known to be unused is not archived" in found.warning
    assert apply_in_store(store.paths, RULES, None, now_us=NOW_US).applied_at_us is None
    assert not store.paths.archive.exists()
    store.paths.usage.write_bytes(b"x" * 4096)
    assert plan(store).archived == ()


def test_the_clock_changes_no_plan_until_the_next_night_counts(store: Store) -> None:
    before = plan(store)
    count_use(store, as_of_us=NOW_US + 5 * DAY_US)
    after = plan(store)
    assert before.plan_id == after.plan_id, "the same memories for the same reasons"
    assert [c.idle_days + 5 for c in before.candidates] == [c.idle_days for c in after.candidates]


def test_what_is_applied_is_out_of_recall_and_what_is_undone_is_back(store: Store) -> None:
    with pytest.raises(PlanRefusedError, match="never applied"):
        undo_in_store(store.paths, "nonsense", now_us=NOW_US)
    before = answers(store)
    found = apply(store)
    ledger = store.paths.archive.read_bytes()
    assert archived(store) == BEFORE
    assert found_ids(store, "spare key") & {"101", "102", "103", "104"} == {"104"}
    assert found_ids(store, "boiler degrees") & {"105", "106"} == {"106"}
    assert answers(store) != before
    # What is applied is in no later plan.
    later = plan(store)
    assert (later.archived, later.scan.left["archived"]) == ((), 4)
    with pytest.raises(PlanRefusedError, match="already in force"):
        apply(store, found.plan_id)
    assert apply_in_store(store.paths, RULES, None, now_us=NOW_US).applied_at_us is None
    undo_in_store(store.paths, found.plan_id, now_us=NOW_US)
    with pytest.raises(PlanRefusedError, match="undone already"):
        undo_in_store(store.paths, found.plan_id, now_us=NOW_US)
    assert archived(store) == []
    assert answers(store) == before
    assert apply(store, found.plan_id).plan_id == found.plan_id
    assert archived(store) == BEFORE
    store.paths.archive.unlink()
    apply(store)
    assert store.paths.archive.read_bytes() == ledger, "equal plans give equal ledgers"


def test_the_ledger_tells_every_time_whatever_the_clock_says(store: Store) -> None:
    plan_id = apply(store, now_us=1_000).plan_id
    undo_in_store(store.paths, plan_id, now_us=900)  # a clock that was set back
    apply(store, plan_id, now_us=5_000)
    reader = ArchiveReader(store.paths.archive)
    assert reader.list_plans() == [
        {
            "plan_id": plan_id,
            "in_force": True,
            "applications": [
                {"applied_at_us": 1_000, "undone_at_us": 1_001},
                {"applied_at_us": 5_000, "undone_at_us": None},
            ],
            "memory_ids": BEFORE,
        }
    ]
    found = {t: len(reader.entries_at(t)) for t in (999, 1_000, 1_001, 4_999, 5_000)}
    assert found == {999: 0, 1_000: 4, 1_001: 0, 4_999: 0, 5_000: 4}


def test_a_night_between_plan_and_apply_that_changes_nothing_of_it_is_no_matter(
    store: Store,
) -> None:
    looked_at = plan(store)
    records, links = versions()
    publish(store, renumber([*records, memory("New.", created_at_us=day_us(390))]), links)
    count_use(store, as_of_us=NOW_US + DAY_US)
    assert apply(store, looked_at.plan_id).plan_id == looked_at.plan_id
    assert len(archived(store)) == 4


def changed(records: list[MemoryRecord], memory_id: str, text: str) -> list[MemoryRecord]:
    return renumber([r._replace(content=text) if r.memory_id == memory_id else r for r in records])


@pytest.mark.parametrize("case", ["edited", "successor-edited", "used", "another-profile"])
def test_a_plan_that_lost_its_reason_is_refused_whole(store: Store, case: str) -> None:
    looked_at, rules = plan(store), RULES
    records, links = versions()
    if case == "edited":
        publish(store, changed(records, "102", "The spare key is lost."), links)
    elif case == "successor-edited":
        publish(store, changed(records, "106", "The boiler was sold."), links)
    elif case == "used":
        count_use(store, {"105": (9, 9, 1, NOW_US)})
    else:
        rules = ArchiveRules(compaction_age_days=370)
    with pytest.raises(PlanRefusedError, match="no longer fits"):
        apply_in_store(store.paths, rules, looked_at.plan_id, now_us=NOW_US)
    assert not store.paths.archive.exists()


def test_a_memory_that_is_edited_comes_back_and_may_be_planned_again(store: Store) -> None:
    apply(store)
    records, links = versions()
    publish(store, changed(records, "105", "The boiler runs at seventy degrees."), links)
    assert {"105", "106"} <= found_ids(store, "boiler degrees")
    again = plan(store)
    assert [c.memory_id for _, c in again.archived] == ["105"]
    apply(store, again.plan_id)
    assert "105" not in found_ids(store, "boiler degrees")


def test_a_plan_is_refused_when_a_memory_was_recalled_since_the_night(store: Store) -> None:
    count_use(store, as_of_us=time.time_ns() // 1000 - DAY_US)
    rules = ArchiveRules(compaction_age_days=0)
    append_retrievals(store.paths.access_log, snapshot_id="s", memory_ids=["107", "105"])
    close_logs()
    with pytest.raises(PlanRefusedError, match="105 were recalled since the night"):
        apply_in_store(store.paths, rules, None, now_us=NOW_US)
    store.paths.access_log.write_bytes(b"x" * 4096)
    with pytest.raises(StoreError, match="recalls since the night are unknown"):
        apply_in_store(store.paths, rules, None, now_us=NOW_US)
    assert not store.paths.archive.exists()


def test_while_a_night_runs_nothing_is_applied_or_undone(store: Store) -> None:
    found = apply(store)
    with hold_lock(store.paths.lock):
        for act in (
            lambda: apply(store),
            lambda: undo_in_store(store.paths, found.plan_id, now_us=NOW_US),
        ):
            with pytest.raises(StoreLockedError):
                act()
        assert len(plan(store).archived) == 0, "looking needs no lock"


def test_a_damaged_ledger_is_never_written_over(store: Store) -> None:
    found = apply(store)
    whole = store.paths.archive.read_bytes()
    for damage in (whole[: len(whole) // 2], b"x" * len(whole), b""):
        store.paths.archive.write_bytes(damage)
        assert plan(store).warning is not None
        for act in (
            lambda: apply(store),
            lambda: undo_in_store(store.paths, found.plan_id, now_us=NOW_US),
        ):
            with pytest.raises(StoreError):
                act()
        assert store.paths.archive.read_bytes() == damage
        assert purge_texts(store.paths.archive, lambda _: {}) == 0


def rest_of(
    records: Sequence[MemoryRecord], gone: str
) -> tuple[list[MemoryRecord], list[Replaced]]:
    """Return the corpus without a memory, and the supersessions that are left."""
    kept = [r for r in records if r.memory_id != gone]
    place = {r.memory_id: n for n, r in enumerate(kept)}
    left = [
        Replaced(place[records[k.older].memory_id], place[records[k.newer].memory_id])
        for k in versions()[1]
        if gone not in (records[k.older].memory_id, records[k.newer].memory_id)
    ]
    return [r._replace(position=n) for n, r in enumerate(kept)], left


@pytest.mark.parametrize(
    ("gone", "back"), [("104", "103"), ("106", "105"), ("102", "101")],
    ids=["end-of-a-chain", "its-only-successor", "middle-of-a-chain"],
)  # fmt: skip
def test_a_memory_whose_successor_is_deleted_comes_back(store: Store, gone: str, back: str) -> None:
    apply(store)
    publish(store, *rest_of(versions()[0], gone))
    found = found_ids(store, "spare key boiler degrees")
    assert back in found
    assert {"101", "102", "103", "105"} & found == {back}, "only that one"
    undone = versions()
    publish(store, *undone)
    assert back not in found_ids(store, "spare key boiler degrees"), "its reason is back as well"


def test_summaries_are_packed_while_every_source_is_archived(store: Store) -> None:
    found = apply(store)
    records, _ = versions()
    (packed,) = applied_summaries(store.paths.archive, records)
    assert packed.plan_id == found.plan_id
    assert packed.summary == found.summaries[0]
    for gone in ("101", "104"):
        others, _ = rest_of(records, gone)
        assert applied_summaries(store.paths.archive, others) == [], gone
    moved = [r._replace(position=r.position + 7) for r in records]
    (again,) = applied_summaries(store.paths.archive, moved)
    assert again.summary.source_positions == (7, 8, 9)
    undo_in_store(store.paths, found.plan_id, now_us=NOW_US)
    assert applied_summaries(store.paths.archive, records) == []


@pytest.mark.parametrize("applied", [True, False])
def test_a_summary_is_forgotten_with_its_source_whether_or_not_it_is_in_force(
    store: Store, applied: bool
) -> None:
    found = apply(store)
    if not applied:
        undo_in_store(store.paths, found.plan_id, now_us=NOW_US)
    text = found.summaries[0].text.encode()
    assert text in store.paths.archive.read_bytes()
    records, _ = versions()
    everything = {r.memory_id: r.content_hash for r in records}
    assert purge_texts(store.paths.archive, lambda _: everything) == 0
    before = ArchiveReader(store.paths.archive)
    hashes = {r.memory_id: r.content_hash for r in records if r.memory_id != "102"}
    assert purge_texts(store.paths.archive, lambda _: hashes) == 1
    assert text not in store.paths.archive.read_bytes(), "not in a free page either"
    after = before.refreshed()
    assert (after.digest, after.applications) == (before.digest, before.applications)
    stamp = store.paths.archive.stat().st_mtime_ns
    assert purge_texts(store.paths.archive, lambda _: hashes) == 0
    assert store.paths.archive.stat().st_mtime_ns == stamp, "nothing to do, nothing written"


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
