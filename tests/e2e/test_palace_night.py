"""Whole nights over a palace that the real chromadb made."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.byte_scan import find_texts
from tests.e2e.driver import DONE, run_night
from tests.e2e.stores import Bench
from tests.support.palaces import Drawer, drawer, make_palace, update_drawers

CANARY = "CANARY-palace-night-90b1"
DEPLOYED = "how is the billing service deployed?"
REPLACING = {"supersede_filter_enabled": True}

DRAWERS = (
    drawer("drawer_old", "The billing service is deployed through Jenkins on the old build box."),
    drawer("drawer_new", "Since spring GitHub runners ship billing.", filed_at="2026-05-01T00:00"),
    drawer("drawer_lunch", "Lunch is at noon in the canteen."),
    drawer("drawer_week", "What the week was like: meetings, and the pager was quiet."),
    drawer("drawer_vault", f"{CANARY} is the door code.", is_sensitive=True),
)  # fmt: skip


@pytest.mark.slow
def test_marks_of_the_palace_change_what_is_recalled(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "palace", tmp_path / "store")
    make_palace(bench.source, DRAWERS)
    update_drawers(
        bench.source,
        {"drawer_old": {"superseded_by": "drawer_new"},
         "drawer_lunch": {"status": "consolidated", "consolidated_into": "drawer_week"}},
    )  # fmt: skip
    ran = run_night(bench.source, bench.store)
    assert ran.code == DONE, ran.says
    assert bench.ask(DEPLOYED).memories[0].id == "drawer_old", "nothing is hidden unasked"
    first = bench.ask(DEPLOYED, profile=REPLACING).memories
    assert first[0].id == "drawer_new"
    assert "drawer_old" not in [memory.id for memory in first]
    lunch = {memory.id: memory for memory in bench.ask("lunch in the canteen at noon").memories}
    path = lunch["drawer_week"].graph
    assert path is not None
    assert (path.relation, path.seed_id, path.concept) == ("part_of", "drawer_lunch", None)
    assert find_texts(bench.store, [CANARY], skip=[bench.paths.encoders]) == []
    assert CANARY not in ran.says

    update_drawers(bench.source, {"drawer_old": {"superseded_by": None}})
    ran = run_night(bench.source, bench.store)
    assert ran.code == DONE, ran.says
    assert ran.note("concept_graph", "memories_touched") == 1
    assert bench.ask(DEPLOYED, profile=REPLACING).memories[0].id == "drawer_old"


MANY = 130_000
READ_CPU_S = 60.0
"""Measured 7.5 s (and 1.4 s for the links); more than eight times that is another algorithm."""

READ_RSS_BYTES = 400 * 2**20
"""Measured 41 MB for reading and 175 MB for the export; the file has 470 MB."""

_READ = """
import sys, time
from pathlib import Path
from noctuary.sources.export import export_corpus
from noctuary.sources.open import open_source
from noctuary.sources.source import MemoryLink
with open_source(Path(sys.argv[1])) as source:
    started = time.process_time()
    withheld = sum(r.withheld is not None for r in source.rows())
    links = sum(1 for _ in source.told(MemoryLink))
    cpu = time.process_time() - started
    report = export_corpus(source, Path(sys.argv[2]))
# Not ru_maxrss: it begins with what the process that made the palace held.
status = Path("/proc/self/status").read_text()
rss = int(status.partition("VmHWM:")[2].split()[0])
print(withheld, links, report.exported, cpu, rss * 1024)
"""


def many_drawers() -> Iterator[Drawer]:
    """Drawers of MemPalace's size (some 800 characters), ids in no order, some of them marked."""
    words = ("cache", "redis", "deploy", "harbor", "runner", "note", "index", "server", "quartz")
    for n in range(MANY):
        text = " ".join(words[(n * k + k) % len(words)] for k in range(1, 130))
        marks = {"is_sensitive": True} if n % 1000 == 0 else {}
        marks |= {"superseded_by": f"drawer_{n - 1:06}"} if n % 500 == 1 else {}
        name = f"drawer_{n * 7919 % MANY:06}"
        yield drawer(name, text, source_file=f"/notes/{n % 999}.md", chunk_index=n, **marks)


@pytest.mark.slow
def test_130_000_drawers_are_read_in_bounded_memory(tmp_path: Path) -> None:
    make_palace(tmp_path / "palace", many_drawers())
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(tmp_path / "palace"), str(tmp_path / "corpus")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    withheld, links, exported, cpu_s, rss_bytes = done.stdout.split()
    assert (int(withheld), int(links)) == (MANY // 1000, MANY // 500)
    assert int(exported) == MANY - MANY // 1000
    assert float(cpu_s) < READ_CPU_S
    assert float(rss_bytes) < READ_RSS_BYTES
