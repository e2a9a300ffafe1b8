"""What a state tells of memories for supersession, against what was put in."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from noctuary.core.types import MemoryRecord
from noctuary.graph.extract import Extraction, Found, Stated
from noctuary.graph.state import GraphState, open_database, release_memory
from tests.support.graphs import extract_all, synced_keys
from tests.support.store import memory, renumber

RECORDS = renumber(
    [
        memory("nothing at all"),
        memory("Dana Whitfield works at Globex."),
        memory("Kubernetes\nRuns the pods."),
        memory("Redis: fast"),
        memory("it rains", tags="weather, home"),
        memory("no name in here"),
        memory("Boot Hill is part of Blue Ridge. Dana Whitfield works at Initech.", tags="b, a"),
    ]
)


@contextmanager
def placed(path: Path, records: list[MemoryRecord]) -> Generator[GraphState]:
    found = extract_all(records)
    with GraphState.open(path) as state:
        state.sync(records, synced_keys(records), lambda chosen: [found[p] for p in chosen])
        state.place()
        yield state


def _outline(found: Extraction) -> tuple[set[Found], tuple[Stated, ...]]:
    return {f for f in found.found if f.role == "about" or f.kind == "tag"}, found.stated


def test_outlines_are_subjects_tags_and_statements_by_position(tmp_path: Path) -> None:
    with placed(tmp_path / "graph.duckdb", RECORDS) as state:
        pairs = list(state.iter_outlines())
    wanted = [(p, *_outline(found)) for p, found in enumerate(extract_all(RECORDS))]
    wanted = [(p, about, stated) for p, about, stated in wanted if about or stated]
    assert [(p, set(o.found), o.stated) for p, o in pairs] == wanted
    assert 0 < len(pairs) < len(RECORDS)
    for _, outline in pairs:
        assert list(outline.found) == sorted(outline.found, key=lambda f: (f.start, f.end))


def test_only_what_states_something_is_told_where_that_is_wanted(tmp_path: Path) -> None:
    with placed(tmp_path / "graph.duckdb", RECORDS) as state:
        every = dict(state.iter_outlines())
        telling = dict(state.iter_outlines(stated_only=True))
    wanted = {
        p: o
        for p, o in every.items()
        if o.stated or any(f.kind == "key" and f.role == "about" for f in o.found)
    }
    assert telling == wanted
    assert {2, 4} & telling.keys() == set()
    assert {1, 3, 6} <= telling.keys()


def test_outlines_may_be_read_twice_and_with_other_queries_between(tmp_path: Path) -> None:
    with placed(tmp_path / "graph.duckdb", RECORDS) as state:
        first = state.iter_outlines()
        begun = [next(first)]
        others = list(state.iter_outlines())
        assert state.aliases() == state.aliases()
        assert list(state.names())
        assert [*begun, *first] == others


def test_memory_that_is_given_back_leaves_the_tables_and_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graph.duckdb"
    monkeypatch.setattr("noctuary.graph.state._RESTING_MB", 16)
    with closing(open_database(path, memory_mb=600)) as connection:
        connection.execute(
            "CREATE TEMP TABLE held AS SELECT range AS a, range::VARCHAR AS b FROM range(3000000)"
        )

        def told(sql: str) -> tuple[object, ...]:
            return connection.execute(sql).fetchall()[0]

        in_memory = "SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory()"
        before = told(in_memory)[0]
        release_memory(connection, memory_mb=600)
        after = told(in_memory)[0]
        assert isinstance(before, int)
        assert isinstance(after, int)
        assert after < 20_000_000 < before
        assert told("SELECT current_setting('memory_limit')") == ("572.2 MiB",)
        assert told("SELECT count(*), sum(a) FROM held") == (3_000_000, 4_499_998_500_000)


def test_the_database_keeps_to_its_memory_and_spills_beside_itself(tmp_path: Path) -> None:
    path = tmp_path / "graph.duckdb"
    with closing(open_database(path, memory_mb=300)) as connection:
        told = connection.execute(
            "SELECT current_setting('memory_limit'), current_setting('temp_directory')"
        ).fetchall()
    assert told == [("286.1 MiB", f"{path}.spill")]
