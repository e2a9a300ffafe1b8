"""Several stores in one: every memory under its store's name, and none is lost without a word."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from noctuary import remember
from noctuary.core.errors import ConfigError, SourceEmptyError, SourceError
from noctuary.core.settings import Settings, TranscriptSettings
from noctuary.core.store import store_for_source
from noctuary.core.tombstones import Tombstones, read_tombstones
from noctuary.recall.api import recall
from noctuary.sources.corpus import read_records
from noctuary.sources.evidence import read_evidence, write_evidence
from noctuary.sources.export import export_corpus, refuse_emptied
from noctuary.sources.ingest import ingest_transcripts
from noctuary.sources.open import open_source, read_marker
from noctuary.sources.own_store import OWN_FILE
from noctuary.sources.source import MemoryLink, Source
from noctuary.sources.turns import find_roots, hash_bytes, open_with_turns
from tests.support.claude_memory import check_rows_of
from tests.support.live import Cache, age, make_cache
from tests.support.palaces import drawer, make_palace
from tests.support.store import Store, new_store
from tests.support.transcripts import CodexSession, said_session, write_session

KEY = "The spare key hangs behind the blue door."
LINES = [{"id": 1, "content": "Lunch is at noon."}, {"id": "n:2", "content": "The bus is late."}]
DRAWERS = (
    drawer("cache_new", "Redis runs on port 6379."),
    drawer("cache_old", "The cache was Memcached.", superseded_by="cache_new"),
)

List = Callable[..., Path]


@pytest.fixture(scope="session")
def palace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A palace that nobody changes."""
    folder = tmp_path_factory.mktemp("palace")
    make_palace(folder, DRAWERS)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return make_cache(tmp_path / "memory.db")


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    path = tmp_path / "notes.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in LINES), encoding="utf-8")
    return path


@pytest.fixture
def listed(home: Path) -> List:
    """Write noctuary.toml of the home, with these sources."""

    def write(**sources: object) -> Path:
        lines = (f"{name} = {json.dumps(str(path))}\n" for name, path in sources.items())
        (home / "noctuary.toml").write_text(f"[sources]\n{''.join(lines)}", encoding="utf-8")
        return home / "noctuary.toml"

    return write


@pytest.fixture
def everything(listed: List, cache: Cache, notes: Path, palace: Path) -> Path:
    """The own store, and one of every kind."""
    remember(KEY, wing="home")
    remember("It hangs in the hall now.", supersedes=1)
    return listed(palace=palace, cache=cache.path, notes=notes)


def keys_of(source: Source) -> list[object]:
    return [row.key for row in source.rows()]


def test_every_row_comes_under_the_name_of_its_store(everything: Path, cache: Cache) -> None:
    cache.run("DELETE FROM memories WHERE id > 2")
    with open_source(everything) as several:
        keys, identity = keys_of(several), several.identity()
        assert several.count() == len(keys) == 8
    assert keys == [
        "cache:1", "cache:2", "notes:1", "notes:n:2", "own:1", "own:2",
        "palace:cache_new", "palace:cache_old",
    ]  # fmt: skip
    assert (identity.kind, identity.id_kind) == ("several", "str")
    assert identity.location == str(everything)
    assert {name: one["rows"] for name, one in identity.members.items()} == {
        "cache": 2, "notes": 2, "own": 2, "palace": 2,
    }  # fmt: skip
    assert identity.members["own"]["last_id"] == 2


def test_each_store_says_of_its_memories_what_it_says_alone(
    everything: Path, tmp_path: Path, palace: Path, home: Path
) -> None:
    alone = {"own": home / OWN_FILE, "palace": palace}
    wanted: list[MemoryLink] = []
    for name, path in alone.items():
        with open_source(path) as source:
            told = list(source.told(MemoryLink))
        assert told, "the comparison below is about something"
        wanted += [one._replace(from_id=f"{name}:{one.from_id}", to_id=f"{name}:{one.to_id}")
                   for one in told]  # fmt: skip
    with open_source(everything) as several:
        export_corpus(several, tmp_path / "out")
        counts = write_evidence(several, tmp_path / "out")
    assert sorted(read_evidence(tmp_path / "out", MemoryLink)) == sorted(wanted)
    assert counts.left_out == 0


def test_rows_are_those_of_each_store_read_alone(
    everything: Path, tmp_path: Path, cache: Cache, notes: Path, palace: Path, home: Path
) -> None:
    """The differential twin: exported one by one, every memory is the same but for its id."""
    with open_source(everything) as several:
        check_rows_of(several)
        report = export_corpus(several, tmp_path / "all")
    found = {r.memory_id: r for r in read_records(tmp_path / "all")}
    alone = {"cache": cache.path, "notes": notes, "own": home / OWN_FILE, "palace": palace}
    for name, path in alone.items():
        with open_source(path) as source:
            export_corpus(source, tmp_path / name)
        for record in read_records(tmp_path / name):
            twin = found.pop(f"{name}:{record.memory_id}")
            assert twin._replace(memory_id="", position=0, content_hash="") == record._replace(
                memory_id="", position=0, content_hash=""
            )
    assert not found
    assert report.exported == report.source_rows


def _gone(path: Path) -> None:
    path.unlink()


def _no_store(path: Path) -> None:
    path.write_bytes(b"SQLite format 3\x00" + b"\x01" * 2_000)


def _two_stores(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "memory.db").touch()
    (path / "corpus.jsonl").touch()


@pytest.mark.parametrize(
    ("breaking", "why"),
    [
        (_gone, "There is no memory store at"),
        (_no_store, "cannot be read as one"),
        (_two_stores, "holds several stores"),
    ],
)
def test_a_store_that_cannot_be_read_stops_the_night_and_is_named(
    everything: Path, cache: Cache, breaking: Callable[[Path], None], why: str
) -> None:
    breaking(cache.path)
    with pytest.raises(SourceError, match=why) as caught:
        open_source(everything)
    assert "the source 'cache' of" in str(caught.value)
    assert "take its line out" in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "why"),
    [
        ("[sources]\nown = 'x.db'", "'own' is noctuary's own store"),
        ("[sources]\n'a:b' = 'x.db'", "no name of a source"),
        ("[sources]\n'' = 'x.db'", "no name of a source"),
        ("[sources]\na = 3", "expected a path as text"),
        ("[sources]\na = ' '", "expected a path as text"),
        ("sources = 3", "must be a table"),
        ("[source", "not valid TOML"),
    ],
)
def test_a_list_with_a_fault_is_refused_with_a_sentence(home: Path, toml: str, why: str) -> None:
    (home / "noctuary.toml").write_text(toml, encoding="utf-8")
    with pytest.raises(ConfigError, match=why):
        open_source(home / "noctuary.toml")


def test_a_list_of_lists_is_refused(listed: List, tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[sources]\n", encoding="utf-8")
    with pytest.raises(SourceError, match="lists sources itself"):
        open_source(listed(other=tmp_path / "other.toml"))


def test_paths_start_from_the_list_and_from_the_users_home(
    listed: List, notes: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(notes.parent))
    file = listed(a=f"../{notes.name}", b=f"~/{notes.name}")
    monkeypatch.chdir("/")
    with open_source(file) as several:
        assert keys_of(several) == ["a:1", "a:n:2", "b:1", "b:n:2"]


def test_a_store_that_lost_its_rows_stops_the_night_but_the_own_one_may(
    everything: Path, home: Path, cache: Cache, tmp_path: Path
) -> None:
    last, store = tmp_path / "corpus", new_store(tmp_path / "store")

    def look(*gone: str) -> None:
        with open_source(everything) as several:
            refuse_emptied(several, last, store.paths, Tombstones(ids=frozenset(gone), since="now"))

    look()  # a first night
    with open_source(everything) as several:
        export_corpus(several, last)
    look()
    with closing(sqlite3.connect(home / OWN_FILE)) as db, db:
        db.execute("DELETE FROM memories")
    look()
    (home / OWN_FILE).unlink()
    with pytest.raises(SourceEmptyError, match=r"'own'.*held 2"):
        look()
    remember(KEY)
    cache.run("DELETE FROM memories")
    with pytest.raises(SourceEmptyError, match=r"'cache'.*held 8.*take its line out"):
        look()
    forgotten = [f"cache:{key}" for key in range(1, 9)]
    with pytest.raises(SourceEmptyError, match=r"'cache'.*held 8"):
        look(*forgotten[:7], "cacher:8")
    look(*forgotten)


def test_the_marker_and_the_digest_change_with_every_member(
    everything: Path, home: Path, cache: Cache, notes: Path, tmp_path: Path, listed: List
) -> None:
    codex = tmp_path / "codex"
    said = CodexSession()
    said.user("hello")
    write_session(codex / "a.jsonl", said.lines)
    listed(cache=cache.path, notes=notes, codex=f"transcripts:{codex}")

    def look() -> tuple[str, str | None]:
        settings = Settings.load(home=home, environ={})
        return read_marker(everything, settings), hash_bytes(everything, tmp_path)

    seen = [look()]
    assert look() == seen[0]
    remember("A new one.")
    seen.append(look())
    cache.add("Another.")
    seen.append(look())
    with notes.open("a", encoding="utf-8") as file:
        file.write('{"id": 9, "content": "One more."}\n')
    seen.append(look())
    listed(cache=cache.path, renamed=notes, codex=f"transcripts:{codex}")
    seen.append(look())
    assert len({marker for marker, _ in seen}) == len({digest for _, digest in seen}) == 5
    said.user("more")
    write_session(codex / "a.jsonl", said.lines)
    assert look()[0] != seen[-1][0]
    assert look()[1] == seen[-1][1], "their turns are in a file of their own"
    listed(cache=cache.path, house="postgresql://reader@db.example.org/memories")
    assert hash_bytes(everything, tmp_path) is None, "only reading tells"


def test_transcripts_of_several_agents_join_even_when_they_are_gone(
    listed: List, notes: Path, tmp_path: Path
) -> None:
    claude, codex = tmp_path / "claude", tmp_path / "codex"
    write_session(claude / "project" / "a.jsonl", said_session().lines)
    said = CodexSession()
    said.user("Which port does Redis use here?")
    write_session(codex / "2026" / "b.jsonl", said.lines)
    file = listed(
        claude=f"transcripts:{claude}", codex=f"transcripts:{codex}", notes=notes,
    )  # fmt: skip
    settings, turns = Settings(transcripts=TranscriptSettings(path=str(codex))), tmp_path / "turns"
    roots = find_roots(file, settings.transcripts)
    assert roots == [claude, codex], "each once"
    for root in roots:
        ingest_transcripts(root, turns)
    for folder in (claude, codex):
        for path in folder.rglob("*.jsonl"):
            path.unlink()
    assert not ingest_transcripts(claude, turns).faults
    with open_with_turns(file, turns, settings, tmp_path / "out") as source:
        keys = [str(key) for key in keys_of(source)]
        assert source.count() == len(keys) == len(set(keys))
        contents = [str(row.fields["content"]) for row in source.rows()]
    assert {"notes:1", "notes:n:2"} < set(keys)
    assert "User: Which port does Redis use here?" in contents
    assert sum(key.startswith("turn-") for key in keys) == len(keys) - 2


# What is remembered, and what changes in a member, is found by the very next recall.


def publish(file: Path, store: Store) -> None:
    """Publish what the stores hold now, by the export of a night."""
    read_us = time.time_ns() // 1000
    with open_source(file) as source:
        gone = read_tombstones(store.root)
        report = export_corpus(source, store.paths.work / "corpus", forgotten=gone)
    made: Mapping[str, Any] = {
        "kind": report.identity.kind, "schema_version": "1", "location": report.identity.location,
        "read_us": read_us, "members": report.identity.members,
    }  # fmt: skip
    store.publish(read_records(store.paths.work / "corpus"), source=made, id_kind="str")


def ids(query: str) -> list[object]:
    return [memory.id for memory in recall(query).memories]


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_remembered_is_found_at_once(
    listed: List, home: Path, notes: Path, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "10000")
    file = listed(notes=notes)
    if not is_first:
        remember("The boiler needs a new valve.")
    store = new_store(store_for_source(home, file))
    publish(file, store)
    assert "live_unreachable" not in str(recall("spare key").to_json()["warnings"])
    kept = remember(KEY)
    assert (kept.store, kept.is_live, kept.source) == (store.root, True, file)
    assert ids("spare key blue door")[0] == kept.id
    assert "notes:1" in ids("lunch at noon")


def test_changes_of_a_member_are_seen_under_its_name(
    listed: List, home: Path, cache: Cache, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOCTUARY_LIVE_DEADLINE_MS", "10000")
    file = listed(cache=cache.path, notes=notes)
    remember("The boiler key is in the cellar.")
    publish(file, new_store(store_for_source(home, file)))
    age(cache.path)
    before = ids("boiler valve winter")
    assert {"cache:5", "own:1"} <= set(before)
    cache.delete(5)
    cache.edit(2, content="The boiler cat eats once a day.")
    new = cache.add("A boiler man comes on Monday.")
    after = ids("boiler valve winter")
    assert "cache:5" not in after
    assert {"cache:2", f"cache:{new}", "own:1"} <= set(after), "an id of one hides none of another"
    cache.path.unlink()
    told = str(recall("boiler").to_json()["warnings"])
    assert "live_unreachable" in told
    assert str(cache.path) in told
    assert "own:1" in ids("boiler key cellar")


def test_a_star_is_every_folder_there(
    listed: List, palace: Path, tmp_path: Path, home: Path
) -> None:
    top = tmp_path / "projects"
    for name, lines in (("app", LINES), ("b:d", LINES[:1]), ("empty", ())):
        (top / name / "memory").mkdir(parents=True)
        if lines:
            path = top / name / "memory" / "corpus.jsonl"
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    (top / "linked").symlink_to(palace)
    (top / "inside").mkdir()
    (top / "inside" / "memory").symlink_to(top / "app" / "memory")
    file = listed(notes=top / "*" / "memory")
    with open_source(file) as several:
        keys = [str(key) for key in keys_of(several)]
    assert keys[:2] == ["notes/app:1", "notes/app:n:2"]
    assert len(keys) == 3
    assert keys[2].startswith("notes/b-d~")
    marker = read_marker(file, Settings())
    (top / "new" / "memory").mkdir(parents=True)
    (top / "new" / "memory" / "corpus.jsonl").write_text('{"id": 7, "content": "New."}\n')
    assert read_marker(file, Settings()) != marker
    with open_source(file) as several:
        assert "notes/new:7" in keys_of(several)
    (top / "new" / "memory" / "memory.db").touch()
    with pytest.raises(SourceError, match=r"'notes/new'.*several stores"):
        open_source(file)
    top.rename(tmp_path / "away")
    with pytest.raises(SourceError, match=r"'notes'.*cannot be read"):
        open_source(file)
