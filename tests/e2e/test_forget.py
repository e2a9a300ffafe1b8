"""Forgetting on a real store with real nights: no byte is left, by a scan of its own."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary.core.store import store_for_source
from noctuary.snapshot.publish import list_snapshots
from tests.e2e.byte_scan import find_texts, pieces
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, FAILED, Ran, run, run_night
from tests.e2e.stores import Bench, files_of, give_encoder
from tests.e2e.test_nothing_leaks import PIECE_CHARS

SECRET = "Zanzibarova keeps the Oxenholme ledger beneath the third floorboard."
WORDS = ("zanzibarova", "Zanzibarova", "oxenholm", "Oxenholme")
HERE = Path(__file__).parent


def forget(bench: Bench, *words: str) -> Ran:
    words = ("forget", *words, "--store", str(bench.store), "--json")
    return run([sys.executable, "-m", "noctuary.cli.entry", *words], bench.store.parent)


def gone(bench: Bench, parts: list[str]) -> list[Any]:
    return find_texts(bench.store.parent, parts, skip=[bench.paths.encoders])


@pytest.mark.slow
def test_a_turn_that_a_summary_quotes_is_forgotten(small: Bench) -> None:
    """A foreign source that keeps its row, a summary, sessions, links, the tables of vectors."""
    with closing(sqlite3.connect(small.snapshot / "rows.sqlite")) as rows:
        turn, text = rows.execute(
            "SELECT m.memory_id, m.content FROM memories m JOIN summary_sources s ON "
            "s.position = m.position ORDER BY length(m.content) DESC LIMIT 1"
        ).fetchone()
        others = "\n".join(t for i, t in rows.execute("SELECT memory_id, content FROM memories")
                           if i != turn)  # fmt: skip
    parts = [part for part in pieces(text, PIECE_CHARS) if part not in others]
    places = {name.split("/")[1] for name, *_ in find_texts(small.store.parent, parts)
              if "/" in name}  # fmt: skip
    assert {"work", "snapshots"} <= places
    small.ask(text)
    source = small.source.read_bytes()
    plan = forget(small, turn).report
    assert (plan["summaries"], [m["content"] for m in plan["memories"]]) == (1, [text])
    ran = forget(small, turn, "--apply", "--yes")
    assert ran.code == DONE, ran.says
    assert ran.report["is_gone"], ran.report
    assert small.source.read_bytes() == source
    store_only = find_texts(small.store, parts, skip=[small.paths.encoders])
    assert store_only == []
    assert list_snapshots(small.paths) == [small.serving]
    assert int(turn) not in {memory.id for memory in small.ask(text, k=50).memories}
    ran = run_night(small.source, small.store)
    assert ran.code == DONE, ran.says
    assert find_texts(small.store, parts, skip=[small.paths.encoders]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("when", "function"),
    [
        ("after", "noctuary.snapshot.forget.hide"),
        ("after", "noctuary.snapshot.forget.remove"),
        ("before", "noctuary.snapshot.forget.prove"),
        ("before", "noctuary.snapshot.forget.purge"),
        ("before", "noctuary.snapshot.forget.seal"),
    ],
)
def test_a_killed_command_is_completed_by_the_next_night(
    tmp_path: Path, small_night: FirstNight, when: str, function: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    source = home / "memories.sqlite"
    bench = Bench(source, store_for_source(home, source))
    give_encoder(bench.store, small_night.bench)

    def noctuary(*words: str) -> Ran:
        return run([sys.executable, "-m", "noctuary.cli.entry", *words], home)

    for text in (SECRET, "The spare key hangs behind the blue door.", "Lunch is at noon."):
        assert noctuary("remember", text).code == DONE
    assert run_night(source, bench.store).code == DONE
    words = [sys.executable, str(HERE / "die_at.py"), when, function, "1"]
    ran = run([*words, "forget", "1", "--apply", "--yes", "--store", str(bench.store)], home)
    assert ran.code == -signal.SIGKILL, ran.says
    assert 1 not in {memory.id for memory in bench.ask(SECRET, k=9).memories}
    doctor = noctuary("doctor", "--store", str(bench.store))
    assert "hidden and not purged yet" in doctor.says
    assert run_night(source, bench.store).code == DONE
    assert gone(bench, [*pieces(SECRET, PIECE_CHARS), *WORDS]) == []
    (receipt,) = (bench.store / "receipts").glob("0*.json")
    told = json.loads(receipt.read_text())
    assert told["searched_for"]["texts_unknown"] == 0
    assert told["searched_for"]["vectors"] == 1
    assert "" not in files_of(home).values()
    again = forget(bench, "1", "--apply", "--yes")
    assert again.code == FAILED, "there is nothing left to forget"


@pytest.mark.slow
def test_the_last_memory_is_forgotten_and_the_next_one_is_found(
    tmp_path: Path, small_night: FirstNight
) -> None:
    """An own store without a row is no store that lost its rows."""
    home = tmp_path / "home"
    home.mkdir()
    source = home / "memories.sqlite"
    bench = Bench(source, store_for_source(home, source))
    give_encoder(bench.store, small_night.bench)

    def remember(text: str) -> None:
        ran = run([sys.executable, "-m", "noctuary.cli.entry", "remember", text], home)
        assert ran.code == DONE, ran.says

    remember(SECRET)
    assert run_night(source, bench.store).code == DONE
    ran = forget(bench, "1", "--apply", "--yes")
    assert ran.code == DONE, ran.says
    assert (ran.report["is_gone"], ran.report["removed"]) == (True, {"own store": 1})
    assert gone(bench, [*pieces(SECRET, PIECE_CHARS), *WORDS]) == []
    assert not bench.ask(SECRET, k=9).memories
    remember("Lunch is at noon.")
    assert run_night(source, bench.store).code == DONE
    assert {memory.id for memory in bench.ask("lunch", k=9).memories} == {2}
