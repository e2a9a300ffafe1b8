from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest

from noctuary.core.types import MemoryRecord
from noctuary.graph.extract import Extraction
from noctuary.graph.state import STATE_VERSION, GraphState, SyncReport
from noctuary.graph.tables import FILES, read_tables, write_tables
from tests.support.graph_objects import Graph, to_graph
from tests.support.graphs import extract_all, synced_keys
from tests.support.naive_graph import naive_graph
from tests.support.store import memory, renumber, turns

ROOT = Path(__file__).resolve().parents[4]
FILLER = 30
SECRET = "Zanzibar Quartz"


def corpus(*texts: str) -> list[MemoryRecord]:
    """The texts, and memories that have nothing to do with them."""
    filler = [f"note {i}: the weather was fine" for i in range(FILLER)]
    return renumber([memory(text) for text in (*texts, *filler)])


def night(path: Path, records: Sequence[MemoryRecord]) -> tuple[SyncReport, Graph, list[int]]:
    """Bring a state up to date; what it did, its graph, and the positions that were extracted."""
    found, asked = extract_all(records), list[int]()

    def load(chosen: Sequence[int]) -> list[Extraction]:
        asked.extend(chosen)
        return [found[position] for position in chosen]

    with GraphState.open(path) as state:
        report = state.sync(records, synced_keys(records), load)
        state.place()
        return report, to_graph(state.fold()), asked


def plain(records: Sequence[MemoryRecord]) -> Graph:
    return naive_graph(records, extract_all(records))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "work" / "graph.duckdb"


def test_the_first_night_reads_everything_and_the_second_nothing(path: Path) -> None:
    records = corpus("Blue Ridge\nHills.", "we saw Blue Ridge")
    report, graph, asked = night(path, records)
    assert (report.added, report.touched, asked) == (32, 32, list(range(32)))
    assert graph == plain(records)
    assert night(path, records) == (SyncReport(0, 0, 0, 0, 0), graph, [])


def test_only_what_changed_is_read_and_only_texts_with_the_changed_name_are_searched_again(
    path: Path,
) -> None:
    before = corpus("we saw Blue Ridge", "the ridge was blue", "nothing")
    night(path, before)
    after = [*before, memory("Blue Ridge\nHills.", memory_id="new", position=len(before))]
    report, graph, asked = night(path, after)
    assert asked == [len(before)]
    # Both hold the two words; that the second has them in another order takes its text to see.
    assert report == SyncReport(added=1, edited=0, deleted=0, rematched=2, changed_names=1)
    assert graph == plain(after)
    assert [(e.src_position, e.dst_position) for e in graph.edges] == [(0, len(before))]


def test_memories_that_come_in_many_batches_give_the_same_graph(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("noctuary.sources.corpus.READ_ROWS", 10)
    # What a text is about is no mention in it: a mix-up of texts and subjects shows.
    texts = [f"Blue Ridge {name}\nHills of {name}; Blue Ridge {name} is high." for name in "ABCDE"]
    before = corpus(*texts, "we saw Blue Ridge D and Blue Ridge E", "nothing of Boot Hill")
    assert night(path, before)[1] == plain(before)
    late = [memory("Boot Hill\nA hill.", memory_id="n"), memory("Boot Hill again", memory_id="o")]
    after = renumber([*before[2:], *late])
    report, graph, _ = night(path, after)
    assert (report.added, report.deleted, graph) == (2, 2, plain(after))
    assert report.rematched


def test_a_name_that_goes_or_changes_its_case_concerns_the_texts_that_hold_it(path: Path) -> None:
    first = corpus("Redis\nA cache.", "we run redis and Redis", "nothing")
    _, graph, _ = night(path, first)
    assert len(graph.edges) == 1
    assert len({m.start for m in graph.mentions if m.position == 1}) == 1
    lower = [*first, memory("redis: fast", memory_id="new", position=len(first))]
    report, graph, _ = night(path, lower)
    assert report.rematched == 2
    assert len({m.start for m in graph.mentions if m.position == 1}) == 2
    assert night(path, first)[1] == plain(first)


def test_dates_and_sessions_are_taken_from_tonights_memories_without_reading_a_text(
    path: Path,
) -> None:
    records = renumber(
        [memory(f"turn {i}", is_turn=True, session_id="s", created_at_us=i) for i in range(3)]
    )
    night(path, records)
    moved = renumber(
        [memory(f"turn {i}", is_turn=True, session_id="s", created_at_us=9 - i) for i in range(3)]
    )
    report, graph, asked = night(path, moved)
    assert (report.touched, asked) == (0, [])
    assert graph == plain(moved)


def test_the_files_of_a_graph_do_not_tell_how_many_nights_it_took(tmp_path: Path) -> None:
    ridge, seen = "Blue Ridge\nHills.", "Blue Ridge is part of Boot Hill; Ana saw blue ridge."
    records = [*corpus(ridge, seen), *renumber(turns("s1", "Ana: hi", "Bo: hi"), 500)]
    records = [record._replace(position=i) for i, record in enumerate(records)]
    files: list[dict[str, bytes]] = []
    for name, nights in (("one", [records]), ("three", [corpus("other"), records[:9], records])):
        with GraphState.open(tmp_path / name / "graph.duckdb") as state:
            for some in nights:
                found = extract_all(some)
                state.sync(some, synced_keys(some), lambda chosen, f=found: [f[p] for p in chosen])
            state.place()
            write_tables(state.fold(), tmp_path / name / "files")
        files.append({p.name: p.read_bytes() for p in (tmp_path / name / "files").iterdir()})
    assert set(files[0]) == set(FILES.values())
    assert files[0] == files[1]
    tables = read_tables(tmp_path / "one" / "files")
    assert all(getattr(tables, part).num_rows for part in ("links", "edges", "concept_edges"))


def test_a_sync_that_fails_leaves_the_state_as_it_was(path: Path) -> None:
    before = corpus("Blue Ridge\nHills.", "we saw Blue Ridge")
    _, graph, _ = night(path, before)

    def fail(chosen: Sequence[int]) -> list[Extraction]:
        raise KeyboardInterrupt

    after = corpus("Boot Hill\nA hill.")
    with pytest.raises(KeyboardInterrupt), GraphState.open(path) as state:
        state.sync(after, synced_keys(after), fail)
    assert night(path, before) == (SyncReport(0, 0, 0, 0, 0), graph, [])


_KILLED = """
import os, signal, sys
from pathlib import Path
from noctuary.graph import state
from tests.unit.graph.state.test_state import corpus, night
def kill(*given):
    os.kill(os.getpid(), signal.SIGKILL)
state.GraphState.find_concerned = kill
night(Path(sys.argv[1]), corpus("Boot Hill\\nA hill."))
"""


def test_a_process_killed_in_a_sync_leaves_the_state_as_it_was(path: Path) -> None:
    before = corpus("Blue Ridge\nHills.", "we saw Blue Ridge")
    _, graph, _ = night(path, before)
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, str(path)], cwd=ROOT, check=False, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert night(path, before) == (SyncReport(0, 0, 0, 0, 0), graph, [])


def damaged(path: Path) -> None:
    path.write_bytes(b"no database at all" * 500)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def foreign(path: Path) -> None:
    path.unlink()
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE memory (x INTEGER)")


def older(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE meta SET version = '0'")


def half(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("DROP TABLE word")


@pytest.mark.parametrize("harm", [damaged, cut_off, foreign, older, half])
def test_a_file_that_is_not_ours_is_rebuilt_and_said_so(
    path: Path, harm: object, caplog: pytest.LogCaptureFixture
) -> None:
    records = corpus("Blue Ridge\nHills.", "we saw Blue Ridge")
    _, graph, _ = night(path, records)
    assert callable(harm)
    harm(path)
    with caplog.at_level(logging.WARNING, logger="noctuary.graph"):
        report, rebuilt, _ = night(path, records)
    assert (report.added, rebuilt) == (len(records), graph)
    assert "rebuilt from the memories" in caplog.text


def test_a_deleted_memory_leaves_nothing_in_the_file(path: Path) -> None:
    texts = [f"{SECRET} {i}: hidden under the Marble Bridge {i}" for i in range(200)]
    records = corpus(*texts)
    night(path, records)
    assert b"zanzibar" in path.read_bytes().lower()
    night(path, renumber(records[200:]))
    with duckdb.connect(str(path), read_only=True) as connection:
        assert connection.execute("SELECT version, has_leftovers FROM meta").fetchall() == [
            (STATE_VERSION, False)
        ]
    assert b"zanzibar" not in path.read_bytes().lower()
    assert [p.name for p in path.parent.iterdir()] == [path.name]
