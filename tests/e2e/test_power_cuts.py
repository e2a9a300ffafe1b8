"""Power cuts on a real file system that forgets what was not flushed: SQLite, a night, LanceDB."""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, night_words
from tests.support.forgetful_disk import Disk, forgetful_disk
from tests.support.store import Store

HOME = "NOCTUARY_HOME"

WRITER = """
from noctuary import remember
while True:
    print(remember("The ladder is lent to Odalys, says the writer.").id, flush=True)
"""

ROWS = """
import json, sqlite3, sys
db = sqlite3.connect(sys.argv[1])
sound = db.execute("PRAGMA integrity_check").fetchone()[0]
print(json.dumps([sound, [key for (key,) in db.execute("SELECT id FROM memories")]]))
"""

CARELESS = """
import os, sqlite3, sys
home = sys.argv[1]
os.makedirs(home, exist_ok=True)
db = sqlite3.connect(home + "/careless.sqlite", isolation_level=None)
db.execute("PRAGMA synchronous=OFF")
db.execute("PRAGMA journal_mode=WAL")
db.execute("CREATE TABLE memories (id INTEGER PRIMARY KEY)")
db.execute("INSERT INTO memories VALUES (1)")
with open(home + "/new", "w") as file:
    file.write("all there is")
os.replace(home + "/new", home + "/renamed")
os._exit(0)
"""

ADD = """
import sys
from pathlib import Path
from tests.e2e.stores import add_memory
add_memory(Path(sys.argv[1]), sys.argv[2])
"""

LOOK = """
import json, sys
from pathlib import Path
from tests.e2e.stores import Bench, answers, leftovers
bench = Bench(Path(sys.argv[1], "home/memory.db"), Path(sys.argv[1], "home/store"))
empty = [str(p.relative_to(bench.store)) for p in bench.paths.lance.rglob("*.manifest")
         if not p.stat().st_size]
print(json.dumps({"digest": bench.manifest.digest, "answers": answers(bench, sys.argv[2:]),
                  "empty": empty, "left": leftovers(bench.store)}))
"""

QUERIES = ["boiler error", "bakery on Mondays"]


@pytest.fixture
def disk(tmp_path: Path) -> Generator[Disk]:
    with forgetful_disk(tmp_path / "disk") as mounted:
        yield mounted


def asked(disk: Disk, code: str, *words: str) -> Any:
    ran = disk.run([sys.executable, "-c", code, *words])
    assert ran.code == DONE, ran.says
    return json.loads(ran.out or "null")


@pytest.mark.parametrize("keep_names", [True, False])
def test_the_disk_forgets_what_nobody_flushed(disk: Disk, keep_names: bool) -> None:
    """Without this the tests below would prove nothing."""
    home = disk.mount / "place"
    asked(disk, CARELESS, str(home))
    lost = disk.cut(keep_names=keep_names)
    assert ("/place/renamed" if keep_names else "/place") in lost
    left = disk.run(["ls", "-s", str(home)]).out.split()
    assert ("renamed" in left) == keep_names
    if keep_names:
        assert left[left.index("renamed") - 1] == "0"
        assert disk.run(["cat", str(home / "careless.sqlite")]).out == ""


@pytest.mark.parametrize("keep_names", [True, False])
def test_a_memory_that_was_acknowledged_survives_a_power_cut(
    disk: Disk, tmp_path: Path, keep_names: bool
) -> None:
    said, home = tmp_path / "said", disk.mount / "home"
    known: set[int] = set()
    for least in (3, 40):
        disk.start([sys.executable, "-c", WRITER], said)
        until_s = time.monotonic() + 60
        while said.read_bytes().count(b"\n") < least:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        disk.cut(keep_names=keep_names)
        known |= {int(line) for line in said.read_text().split("\n")[:-1]}
        sound, kept = asked(disk, ROWS, str(home / "memories.sqlite"))
        assert sound == "ok"
        assert known <= {*kept}
        assert len(kept) <= len(known) + 1, "what was being written, and no more"
        known |= {*kept}


@pytest.mark.parametrize("keep_names", [True, False])
def test_a_backup_and_what_it_restores_survive_a_power_cut(
    disk: Disk, plain_store: Store, home: Path, tmp_path: Path, keep_names: bool
) -> None:
    noctuary = [sys.executable, "-m", "noctuary.cli.entry"]
    place, back, own = str(disk.mount / "backups"), str(disk.mount / "back"), {HOME: str(home)}
    rng = random.Random(7)

    def is_whole() -> str:
        ran = disk.run([*noctuary, "restore", place, "--dry-run", "--home", back, "--json"])
        assert ran.code == DONE, ran.says
        return json.loads(ran.out)["backup"]

    made = disk.run([*noctuary, "backup", place, "--json"], own)
    assert made.code == DONE, made.says
    disk.cut(keep_names=keep_names)
    names = [json.loads(made.out)["backup"]]
    assert is_whole() == names[0]
    for number in range(6):
        (home / "labels.jsonl").write_text(f"{number}")
        (plain_store.root / "merges.toml").write_text(f"# {number}")
        disk.start([*noctuary, "backup", place, "--keep", "1", "--json"], tmp_path / "said", own)
        time.sleep(rng.uniform(0.1, 1.2))
        disk.cut(keep_names=keep_names)
        names.append(is_whole())
    assert names == sorted(names)
    assert disk.run([*noctuary, "restore", place, "--home", back]).code == DONE
    disk.cut(keep_names=keep_names)
    ran = disk.run([*noctuary, "recall", "spare key", "--json"], {HOME: back})
    assert ran.code == DONE, ran.says
    assert json.loads(ran.out)["memories"][0]["id"] == 101


@pytest.mark.slow
@pytest.mark.parametrize("keep_names", [True, False])
def test_a_published_night_survives_a_power_cut_and_the_next_heals_the_rest(
    small_night: FirstNight, disk: Disk, tmp_path: Path, keep_names: bool
) -> None:
    small_night.bench.twin(tmp_path / "home")
    assert disk.run(["cp", "-r", str(tmp_path / "home"), str(disk.mount)]).code == DONE
    home = disk.mount / "home"
    words = night_words(home / "memory.db", home / "store", "--json")
    assert disk.run(words).code == DONE
    disk.flush()
    text = "The bakery on Alder Street closes at two on Mondays."
    code = "import sys; from pathlib import Path; from tests.e2e.stores import add_memory"
    asked(
        disk, f"{code}; add_memory(Path(sys.argv[1]), sys.argv[2])", str(home / "memory.db"), text
    )
    ran = disk.run(words)
    assert json.loads(ran.out)["status"] == "published", ran.says
    before = asked(disk, LOOK, str(disk.mount), *QUERIES)
    assert before["empty"] == []
    lost = disk.cut(keep_names=keep_names)
    after = asked(disk, LOOK, str(disk.mount), *QUERIES)
    assert (after["digest"], after["answers"]) == (before["digest"], before["answers"])
    assert any("/lance/" in name for name in lost)
    assert bool(after["empty"]) == keep_names, "LanceDB flushes nothing"
    ran = disk.run(words)
    assert ran.code == DONE, ran.says
    assert "damaged or missing, so this night rebuilds" in ran.says
    healed = asked(disk, LOOK, str(disk.mount), *QUERIES)
    assert healed == before
    assert healed["left"] == []
