"""After any edits the snapshot of a store that saw them is that of a store made anew.

A PostgreSQL database and a SQLite file alike. Every file of the snapshot must be byte-identical:
rows, vectors, postings, graph, summaries.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from noctuary.core.manifest import read_manifest, read_pointer
from noctuary.core.store import StorePaths
from tests.e2e.conftest import FirstNight
from tests.e2e.driver import DONE, Ran, run_night
from tests.e2e.stores import build_small_source, checksums, editing, give_encoder
from tests.support.edit_scripts import INSIDE_US, CacheStore, Edit, Editor, PostgresStore
from tests.support.postgres import Cluster

EDITS = 25
_SEEN_KINDS = (
    "insert", "insert", "edit", "edit", "tag", "delete", "soft_delete", "restore", "flag",
    "flag_back", "placeholder", "secret", "duplicate", "future", "touch",
)  # fmt: skip
_VARIABLE = "EDITED_DATABASE"
_COLUMNS = (
    "id, content, category, tags, expanded_keywords, importance, is_sensitive, created_at,"
    " updated_at"
)


@dataclass(frozen=True)
class Edited:
    """A store that nights read and a script edits."""

    source: Path
    store: PostgresStore | CacheStore
    extra: Mapping[str, str]


def make_database(server: Cluster, directory: Path) -> Edited:
    """Return a PostgreSQL database with a tenth of the sample."""
    dsn = server.dsn("postgres")
    store = PostgresStore(dsn)
    with editing(build_small_source(directory)) as db:
        rows = db.execute(f"SELECT {_COLUMNS} FROM memories ORDER BY id").fetchall()
    store.fill(_COLUMNS, [(*r[:6], bool(r[6]), *r[7:]) for r in rows])
    return Edited(Path(f"env:{_VARIABLE}"), store, {_VARIABLE: dsn})


def make_cache(directory: Path) -> Edited:
    """Return the same as a SQLite file."""
    source = build_small_source(directory)
    return Edited(source, CacheStore(source), {})


@pytest.fixture
def edited(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Edited]:
    """A store of some kind, closed afterwards."""
    (tmp_path / "source").mkdir()
    if request.param == "cache":
        made = make_cache(tmp_path / "source")
    else:
        made = make_database(request.getfixturevalue("server"), tmp_path / "source")
    with closing(made.store):
        yield made


def night(edited: Edited, store: Path, made_by: FirstNight) -> Ran:
    """Run a night of it into a store."""
    if not store.exists():
        give_encoder(store, made_by.bench)
    ran = run_night(edited.source, store, extra=edited.extra)
    assert ran.code == DONE, ran.says
    return ran


@pytest.mark.parametrize(
    ("edited", "seed"),
    [(kind, seed) for kind in ("database", "cache") for seed in range(3)],
    indirect=["edited"],
)
@pytest.mark.slow
def test_a_store_that_was_edited_is_one_made_anew(
    edited: Edited, seed: int, small_night: FirstNight, tmp_path: Path
) -> None:
    grown, anew = tmp_path / "grown" / "store", tmp_path / "anew" / "store"
    night(edited, grown, small_night)
    editor, picks = Editor(edited.store, rows=0), random.Random(seed)
    for _ in range(EDITS):
        age_us = picks.choice((0, INSIDE_US))
        editor.apply(Edit(picks.choice(_SEEN_KINDS), picks.randrange(1_000), age_us))
    ran = night(edited, grown, small_night)
    rebuilt = night(edited, anew, small_night)
    ours, theirs = (_snapshot(store) for store in (grown, anew))
    assert {n for n in ours.keys() | theirs.keys() if ours.get(n) != theirs.get(n)} == set()
    assert {"arrays.safetensors", "rows.sqlite", "manifest.json"} <= ours.keys()
    # An edited content is another content: no vector of the old one stays.
    embedded = ran.note("memory_vectors", "texts_embedded")
    assert 0 < embedded <= EDITS < rebuilt.note("memory_vectors", "texts_embedded")


def _snapshot(store: Path) -> dict[str, str]:
    """Return the checksum of every file of the serving snapshot, its manifest without moments."""
    paths = StorePaths(store)
    snapshot = paths.snapshots / read_pointer(paths).snapshot_id
    manifest = read_manifest(snapshot).to_json()
    del manifest["built_at"]
    manifest["source"].pop("read_us", None)
    return {**checksums(snapshot), "manifest.json": repr(manifest)}
