"""Any file that a night leaves may be damaged: doctor names it, and the next night makes it again.

The files are those that a real night left, not a list. Whoever damages one restores its times, as
a failing disk does.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import dagster as dg
import pytest

from noctuary.cli.doctor import examine
from noctuary.core.store import ARRAYS_FILE
from noctuary.work.ledger import find_faults, name_faults
from noctuary_assets.night import Night
from noctuary_pipelines.definitions import build_definitions
from noctuary_pipelines.resources import open_night
from noctuary_pipelines.site import resolve_site
from tests.e2e.byte_scan import find_texts
from tests.e2e.conftest import FirstNight, small_user
from tests.e2e.driver import DONE, environment, run_night
from tests.e2e.stores import Bench, editing, leftovers

PLACES = ("work", "lance", "dagster", "encoders", "rotations")
SAMPLED = 1
"""Files that the default run damages one at a time: each costs a night."""

Damage = Callable[[bytes], bytes | None]


def _flip(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


DAMAGES: dict[str, Damage] = {
    "middle": lambda data: _flip(data, len(data) // 2),
    "first": lambda data: _flip(data, 0),
    "truncated": lambda data: data[: len(data) // 2],
    "emptied": lambda _: b"",
    "deleted": lambda _: None,
}


def left_files(store: Path) -> list[Path]:
    """Return the files of a night, named below the store."""
    found = (path for place in PLACES for path in (store / place).rglob("*") if path.is_file())
    return sorted(path.relative_to(store) for path in found)


def damage(path: Path, how: str) -> None:
    """Damage a file and leave its times; another file, because stores share encoders by links."""
    was, data = path.stat(), path.read_bytes()
    changed = DAMAGES[how](data)
    assert changed != data
    path.unlink()
    if changed is not None:
        path.write_bytes(changed)
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


def cases(store: Path, hows: list[str]) -> Iterator[tuple[Path, str]]:
    for name in left_files(store):
        yield from ((name, how) for how in hows if (store / name).stat().st_size)


def require_named(bench: Bench, names: list[Path]) -> None:
    """Both faces of the one comparison."""
    faults = find_faults(bench.paths)
    assert {fault.name for fault in faults} == {str(n) for n in names}
    (finding,) = [f for f in examine(bench.paths) if f.name == "files"]
    assert finding.level == "warn"
    assert name_faults(faults) in finding.message


def require_healed(bench: Bench, serving: str, said: str, name: Path | str = "") -> None:
    assert "damaged or missing, so " in said
    assert str(name) in said
    assert bench.serving == serving
    assert find_faults(bench.paths) == []
    assert leftovers(bench.store) == []
    assert bench.ask("boiler error").warnings == ()


def test_a_night_writes_only_below_its_home(small_night: FirstNight) -> None:
    user = small_user(small_night.bench.store.parent)
    left = [str(path) for place in user.values() for path in Path(place).rglob("*")]
    assert left == []


def test_one_damaged_file_is_made_again(small_night: FirstNight, tmp_path: Path) -> None:
    """The one of the report first, then some that chance picks; nothing is published for it."""
    serving, store = small_night.bench.serving, small_night.bench.store
    assert find_faults(small_night.bench.paths) == []
    others = random.Random(18).sample([*cases(store, [*DAMAGES])], SAMPLED)
    chosen = [(Path("work/corpus/memories.parquet"), "middle"), *others]
    for number, (name, how) in enumerate(chosen):
        bench = small_night.bench.twin(tmp_path / str(number))
        damage(bench.store / name, how)
        require_named(bench, [name])
        ran = run_night(bench.source, bench.store)
        assert ran.code == DONE, (name, how, ran.says)
        require_healed(bench, serving, " ".join(ran.report["said"]), name)


def test_a_damaged_array_of_what_serves_is_said_and_made_again(
    small_night: FirstNight, tmp_path: Path
) -> None:
    bench = small_night.bench.twin(tmp_path / "array")
    damage(bench.paths.snapshots / bench.serving / ARRAYS_FILE, "middle")
    before, ran = bench.serving, run_night(bench.source, bench.store)
    assert (ran.code, ran.report["status"]) == (DONE, "published"), ran.says
    assert bench.serving != before
    assert f"{ARRAYS_FILE} has another checksum" in " ".join(ran.report["said"])
    again = run_night(bench.source, bench.store)
    assert (again.report["status"], again.report["said"]) == ("unchanged", []), again.says


@pytest.mark.parametrize(
    "how",
    ["middle", *(pytest.param(how, marks=pytest.mark.slow) for how in [*DAMAGES][1:])],
)
def test_all_files_at_once(how: str, small: Bench) -> None:
    serving, names = small.serving, [name for name, _ in cases(small.store, [how])]
    for name in names:
        damage(small.store / name, how)
    require_named(small, names)
    ran = run_night(small.source, small.store)
    assert ran.code == DONE, ran.says
    require_healed(small, serving, " ".join(ran.report["said"]))


def test_a_row_that_turned_sensitive_is_forgotten_although_the_last_export_is_lost(
    small: Bench,
) -> None:
    with editing(small.source) as db:
        row_id, text = db.execute(
            "SELECT id, content FROM memories WHERE is_sensitive = 0 ORDER BY length(content) DESC"
        ).fetchone()
        db.execute("UPDATE memories SET is_sensitive = 1 WHERE id = ?", [row_id])
    damage(small.paths.work / "corpus" / "memories.parquet", "emptied")
    ran = run_night(small.source, small.store)
    assert ran.report["status"] == "published", ran.says
    assert find_texts(small.store, [text], skip=[small.paths.encoders]) == []


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("how", [*DAMAGES])
def test_every_file_that_a_night_leaves(
    how: str, small_night: FirstNight, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One at a time; within this process, because that is some hundred nights."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    serving, failed = small_night.bench.serving, {}
    for number, (name, _) in enumerate(cases(small_night.bench.store, [how])):
        bench = small_night.bench.twin(tmp_path / str(number))
        damage(bench.store / name, how)
        try:
            require_named(bench, [name])
            require_healed(bench, serving, _night(bench, name), name)
        except AssertionError as error:
            failed[str(name)] = str(error)
    assert not failed, json.dumps(failed, indent=1)


def _night(bench: Bench, name: Path) -> str:
    """Run a night and return what it said: the whole command where Dagster's files are tried."""
    if name.parts[0] == "dagster":
        ran = run_night(bench.source, bench.store)
        assert ran.code == DONE, ran.says
        return " ".join(ran.report["said"])
    said: list[str] = []
    site = resolve_site(str(bench.source), str(bench.store))

    @dg.resource
    def night(context: dg.InitResourceContext) -> Iterator[Night]:
        with open_night(site, context, lambda _: None, said.append) as opened:
            yield opened

    job = build_definitions({"night": night}).resolve_job_def("nightly")
    with dg.DagsterInstance.ephemeral() as instance:
        quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
        run = job.execute_in_process(instance=instance, raise_on_error=False, run_config=quiet)
    assert run.success, [event.message for event in run.all_events if event.is_failure]
    return " ".join(said)
