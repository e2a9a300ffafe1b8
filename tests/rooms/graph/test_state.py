"""The state of the graph between nights: contributions counted, edges with evidence."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from noctuary.core.types import MemoryRecord
from noctuary.graph import state as hubs
from noctuary.graph.build import Built, build_graph, to_arrays
from noctuary.graph.extract import Dictionary, Extraction, Tokens, find_matches
from noctuary.graph.fold import concept_id
from noctuary.graph.llm import findings_told, merge_extractions
from noctuary.graph.state import (
    DF_POWER,
    LEADING_SHORT_CHARS,
    LEADING_WORTH,
    LONG_LEADING_WORTH,
    LOWER_CASE_WORTH,
    STATE_VERSION,
    GraphState,
    SyncReport,
    open_database,
    release_memory,
    search_texts,
    word_code,
)
from noctuary.graph.tables import FILES, NO_SPAN, read_tables, write_tables
from noctuary.graph.walk import FOUND_RELATIONS, NO_CONCEPT, RELATIONS, relations_in_use
from noctuary.sources.source import KnownConcept, KnownEdge, KnownMention, MemoryLink
from tests.support.graph_objects import Edge, Graph, NameLink, to_graph
from tests.support.graphs import extract_all, graph_built, graph_of, synced_keys
from tests.support.naive_graph import naive_graph
from tests.support.store import day_us, memory, renumber, turns

ROOT = Path(__file__).resolve().parents[4]
FILLER = 30
SECRET = "Zanzibar Quartz"


def corpus(*texts: str) -> list[MemoryRecord]:
    """The texts, and memories that have nothing to do with them."""
    filler = [f"note {i}: the weather was fine" for i in range(FILLER)]
    return renumber([memory(text) for text in (*texts, *filler)])


def load_from(records: Sequence[MemoryRecord]) -> Callable[[Sequence[int]], list[Extraction]]:
    found = extract_all(records)
    return lambda chosen: [found[position] for position in chosen]


def night(path: Path, records: Sequence[MemoryRecord]) -> tuple[SyncReport, Graph, list[int]]:
    """Bring a state up to date; what it did, its graph, and the positions that were extracted."""
    asked, found = list[int](), load_from(records)

    def load(chosen: Sequence[int]) -> list[Extraction]:
        asked.extend(chosen)
        return found(chosen)

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
    said = [memory(f"turn {i}", is_turn=True, session_id="s", created_at_us=i) for i in range(3)]
    night(path, renumber(said))
    moved = renumber([r._replace(created_at_us=9 - r.created_at_us) for r in said])
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
                state.sync(some, synced_keys(some), load_from(some))
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
from tests.rooms.graph.test_state import corpus, night
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


def foreign(path: Path) -> None:
    path.unlink()
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE memory (x INTEGER)")


def change(path: Path, sql: str) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(sql)


HARMS: dict[str, Callable[[Path], object]] = {
    "damaged": lambda path: path.write_bytes(b"no database at all" * 500),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:5000]),
    "foreign": foreign,
    "older": lambda path: change(path, "UPDATE meta SET version = '0'"),
    "half": lambda path: change(path, "DROP TABLE word"),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=[name.replace(" ", "-") for name in HARMS])
def test_a_file_that_is_not_ours_is_rebuilt_and_said_so(
    path: Path, harm: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    records = corpus("Blue Ridge\nHills.", "we saw Blue Ridge")
    _, graph, _ = night(path, records)
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
        kept = connection.execute("SELECT version, has_leftovers FROM meta").fetchall()
    assert kept == [(STATE_VERSION, False)]
    assert b"zanzibar" not in path.read_bytes().lower()
    assert [p.name for p in path.parent.iterdir()] == [path.name]


TEXTS = (
    "We deploy with Jenkins from the old box.",
    "Deployments go through the new runners.",
    "The runners live in the Harbor cluster.",
    "Ana wrote the runbook for Harbor.",
    "Lunch is at noon.",
)


CORPUS = renumber([memory(text, created_at_us=day_us(n + 1)) for n, text in enumerate(TEXTS)])
OLD, NEW, RUNNERS, RUNBOOK, LUNCH = (record.memory_id for record in CORPUS)


def night_told(
    path: Path, records: Sequence[MemoryRecord], told: Mapping[str, Extraction]
) -> Built:
    """Bring a state up to date with texts and what is told, as the stage does."""
    found, keys = extract_all(records), synced_keys(records)
    for record in records:
        if extra := told.get(record.memory_id):
            found[record.position] = merge_extractions(found[record.position], extra)
            keys[record.position] += repr(extra)
    with GraphState.open(path) as state:
        state.sync(records, keys, lambda chosen: [found[p] for p in chosen])
        return build_graph(state, records)


def links(*given: tuple[str, str, str]) -> dict[str, Extraction]:
    return findings_told([MemoryLink(a, b, kind, 0, None) for a, kind, b in given], [], [], [])


def graph_told(tmp_path: Path, told: Mapping[str, Extraction]) -> Graph:
    return to_graph(night_told(tmp_path / "g.duckdb", CORPUS, told).tables)


def test_a_supersedes_link_supersedes_whatever_the_texts_and_dates_say(tmp_path: Path) -> None:
    assert to_graph(graph_built(CORPUS).tables).supersessions == ()
    graph = graph_told(tmp_path, links((NEW, "supersedes", OLD), (OLD, "supersedes", LUNCH)))
    found = [(s.older_position, s.newer_position, s.head_position) for s in graph.supersessions]
    assert found == [(0, 1, 1), (4, 0, 1)]
    first = graph.supersessions[0]
    assert (first.reason, first.confidence, first.valid_to_us) == ("explicit", 2, day_us(2))
    assert (first.evidence.position, first.evidence.start, first.evidence.end) == (1, -1, -1)


@pytest.mark.parametrize(
    ("link_type", "relation"),
    [("part-of", "part_of"), ("see-also", "see_also"), ("resolved-by", "resolved_by")],
)
def test_the_other_links_are_edges_of_their_own_relation(
    tmp_path: Path, link_type: str, relation: str
) -> None:
    before = to_graph(graph_built(CORPUS).tables)
    graph = graph_told(tmp_path, links((OLD, link_type, RUNBOOK)))
    added = [edge for edge in graph.edges if edge not in before.edges]
    assert added == [
        Edge(0, 3, relation, 1.0, "", 0, NO_SPAN, NO_SPAN, day_us(4), None, day_us(1))  # pyright: ignore[reportArgumentType]
    ]
    assert [edge for edge in graph.edges if edge not in added] == list(before.edges)
    assert graph.supersessions == ()


@pytest.mark.parametrize("users", [("ana", "bo"), ("ana", "ana"), ("ana", None), (None, "bo")])
def test_a_link_joins_no_two_users(tmp_path: Path, users: tuple[str | None, str | None]) -> None:
    records = renumber([memory("one", user=users[0]), memory("two", user=users[1])])
    ids = [record.memory_id for record in records]
    told = links((ids[0], "see-also", ids[1]), (ids[0], "supersedes", ids[1]))
    built = night_told(tmp_path / "g.duckdb", records, told)
    graph = to_graph(built.tables)
    assert len(graph.edges) == (users != ("ana", "bo"))
    assert len(graph.supersessions) == (users == ("ana", "ana"))
    assert built.rejected == ({} if graph.supersessions else {"scope": 1})


def test_links_to_nowhere_and_to_oneself_are_no_edges(tmp_path: Path) -> None:
    told = links((OLD, "part-of", "gone"), (OLD, "see-also", OLD), (OLD, "supersedes", "gone"))
    built = night_told(tmp_path / "g.duckdb", CORPUS, told)
    assert to_graph(built.tables).edges == to_graph(graph_built(CORPUS).tables).edges
    assert built.rejected == {"unknown_id": 1}


def test_known_concepts_are_looked_for_in_other_texts(tmp_path: Path) -> None:
    harbor = KnownConcept("Harbor", ("Harbor cluster",), "place")
    told = findings_told([], [harbor], [KnownMention(RUNNERS, "Harbor", "about")], [])
    graph = graph_told(tmp_path, told)
    edges = {(e.src_position, e.relation, e.dst_position) for e in graph.edges}
    assert (3, "mentions_tag", 2) in edges, "the runbook names what the runners are about"
    concept = next(c for c in graph.concepts if c.canonical_name == "Harbor")
    assert "Harbor cluster" in concept.aliases
    assert concept.kind == "tag"


def test_known_edges_are_concept_edges_that_their_memories_say(tmp_path: Path) -> None:
    edge = KnownEdge("runners", "Harbor", "runs on", 9, (NEW, RUNNERS))
    graph = graph_told(tmp_path, findings_told([], [], [], [edge]))
    told = [e for e in graph.concept_edges if e.relation == "related_to"]
    assert len(told) == 1
    assert [(e.position, e.start, e.end) for e in told[0].evidence] == [(1, -1, -1), (2, -1, -1)]
    assert told[0].weight == pytest.approx(2 / 3)
    assert (told[0].valid_from_us, told[0].valid_to_us) == (day_us(2), None)


@pytest.mark.parametrize("relation", ["supersedes", "works_at", "is_now"])
def test_what_a_store_tells_of_concepts_supersedes_no_memory(tmp_path: Path, relation: str) -> None:
    """The same words in a text would: a newer value, or a thing that replaces another."""
    edges = [
        KnownEdge("Ana", "Jenkins", relation, 1, (OLD,)),
        KnownEdge("Ana", "Harbor", relation, 1, (RUNNERS,)),
    ]
    built = night_told(tmp_path / "g.duckdb", CORPUS, findings_told([], [], [], edges))
    assert to_graph(built.tables).supersessions == ()
    assert built.rejected == {}


def test_a_link_in_a_text_is_no_edge_as_before(tmp_path: Path) -> None:
    records = renumber([memory("Atlas notes: see [[102]] and resolves #102."), memory("Ridge.")])
    assert records[1].memory_id == "102"
    stated = extract_all(records)[0].stated
    assert "#102" in [item.object for item in stated], "the text states one"
    assert to_graph(night_told(tmp_path / "g.duckdb", records, {}).tables).edges == ()


def test_links_have_no_concept_in_the_arrays(tmp_path: Path) -> None:
    plain = to_arrays(graph_built(CORPUS).tables, len(CORPUS))
    assert relations_in_use(plain.relations) == FOUND_RELATIONS
    both = [MemoryLink(OLD, NEW, "part-of", 0, None)]
    named = [KnownMention(RUNNERS, "Harbor", "about")]
    built = night_told(tmp_path / "g.duckdb", CORPUS, findings_told(both, [], named, []))
    arrays = to_arrays(built.tables, len(CORPUS))
    assert relations_in_use(arrays.relations) == (*FOUND_RELATIONS, "part_of")
    is_link = arrays.relations == RELATIONS.index("part_of")
    assert arrays.concepts[is_link].tolist() == [NO_CONCEPT]
    assert arrays.targets[is_link].tolist() == [1]
    assert bool((arrays.concepts[~is_link] >= 0).all())
    assert np.count_nonzero(~is_link) > 0
    assert np.count_nonzero(is_link) == 1


_IDS = st.sampled_from([*(record.memory_id for record in CORPUS), "gone"])
_NAMES = st.sampled_from(["Harbor", "Jenkins", "runners", "Ana", "K8s"])
_LINKS = st.builds(
    MemoryLink, _IDS, _IDS, st.sampled_from(["part-of", "see-also", "supersedes", "resolved-by"]),
    st.just(0), st.none(),
)  # fmt: skip
_TOLD = st.builds(
    findings_told,
    st.lists(_LINKS, max_size=3),
    st.just([KnownConcept("Harbor", ("K8s",), "")]),
    st.lists(st.builds(KnownMention, _IDS, _NAMES, st.just("about")), max_size=3),
    st.lists(
        st.builds(
            KnownEdge, _NAMES, _NAMES, st.sampled_from(["has", "uses"]), st.just(1),
            st.lists(_IDS, max_size=2).map(tuple),
        ),
        max_size=2,
    ),
)  # fmt: skip


def check_nights(
    tmp_path_factory: pytest.TempPathFactory, nights: list[dict[str, Extraction]]
) -> None:
    folder = tmp_path_factory.mktemp("told")
    built = [night_told(folder / "kept.duckdb", CORPUS, told) for told in (*nights, {})]
    fresh = night_told(folder / "fresh.duckdb", CORPUS, nights[-1])
    files = {"kept": built[-2], "fresh": fresh, "none": built[-1], "plain": graph_built(CORPUS)}
    for name, made in files.items():
        write_tables(made.tables, folder / name)

    def bytes_of(name: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (folder / name).iterdir()}

    assert bytes_of("kept") == bytes_of("fresh")
    assert bytes_of("none") == bytes_of("plain"), "evidence that vanished leaves nothing behind"


_FACTORY = [HealthCheck.function_scoped_fixture]


@settings(max_examples=2, deadline=None, suppress_health_check=_FACTORY)
@given(st.lists(_TOLD, min_size=2, max_size=2))
def test_nights_of_changing_evidence_end_as_one_night_that_begins_anew(
    tmp_path_factory: pytest.TempPathFactory, nights: list[dict[str, Extraction]]
) -> None:
    check_nights(tmp_path_factory, nights)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=_FACTORY)
@given(st.lists(_TOLD, min_size=2, max_size=4))
def test_many_nights_of_changing_evidence_end_as_one_night_that_begins_anew(
    tmp_path_factory: pytest.TempPathFactory, nights: list[dict[str, Extraction]]
) -> None:
    check_nights(tmp_path_factory, nights)


@contextmanager
def placed(path: Path, records: Sequence[MemoryRecord]) -> Generator[GraphState]:
    with GraphState.open(path) as state:
        state.sync(records, synced_keys(records), load_from(records))
        state.place()
        yield state


def links_of(
    *texts: str | MemoryRecord, canonical_of: Mapping[str, str] | None = None
) -> dict[str, NameLink]:
    """The links of memories by name; some names may stand for one concept."""
    records = renumber([memory(text) if isinstance(text, str) else text for text in texts])
    with (
        tempfile.TemporaryDirectory() as directory,
        placed(Path(directory) / "graph.duckdb", records) as state,
    ):
        return {link.name: link for link in to_graph(state.fold(canonical_of or {})).links}


def damped(worth: float, df: int) -> float:
    return worth / (1 + df) ** DF_POWER


def test_a_title_that_nobody_else_writes_is_worth_one() -> None:
    assert links_of("Obesity\nA disease.") == {
        "obesity": NameLink("obesity", concept_id("obesity"), 1.0, cased=True)
    }


@pytest.mark.parametrize(
    ("title", "written", "capitals"),
    [
        ("Heat Pump", ["a Heat Pump", "the Heat Pump"], 1.0),
        ("Heat Pump", ["a heat pump", "the heat pump"], 0.0),
        ("Heat Pump", ["a Heat pump"], 0.0),
        ("Heat Pump", ["a Heat Pump", "the heat pump", "one heat pump", "no heat pump"], 0.25),
        ("Bank of England", ["at the Bank of England"], 1.0),
        ("Bank of England", ["at the bank of England"], 0.0),
        ("Model 3x", ["a Model 3x"], 1.0),
        ("Ärger im Büro", ["den Ärger im Büro", "den Ärger Im Büro", "den ärger Im Büro"], 1 / 3),
    ],
)
def test_a_title_is_worth_less_the_oftener_others_write_it_in_lower_case(
    title: str, written: list[str], capitals: float
) -> None:
    worth = LOWER_CASE_WORTH + (1 - LOWER_CASE_WORTH) * capitals
    found = links_of(f"{title}\nAbout it.", *(f"we saw {text} there" for text in written))
    assert found[title.lower()].weight == pytest.approx(damped(worth, len(written)))


HILL = "Boot Hill is part of Blue Ridge."
LONG_HILL = HILL + " It rains there." * 30
TITLE = "Boot Hill\nA cemetery."


@pytest.mark.parametrize(
    ("texts", "name", "weight"),
    [
        # A key is worth less as well where others write it in lower case; a heading is worth one.
        (["gateway: it runs on the second rack", "we moved the gateway"], "gateway",
         damped(LOWER_CASE_WORTH, 1)),
        (["## Heat pump\nIt runs on the second rack.", "we moved the heat pump"], "heat pump",
         damped(1.0, 1)),
        # What only began a text is worth little, and less where that text is long.
        ([HILL], "boot hill", LEADING_WORTH),
        ([HILL, "Boot Hill: a cemetery on a hill.", TITLE], "boot hill", 1.0 / 3),
        ([LONG_HILL], "boot hill", LONG_LEADING_WORTH),
        ([LONG_HILL, "Boot Hill is shut."], "boot hill", LEADING_WORTH / 2),
        # It is shared by the memories about it, and falls with those that mention it.
        ([TITLE] * 3, "boot hill", 1 / 3),
        ([TITLE, "we saw Boot Hill, then Boot Hill", "near Boot Hill"], "boot hill",
         damped(1.0, 2)),
    ],
)  # fmt: skip
def test_what_a_name_is_worth(texts: list[str], name: str, weight: float) -> None:
    assert len(LONG_HILL) > LEADING_SHORT_CHARS
    assert links_of(*texts)[name].weight == pytest.approx(weight)


def test_edges_weigh_what_the_concept_is_worth() -> None:
    graph = graph_of(renumber([memory("Heat Pump\nAbout it."), memory("we own a heat pump")]))
    assert [edge.weight for edge in graph.edges] == [pytest.approx(LOWER_CASE_WORTH)]


@pytest.mark.parametrize(
    "texts",
    [
        ["we met Dana Whitfield at Boot Hill", "nothing"],
        [memory("it runs in a cluster", tags="kubernetes"), memory("kubernetes")],
        ["Go\nA language.", "1969\nA year."],
    ],
    ids=["about-nothing", "a-tag", "not-looked-for"],
)
def test_other_names_link_to_nothing(texts: list[str | MemoryRecord]) -> None:
    assert links_of(*texts) == {}


@pytest.mark.parametrize(
    ("limit", "least", "texts"),
    [
        ("HUB_MENTION_MIN", 3, [TITLE, *(["we saw Boot Hill"] * 3)]),
        ("HUB_SUBJECT_LIMIT", 3, [TITLE] * 3),
    ],
)
def test_a_concept_that_too_many_hold_links_to_nothing(
    limit: str, least: int, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hubs, limit, least)
    assert "boot hill" in links_of(*texts)
    monkeypatch.setattr(hubs, limit, least - 1)
    assert links_of(*texts) == {}


def test_a_speaker_links_in_any_case_and_gives_its_worth_to_what_is_about_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = links_of(*turns("s1", "Ana: the boat left.", "Bo: when?"))
    assert found["ana"] == NameLink("ana", concept_id("ana"), 0.0, cased=False)
    assert set(found) == {"ana", "bo"}
    (link,) = links_of(*turns("s1", "Ana: the boat left."), "Ana\nA sailor.").values()
    assert (link.name, link.weight, link.cased) == ("ana", 1.0, False)
    assert links_of("Ana\nA sailor.")["ana"].cased
    monkeypatch.setattr(hubs, "HUB_MENTION_MIN", 1)
    beyond = links_of(*turns("s1", "Ana: hi"), "Ana\nA sailor.", "we met Ana", "they met Ana")
    assert beyond["ana"].weight == 0.0, "a link beyond every limit"


def test_merged_names_all_link_to_their_canonical_concept_by_their_own_case() -> None:
    k8s, scheduler = {"k8s": "kubernetes"}, "Kubernetes\nA scheduler."
    texts = scheduler, "K8s\nIt runs the pods.", "we moved to K8s"
    found = links_of(*texts, canonical_of=k8s)
    assert set(found) == {"kubernetes", "k8s"}
    assert {link.concept_id for link in found.values()} == {concept_id("kubernetes")}
    weights = [link.weight for link in found.values()]
    assert weights == pytest.approx([damped(1 / 2, 1)] * 2)
    found = links_of(scheduler, "k8s: it runs the pods", canonical_of=k8s)
    assert {n: link.cased for n, link in found.items()} == {"kubernetes": True, "k8s": False}
    said = *turns("s1", "Ana: hi"), "we met Anabel", "Anabel\nShe."
    found = links_of(*said, canonical_of={"anabel": "ana"})
    assert set(found) == {"ana", "anabel"}, "a name merged into a speaker speaks as well"
    assert {(n.concept_id, n.cased) for n in found.values()} == {(concept_id("ana"), False)}


@pytest.mark.parametrize(
    ("other", "leads"),
    [("a mill", True), ("Casino\nA film.", False), ("Casino, Iowa\nA town.", True)],
)
def test_a_town_is_reached_where_its_state_is_named_and_nothing_is_just_called_so(
    path: Path, other: str, leads: bool
) -> None:
    texts = ("Casino, New South Wales\nA town.", "between Tenterfield and Casino", other)
    records = corpus(*texts, "we drove to Casino in the north of New South Wales")
    _, graph, _ = night(path, records)
    assert graph == plain(records)
    steps = {(e.src_position, e.dst_position) for e in graph.edges}
    assert ((3, 0) in steps, (1, 0) in steps) == (leads, False)


def test_links_are_sorted_by_name_and_every_name_is_there_once() -> None:
    names = list(links_of(*(f"{name} Hill\nA hill." for name in ("Zoë", "Ärger", "Boot", "zoë"))))
    assert names == sorted(set(names))
    assert len(names) == 5  # Zoe Hill and Arger Hill too


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


def test_outlines_are_subjects_tags_and_statements_by_position(tmp_path: Path) -> None:
    with placed(tmp_path / "graph.duckdb", RECORDS) as state:
        first = state.iter_outlines()
        begun = [next(first)]
        pairs = list(state.iter_outlines())
        telling = dict(state.iter_outlines(stated_only=True))
        assert state.aliases() == state.aliases()
        assert list(state.names())
        assert [*begun, *first] == pairs, "with other queries between"
    wanted = [
        (p, {f for f in found.found if f.role == "about" or f.kind == "tag"}, found.stated)
        for p, found in enumerate(extract_all(RECORDS))
    ]
    wanted = [(p, about, stated) for p, about, stated in wanted if about or stated]
    assert [(p, set(o.found), o.stated) for p, o in pairs] == wanted
    assert 0 < len(pairs) < len(RECORDS)
    for _, outline in pairs:
        assert list(outline.found) == sorted(outline.found, key=lambda f: (f.start, f.end))
    assert telling == {
        p: o
        for p, o in pairs
        if o.stated or any(f.kind == "key" and f.role == "about" for f in o.found)
    }
    assert {2, 4} & telling.keys() == set()
    assert {1, 3, 6} <= telling.keys()


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


NAMES = {"blue ridge": False, "redis": True, "ridge": False, "公司": False}
TO_SEARCH: list[tuple[int, str, list[str]]] = [
    (100, "we saw Blue Ridge and redis", ["ridge"]),
    (101, "Redis on the ridge", ["redis"]),
    (102, "我的公司 and 公司", []),
    (103, "nothing here", []),
    (104, "", []),
]


@pytest.mark.parametrize("words", [True, False])
def test_a_batch_gives_what_each_text_gives(words: bool) -> None:
    dictionary = Dictionary(NAMES)
    found = search_texts(TO_SEARCH, dictionary, words=words)
    matched: list[tuple[Any, ...]] = []
    codes: list[tuple[int, list[int]]] = []
    for mid, text, own in TO_SEARCH:
        here = find_matches(text, dictionary, own)
        matched += [(mid, m.name, m.start, m.end, text[m.start : m.end]) for m in here]
        codes.append((mid, sorted({word_code(word) for word in Tokens(text).folded})))
    assert found == {"matched": matched, "word": codes if words else []}
    assert matched
